//! `dahl platform`: what machines are like.

mod measure;
mod show;

use crate::files::{check_outputs, write};
use crate::output::{Colour, show as print};
use clap::{Args as ClapArgs, Subcommand};
use dahl::Result;
use dahl::platform::{Platform, detect};
use std::path::{Path, PathBuf};

/// Describe machines: detect this one, show and check platform files
///
/// A platform is a TOML file with nodes, processing units, memories, links and watts, each figure
/// with its origin: measured, data sheet or guess (docs/platform-format.md).
#[derive(ClapArgs)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:
  dahl platform detect
  dahl platform detect --output here.toml
  dahl platform show platforms/lab.toml
  dahl platform check here.toml

Exit codes: 0 ok, 1 the result cannot be written, 2 usage or a system without the needed
information, 4 a file that cannot be read or is wrong."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    of: Of,
}

#[derive(Subcommand)]
enum Of {
    /// Write the platform of this machine
    ///
    /// Counts the cores and the memory that this process may use, and measures operations and bytes
    /// per second, and watts if the processor's energy counters can be read (on most systems by root
    /// only). This takes some seconds. All other figures are marked as guesses.
    #[command(after_help = "Examples:
  dahl platform detect
  dahl platform detect --output here.toml
  sudo dahl platform detect --output here.toml")]
    Detect {
        /// Write to this file instead of standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Describe the machine whose proc and sys are in this directory, without measuring
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
    },
    /// Show nodes, units, memories, links and totals of a platform
    #[command(after_help = "Examples:
  dahl platform show platforms/lab.toml
  dahl platform show platforms/zeus.toml")]
    Show {
        /// Platform file (TOML)
        file: PathBuf,
    },
    /// Check a platform file: report every error with its line
    #[command(after_help = "Examples:
  dahl platform check here.toml && dahl platform show here.toml")]
    Check {
        /// Platform file (TOML)
        file: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.of {
        Of::Detect { output, root } => find(output.as_ref(), root.as_deref()),
        Of::Show { file } => Platform::read(file)
            .and_then(|platform| print(&show::text(&platform, Colour::of_stdout()))),
        Of::Check { file } => check(file),
    }
}

fn find(output: Option<&PathBuf>, root: Option<&Path>) -> Result<()> {
    check_outputs(&[("output", output)])?;
    let mut found = detect(root.unwrap_or(Path::new("/")))?;
    if root.is_none() {
        measure::refine(&mut found)?;
    }
    let mut text = "# Written by dahl platform detect. Replace figures from \"guess\" by better \
         ones\n# (docs/platform-format.md).\n"
        .to_owned();
    found.notes.iter().for_each(|note| text += &format!("# - {note}\n"));
    text += &found.platform.to_toml();
    match output {
        Some(path) => write(path, &text),
        None => print(&text),
    }
}

fn check(file: &Path) -> Result<()> {
    let platform = Platform::read(file)?;
    let mut text = format!("{}: {}\n", file.display(), show::size(&platform));
    // No fault of a file that is only to be looked at.
    platform.unconnected().iter().for_each(|error| text += &format!("note: {error}\n"));
    print(&text)
}
