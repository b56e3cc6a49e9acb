//! Options that decide the grain of a plan, shared by commands.

use clap::{Args, ValueEnum};
use dahl::Isa;
use dahl::model::Fusion;
use dahl::ops::{Accuracy, Target};
use dahl::planner::Grain;

/// How ops are cut and gathered
#[derive(Args)]
pub(crate) struct GrainArgs {
    /// How ops are cut: auto, or pieces such as sample=4,channel=2,gather=off
    /// (docs/grain.md) [default: one piece of the batch a worker]
    #[arg(long, value_parser = cuts)]
    grain: Option<Cuts>,
    /// Leave ops as they are instead of fusing them
    #[arg(long)]
    no_fusion: bool,
    #[command(flatten)]
    kernels: KernelArgs,
}

/// How a flag says that ops are cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cuts {
    /// The best of some grains, by prediction.
    Auto,
    /// The same, re-chosen while the run goes on.
    Adaptive,
    /// Pieces along axes.
    Given(String),
}

/// Reads a grain.
pub(crate) fn cuts(text: &str) -> Result<Cuts, String> {
    match text {
        "auto" => return Ok(Cuts::Auto),
        "adaptive" => return Ok(Cuts::Adaptive),
        _ => {}
    }
    match Grain::check_text(text) {
        Ok(_) => Ok(Cuts::Given(text.to_owned())),
        Err(error) => Err(format!(
            "expected auto, adaptive, or {}",
            error.to_string().trim_start_matches("grain: expected ")
        )),
    }
}

/// Which kernels are used
#[derive(Args)]
pub(crate) struct KernelArgs {
    /// How exact convolutions are [default: auto in f32, exact in f64]
    #[arg(long, value_enum)]
    conv: Option<Conv>,
    /// The instruction set: portable, avx2, avx512 or neon [default: the widest here]
    #[arg(long, value_parser = isa)]
    isa: Option<Isa>,
}

/// How exact convolutions are
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Conv {
    /// Every product is taken
    Exact,
    /// 3x3 windows may take 2.25 times fewer products: an error of about 1e-6 of
    /// the largest value in f32
    Auto,
    /// 3x3 windows may take 4 times fewer products: an error of about 2e-5
    Fast,
}

impl Conv {
    fn accuracy(self) -> Accuracy {
        match self {
            Conv::Exact => Accuracy::Exact,
            Conv::Auto => Accuracy::Auto,
            Conv::Fast => Accuracy::Fast,
        }
    }
}

impl KernelArgs {
    pub(crate) fn target(&self) -> Target {
        let isa = self.isa.unwrap_or_else(Isa::detect);
        Target { isa, accuracy: self.conv.map(Conv::accuracy) }
    }
}

/// Reads an instruction set that this machine has.
fn isa(text: &str) -> Result<Isa, String> {
    let isa: Isa = text.parse()?;
    available(isa).map_err(|found| format!("expected one of this machine, found {found}"))?;
    Ok(isa)
}

/// Refuses an instruction set that this machine does not have, with those that it
/// has.
pub(crate) fn available(isa: Isa) -> Result<(), String> {
    if isa.is_available() {
        return Ok(());
    }
    let have = Isa::ALL.into_iter().filter(|isa| isa.is_available()).map(Isa::name);
    Err(format!("a machine that has {}", have.collect::<Vec<_>>().join(", ")))
}

impl GrainArgs {
    /// The grain of some workers, before a choice.
    pub(crate) fn base(&self, workers: usize) -> Grain {
        Grain { target: self.kernels.target(), ..Grain::for_workers(workers) }
    }

    pub(crate) fn cuts(&self) -> Option<&Cuts> {
        self.grain.as_ref()
    }

    /// The grain that is given; a choice is made where there is a plan.
    pub(crate) fn grain(&self, workers: usize) -> dahl::Result<Grain> {
        match &self.grain {
            None => Ok(self.base(workers)),
            Some(Cuts::Given(text)) => self.base(workers).with(text),
            Some(Cuts::Auto) => {
                Err(dahl::Error::config("grain", "pieces, such as sample=4", "auto"))
            }
            Some(Cuts::Adaptive) => Err(only_trained()),
        }
    }

    pub(crate) fn fusion(&self) -> Fusion {
        if self.no_fusion { Fusion::Off } else { Fusion::On }
    }
}

/// The error of whoever asks for a grain that changes where nothing runs.
pub(crate) fn only_trained() -> dahl::Error {
    let expected = "auto or pieces, such as sample=4; dahl train adapts";
    dahl::Error::config("grain", expected, "adaptive")
}

/// Workers of a run that was not told how many: one per processor.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Threads of a processor beyond which a run does not get on.
const THREADS_A_PROCESSOR: usize = 16;

/// A number of threads that this machine can run.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let threads = at_least_one(text)?;
    let most = THREADS_A_PROCESSOR * processors();
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
