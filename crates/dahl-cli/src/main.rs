//! The command line of dahl.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod data;
mod diff;
mod eval;
mod grain;
mod models;
mod output;
mod plan;
mod progress;
mod recipe;
mod samples;
mod schedule;
mod train;
mod verify;

/// Trains neural networks on unequal machines, for the least energy.
#[derive(Parser)]
#[command(name = "dahl", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Data(data::Args),
    Diff(diff::Args),
    Eval(eval::Args),
    Models(models::Args),
    Plan(plan::Args),
    Train(train::Args),
    Verify(verify::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Data(args) => data::run(&args),
        Command::Diff(args) => diff::run(args),
        Command::Eval(args) => eval::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Verify(args) => verify::run(args),
    }
}
