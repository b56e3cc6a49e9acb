//! Where a run is kept and when it is saved.

use crate::grain::at_least_one;
use crate::samples::SampleArgs;
use crate::stop::duration;
use clap::Args;
use dahl::os::disk;
use dahl::run::{RunDirectory, find, refuse_old, resolve, takes_weights};
use dahl::train::{Card, Checkpoints, Every};
use dahl::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Checkpoints are at most this far apart, unless steps are asked for.
const CHECKPOINT_TIME: Duration = Duration::from_secs(30);

/// Flags that mean nothing where no run is kept.
const NEED_A_RUN: [&str; 5] = ["run", "resume", "checkpoint_every", "keep", "tensorboard"];

/// Where the run is kept, when it is saved and when it stops
#[derive(Args)]
pub(crate) struct RunArgs {
    /// Directory of the run, or its name in runs/ [default: a new one in runs/]
    #[arg(long, value_name = "NAME|DIR", conflicts_with = "resume")]
    run: Option<PathBuf>,
    /// Write no run directory and no checkpoints
    #[arg(long, conflicts_with_all = NEED_A_RUN)]
    no_run: bool,
    /// Go on with a run as it was configured, from its last checkpoint
    #[arg(long, value_name = "NAME|DIR")]
    pub(crate) resume: Option<PathBuf>,
    /// Steps between checkpoints [default: one an epoch and every 30 s]
    #[arg(long, value_name = "STEPS", value_parser = at_least_one)]
    checkpoint_every: Option<usize>,
    /// Checkpoints to keep
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = at_least_one)]
    keep: usize,
    /// Write TensorBoard's event file to the run directory
    #[arg(long)]
    pub(crate) tensorboard: bool,
    /// Stop, saved, after this time of this session: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_time: Option<Duration>,
    /// Stop, saved, after this many steps of this session
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) max_steps: Option<usize>,
}

/// Refuses a file of a flag that could not be written when all is done.
pub(crate) fn check_file(flag: &str, path: &Path) -> Result<()> {
    let wrong = |found: String| {
        let expected = "a file in a directory that is there and can be written to";
        Error::config(
            flag,
            expected,
            format!("{}, {found}; make it so, or give another --{flag}", path.display()),
        )
    };
    let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
        return Err(wrong("which is a directory".to_owned()));
    };
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let directory = parent.unwrap_or(Path::new("."));
    if !directory.is_dir() {
        let what = if directory.exists() { "is no directory" } else { "is not there" };
        return Err(wrong(format!("but {} {what}", directory.display())));
    }
    // Permissions do not tell all, such as a file system that is only read.
    let trial = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
    let trial = directory.join(trial);
    let made = disk::File::create(&trial).and_then(|_| disk::remove_file(&trial));
    made.map_err(|error| wrong(format!("where nothing can be written ({error})")))
}

/// Refuses to replace a file that is no weights.
pub(crate) fn check_weights(flag: &str, path: &Path) -> Result<()> {
    if takes_weights(path) {
        return Ok(());
    }
    let found = format!("{}, which is something else; give another --{flag}", path.display());
    Err(Error::config(flag, "a new file, or weights to replace", found))
}

/// Where a run is to be kept.
pub(crate) enum Place {
    Nowhere,
    /// A directory that is made when the run starts; `None` finds a name.
    New(Option<PathBuf>),
    /// The directory of a run that goes on.
    Old(RunDirectory, Checkpoints),
}

impl RunArgs {
    /// Looks at the place before anything is loaded. A run that goes on is this
    /// process' own from now on.
    pub(crate) fn place(&self) -> Result<Place> {
        if let Some(name) = &self.resume {
            let (directory, checkpoints) =
                RunDirectory::take(find(name), self.keep).map_err(Error::while_writing)?;
            return Ok(Place::Old(directory, checkpoints));
        }
        if self.no_run {
            return Ok(Place::Nowhere);
        }
        let path = self.run.as_deref().map(resolve);
        path.as_deref().map_or(Ok(()), refuse_old)?;
        Ok(Place::New(path))
    }

    pub(crate) fn every(&self) -> Every {
        match self.checkpoint_every {
            Some(steps) => Every::Steps(steps as u64),
            None => Every::EpochAnd(CHECKPOINT_TIME),
        }
    }

    /// Takes the place for this process alone; makes the directory of a new run.
    pub(crate) fn take(
        &self,
        place: Place,
        samples: &SampleArgs,
    ) -> Result<Option<(RunDirectory, Checkpoints)>> {
        let path = match place {
            Place::Nowhere => return Ok(None),
            Place::Old(directory, checkpoints) => return Ok(Some((directory, checkpoints))),
            Place::New(Some(path)) => path,
            Place::New(None) => {
                let (model, data) = samples.names();
                RunDirectory::numbered(model, data).map_err(Error::while_writing)?
            }
        };
        let (directory, checkpoints) =
            RunDirectory::take(path, self.keep).map_err(Error::while_writing)?;
        // Another process may have been faster.
        refuse_old(directory.path())?;
        if let Some(found) = checkpoints.list()?.first() {
            return Err(Error::config("run", "a directory without a run", found.display()));
        }
        Ok(Some((directory, checkpoints)))
    }
}

impl Place {
    /// Whether there is a checkpoint to go on from.
    pub(crate) fn has_checkpoint(&self) -> Result<bool> {
        match self {
            Place::Old(_, checkpoints) => Ok(!checkpoints.list()?.is_empty()),
            _ => Ok(false),
        }
    }

    /// The card of the checkpoint to go on from, which says how samples were normalised.
    /// One that is damaged is told of when the run goes on from it.
    pub(crate) fn card(&self) -> Option<Card> {
        let Place::Old(_, checkpoints) = self else { return None };
        let checkpoint = checkpoints.latest().ok()??;
        Card::of(&checkpoint.weights, checkpoint.path()).ok()?
    }
}
