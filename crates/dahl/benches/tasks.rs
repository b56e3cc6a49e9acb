//! What a task costs that does nothing: replay and policies of the native
//! engine beside rayon and a queue under a mutex, in the same run.
//!
//! `cargo bench -p dahl --bench tasks`

use dahl::exec::Session;
use dahl::graph::{Builder, Class, Program, Programs, Store};
use dahl::native::{Native, NativeSession, Scheduling};
use dahl::ops::{Access, Call, Cut, Meta, Metas, Mismatch, Op, Piece};
use dahl::plan::{Group, Numerics, Placement, PlannedPrograms, ProgramPlacement};
use dahl::units::{Flops, NodeId, ProgramId, WorkerId};
use dahl::{DType, Region, StepScalars};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TASKS: usize = 1_000;
/// How long one repetition lasts, and how often each case is repeated.
const LONG: Duration = Duration::from_millis(30);
const REPETITIONS: usize = 9;

fn main() {
    let chain = |workers| native(workers, Scheduling::Static, Shape::Chain);
    let wide = |workers| native(workers, Scheduling::Static, Shape::Wide);
    let dynamic = |shape, scheduling| native(2, scheduling, shape);
    let mut groups: Vec<(&str, Vec<(&str, Case)>)> = vec![
        (
            "one worker, a chain: ns a task (at most 40)",
            vec![
                ("dahl, static", chain(1)),
                ("dahl, first come", native(1, Scheduling::FirstCome, Shape::Chain)),
                ("dahl, stealing", native(1, Scheduling::WorkStealing, Shape::Chain)),
                ("rayon, spawn", rayon_chain(1)),
                ("mutex and condvar", queue_chain(1)),
            ],
        ),
        (
            "one worker, independent tasks: ns a task (at most 40)",
            vec![
                ("dahl, static", wide(1)),
                ("dahl, first come", native(1, Scheduling::FirstCome, Shape::Wide)),
                ("dahl, stealing", native(1, Scheduling::WorkStealing, Shape::Wide)),
                ("rayon, spawn", rayon_wide(1)),
                ("mutex and condvar", queue_wide(1)),
            ],
        ),
        (
            "two workers in turn, a chain: ns a hop (at most 300)",
            vec![
                ("dahl, static", chain(2)),
                ("dahl, static, not pinned", unpinned_hops()),
                ("rayon, two pools", rayon_hops()),
                ("mutex and condvar, two pools", queue_hops()),
            ],
        ),
        (
            "two workers, independent tasks: ns a task",
            vec![
                ("dahl, static", wide(2)),
                ("dahl, first come", dynamic(Shape::Wide, Scheduling::FirstCome)),
                ("dahl, stealing", dynamic(Shape::Wide, Scheduling::WorkStealing)),
                ("rayon, spawn", rayon_wide(2)),
                ("mutex and condvar", queue_wide(2)),
            ],
        ),
        (
            "two workers, a chain that any may continue: ns a task",
            vec![
                ("dahl, first come", dynamic(Shape::Chain, Scheduling::FirstCome)),
                ("dahl, stealing", dynamic(Shape::Chain, Scheduling::WorkStealing)),
                ("rayon, spawn", rayon_chain(2)),
                ("mutex and condvar", queue_chain(2)),
            ],
        ),
    ];
    println!("{TASKS} empty tasks a round; {REPETITIONS} interleaved repetitions of {LONG:?}");
    for (title, cases) in &mut groups {
        println!("\n{title}\n{:30} {:>9} {:>9} {:>9}", "", "best", "median", "worst");
        let mut times = vec![Vec::new(); cases.len()];
        for _ in 0..=REPETITIONS {
            for (times, (_, case)) in times.iter_mut().zip(cases.iter_mut()) {
                times.push(measure(case));
            }
        }
        for (mut times, (name, _)) in times.into_iter().zip(cases.iter()) {
            // The first one warmed up.
            times.remove(0);
            times.sort_by(f64::total_cmp);
            let (best, median) = (times[0], times[times.len() / 2]);
            println!("{name:30} {best:9.1} {median:9.1} {:9.1}", times[times.len() - 1]);
        }
    }
}

/// Runs so many rounds of all tasks.
type Case = Box<dyn FnMut(usize)>;

/// Nanoseconds a task.
fn measure(case: &mut Case) -> f64 {
    let (mut rounds, mut batch) = (0, 1);
    let start = Instant::now();
    while start.elapsed() < LONG {
        case(batch);
        rounds += batch;
        batch = (batch * 2).min(32);
    }
    start.elapsed().as_nanos() as f64 / (rounds * TASKS) as f64
}

/// An op that does nothing to the value that it claims to update.
#[derive(Debug)]
struct Nothing(Meta);

impl Op for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn infer(&self, _: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![self.0])
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        Cut::everywhere(metas)
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out]
    }

    fn flops(&self, _: Metas<'_>, _: &Piece) -> Flops {
        Flops(0)
    }

    fn run(&self, _: usize, _: &mut Call<'_>) {}
}

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// Each task after the one before, on the workers in turn.
    Chain,
    /// Every task on its own, on the workers in equal parts.
    Wide,
}

fn native(workers: usize, scheduling: Scheduling, shape: Shape) -> Case {
    let engine = Native { scheduling, ..Native::default() };
    case(prepare(&engine, workers, shape).expect("a session"))
}

/// As the system places the threads, which other programs may disturb less or more.
fn unpinned_hops() -> Case {
    let engine = Native { pin: false, ..Native::default() };
    case(prepare(&engine, 2, Shape::Chain).expect("a session"))
}

fn case(mut session: NativeSession) -> Case {
    let program = ProgramId(0);
    Box::new(move |rounds| {
        let mut last = None;
        for _ in 0..rounds {
            let slot = session.slot(program).expect("a slot");
            last = Some(session.step(program, slot, StepScalars::default()).expect("a step"));
        }
        session.wait(last.expect("a round")).expect("no failure");
    })
}

fn prepare(engine: &Native, workers: usize, shape: Shape) -> dahl::Result<NativeSession> {
    let mut store = Store::default();
    let mut builder = Builder::new(&mut store);
    let (nodes, meta) = match shape {
        Shape::Chain => (TASKS, Meta::new([], DType::F32)),
        Shape::Wide => (1, Meta::new([TASKS], DType::F32)),
    };
    let value = builder.persistent("x", meta, Class::Buffer);
    for _ in 0..nodes {
        builder.ops().update(Arc::new(Nothing(meta)), &[], &[value]);
    }
    let graph = builder.finish()?;
    let group = |n: usize| match shape {
        Shape::Chain => {
            Group::new(vec![NodeId::new(n)], vec![Vec::new()], vec![WorkerId::new(n % workers)])
        }
        Shape::Wide => Group::new(
            vec![NodeId::new(n)],
            vec![vec![(0, TASKS).into()]],
            (0..TASKS).map(|t| WorkerId::new(t * workers / TASKS)).collect(),
        ),
    };
    let placed = ProgramPlacement::new((0..nodes).map(group).collect());
    let program = Program { name: "empty".to_owned(), graph, output_slots: 2, turn: 0 };
    let programs = Programs { store, programs: vec![program], ..Programs::default() };
    let placement = Placement::new(workers, vec![placed]);
    let plan = PlannedPrograms::placed(
        &programs,
        Numerics::default_for(&programs, dahl::Isa::detect()),
        placement,
    )?;
    engine.prepare_native(&plan)
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool")
}

fn rayon_chain(threads: usize) -> Case {
    fn link<'s>(scope: &rayon::Scope<'s>, left: usize) {
        if left > 0 {
            scope.spawn(move |scope| link(scope, left - 1));
        }
    }
    let pool = pool(threads);
    Box::new(move |rounds| (0..rounds).for_each(|_| pool.scope(|scope| link(scope, TASKS))))
}

fn rayon_wide(threads: usize) -> Case {
    let pool = pool(threads);
    Box::new(move |rounds| {
        for _ in 0..rounds {
            pool.scope(|scope| (0..TASKS).for_each(|_| scope.spawn(|_| ())));
        }
    })
}

/// A pool of one thread for each place, since rayon has no way to say where.
fn rayon_hops() -> Case {
    fn hop(pools: Arc<[rayon::ThreadPool; 2]>, left: usize, done: mpsc::Sender<()>) {
        if left == 0 {
            return done.send(()).expect("somebody waits");
        }
        let to = pools.clone();
        to[left % 2].spawn(move || hop(pools, left - 1, done));
    }
    let pools = Arc::new([pool(1), pool(1)]);
    Box::new(move |rounds| {
        for _ in 0..rounds {
            let (done, wait) = mpsc::channel();
            hop(pools.clone(), TASKS, done);
            wait.recv().expect("the end");
        }
    })
}

type Job = Box<dyn FnOnce(&Arc<Queue>) + Send>;

/// The pool that one writes first: a queue, a mutex, a condition variable.
#[derive(Default)]
struct Queue {
    jobs: Mutex<(VecDeque<Job>, bool)>,
    wake: Condvar,
}

impl Queue {
    fn push(&self, job: impl FnOnce(&Arc<Queue>) + Send + 'static) {
        self.jobs.lock().expect("no panic").0.push_back(Box::new(job));
        self.wake.notify_one();
    }

    fn work(self: Arc<Self>) {
        let mut jobs = self.jobs.lock().expect("no panic");
        loop {
            match jobs.0.pop_front() {
                Some(job) => {
                    drop(jobs);
                    job(&self);
                    jobs = self.jobs.lock().expect("no panic");
                }
                None if jobs.1 => return,
                None => jobs = self.wake.wait(jobs).expect("no panic"),
            }
        }
    }
}

struct QueuePool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl QueuePool {
    fn new(threads: usize) -> Self {
        let queue = Arc::new(Queue::default());
        let start = |_| {
            let queue = queue.clone();
            std::thread::spawn(move || queue.work())
        };
        Self { threads: (0..threads).map(start).collect(), queue }
    }
}

impl Drop for QueuePool {
    fn drop(&mut self) {
        self.queue.jobs.lock().expect("no panic").1 = true;
        self.queue.wake.notify_all();
        self.threads.drain(..).for_each(|thread| thread.join().expect("no panic"));
    }
}

fn queue_chain(threads: usize) -> Case {
    fn link(queue: &Arc<Queue>, left: usize, done: mpsc::Sender<()>) {
        match left {
            0 => done.send(()).expect("somebody waits"),
            _ => queue.push(move |queue| link(queue, left - 1, done)),
        }
    }
    let pool = QueuePool::new(threads);
    Box::new(move |rounds| {
        for _ in 0..rounds {
            let (done, wait) = mpsc::channel();
            link(&pool.queue, TASKS, done);
            wait.recv().expect("the end");
        }
    })
}

fn queue_wide(threads: usize) -> Case {
    let pool = QueuePool::new(threads);
    Box::new(move |rounds| {
        for _ in 0..rounds {
            let left = Arc::new(AtomicUsize::new(TASKS));
            let (done, wait) = mpsc::channel();
            for _ in 0..TASKS {
                let (left, done) = (left.clone(), done.clone());
                pool.queue.push(move |_| {
                    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        done.send(()).expect("somebody waits");
                    }
                });
            }
            wait.recv().expect("the end");
        }
    })
}

fn queue_hops() -> Case {
    fn hop(queues: [Arc<Queue>; 2], left: usize, done: mpsc::Sender<()>) {
        if left == 0 {
            return done.send(()).expect("somebody waits");
        }
        let to = queues[left % 2].clone();
        to.push(move |_| hop(queues, left - 1, done));
    }
    let pools = [QueuePool::new(1), QueuePool::new(1)];
    Box::new(move |rounds| {
        for _ in 0..rounds {
            let (done, wait) = mpsc::channel();
            hop([pools[0].queue.clone(), pools[1].queue.clone()], TASKS, done);
            wait.recv().expect("the end");
        }
    })
}
