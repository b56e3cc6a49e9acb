//! Options of micro-batches and pipelines, shared by commands.

use crate::grain::at_least_one;
use crate::output::counted;
use crate::simulate::calibrations;
use clap::{Args, ValueEnum};
use dahl::graph::{Graph, Node};
use dahl::model::{Delays, Lowered, Model, NormOver, Stages, TrainSpec};
use dahl::native::Scheduling;
use dahl::ops::Metas;
use dahl::perf::{PerfModel, Profile, Work, cpu_kind};
use dahl::plan::Numerics;
use dahl::planner::{Fitted, Flow, Grain, Order, even, fit, layer_count, starting_with};
use dahl::units::Bytes;
use dahl::{Error, Result};
use std::path::{Path, PathBuf};

/// Micro-batches and pipelines
#[derive(Args)]
pub(crate) struct FlowArgs {
    /// Give each worker layers of its own and send micro-batches through them (docs/pipelines.md)
    #[arg(long, value_enum)]
    pipeline: Option<Kind>,
    /// Stages of the pipeline: how many, or the layers that begin them, from the second on,
    /// such as conv3,fc1, or from the first on, such as 0,7 [default: one a worker, of equal predicted time; pipedream, whose
    /// result they decide, needs them]
    #[arg(long, value_name = "N|LAYERS", requires = "pipeline")]
    stages: Option<StagesText>,
    /// How fast the stages' workers are, relative to each other, such as 1,0.5
    #[arg(long, value_name = "SPEEDS", requires = "pipeline", value_delimiter = ',', value_parser = speed)]
    speeds: Vec<f64>,
    /// Parts that a batch is cut into; their gradients are added up before the update
    /// [default: 1, with gpipe, 1f1b and 2bw 8]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) micro_batches: Option<usize>,
    /// What batch norm takes its statistics over: micro is another result than batch
    #[arg(long, value_enum, default_value_t = BnOver::Batch)]
    bn: BnOver,
    /// Let steps compute with weights that miss some updates, so that the pipeline never
    /// empties
    #[arg(long)]
    pub(crate) allow_stale: bool,
    /// All stages compute a step with weights of one age, with pipedream
    #[arg(long, requires = "pipeline")]
    vertical_sync: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// All micro-batches forward, then all backward; then the update
    Gpipe,
    /// One forward, one backward; then the update: less memory
    #[value(name = "1f1b")]
    OneForwardOneBackward,
    /// A step behind the other, weights kept for each (needs --allow-stale)
    Pipedream,
    /// Micro-batches, with weights of the update before the last (needs --allow-stale)
    #[value(name = "2bw")]
    TwoBw,
}

/// What statistics of a batch norm are taken over
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BnOver {
    /// All samples of the batch; micro-batches are refused
    Batch,
    /// Those of a micro-batch
    Micro,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StagesText {
    Count(usize),
    Starts(Vec<String>),
}

impl std::str::FromStr for StagesText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(0) => Err("expected at least 1".to_owned()),
            Ok(count) => Ok(StagesText::Count(count)),
            Err(_) => {
                Ok(StagesText::Starts(text.split(',').map(|s| s.trim().to_owned()).collect()))
            }
        }
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed = text.trim().parse().ok().filter(|s: &f64| s.is_finite() && *s > 0.0);
    speed.ok_or_else(|| "expected numbers above 0, such as 1,0.5".to_owned())
}

/// Micro-batches of a pipeline: the same for any number of workers, since they decide how sums
/// are rounded.
const PARTS: usize = 8;

/// What is known of units where nothing was measured here: the same
/// everywhere, so that the stages of a command are.
const UNMEASURED: Profile = Profile { flops: 50e9, bandwidth: 10e9 };

/// What a run with a pipeline, or with micro-batches, is lowered and planned as.
pub(crate) struct Flowing {
    pub(crate) spec: TrainSpec,
    flow: Option<Flow>,
}

impl FlowArgs {
    /// Every pipeline over so many stages, by name.
    pub(crate) fn each(stages: usize, parts: usize) -> [(&'static str, Self); 4] {
        let of = |kind, micro_batches| Self {
            pipeline: Some(kind),
            stages: Some(StagesText::Count(stages)),
            speeds: Vec::new(),
            micro_batches,
            bn: BnOver::Micro,
            allow_stale: true,
            vertical_sync: false,
        };
        [
            ("gpipe", of(Kind::Gpipe, Some(parts))),
            ("1f1b", of(Kind::OneForwardOneBackward, Some(parts))),
            ("pipedream", of(Kind::Pipedream, None)),
            ("2bw", of(Kind::TwoBw, Some(parts.max(stages)))),
        ]
    }

    /// What is trained, with its micro-batches and delays.
    pub(crate) fn flowing(
        &self,
        model: &Model,
        spec: TrainSpec,
        grain: &Grain,
        calibration: Option<&Path>,
    ) -> Result<Flowing> {
        let norm_over = match self.bn {
            BnOver::Batch => NormOver::Batch,
            BnOver::Micro => NormOver::Part,
        };
        let Some(kind) = self.pipeline else {
            let parts = self.micro_batches.unwrap_or(1);
            check_parts(parts, &spec)?;
            return Ok(Flowing { spec: TrainSpec { parts, norm_over, ..spec }, flow: None });
        };
        let stale = matches!(kind, Kind::Pipedream | Kind::TwoBw);
        let plain = model.lower(&spec)?;
        let stages = self.stages(&plain, grain, (stale, calibration))?;
        self.check(kind, &spec)?;
        let parts = match kind {
            Kind::Pipedream => 1,
            _ => {
                let most = spec.train.iter().copied().max().unwrap_or(1);
                self.micro_batches.unwrap_or(PARTS.min(most))
            }
        };
        let delays = stale.then(|| match (kind, self.vertical_sync) {
            (Kind::TwoBw, _) => Delays::double_buffered(stages.clone()),
            (_, true) => Delays::synced(stages.clone()),
            (_, false) => Delays::stashed(stages.clone()),
        });
        let order = match kind {
            Kind::Gpipe => Order::AllForward,
            _ => Order::OneForwardOneBackward,
        };
        let spec = TrainSpec { parts, norm_over, delays: delays.clone(), ..spec };
        Ok(Flowing { spec, flow: Some(Flow { stages, order, delays, own: Vec::new() }) })
    }

    /// Refuses stages where something else chooses them.
    pub(crate) fn refuse_stages(&self, with: &str) -> Result<()> {
        match self.pipeline {
            Some(_) => Err(Error::config("pipeline", format!("none with {with}"), "one")),
            None => Ok(()),
        }
    }

    fn check(&self, kind: Kind, spec: &TrainSpec) -> Result<()> {
        let stale = matches!(kind, Kind::Pipedream | Kind::TwoBw);
        if stale && !self.allow_stale {
            let expected = "--allow-stale, since steps compute with weights that miss updates";
            return Err(Error::config("pipeline", expected, "none"));
        }
        if stale && spec.clip_grad_norm.is_some() {
            let expected = "none with a stale pipeline: the norm of all gradients would have \
                            every stage wait for every other";
            return Err(Error::config("clip", expected, "one"));
        }
        if self.vertical_sync && kind != Kind::Pipedream {
            return Err(Error::config("vertical-sync", "it with pipedream", "another pipeline"));
        }
        match (kind, self.micro_batches) {
            (Kind::Pipedream, Some(parts)) if parts > 1 => {
                let expected = "1 with pipedream, whose steps are what follow each other";
                Err(Error::config("micro-batches", expected, parts))
            }
            (_, parts) => check_parts(parts.unwrap_or(1), spec),
        }
    }

    fn stages(
        &self,
        plain: &Lowered,
        grain: &Grain,
        (stale, calibration): (bool, Option<&Path>),
    ) -> Result<Stages> {
        let numerics = Numerics::default_for(&plain.programs, grain.target);
        let expanded = numerics.expand(&plain.programs)?;
        let graph = &expanded.programs[0].graph;
        let count = match &self.stages {
            Some(StagesText::Starts(_)) if !self.speeds.is_empty() => {
                let expected = "none where the layers that begin stages are named";
                return Err(Error::config("speeds", expected, format!("{:?}", self.speeds)));
            }
            Some(StagesText::Starts(starts)) => {
                let starts: Vec<&str> = starts.iter().map(String::as_str).collect();
                return starting_with(graph, &starts);
            }
            Some(StagesText::Count(count)) => *count,
            None if self.pipeline == Some(Kind::Pipedream) => {
                let expected = "how many, or the layers that begin them: they decide the result";
                return Err(Error::config("stages", expected, "none"));
            }
            None => grain.workers.min(layer_count(graph)),
        };
        if count > layer_count(graph) {
            let expected = format!("at most {}, the layers", layer_count(graph));
            return Err(Error::config("stages", expected, count));
        }
        if !self.speeds.is_empty() && self.speeds.len() != count {
            let expected = format!("{count}, one for each stage");
            return Err(Error::config("speeds", expected, self.speeds.len()));
        }
        let speeds = if self.speeds.is_empty() { vec![1.0; count] } else { self.speeds.clone() };
        // Stages decide the bits where weights are old: then they must not depend on what
        // was measured.
        let known = match calibration {
            _ if stale => PerfModel::default(),
            path => calibrations(&path.map(PathBuf::from).into_iter().collect::<Vec<_>>())?,
        };
        let kind = cpu_kind(numerics.isa);
        let cost = |graph: &Graph, node: &Node| {
            let (inputs, outputs) = graph.metas(node);
            let metas = Metas { inputs: &inputs, outputs: &outputs };
            if node.op.view().is_some() {
                return 0.0;
            }
            let work = Work::new(node, metas, &graph.whole(node));
            let estimate = known.estimate(&work.key(&kind), work.features);
            estimate.unwrap_or_else(|| UNMEASURED.estimate(work.features)).nanos
        };
        Ok(even(graph, &speeds, &cost))
    }
}

/// Refuses more micro-batches than samples.
fn check_parts(parts: usize, spec: &TrainSpec) -> Result<()> {
    let batch = spec.train.iter().copied().max().unwrap_or(1);
    if parts <= batch {
        return Ok(());
    }
    let expected = format!("at most {batch}, the samples of a batch");
    Err(Error::config("micro-batches", expected, parts))
}

impl Flowing {
    /// A run that was planned over units.
    pub(crate) fn of(spec: TrainSpec, flow: Option<Flow>) -> Self {
        Self { spec, flow }
    }

    /// Whether there are stages.
    pub(crate) fn is_pipeline(&self) -> bool {
        self.flow.is_some()
    }

    /// The plan of the pipeline, if there is one, with activations recomputed where it
    /// would not fit otherwise.
    pub(crate) fn plan(
        &self,
        grain: &Grain,
        lowered: &Lowered,
        numerics: &Numerics,
        limit: Option<Bytes>,
    ) -> Option<Result<Fitted>> {
        let flow = self.flow.as_ref()?;
        let limit = limit.unwrap_or(Bytes(u64::MAX));
        Some(fit(&(flow, grain), &lowered.programs, numerics, limit))
    }

    /// How the tasks of its plan find their workers.
    pub(crate) fn scheduling(&self) -> Scheduling {
        match &self.flow {
            Some(Flow { delays: Some(_), .. }) => Scheduling::Staged,
            _ => Scheduling::Static,
        }
    }

    /// The pipeline in words, if there is one.
    pub(crate) fn text(&self) -> Option<String> {
        let flow = self.flow.as_ref()?;
        let stage = |s: usize| {
            let layers: Vec<&str> = flow.stages.layers(s).collect();
            let (first, last) = (layers.first()?, layers.last()?);
            let age = match &flow.delays {
                Some(delays) if delays.by_stage[s] > 0 => {
                    format!(", {} behind", delays.by_stage[s])
                }
                _ => String::new(),
            };
            Some(match first == last {
                true => format!("{first}{age}"),
                false => format!("{first} to {last}{age}"),
            })
        };
        let stages: Vec<String> = (0..flow.stages.count()).filter_map(stage).collect();
        let parts = match self.spec.parts {
            1 => String::new(),
            parts => format!("{parts} micro-batches through "),
        };
        Some(format!("{parts}{}: {}", counted(stages.len(), "stage"), stages.join("; ")))
    }
}
