//! `dahl bench gemm`: products of square matrices beside the machine's peak.

use super::measure::{Timings, noise, peak_of, steps_of, timed};
use crate::output::{show, show_json};
use crate::table::Columns;
use clap::Args as ClapArgs;
use dahl::exec::Session;
use dahl::graph::{Builder, Class, Program, Programs, Store};
use dahl::native::{Native, NativeSession, available_bytes};
use dahl::ops::Meta;
use dahl::ops::matmul::{Matmul, Side};
use dahl::planner::Grain;
use dahl::run::config::{at_least_one, threads};
use dahl::units::{Bytes, ProgramId};
use dahl::{DType, Error, Result, StepScalars};

/// Measure products of square matrices and the processor's peak
///
/// C = A B, A Bᵀ and Aᵀ B, the products of a linear layer in its forward and backward pass, cut
/// into rows for the threads. The peak is the rate of independent multiply-adds on the same number
/// of threads. Both take turns, and the best repetition of each counts.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench gemm
  dahl bench gemm --sizes 300,1000 --threads 1 --dtypes f64")]
pub(crate) struct Args {
    /// Sizes of the matrices: rows, which equal columns
    #[arg(long, value_delimiter = ',', default_value = "256,512,1024,2048", value_parser = at_least_one)]
    sizes: Vec<usize>,
    /// Numbers of threads [default: 1, and one per logical CPU]
    #[arg(long, value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// Element types
    #[arg(long, value_delimiter = ',', default_value = "f32,f64", value_parser = super::floats)]
    dtypes: Vec<DType>,
    /// Number of repetitions
    #[arg(long, default_value_t = 15, value_parser = at_least_one)]
    pairs: usize,
    /// Print one JSON object per product
    #[arg(long)]
    json: bool,
}

/// Approximate seconds per repetition.
const SECONDS: f64 = 0.05;

const SIDES: [(&str, [Side; 2]); 3] = [
    ("A B", [Side::Plain, Side::Plain]),
    ("A Bt", [Side::Plain, Side::Transposed]),
    ("At B", [Side::Transposed, Side::Plain]),
];

pub(super) fn run(args: &Args) -> Result<()> {
    if !args.json {
        show(&COLUMNS.row(&COLUMNS.heads(9)))?;
    }
    for &dtype in &args.dtypes {
        for threads in super::threads_or_default(&args.threads) {
            for &size in &args.sizes {
                for (name, sides) in SIDES {
                    let line = measure(size, sides, dtype, threads, args.pairs)?;
                    match args.json {
                        true => show_json(&line.to_json(name))?,
                        false => show(&COLUMNS.row(&line.cells(name)))?,
                    }
                }
            }
        }
    }
    Ok(())
}

struct Line {
    size: usize,
    dtype: DType,
    threads: usize,
    timings: Timings,
    /// Operations per second.
    peak: f64,
}

fn measure(
    size: usize,
    sides: [Side; 2],
    dtype: DType,
    threads: usize,
    pairs: usize,
) -> Result<Line> {
    let mut session = prepare(size, sides, dtype, threads)?;
    let mut run = |steps: u64| timed(steps, || multiply(&mut session, steps));
    let count = steps_of(SECONDS, &mut run)?;
    let (mut timings, mut peak) = (Timings::default(), 0.0f64);
    for _ in 0..pairs {
        peak = peak.max(peak_of(dtype, threads)?);
        timings.0.push(run(count)?);
    }
    Ok(Line { size, dtype, threads, timings, peak })
}

fn multiply(session: &mut NativeSession, steps: u64) -> Result<()> {
    let program = ProgramId(0);
    for step in 0..steps {
        let slot = session.slot(program)?;
        let id = session.step(program, slot, StepScalars::default())?;
        if step + 1 == steps {
            session.wait(id)?;
        }
    }
    Ok(())
}

/// A program that multiplies, with its matrices.
fn prepare(size: usize, sides: [Side; 2], dtype: DType, threads: usize) -> Result<NativeSession> {
    let needed = Bytes((3 * size as u64 * size as u64).saturating_mul(dtype.size() as u64));
    if let Some(limit) = available_bytes().map(Bytes).filter(|limit| needed.0 > limit.0) {
        let expected = format!("three matrices that fit into {limit}");
        return Err(Error::config("sizes", expected, format!("{size}, which take {needed}")));
    }
    let mut store = Store::default();
    let mut builder = Builder::new(&mut store);
    let meta = Meta::new([size, size], dtype);
    let operands = ["a", "b"].map(|name| builder.persistent(name, meta, Class::Buffer));
    let product = builder.ops().one(Matmul(sides), &operands);
    builder.fetch("c", product);
    let graph = builder.finish()?;
    let program = Program { name: "product".to_owned(), graph, output_slots: 1, turn: 0 };
    let programs = Programs { store, programs: vec![program], ..Programs::default() };
    let plan = Grain::for_workers(threads).plan(&programs)?;
    let mut session = Native::default().prepare_native(&plan)?;
    for name in ["a", "b"] {
        let id = programs.store.find(name).expect("declared above");
        session.write(id, &mut |mut to| to.write_f64(noise(size * size)))?;
    }
    Ok(session)
}

const COLUMNS: Columns = Columns(&[
    ("size", 6),
    ("product", -8),
    ("dtype", 5),
    ("threads", 7),
    ("ms", 11),
    ("GFLOP/s", 8),
    ("peak", 8),
    ("of peak", 8),
    ("spread", 7),
]);

impl Line {
    /// Operations per second.
    fn flops(&self) -> f64 {
        2.0 * (self.size as f64).powi(3) / self.timings.best().wall
    }

    fn is_valid(&self) -> bool {
        self.timings.best().is_valid(self.threads)
    }

    fn cells(&self, product: &str) -> Vec<String> {
        let mark = if self.is_valid() { ' ' } else { '!' };
        vec![
            self.size.to_string(),
            product.to_owned(),
            self.dtype.to_string(),
            self.threads.to_string(),
            format!("{:.3}{mark}", 1e3 * self.timings.best().wall),
            format!("{:.1}", self.flops() / 1e9),
            format!("{:.1}", self.peak / 1e9),
            format!("{:.1}%", 100.0 * self.flops() / self.peak),
            format!("{:.0}%", 100.0 * self.timings.spread()),
        ]
    }

    fn to_json(&self, product: &str) -> serde_json::Value {
        serde_json::json!({
            "size": self.size,
            "product": product,
            "dtype": self.dtype.name(),
            "threads": self.threads,
            "ms": 1e3 * self.timings.best().wall,
            "gflops": self.flops() / 1e9,
            "peak_gflops": self.peak / 1e9,
            "of_peak": self.flops() / self.peak,
            "spread": self.timings.spread(),
            "valid": self.is_valid(),
        })
    }
}
