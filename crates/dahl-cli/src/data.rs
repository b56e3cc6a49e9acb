//! `dahl data`: what datasets there are, and what is in one.

use crate::grain::at_least_one;
use crate::output::{Colour, DIFFERENT, code, fail, print};
use clap::Args as ClapArgs;
use dahl::data::{self, Dataset, Part};
use std::process::ExitCode;

/// List the datasets, describe one, or check every sample of it
///
/// A dataset is one of the names below, looked for in `data/<name>`, a directory
/// of its files, a directory of images with a subfolder a class, a CSV file that
/// names images and classes, or a pair of `.npy` files.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl data
  dahl data digits
  dahl data path/to/fashion-mnist --check
  dahl data photos --limit 100

Exit codes: 0 ok, 1 a sample is wrong, 2 usage, 4 a file is missing or damaged.")]
pub(crate) struct Args {
    /// A dataset's name, directory or file
    data: Option<String>,
    /// Look at no more than this many samples of each part
    #[arg(long, value_parser = at_least_one)]
    limit: Option<usize>,
    /// Read every sample and say what is wrong with which
    #[arg(long)]
    check: bool,
}

/// How many samples a description measures.
const MEASURED: usize = 10_000;

pub(crate) fn run(args: &Args) -> ExitCode {
    let text = match &args.data {
        None => Ok((list(), true)),
        Some(source) => show(source, args),
    };
    match text {
        Ok((text, fine)) => match print(&text) {
            Ok(()) if fine => ExitCode::SUCCESS,
            Ok(()) => ExitCode::from(DIFFERENT),
            Err(error) => fail(error, DIFFERENT),
        },
        Err(error) => fail(&error, code(&error)),
    }
}

fn list() -> String {
    let width = data::NAMES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = data::NAMES.iter().map(|(name, what)| format!("{name:width$}  {what}\n"));
    lines.collect()
}

/// The text, and whether every sample that was looked at is fine.
fn show(source: &str, args: &Args) -> dahl::Result<(String, bool)> {
    let options = data::Options { limit: args.limit, ..data::Options::default() };
    let parts = data::open_parts(source, &[Part::Train, Part::Test], &options)?;
    let colour = Colour::of_stdout();
    let (mut text, mut fine) = (String::new(), true);
    for set in &parts {
        if args.check {
            let found = data::check(&**set, 0..set.len());
            fine &= found.wrong == 0;
            text += &format!("{}: {found}\n", colour.paint("1", &set.name()));
        } else {
            text += &format!("{}\n", data::describe(&**set, MEASURED)?);
        }
    }
    Ok((text, fine))
}
