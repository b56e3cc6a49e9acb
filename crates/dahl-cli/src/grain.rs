//! Options that decide the grain of a plan, shared by commands.

use clap::Args;
use dahl::model::Fusion;
use dahl::planner::{Gather, Grain};

/// How ops are cut and gathered
#[derive(Args)]
pub(crate) struct GrainArgs {
    /// Worker threads
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    workers: usize,
    /// Pieces that the batch is cut into [default: one a worker]
    #[arg(long, value_parser = at_least_one)]
    pieces: Option<usize>,
    /// Pieces that channels and features are cut into
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    channels: usize,
    /// Make every piece of every op a task of its own
    #[arg(long)]
    no_gather: bool,
    /// Leave ops as they are instead of fusing them
    #[arg(long)]
    no_fusion: bool,
}

impl GrainArgs {
    pub(crate) fn grain(&self) -> Grain {
        Grain {
            workers: self.workers,
            pieces: self.pieces.unwrap_or(self.workers),
            channels: self.channels,
            gather: if self.no_gather { Gather::Off } else { Gather::On },
        }
    }

    pub(crate) fn fusion(&self) -> Fusion {
        if self.no_fusion { Fusion::Off } else { Fusion::On }
    }
}

/// Threads of a processor beyond which a run does not get on.
const THREADS_A_PROCESSOR: usize = 16;

/// A number of threads that this machine can run.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let threads = at_least_one(text)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let most = THREADS_A_PROCESSOR * processors;
    if threads <= most {
        return Ok(threads);
    }
    Err(format!("expected at most {most}, {THREADS_A_PROCESSOR} for each processor"))
}

/// A whole number from 1 on.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("expected at least 1".to_owned()),
        Ok(n) => Ok(n),
        Err(_) => Err("expected a whole number".to_owned()),
    }
}
