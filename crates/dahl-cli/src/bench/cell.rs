//! One cell of the table: a workload in one element type on some threads.

use super::measure::{Bench, Timings, flops, median_interval, peak};
use super::torch::{MODES, Setup, Torch};
use super::workloads::Workload;
use crate::args::{KernelsAndTuning, Settings};
use crate::files::plan;
use crate::progress::Show;
use crate::table::Columns;
use dahl::model::Lowered;
use dahl::native::Native;
use dahl::ops::Accuracy;
use dahl::planner::Grain;
use dahl::{DType, Error, Result};
use std::path::Path;
use std::time::Duration;

/// Number of pairs for each mode of PyTorch before the fastest two continue.
const TRIALS: usize = 3;

/// Time for PyTorch's threads to become idle.
const SETTLE: Duration = Duration::from_millis(50);

/// A measurement: a workload in one element type on some threads.
pub(super) struct Cell<'a> {
    pub(super) workload: &'a Workload,
    pub(super) dtype: DType,
    pub(super) threads: usize,
    pub(super) kernels: &'a Settings<KernelsAndTuning>,
    /// The Python of the other side.
    pub(super) python: Option<&'a Path>,
}

/// PyTorch's figures.
pub(super) struct TorchFigures {
    pub(super) version: String,
    pub(super) mode: &'static str,
    pub(super) ms: f64,
    pub(super) spread: f64,
    pub(super) valid: bool,
    /// 95 % confidence interval of the median ratio of the pairs.
    interval: [f64; 2],
}

/// The figures of a cell.
pub(super) struct Row {
    pub(super) workload: String,
    pub(super) dtype: DType,
    pub(super) threads: usize,
    /// The accuracy of convolutions.
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
    pub(super) torch: Option<TorchFigures>,
    /// Speed-up over one thread.
    pub(super) scaling: Option<f64>,
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

    /// Starts PyTorch in every mode that it has for this network.
    fn modes(&self, classes: usize) -> Result<Vec<Mode>> {
        let Self { workload, dtype, threads, python, .. } = *self;
        let Some(python) = python else { return Ok(Vec::new()) };
        let (module, batch, dtype) = (&workload.model.to_torch()?, workload.batch, dtype.name());
        let (mut modes, mut refused) = (Vec::new(), Vec::new());
        for name in MODES {
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
        Ok(modes)
    }

    /// Measures both sides in turns.
    pub(super) fn measure(&self, pairs: usize, seconds: f64) -> Result<Row> {
        let Self { workload, dtype, threads, kernels, .. } = *self;
        let Workload { model, batch, name } = workload;
        let mut bench = self.bench(&Native::default())?;
        let steps_of_dahl = bench.steps_of(seconds)?;
        let mut modes = self.modes(bench.classes)?;
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
        let torch = modes.into_iter().map(|mode| mode.against(&ours, threads));
        let best = ours.best();
        let gflops = flops(model, *batch)? / best.wall / 1e9;
        Ok(Row {
            workload: name.clone(),
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
            torch: torch.min_by(|a, b| a.ms.total_cmp(&b.ms)),
            scaling: None,
        })
    }
}

impl Mode {
    fn against(self, ours: &Timings, threads: usize) -> TorchFigures {
        let best = self.timings.best();
        TorchFigures {
            ms: 1e3 * best.wall,
            spread: self.timings.spread(),
            valid: best.is_valid(threads),
            interval: median_interval(self.timings.ratios(ours)),
            version: self.torch.version.clone(),
            mode: self.name,
        }
    }
}

/// Those of dahl, and, where it was measured too, those of PyTorch.
pub(super) const COLUMNS: Columns = Columns(&[
    ("workload", -19),
    ("dtype", 5),
    ("threads", 7),
    ("dahl ms", 11),
    ("samples/s", 9),
    ("GFLOP/s", 8),
    ("of peak", 8),
    ("outside µs", 11),
    ("spread", 7),
    ("scaling", 8),
    ("torch ms", 9),
    ("mode", -13),
    ("ratio", 6),
    ("of pairs", -11),
    ("spread", 7),
]);

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

    /// The entries of [`COLUMNS`]; `!` marks a side whose processors were busy.
    pub(super) fn cells(&self) -> Vec<String> {
        let marked = |ms, valid| format!("{}{}", digits(ms), if valid { ' ' } else { '!' });
        let mut cells = vec![
            self.workload.clone(),
            self.dtype.to_string(),
            self.threads.to_string(),
            marked(self.dahl_ms, self.valid),
            format!("{:.0}", self.samples_per_second),
            format!("{:.1}", self.gflops),
            format!("{:.1}%", 100.0 * self.of_peak),
            format!("{:.1}", self.outside_us),
            format!("{:.0}%", 100.0 * self.spread),
            self.scaling.map_or("-".to_owned(), |s| format!("{s:.2}")),
        ];
        if let (Some(torch), Some(ratio)) = (&self.torch, self.ratio()) {
            let [low, high] = torch.interval;
            cells.extend([
                marked(torch.ms, torch.valid),
                torch.mode.to_owned(),
                format!("{ratio:.2}x"),
                format!("{low:.2}-{high:.2}"),
                format!("{:.0}%", 100.0 * torch.spread),
            ]);
        }
        cells
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        let torch = self.torch.as_ref();
        serde_json::json!({
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
        })
    }
}

/// Milliseconds with three or four digits that count.
fn digits(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.3}"),
        ms if ms < 100.0 => format!("{ms:.2}"),
        ms => format!("{ms:.1}"),
    }
}
