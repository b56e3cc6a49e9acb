//! The command line of dahl.
// They panic where the stream cannot be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use dahl::os::threads::spawn_with_stack;
use std::path::PathBuf;
use std::process::ExitCode;

mod advice;
mod args;
mod bench;
mod calibrate;
mod certify;
mod completions;
mod config;
mod data;
mod diff;
#[cfg(test)]
mod docs;
mod eval;
mod export;
mod files;
mod import;
mod live;
mod models;
mod outcome;
mod output;
mod part;
mod plan;
mod platform;
mod predict;
mod progress;
mod report;
mod see;
mod simulate;
mod stop;
mod table;
mod train;
mod verify;
mod weights;

/// Fuzz targets say how much memory a file takes.
#[cfg(test)]
#[global_allocator]
static COUNTING: dahl_fuzz::Counting = dahl_fuzz::Counting;

/// Train neural networks on heterogeneous machines, for the least energy
#[derive(Parser)]
#[command(
    name = "dahl",
    version,
    arg_required_else_help = true,
    after_help = "Each flag can also be set by an environment variable (DAHL_EPOCHS for --epochs) or by a key of
the --config file (epochs). Flags override variables, and variables override the file."
)]
struct Cli {
    /// TOML file with settings; flags and environment variables override the file (docs/cli.md)
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(Box<bench::Args>),
    Calibrate(calibrate::Args),
    Certify(certify::Args),
    Completions(completions::Args),
    Data(data::Args),
    Diff(diff::Args),
    Eval(eval::Args),
    Export(export::Args),
    Import(import::Args),
    Models(models::Args),
    // Larger than most others, as is the next.
    Plan(Box<plan::Args>),
    Platform(platform::Args),
    Predict(predict::Args),
    Simulate(simulate::Args),
    Report(see::ReportArgs),
    Stats(see::StatsArgs),
    Trace(see::TraceArgs),
    // Larger than the others.
    Train(Box<train::Args>),
    Verify(verify::Args),
}

/// The command line, completed by the environment and a file.
fn parse() -> Result<Cli, config::Failure> {
    let args: Vec<_> = std::env::args_os().collect();
    let variables: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .collect();
    let args = config::complete(&Cli::command(), &args, &variables)?;
    let matches = Cli::command().try_get_matches_from(args);
    matches
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(config::Failure::CommandLine)
}

/// The stack of the thread that runs the command, in bytes. That of the process' first thread
/// is as large as the shell says (`ulimit -s`).
const STACK: usize = 8 << 20;

fn main() -> ExitCode {
    if let Some(variable) = dahl::os::FAULTS
        && let Ok(text) = std::env::var(variable)
        && let Err(error) = dahl::os::inject(&text)
    {
        return output::fail(error, output::USAGE);
    }
    if let Err(error) = stop::outgrow_files() {
        let what = "the handler of SIGXFSZ cannot be installed";
        return output::fail(format_args!("{what}: {error}"), output::FAILED);
    }
    match spawn_with_stack("dahl", STACK, run).map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The thread has told of its panic.
        Ok(Err(_)) => ExitCode::from(PANICKED),
        Err(error) => output::fail(dahl::Error::thread("dahl", error), output::FAILED),
    }
}

/// The exit code of a panic, as the standard library has it.
const PANICKED: u8 = 101;

fn run() -> ExitCode {
    let cli = match parse() {
        Ok(parsed) => parsed,
        Err(config::Failure::CommandLine(error)) => return output::answer(&error),
        Err(config::Failure::Setting(error)) => return output::fail(error, output::USAGE),
    };
    let done = |result: dahl::Result<()>| result.map(|()| ExitCode::SUCCESS);
    let ended = match cli.command {
        Command::Bench(args) => done(bench::run(&args)),
        Command::Calibrate(args) => done(calibrate::run(&args)),
        Command::Certify(args) => certify::run(&args),
        Command::Completions(args) => done(completions::run(&args, Cli::command())),
        Command::Data(args) => data::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Eval(args) => done(eval::run(&args)),
        Command::Export(args) => done(export::run(&args)),
        Command::Import(args) => done(import::run(&args)),
        Command::Models(args) => done(models::run(&args)),
        Command::Plan(args) => plan::run(&args),
        Command::Platform(args) => done(platform::run(&args)),
        Command::Predict(args) => predict::run(&args),
        Command::Simulate(args) => done(simulate::run(&args)),
        Command::Report(args) => done(see::report(&args)),
        Command::Stats(args) => done(see::stats(&args)),
        Command::Trace(args) => done(see::trace(&args)),
        Command::Train(args) => Ok(train::run(*args)),
        Command::Verify(args) => verify::run(&args),
    };
    ended.unwrap_or_else(|error| output::failed(&error))
}
