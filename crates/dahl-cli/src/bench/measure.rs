//! Steps of a network, timed.

use dahl::model::{Fusion, Lowered, Model, Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::os::threads::together;
use dahl::plan::PlannedPrograms;
use dahl::train::Trainer;
use dahl::{DType, Error, Result};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Barrier;
use std::time::Instant;

/// The time of one step, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) wall: f64,
    /// Of all threads together.
    pub(super) cpu: f64,
}

impl Timing {
    /// The number of such steps that takes about so many seconds.
    pub(super) fn steps_in(&self, seconds: f64) -> u64 {
        (seconds / self.wall.max(1e-7)).clamp(1.0, 1e6) as u64
    }

    /// Whether the processors were ours: the threads computed, or looked for
    /// work, all the time, and no others did.
    pub(super) fn is_valid(&self, threads: usize) -> bool {
        self.cpu >= 0.85 * self.wall * threads as f64
            && self.cpu <= 1.15 * self.wall * threads as f64
    }
}

/// Several timings of the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Timings(pub(super) Vec<Timing>);

impl Timings {
    pub(super) fn best(&self) -> Timing {
        let worst = Timing { wall: f64::INFINITY, cpu: 0.0 };
        self.0.iter().copied().fold(worst, |a, b| if b.wall < a.wall { b } else { a })
    }

    /// Slowest minus fastest, over the median.
    pub(super) fn spread(&self) -> f64 {
        let mut walls: Vec<f64> = self.0.iter().map(|t| t.wall).collect();
        walls.sort_by(f64::total_cmp);
        match (walls.first(), walls.last()) {
            (Some(first), Some(last)) => (last - first) / walls[walls.len() / 2],
            _ => 0.0,
        }
    }

    /// The ratios of these times to the others, pair by pair.
    pub(super) fn ratios(&self, others: &Self) -> Vec<f64> {
        self.0.iter().zip(&others.0).map(|(this, other)| this.wall / other.wall).collect()
    }
}

/// A way to train that takes turns with others, so that all see the same machine.
pub(super) struct Racer<T> {
    pub(super) of: T,
    pub(super) bench: Bench,
    /// Steps per repetition.
    pub(super) steps: u64,
    pub(super) timings: Timings,
}

impl<T> Racer<T> {
    /// A repetition takes about so many seconds.
    pub(super) fn new(of: T, mut bench: Bench, seconds: f64) -> Result<Self> {
        let steps = bench.steps_of(seconds)?;
        Ok(Self { of, bench, steps, timings: Timings::default() })
    }

    /// One more repetition.
    pub(super) fn run(&mut self) -> Result<Timing> {
        let timing = self.bench.run(self.steps)?;
        self.timings.0.push(timing);
        Ok(timing)
    }

    /// Seconds per step in the best repetition.
    pub(super) fn best(&self) -> f64 {
        self.timings.best().wall
    }
}

/// The least of some values.
pub(super) fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

/// The median of some values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (values[(n - 1) / 2] + values[n / 2]) / 2.0
}

/// What the median lies in with 95 %, whatever the distribution is: so many
/// values from either end that so few on one side of it are that unlikely.
/// All of them where there are less than six.
pub(super) fn median_interval(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    // As logarithms: the chances of many values are below the smallest number.
    let mut chance = n as f64 * 0.5f64.ln();
    let (mut sum, mut rank) = (chance.exp(), 0);
    while 2.0 * sum <= 0.05 && rank + 1 < n / 2 {
        rank += 1;
        chance += ((n - rank + 1) as f64 / rank as f64).ln();
        sum += chance.exp();
    }
    // Ranks 0 to rank - 1 are unlikely enough together.
    let from = rank.saturating_sub(1);
    [values[from], values[n - 1 - from]]
}

/// A network with its batch, ready to be trained on the same samples again and
/// again.
pub(super) struct Bench {
    trainer: Trainer,
    batch: usize,
    pub(super) classes: usize,
}

impl Bench {
    /// `plan` says how the network's programs are run.
    pub(super) fn new(
        model: &Model,
        batch: usize,
        dtype: DType,
        plan: impl FnOnce(&Lowered) -> Result<PlannedPrograms>,
    ) -> Result<Self> {
        Self::on(model, (batch, dtype), plan, &Native::default())
    }

    /// The same on an engine of one's own.
    pub(super) fn on(
        model: &Model,
        (batch, dtype): (usize, DType),
        plan: impl FnOnce(&Lowered) -> Result<PlannedPrograms>,
        engine: &Native,
    ) -> Result<Self> {
        let spec = TrainSpec::new(batch, dtype, Optimizer::sgd(0.01));
        let lowered = model.lower(&spec)?;
        let plan = plan(&lowered)?;
        Self::of(lowered, plan, &spec, (engine, batch))
    }

    /// Programs with a plan of their own.
    pub(super) fn of(
        lowered: Lowered,
        plan: PlannedPrograms,
        spec: &TrainSpec,
        (engine, batch): (&Native, usize),
    ) -> Result<Self> {
        let classes = lowered.outputs().max(1);
        let mut trainer = Trainer::with_plan(lowered, plan, spec, engine)?;
        // All slots are filled once; what is in them stays.
        let slots = trainer.plan().memory.input_slots;
        let slots = (0..slots).map(|_| trainer.slot(batch)).collect::<Result<Vec<_>>>()?;
        for mut slot in slots {
            let elements = slot.input("input")?.meta.shape.elements();
            slot.input("input")?.write_f64(noise(elements))?;
            slot.input("target")?.write_f64((0..batch).map(|i| (i % classes) as f64))?;
            trainer.step(slot)?;
        }
        trainer.last_loss()?;
        Ok(Self { trainer, batch, classes })
    }

    /// The programs of the training.
    pub(super) fn trainer(&mut self) -> &mut Trainer {
        &mut self.trainer
    }

    /// The time of so many steps.
    pub(super) fn run(&mut self, steps: u64) -> Result<Timing> {
        timed(steps, || {
            for _ in 0..steps {
                let slot = self.trainer.slot(self.batch)?;
                self.trainer.step(slot)?;
            }
            self.trainer.last_loss().map(drop)
        })
    }

    /// The number of steps that takes about so many seconds.
    pub(super) fn steps_of(&mut self, seconds: f64) -> Result<u64> {
        steps_of(seconds, |steps| self.run(steps))
    }

    /// Seconds in kernels since the start, over all workers.
    pub(super) fn in_kernels(&mut self) -> f64 {
        self.trainer.session().counters().codelets().iter().map(|c| c.time.0 as f64 / 1e9).sum()
    }
}

/// The number of steps that takes about so many seconds, after warm-up steps.
pub(super) fn steps_of(seconds: f64, mut run: impl FnMut(u64) -> Result<Timing>) -> Result<u64> {
    let first = run(1)?;
    Ok(run(first.steps_in(seconds).div_ceil(4))?.steps_in(seconds))
}

/// Numbers from -1 to 1 that look random and are the same every time.
pub(super) fn noise(count: usize) -> impl Iterator<Item = f64> {
    (0..count).map(|i| ((i * 7919) % 2003) as f64 / 1001.0 - 1.0)
}

/// The time of one of the steps that `run` makes.
pub(super) fn timed(steps: u64, run: impl FnOnce() -> Result<()>) -> Result<Timing> {
    let (wall, cpu, steps) = (Instant::now(), cpu_seconds(), steps as f64);
    run()?;
    Ok(Timing { wall: wall.elapsed().as_secs_f64() / steps, cpu: (cpu_seconds() - cpu) / steps })
}

/// The processor time of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The floating-point operations of a step, forwards and backwards, as if every
/// product were taken.
pub(super) fn flops(model: &Model, batch: usize) -> Result<f64> {
    let spec = TrainSpec {
        fusion: Fusion::Off,
        ..TrainSpec::new(batch, DType::F32, Optimizer::sgd(0.01))
    };
    Ok(model.lower(&spec)?.programs.programs[0].graph.flops().0 as f64)
}

/// The most floating-point operations per second of some threads. The best of some
/// tries.
pub(super) fn peak(dtype: DType, threads: usize) -> Result<f64> {
    (0..20).try_fold(0.0, |most: f64, _| Ok(most.max(peak_of(dtype, threads)?)))
}

/// The floating-point operations per second of some threads at once: multiply-adds
/// of vectors that wait for nothing, for some milliseconds.
pub(crate) fn peak_of(dtype: DType, threads: usize) -> Result<f64> {
    let start = Barrier::new(threads);
    let burst = || {
        start.wait();
        let from = Instant::now();
        let flops = dahl::peak::burst(dahl::Isa::detect(), dtype);
        flops as f64 / from.elapsed().as_secs_f64()
    };
    Ok(on_all(threads, burst)?.iter().sum())
}

/// Does the same on so many threads at once.
pub(crate) fn on_all<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Result<Vec<T>> {
    let name = "dahl-measure";
    together(threads, name, work).map_err(|source| Error::thread(name, source))
}

/// The bytes per second that some threads read from memory together, by try: each reads so many
/// bytes, which should be far more than its caches hold.
pub(crate) fn read_rates(threads: usize, bytes: usize, tries: usize) -> Result<Vec<f64>> {
    let start = Barrier::new(threads);
    let read = || {
        let words = vec![1u64; bytes / 8 + 1];
        let tries = (0..tries).map(|_| {
            start.wait();
            let from = Instant::now();
            let sum: u64 = std::hint::black_box(&words).iter().fold(0, |a, b| a.wrapping_add(*b));
            std::hint::black_box(sum);
            (8 * words.len()) as f64 / from.elapsed().as_secs_f64()
        });
        tries.collect::<Vec<f64>>()
    };
    let all = on_all(threads, read)?;
    Ok((0..tries).map(|i| all.iter().map(|rates| rates[i]).sum()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_within_its_interval() {
        let of = |n: usize| median_interval((1..=n).rev().map(|i| i as f64).collect());
        // As in tables of the sign test.
        for (n, interval) in [
            (1, [1.0, 1.0]),
            (5, [1.0, 5.0]),
            (6, [1.0, 6.0]),
            (15, [4.0, 12.0]),
            (25, [8.0, 18.0]),
            (5000, [2431.0, 2570.0]),
        ] {
            assert_eq!(of(n), interval, "{n}");
        }
    }
}
