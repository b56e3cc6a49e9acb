//! `dahl bench gemm`: products of square matrices beside the machine's peak.

use super::measure::{Timing, Timings, peak_of, timed};
use crate::output::show;
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

/// Measure products of square matrices, beside the processor's peak
///
/// C = A B, A Bᵀ and Aᵀ B, those that a linear layer has forwards and backwards,
/// cut into rows for the threads. The peak is that of multiply-adds that wait for
/// nothing, on as many threads; both take turns, and the best of each counts.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench gemm
  dahl bench gemm --sizes 300,1000 --threads 1 --dtypes f64")]
pub(crate) struct Args {
    /// Rows and columns of the matrices
    #[arg(long, value_delimiter = ',', default_value = "256,512,1024,2048", value_parser = at_least_one)]
    sizes: Vec<usize>,
    /// Numbers of threads [default: 1, and one per processor]
    #[arg(long, value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// Element types
    #[arg(long, value_delimiter = ',', default_value = "f32,f64", value_parser = super::floats)]
    dtypes: Vec<DType>,
    /// Repetitions
    #[arg(long, default_value_t = 15, value_parser = at_least_one)]
    pairs: usize,
    /// Print one JSON object a product
    #[arg(long)]
    json: bool,
}

/// Seconds that a repetition takes about.
const SECONDS: f64 = 0.05;

const SIDES: [(&str, [Side; 2]); 3] = [
    ("A B", [Side::Plain, Side::Plain]),
    ("A Bt", [Side::Plain, Side::Transposed]),
    ("At B", [Side::Transposed, Side::Plain]),
];

pub(super) fn run(args: &Args) -> Result<()> {
    if !args.json {
        show(&format!(
            "{:>6} {:<8} {:>5} {:>7} {:>10} {:>9} {:>8} {:>8} {:>7}\n",
            "size", "product", "dtype", "threads", "ms", "GFLOP/s", "peak", "of peak", "spread"
        ))?;
    }
    for &dtype in &args.dtypes {
        for threads in super::threads_or_default(&args.threads) {
            for &size in &args.sizes {
                for (name, sides) in SIDES {
                    let line = measure(size, sides, dtype, threads, args.pairs)?;
                    show(&line.to_text(name, args.json))?;
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
    let steps = |one: Timing| (SECONDS / one.wall.max(1e-7)).clamp(1.0, 1e6) as u64;
    let mut run = |steps: u64| timed(steps, || multiply(&mut session, steps));
    let first = run(1)?;
    let count = steps(run(steps(first).div_ceil(4))?);
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
    let programs = Programs { store, programs: vec![program] };
    let plan = Grain::for_workers(threads).plan(&programs)?;
    let mut session = Native::default().prepare_native(&plan)?;
    for name in ["a", "b"] {
        let id = programs.store.find(name).expect("declared above");
        let noise = |i: usize| ((i * 7919) % 2003) as f64 / 1001.0 - 1.0;
        session.write(id, &mut |mut to| to.write_f64((0..size * size).map(noise)))?;
    }
    Ok(session)
}

impl Line {
    fn to_text(&self, product: &str, json: bool) -> String {
        let Self { size, dtype, threads, timings, peak } = self;
        let best = timings.best();
        let flops = 2.0 * (*size as f64).powi(3) / best.wall;
        let valid = best.is_valid(*threads);
        if json {
            let value = serde_json::json!({
                "size": size,
                "product": product,
                "dtype": dtype.name(),
                "threads": threads,
                "ms": 1e3 * best.wall,
                "gflops": flops / 1e9,
                "peak_gflops": peak / 1e9,
                "of_peak": flops / peak,
                "spread": timings.spread(),
                "valid": valid,
            });
            return format!("{value}\n");
        }
        format!(
            "{size:>6} {product:<8} {:>5} {threads:>7} {:>10.3}{} {:>8.1} {:>8.1} {:>7.1}% {:>6.0}%\n",
            dtype.name(),
            1e3 * best.wall,
            if valid { ' ' } else { '!' },
            flops / 1e9,
            peak / 1e9,
            100.0 * flops / peak,
            100.0 * timings.spread(),
        )
    }
}
