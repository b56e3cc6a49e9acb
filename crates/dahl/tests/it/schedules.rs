//! Random legal schedules, with freed bytes poisoned and every access checked.

use crate::support::{MODELS, Rng, engine, feed, grain, random_plan, setup, state};
use dahl::DType;
use dahl::native::Scheduling;
use dahl::plan::PlannedPrograms;
use dahl::planner::Gather;
use dahl::sched::{Policy, Ready};
use dahl::units::{Nanos, WorkerId};

/// Any ready task for any worker, as a seed says.
#[derive(Debug)]
struct AnyTask {
    rng: Rng,
    ready: Vec<Ready>,
}

impl AnyTask {
    fn boxed(seed: u64) -> Box<dyn Policy> {
        Box::new(Self { rng: Rng(seed), ready: Vec::new() })
    }
}

impl Policy for AnyTask {
    fn name(&self) -> &'static str {
        "any"
    }

    fn ready(&mut self, task: Ready, _: Nanos) {
        self.ready.push(task);
    }

    fn next(&mut self, _: WorkerId, _: Nanos) -> Option<Ready> {
        let count = self.ready.len();
        (count > 0).then(|| self.ready.swap_remove(self.rng.below(count)))
    }
}

/// The newest task first: what nobody waits for is left until the next step is
/// well under way.
#[derive(Debug, Default)]
struct NewestFirst {
    ready: Vec<Ready>,
}

impl Policy for NewestFirst {
    fn name(&self) -> &'static str {
        "newest-first"
    }

    fn ready(&mut self, task: Ready, _: Nanos) {
        self.ready.push(task);
    }

    fn next(&mut self, _: WorkerId, _: Nanos) -> Option<Ready> {
        self.ready.pop()
    }
}

/// Plans of all models: gathered, cut small, and random.
fn check(plans: usize, policy: impl Fn(u64) -> Box<dyn Policy>) {
    for name in MODELS {
        let mut setup = setup(name, DType::F32);
        setup.steps = 6;
        let reference = setup.reference();
        let programs = setup.lower().programs;
        for seed in 0..plans as u64 {
            let mut rng = Rng(1000 + seed);
            let workers = 1 + rng.below(4);
            let plan: PlannedPrograms = match seed % 3 {
                0 => grain(workers, 3, 1, Gather::On).plan(&programs).unwrap(),
                1 => grain(workers, 2, 2, Gather::Off).plan(&programs).unwrap(),
                _ => random_plan(&programs, workers, &mut rng).unwrap(),
            };
            let engine = engine(Scheduling::Static);
            let run = setup.train_with(&plan, &engine, policy(seed)).unwrap();
            run.assert_same(&reference, &format!("{name} seed {seed}, {workers} workers"));
        }
    }
}

#[test]
fn any_legal_schedule_gives_the_sequential_result() {
    check(12, AnyTask::boxed);
}

#[test]
fn leaving_the_old_for_last_gives_the_sequential_result() {
    check(6, |_| Box::new(NewestFirst::default()));
}

#[test]
fn programs_that_alternate_give_the_sequential_result() {
    // Programs share the work memory: the edges between them are other ones
    // than those between steps of one program.
    let mut setup = setup("projected", DType::F64);
    setup.spec.train.push(3);
    setup.spec.eval = vec![4];
    let programs = setup.lower().programs;
    let sizes = [6, 3, 3, 6, 6, 3];
    let mut reference = None;
    for seed in 0..8 {
        let mut rng = Rng(seed);
        let plan = random_plan(&programs, 1 + rng.below(3), &mut rng).unwrap();
        let engine = engine(Scheduling::Static);
        let session = engine.prepare_with(&plan, AnyTask::boxed(seed)).unwrap();
        let mut trainer = setup.trainer(plan, Box::new(session));
        for (step, size) in sizes.into_iter().enumerate() {
            feed(&mut trainer, size, step as u64).unwrap();
            if step % 2 == 0 {
                let mut slot = trainer.eval_slot(4).unwrap();
                crate::support::fill(&mut slot, 7).unwrap();
                trainer.eval(slot).unwrap();
            }
        }
        let found = state(&mut trainer).unwrap();
        let expected = reference.get_or_insert_with(|| found.clone());
        assert!(found == *expected, "seed {seed} has other bits");
    }
}
