//! `dahl report`: runs as one page.

use super::read;
use crate::files::write;
use crate::output::{say, show};
use clap::Args as ClapArgs;
use dahl::Result;
use dahl::platform::Platform;
use dahl::report::{Mode, compare, page, runs_json};
use dahl::run::RunRecord;
use dahl::run::{check_no_run, check_writable};
use std::path::PathBuf;

/// Write an HTML report of one or several runs
///
/// The report is one self-contained HTML file. It shows loss and accuracy, time and energy per epoch,
/// a Gantt chart of the workers, memory, energy by cause and layer, predictions, codelets and the
/// configuration. If several runs are given, the report compares their speed and energy and shows
/// the causes of the differences in time.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl train --run first --trace && dahl report first -o report.html
  dahl report first second -o both.html

Exit codes: 0 ok, 1 the file cannot be written, 2 usage, 4 a file that is wrong.")]
pub(crate) struct Args {
    /// Runs, by name or directory; the first is the reference of the comparison
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Output file
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// Platform file with the power values for modelled power over time [default: the platform of each
    /// run]
    #[arg(long, value_name = "FILE")]
    platform: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    check_writable("output", &args.output)?;
    check_no_run("output", &args.output)?;
    let runs = args.runs.iter().map(|name| read(name, None)).collect::<Result<Vec<RunRecord>>>()?;
    let platform = args.platform.as_deref().map(Platform::read).transpose()?;
    let text = page(&runs_json(&runs, platform.as_ref()), Mode::File);
    write(&args.output, &text)?;
    if let Some((first, others)) = runs.split_first() {
        for other in others {
            show(&compare(first, other).to_text())?;
        }
    }
    say(format_args!("wrote {}, {} KiB", args.output.display(), text.len().div_ceil(1024)));
    Ok(())
}
