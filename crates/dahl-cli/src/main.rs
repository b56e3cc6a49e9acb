//! The command line of dahl.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

mod data;
mod diff;
mod eval;
mod grain;
mod machine;
mod models;
mod output;
mod place;
mod plan;
mod report;
mod rundir;
mod samples;
mod settings;
mod stop;
mod tensorboard;
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
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match cli.command {
        Command::Data(args) => data::run(&args),
        Command::Diff(args) => diff::run(args),
        Command::Eval(args) => eval::run(&args),
        Command::Models(args) => models::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Train(args) => {
            let (_, given) = matches.subcommand().expect("the command that was parsed");
            train::run(args, given)
        }
        Command::Verify(args) => verify::run(args),
    }
}
