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
use crate::output::{failed, show};
use cell::{Cell, Row};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use dahl::run::check_writable;
use dahl::run::config::{at_least_one, threads};
use dahl::{DType, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use workloads::WorkloadArgs;

/// Measure training steps, alone or beside PyTorch
///
/// A step is forward, cross-entropy, backward and an update by SGD, on the same
/// batch again and again. The best of some repetitions counts: others only show
/// how busy the machine was. With --against torch the repetitions of both take
/// turns, in every mode that PyTorch has; the ratio is that of the best
/// repetitions, against the best mode.
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

A cell is marked with ! where the processors were not ours: the processor time is
not about the time gone by times the threads. Its figures say little."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    of: Option<Of>,
    #[command(flatten)]
    workloads: WorkloadArgs,
    /// Numbers of threads [default: 1, and one per processor]
    #[arg(long, value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    /// Element types
    #[arg(long, value_delimiter = ',', default_value = "f32,f64", value_parser = floats)]
    dtypes: Vec<DType>,
    #[command(flatten)]
    kernels: Settings<KernelsAndTuning>,
    /// Baseline to measure in turns with dahl
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
    /// Write the trace of one more repetition, for dahl stats; requires a single measurement
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
    seconds.ok_or_else(|| "expected seconds, such as 0.2".to_owned())
}

#[derive(Clone, Copy, ValueEnum)]
enum Against {
    /// PyTorch, in all its modes
    Torch,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let result = match &args.of {
        Some(Of::Kernels(args)) => kernels::run(args),
        Some(Of::Gemm(args)) => gemm::run(args),
        Some(Of::Predictions(args)) => predictions::run(args),
        Some(Of::Grains(args)) => grains::run(args),
        Some(Of::Adaptive(args)) => adaptive::run(args),
        Some(Of::Pipelines(args)) => pipelines::run(args),
        Some(Of::Unequal(args)) => unequal::run(args),
        None => bench(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn bench(args: &Args) -> Result<()> {
    // Before minutes of measuring.
    args.markdown.as_deref().map_or(Ok(()), |path| check_writable("markdown", path))?;
    args.trace.as_deref().map_or(Ok(()), |path| check_writable("trace", path))?;
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
        show(&Row::head(python.is_some()))?;
    }
    for workload in &workloads {
        for &dtype in &args.dtypes {
            for &threads in &threads {
                let (kernels, python) = (&args.kernels, python.as_deref());
                let cell = Cell { workload, dtype, threads, kernels, python };
                let row = cell.measure(args.pairs, args.seconds)?;
                let single = rows.iter().find(|r| r.is_single_of(&row)).map(|r| r.dahl_ms);
                let row = Row { scaling: single.map(|one| one / row.dahl_ms), ..row };
                show(&if args.json { row.to_json() } else { row.to_line() })?;
                rows.push(row);
                // Whoever stops it keeps what there is.
                args.markdown.as_deref().map_or(Ok(()), |path| write_table(path, &rows, args))?;
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

/// Writes the rows as a table, with where and how they were measured.
fn write_table(path: &Path, rows: &[Row], args: &Args) -> Result<()> {
    let about = crate::train::about();
    let cpu = about["machine"]["cpu"].as_str().unwrap_or("unknown processor");
    let processors = &about["machine"]["processors"];
    let torch = rows.iter().find_map(|row| row.torch.as_ref());
    let other = torch.map_or(String::new(), |t| format!(", PyTorch {}", t.version));
    let mut text = format!(
        "dahl {} ({}){other}; {cpu}, {processors} processors; best of {} repetitions.\n\n{}",
        env!("CARGO_PKG_VERSION"),
        env!("BUILD_COMMIT"),
        args.pairs,
        Row::markdown_head(),
    );
    rows.iter().for_each(|row| text += &row.to_markdown());
    dahl::file::replace(path, |out| out.write_all(text.as_bytes()))
}
