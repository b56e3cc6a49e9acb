//! The command line of dahl.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod diff;
mod output;
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
    Diff(diff::Args),
    Verify(verify::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Diff(args) => diff::run(args),
        Command::Verify(args) => verify::run(args),
    }
}
