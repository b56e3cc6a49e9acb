//! Events on virtual time.
//!
//! Time is whole nanoseconds. At each moment first everything that ends then ends
//! and what it made ready begins, in the order in which it was foreseen; then the
//! rates of what shares a capacity are found again, where something has changed, and
//! the ends that follow are foreseen anew. Nothing depends on addresses, threads or
//! the clock: the same scenario gives the same outcome.

use super::outcome::{NodeUse, Outcome, WorkerUse};
use super::scenario::{EngineModel, Job, JobId, Noise, Scenario, Start};
use super::sharing::{Activity, Demand, System, Use};
use crate::error::{Error, Result};
use crate::platform::{Expanded, Fairness, MemoryId, Route, UnitId};
use crate::sched::{Policy, Ready};
use crate::units::{Bytes, Joules, Nanos, ProgramId, TaskId, WorkerId};
use dahl_kernels::math;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

const SECOND: f64 = 1e9;
/// The end of time: about a century.
const LAST: f64 = 3.2e18;

/// Who decides which ready job a worker takes.
pub enum Order<'a> {
    /// The scenario: each worker takes its own jobs, in their order.
    Static,
    /// A policy of the engines.
    Policy(&'a mut dyn Policy),
}

/// Runs a scenario on a platform.
pub fn run(
    scenario: &Scenario,
    on: &Expanded<'_>,
    engine_model: &EngineModel,
    order: Order<'_>,
) -> Result<Outcome> {
    scenario.check(on)?;
    if let Order::Policy(_) = order {
        scenario.check_alike(on)?;
    }
    let mut run = Run::new(scenario, on, engine_model, order);
    run.begin()?;
    while let Some(&Reverse((at, ..))) = run.events.peek() {
        run.now = at;
        while let Some(&Reverse((then, _, event))) = run.events.peek()
            && then == at
        {
            run.events.pop();
            run.happen(event)?;
        }
        run.share();
        if let Some(error) = run.failed {
            return Err(error);
        }
    }
    run.finish()
}

/// What was foreseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A job ends, unless its rate has changed since this version of it.
    End(JobId, u32),
    /// The first byte of a transfer arrives.
    Flow(JobId),
    /// A job is known to be ready.
    Known(JobId),
    /// A worker may look for a job.
    Look(u32),
}

/// A job whose rate may change.
#[derive(Clone, Copy, Debug)]
struct Running {
    job: JobId,
    /// Nanoseconds of work, or bytes.
    left: f64,
    /// A nanosecond.
    rate: f64,
    since: u64,
}

struct Run<'a, 'o> {
    scenario: &'a Scenario,
    on: &'a Expanded<'a>,
    engine_model: &'a EngineModel,
    order: Order<'o>,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Where the processors of nodes stand among the capacities; none where nothing is copied, for
    /// then each thread has one.
    processors: Option<usize>,
    /// Ties of events break by when they were foreseen.
    foreseen: u64,
    system: System,
    /// By activity.
    running: Vec<Option<Running>>,
    activity: Vec<Option<Activity>>,
    versions: Vec<u32>,
    waits: Vec<u32>,
    succs: Succs,
    routes: BTreeMap<(MemoryId, MemoryId), Route>,
    workers: Vec<At>,
    outcome: Outcome,
    ended: usize,
    /// What went wrong while rates were found.
    failed: Option<Error>,
    /// The worker that ran the last job that each job waited for.
    near: Vec<Option<WorkerId>>,
}

/// Where a worker is.
struct At {
    /// Its jobs in order, where no policy decides.
    list: Vec<JobId>,
    next: usize,
    busy: bool,
    /// Since when it has waited.
    since: u64,
    /// Work a nanosecond.
    speed: f64,
    busy_watts: f64,
}

/// The successors of all jobs, one behind the other.
struct Succs {
    starts: Vec<u32>,
    jobs: Vec<JobId>,
}

impl Succs {
    fn new(scenario: &Scenario) -> Self {
        let ids = || (0..scenario.jobs.len() as u32).map(JobId);
        let mut starts = vec![0u32; scenario.jobs.len() + 1];
        ids().flat_map(|id| scenario.preds(id)).for_each(|pred| starts[pred.0 as usize + 1] += 1);
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut next = starts.clone();
        let mut jobs = vec![JobId(0); *starts.last().expect("one more than jobs") as usize];
        for id in ids() {
            for pred in scenario.preds(id) {
                let place = &mut next[pred.0 as usize];
                jobs[*place as usize] = id;
                *place += 1;
            }
        }
        Self { starts, jobs }
    }

    fn range(&self, job: JobId) -> std::ops::Range<usize> {
        self.starts[job.0 as usize] as usize..self.starts[job.0 as usize + 1] as usize
    }
}

impl<'a, 'o> Run<'a, 'o> {
    fn new(
        scenario: &'a Scenario,
        on: &'a Expanded<'a>,
        engine_model: &'a EngineModel,
        order: Order<'o>,
    ) -> Self {
        let jobs = scenario.jobs.len();
        let workers = scenario.workers.iter().map(|worker| {
            let unit = on.unit(worker.unit);
            let state = worker.state.map(|state| &unit.states[state]);
            At {
                list: Vec::new(),
                next: 0,
                busy: false,
                since: 0,
                speed: unit.speed.value * state.map_or(1.0, |state| state.speed.value),
                busy_watts: state.map_or(unit.busy_watts, |state| state.busy_watts).value,
            }
        });
        let mut workers: Vec<At> = workers.collect();
        for (i, job) in scenario.jobs.iter().enumerate() {
            if let Job::Compute { worker, .. } = job {
                workers[*worker as usize].list.push(JobId(i as u32));
            }
        }
        let copies = scenario.jobs.iter().any(|job| matches!(job, Job::Copy { .. }));
        let mut capacities = on.capacities.clone();
        if copies {
            let processors = |kind: &usize| -> usize {
                let units = on.platform.nodes[*kind].units.iter();
                units.filter(|unit| unit.kind.starts_with("cpu")).map(|unit| unit.count).sum()
            };
            capacities.extend(on.nodes.iter().map(|kind| processors(kind).max(1) as f64));
        }
        let waits = (0..jobs).map(|i| scenario.preds(JobId(i as u32)).len() as u32).collect();
        let outcome = Outcome {
            spans: vec![(Nanos(0), Nanos(0)); jobs],
            ran: vec![None; jobs],
            workers: vec![WorkerUse::default(); workers.len()],
            ..Outcome::default()
        };
        Self {
            scenario,
            on,
            engine_model,
            order,
            now: 0,
            events: BinaryHeap::new(),
            foreseen: 0,
            system: System::new(&capacities),
            processors: copies.then_some(on.capacities.len()),
            running: Vec::new(),
            activity: vec![None; jobs],
            versions: vec![0; jobs],
            waits,
            succs: Succs::new(scenario),
            routes: BTreeMap::new(),
            workers,
            outcome,
            ended: 0,
            failed: None,
            near: vec![None; jobs],
        }
    }

    /// An event after some nanoseconds.
    fn foresee(&mut self, after: f64, event: Event) -> Result<()> {
        let at = self.now as f64 + after;
        if at.is_nan() || at >= LAST {
            let found = format!("{:.3e} s", at / SECOND);
            return Err(Error::platform("time", "a run of less than a century", found));
        }
        self.foreseen += 1;
        self.events.push(Reverse((self.now + after.round() as u64, self.foreseen, event)));
        Ok(())
    }

    /// Nodes wake, and what waits for nothing is ready.
    fn begin(&mut self) -> Result<()> {
        for w in 0..self.workers.len() {
            let awake = self.wake(w).map_or(0, |(time, _)| time);
            self.workers[w].since = awake;
            self.foresee((awake - self.now) as f64, Event::Look(w as u32))?;
        }
        for i in 0..self.waits.len() {
            if self.waits[i] == 0 {
                self.known(JobId(i as u32))?;
            }
        }
        Ok(())
    }

    /// How long a worker's node takes to wake, and what that costs.
    fn wake(&self, worker: usize) -> Option<(u64, Joules)> {
        let unit = self.on.units[self.scenario.workers[worker].unit.0 as usize];
        let sleep = self.on.platform.nodes[unit.kind].sleep?;
        (self.engine_model.start == Start::Asleep).then(|| {
            ((sleep.wake_seconds.value * SECOND).round() as u64, Joules(sleep.wake_joules.value))
        })
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        match event {
            Event::End(job, version) if self.versions[job.0 as usize] == version => self.end(job),
            Event::End(..) => Ok(()),
            Event::Flow(job) => self.flow(job),
            Event::Known(job) => self.known(job),
            Event::Look(worker) => self.look(worker as usize),
        }
    }

    /// A job waits for nothing any more.
    fn known(&mut self, id: JobId) -> Result<()> {
        match self.scenario.jobs[id.0 as usize] {
            Job::Compute { worker, .. } => {
                let Order::Policy(policy) = &mut self.order else {
                    return self.look(worker as usize);
                };
                let (near, planned) = (self.near[id.0 as usize], WorkerId(worker));
                let program = ProgramId(0);
                let ready = Ready { step: 0, program, task: TaskId(id.0), near, planned };
                policy.ready(ready, Nanos(self.now));
                // Any that is free may take it, the planned one first.
                let others = (0..self.workers.len()).filter(|w| *w != worker as usize);
                for w in std::iter::once(worker as usize).chain(others).collect::<Vec<_>>() {
                    self.look(w)?;
                }
                Ok(())
            }
            Job::Transfer { from, to, bytes } => {
                self.outcome.spans[id.0 as usize].0 = Nanos(self.now);
                if !self.routes.contains_key(&(from, to)) {
                    let route = self.on.route(from, to)?;
                    self.routes.insert((from, to), route);
                }
                let route = &self.routes[&(from, to)];
                let moved = &mut self.outcome.moved;
                moved.bytes += bytes;
                moved.joules += Joules(bytes.0 as f64 * route.joules_per_byte);
                let first = route.latency * SECOND;
                self.foresee(first, Event::Flow(id))
            }
            Job::Copy { memory, work, bytes, .. } => {
                self.outcome.spans[id.0 as usize].0 = Nanos(self.now);
                self.outcome.moved.bytes += bytes;
                self.copy(id, memory, work, bytes)
            }
            Job::Collective { time, joules, bytes } => {
                self.outcome.spans[id.0 as usize].0 = Nanos(self.now);
                let moved = &mut self.outcome.moved;
                moved.bytes += bytes;
                moved.joules += joules;
                self.foresee(time.0 as f64, Event::End(id, 0))
            }
        }
    }

    /// The bytes of a transfer begin to arrive.
    fn flow(&mut self, id: JobId) -> Result<()> {
        let Job::Transfer { from, to, bytes } = self.scenario.jobs[id.0 as usize] else {
            return Ok(());
        };
        let route = &self.routes[&(from, to)];
        if bytes.0 == 0 || route.bandwidth.is_infinite() {
            return self.end(id);
        }
        let uses: Vec<Use> =
            route.capacities.iter().map(|c| Use { capacity: c.0 as usize, share: 1.0 }).collect();
        let weight = match self.on.platform.fairness {
            Fairness::Equal => 1.0,
            Fairness::Latency => 1.0 / route.latency.max(1.0 / SECOND),
        };
        let demand = Demand { bound: route.bandwidth, weight, uses: &uses };
        self.activate(id, bytes.0 as f64, demand);
        Ok(())
    }

    /// A lane copies: it takes a processor, and reads and writes memory.
    fn copy(&mut self, id: JobId, memory: MemoryId, work: Nanos, bytes: Bytes) -> Result<()> {
        let overhead = self.engine_model.overhead.0 as f64;
        let Some(processors) = self.processors.filter(|_| work.0 > 0) else {
            return self.foresee(overhead + work.0 as f64, Event::End(id, 0));
        };
        let node = self.on.memories[memory.0 as usize].node.0 as usize;
        let traffic = 2.0 * bytes.0 as f64 / work.0 as f64 * SECOND;
        let memory = self.on.memory_capacity(memory).0 as usize;
        // What it was measured to take is no more than memory gives.
        let traffic = traffic.min(self.on.capacities[memory]);
        let uses = [
            Use { capacity: memory, share: if traffic.is_finite() { traffic } else { 0.0 } },
            Use { capacity: processors + node, share: 1.0 },
        ];
        self.activate(
            id,
            overhead + work.0 as f64,
            Demand { bound: 1.0, weight: 1.0, uses: &uses },
        );
        Ok(())
    }

    fn activate(&mut self, job: JobId, left: f64, demand: Demand<'_>) {
        let activity = self.system.begin(demand);
        let index = activity.0 as usize;
        if self.running.len() <= index {
            self.running.resize(index + 1, None);
        }
        self.running[index] = Some(Running { job, left, rate: 0.0, since: self.now });
        self.activity[job.0 as usize] = Some(activity);
    }

    /// A worker that is free takes a job, if there is one.
    fn look(&mut self, w: usize) -> Result<()> {
        let worker = WorkerId::new(w);
        if self.workers[w].busy || self.wake(w).is_some_and(|(awake, _)| self.now < awake) {
            return Ok(());
        }
        let id = match &mut self.order {
            Order::Policy(policy) => match policy.next(worker, Nanos(self.now)) {
                Some(ready) => {
                    policy.started(ready, worker, Nanos(self.now));
                    JobId(ready.task.0)
                }
                None => return Ok(()),
            },
            Order::Static => {
                let at = &mut self.workers[w];
                match at.list.get(at.next) {
                    Some(&id) if self.waits[id.0 as usize] == 0 => {
                        at.next += 1;
                        id
                    }
                    _ => return Ok(()),
                }
            }
        };
        self.waited(w);
        self.workers[w].busy = true;
        self.outcome.spans[id.0 as usize].0 = Nanos(self.now);
        self.outcome.ran[id.0 as usize] = Some(w as u32);
        self.compute(id, w)
    }

    fn compute(&mut self, id: JobId, w: usize) -> Result<()> {
        let Job::Compute { work, spread, traffic, .. } = self.scenario.jobs[id.0 as usize] else {
            return Ok(());
        };
        let alone = work.0 as f64 / self.workers[w].speed * self.noise(id, spread);
        let overhead = self.engine_model.overhead.0;
        let unit = self.on.units[self.scenario.workers[w].unit.0 as usize];
        let capacity = self.on.memory_capacity(unit.memory).0 as usize;
        let amount = self.on.capacities[capacity];
        // What only moves bytes takes as long as the memory needs for them.
        let alone = match alone == 0.0 && traffic.0 > 0 && amount.is_finite() {
            true => traffic.0 as f64 / amount * SECOND,
            false => alone,
        };
        // Bytes per second at full speed.
        let demand = traffic.0 as f64 / alone * SECOND;
        let shared = alone > 0.0 && demand > 0.0 && amount.is_finite();
        let is_cpu = self.on.platform.nodes[unit.kind].units[unit.unit].kind.starts_with("cpu");
        if let Some(processors) = self.processors.filter(|_| is_cpu && alone > 0.0) {
            // Beside lanes, threads share processors: all get as much.
            let uses = [
                Use { capacity, share: if shared { demand } else { 0.0 } },
                Use { capacity: processors + unit.node.0 as usize, share: 1.0 },
            ];
            let left = alone + overhead as f64;
            self.activate(id, left, Demand { bound: 1.0, weight: 1.0, uses: &uses });
            return Ok(());
        }
        if !shared {
            return self.foresee(overhead as f64 + alone, Event::End(id, 0));
        }
        let uses = [Use { capacity, share: demand }];
        let left = alone + overhead as f64;
        self.activate(id, left, Demand { bound: 1.0, weight: 1.0 / demand, uses: &uses });
        Ok(())
    }

    /// How much longer than its mean a job takes.
    fn noise(&self, id: JobId, own: f64) -> f64 {
        let deviation = match self.engine_model.noise {
            Noise::Off => 0.0,
            Noise::All(deviation) => deviation,
            Noise::Own => own,
        };
        if deviation == 0.0 {
            return 1.0;
        }
        let [u, v] = [0, 1].map(|i| math::uniform(self.engine_model.seed, id.0, i, 0).max(1e-300));
        let normal = (-2.0 * math::ln(u)).sqrt() * math::cos(std::f64::consts::TAU * v);
        // Its logarithm is normal, its mean is 1.
        let variance = math::ln(1.0 + deviation * deviation);
        math::exp(variance.sqrt() * normal - variance / 2.0)
    }

    /// Finds new rates, and when what they concern ends.
    fn share(&mut self) {
        let mut system = std::mem::take(&mut self.system);
        system.solve(|activity, rate| self.set_rate(activity, rate));
        self.system = system;
    }

    fn set_rate(&mut self, activity: Activity, rate: f64) {
        let running = self.running[activity.0 as usize].as_mut().expect("a running job");
        let is_transfer =
            matches!(self.scenario.jobs[running.job.0 as usize], Job::Transfer { .. });
        let rate = if is_transfer { rate / SECOND } else { rate };
        if rate == running.rate {
            return;
        }
        running.left = (running.left - running.rate * (self.now - running.since) as f64).max(0.0);
        running.since = self.now;
        running.rate = rate;
        let (job, time) = (running.job, running.left / rate);
        let version = &mut self.versions[job.0 as usize];
        *version += 1;
        let event = Event::End(job, *version);
        let foreseen = self.foresee(time, event);
        self.failed = self.failed.take().or(foreseen.err());
    }

    fn end(&mut self, id: JobId) -> Result<()> {
        let i = id.0 as usize;
        if let Some(activity) = self.activity[i].take() {
            self.system.end(activity);
            self.running[activity.0 as usize] = None;
        }
        let span = &mut self.outcome.spans[i];
        span.1 = Nanos(self.now);
        let time = Nanos(self.now - span.0.0);
        self.ended += 1;
        self.outcome.makespan = Nanos(self.now);
        let ran = self.outcome.ran[i];
        match ran {
            Some(w) => {
                let worker = &mut self.workers[w as usize];
                worker.busy = false;
                worker.since = self.now;
                let used = &mut self.outcome.workers[w as usize];
                used.busy += time;
                if let (Order::Policy(policy), Job::Compute { worker, .. }) =
                    (&mut self.order, self.scenario.jobs[i])
                {
                    let (near, planned) = (self.near[i], WorkerId(worker));
                    let program = ProgramId(0);
                    let ready = Ready { step: 0, program, task: TaskId(id.0), near, planned };
                    policy.ended(ready, WorkerId(w), Nanos(self.now));
                }
            }
            None => self.outcome.moved.time += time,
        }
        for s in self.succs.range(id) {
            let next = self.succs.jobs[s];
            let waits = &mut self.waits[next.0 as usize];
            *waits -= 1;
            if *waits == 0 {
                self.near[next.0 as usize] = ran.map(WorkerId);
                let hop = self.hop((id, ran), next);
                if hop.0 == 0 {
                    self.known(next)?;
                } else {
                    self.foresee(hop.0 as f64, Event::Known(next))?;
                }
            }
        }
        ran.map_or(Ok(()), |w| self.look(w as usize))
    }

    /// How long it takes until the thread of a job knows that another has ended, which a worker
    /// or a lane ran.
    fn hop(&self, (ended, ran): (JobId, Option<u32>), next: JobId) -> Nanos {
        let [ended, next] = [ended, next].map(|id| self.scenario.jobs[id.0 as usize]);
        let EngineModel { hop, lane_hop, .. } = *self.engine_model;
        let hop = if self.processors.is_some() { lane_hop } else { hop };
        match (ended, next) {
            (Job::Compute { .. }, Job::Compute { worker, .. }) if ran != Some(worker) => hop,
            (Job::Copy { lane: a, .. }, Job::Copy { lane: b, .. }) if a != b => hop,
            (Job::Compute { .. }, Job::Copy { .. }) | (Job::Copy { .. }, Job::Compute { .. }) => {
                hop
            }
            _ => Nanos(0),
        }
    }

    /// Accounts for the time that a worker had nothing to do.
    fn waited(&mut self, w: usize) {
        // A node may still be waking when the run ends.
        let time = self.now.saturating_sub(self.workers[w].since);
        let spun = time.min(self.engine_model.spin.0);
        let used = &mut self.outcome.workers[w];
        used.spinning += Nanos(spun);
        used.idle += Nanos(time - spun);
        self.workers[w].since = self.now;
    }

    fn finish(mut self) -> Result<Outcome> {
        if self.ended < self.scenario.jobs.len() {
            let left = self.scenario.jobs.len() - self.ended;
            return Err(Error::platform(
                "jobs",
                "an order in which all jobs can run",
                format!("{left} that never become ready"),
            ));
        }
        self.now = self.outcome.makespan.0;
        for w in 0..self.workers.len() {
            self.waited(w);
            let unit = self.on.unit(self.scenario.workers[w].unit);
            let used = &mut self.outcome.workers[w];
            let watts =
                [self.workers[w].busy_watts, unit.spinning_watts.value, unit.idle_watts.value];
            let times = [used.busy, used.spinning, used.idle];
            used.joules = std::array::from_fn(|i| Joules(watts[i] * times[i].0 as f64 / SECOND));
        }
        self.outcome.nodes = self.nodes();
        self.outcome.scheduling = match &self.order {
            Order::Static => "static",
            Order::Policy(policy) => policy.name(),
        };
        Ok(self.outcome)
    }

    /// What the nodes that have a worker take beside their workers.
    fn nodes(&self) -> Vec<NodeUse> {
        let mut with_worker = vec![false; self.on.units.len()];
        let mut worker_of = BTreeMap::new();
        for (w, worker) in self.scenario.workers.iter().enumerate() {
            with_worker[worker.unit.0 as usize] = true;
            worker_of.insert(self.on.units[worker.unit.0 as usize].node, w);
        }
        let mut others: BTreeMap<_, f64> = BTreeMap::new();
        for (u, of) in self.on.units.iter().enumerate().filter(|(u, _)| !with_worker[*u]) {
            *others.entry(of.node).or_default() += self.on.unit(UnitId(u as u32)).idle_watts.value;
        }
        let seconds = self.outcome.makespan.0 as f64 / SECOND;
        let nodes = worker_of.into_iter().map(|(node, worker)| {
            let base = self.on.platform.nodes[self.on.nodes[node.0 as usize]].base_watts.value;
            let idle = others.get(&node).copied().unwrap_or(0.0);
            let (asleep, wake) = self.wake(worker).unwrap_or((0, Joules(0.0)));
            let awake = (seconds - asleep as f64 / SECOND).max(0.0);
            NodeUse { node, base: Joules((base + idle) * awake), wake }
        });
        nodes.collect()
    }
}
