//! Views of a run while it goes on: a page, Prometheus' text, a terminal.

mod http;
mod prometheus;
mod screen;
mod server;
mod tui;

pub(crate) use screen::Screen;

use crate::report::Report;
use clap::Args;
use dahl::run::Recorder;
use dahl::{Error, Result};
use server::Server;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tui::Tui;

/// Views of the running job
#[derive(Args)]
pub(crate) struct LiveArgs {
    /// Serve a live report of the run over HTTP, and Prometheus metrics at /metrics. Without PORT, a
    /// free port is used
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    dashboard: Option<u16>,
    /// IP address on which the dashboard listens; connections are not encrypted
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), requires = "dashboard")]
    dashboard_address: IpAddr,
    /// Show the progress of the run in a full-screen terminal view; the key q closes the view, and
    /// the run continues
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    pub(crate) tui: bool,
}

/// The views that are open.
pub(crate) struct Live {
    server: Option<Server>,
    tui: Option<Tui>,
}

impl LiveArgs {
    /// Opens what was asked for.
    pub(crate) fn start(
        &self,
        recorder: &mut Recorder,
        model: &str,
        config: &str,
    ) -> Result<Option<Live>> {
        if self.dashboard.is_none() && !self.tui {
            return Ok(None);
        }
        let shared = recorder.share(model, config);
        let server = match self.dashboard {
            Some(port) => {
                let address = SocketAddr::new(self.dashboard_address, port);
                let server = Server::start(address, shared.clone());
                Some(server.map_err(|e| {
                    Error::config("dashboard", "an address to serve on", format!("{address}: {e}"))
                })?)
            }
            None => None,
        };
        let tui = match self.tui {
            true if !std::io::stderr().is_terminal() => {
                return Err(Error::config("tui", "a terminal", "none on standard error"));
            }
            true => {
                let failed = |e| Error::config("tui", "a terminal that can be drawn on", e);
                let url = server.as_ref().map(Server::url);
                Some(Tui::start(shared, url).map_err(failed)?)
            }
            false => None,
        };
        Ok(Some(Live { server, tui }))
    }
}

impl Live {
    /// Says where to look; the terminal, where it is drawn on.
    pub(crate) fn tell(&self, report: &mut Report) -> Option<Screen> {
        let screen = self.tui.as_ref().map(Tui::screen);
        match (&self.server, &screen) {
            // The view itself has it.
            (_, Some(screen)) => report.hold(screen.clone()),
            (Some(server), None) => report.warn(format_args!("dashboard: {}", server.url())),
            (None, None) => {}
        }
        if let Some(text) = self.server.as_ref().and_then(Server::warning) {
            report.warn(format_args!("warning: {text}"));
        }
        screen
    }
}
