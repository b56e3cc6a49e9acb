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
use crate::exec::{Arenas, Buffer, Engine, Idle, Session, Transport, check_machine, in_process};
use crate::plan::PlannedPrograms;
use crate::sched::{Confined, FirstCome, Policy, Staged, WorkStealing};
use crate::trace::Header;
use crate::units::{Bytes, Headroom, ProgramId};
use check::Checker;
use counters::{SessionCounters, WorkerCounters};
use memory::Lease;
use recording::Recorder;
use replan::{Before, Placed};
use runner::{Runner, counted, counted_messages};
use session::ProgramInfo;
use std::collections::VecDeque;
use std::sync::Arc;
use worker::{Mode, Shared, Threads, driver};

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
#[derive(Clone)]
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
    /// What connects the ranks of a plan that has several; this process runs the part of the
    /// transport's rank. Without it all ranks run in this process, each as a thread of its own.
    pub transport: Option<Arc<dyn Transport>>,
}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rank = self.transport.as_ref().map(|transport| transport.rank());
        f.debug_struct("Native")
            .field("scheduling", &self.scheduling)
            .field("checks", &self.checks)
            .field("rank", &rank)
            .finish_non_exhaustive()
    }
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
            transport: None,
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
        self.session(&self.part(planned)?, Some(policy))
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
        let part = self.part(planned)?;
        let lanes = part.lanes() - workers;
        let policy = policy().map(|one| match placement.spaces.len() {
            1 => one,
            _ => Box::new(Confined::new(&placement.space_of, lanes, &|_| {
                policy().expect("a policy, as before")
            })),
        });
        self.session(&part, policy)
    }

    /// The session of a plan, whose part of a rank `prepare` makes a session of: all ranks in this
    /// process, where no transport connects it with others.
    pub(crate) fn prepare_ranks(
        &self,
        planned: &PlannedPrograms,
        prepare: impl Fn(&PlannedPrograms, Option<Arc<dyn Transport>>) -> Result<Box<dyn Session>>
        + Clone
        + Send
        + 'static,
    ) -> Result<Box<dyn Session>> {
        if self.transport.is_some() || planned.placement.ranks() == 1 {
            return prepare(&self.part(planned)?, self.transport.clone());
        }
        let no_room = |limit| planned.too_large(limit, None);
        check_room(planned.needs(), 0, headroom()).map_err(no_room)?;
        in_process(planned, move |part, transport| prepare(part, Some(transport)))
    }

    /// The part of a plan that this process runs.
    pub(crate) fn part(&self, planned: &PlannedPrograms) -> Result<PlannedPrograms> {
        match &self.transport {
            Some(transport) if planned.rank().is_none() => {
                let (ranks, found) = (planned.placement.ranks(), transport.ranks());
                if ranks != found {
                    return Err(Error::plan("spaces", format!("spaces of {found} ranks"), ranks));
                }
                planned.of_rank(transport.rank())
            }
            _ => Ok(planned.clone()),
        }
    }

    fn session(
        &self,
        planned: &PlannedPrograms,
        policy: Option<Box<dyn Policy>>,
    ) -> Result<NativeSession> {
        check_machine(planned)?;
        let rank = self.transport.as_ref().map(|transport| transport.rank());
        if planned.rank() != rank && planned.placement.ranks() > 1 {
            let expected = format!("a transport of rank {}", planned.rank().unwrap_or(0));
            let found = rank.map_or("none".to_owned(), |rank| format!("that of rank {rank}"));
            return Err(Error::plan("spaces", expected, found));
        }
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
            driver: driver(&shared),
            threads,
            programs: infos,
            header,
            recorder: Recorder::new(self.record.then_some(self.limit)),
            events: Vec::new(),
            undriven: VecDeque::new(),
            submitted: 0,
            last: None,
            base: vec![0; planned.lanes()],
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
        let (workers, own) = (planned.lanes(), planned.own_lanes());
        let graphs = planned.graphs();
        let scheduling = policy.as_ref().map_or("static", |p| p.name()).to_owned();
        let processors = sys::processors();
        // Spinning helps only where every worker has a processor.
        let here = own.len().max(planned.placement.workers);
        let spins = if here <= processors.len() { self.spins } else { 0 };
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
                check_room(planned.needs(), 0, headroom()).map_err(no_memory)?;
                Arenas::new(planned)
            }
            // A placement that follows another was checked before that one ended.
            Some(kept) => kept.with_work_of(planned),
        };
        let buffers = buffers.map_err(|_| no_memory(MemoryLimit::Unknown))?;
        debug_assert_eq!(buffers.allocated() as u64, planned.peak().0);
        debug_assert!(planned.memory.spaces().filter(|space| planned.has(*space)).all(|space| {
            buffers.allocated_in(planned, space) as u64 == planned.memory.peak_of(space).0
        }));
        let programs = (0..graphs.len()).map(ProgramId::new);
        let pairs = programs.clone().flat_map(|a| programs.clone().map(move |b| (a, b)));
        // Those who read traces want them; there may be many edges.
        let between: Vec<_> = pairs.filter(|_| self.record).collect();
        let header = Header {
            engine: self.name().to_owned(),
            scheduling,
            workers,
            lanes: workers - planned.placement.workers,
            ..planned.whole().trace_header(&between)
        };
        let header = Arc::new(match &before.header {
            None => header,
            Some((earlier, name, why)) if self.record => earlier.followed_by(header, name, why),
            Some((earlier, ..)) => earlier.replaced_by(header),
        });
        // Those of earlier placements come first.
        let earlier = header.programs.len() - graphs.len();
        let calls = |p: ProgramId| counted(buffers.calls(planned, p), &header, earlier + p.index());
        let message = |p: ProgramId| {
            counted_messages(buffers.messages(planned, p), &header, earlier + p.index())
        };
        let messages = programs.clone().map(message).collect();
        let programs = programs.map(calls).collect();
        let checker = (self.checks == Checks::On).then(|| Checker::new(planned, &buffers));
        let counters = Arc::new(WorkerCounters::new(
            (header.clone(), &own),
            before.ticks,
            before.counters.as_deref(),
        ));
        let (earlier, isa) = (earlier as u32, planned.numerics.isa);
        let throttles = self.throttles.clone();
        let shared = Arc::new(Shared {
            mode,
            runner: Runner {
                programs,
                messages,
                transport: self.transport.clone(),
                isa,
                counters,
                checker,
                earlier,
                throttles,
            },
            own,
            buffers,
            planned: planned.clone(),
            first_step: before.first_step,
            steps: Shared::ring(),
            failed: sync::Mutex::new(None),
            events: sync::Mutex::new(Vec::new()),
        });
        let pinned = if self.pin && here <= processors.len() { &processors[..] } else { &[] };
        let threads = Threads::start(&shared, pinned)?;
        Ok(Placed { shared, threads, header })
    }
}

/// Refuses a peak that is more than the process may still have, beside what is `kept` of an earlier
/// plan. A copy of the persistent values (`copied`) is made from time to time: to load weights, and for
/// each checkpoint.
fn check_room(
    (peak, copied): (Bytes, Bytes),
    kept: usize,
    room: Option<Headroom>,
) -> Result<(), MemoryLimit> {
    let Some(room) = room else { return Ok(()) };
    let limit = MemoryLimit::Available { room, besides: copied };
    let taken = peak.0.saturating_sub(kept as u64);
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
        let engine = self.clone();
        self.prepare_ranks(planned, move |part, transport| {
            let engine = Self { transport, ..engine.clone() };
            Ok(Box::new(engine.prepare_native(part)?))
        })
    }
}
