//! One cell of the table: a workload in one element type on some threads.

use super::measure::{Bench, Timings, flops, median_interval, peak};
use super::torch::{MODES, Setup, Torch};
use super::workloads::Workload;
use crate::args::{KernelsAndTuning, Settings};
use crate::files::plan;
use crate::progress::Show;
use dahl::model::Lowered;
use dahl::native::Native;
use dahl::ops::Accuracy;
use dahl::planner::Grain;
use dahl::{DType, Error, Result};
use std::path::Path;
use std::time::Duration;

/// How many pairs every mode of PyTorch gets before the best two go on.
const TRIALS: usize = 3;

/// How long PyTorch's threads have to come to rest.
const SETTLE: Duration = Duration::from_millis(50);

/// What is measured.
pub(super) struct Cell<'a> {
    pub(super) workload: &'a Workload,
    pub(super) dtype: DType,
    pub(super) threads: usize,
    pub(super) kernels: &'a Settings<KernelsAndTuning>,
    /// The Python of the other side.
    pub(super) python: Option<&'a Path>,
}

/// PyTorch's figures.
pub(super) struct Theirs {
    pub(super) version: String,
    pub(super) mode: &'static str,
    pub(super) ms: f64,
    pub(super) spread: f64,
    pub(super) valid: bool,
    /// What the median of the pairs' ratios lies in, with 95 %.
    interval: [f64; 2],
}

/// The figures of a cell.
pub(super) struct Row {
    pub(super) workload: String,
    pub(super) dtype: DType,
    pub(super) threads: usize,
    /// How exact convolutions are.
    pub(super) conv: &'static str,
    pub(super) dahl_ms: f64,
    pub(super) samples_per_second: f64,
    pub(super) gflops: f64,
    /// Of the measured peak of all threads.
    pub(super) of_peak: f64,
    /// Microseconds per step and worker in which no kernel ran.
    pub(super) outside_us: f64,
    pub(super) spread: f64,
    pub(super) valid: bool,
    pub(super) torch: Option<Theirs>,
    /// How much faster than one thread.
    pub(super) scaling: Option<f64>,
}

impl Theirs {
    fn interval(&self) -> String {
        format!("{:.2}-{:.2}", self.interval[0], self.interval[1])
    }
}

/// One mode of PyTorch with what it took so far.
struct Mode {
    name: &'static str,
    torch: Torch,
    timings: Timings,
}

impl Cell<'_> {
    fn bench(&self, engine: &Native) -> Result<Bench> {
        let Workload { model, batch, .. } = self.workload;
        let grain = Grain { target: self.kernels.target(), ..Grain::for_workers(self.threads) };
        let tune = self.kernels.config.identity.tune.0;
        let plan = |lowered: &Lowered| plan(&grain, &lowered.programs, tune, Show::on_stderr());
        Bench::on(model, (*batch, self.dtype), plan, engine)
    }

    /// Writes the trace of some steps.
    pub(super) fn trace(&self, seconds: f64, path: &Path) -> Result<()> {
        let mut bench = self.bench(&Native { record: true, ..Native::default() })?;
        let steps = bench.steps_of(seconds)?;
        drop(bench.trainer().session().take_trace());
        bench.run(steps)?;
        let trace = bench.trainer().session().take_trace();
        dahl::file::replace(path, |out| trace.write_to(out)).map_err(Error::while_writing)
    }

    /// Measures both sides in turns.
    pub(super) fn measure(&self, pairs: usize, seconds: f64) -> Result<Row> {
        let Self { workload, dtype, threads, kernels, python, .. } = *self;
        let Workload { model, batch, .. } = workload;
        let mut bench = self.bench(&Native::default())?;
        let steps_of_dahl = bench.steps_of(seconds)?;
        let module = python.map(|_| workload.model.to_torch()).transpose()?;
        let mut modes: Vec<Mode> = Vec::new();
        if let (Some(python), Some(module)) = (python, &module) {
            let mut refused = Vec::new();
            for name in MODES {
                let (batch, dtype) = (*batch, dtype.name());
                let classes = bench.classes;
                let setup = Setup { module, batch, classes, dtype, threads, mode: name };
                match Torch::start(python, setup)? {
                    Ok(torch) => modes.push(Mode { name, torch, timings: Timings::default() }),
                    Err(why) => refused.push(format!("{name}: {why}")),
                }
            }
            if modes.is_empty() {
                let expected = format!("a mode in which PyTorch trains {}", workload.name);
                return Err(Error::config("against", expected, refused.join("; ")));
            }
        }
        let mut ours = Timings::default();
        let (mut outside, mut steps_of_torch) = (f64::INFINITY, vec![0; modes.len()]);
        for pair in 0..pairs {
            if !modes.is_empty() {
                // Its threads spin for a while when there is nothing to do.
                std::thread::sleep(SETTLE);
            }
            let before = bench.in_kernels();
            let timing = bench.run(steps_of_dahl)?;
            let kernels = (bench.in_kernels() - before) / steps_of_dahl as f64;
            outside = outside.min(timing.wall - kernels / threads as f64);
            ours.0.push(timing);
            if pair == TRIALS && modes.len() > 2 {
                modes.sort_by(|a, b| a.timings.best().wall.total_cmp(&b.timings.best().wall));
                modes.truncate(2);
                steps_of_torch = vec![0; 2];
            }
            for (mode, count) in modes.iter_mut().zip(&mut steps_of_torch) {
                if *count == 0 {
                    *count = mode.torch.run(1)?.steps_in(seconds);
                }
                let timing = mode.torch.run(*count)?;
                mode.timings.0.push(timing);
            }
        }
        let torch = modes.into_iter().map(|mode| Theirs {
            ms: 1e3 * mode.timings.best().wall,
            spread: mode.timings.spread(),
            valid: mode.timings.best().is_valid(threads),
            interval: median_interval(mode.timings.ratios(&ours)),
            version: mode.torch.version.clone(),
            mode: mode.name,
        });
        let torch = torch.min_by(|a, b| a.ms.total_cmp(&b.ms));
        let best = ours.best();
        let gflops = flops(model, *batch)? / best.wall / 1e9;
        Ok(Row {
            workload: workload.name.clone(),
            dtype,
            threads,
            conv: match kernels.target().accuracy(dtype) {
                Accuracy::Exact => "exact",
                Accuracy::Auto => "auto",
                Accuracy::Fast => "fast",
            },
            dahl_ms: 1e3 * best.wall,
            samples_per_second: *batch as f64 / best.wall,
            gflops,
            of_peak: gflops / (peak(dtype, threads)? / 1e9),
            outside_us: 1e6 * outside,
            spread: ours.spread(),
            valid: best.is_valid(threads),
            torch,
            scaling: None,
        })
    }
}

impl Row {
    /// Whether this is the same cell on one thread.
    pub(super) fn is_single_of(&self, other: &Self) -> bool {
        self.threads == 1
            && other.threads > 1
            && self.workload == other.workload
            && self.dtype == other.dtype
    }

    fn ratio(&self) -> Option<f64> {
        self.torch.as_ref().map(|torch| torch.ms / self.dahl_ms)
    }

    pub(super) fn head(against: bool) -> String {
        let torch =
            if against { "  torch ms  mode           ratio  of pairs     spread" } else { "" };
        format!(
            "workload            dtype threads    dahl ms  samples/s  GFLOP/s  of peak  outside us  spread  scaling{torch}\n"
        )
    }

    /// A line of the table; `!` marks a side whose processors were busy.
    pub(super) fn to_line(&self) -> String {
        let mark = |valid: bool| if valid { ' ' } else { '!' };
        let scaling = self.scaling.map_or("-".to_owned(), |s| format!("{s:.2}"));
        let mut line = format!(
            "{:<19} {:>5} {:>7} {:>10}{}{:>10.0} {:>8.1} {:>7.1}% {:>11.1} {:>6.0}% {scaling:>8}",
            self.workload,
            self.dtype.name(),
            self.threads,
            ms(self.dahl_ms),
            mark(self.valid),
            self.samples_per_second,
            self.gflops,
            100.0 * self.of_peak,
            self.outside_us,
            100.0 * self.spread,
        );
        if let (Some(torch), Some(ratio)) = (&self.torch, self.ratio()) {
            line += &format!(
                "  {:>8}{}  {:<13} {ratio:>5.2}x  {:<11} {:>6.0}%",
                ms(torch.ms),
                mark(torch.valid),
                torch.mode,
                torch.interval(),
                100.0 * torch.spread
            );
        }
        line + "\n"
    }

    pub(super) fn to_json(&self) -> String {
        let torch = self.torch.as_ref();
        let value = serde_json::json!({
            "workload": self.workload,
            "dtype": self.dtype.name(),
            "threads": self.threads,
            "conv": self.conv,
            "dahl_ms": self.dahl_ms,
            "torch_ms": torch.map(|t| t.ms),
            "torch_mode": torch.map(|t| t.mode),
            "torch_version": torch.map(|t| &t.version),
            "ratio": self.ratio(),
            "interval": torch.map(|t| t.interval),
            "spread": self.spread,
            "torch_spread": torch.map(|t| t.spread),
            "valid": self.valid && torch.is_none_or(|t| t.valid),
            "samples_per_second": self.samples_per_second,
            "gflops": self.gflops,
            "of_peak": self.of_peak,
            "outside_us": self.outside_us,
            "scaling": self.scaling,
        });
        format!("{value}\n")
    }

    pub(super) fn markdown_head() -> String {
        "| workload | dtype | threads | dahl ms | of peak | outside µs | scaling | PyTorch ms | mode | ratio | of pairs | spread |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n"
            .to_owned()
    }

    pub(super) fn to_markdown(&self) -> String {
        let (torch, mode, interval, spread) = match &self.torch {
            Some(t) => (
                ms(t.ms),
                t.mode,
                t.interval(),
                format!("{:.0} %, {:.0} %", 100.0 * self.spread, 100.0 * t.spread),
            ),
            None => ("-".to_owned(), "-", "-".to_owned(), format!("{:.0} %", 100.0 * self.spread)),
        };
        let valid = self.valid && self.torch.as_ref().is_none_or(|t| t.valid);
        let ratio = self.ratio().map_or("-".to_owned(), |r| format!("{r:.2}"));
        format!(
            "| {} | {} | {} | {} | {:.0} % | {:.1} | {} | {torch} | {mode} | {ratio}{} | {interval} | {spread} |\n",
            self.workload,
            self.dtype.name(),
            self.threads,
            ms(self.dahl_ms),
            100.0 * self.of_peak,
            self.outside_us,
            self.scaling.map_or("-".to_owned(), |s| format!("{s:.2}")),
            if valid { "" } else { " !" },
        )
    }
}

/// Milliseconds with three or four digits that count.
fn ms(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.3}"),
        ms if ms < 100.0 => format!("{ms:.2}"),
        ms => format!("{ms:.1}"),
    }
}
