//! `dahl bench`: how fast training steps are, alone and beside PyTorch.

mod adaptive;
mod cell;
mod gemm;
mod grains;
mod kernels;
pub(crate) mod measure;
mod pipelines;
mod predictions;
mod torch;
mod unequal;
mod workloads;

use crate::args::{KernelsAndTuning, Settings};
use crate::files::{check_outputs, write};
use crate::output::{show, show_json};
use crate::table::Columns;
use cell::{COLUMNS, Cell, Row};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use dahl::run::config::{at_least_one, threads};
use dahl::{DType, Result};
use std::path::PathBuf;
use workloads::WorkloadArgs;

/// Measure training steps, alone or against PyTorch
///
/// Each step consists of the forward pass, cross-entropy, the backward pass and an update by SGD,
/// always on the same batch. The result is the step time of the fastest repetition. With --against
/// torch, dahl and each mode of PyTorch run alternately; the ratio compares the fastest repetition
/// of dahl with the fastest repetition of PyTorch's fastest mode.
#[derive(ClapArgs)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Workloads:
  seed-28-b10 seed-28-b64 seed-28-b256 seed-cifar-b64 seed-512-b16 lenet-b64
  vgg-small-b32 resnet18-cifar-b32 mlp-b128

Examples:
  dahl bench
  dahl bench lenet-b64 --threads 1,2 --dtypes f32 --against torch
  dahl bench --model my.toml --batch 64 --against torch --python venv/bin/python
  dahl bench vgg-small-b32 --conv fast
  dahl bench vgg-small-b32 --dtypes f32 --threads 2 --trace t.jsonl && dahl stats t.jsonl
  dahl bench kernels resnet18 --op conv2d
  dahl bench gemm
  dahl bench predictions
  dahl bench grains lenet-b64
  dahl bench adaptive lenet-b64
  dahl bench pipelines vgg-small
  dahl bench unequal vgg-small-b32

A row is marked with ! if other processes disturbed the measurement: the CPU time differs by
more than 15 % from wall-clock time times threads. The figures of this row are unreliable."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    of: Option<Of>,
    #[command(flatten)]
    workloads: WorkloadArgs,
    /// Numbers of threads [default: 1, and one per logical CPU]
    #[arg(long, value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// Element types
    #[arg(long, value_delimiter = ',', default_value = "f32,f64", value_parser = floats)]
    dtypes: Vec<DType>,
    #[command(flatten)]
    kernels: Settings<KernelsAndTuning>,
    /// Baseline; its measurements and those of dahl alternate
    #[arg(long, value_enum)]
    against: Option<Against>,
    /// Python interpreter with PyTorch [default: the first one that has it]
    #[arg(long, value_name = "FILE", requires = "against")]
    python: Option<PathBuf>,
    /// Number of repetitions of each side
    #[arg(long, default_value_t = 15, value_parser = at_least_one)]
    pairs: usize,
    /// Approximate seconds per repetition
    #[arg(long, default_value_t = 0.2, value_parser = seconds)]
    seconds: f64,
    /// Write a Markdown table to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the trace of one more repetition, for `dahl stats`; requires one workload, thread count and
    /// element type
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print one JSON object per measurement
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Of {
    Kernels(kernels::Args),
    Gemm(gemm::Args),
    Predictions(predictions::Args),
    Grains(grains::Args),
    Adaptive(adaptive::Args),
    Pipelines(pipelines::Args),
    Unequal(unequal::Args),
}

/// Reads an element type that networks are computed in.
fn floats(text: &str) -> std::result::Result<DType, String> {
    let dtype = text.parse().ok().filter(|dtype| matches!(dtype, DType::F32 | DType::F64));
    dtype.ok_or_else(|| "expected f32 or f64".to_owned())
}

/// Reads a time in seconds.
pub(crate) fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|&s: &f64| s.is_finite() && s > 0.0);
    seconds.ok_or_else(|| "expected a number of seconds, such as 0.2".to_owned())
}

#[derive(Clone, Copy, ValueEnum)]
enum Against {
    /// PyTorch, in all its modes
    Torch,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.of {
        Some(Of::Kernels(args)) => kernels::run(args),
        Some(Of::Gemm(args)) => gemm::run(args),
        Some(Of::Predictions(args)) => predictions::run(args),
        Some(Of::Grains(args)) => grains::run(args),
        Some(Of::Adaptive(args)) => adaptive::run(args),
        Some(Of::Pipelines(args)) => pipelines::run(args),
        Some(Of::Unequal(args)) => unequal::run(args),
        None => bench(args),
    }
}

fn bench(args: &Args) -> Result<()> {
    check_outputs(&[("markdown", args.markdown.as_ref()), ("trace", args.trace.as_ref())])?;
    let threads = threads_or_default(&args.threads);
    let workloads = args.workloads.all()?;
    let cells = workloads.len() * args.dtypes.len() * threads.len();
    if args.trace.is_some() && cells > 1 {
        let expected = "one workload, with --threads and --dtypes of one each";
        return Err(dahl::Error::config("trace", expected, format!("{cells} cells")));
    }
    let python = match args.against {
        Some(Against::Torch) => Some(torch::find(args.python.as_deref())?),
        None => None,
    };
    let mut rows: Vec<Row> = Vec::new();
    if !args.json {
        show(&COLUMNS.row(&COLUMNS.heads(if python.is_some() { 15 } else { 10 })))?;
    }
    for workload in &workloads {
        for &dtype in &args.dtypes {
            for &threads in &threads {
                let (kernels, python) = (&args.kernels, python.as_deref());
                let cell = Cell { workload, dtype, threads, kernels, python };
                let row = cell.measure(args.pairs, args.seconds)?;
                let single = rows.iter().find(|r| r.is_single_of(&row)).map(|r| r.dahl_ms);
                let row = Row { scaling: single.map(|one| one / row.dahl_ms), ..row };
                match args.json {
                    true => show_json(&row.to_json())?,
                    false => show(&COLUMNS.row(&row.cells()))?,
                }
                rows.push(row);
                let torch = rows.iter().find_map(|row| row.torch.as_ref());
                let other = torch.map_or(String::new(), |t| format!("PyTorch {}; ", t.version));
                let how = format!("{other}best of {} repetitions", args.pairs);
                let cells = rows.iter().map(Row::cells).collect();
                write_table(args.markdown.as_ref(), &how, &COLUMNS, cells)?;
                args.trace.as_deref().map_or(Ok(()), |path| cell.trace(args.seconds, path))?;
            }
        }
    }
    Ok(())
}

/// The numbers of threads that were given, or one, and one per processor.
fn threads_or_default(given: &[usize]) -> Vec<usize> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    match given {
        [] if processors > 1 => vec![1, processors],
        [] => vec![1],
        given => given.to_vec(),
    }
}

/// Writes rows as a table in Markdown, with where and how they were measured. It is written again
/// with every row: a run that is stopped keeps the rows that there are.
fn write_table(
    path: Option<&PathBuf>,
    how: &str,
    columns: &Columns,
    rows: Vec<Vec<String>>,
) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let about = crate::train::about();
    let cpu = about["machine"]["cpu"].as_str().unwrap_or("unknown processor");
    let head = format!(
        "dahl {} ({}); {cpu}, {} processors; {how}.\n\n",
        env!("CARGO_PKG_VERSION"),
        env!("BUILD_COMMIT"),
        about["machine"]["processors"],
    );
    write(path, &(head + &columns.markdown(&rows)))
}
