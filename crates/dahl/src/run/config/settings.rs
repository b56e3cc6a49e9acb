//! Every setting of a run, declared once.

use super::choices::{GrainChoice, PlanChoice, StagesChoice};
use super::value::{
    Betas, DataRef, Field, ModelRef, PipelineKind, ShardsChoice, Speeds, Switch, Value,
    at_least_one, available_isa, below_one, interval, not_negative, positive,
};
use super::{Class, Setting, Shown};
use crate::data::{HoldOut, Normalization};
use crate::error::Expected;
use crate::model::{NormOver, OptimizerName, ScheduleSpec};
use crate::native::Throttle;
use crate::ops::Accuracy;
use crate::plan::MemoryLimits;
use crate::planner::pipeline::Objective;
use crate::sched::Rule;
use crate::units::Joules;
use dahl_kernels::{DType, Isa};
use std::path::PathBuf;
use std::time::Duration;

/// `field: Type = default, parser, what is shown;` with the help as documentation.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $part:ident: $name:ident as $class:path {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $type:ty = $default:expr, $parse:expr, $shown:expr;
            )+
        }
    )+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq)]
            pub struct $name {
                $($(#[doc = $help])+ pub $field: $type,)+
            }

            impl Default for $name {
                fn default() -> Self {
                    Self { $($field: $default,)+ }
                }
            }
        )+

        /// Everything that a run is configured by.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct RunConfig {
            $(
                #[doc = concat!("The settings of [`", stringify!($class), "`].")]
                pub $part: $name,
            )+
        }

        /// All settings, in the order of documentation.
        pub static SETTINGS: &[Setting] = &[$($(Setting {
            name: {
                const NAME: [u8; stringify!($field).len()] = kebab(stringify!($field));
                match std::str::from_utf8(&NAME) {
                    Ok(name) => name,
                    Err(_) => stringify!($field),
                }
            },
            class: $class,
            help: concat!($($help),+),
            arity: <$type as Field>::ARITY,
            choices: <<$type as Field>::Item as Value>::CHOICES,
            shown: $shown,
            check: |text| {
                let item: Result<<$type as Field>::Item, Expected> = $parse(text);
                item.map(drop)
            },
            read: |config, texts| {
                let items = texts.iter().map(|text| Value::parse(text)).collect::<Result<_, Expected>>()?;
                <$type as Field>::put(&mut config.$part.$field, items);
                Ok(())
            },
            canonical: |text| {
                let item: Result<<$type as Field>::Item, Expected> = Value::parse(text);
                Some(item.ok()?.print())
            },
            set: |config, texts| {
                let items = texts.iter().map(|text| $parse(text)).collect::<Result<_, Expected>>()?;
                <$type as Field>::put(&mut config.$part.$field, items);
                Ok(())
            },
            get: |config| config.$part.$field.items(),
            absolute: |config| {
                let field = config.$part.$field.clone();
                config.$part.$field = field.map_items(Value::absolute)?;
                Ok(())
            },
            nearby: |config| {
                let field = config.$part.$field.clone();
                if let Ok(near) = field.map_items(|item| Ok(item.nearby())) {
                    config.$part.$field = near;
                }
            },
        },)+)+];
    };
}

/// A field's name as a setting: `_` becomes `-`.
const fn kebab<const N: usize>(name: &str) -> [u8; N] {
    let (mut text, mut i) = ([0; N], 0);
    while i < N {
        let byte = name.as_bytes()[i];
        text[i] = if byte == b'_' { b'-' } else { byte };
        i += 1;
    }
    text
}

const fn below(heading: &'static str) -> Shown {
    Shown { value: "", heading, requires: None, conflicts: &[] }
}

const DATA: Shown = below("Model and data");
const TRAINING: Shown = below("Training");
const KERNELS: Shown = below("Kernels");
const PIPELINE: Shown = below("Micro-batches and pipelines");
const PLACEMENT: Shown = below("Placement");
const RUN: Shown = below("Run directory and limits");
const ENERGY: Shown = below("Energy");
const TRACES: Shown = below("Traces");

/// Settings that have no use where no run directory is written.
const NEED_A_DIRECTORY: &[&str] = &["run", "resume", "checkpoint-every", "keep", "tensorboard"];

settings! {
    /// The settings that decide the bits of the result: a resume must repeat them.
    identity: IdentitySettings as Class::Identity {
        /// Model name or TOML file
        model: ModelRef = ModelRef("digits-cnn".to_owned()), Value::parse, DATA;
        /// Column of a CSV file with the names of the images [default: id]
        image_column: Option<String> = None, Value::parse, Shown { value: "COLUMN", ..DATA };
        /// Column of a CSV file with the classes [default: masterCategory]
        class_column: Option<String> = None, Value::parse, Shown { value: "COLUMN", ..DATA };
        /// Directory of the images of a CSV file, relative to the file [default: images]
        image_dir: Option<String> = None, Value::parse, Shown { value: "DIR", ..DATA };
        /// Extension of the images whose name in a CSV file has none [default: jpg]
        image_extension: Option<String> = None, Value::parse, Shown { value: "EXTENSION", ..DATA };
        /// Maximum number of training samples, and of test samples
        limit: Option<usize> = None, at_least_one, Shown { value: "N", ..DATA };
        /// Batch size: samples per step
        batch: usize = 32, at_least_one, Shown { value: "N", ..TRAINING };
        /// Element type of parameters and activations: f32 or f64
        dtype: DType = DType::F32, Value::parse, TRAINING;
        /// Normalisation of samples: none, dataset (by mean and standard deviation of the training
        /// set, per channel, or per feature for samples with one axis) or MEAN,STD [default: as
        /// stored in the file of `init` if it has any, else dataset]
        normalize: Option<Normalization> = None, Value::parse,
            Shown { value: "none|dataset|MEAN,STD", ..DATA };
        /// Random seed
        seed: u64 = 0, Value::parse, TRAINING;
        /// Optimizer
        optimizer: OptimizerName = OptimizerName::Adam, Value::parse, TRAINING;
        /// Learning rate
        lr: f64 = 0.003, not_negative, TRAINING;
        /// Momentum factor (SGD) [default: 0]
        momentum: Option<f64> = None, below_one, Shown { value: "FACTOR", ..TRAINING };
        /// Nesterov momentum (SGD)
        nesterov: Switch = Switch(false), Value::parse, TRAINING;
        /// Weight decay [default: 0.01 (AdamW), 0 (SGD, Adam)]
        weight_decay: Option<f64> = None, not_negative, Shown { value: "FACTOR", ..TRAINING };
        /// Coefficients of the running averages of the gradient and its square (Adam, AdamW)
        /// [default: 0.9,0.999]
        betas: Option<Betas> = None, Value::parse, Shown { value: "BETA1,BETA2", ..TRAINING };
        /// Term added to the denominator for numerical stability (Adam, AdamW) [default: 1e-8]
        eps: Option<f64> = None, positive, TRAINING;
        /// Maximum norm of the gradient over all parameters; a larger gradient is scaled down
        clip: Option<f64> = None, positive, Shown { value: "NORM", ..TRAINING };
        /// Learning-rate schedule: constant, step:EPOCHS:FACTOR, cosine or cosine:LEAST (LEAST is
        /// the last factor, from 0 to 1); the prefix warmup:EPOCHS+ adds a linear warm-up
        schedule: ScheduleSpec = ScheduleSpec::CONSTANT, Value::parse, TRAINING;
        /// Random crop: shift training images by up to this many pixels
        crop: Option<usize> = None, at_least_one, Shown { value: "PIXELS", ..TRAINING };
        /// Random horizontal flip of training images
        flip: Switch = Switch(false), Value::parse, TRAINING;
        /// Keep the training samples in the order of the dataset
        no_shuffle: Switch = Switch(false), Value::parse, TRAINING;
        /// Validation set, held out of the training samples and evaluated after each epoch: a
        /// fraction such as 0.1, or a number of samples
        validation: Option<HoldOut> = None, Value::parse, Shown { value: "FRACTION|N", ..TRAINING };
        /// Safetensors file of the initial weights [default: random initialisation]
        init: Option<PathBuf> = None, Value::parse, Shown { value: "FILE", ..TRAINING };
        /// Convolution algorithms to choose from [default: auto in f32, exact in f64]
        conv: Option<Accuracy> = None, Value::parse, KERNELS;
        /// Instruction set: portable, avx2, avx512 or neon [default: the widest of this machine]
        isa: Option<Isa> = None, available_isa, KERNELS;
        /// Choose kernels by measurements on this machine instead of the table of costs that comes
        /// with dahl; the plan records the choice
        tune: Switch = Switch(false), Value::parse, KERNELS;
        /// Number of micro-batches per batch; their gradients are accumulated before the update
        /// [default: 8 with gpipe, 1f1b and 2bw, else 1]
        micro_batches: Option<usize> = None, at_least_one, Shown { value: "N", ..PIPELINE };
        /// Number of shards of the batch, or the samples of each, such as 21,11. Sums over samples
        /// are taken per shard and then added, so that each shard can be computed on another
        /// processing unit or machine [default: 1]
        shards: Option<ShardsChoice> = None, Value::parse,
            Shown { value: "N|SAMPLES", ..PIPELINE };
        /// Pipeline parallelism: each worker runs the layers of one stage (docs/pipelines.md)
        pipeline: Option<PipelineKind> = None, Value::parse, PIPELINE;
        /// Number of stages of the pipeline, or their first layers: names from the second stage on
        /// (conv3,fc1), or numbers from the first stage on (0,7) [default: one per worker, of equal
        /// predicted time; pipedream requires it, because the stages decide its result]
        stages: Option<StagesChoice> = None, Value::parse,
            Shown { value: "N|LAYERS", requires: Some("pipeline"), ..PIPELINE };
        /// Relative speed of the worker of each stage, such as 1,0.5 [default: equal]
        speeds: Option<Speeds> = None, Value::parse,
            Shown { requires: Some("pipeline"), ..PIPELINE };
        /// Statistics of batch norm: per batch, or per micro-batch, which changes the result
        bn: NormOver = NormOver::Batch, Value::parse, PIPELINE;
        /// Allow stale weights: a step may compute with weights that lack the latest updates, so
        /// that the pipeline is never flushed
        allow_stale: Switch = Switch(false), Value::parse, PIPELINE;
        /// Vertical sync (pipedream): all stages of a step use the same version of the weights
        vertical_sync: Switch = Switch(false), Value::parse,
            Shown { requires: Some("pipeline"), ..PIPELINE };
    }

    /// The settings that decide where, how long and how a run proceeds. No bit depends on them:
    /// they are kept, and may change on a resume.
    placement: PlacementSettings as Class::Placement {
        /// Dataset name, directory or file
        data: DataRef = DataRef("digits".to_owned()), Value::parse, DATA;
        /// Number of epochs
        epochs: usize = 10, at_least_one, Shown { value: "N", ..TRAINING };
        /// Number of worker threads [default: one per processor]
        workers: Option<usize> = None, at_least_one, Shown { value: "N", ..PLACEMENT };
        /// Grain, or how ops are cut into pieces (docs/grain.md): pieces per axis, such as
        /// sample=4,channel=2; auto for the shortest step; adaptive to also change it during the run
        /// [default: one piece of the batch per worker]
        grain: Option<GrainChoice> = None, Value::parse, PLACEMENT;
        /// Maximum memory of the plan, such as 500MiB or 2GiB, or of single spaces, such as
        /// host1=2GiB,gpu0=1GiB; activations are recomputed to stay within it
        memory_limit: Option<MemoryLimits> = None, Value::parse, Shown { value: "SIZE", ..PLACEMENT };
        /// Scheduling policy: which worker runs a ready task
        scheduling: Rule = Rule::Static, Value::parse, PLACEMENT;
        /// Weight of energy against time: seconds per joule (policy least-energy)
        joule_seconds: f64 = 0.1, not_negative, Shown { value: "SECONDS", ..PLACEMENT };
        /// Steps between checkpoints [default: one checkpoint per epoch and every 30 s]
        checkpoint_every: Option<usize> = None, at_least_one, Shown { value: "STEPS", ..RUN };
        /// Number of checkpoints to keep
        keep: usize = 2, at_least_one, Shown { value: "N", ..RUN };
        /// Write the final weights to this safetensors file
        save: Option<PathBuf> = None, Value::parse, Shown { value: "FILE", ..RUN };
        /// Write TensorBoard's event file to the run directory
        tensorboard: Switch = Switch(false), Value::parse, RUN;
        /// Platform file (TOML): its watts model the energy, and `plan` auto plans over its
        /// processing units [default: this machine, whose watts are a guess]
        platform: Option<PathBuf> = None, Value::parse, Shown { value: "FILE", ..ENERGY };
    }

    /// The settings of one start of a run, which are not kept.
    session: SessionSettings as Class::Session {
        /// Plan of the run: a file (output of `dahl plan --show plan`, which may be edited), or auto
        /// for the best plan over the processing units of `platform` (docs/planner.md). Programs
        /// that are missing in the file, such as evaluation, get a plan by `grain` [default: a plan
        /// by `grain`]
        plan: Option<PlanChoice> = None, Value::parse,
            Shown { value: "FILE|auto", conflicts: &["grain", "tune", "isa"], ..PLACEMENT };
        /// Quantity to minimise with `plan` auto [default: energy]
        objective: Option<Objective> = None, Value::parse,
            Shown { requires: Some("plan"), ..PLACEMENT };
        /// Calibration file (of `dahl calibrate`) from which step times are predicted [default:
        /// calibration.json, if it exists]
        calibration: Option<PathBuf> = None, Value::parse, Shown { value: "FILE", ..PLACEMENT };
        /// For experiments: slow down a worker to a fraction of its speed; 1=0.5@100 is worker 1 at
        /// half speed from step 100 of this session on; repeatable
        throttle: Vec<Throttle> = Vec::new(), Value::parse,
            Shown { value: "WORKER=SPEED[@STEP]", ..PLACEMENT };
        /// Run directory, or the name of one below runs/ [default: a new directory below runs/]
        run: Option<PathBuf> = None, Value::parse,
            Shown { value: "NAME|DIR", conflicts: &["resume"], ..RUN };
        /// Write no run directory and no checkpoints
        no_run: Switch = Switch(false), Value::parse, Shown { conflicts: NEED_A_DIRECTORY, ..RUN };
        /// Resume a run with its configuration, from its last checkpoint
        resume: Option<PathBuf> = None, Value::parse, Shown { value: "NAME|DIR", ..RUN };
        /// Maximum time of this session (90s, 10m, 2h); then the run is saved and stops
        max_time: Option<Duration> = None, Value::parse, Shown { value: "TIME", ..RUN };
        /// Maximum number of steps of this session; then the run is saved and stops
        max_steps: Option<usize> = None, at_least_one, Shown { value: "N", ..RUN };
        /// Directory of the processor's energy counters (RAPL)
        powercap: PathBuf = PathBuf::from("/sys/class/powercap"), Value::parse,
            Shown { value: "DIR", ..ENERGY };
        /// Directory of the batteries' power readings
        power_supply: PathBuf = PathBuf::from("/sys/class/power_supply"), Value::parse,
            Shown { value: "DIR", ..ENERGY };
        /// Shell command that prints the power of the machine or its total energy, one value per
        /// line: `42.5 W`, `1200 J`
        meter_cmd: Option<String> = None, Value::parse, Shown { value: "COMMAND", ..ENERGY };
        /// Interval at which meters are read
        meter_interval: Duration = Duration::from_millis(100), interval,
            Shown { value: "TIME", ..ENERGY };
        /// Measure the power of the idle machine for this time before the first step
        idle_time: Option<Duration> = None, Value::parse, Shown { value: "TIME", ..ENERGY };
        /// Maximum energy of this session (500J, 2kJ, 0.1kWh), measured if there is a meter, else
        /// modelled; then the run is saved and stops
        energy_budget: Option<Joules> = None, Value::parse, Shown { value: "ENERGY", ..ENERGY };
        /// Record the activity of every worker in trace.jsonl of the run directory
        trace: Switch = Switch(false), Value::parse, Shown { conflicts: &["no-run"], ..TRACES };
        /// First step of this session to record
        trace_from: u64 = 0, Value::parse,
            Shown { value: "STEP", requires: Some("trace"), ..TRACES };
        /// Maximum number of events to record, about 100 bytes each; only whole steps are recorded
        trace_events: usize = 200_000, at_least_one,
            Shown { value: "N", requires: Some("trace"), ..TRACES };
        /// Print the confusion matrix of the test set at the end
        confusion: Switch = Switch(false), Value::parse, RUN;
    }
}
