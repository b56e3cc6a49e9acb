//! The engine's checks see what they are there for: plans broken on purpose.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::*;
use crate::exec::StepId;
use crate::graph::{Builder, Class, Graph, Program, Programs, Store};
use crate::ops::Meta;
use crate::ops::elementwise::Unary;
use crate::plan::{
    Group, Memory, Numerics, Placement, ProgramMemory, ProgramPlacement, Space, SpaceMemory,
};
use crate::sched::Ready;
use crate::trace::Event;
use crate::units::{MemoryBound, Nanos, ProgramId, SpaceId, TaskId, WorkerId};
use dahl_kernels::{DType, StepScalars};

/// Which of the ready tasks is next, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// The lowest: the reference order.
    Forward,
    /// The highest.
    Backward,
    /// The lowest and the highest in turn.
    Alternating,
}

struct ByNumber {
    ready: Vec<Ready>,
    order: Order,
    given: usize,
}

impl Policy for ByNumber {
    fn name(&self) -> &'static str {
        "by-number"
    }

    fn ready(&mut self, task: Ready, _: Nanos) {
        self.ready.push(task);
        self.ready.sort_by_key(|r| (r.step, r.task));
    }

    fn next(&mut self, _: WorkerId, _: Nanos) -> Option<Ready> {
        self.given += 1;
        let last = match self.order {
            Order::Forward => false,
            Order::Backward => true,
            Order::Alternating => self.given.is_multiple_of(2),
        };
        if last || self.ready.is_empty() { self.ready.pop() } else { Some(self.ready.remove(0)) }
    }
}

/// Two chains of three ops side by side: the second chain's values get the
/// bytes of the first's, which nothing but the reuse of bytes orders.
fn chains() -> PlannedPrograms {
    let mut store = Store::default();
    let mut b = Builder::new(&mut store);
    let x = b.input("x", Meta::new([1024], DType::F64));
    for (name, f) in [("a", Unary::Tanh), ("b", Unary::Sigmoid)] {
        let mut y = x;
        for _ in 0..3 {
            y = b.ops().unary(f, y);
        }
        let sum = b.ops().sum_all(y);
        b.fetch(name, sum);
    }
    programs_of(b.finish().unwrap(), store)
}

/// One program, each of its nodes a task on worker 0.
fn programs_of(graph: Graph, store: Store) -> PlannedPrograms {
    let program = Program { name: "chains".into(), graph, output_slots: 2, turn: 0 };
    let programs = Programs { store, programs: vec![program], ..Programs::default() };
    let numerics = Numerics::default_for(&programs, crate::Isa::detect());
    let expanded = numerics.expand(&programs).unwrap();
    let group = |id| Group::new(vec![id], vec![Vec::new()], vec![WorkerId(0)]);
    let groups = expanded.programs[0].graph.node_ids().map(group).collect();
    let placement = Placement::new(1, vec![ProgramPlacement::new(groups)]);
    PlannedPrograms::placed(&programs, numerics, placement).unwrap()
}

/// Whether the edges of reuse are there.
#[derive(Clone, Copy, PartialEq)]
enum Reuse {
    Kept,
    Dropped,
}

/// The two sums under a schedule, on one worker: the same on every run.
fn run(reuse: Reuse, checks: Checks, order: Order) -> [u64; 2] {
    let planned = match reuse {
        Reuse::Kept => chains(),
        Reuse::Dropped => chains().without_reuse(),
    };
    let engine = Native { checks, pin: false, ..Native::default() };
    let policy = Box::new(ByNumber { ready: Vec::new(), order, given: 0 });
    let mut session = engine.session(&planned, Some(policy)).unwrap();
    let mut slot = session.slot(ProgramId(0)).unwrap();
    slot.input("x").unwrap().write_f64((0..1024).map(|i| f64::from(i) / 1024.0)).unwrap();
    let step = session.step(ProgramId(0), slot, StepScalars::default()).unwrap();
    ["a", "b"].map(|name| output(&mut session, step, name).to_bits())
}

fn output(session: &mut NativeSession, step: StepId, name: &str) -> f64 {
    let mut value = 0.0;
    session.output(step, name, &mut |t| value = t.to_f64()[0]).unwrap();
    value
}

#[test]
fn any_order_is_right_with_the_edges_of_reuse() {
    let right = run(Reuse::Kept, Checks::On, Order::Forward);
    for order in [Order::Forward, Order::Backward, Order::Alternating] {
        for checks in [Checks::On, Checks::Off] {
            assert_eq!(run(Reuse::Kept, checks, order), right, "{order:?} {checks:?}");
        }
    }
}

#[test]
fn a_dropped_edge_of_reuse_is_seen_by_poison() {
    let right = run(Reuse::Kept, Checks::On, Order::Forward);
    // In the reference order nothing is wrong, so nothing is seen.
    assert_eq!(run(Reuse::Dropped, Checks::On, Order::Forward), right);
    let wrong = run(Reuse::Dropped, Checks::On, Order::Alternating);
    let nan = |bits: &u64| f64::from_bits(*bits).is_nan();
    assert!(wrong.iter().any(nan), "reads bytes that were given away: {wrong:x?}, not {right:x?}");
}

/// The chains with their nodes in two memories by turns.
fn chains_over_spaces() -> PlannedPrograms {
    let one = chains();
    let mut placement = Placement::new(2, one.placement.programs.clone());
    placement.spaces.push(Space::host(0, 1));
    placement.space_of[1] = SpaceId(1);
    for (i, group) in placement.programs[0].groups.iter_mut().enumerate() {
        group.workers = vec![WorkerId::new(i % 2)];
    }
    PlannedPrograms::placed(one.programs(), one.numerics.clone(), placement).unwrap()
}

#[test]
fn a_dropped_move_is_seen() {
    let sums = |planned: &PlannedPrograms| {
        let engine = Native { checks: Checks::On, pin: false, ..Native::default() };
        let mut session = engine.session(planned, None).unwrap();
        let mut slot = session.slot(ProgramId(0)).unwrap();
        slot.input("x").unwrap().write_f64((0..1024).map(|i| f64::from(i) / 1024.0)).unwrap();
        let step = session.step(ProgramId(0), slot, StepScalars::default()).unwrap();
        ["a", "b"].map(|name| output(&mut session, step, name).to_bits())
    };
    let right = run(Reuse::Kept, Checks::On, Order::Forward);
    assert_eq!(sums(&chains_over_spaces()), right);
    let broken = (0..).map_while(|index| chains_over_spaces().without_move(index));
    let broken: Vec<_> = broken.map(|planned| sums(&planned)).collect();
    assert!(broken.len() > 4 && broken.iter().all(|wrong| *wrong != right), "{broken:x?}");
}

/// The checker of the chains, with one of their tasks begun on worker 0.
fn checker() -> (Checker, usize) {
    let planned = chains();
    let arenas = Arenas::new(&planned).unwrap();
    (Checker::new(&planned, &arenas), planned.graphs()[0].tasks.len() - 1)
}

#[test]
#[should_panic(expected = "touch the same elements")]
fn two_tasks_at_the_same_bytes_at_the_same_time_are_seen() {
    let (checker, _) = checker();
    // The first task of a chain writes what the second one reads.
    checker.begin(0, (0, 0), TaskId(0));
    checker.begin(1, (0, 0), TaskId(1));
}

#[test]
#[should_panic(expected = "touch the same elements")]
fn two_writers_of_one_output_are_seen() {
    let (checker, last) = checker();
    checker.begin(0, (0, 0), TaskId::new(last));
    checker.begin(1, (0, 0), TaskId::new(last));
}

#[test]
fn outputs_of_two_steps_have_slots_of_their_own() {
    let mut store = Store::default();
    let mut b = Builder::new(&mut store);
    let weight = b.persistent("w", Meta::new([8], DType::F64), Class::Parameter);
    let sum = b.ops().sum_all(weight);
    b.fetch("sum", sum);
    let planned = programs_of(b.finish().unwrap(), store);
    let checker = Checker::new(&planned, &Arenas::new(&planned).unwrap());
    let writer = TaskId::new(planned.graphs()[0].tasks.len() - 1);
    checker.begin(0, (0, 0), writer);
    checker.begin(1, (0, 1), writer);
    checker.end(1, 0, writer);
    checker.end(0, 0, writer);
}

/// A worker that found its task while it spun was nowhere seen to have waited.
#[test]
fn waits_under_a_policy_are_recorded_and_counted() {
    let mut store = Store::default();
    let mut b = Builder::new(&mut store);
    let mut y = b.input("x", Meta::new([64], DType::F64));
    for _ in 0..5 {
        y = b.ops().unary(Unary::Tanh, y);
    }
    b.fetch("y", y);
    let planned = programs_of(b.finish().unwrap(), store);
    let mut placement = Placement::new(2, planned.placement.programs.clone());
    // A chain of tasks, in turn on either worker.
    for (i, group) in placement.programs[0].groups.iter_mut().enumerate() {
        group.workers = vec![WorkerId::new(i % 2)];
    }
    let numerics = planned.numerics.clone();
    let planned = PlannedPrograms::placed(planned.programs(), numerics, placement).unwrap();
    let scheduling = Scheduling::Staged;
    // Where there are two processors nobody is so slow that the other one sleeps.
    let engine = Native { scheduling, record: true, spins: u32::MAX, ..Native::default() };
    let mut session = engine.prepare_native(&planned).unwrap();
    for _ in 0..3 {
        let slot = session.slot(ProgramId(0)).unwrap();
        let step = session.step(ProgramId(0), slot, StepScalars::default()).unwrap();
        session.wait(step).unwrap();
    }
    let counted = session.counters().activity().workers;
    let events = session.take_trace().events;
    // Worker 0 waits for the second and the fourth task of each step; worker 1 for the third
    // one, and for the next step.
    for (worker, expected) in [(0, 3 * 2), (1, 3 + 2)] {
        let is_own =
            |event: &&Event| matches!(event, Event::Wait { worker: w, .. } if *w == worker);
        assert_eq!(events.iter().filter(is_own).count(), expected, "worker {worker}: {events:?}");
        let time = counted[worker as usize];
        assert!(time.spinning + time.parked > 0, "worker {worker}: {time:?}");
    }
}

#[test]
fn a_call_of_a_throttled_worker_takes_as_long_as_on_a_slower_one() {
    let end = |speed, times| Throttle { worker: 0, speed, from_step: 0 }.end(times);
    assert_eq!(end(0.5, [100, 130]), 160);
    assert_eq!(end(0.2, [100, 130]), 250);
    assert_eq!(end(1.0, [100, 130]), 130);
}

/// What the process may have is compared with what is allocated and one copy of the values
/// that outlive a step; what an earlier plan left counts as in use.
#[test]
fn a_plan_needs_room_for_itself_and_a_copy_of_its_values() {
    let programs = ProgramMemory {
        offsets: Vec::new(),
        output_slots: 1,
        spaces: vec![SpaceMemory { inputs: 0, outputs: 0, work: 300, scratch: 50 }],
    };
    let memory = Memory {
        input_slots: 2,
        persistent: vec![0],
        persistent_bytes: vec![100],
        replicas: Vec::new(),
        programs: vec![programs],
        workers: vec![2],
    };
    assert_eq!(memory.peak(), Bytes(500));
    let needs = (memory.peak(), Bytes(100));
    let room = |left: u64| {
        let (limit, used) = (Bytes(900 + left), Bytes(900));
        Headroom { bound: MemoryBound::ControlGroup, limit, used }
    };
    assert_eq!(check_room(needs, 0, None), Ok(()));
    assert_eq!(check_room(needs, 0, Some(room(600))), Ok(()));
    let limit = MemoryLimit::Available { room: room(599), besides: Bytes(100) };
    assert_eq!(check_room(needs, 0, Some(room(599))), Err(limit));
    assert_eq!(check_room(needs, 100, Some(room(500))), Ok(()));
    assert!(check_room(needs, 100, Some(room(499))).is_err());
    let largest = vec![("weight".to_owned(), Bytes(100))];
    let error = Error::Memory { space: None, needed: memory.peak(), limit, least: None, largest };
    assert_eq!(
        error.to_string(),
        "the plan needs 500 B of memory and 100 B for a copy of its persistent values, 599 B are \
         available: the control group of this process allows 1.5 KiB, 900 B are in use; the \
         largest tensors are weight (100 B); try another grain, fewer workers, micro-batches or a \
         smaller batch"
    );
}
