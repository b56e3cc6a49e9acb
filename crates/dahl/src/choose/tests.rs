use super::*;
use crate::DType;
use crate::error::Error;
use crate::model::{Model, Optimizer, TrainSpec};
use crate::native::Native;
use crate::planner::Grain;
use crate::units::{Joules, Nanos};

/// Plans of so many workers with made-up predictions.
struct Made {
    plans: Vec<PlannedPrograms>,
    engine: Native,
}

struct Entry {
    workers: usize,
    step: StepPrediction,
    ran: Option<Ran>,
}

fn entry(workers: usize, nanos: u64, low: u64, measured: f64) -> Entry {
    let sources = vec![(Source::Measured, measured), (Source::Regression, 1.0 - measured)];
    let interval = [Nanos(low), Nanos(2 * nanos)];
    let step = StepPrediction { step: Nanos(nanos), interval, joules: Joules(0.0), sources };
    Entry { workers, step, ran: None }
}

fn made() -> Made {
    let model = Model::sequential("m", &[4], |s| s.linear(2));
    let spec = TrainSpec::new(4, DType::F32, Optimizer::sgd(0.1));
    let lowered = model.lower(&spec).unwrap();
    let plan = |workers| Grain::for_workers(workers).plan(&lowered.programs).unwrap();
    let plans = (0..5).map(|workers| plan(workers.max(1))).collect();
    Made { plans, engine: Native::default() }
}

impl Contest for Made {
    type Candidate = Entry;

    fn predict(&self, candidate: &mut Entry, _: &PerfModel) -> Result<()> {
        match candidate.workers {
            0 => Err(Error::config("calls", "known times", "none")),
            _ => Ok(()),
        }
    }

    fn step<'a>(&self, of: &'a Entry) -> Option<&'a StepPrediction> {
        Some(&of.step)
    }

    fn racer<'a>(&'a self, of: &'a Entry) -> Racer<'a> {
        let steps = &[ProgramId(0)];
        Racer { plan: &self.plans[of.workers], steps, engine: &self.engine }
    }

    fn ran(&self, of: &Entry) -> Option<Ran> {
        of.ran
    }

    fn set_ran(&self, of: &mut Entry, ran: Ran) {
        of.ran = Some(ran);
    }

    fn worth(&self, seconds: f64, _: f64) -> f64 {
        seconds
    }

    fn expected(&self, of: &Entry) -> [f64; 2] {
        of.ran.map_or([of.step.step.0 as f64 / 1e9, 0.0], |ran| [ran.seconds, ran.joules])
    }

    fn joules(&self, _: &Entry, _: &Turn) -> f64 {
        1.0
    }

    fn used(&self, of: &Entry) -> Vec<bool> {
        vec![true; of.workers]
    }
}

#[test]
fn the_close_ones_and_the_best_of_each_number_of_workers_race() {
    let all = [(2, 100), (2, 110), (2, 120), (4, 125), (2, 126), (2, 127), (4, 150), (1, 190)];
    let all = all.map(|(workers, nanos)| entry(workers, nanos, nanos, 1.0));
    assert_eq!(worth_a_race(&made(), &all, 1.0, None), [0, 1, 2, 3, 4, 7]);
    // One that is more than twice as slow is not the best on its workers.
    let far = [(2, 100), (1, 201)].map(|(workers, nanos)| entry(workers, nanos, nanos, 1.0));
    assert_eq!(worth_a_race(&made(), &far, 1.0, None), [0]);
    // Nor has one a turn whose step takes longer than all of the race.
    assert_eq!(worth_a_race(&made(), &all, 230e-9, None), [0, 1]);
}

#[test]
fn those_that_ran_come_first() {
    let all = [(2, 100), (4, 150), (1, 190)];
    let mut all = all.map(|(workers, nanos)| entry(workers, nanos, nanos, 1.0));
    let ran = |seconds, to_the_end| Some(Ran { seconds, joules: 1.0, to_the_end });
    (all[0].ran, all[2].ran) = (ran(90e-9, false), ran(130e-9, true));
    rank(&made(), &mut all);
    assert_eq!(all.map(|entry| entry.workers), [1, 2, 4]);
}

#[test]
fn a_candidate_that_could_be_the_best_is_measured() {
    let check = |all: &[Entry], expected: Option<usize>| {
        let predicted: Vec<Result<()>> = all.iter().map(|_| Ok(())).collect();
        assert_eq!(next_to_measure(&made(), all, &predicted), expected);
    };
    // A guess that looks best, and one that looks worse and may be better still.
    check(&[entry(1, 10, 9, 1.0), entry(1, 8, 7, 0.5), entry(1, 12, 5, 0.0)], Some(2));
    // Guesses that cannot be better.
    check(&[entry(1, 10, 9, 1.0), entry(1, 20, 11, 0.0)], None);
    check(&[entry(1, 10, 9, 0.95)], None);
    check(&[entry(1, 10, 9, 0.5)], Some(0));
}

/// Without a measurer nothing runs; what nobody can predict is left out.
#[test]
fn without_a_measurer_candidates_are_only_predicted() {
    let of = || For { kind: "cpu", steps: 0, limit: None };
    let all = vec![entry(2, 110, 1, 0.0), entry(0, 1, 1, 0.0), entry(1, 100, 1, 0.0)];
    let (left, learned) = choose(&made(), all, &mut PerfModel::default(), None, of()).unwrap();
    let workers: Vec<usize> = left.iter().map(|entry| entry.workers).collect();
    assert_eq!((workers, learned), (vec![1, 2], 0));
    let none = choose(&made(), vec![entry(0, 1, 1, 0.0)], &mut PerfModel::default(), None, of());
    assert!(none.is_err());
}
