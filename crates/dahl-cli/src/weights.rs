//! Weights and what they belong to, shared by commands that use trained ones.

use crate::args::{KernelsAndTuning, Settings, Table};
use crate::files::{plan, reading};
use crate::output::say;
use crate::progress::Show;
use clap::Args;
use dahl::data::{self, Dataset, Normalization, Part, is_name};
use dahl::file::TensorFile;
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::planner::Grain;
use dahl::run::config::{at_least_one, threads};
use dahl::run::{self as rundir, RunConfig, check_fit, moved, options_for};
use dahl::train::{Card, Checkpoints, Origin, Trainer, check_weights};
use dahl::{DType, Error, Shape};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The weights and what they belong to
#[derive(Args)]
pub(crate) struct WeightArgs {
    /// Safetensors file of weights
    #[arg(long, value_name = "FILE", required_unless_present = "run", conflicts_with = "run")]
    weights: Option<PathBuf>,
    /// Run whose weights to use, by name or directory
    #[arg(long, value_name = "RUN")]
    run: Option<PathBuf>,
    /// Model name or TOML file [default: that of the weights]
    #[arg(long)]
    model: Option<String>,
    /// Dataset name, directory or file [default: that of the weights]
    #[arg(long)]
    pub(crate) data: Option<String>,
    #[command(flatten)]
    table: Settings<Table>,
    /// Random seed of the dataset's split [default: that of the weights]
    #[arg(long)]
    seed: Option<u64>,
    /// Element type of parameters and activations: f32 or f64 [default: that of the weights]
    #[arg(long)]
    dtype: Option<DType>,
}

/// The settings that weights are evaluated with
#[derive(Args)]
pub(crate) struct PassArgs {
    /// Batch size: samples per step
    #[arg(long, default_value_t = 32, value_parser = at_least_one)]
    pub(crate) batch: usize,
    /// Number of worker threads
    #[arg(long, default_value_t = 1, value_parser = threads)]
    workers: usize,
    #[command(flatten)]
    kernels: Settings<KernelsAndTuning>,
    /// Maximum number of samples [default: no limit]
    #[arg(long, value_parser = at_least_one)]
    pub(crate) limit: Option<usize>,
}

/// Weights that were read, and what is known of them.
pub(crate) struct Weights {
    pub(crate) path: PathBuf,
    file: TensorFile,
    pub(crate) model: Model,
    /// The metadata of the file.
    card: Option<Card>,
    /// The dataset that is asked for, or that they were trained on.
    origin: Option<Origin>,
    /// The dataset that they were trained on, as far as it is known.
    trained_on: Option<String>,
    /// The dataset is one that was asked for.
    asked: bool,
    dtype: DType,
}

impl WeightArgs {
    /// Reads the weights and finds their model: by the arguments, else by what
    /// the file says, else by what the run says.
    pub(crate) fn open(&self) -> dahl::Result<Weights> {
        let (run, weights) = self.run.as_deref().map(read_run).transpose()?.unzip();
        let (path, file) = match weights {
            Some(weights) => weights,
            None => {
                let path = self.weights.clone().unwrap_or_default();
                let file = TensorFile::read(&path)?;
                (path, file)
            }
        };
        let card = Card::of(&file, &path)?;
        let model = match (&self.model, &card, &run) {
            (Some(name), _, _) => Model::open(name)?,
            (None, Some(card), _) => card.model.clone(),
            (None, None, Some(run)) => Model::open(&run.identity.model.0)?,
            (None, None, None) => {
                let expected = "--model, since the weights do not say to which model they belong";
                return Err(Error::config("model", expected, path.display()));
            }
        };
        let is_f64 = file.tensors.values().any(|tensor| tensor.dtype() == DType::F64);
        let dtype = self.dtype.unwrap_or(if is_f64 { DType::F64 } else { DType::F32 });
        // Before memory is taken for a model that a file only claims.
        let lowered = model.lower(&spec(dtype, &[1]))?;
        check_weights(&file, &lowered.programs.store, &path)?;
        let known = card.as_ref().and_then(|card| card.origin.clone());
        let of_run = run.as_ref().map_or(0, |run| run.identity.seed);
        let seed = self.seed.or(known.as_ref().map(|o| o.seed)).unwrap_or(of_run);
        let table = self.table.config.identity.table(known.as_ref().map(|o| &o.table));
        // The run's path means the same from every directory.
        let trained_on = run.map(|run| run.placement.data.0).or(known.map(|o| o.data));
        let data = self.data.clone().or(trained_on.clone());
        let origin = data.map(|data| Origin { data, seed, table });
        let asked = self.data.is_some();
        Ok(Weights { path, file, model, card, origin, trained_on, asked, dtype })
    }
}

impl Weights {
    /// A part of the dataset that was asked for or that the weights name.
    pub(crate) fn part(&self, part: Part) -> dahl::Result<Arc<dyn Dataset>> {
        let Some(origin) = &self.origin else {
            let expected = "--data, since the weights do not say what they were trained on";
            return Err(Error::config("data", expected, self.path.display()));
        };
        let (seed, table) = (origin.seed, origin.table.clone());
        let options = data::Options { seed, table, ..options_for(&self.model) };
        let set = data::open(&origin.data, part, &options).map_err(|error| {
            let whose = format!("that {} was trained on", self.path.display());
            if self.asked { error } else { moved(error, &origin.data, &whose) }
        })?;
        check_fit(&self.model, &*set)?;
        Ok(set)
    }

    /// Whether the dataset is another than the one that they were trained on. One
    /// whose path is gone may have been moved, so that it is not known.
    pub(crate) fn is_other_set(&self) -> bool {
        let (Some(origin), Some(trained_on)) = (&self.origin, &self.trained_on) else {
            return false;
        };
        let (here, there) = (Path::new(&origin.data), Path::new(trained_on));
        match (is_name(&origin.data), is_name(trained_on)) {
            (false, false) => match (here.canonicalize(), there.canonicalize()) {
                (Ok(here), Ok(there)) => here != there,
                _ => false,
            },
            _ => origin.data != *trained_on,
        }
    }

    /// The card of the weights: their own, else one for the dataset.
    pub(crate) fn card(&self, show: Show) -> dahl::Result<Card> {
        if let Some(card) = self.card.clone() {
            // The same weights may do for a model of larger images.
            let own = Shape::new(&self.model.input);
            let shape = if card.shape.elements() == own.elements() { card.shape } else { own };
            return Ok(Card { model: self.model.clone(), shape, ..card });
        }
        let train = self.part(Part::Train)?;
        let of = data::measured(&*train);
        let mut reading = reading(show);
        let normalise =
            Normalization::Dataset.of(&*train, self.dtype, &mut |read| reading(read, of))?;
        let transform = data::Transform { normalise, augment: None };
        Ok(Card { origin: self.origin.clone(), ..Card::new(&self.model, &*train, &transform) })
    }

    /// The same, or none where the weights say nothing and no dataset is named.
    pub(crate) fn card_if_known(&self, show: Show) -> dahl::Result<Option<Card>> {
        match (&self.card, &self.origin) {
            (None, None) => Ok(None),
            _ => self.card(show).map(Some),
        }
    }

    /// The model with its weights, ready for so many samples; `show` says how
    /// what is measured for it is shown.
    pub(crate) fn trainer(
        &self,
        args: &PassArgs,
        samples: usize,
        show: Show,
    ) -> dahl::Result<Trainer> {
        let spec = spec(self.dtype, &[args.batch.min(samples), samples % args.batch]);
        let lowered = self.model.lower(&spec)?;
        let grain = Grain { target: args.kernels.target(), ..Grain::for_workers(args.workers) };
        let tune = args.kernels.config.identity.tune.0;
        let plan = plan(&grain, &lowered.programs, tune, show)?;
        let mut trainer = Trainer::with_plan(lowered, plan, &spec, &Native::default())?;
        trainer.set_weights(&self.file, &self.path)?;
        Ok(trainer)
    }

    /// The weights as the model has them, in the element type that was asked for.
    pub(crate) fn converted(&self) -> dahl::Result<TensorFile> {
        let (spec, grain) = (spec(self.dtype, &[1]), Grain::for_workers(1));
        let mut trainer = Trainer::new(&self.model, &spec, grain, &Native::default())?;
        trainer.set_weights(&self.file, &self.path)?;
        trainer.weights()
    }

    /// A loss that is not finite is the weights' fault here.
    pub(crate) fn blame(&self, error: Error) -> Error {
        match error {
            Error::EvalNotFinite { first, last, loss } => {
                let expected = "weights and samples whose outputs are finite";
                let found = format!("a loss of {loss} for {first} to {last}");
                Error::data(&self.path, "weights", expected, found)
            }
            error => error,
        }
    }
}

/// Evaluation of batches of these sizes, but not of none.
fn spec(dtype: DType, sizes: &[usize]) -> TrainSpec {
    let eval = sizes.iter().copied().filter(|&n| n > 0).collect();
    TrainSpec { train: Vec::new(), eval, ..TrainSpec::new(1, dtype, Optimizer::sgd(0.0)) }
}

/// The configuration of a run and its weights: where they are, and what they are.
fn read_run(directory: &Path) -> dahl::Result<(RunConfig, (PathBuf, TensorFile))> {
    let directory = rundir::find(directory);
    let path = directory.join(rundir::files::CONFIG);
    if !path.exists() {
        return Err(rundir::no_run(&directory));
    }
    Ok((RunConfig::read(&path)?, weights(&directory)?))
}

/// The final weights of a run that has ended, else those of its newest
/// checkpoint: what an earlier end left is not what the run is now.
fn weights(run: &Path) -> dahl::Result<(PathBuf, TensorFile)> {
    if rundir::has_result(run) {
        let path = run.join(rundir::files::WEIGHTS);
        let file = TensorFile::read(&path)?;
        let (expected, found) = (rundir::weights_sha256(run)?, file.sha256());
        if expected != found {
            let short = |hash: &str| hash.chars().take(16).collect::<String>();
            let expected = format!("{}… as result.json says", short(&expected));
            let found = format!("{}…: it is damaged or was replaced", short(&found));
            return Err(Error::data(path, "SHA-256 of the tensors", expected, found));
        }
        return Ok((path, file));
    }
    let directory = run.join(rundir::files::CHECKPOINTS);
    let newest = if directory.is_dir() { Checkpoints::newest_whole(&directory)? } else { None };
    let Some(checkpoint) = newest else {
        let found = format!("{}, which has none yet", run.display());
        return Err(Error::config("run", "a run with a checkpoint", found));
    };
    let (steps, run) = (checkpoint.state.steps, run.display());
    say(format_args!("note: {run} has not ended; these are its weights after step {steps}"));
    Ok((checkpoint.path().join(rundir::files::WEIGHTS), checkpoint.weights))
}
