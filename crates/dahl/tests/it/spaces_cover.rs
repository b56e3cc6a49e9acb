//! Every way to train over several memories has the bits of one memory with the same shards.

use crate::support::{Run, SCHEDULINGS, Setup, engine, feed, setup, state};
use dahl::DType;
use dahl::exec::TensorMut;
use dahl::graph::{Class, Shards};
use dahl::model::{Delays, Model, NAMES, NormOver, Optimizer, TrainSpec};
use dahl::native::{Native, Scheduling};
use dahl::plan::{Does, Numerics, PlannedPrograms, Recompute};
use dahl::planner::{Flow, Gather, Grain, Order, Placer, even, flops};
use dahl::train::Trainer;
use dahl::units::{PersistentId, ProgramId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// How spaces share the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Equal shares of the batch.
    Even,
    /// Uneven shares of the batch.
    Uneven,
    /// Stages of layers, each in a space of its own.
    Pipeline,
    /// Two stages of layers, each in several spaces with uneven shares.
    Both,
}

const KINDS: [Kind; 4] = [Kind::Even, Kind::Uneven, Kind::Pipeline, Kind::Both];

/// How ops are cut, beside what the spaces ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cuts {
    /// One piece per space, one worker per space.
    Coarse,
    /// Two pieces and two workers per space.
    Fine,
    /// Along channels and rows too, with one worker more than spaces.
    Axes,
    /// Layers too, along columns too; all forward first.
    Layers,
}

const CUTS: [Cuts; 4] = [Cuts::Coarse, Cuts::Fine, Cuts::Axes, Cuts::Layers];

/// One way to train over spaces.
#[derive(Clone, Copy, Debug)]
struct Way {
    kind: Kind,
    spaces: usize,
    cuts: Cuts,
    gather: Gather,
}

impl Kind {
    fn is_pipeline(self) -> bool {
        matches!(self, Kind::Pipeline | Kind::Both)
    }

    /// A training whose shards and micro-batches are those of this kind.
    fn of(self, setup: &Setup) -> Setup {
        let batch = setup.spec.train[0];
        let rest = batch - 4;
        let shares = match self {
            Kind::Even | Kind::Pipeline => Shards::even(batch, 4),
            Kind::Uneven | Kind::Both => Shards::new(vec![1 + rest - rest / 2, 1, 1 + rest / 2, 1]),
        };
        let micro_batches = if self.is_pipeline() { 2 } else { 1 };
        let spec = TrainSpec {
            shards: shares.unwrap(),
            micro_batches,
            norm_over: NormOver::Part,
            ..setup.spec.clone()
        };
        Setup { spec, ..setup.clone() }
    }
}

impl Way {
    fn grain(self) -> Grain {
        let Self { kind, spaces, cuts, gather } = self;
        let stages = if kind.is_pipeline() { self.stages() } else { 1 };
        let workers = match cuts {
            Cuts::Coarse => spaces.max(stages),
            Cuts::Fine => 2 * spaces.max(stages),
            Cuts::Axes => 1 + spaces.max(stages),
            Cuts::Layers => 2 + spaces,
        };
        let mut grain = Grain { spaces, gather, ..Grain::for_workers(workers) };
        if matches!(kind, Kind::Uneven | Kind::Both) {
            grain.shares = [3, 1, 2, 1].into_iter().cycle().take(workers).collect();
        }
        match cuts {
            Cuts::Coarse => grain.sample = spaces,
            Cuts::Fine => grain.sample = 2 * spaces,
            Cuts::Axes => (grain.channel, grain.row) = (2, 2),
            Cuts::Layers => {
                grain.column = 2;
                grain.layer = if kind.is_pipeline() { 1 } else { 2 };
            }
        }
        grain
    }

    fn stages(self) -> usize {
        if self.kind == Kind::Pipeline { self.spaces.max(2) } else { 2 }
    }

    fn plan(self, setup: &Setup) -> PlannedPrograms {
        let (programs, grain) = (setup.lower().programs, self.grain());
        if !self.kind.is_pipeline() {
            return grain.plan(&programs).unwrap();
        }
        let speeds = vec![1.0; self.stages()];
        let order = match self.cuts {
            Cuts::Layers => Order::AllForward,
            _ => Order::OneForwardOneBackward,
        };
        let stages = even(&programs.programs[0].graph, &speeds, &flops);
        let flow = Flow { stages, order, delays: None, own: Vec::new() };
        planned(setup, &flow, &grain)
    }
}

fn planned(setup: &Setup, flow: &Flow, grain: &Grain) -> PlannedPrograms {
    let programs = setup.lower().programs;
    let numerics = Numerics::default_for(&programs, grain.target);
    let none = Recompute::none(&programs);
    PlannedPrograms::plan(&programs, numerics, none, |p| (flow, grain).placement(p)).unwrap()
}

/// A training that stops half-way and goes on by another plan.
fn resumed(setup: &Setup, [first, second]: [&PlannedPrograms; 2], engine: &Native) -> Run {
    let mut losses = Vec::new();
    let half = setup.steps / 2;
    let start = |plan: &PlannedPrograms| {
        Trainer::with_plan(setup.lower(), plan.clone(), &setup.spec, engine).unwrap()
    };
    let mut steps = |trainer: &mut Trainer, range: Range<usize>| {
        for step in range {
            let id = feed(trainer, setup.spec.train[0], step as u64).unwrap();
            losses.push(trainer.loss(id).unwrap().to_bits());
        }
    };
    let mut before = start(first);
    steps(&mut before, 0..half);
    let mut after = start(second);
    for (i, (_, bytes)) in state(&mut before).unwrap().iter().enumerate() {
        let mut write = |value: TensorMut<'_>| {
            value.bytes.copy_from_slice(bytes);
            Ok(())
        };
        after.session().write(PersistentId::new(i), &mut write).unwrap();
    }
    after.set_steps(half as u64);
    steps(&mut after, half..setup.steps);
    let state = state(&mut after).unwrap();
    Run { losses, state }
}

/// `seed-cnn` on a batch that four shards can have unequal parts of.
fn seed_cnn() -> Setup {
    let mut setup = setup("seed-cnn", DType::F32);
    setup.spec.train[0] = 8;
    setup
}

#[test]
fn seed_cnn_over_spaces_in_all_ways_has_the_bits_of_one() {
    let mut cases = 0;
    for kind in KINDS {
        let setup = kind.of(&seed_cnn());
        let reference = setup.reference();
        for cuts in CUTS {
            for gather in [Gather::On, Gather::Off] {
                let way = |spaces| Way { kind, spaces, cuts, gather };
                let plans: Vec<PlannedPrograms> =
                    (1..=4).map(|spaces| way(spaces).plan(&setup)).collect();
                for (i, plan) in plans.iter().enumerate() {
                    assert_eq!(plan.placement.spaces.len(), i + 1);
                    for how in SCHEDULINGS {
                        let what = format!("{:?}, {how:?}", way(i + 1));
                        let run = setup.train(plan, &engine(how)).unwrap();
                        run.assert_same(&reference, &what);
                        let both = [plan, &plans[(i + 1) % 4]];
                        let run = resumed(&setup, both, &engine(how));
                        run.assert_same(&reference, &format!("{what}, resumed"));
                        cases += 2;
                    }
                }
            }
        }
    }
    println!("{cases} trainings of seed-cnn have the bits of one space");
    assert_eq!(cases, 4 * 4 * 4 * 2 * 3 * 2);
}

/// A choice in each dimension: model, kind, spaces, cuts, gathering, policy, resume.
type Choice = [usize; 7];

const DIMENSIONS: Choice = [NAMES.len(), 4, 4, 4, 2, 3, 2];

/// Choices that have every pair of values of two dimensions together at least once: again and
/// again the one with the most pairs that none had.
fn pairwise() -> Vec<Choice> {
    let pairs = |choice: &Choice| {
        let mut all = Vec::new();
        for a in 0..choice.len() {
            all.extend((a + 1..choice.len()).map(|b| (a, choice[a], b, choice[b])));
        }
        all
    };
    let all: Vec<Choice> = (0..DIMENSIONS.iter().product())
        .map(|mut index: usize| {
            DIMENSIONS.map(|count| {
                let value = index % count;
                index /= count;
                value
            })
        })
        .collect();
    let mut missing: BTreeSet<_> = all.iter().flat_map(pairs).collect();
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let new = |choice: &&Choice| pairs(choice).iter().filter(|p| missing.contains(p)).count();
        let best = *all.iter().max_by_key(new).expect("a choice");
        pairs(&best).iter().for_each(|pair| {
            missing.remove(pair);
        });
        chosen.push(best);
    }
    chosen
}

#[test]
fn all_models_over_spaces_have_the_bits_of_one() {
    let mut references: BTreeMap<(usize, Kind), Run> = BTreeMap::new();
    let mut choices = pairwise();
    // A debug build takes seconds for each of resnet18: the others are run by a release build.
    let large = NAMES.iter().position(|name| *name == "resnet18").unwrap();
    let mut left = if cfg!(debug_assertions) { 2 } else { usize::MAX };
    choices.retain(|choice| {
        let runs = choice[0] != large || left > 0;
        left -= usize::from(choice[0] == large && left > 0);
        runs
    });
    for [model, kind, spaces, cuts, gather, how, resume] in choices.iter().copied() {
        let name = NAMES[model];
        let optimizer = match name {
            "resnet18" => Optimizer::sgd(0.01),
            _ => Optimizer::adam(0.002),
        };
        let spec = TrainSpec::new(6, DType::F32, optimizer);
        let plain = Setup { model: Model::named(name).unwrap(), spec, steps: 2 };
        let (kind, gather) = (KINDS[kind], [Gather::On, Gather::Off][gather]);
        let setup = kind.of(&plain);
        let reference = references.entry((model, kind)).or_insert_with(|| setup.reference());
        let way = |spaces| Way { kind, spaces, cuts: CUTS[cuts], gather };
        let (plan, engine) = (way(1 + spaces).plan(&setup), engine(SCHEDULINGS[how]));
        let run = match resume {
            0 => setup.train(&plan, &engine).unwrap(),
            _ => resumed(&setup, [&way(1 + (spaces + 1) % 4).plan(&setup), &plan], &engine),
        };
        run.assert_same(reference, &format!("{name} {:?} {resume}", way(1 + spaces)));
    }
    println!("{} trainings of {} models have the bits of one space", choices.len(), NAMES.len());
    assert!(choices.len() >= (NAMES.len() - 1) * 4);
}

/// What is moved in a step: how many moves, and bytes.
fn moved(plan: &PlannedPrograms) -> (usize, u64) {
    let (graph, tasks) = plan.program(ProgramId(0));
    let moves = tasks.tasks.iter().filter_map(|task| match &task.does {
        Does::Move(of) => Some(of.bytes(graph).0),
        _ => None,
    });
    (moves.clone().count(), moves.sum())
}

#[test]
fn the_stages_of_a_pipeline_have_their_parameters_in_their_own_spaces() {
    let setup = Kind::Pipeline.of(&seed_cnn());
    let way = Way { kind: Kind::Pipeline, spaces: 2, cuts: Cuts::Coarse, gather: Gather::On };
    let plan = way.plan(&setup);
    let store = &plan.programs().store;
    let parameters = store.of_class(Class::Parameter);
    for (id, value) in parameters {
        let own = plan.memory.replicas.iter().filter(|replica| replica.value == id);
        assert_eq!(own.count(), 1, "{}", value.name);
    }
    // Per micro-batch, activations with labels one way and their gradients the other; the counts,
    // the loss and whether it is finite travel with these.
    let (moves, bytes) = moved(&plan);
    let activation = 4 * 13 * 13 * 4;
    assert_eq!((moves, bytes), (4, 8 * (2 * activation + 8) + 4 + 4 + 8 + 1));
    let data_parallel = Way { kind: Kind::Even, ..way };
    let (_, more) = moved(&data_parallel.plan(&Kind::Even.of(&seed_cnn())));
    assert!(more > 0);
}

#[test]
fn a_stale_pipeline_over_spaces_has_the_bits_of_one() {
    let model = Model::sequential("chain", &[6], |s| {
        s.linear(9).relu().linear(8).relu().linear(7).relu().linear(5)
    });
    let spec = TrainSpec { seed: 5, ..TrainSpec::new(4, DType::F64, Optimizer::adam(0.01)) };
    let plain = Setup { model, spec, steps: 9 };
    let graph = &plain.lower().programs.programs[0].graph.clone();
    for stages in 2..=4 {
        let stages_of = even(graph, &vec![1.0; stages], &flops);
        let delays = [
            Delays::stashed(stages_of.clone()),
            Delays::synced(stages_of.clone()),
            Delays::double_buffered(stages_of.clone()),
        ];
        for delays in delays {
            let spec = TrainSpec { delays: Some(delays.clone()), ..plain.spec.clone() };
            let setup = Setup { spec, ..plain.clone() };
            let reference = setup.reference();
            for (spaces, workers) in [(1, 1), (2, stages), (stages, stages), (4, 4)] {
                let grain = Grain { spaces, ..Grain::for_workers(workers) };
                let delays = Some(delays.clone());
                let order = Order::OneForwardOneBackward;
                let flow = Flow { stages: stages_of.clone(), order, delays, own: Vec::new() };
                let plan = planned(&setup, &flow, &grain);
                for how in [Scheduling::Staged, Scheduling::Static, Scheduling::FirstCome] {
                    let run = setup.train(&plan, &engine(how)).unwrap();
                    let what = format!("{stages} stages in {spaces} spaces, {how:?}");
                    run.assert_same(&reference, &what);
                }
            }
        }
    }
}
