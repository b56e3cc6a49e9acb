//! Small trainings whose every bit is kept, and random legal placements.

use dahl::exec::Session;
use dahl::graph::{Graph, Programs};
use dahl::model::{Lowered, Model, Optimizer, Sequence, TrainSpec};
use dahl::native::{Checks, Native, Scheduling};
use dahl::ops::conv2d::Conv2d;
use dahl::ops::{Metas, split};
use dahl::plan::{Group, Numerics, Placement, PlannedPrograms, ProgramPlacement};
use dahl::planner::{Gather, Grain};
use dahl::sched::Policy;
use dahl::train::Trainer;
use dahl::units::{PersistentId, WorkerId};
use dahl::{DType, Result};

/// Splitmix (Steele, Lea and Flood 2014): the same numbers under a seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// In (−1, 1).
    pub(crate) fn number(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// A model and how it is trained.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) model: Model,
    pub(crate) spec: TrainSpec,
    pub(crate) steps: usize,
}

/// The models that bits are compared on, small enough for many plans.
pub(crate) const MODELS: [&str; 5] = ["seed-cnn", "lenet", "projected", "identity", "dropout"];

/// One of [`MODELS`] with its batch.
pub(crate) fn setup(name: &str, dtype: DType) -> Setup {
    let (model, batch, optimizer) = match name {
        "seed-cnn" => (Model::named(name).unwrap(), 5, Optimizer::sgd(0.05)),
        "lenet" => (Model::named(name).unwrap(), 4, Optimizer::adam(0.002)),
        "projected" => (residual(name, Block::Projected), 6, momentum(0.05)),
        "identity" => (residual(name, Block::Identity), 6, momentum(0.05)),
        "dropout" => {
            let build = |s: Sequence| s.linear(24).relu().dropout(0.4).linear(16).relu();
            let model = Model::sequential(name, &[20], |s| build(s).dropout(0.2).linear(5));
            (model, 7, Optimizer::adamw(0.01))
        }
        other => panic!("no setup {other:?}"),
    };
    let spec = TrainSpec { seed: 3, ..TrainSpec::new(batch, dtype, optimizer) };
    Setup { model, spec, steps: 4 }
}

fn momentum(lr: f64) -> Optimizer {
    let Optimizer::Sgd { mut sgd, .. } = Optimizer::sgd(lr) else { unreachable!("sgd is sgd") };
    (sgd.momentum, sgd.weight_decay) = (0.9, 1e-3);
    Optimizer::Sgd { lr, sgd }
}

#[derive(Clone, Copy, PartialEq)]
enum Block {
    Projected,
    Identity,
}

/// A stem and one block of two convolutions with batch norm, as ResNet's.
fn residual(name: &str, block: Block) -> Model {
    let conv = |stride: usize, padding: usize| Conv2d {
        stride: [stride; 2],
        padding: [padding; 2],
        ..Conv2d::default()
    };
    let (out, stride) = if block == Block::Projected { (6, 2) } else { (4, 1) };
    Model::sequential(name, &[3, 8, 8], |s| {
        let s = s.conv2d_with(4, 3, conv(1, 1), false).batch_norm2d().relu();
        let body = |s: Sequence| {
            let s = s.conv2d_with(out, 3, conv(stride, 1), false).batch_norm2d().relu();
            s.conv2d_with(out, 3, conv(1, 1), false).batch_norm2d()
        };
        let shortcut = |s: Sequence| match block {
            Block::Projected => s.conv2d_with(out, 1, conv(stride, 0), false).batch_norm2d(),
            Block::Identity => s,
        };
        s.residual(body, shortcut).relu().global_avg_pool2d().flatten().linear(5)
    })
}

/// What a training left behind, to the last bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) losses: Vec<u64>,
    pub(crate) state: Vec<(String, Vec<u8>)>,
}

impl Run {
    /// Fails with the first step or value whose bits differ.
    #[track_caller]
    pub(crate) fn assert_same(&self, reference: &Self, what: &str) {
        for (step, (a, b)) in self.losses.iter().zip(&reference.losses).enumerate() {
            let (a, b) = (f64::from_bits(*a), f64::from_bits(*b));
            assert_eq!(a.to_bits(), b.to_bits(), "{what}: loss of step {step}: {a:e}, not {b:e}");
        }
        assert_eq!(self.losses.len(), reference.losses.len(), "{what}: steps");
        for ((name, a), (_, b)) in self.state.iter().zip(&reference.state) {
            assert!(a == b, "{what}: {name} has other bits");
        }
        assert_eq!(self.state.len(), reference.state.len(), "{what}: values");
    }
}

impl Setup {
    pub(crate) fn lower(&self) -> Lowered {
        self.model.lower(&self.spec).unwrap()
    }

    pub(crate) fn trainer(&self, plan: PlannedPrograms, session: Box<dyn Session>) -> Trainer {
        Trainer::with_session(self.lower(), plan, &self.spec, session).unwrap()
    }

    /// Trains with a plan, steps overlapping as far as they can.
    pub(crate) fn train(&self, plan: &PlannedPrograms, engine: &Native) -> Result<Run> {
        let session = Box::new(engine.prepare_native(plan)?);
        self.run(&mut self.trainer(plan.clone(), session))
    }

    /// Trains with a plan and a policy.
    pub(crate) fn train_with(
        &self,
        plan: &PlannedPrograms,
        engine: &Native,
        policy: Box<dyn Policy>,
    ) -> Result<Run> {
        let session = Box::new(engine.prepare_with(plan, policy)?);
        self.run(&mut self.trainer(plan.clone(), session))
    }

    /// Trains at a grain.
    pub(crate) fn at(&self, grain: Grain, engine: &Native) -> Run {
        let plan = grain.plan(&self.lower().programs).unwrap();
        self.train(&plan, engine).unwrap()
    }

    /// One worker, nothing cut: what all others are compared with.
    pub(crate) fn reference(&self) -> Run {
        self.at(Grain::for_workers(1), &engine(Scheduling::Static))
    }

    pub(crate) fn run(&self, trainer: &mut Trainer) -> Result<Run> {
        let mut losses = Vec::new();
        let mut last = None;
        for step in 0..self.steps {
            let id = feed(trainer, self.spec.train[0], step as u64)?;
            if let Some(before) = last.replace(id) {
                losses.push(trainer.loss(before)?.to_bits());
            }
        }
        if let Some(last) = last {
            losses.push(trainer.loss(last)?.to_bits());
        }
        Ok(Run { losses, state: state(trainer)? })
    }
}

/// Submits a training step on numbers that follow from its seed.
pub(crate) fn feed(trainer: &mut Trainer, batch: usize, seed: u64) -> Result<dahl::exec::StepId> {
    let mut slot = trainer.slot(batch)?;
    fill(&mut slot, seed)?;
    trainer.step(slot)
}

/// Fills a slot with numbers and labels that follow from a seed.
pub(crate) fn fill(slot: &mut dahl::exec::Slot, seed: u64) -> Result<()> {
    let mut rng = Rng(seed);
    let mut input = slot.input("input")?;
    let elements = input.meta.shape.elements();
    input.write_f64(std::iter::repeat_with(|| rng.number()).take(elements))?;
    let mut rng = Rng(seed ^ 0xff);
    let mut target = slot.input("target")?;
    let elements = target.meta.shape.elements();
    target.write_f64(std::iter::repeat_with(|| rng.below(5) as f64).take(elements))
}

/// Everything that outlives a step, to the last bit.
pub(crate) fn state(trainer: &mut Trainer) -> Result<Vec<(String, Vec<u8>)>> {
    let names: Vec<String> =
        trainer.lowered().programs.store.values.iter().map(|v| v.name.clone()).collect();
    let mut state = Vec::new();
    for (i, name) in names.into_iter().enumerate() {
        let mut bytes = Vec::new();
        trainer.session().read(PersistentId::new(i), &mut |t| bytes = t.bytes.to_vec())?;
        state.push((name, bytes));
    }
    Ok(state)
}

/// An engine that looks over the shoulder of its tasks.
pub(crate) fn engine(scheduling: Scheduling) -> Native {
    Native { scheduling, checks: Checks::On, pin: false, ..Native::default() }
}

pub(crate) const SCHEDULINGS: [Scheduling; 3] =
    [Scheduling::Static, Scheduling::FirstCome, Scheduling::WorkStealing];

pub(crate) fn grain(workers: usize, pieces: usize, channels: usize, gather: Gather) -> Grain {
    Grain { workers, sample: pieces, channel: channels, gather, ..Grain::for_workers(workers) }
}

/// A random legal placement: every node a group of its own, each of its
/// offered cuts taken or not, any worker for any piece.
pub(crate) fn random_placement(expanded: &Programs, workers: usize, rng: &mut Rng) -> Placement {
    let programs = expanded.programs.iter().map(|p| random_program(&p.graph, workers, rng));
    Placement::new(workers, programs.collect())
}

fn random_program(graph: &Graph, workers: usize, rng: &mut Rng) -> ProgramPlacement {
    let mut groups = Vec::new();
    for id in graph.node_ids() {
        let node = graph.node(id);
        if node.op.view().is_some() {
            continue;
        }
        let (inputs, outputs) = graph.metas(node);
        let metas = Metas { inputs: &inputs, outputs: &outputs };
        let (mut cuts, mut pieces) = (Vec::new(), 1);
        for cut in node.op.cuts(metas) {
            let count = 1 + rng.below(4);
            let found = split(outputs[0].shape[cut.axis], count, cut.align).len();
            if rng.below(2) == 0 && pieces * found <= 12 {
                pieces *= found;
                cuts.push((cut.axis, count).into());
            }
        }
        let workers = (0..pieces).map(|_| WorkerId::new(rng.below(workers))).collect();
        groups.push(Group::new(vec![id], vec![cuts], workers));
    }
    ProgramPlacement::new(groups)
}

/// A random legal plan with the default numerics.
pub(crate) fn random_plan(
    programs: &Programs,
    workers: usize,
    rng: &mut Rng,
) -> Result<PlannedPrograms> {
    let numerics = Numerics::default_for(programs, dahl::Isa::detect());
    let placement = random_placement(&numerics.expand(programs)?, workers, rng);
    PlannedPrograms::placed(programs, numerics, placement)
}

/// A tool that a test needs is not there: the test is skipped, unless `REQUIRE_TOOLS` is set, as
/// `.ci/run` does.
pub(crate) fn skipped(tool: &str) {
    assert!(std::env::var_os("REQUIRE_TOOLS").is_none(), "{tool} is not there");
    eprintln!("skipped: {tool} is not there");
}
