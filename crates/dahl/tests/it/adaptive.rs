//! Policies that know what tasks take, slow workers, and placements that are changed in
//! mid-run: none changes a bit.

use crate::support::{Run, Setup, engine, grain, setup};
use crate::timed::{Timed, made_up_nanos};
use dahl::calibrate::{Racer, Turn, race};
use dahl::choose::{GrainRequest, Measurer};
use dahl::exec::{Decision, Session};
use dahl::graph::Programs;
use dahl::native::{Native, Scheduling, Throttle};
use dahl::perf::{About, Contention, Overheads, PerfModel, Series, Work, cpu_kind};
use dahl::plan::{Numerics, Plan, PlannedPrograms};
use dahl::planner::{Adapter, Circumstances, Gather, Grain, Patience, candidates, fit};
use dahl::platform::{Figure, Memory, Node, Origin, Platform, Unit, UnitId};
use dahl::report::{Calls, Stats};
use dahl::sched::Rule;
use dahl::sim::{Known, Worker, expectations};
use dahl::trace::{Event, WorkerCounts};
use dahl::train::Trainer;
use dahl::units::{Bytes, Nanos, ProgramId, WorkerId};
use dahl::{DType, Error};
use std::path::Path;
use std::time::{Duration, Instant};

/// A machine of four processors.
fn machine() -> Platform {
    let exact = |value| Figure::exact(value, Origin::Guess);
    let ram = Memory { name: "ram".to_owned(), bytes: 1 << 33, bandwidth: exact(2e10) };
    let core = Unit {
        name: "core".to_owned(),
        kind: "cpu".to_owned(),
        count: 4,
        memory: 0,
        speed: exact(1.0),
        flops: None,
        busy_watts: exact(10.0),
        spinning_watts: exact(10.0),
        idle_watts: exact(1.0),
        price_per_hour: 0.0,
        states: Vec::new(),
    };
    let node = Node {
        name: "here".to_owned(),
        count: 1,
        base_watts: exact(0.0),
        price_per_hour: 0.0,
        price_per_kwh: None,
        sleep: None,
        memories: vec![ram],
        units: vec![core],
        links: Vec::new(),
    };
    Platform { nodes: vec![node], ..Platform::default() }
}

/// What the calls of plans take on that machine: on a busy one calls are found to take
/// anything, and workers to wait for each other for ages.
fn made_up(plans: &[PlannedPrograms]) -> PerfModel {
    let mut known = PerfModel::new(About::default());
    let (overhead_ns, step_ns, hop_ns, spin_ns) = (100.0, 500.0, Some(200.0), 20_000.0);
    known.overheads = Some(Overheads { overhead_ns, step_ns, hop_ns, spin_ns });
    for plan in plans {
        let kind = cpu_kind(plan.numerics.isa);
        let (expanded, graphs) = (plan.expanded(), plan.graphs());
        for (program, graph) in expanded.programs.iter().zip(graphs) {
            for call in graph.tasks.iter().flat_map(|task| task.calls()) {
                let work = Work::of_node(&program.graph, call.node, &call.piece);
                let nanos = &[made_up_nanos(work.features.flops)];
                let series = Series { nanos, most: 1, contention: Contention::None };
                known.add(&work.key(&kind), work.features, series);
            }
        }
    }
    known
}

/// Plans of all cuts of a batch of 12.
fn cuts_of_twelve(programs: &Programs, grain: &Grain) -> Vec<PlannedPrograms> {
    let cut = |pieces| grain.with(&format!("sample={pieces}")).unwrap().plan(programs).unwrap();
    (1..=12).map(cut).collect()
}

#[test]
fn every_policy_gives_the_bits_of_the_plan() {
    let platform = machine();
    let on = platform.expand();
    for name in ["lenet", "projected"] {
        let setup = setup(name, DType::F32);
        let reference = setup.reference();
        let programs = setup.lower().programs;
        for workers in 1..=3 {
            let plan = grain(workers, 3, 1, Gather::On).plan(&programs).unwrap();
            let known = made_up(std::slice::from_ref(&plan));
            let unit = |unit| Worker { unit: UnitId(unit), state: None };
            let units: Vec<Worker> = (0..workers as u32).map(unit).collect();
            let what = &plan;
            let expected = expectations(what, (&on, &units), &mut Known::new(&known)).unwrap();
            for rule in [
                Rule::FirstCome,
                Rule::WorkStealing,
                Rule::CriticalPath,
                Rule::EarliestFinish,
                Rule::LeastEnergy,
            ] {
                let engine = engine(Scheduling::Static);
                let run =
                    setup.train_with(&plan, &engine, rule.policy(&expected, 1e9).unwrap()).unwrap();
                run.assert_same(&reference, &format!("{name} {workers} {rule:?}"));
            }
        }
    }
}

#[test]
fn shares_give_the_bits_of_the_plan() {
    for name in ["lenet", "projected", "dropout"] {
        let setup = setup(name, DType::F32);
        let reference = setup.reference();
        let programs = setup.lower().programs;
        for text in ["sample=3,shares=2:1", "sample=4,shares=0:1", "sample=5,channel=2,shares=1:3"]
        {
            let plan = Grain::for_workers(2).with(text).unwrap().plan(&programs).unwrap();
            let run = setup.train(&plan, &engine(Scheduling::Static)).unwrap();
            run.assert_same(&reference, &format!("{name} {text}"));
            let stored = PlannedPrograms::parse(&plan.to_text(), &programs).unwrap();
            assert_eq!(stored.placement, plan.placement, "{text}");
        }
    }
}

/// How many tasks of a step each worker has.
fn tasks(plan: &Plan) -> [usize; 2] {
    let groups = plan.placement.programs[0].groups.iter();
    let workers: Vec<WorkerId> = groups.flat_map(|g| g.workers.clone()).collect();
    [0, 1].map(|w| workers.iter().filter(|worker| worker.0 == w).count())
}

#[test]
fn a_slow_worker_changes_no_bit_and_its_calls_follow_each_other() {
    let mut setup = setup("lenet", DType::F32);
    setup.steps = 10;
    let plan = Grain::for_workers(2).plan(&setup.lower().programs).unwrap();
    let throttles = vec![Throttle { worker: 1, speed: 0.2, from_step: 2 }];
    let engine = Native { record: true, throttles, ..engine(Scheduling::Static) };
    let session = engine.prepare_native(&plan).unwrap();
    let mut trainer = setup.trainer(plan, Box::new(session));
    let run = setup.run(&mut trainer).unwrap();
    run.assert_same(&setup.reference(), "throttled");
    let trace = trainer.session().take_trace();
    let calls = Calls::of(&trace);
    for worker in 0..2 {
        let own: Vec<_> = calls.all.iter().filter(|call| call.worker == worker).collect();
        assert!(own.is_sorted_by_key(|call| call.from), "in order");
        assert!(own.windows(2).all(|two| two[0].to <= two[1].from), "one follows the other");
    }
    let wrong = Native {
        throttles: vec![Throttle { worker: 0, speed: 0.0, from_step: 0 }],
        ..Native::default()
    };
    assert!(wrong.prepare_native(trainer.plan()).is_err());
}

/// Steps with a change of placement before each of some of them.
fn changing(setup: &Setup, engine: &Native, texts: &[&str]) -> (Run, Trainer) {
    let programs = setup.lower().programs;
    let grain = Grain::for_workers(2);
    let plan = grain.plan(&programs).unwrap();
    let session = engine.prepare_native(&plan).unwrap();
    let mut trainer = setup.trainer(plan, Box::new(session));
    let mut losses = Vec::new();
    let mut last = None;
    for step in 0..setup.steps {
        // A slot that is being filled meanwhile, as a loader does.
        let held = trainer.slot(setup.spec.train[0]).unwrap();
        if let Some(text) = texts.get(step) {
            let plan = grain.with(text).unwrap().plan(&programs).unwrap();
            let decision = Decision {
                to: Some(&plan),
                name: text,
                why: "to see",
                measured: Nanos(2),
                predicted: Nanos(1),
                took: Nanos(0),
            };
            trainer.session().replan(&decision).unwrap();
            assert_eq!(trainer.session().allocated(), plan.memory.peak(), "{text}");
        }
        let mut slot = held;
        crate::support::fill(&mut slot, step as u64).unwrap();
        let id = trainer.step(slot).unwrap();
        if let Some(before) = last.replace(id) {
            losses.push(trainer.loss(before).unwrap().to_bits());
        }
    }
    losses.push(trainer.loss(last.unwrap()).unwrap().to_bits());
    let state = crate::support::state(&mut trainer).unwrap();
    (Run { losses, state }, trainer)
}

#[test]
fn a_session_goes_on_by_another_placement() {
    let texts = ["sample=2", "sample=3,shares=2:1", "sample=1,shares=0:1", "sample=4,channel=2"];
    for name in ["lenet", "identity", "dropout"] {
        let setup = setup(name, DType::F32);
        let engine = Native { record: true, ..engine(Scheduling::Static) };
        let (run, mut trainer) = changing(&setup, &engine, &texts);
        run.assert_same(&setup.reference(), name);
        // Counters and trace are of the whole run.
        let counters = trainer.session().counters();
        let counted: u64 = counters.codelets().iter().map(|codelet| codelet.calls).sum();
        let by_worker = counters.by_worker().into_iter().flat_map(|cell| cell.workers);
        assert_eq!(by_worker.map(|(calls, _)| calls).sum::<u64>(), counted);
        let trace = trainer.session().take_trace();
        let trace = dahl::trace::Trace::parse(&trace.to_text(), Path::new("trace")).unwrap();
        let calls = trace.events.iter().filter(|event| matches!(event, Event::Call { .. }));
        assert_eq!(calls.count() as u64, counted, "{name}");
        let steps = trace.events.iter().filter(|event| matches!(event, Event::Submit { .. }));
        assert_eq!(steps.count(), setup.steps, "{name}");
        let stats = Stats::of_trace(&trace);
        let changes: Vec<String> = stats.decisions.iter().map(|row| row.to_string()).collect();
        assert_eq!(changes.len(), texts.len());
        assert!(changes[1].starts_with("step 1: placement sample=3,shares=2:1, since to see; "));
        assert!(stats.to_text(Default::default()).contains(&changes[2]));
    }
}

/// Each change kept the programs of all that were before, though nobody could ask for them.
#[test]
fn a_session_that_is_not_recorded_does_not_grow_with_its_changes() {
    let mut setup = setup("lenet", DType::F32);
    setup.steps = 50;
    let texts = ["sample=2", "sample=3,shares=2:1"].repeat(25);
    let (run, mut trainer) = changing(&setup, &engine(Scheduling::Static), &texts);
    run.assert_same(&setup.reference(), "changing");
    let header = trainer.session().take_trace().header;
    assert_eq!(header.programs.len(), trainer.lowered().programs.programs.len());
    assert!(header.placements.is_empty() && header.programs.iter().all(|p| p.across.is_empty()));
}

#[test]
fn other_numerics_and_policies_are_refused() {
    let setup = setup("lenet", DType::F32);
    let programs = setup.lower().programs;
    let plan = Grain::for_workers(2).plan(&programs).unwrap();
    let decision = |plan| Decision {
        to: Some(plan),
        name: "other",
        why: "to see",
        measured: Nanos(1),
        predicted: Nanos(1),
        took: Nanos(0),
    };
    let mut session = engine(Scheduling::FirstCome).prepare_native(&plan).unwrap();
    assert!(session.replan(&decision(&plan)).is_err());
    let target = dahl::ops::Target { isa: dahl::Isa::Portable, accuracy: None };
    let other = Grain { target, ..Grain::for_workers(2) }.plan(&programs).unwrap();
    let mut session = engine(Scheduling::Static).prepare_native(&plan).unwrap();
    let refused = session.replan(&decision(&other));
    assert!(plan.numerics == other.numerics || refused.is_err());
}

/// How many pieces of groups with several each worker has.
fn pieces(plan: &Plan) -> [usize; 2] {
    let groups = plan.placement.programs[0].groups.iter().filter(|g| g.workers.len() > 1);
    let workers: Vec<WorkerId> = groups.flat_map(|g| g.workers.clone()).collect();
    [0, 1].map(|w| workers.iter().filter(|worker| worker.0 == w).count())
}

/// What an adapting run begins with.
struct Begin {
    grain: Grain,
    /// Of what a plan needs at most and at least, the part above the least that is allowed.
    limit: Option<f64>,
    known: Option<PerfModel>,
}

impl Begin {
    fn with(grain: Grain) -> Self {
        Self { grain, limit: None, known: None }
    }
}

/// What an adapting run began with, and what became of it.
struct Adapted {
    plan: PlannedPrograms,
    limit: Option<Bytes>,
    trainer: Trainer,
}

/// Trains 60 steps, adapting as soon as there is a reason to; worker 1 has this speed.
fn adapted_from(begin: Begin, speed: f64, retry: u64) -> Adapted {
    let mut setup = setup("lenet", DType::F32);
    setup.spec.train = vec![12];
    setup.steps = 60;
    let reference = setup.reference();
    let lowered = setup.lower();
    let grain = begin.grain;
    let numerics = Numerics::default_for(&lowered.programs, grain.target);
    let within = |limit| fit(&grain, &lowered.programs, &numerics, limit);
    let limit = begin.limit.map(|part| {
        let plain = within(Bytes(u64::MAX)).unwrap().plain;
        let Err(Error::Memory { least: Some(least), .. }) = within(Bytes(1)) else {
            panic!("a byte is enough");
        };
        Bytes(least.0 + (part * (plain.0 - least.0) as f64) as u64)
    });
    let plan = within(limit.unwrap_or(Bytes(u64::MAX))).unwrap().plan;
    let known = begin.known.unwrap_or_else(|| {
        let plans = [cuts_of_twelve(&lowered.programs, &grain), vec![plan.clone()]].concat();
        made_up(&plans)
    });
    let about = Circumstances { known, platform: machine(), grain, samples: 12, limit };
    let patience = Patience { steps: 4, time: Nanos(0), part: 1e9, retry, ..Patience::default() };
    let engine = Native { record: true, ..engine(Scheduling::Static) };
    let session = Timed::new(engine.prepare_native(&plan).unwrap());
    session.clock().set_speeds([1.0, speed]);
    let mut trainer = setup.trainer(plan.clone(), Box::new(session));
    trainer.adapt(Adapter::new(about, patience));
    let run = setup.run(&mut trainer).unwrap();
    run.assert_same(&reference, "adapted");
    Adapted { plan, limit, trainer }
}

/// A training of two workers that is to adapt as soon as there is a reason to.
fn adapter(retry: u64) -> (Setup, PlannedPrograms, Adapter) {
    let mut setup = setup("lenet", DType::F32);
    setup.spec.train = vec![12];
    let grain = Grain::for_workers(2);
    let plan = grain.plan(&setup.lower().programs).unwrap();
    let programs = setup.lower().programs;
    let known = made_up(&cuts_of_twelve(&programs, &grain));
    let about = Circumstances { known, platform: machine(), grain, samples: 12, limit: None };
    let patience = Patience { steps: 4, time: Nanos(0), part: 1e9, retry, ..Patience::default() };
    (setup, plan, Adapter::new(about, patience))
}

/// Whether a placement gives less to worker 1 than to worker 0.
fn gives_less(grain: &str) -> bool {
    let shares = grain.split_once("shares=").and_then(|(_, shares)| shares.split_once(':'));
    let number = |text: &str| text.parse::<usize>().unwrap();
    shares.is_some_and(|(first, second)| number(first) > number(second))
}

#[test]
fn a_worker_that_becomes_slow_gets_less() {
    let (mut setup, plan, adapter) = adapter(u64::MAX);
    let engine = Native { record: true, ..engine(Scheduling::Static) };
    let session = engine.prepare_native(&plan).unwrap();
    let session = Timed::new(session);
    let clock = session.clock();
    let mut trainer = setup.trainer(plan, Box::new(session));
    trainer.adapt(adapter);
    let mut losses = Vec::new();
    let mut steps = |trainer: &mut Trainer, steps: usize| {
        for _ in 0..steps {
            let step = crate::support::feed(trainer, 12, losses.len() as u64).unwrap();
            losses.push(trainer.loss(step).unwrap().to_bits());
        }
    };
    steps(&mut trainer, 12);
    assert_eq!(trainer.changes(), 0, "both are as fast");
    clock.set_speeds([1.0, 0.2]);
    // Two looks, each after four steps, and the one that was due.
    steps(&mut trainer, 12);
    assert!(trainer.changes() > 0);
    let [first, second] = tasks(trainer.plan());
    assert!(second < first, "{first} tasks on worker 0, {second} on worker 1");
    setup.steps = losses.len();
    let run = Run { losses, state: crate::support::state(&mut trainer).unwrap() };
    run.assert_same(&setup.reference(), "adapted");
    let trace = trainer.session().take_trace();
    let placements = &trace.header.placements;
    assert!(placements.iter().any(|placement| gives_less(&placement.name)), "{placements:?}");
    let stats = Stats::of_trace(&trace);
    let changed = stats.decisions.iter().filter(|row| row.change.is_some());
    assert_eq!(changed.count() as u64, trainer.changes());
}

/// What a run would have counted after a step more of a plan, at speeds of its workers.
fn count(counted: &mut Vec<WorkerCounts>, plan: &PlannedPrograms, speeds: [f64; 2]) {
    let header = plan.trace_header(&[]);
    for (task, work) in plan.graphs()[0].tasks.iter().zip(&header.programs[0].work) {
        for &(cell, _) in &work.calls {
            let cell = &header.cells[cell as usize];
            let (codelet, shape) =
                (header.codelets[cell.codelet as usize].clone(), cell.shape.clone());
            let same = |c: &WorkerCounts| c.codelet == codelet && c.shape == shape;
            let at = counted.iter().position(same).unwrap_or_else(|| {
                counted.push(WorkerCounts { codelet, shape, workers: vec![(0, 0); 2] });
                counted.len() - 1
            });
            let (calls, nanos) = &mut counted[at].workers[task.worker.index()];
            *calls += 1;
            let taken = made_up_nanos(cell.flops) as f64;
            *nanos += (taken / speeds[task.worker.index()]) as u64;
        }
    }
}

#[test]
fn a_worker_that_was_left_out_is_tried_again() {
    let (_, mut plan, mut adapter) = adapter(3);
    let mut counted = Vec::new();
    let mut look = |speeds: [f64; 2]| {
        count(&mut counted, &plan, speeds);
        let verdict = adapter.look(&plan, &counted).unwrap();
        let change = verdict.and_then(|verdict| verdict.change)?;
        plan = change.1;
        Some(change.0.to_string())
    };
    // All is well; then worker 1 is too slow to be of use, twice in a row.
    assert_eq!(look([1.0, 1.0]), None);
    assert_eq!(look([1.0, 0.001]), None);
    assert_eq!(look([1.0, 0.001]).as_deref(), Some("sample=1,shares=1:0"));
    // It has nothing to do, and is tried again.
    assert_eq!([look([1.0, 1.0]), look([1.0, 1.0])], [None, None]);
    let again = look([1.0, 1.0]).expect("a placement with both");
    assert!(!again.contains(":0"), "{again}");
    // It is as fast as ever.
    assert_eq!([look([1.0, 1.0]), look([1.0, 1.0])], [None, None]);
}

#[test]
fn a_run_in_little_memory_adapts_within_it() {
    let begin = Begin { limit: Some(0.5), ..Begin::with(Grain::for_workers(2)) };
    let Adapted { plan, limit, trainer } = adapted_from(begin, 0.02, 1000);
    let limit = limit.expect("one");
    assert!(plan.memory.peak() <= limit, "{} of {limit}", plan.memory.peak());
    let peak = trainer.plan().memory.peak();
    assert!(peak <= limit, "{peak} of {limit}");
}

#[test]
fn workers_that_get_nothing_at_first_are_tried() {
    let begin = Begin::with(Grain::for_workers(1).among(2));
    let Adapted { plan, mut trainer, .. } = adapted_from(begin, 1.0, 2);
    assert_eq!(plan.placement.workers, 2);
    assert_eq!(pieces(&plan)[1], 0);
    let stats = Stats::of_trace(&trainer.session().take_trace());
    assert!(!stats.decisions.is_empty());
}

#[test]
fn a_run_goes_on_where_nobody_knows_what_would_be_better() {
    let nothing = Some(PerfModel::new(About::default()));
    let begin = Begin { known: nothing, ..Begin::with(Grain::for_workers(2)) };
    let Adapted { plan, trainer, .. } = adapted_from(begin, 0.02, 1000);
    assert_eq!(trainer.changes(), 0);
    assert_eq!(**trainer.plan(), *plan);
    // Whoever asked for it can say why.
    assert!(trainer.stopped_adapting().is_some());
}

/// What judging and checkpoints take between steps was taken for a part of them.
#[test]
fn a_decision_is_measured_by_steps_alone() {
    let (mut setup, _, _) = adapter(1);
    setup.steps = 5;
    let grain = Grain::for_workers(1).among(2);
    let lowered = setup.lower();
    let plan = grain.plan(&lowered.programs).unwrap();
    let known = made_up(&cuts_of_twelve(&lowered.programs, &grain));
    let about = Circumstances { known, platform: machine(), grain, samples: 12, limit: None };
    // The first look, after four steps, tries the worker that has nothing.
    let patience =
        Patience { steps: 4, time: Nanos(0), part: 1e9, retry: 1, ..Patience::default() };
    let engine = Native { record: true, ..engine(Scheduling::Static) };
    let session = engine.prepare_native(&plan).unwrap();
    let mut trainer = setup.trainer(plan, Box::new(session));
    trainer.adapt(Adapter::new(about, patience));
    let (mut around, mut before_last) = (Duration::ZERO, Duration::ZERO);
    for seed in 0..setup.steps as u64 {
        let begin = Instant::now();
        let mut slot = trainer.slot(12).unwrap();
        crate::support::fill(&mut slot, seed).unwrap();
        before_last = around + begin.elapsed();
        let step = trainer.step(slot).unwrap();
        trainer.loss(step).unwrap();
        around += begin.elapsed();
        // A pause as long as the steps.
        let pause = Instant::now();
        while pause.elapsed() < around {
            drop(trainer.snapshot().unwrap());
        }
    }
    let events = trainer.session().take_trace().events;
    let replans = events.iter().filter_map(|event| match event {
        Event::Replan { measured, .. } => Some(*measured),
        _ => None,
    });
    let found: Vec<u64> = replans.collect();
    assert_eq!(found.len(), 1);
    assert!(4 * u128::from(found[0]) <= before_last.as_nanos(), "{found:?} in {before_last:?}");
}

#[test]
fn calls_that_nobody_knows_are_measured_for_a_choice() {
    let (setup, other) = (setup("lenet", DType::F32), setup("seed-cnn", DType::F32));
    let base = Grain::for_workers(2);
    let programs = setup.lower().programs;
    let numerics = Numerics::default_for(&programs, base.target);
    let others = other.lower().programs;
    let partial = made_up(&[base.plan(&others).unwrap()]);
    let (samples, limit, steps) = (4, None, 0);
    let request = GrainRequest { programs: &programs, numerics, base, samples, limit, steps };
    // Without a measurer, calls that were not measured are estimated from others.
    let estimated = request.choose(partial.clone(), None).unwrap();
    assert_eq!(estimated.learned, 0, "lenet has another optimizer than seed-cnn");
    let found = request.choose(partial, Some(&mut Briefly)).unwrap();
    let here = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    let all = candidates(2, 4, &request.base);
    let possible = all.iter().filter(|grain| grain.workers <= here).count();
    assert!(found.learned > 0 && found.candidates.len() == possible);
}

/// Measures calls as briefly as can be, and races nothing for long.
struct Briefly;

impl Measurer for Briefly {
    fn learn(
        &mut self,
        plan: &PlannedPrograms,
        kind: &str,
        known: &mut PerfModel,
    ) -> dahl::Result<()> {
        let (step, short) = (ProgramId(0), Duration::ZERO);
        dahl::calibrate::steps(plan, step, short, kind, known).map(drop)
    }

    fn race(
        &mut self,
        racers: &[Racer<'_>],
        _: Duration,
        value: &dyn Fn(usize, &Turn) -> f64,
    ) -> dahl::Result<Vec<Vec<Turn>>> {
        race(racers, Duration::ZERO, value)
    }
}

#[test]
fn a_trial_gives_the_time_of_a_step_of_every_plan() {
    let setup = setup("lenet", DType::F32);
    let programs = setup.lower().programs;
    let plans = [1, 2].map(|workers| Grain::for_workers(workers).plan(&programs).unwrap());
    let (steps, engine) = (&[ProgramId(0)], &Native::default());
    let racer = |plan| Racer { plan, steps, engine };
    for budget in [Duration::ZERO, Duration::from_millis(1)] {
        let turns =
            race(&plans.each_ref().map(racer), budget, &|_, turn| turn.step().0 as f64).unwrap();
        assert_eq!(turns.len(), 2);
        for (workers, turn) in turns.iter().enumerate().flat_map(|(i, all)| {
            assert!(!all.is_empty());
            all.iter().map(move |turn| (i + 1, turn))
        }) {
            assert!(turn.step().0 > 0 && turn.steps > 0);
            assert_eq!(turn.did.workers.len(), workers);
            assert!(turn.did.workers.iter().all(|w| 0 < w.busy && w.busy <= turn.did.elapsed));
        }
    }
}
