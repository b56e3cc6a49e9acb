//! `dahl completions`: what a shell needs to complete commands and flags.

use crate::output::show;
use clap::{Args as ClapArgs, Command};
use clap_complete::Shell;

/// Print the completion script for a shell
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl completions bash > ~/.local/share/bash-completion/completions/dahl
  dahl completions zsh > ~/.zfunc/_dahl
  dahl completions fish > ~/.config/fish/completions/dahl.fish

Exit codes: 0 ok, 2 usage.")]
pub(crate) struct Args {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: Command) -> dahl::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "dahl", &mut text);
    show(&String::from_utf8_lossy(&text))
}
