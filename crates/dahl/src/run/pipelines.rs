//! The training of a run: optimizer, micro-batches and the stages of a pipeline.

use super::config::{GrainChoice, IdentitySettings, PipelineKind, PlacementSettings, StagesChoice};
use crate::choose::MICRO_BATCHES;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Shards};
use crate::model::{Delays, Lowered, Model, Optimizer, OptimizerName, Stages, TrainSpec};
use crate::native::Scheduling;
use crate::ops::{Metas, Target};
use crate::perf::{PerfModel, Profile, Work, cpu_kind};
use crate::plan::{MemoryLimits, Numerics};
use crate::planner::{Fitted, Flow, Grain, Order, even, fit, layer_count, starting_with};
use dahl_kernels::Isa;

/// The assumed performance of processing units without measurements: the same everywhere, so that
/// the stages of a command are.
const UNMEASURED: Profile = Profile { flops: 50e9, bandwidth: 10e9 };

/// The training, and its pipeline, if any.
pub struct Pipelined {
    /// The training.
    pub spec: TrainSpec,
    flow: Option<Flow>,
}

impl PlacementSettings {
    /// The workers of a pipeline and their memories: with a pipeline, the grain says nothing
    /// else.
    ///
    /// # Errors
    /// Where it cuts ops, or is chosen.
    pub fn workers_of_stages(&self, base: Grain) -> Result<Grain> {
        match &self.grain {
            None => Ok(base),
            Some(GrainChoice::Given(text)) => base.with_memories(text),
            Some(_) => Err(Error::exclusive("grain", "pipeline, whose stages define the cut")),
        }
    }
}

impl IdentitySettings {
    /// The target that kernels are chosen for.
    pub fn target(&self) -> Target {
        Target { isa: self.isa.unwrap_or_else(Isa::detect), accuracy: self.conv }
    }

    /// The training, without the sizes of the last batches.
    ///
    /// # Errors
    /// Names a setting that the optimizer does not have.
    pub fn train_spec(&self) -> Result<TrainSpec> {
        let spec = TrainSpec::new(self.batch, self.dtype, self.optimizer()?);
        let shards = self.shards.as_ref().map_or(Ok(Shards::default()), |s| s.of(self.batch))?;
        Ok(TrainSpec { clip_grad_norm: self.clip, seed: self.seed, shards, ..spec })
    }

    /// The sizes of the steps over so many samples: the batch and the short last one.
    pub fn batch_sizes(&self, samples: usize) -> Vec<usize> {
        let sizes = [self.batch.min(samples), samples % self.batch];
        sizes.into_iter().filter(|&n| n > 0).collect()
    }

    fn optimizer(&self) -> Result<Optimizer> {
        let sgd_only = [("momentum", self.momentum.is_some()), ("nesterov", self.nesterov.0)];
        let adam_only = [("betas", self.betas.is_some()), ("eps", self.eps.is_some())];
        let wrong = match self.optimizer {
            OptimizerName::Sgd => adam_only,
            OptimizerName::Adam | OptimizerName::Adamw => sgd_only,
        };
        if let Some((setting, _)) = wrong.iter().find(|(_, given)| *given) {
            use super::config::Value;
            let other = format!("optimizer {}", self.optimizer.print());
            return Err(Error::exclusive(setting, other));
        }
        let mut optimizer = match self.optimizer {
            OptimizerName::Sgd => Optimizer::sgd(self.lr),
            OptimizerName::Adam => Optimizer::adam(self.lr),
            OptimizerName::Adamw => Optimizer::adamw(self.lr),
        };
        match &mut optimizer {
            Optimizer::Sgd { sgd, .. } => {
                sgd.momentum = self.momentum.unwrap_or(sgd.momentum);
                sgd.nesterov = self.nesterov.0;
                sgd.weight_decay = self.weight_decay.unwrap_or(sgd.weight_decay);
                if sgd.nesterov && sgd.momentum == 0.0 {
                    return Err(Error::config("nesterov", "a momentum above 0", "none"));
                }
            }
            Optimizer::Adam { adam, .. } => {
                adam.betas = self.betas.map_or(adam.betas, |betas| betas.0);
                adam.eps = self.eps.unwrap_or(adam.eps);
                adam.weight_decay = self.weight_decay.unwrap_or(adam.weight_decay);
            }
        }
        Ok(optimizer)
    }

    /// The training with micro-batches and delays; stages have equal times by `known`.
    ///
    /// # Errors
    /// Where settings of the pipeline do not fit together, or to the model.
    pub fn pipelined(
        &self,
        model: &Model,
        spec: TrainSpec,
        grain: &Grain,
        known: &PerfModel,
    ) -> Result<Pipelined> {
        let norm_over = self.bn;
        let Some(kind) = self.pipeline else {
            let parts = self.micro_batches.unwrap_or(1);
            check_parts(parts, &spec)?;
            return Ok(Pipelined {
                spec: TrainSpec { micro_batches: parts, norm_over, ..spec },
                flow: None,
            });
        };
        let stale = kind.is_stale();
        let plain = model.lower(&spec)?;
        let stages = self.stages(&plain, grain, (stale, known))?;
        self.check(kind, &spec)?;
        let parts = match kind {
            PipelineKind::Pipedream => 1,
            _ => {
                let most = spec.train.iter().copied().max().unwrap_or(1);
                self.micro_batches.unwrap_or(MICRO_BATCHES.min(most))
            }
        };
        let delays = stale.then(|| match (kind, self.vertical_sync.0) {
            (PipelineKind::TwoBw, _) => Delays::double_buffered(stages.clone()),
            (_, true) => Delays::synced(stages.clone()),
            (_, false) => Delays::stashed(stages.clone()),
        });
        let order = match kind {
            PipelineKind::Gpipe => Order::AllForward,
            _ => Order::OneForwardOneBackward,
        };
        let spec = TrainSpec { micro_batches: parts, norm_over, delays: delays.clone(), ..spec };
        Ok(Pipelined { spec, flow: Some(Flow { stages, order, delays, own: Vec::new() }) })
    }

    fn check(&self, kind: PipelineKind, spec: &TrainSpec) -> Result<()> {
        let stale = kind.is_stale();
        if stale && !self.allow_stale.0 {
            return Err(Error::Requires {
                setting: "pipeline".to_owned(),
                other: "allow-stale, since its steps compute with weights that miss updates"
                    .to_owned(),
            });
        }
        if stale && spec.clip_grad_norm.is_some() {
            let other = "pipeline pipedream or 2bw: the norm of all gradients would make every \
                         stage wait for every other";
            return Err(Error::exclusive("clip", other));
        }
        if self.vertical_sync.0 && kind != PipelineKind::Pipedream {
            let other = "pipeline pipedream".to_owned();
            return Err(Error::Requires { setting: "vertical-sync".to_owned(), other });
        }
        match (kind, self.micro_batches) {
            (PipelineKind::Pipedream, Some(parts)) if parts > 1 => {
                let expected = "1 with pipedream, which pipelines whole batches";
                Err(Error::config("micro-batches", expected, parts))
            }
            (_, parts) => check_parts(parts.unwrap_or(1), spec),
        }
    }

    fn stages(
        &self,
        plain: &Lowered,
        grain: &Grain,
        (stale, known): (bool, &PerfModel),
    ) -> Result<Stages> {
        let numerics = Numerics::default_for(&plain.programs, grain.target);
        let expanded = numerics.expand(&plain.programs)?;
        let graph = &expanded.programs[0].graph;
        let count = match &self.stages {
            Some(StagesChoice::Starts(_)) if self.speeds.is_some() => {
                let other = "the names of the layers that begin the stages";
                return Err(Error::exclusive("speeds", other));
            }
            Some(StagesChoice::Starts(starts)) => {
                let starts: Vec<&str> = starts.iter().map(String::as_str).collect();
                return starting_with(graph, &starts);
            }
            Some(StagesChoice::Count(count)) => *count,
            None if self.pipeline == Some(PipelineKind::Pipedream) => {
                let other = "stages, which decide its result".to_owned();
                return Err(Error::Requires { setting: "pipeline pipedream".to_owned(), other });
            }
            None => grain.workers.min(layer_count(graph)),
        };
        if count > layer_count(graph) {
            let expected = format!("at most {}, the layers", layer_count(graph));
            return Err(Error::config("stages", expected, count));
        }
        let speeds = self.speeds.as_ref().map_or(vec![1.0; count], |speeds| speeds.0.clone());
        if speeds.len() != count {
            let expected = format!("{count}, one per stage");
            return Err(Error::config("speeds", expected, speeds.len()));
        }
        // The stages of a stale pipeline decide the bits: they must not depend on measurements.
        let none = PerfModel::default();
        let known = if stale { &none } else { known };
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

impl Pipelined {
    /// A run that was planned over units.
    pub fn of(spec: TrainSpec, flow: Option<Flow>) -> Self {
        Self { spec, flow }
    }

    /// The plan of the pipeline, if there is one, with activations recomputed where it
    /// would not fit otherwise.
    pub fn plan(
        &self,
        grain: &Grain,
        lowered: &Lowered,
        numerics: &Numerics,
        limits: &MemoryLimits,
    ) -> Option<Result<Fitted>> {
        let flow = self.flow.as_ref()?;
        Some(fit(&(flow, grain), &lowered.programs, numerics, limits.clone()))
    }

    /// The scheduling of the tasks of its plan.
    pub fn scheduling(&self) -> Scheduling {
        match &self.flow {
            Some(Flow { delays: Some(_), .. }) => Scheduling::Staged,
            _ => Scheduling::Static,
        }
    }

    /// The pipeline in words, if there is one.
    pub fn text(&self) -> Option<String> {
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
        let count = |n: usize| format!("{n} stage{}", if n == 1 { "" } else { "s" });
        let parts = match self.spec.micro_batches {
            1 => String::new(),
            parts => format!("{parts} micro-batches through "),
        };
        Some(format!("{parts}{}: {}", count(stages.len()), stages.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::RunConfig;
    use super::*;

    fn spec(settings: &[(&str, &str)]) -> Result<TrainSpec> {
        let mut config = RunConfig::default();
        for (name, value) in settings {
            config.set(name, &[value])?;
        }
        config.identity.train_spec()
    }

    #[test]
    fn settings_become_an_optimizer() {
        let optimizer = |settings: &[(&str, &str)]| spec(settings).unwrap().optimizer;
        assert_eq!(optimizer(&[]), Optimizer::adam(0.003));
        assert_eq!(optimizer(&[("optimizer", "adamw"), ("lr", "0.1")]), Optimizer::adamw(0.1));
        let sgd = [("optimizer", "sgd"), ("lr", "1"), ("momentum", "0.9"), ("nesterov", "true")];
        let Optimizer::Sgd { lr, sgd } =
            optimizer(&[&sgd[..], &[("weight-decay", "5e-4")]].concat())
        else {
            panic!("no sgd")
        };
        assert_eq!((lr, sgd.momentum, sgd.weight_decay, sgd.nesterov), (1.0, 0.9, 5e-4, true));
        let adam = [("betas", "0.8,0.9"), ("eps", "1e-6"), ("weight-decay", "0.1")];
        let Optimizer::Adam { adam, .. } = optimizer(&adam) else { panic!("no adam") };
        assert_eq!((adam.betas, adam.eps, adam.weight_decay), ([0.8, 0.9], 1e-6, 0.1));
        assert_eq!(spec(&[("clip", "5")]).unwrap().clip_grad_norm, Some(5.0));
    }

    #[test]
    fn settings_of_other_optimizers_are_refused() {
        let check = |settings: &[(&str, &str)], expected: &str| {
            assert_eq!(spec(settings).unwrap_err().to_string(), expected);
        };
        check(&[("momentum", "0.9")], "momentum cannot be combined with optimizer adam");
        let nesterov = ("nesterov", "true");
        check(
            &[("optimizer", "adamw"), nesterov],
            "nesterov cannot be combined with optimizer adamw",
        );
        check(&[("optimizer", "sgd"), ("eps", "1")], "eps cannot be combined with optimizer sgd");
        check(
            &[("optimizer", "sgd"), nesterov],
            "nesterov: expected a momentum above 0, found none",
        );
    }
}
