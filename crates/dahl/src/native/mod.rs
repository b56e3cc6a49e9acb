//! The native engine: plans run by worker threads of this process.
//!
//! README.md beside this file has the protocols.

mod check;
mod counters;
mod dynamic;
mod gate;
#[cfg(all(test, loom))]
mod loom;
mod memory;
mod recording;
mod replan;
mod replay;
mod runner;
mod session;
mod sync;
mod sys;
#[cfg(all(test, not(loom)))]
mod tests;
mod worker;

pub use recording::TraceLimit;
pub use session::NativeSession;
pub use sys::{available_bytes, headroom, peak_bytes, resident_bytes};
pub(crate) use sys::{pin, processors};

use crate::error::{Error, MemoryLimit, Result};
use crate::exec::{Arenas, Buffer, Engine, Idle, Session, check_machine};
use crate::plan::{Memory, PlannedPrograms};
use crate::sched::{Confined, FirstCome, Policy, Staged, WorkStealing};
use crate::trace::Header;
use crate::units::{Bytes, Headroom, ProgramId};
use check::Checker;
use counters::{SessionCounters, WorkerCounters};
use memory::Lease;
use recording::Recorder;
use replan::{Before, Placed};
use runner::{Runner, WorkerState, counted};
use session::ProgramInfo;
use std::collections::VecDeque;
use std::sync::Arc;
use worker::{Mode, Shared, Threads};

/// How tasks find their workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// As the plan says: lists that are replayed.
    #[default]
    Static,
    /// The first ready task for the first free worker.
    FirstCome,
    /// A queue per worker, with stealing.
    WorkStealing,
    /// The plan's workers, each with whatever is ready of the earliest step: for pipelines
    /// in which several steps are under way.
    Staged,
}

/// What is checked while a plan runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// Nothing: the plan was checked before.
    #[default]
    Off,
    /// Overlapping access ends the run; freed bytes are overwritten.
    On,
}

/// A worker that is slowed down, for experiments: after each call it waits until a
/// slower one would have ended it. What it waits for counts as a part of the call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// The worker.
    pub worker: usize,
    /// Its speed, from [`Throttle::SLOWEST`] to 1.
    pub speed: f64,
    /// The first step of the session that it is slow in.
    pub from_step: u64,
}

impl Throttle {
    /// The lowest speed: below it, one step of a real model takes hours.
    pub const SLOWEST: f64 = 1e-3;

    /// When a call that began and ended at these ticks would have ended on the slower worker.
    fn end(&self, [from, to]: [u64; 2]) -> u64 {
        from + (to.wrapping_sub(from) as f64 / self.speed) as u64
    }
}

/// Looks of about 20 µs. A look of code that is not optimised takes several times as long.
const SPINS: u32 = if cfg!(debug_assertions) { 200 } else { 2_000 };

/// The engine of this machine's processors.
#[derive(Clone, Debug)]
pub struct Native {
    /// How tasks find their workers.
    pub scheduling: Scheduling,
    /// What is checked while a plan runs.
    pub checks: Checks,
    /// Whether events are recorded.
    pub record: bool,
    /// Which steps are, where they are.
    pub limit: TraceLimit,
    /// Whether workers are bound to processors, where there is one for each.
    pub pin: bool,
    /// How often a worker looks for work before it sleeps: about 20 µs.
    pub spins: u32,
    /// Who is slowed down; of several for one worker the last that has begun counts.
    pub throttles: Vec<Throttle>,
}

impl Default for Native {
    fn default() -> Self {
        Self {
            scheduling: Scheduling::Static,
            checks: if cfg!(feature = "checked") { Checks::On } else { Checks::Off },
            record: false,
            limit: TraceLimit::default(),
            pin: true,
            spins: SPINS,
            throttles: Vec::new(),
        }
    }
}

impl Native {
    /// Prepares a session with a policy of one's own instead of
    /// [`scheduling`](Self::scheduling); over several spaces it is to be [`Confined`].
    pub fn prepare_with(
        &self,
        planned: &PlannedPrograms,
        policy: Box<dyn Policy>,
    ) -> Result<NativeSession> {
        self.session(planned, Some(policy))
    }

    /// Prepares a session.
    pub fn prepare_native(&self, planned: &PlannedPrograms) -> Result<NativeSession> {
        let placement = &planned.placement;
        let workers = placement.workers;
        let policy = || -> Option<Box<dyn Policy>> {
            Some(match self.scheduling {
                Scheduling::Static => return None,
                Scheduling::FirstCome => Box::new(FirstCome::default()),
                Scheduling::WorkStealing => Box::new(WorkStealing::new(workers)),
                Scheduling::Staged => Box::new(Staged::new(workers)),
            })
        };
        let policy = policy().map(|one| match placement.spaces.len() {
            1 => one,
            spaces => Box::new(Confined::new(&placement.space_of, spaces, &|_| {
                policy().expect("a policy, as before")
            })),
        });
        self.session(planned, policy)
    }

    fn session(
        &self,
        planned: &PlannedPrograms,
        policy: Option<Box<dyn Policy>>,
    ) -> Result<NativeSession> {
        check_machine(planned)?;
        let wrong = |t: &&Throttle| !(Throttle::SLOWEST..=1.0).contains(&t.speed);
        if let Some(throttle) = self.throttles.iter().find(wrong) {
            let expected = format!("a speed from {} to 1", Throttle::SLOWEST);
            return Err(Error::config("throttle", expected, throttle.speed));
        }
        let Placed { shared, threads, header } = self.placed(planned, policy, Before::nothing())?;
        let infos = (0..planned.graphs().len()).map(|p| ProgramInfo::new(planned, p)).collect();
        let free = shared
            .buffers
            .first()
            .inputs
            .iter()
            .enumerate()
            .map(|(index, buffer)| Idle { index, memory: Box::new(lease(buffer.clone())) });
        Ok(NativeSession {
            free: Arc::new(std::sync::Mutex::new(free.collect())),
            driver: WorkerState::new(0, shared.buffers.scratch[0].clone()),
            threads,
            programs: infos,
            header,
            recorder: Recorder::new(self.record.then_some(self.limit)),
            events: Vec::new(),
            undriven: VecDeque::new(),
            submitted: 0,
            last: None,
            base: vec![0; planned.placement.lanes()],
            busy: VecDeque::new(),
            counters: Arc::new(SessionCounters::new(shared.runner.counters.clone())),
            engine: self.clone(),
            placement: 0,
            shared,
        })
    }

    /// What the workers share to run a plan, and the workers.
    fn placed(
        &self,
        planned: &PlannedPrograms,
        policy: Option<Box<dyn Policy>>,
        before: Before,
    ) -> Result<Placed> {
        let (workers, memory) = (planned.placement.lanes(), &planned.memory);
        let graphs = planned.graphs();
        let scheduling = policy.as_ref().map_or("static", |p| p.name()).to_owned();
        let processors = sys::processors();
        // Spinning helps only where every worker has a processor.
        let spins = if workers <= processors.len() { self.spins } else { 0 };
        let mode = match policy {
            None => Mode::Static {
                lists: replay::Lists::new(planned),
                gate: gate::Gate::new(workers + 1, spins),
            },
            Some(policy) => {
                let across = |a, b| planned.across(ProgramId::new(a), ProgramId::new(b));
                let space_of = planned.placement.space_of.clone();
                Mode::Dynamic {
                    queue: dynamic::Queue::new(graphs, &across, policy, spins, space_of),
                }
            }
        };
        let no_memory = |limit| planned.too_large(limit, None);
        let buffers = match &before.buffers {
            None => {
                // Where the system promises more memory than there is, it ends who uses it.
                check_room(memory, 0, headroom()).map_err(no_memory)?;
                Arenas::new(planned)
            }
            // A placement that follows another was checked before that one ended.
            Some(kept) => kept.with_work_of(planned),
        };
        let buffers = buffers.map_err(|_| no_memory(MemoryLimit::Unknown))?;
        debug_assert_eq!(buffers.allocated() as u64, memory.peak().0);
        debug_assert!(memory.spaces().all(|space| {
            buffers.allocated_in(planned, space) as u64 == memory.peak_of(space).0
        }));
        let programs = (0..graphs.len()).map(ProgramId::new);
        let pairs = programs.clone().flat_map(|a| programs.clone().map(move |b| (a, b)));
        // Those who read traces want them; there may be many edges.
        let between: Vec<_> = pairs.filter(|_| self.record).collect();
        let header = Header {
            engine: self.name().to_owned(),
            scheduling,
            workers,
            ..planned.trace_header(&between)
        };
        let header = Arc::new(match &before.header {
            None => header,
            Some((earlier, name, why)) if self.record => earlier.followed_by(header, name, why),
            Some((earlier, ..)) => earlier.replaced_by(header),
        });
        // Those of earlier placements come first.
        let earlier = header.programs.len() - graphs.len();
        let calls = |p: ProgramId| counted(buffers.calls(planned, p), &header, earlier + p.index());
        let programs = programs.map(calls).collect();
        let checker = (self.checks == Checks::On).then(|| Checker::new(planned, &buffers));
        let counters =
            Arc::new(WorkerCounters::new(header.clone(), before.ticks, before.counters.as_deref()));
        let (earlier, isa) = (earlier as u32, planned.numerics.isa);
        let throttles = self.throttles.clone();
        let shared = Arc::new(Shared {
            mode,
            runner: Runner { programs, isa, counters, checker, earlier, throttles },
            buffers,
            planned: planned.clone(),
            first_step: before.first_step,
            steps: Shared::ring(),
            failed: sync::Mutex::new(None),
            events: sync::Mutex::new(Vec::new()),
        });
        let pinned = if self.pin && workers <= processors.len() { &processors[..] } else { &[] };
        let threads = Threads::start(&shared, pinned)?;
        Ok(Placed { shared, threads, header })
    }
}

/// Refuses what is more than the process may still have, beside what is `kept` of an earlier
/// plan. A copy of the persistent values is made from time to time: to load weights, and for
/// each checkpoint.
fn check_room(memory: &Memory, kept: usize, room: Option<Headroom>) -> Result<(), MemoryLimit> {
    let Some(room) = room else { return Ok(()) };
    let copied: usize = memory.persistent_bytes.iter().sum();
    let limit = MemoryLimit::Available { room, besides: Bytes(copied as u64) };
    let taken = memory.peak().0.saturating_sub(kept as u64);
    if taken <= limit.bytes().0 { Ok(()) } else { Err(limit) }
}

#[expect(unsafe_code, reason = "the first lease of a new buffer")]
fn lease(buffer: Arc<Buffer>) -> Lease {
    // SAFETY: called once a buffer; tasks use it only while the slot is back
    // with the session, which hands it out again when the step has ended.
    unsafe { Lease::new(buffer, memory::Token::new().hold()) }
}

impl Engine for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn prepare(&self, planned: &PlannedPrograms) -> Result<Box<dyn Session>> {
        Ok(Box::new(self.prepare_native(planned)?))
    }
}
