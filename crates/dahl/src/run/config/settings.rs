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
    /// The settings that determine the result bit for bit; a resumed run must keep them.
    identity: IdentitySettings as Class::Identity {
        /// Model name or TOML file
        model: ModelRef = ModelRef("digits-cnn".to_owned()), Value::parse, DATA;
        /// CSV datasets: column with the image names [default: id]
        image_column: Option<String> = None, Value::parse, Shown { value: "COLUMN", ..DATA };
        /// CSV datasets: column with the class names [default: masterCategory]
        class_column: Option<String> = None, Value::parse, Shown { value: "COLUMN", ..DATA };
        /// CSV datasets: directory of the images, relative to the directory of the CSV file
        /// [default: images]
        image_dir: Option<String> = None, Value::parse, Shown { value: "DIR", ..DATA };
        /// CSV datasets: extension of image files whose name in the CSV file has no extension
        /// [default: jpg]
        image_extension: Option<String> = None, Value::parse, Shown { value: "EXTENSION", ..DATA };
        /// Use at most N training samples and at most N test samples [default: no limit]
        limit: Option<usize> = None, at_least_one, Shown { value: "N", ..DATA };
        /// Batch size: samples per step
        batch: usize = 32, at_least_one, Shown { value: "N", ..TRAINING };
        /// Element type of parameters and activations: f32 or f64
        dtype: DType = DType::F32, Value::parse, TRAINING;
        /// Normalisation of samples. none: no normalisation; dataset: subtract the mean and divide
        /// by the standard deviation of the training set, per channel (per feature for samples with
        /// one axis); MEAN,STD: use these values instead [default: the normalisation stored in the
        /// file of `init`, if any, else dataset]
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
        /// Gradient clipping: maximum global L2 norm of the gradient, over all parameters [default:
        /// no clipping]
        clip: Option<f64> = None, positive, Shown { value: "NORM", ..TRAINING };
        /// Learning-rate schedule. constant: no change; step:EPOCHS:FACTOR: multiply the learning
        /// rate by FACTOR after every EPOCHS epochs; cosine or cosine:MIN: cosine decay from the
        /// learning rate to MIN times the learning rate over all epochs (MIN is from 0 to 1, 0 if
        /// omitted);
        /// warmup:EPOCHS+SCHEDULE: increase the learning rate linearly from 0 over EPOCHS epochs,
        /// then follow SCHEDULE for the remaining epochs
        schedule: ScheduleSpec = ScheduleSpec::CONSTANT, Value::parse, TRAINING;
        /// Random crop: shift training images by up to this many pixels
        crop: Option<usize> = None, at_least_one, Shown { value: "PIXELS", ..TRAINING };
        /// Random horizontal flip of training images
        flip: Switch = Switch(false), Value::parse, TRAINING;
        /// Keep the training samples in the order of the dataset
        no_shuffle: Switch = Switch(false), Value::parse, TRAINING;
        /// Validation set: training samples that are held out of training and evaluated after each
        /// epoch, as a fraction (0.1) or a number of samples [default: no validation set]
        validation: Option<HoldOut> = None, Value::parse, Shown { value: "FRACTION|N", ..TRAINING };
        /// Safetensors file with the initial weights [default: random initialisation]
        init: Option<PathBuf> = None, Value::parse, Shown { value: "FILE", ..TRAINING };
        /// Convolution algorithms that may be chosen [default: auto for f32, exact for f64]
        conv: Option<Accuracy> = None, Value::parse, KERNELS;
        /// Instruction set: portable, avx2, avx512 or neon [default: the widest of this machine]
        isa: Option<Isa> = None, available_isa, KERNELS;
        /// Choose kernels by measurements on this machine instead of by the table of costs that
        /// comes with dahl; the plan records the choice
        tune: Switch = Switch(false), Value::parse, KERNELS;
        /// Number of micro-batches per batch; their gradients are accumulated before the update
        /// [default: 8 with gpipe, 1f1b and 2bw, else 1]
        micro_batches: Option<usize> = None, at_least_one, Shown { value: "N", ..PIPELINE };
        /// Number of shards of the batch, or the number of samples of each shard (21,11). Sums over
        /// samples are computed per shard, then the sums of all shards are added, so that different
        /// processing units can compute different shards [default: 1]
        shards: Option<ShardsChoice> = None, Value::parse,
            Shown { value: "N|SAMPLES", ..PIPELINE };
        /// Pipeline parallelism: the layers form stages, and each worker runs one stage
        /// (docs/pipelines.md) [default: no pipeline]
        pipeline: Option<PipelineKind> = None, Value::parse, PIPELINE;
        /// Stages of the pipeline: their number (2), or the numbers of the first layers of all
        /// stages (0,7), or the names of the first layers of all stages except the first
        /// (conv3,fc1) [default: one stage per worker, with about equal predicted times; required
        /// with pipedream, because the result of pipedream depends on the stages]
        stages: Option<StagesChoice> = None, Value::parse,
            Shown { value: "N|LAYERS", requires: Some("pipeline"), ..PIPELINE };
        /// Relative speeds of the workers of the stages: 1,0.5 means that the worker of the second
        /// stage has half the speed [default: equal speeds]
        speeds: Option<Speeds> = None, Value::parse,
            Shown { requires: Some("pipeline"), ..PIPELINE };
        /// Samples over which batch norm computes mean and variance
        bn: NormOver = NormOver::Batch, Value::parse, PIPELINE;
        /// Allow stale weights: a step may use weights that lack the latest updates, so that the
        /// pipeline is never flushed
        allow_stale: Switch = Switch(false), Value::parse, PIPELINE;
        /// Vertical sync (pipedream): all stages of a step use the same version of the weights
        vertical_sync: Switch = Switch(false), Value::parse,
            Shown { requires: Some("pipeline"), ..PIPELINE };
    }

    /// The settings that decide where, how and how long a run is executed. They do not change its
    /// result. A resumed run keeps them unless it gets other values.
    placement: PlacementSettings as Class::Placement {
        /// Dataset name, directory or file
        data: DataRef = DataRef("digits".to_owned()), Value::parse, DATA;
        /// Number of epochs
        epochs: usize = 10, at_least_one, Shown { value: "N", ..TRAINING };
        /// Number of worker threads [default: one per logical CPU]
        workers: Option<usize> = None, at_least_one, Shown { value: "N", ..PLACEMENT };
        /// Task granularity (docs/grain.md): number of pieces of each op along each axis, such as
        /// sample=4,channel=2; auto: the granularity with the shortest step; adaptive: start with
        /// auto and adapt the plan when the speed of a worker changes [default: one piece of the
        /// batch per worker]
        grain: Option<GrainChoice> = None, Value::parse, PLACEMENT;
        /// Maximum memory of the plan (2GiB), of single memory spaces (host1=2GiB,gpu0=1GiB), or
        /// both (8GiB,gpu0=1GiB). If necessary, activations are recomputed to stay within the limit
        /// [default: no limit]
        memory_limit: Option<MemoryLimits> = None, Value::parse, Shown { value: "SIZE", ..PLACEMENT };
        /// Scheduling policy: assignment of ready tasks to workers
        scheduling: Rule = Rule::Static, Value::parse, PLACEMENT;
        /// Weight of energy in s/J, for the policy least-energy: the policy minimises finish time +
        /// SECONDS x energy above idle (in joules) of each task
        joule_seconds: f64 = 0.1, not_negative, Shown { value: "SECONDS", ..PLACEMENT };
        /// Number of steps between checkpoints [default: a checkpoint after each epoch, and every
        /// 30 seconds]
        checkpoint_every: Option<usize> = None, at_least_one, Shown { value: "STEPS", ..RUN };
        /// Number of checkpoints to keep; older ones are deleted
        keep: usize = 2, at_least_one, Shown { value: "N", ..RUN };
        /// Write the final weights to this safetensors file
        save: Option<PathBuf> = None, Value::parse, Shown { value: "FILE", ..RUN };
        /// Write an event file for TensorBoard to the run directory
        tensorboard: Switch = Switch(false), Value::parse, RUN;
        /// Platform file (TOML) of the machine. Its power values are used to model energy, and its
        /// processing units by `plan` auto [default: this machine, with estimated power values]
        platform: Option<PathBuf> = None, Value::parse, Shown { value: "FILE", ..ENERGY };
    }

    /// The settings of one invocation. A resumed run does not keep them.
    session: SessionSettings as Class::Session {
        /// Plan of the run: a plan file (output of `dahl plan --show plan`, which may be edited),
        /// or auto for the best plan found for the processing units of `platform`
        /// (docs/planner.md). Evaluation and a shorter last batch get one piece of the batch per
        /// worker if the file has no plan for them [default: a plan according to `grain`]
        plan: Option<PlanChoice> = None, Value::parse,
            Shown { value: "FILE|auto", conflicts: &["grain", "tune", "isa"], ..PLACEMENT };
        /// Quantity that `plan` auto minimises [default: energy]
        objective: Option<Objective> = None, Value::parse,
            Shown { requires: Some("plan"), ..PLACEMENT };
        /// Calibration file (output of `dahl calibrate`), used to predict step times [default:
        /// calibration.json, if it exists]
        calibration: Option<PathBuf> = None, Value::parse, Shown { value: "FILE", ..PLACEMENT };
        /// For experiments: slow down a worker. 1=0.5@100 runs worker 1 at half its speed from step
        /// 100 of this invocation on; repeatable
        throttle: Vec<Throttle> = Vec::new(), Value::parse,
            Shown { value: "WORKER=SPEED[@STEP]", ..PLACEMENT };
        /// Run directory: a path, or a NAME for runs/NAME [default: a new directory in runs/]
        run: Option<PathBuf> = None, Value::parse,
            Shown { value: "NAME|DIR", conflicts: &["resume"], ..RUN };
        /// Write no run directory and no checkpoints
        no_run: Switch = Switch(false), Value::parse, Shown { conflicts: NEED_A_DIRECTORY, ..RUN };
        /// Resume this run from its last checkpoint, with its own configuration
        resume: Option<PathBuf> = None, Value::parse, Shown { value: "NAME|DIR", ..RUN };
        /// Time limit of this invocation (90s, 10m, 2h); at the limit the run is saved and stopped
        /// [default: no limit]
        max_time: Option<Duration> = None, Value::parse, Shown { value: "TIME", ..RUN };
        /// Maximum number of steps in this invocation; at the limit the run is saved and stopped
        /// [default: no limit]
        max_steps: Option<usize> = None, at_least_one, Shown { value: "N", ..RUN };
        /// Directory of the processor's energy counters (Linux powercap, RAPL)
        powercap: PathBuf = PathBuf::from("/sys/class/powercap"), Value::parse,
            Shown { value: "DIR", ..ENERGY };
        /// Directory of the batteries' power readings
        power_supply: PathBuf = PathBuf::from("/sys/class/power_supply"), Value::parse,
            Shown { value: "DIR", ..ENERGY };
        /// Shell command that prints measurements of the whole machine, one per line: power (such
        /// as 42.5 W) or cumulative energy (such as 1200 J) [default: no command]
        meter_cmd: Option<String> = None, Value::parse, Shown { value: "COMMAND", ..ENERGY };
        /// Time between two readings of a meter
        meter_interval: Duration = Duration::from_millis(100), interval,
            Shown { value: "TIME", ..ENERGY };
        /// Duration of an idle-power measurement before the first step [default: no measurement]
        idle_time: Option<Duration> = None, Value::parse, Shown { value: "TIME", ..ENERGY };
        /// Energy limit of this invocation (500J, 2kJ, 0.1kWh); at the limit the run is saved and
        /// stopped. Measured energy counts if there is a meter, else modelled energy [default: no
        /// limit]
        energy_budget: Option<Joules> = None, Value::parse, Shown { value: "ENERGY", ..ENERGY };
        /// Record the activity of every worker in trace.jsonl in the run directory
        trace: Switch = Switch(false), Value::parse, Shown { conflicts: &["no-run"], ..TRACES };
        /// First step to record, counted from the start of this invocation
        trace_from: u64 = 0, Value::parse,
            Shown { value: "STEP", requires: Some("trace"), ..TRACES };
        /// Maximum number of events to record, with about 100 bytes each; steps are recorded
        /// completely or not at all
        trace_events: usize = 200_000, at_least_one,
            Shown { value: "N", requires: Some("trace"), ..TRACES };
        /// Print the confusion matrix of the test set after training
        confusion: Switch = Switch(false), Value::parse, RUN;
    }
}
