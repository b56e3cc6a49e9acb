//! One page of one or several runs: a file without outside references.

mod data;
mod gantt;

pub use data::{run_json, runs_json};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
const SCRIPTS: [&str; 5] = [
    include_str!("base.js"),
    include_str!("charts.js"),
    include_str!("gantt.js"),
    include_str!("sections.js"),
    include_str!("main.js"),
];

/// Where a page has its runs from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are in it.
    File,
    /// It asks for them again and again, at `data.json` beside it.
    Live,
}

/// The Content-Security-Policy of a page: its own script and styles and, during a run,
/// the runs. So markup that came in by a name of a file could do nothing.
pub fn content_security_policy(mode: Mode) -> String {
    let hash = gantt::base64(&Sha256::digest(SCRIPTS.join("\n")));
    let runs = match mode {
        Mode::File => "'none'",
        Mode::Live => "'self'",
    };
    format!(
        "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; \
         img-src data:; connect-src {runs}; base-uri 'none'; form-action 'none'"
    )
}

/// The page of runs, which [`runs_json`] makes.
pub fn page(runs: &Value, mode: Mode) -> String {
    // A text in the data must not end the element that it stands in; only texts have it.
    let data = json!({ "live": mode == Mode::Live, "runs": runs }).to_string();
    let data = data.replace('<', "\\u003c");
    let script = SCRIPTS.join("\n");
    let mut page = String::with_capacity(HTML.len() + STYLE.len() + script.len() + data.len());
    let mut rest = HTML;
    let policy = content_security_policy(mode);
    let parts = [("/*POLICY*/", &*policy), ("/*STYLE*/", STYLE), ("/*DATA*/", &data)];
    for (mark, text) in parts.into_iter().chain([("/*SCRIPT*/", &*script)]) {
        let (before, after) = rest.split_once(mark).expect("the marks of the page");
        page += before;
        page += text;
        rest = after;
    }
    page + rest
}
