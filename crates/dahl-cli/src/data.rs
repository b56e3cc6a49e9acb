//! `dahl data`: what datasets there are, and what is in one.

use crate::args::{Settings, Table};
use crate::files::reading;
use crate::output::{BAD_FILE, Colour, one_line, show as print};
use crate::part::is_split;
use crate::progress::{Progress, Show};
use clap::Args as ClapArgs;
use dahl::data::{self, Access, Check, Dataset, Description, Part};
use dahl::run::config::at_least_one;
use serde_json::json;
use std::num::NonZeroUsize;
use std::process::ExitCode;

/// List the datasets, describe a dataset, or check every sample of a dataset
///
/// DATA is a listed name (its files are expected in `data/<name>`), a directory with the files of a
/// listed dataset, a directory of images with one subfolder per class, a CSV file that names images
/// and classes, or a pair of `.npy` files.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl data
  dahl data digits
  dahl data path/to/fashion-mnist --check
  dahl data photos --check --limit 100 --json
  dahl data birds.csv --image-column file --class-column species --image-dir photos

Exit codes: 0 ok, 1 the result cannot be written, 2 usage, 4 a file is missing or
damaged, or a sample is wrong.")]
pub(crate) struct Args {
    /// Dataset name, directory or file
    data: Option<String>,
    #[command(flatten)]
    table: Settings<Table>,
    /// Maximum number of samples per part of the dataset [default: no limit]
    #[arg(long, value_parser = at_least_one)]
    limit: Option<usize>,
    /// Read every sample and report errors
    #[arg(long)]
    check: bool,
    /// Number of worker threads of --check [default: one per logical CPU]
    #[arg(long, value_parser = at_least_one)]
    workers: Option<usize>,
    /// Print one JSON object per part
    #[arg(long)]
    json: bool,
    /// Do not show progress
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args) -> dahl::Result<ExitCode> {
    let (text, fine) = match &args.data {
        None => (list(args), true),
        Some(source) => show(source, args)?,
    };
    print(&text)?;
    Ok(ExitCode::from(if fine { 0 } else { BAD_FILE }))
}

fn list(args: &Args) -> String {
    let width = data::NAMES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, what): &(&str, &str)| match args.json {
        true => format!("{}\n", json!({ "name": name, "is": what })),
        false => format!("{name:width$}  {what}\n"),
    };
    data::NAMES.iter().map(line).collect()
}

/// The text, and whether every sample that was looked at is fine.
fn show(source: &str, args: &Args) -> dahl::Result<(String, bool)> {
    let table = args.table.config.identity.table(None);
    let options = data::Options { table, ..data::Options::default() };
    let parts = data::open_parts(source, &[Part::Train, Part::Test], &options)?;
    let show = Show::unless(args.quiet);
    let (mut text, mut fine) = (String::new(), true);
    for (i, part) in parts.iter().enumerate() {
        let set = match args.limit {
            Some(samples) => data::limit(part.clone(), samples),
            None => part.clone(),
        };
        if args.check {
            // A rare class of a set without a test of its own may be in one part alone.
            let train = (i > 0 && !is_split(&**part)).then_some(&*parts[0]);
            let found = walk(&*set, train, args, show);
            fine &= found.wrong == 0;
            text += &checked(&*set, &found, args);
        } else {
            let samples = data::measured(&*set);
            let mut reading =
                reading(if set.access() == Access::File { show } else { Show::Nothing });
            let about = data::describe(&*set, samples, &mut |read| reading(read, samples))?;
            drop(reading);
            text += &described(&about, args);
        }
    }
    Ok((text, fine))
}

/// Reads all samples of a part; those of a test set beside the training set.
fn walk(set: &dyn Dataset, train: Option<&dyn Dataset>, args: &Args, show: Show) -> Check {
    let mut meter = Progress::of_looking(show).look("check", set.len());
    let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = args.workers.and_then(NonZeroUsize::new).unwrap_or(processors);
    let progress = &mut |samples| meter.count(samples);
    match train {
        Some(train) => data::check_against(train, set, threads, progress),
        None => data::check_on(set, threads, progress),
    }
}

fn checked(set: &dyn Dataset, found: &Check, args: &Args) -> String {
    let name = set.name();
    if !args.json {
        let notes = set.notes().iter().map(|note| format!("  note: {}\n", one_line(note)));
        let name = Colour::of_stdout().paint("1", &one_line(&name));
        return format!("{name}: {found}\n{}", notes.collect::<String>());
    }
    let problems = found.problems.iter().map(
        |problem| json!({ "sample": problem.index, "place": problem.place, "what": problem.what }),
    );
    let value = json!({
        "name": name, "samples": found.samples, "wrong": found.wrong,
        "problems": problems.collect::<Vec<_>>(), "notes": set.notes(),
    });
    format!("{value}\n")
}

fn described(about: &Description, args: &Args) -> String {
    if !args.json {
        return format!("{about}\n");
    }
    let classes =
        about.classes.iter().map(|(name, samples)| json!({ "name": name, "samples": samples }));
    let value = json!({
        "name": about.name, "samples": about.samples, "shape": about.shape.axes(),
        "classes": classes.collect::<Vec<_>>(), "measured": about.measured, "mean": about.mean,
        "std": about.std, "least": about.range.0, "largest": about.range.1, "notes": about.notes,
    });
    format!("{value}\n")
}
