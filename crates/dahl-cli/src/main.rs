//! The command line of dahl.

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

mod completions;
mod data;
mod diff;
mod eval;
mod export;
mod grain;
mod models;
mod output;
mod plan;
mod predict;
mod samples;
mod train;
mod verify;
mod weights;

/// Trains neural networks on unequal machines, for the least energy.
#[derive(Parser)]
#[command(name = "dahl", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Completions(completions::Args),
    Data(data::Args),
    Diff(diff::Args),
    Eval(eval::Args),
    Export(export::Args),
    Models(models::Args),
    Plan(plan::Args),
    Predict(predict::Args),
    Train(train::Args),
    Verify(verify::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Data(args) => data::run(&args),
        Command::Diff(args) => diff::run(args),
        Command::Eval(args) => eval::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Verify(args) => verify::run(args),
    }
}
