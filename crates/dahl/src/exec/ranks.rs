//! One session over several ranks: rank 0 leads, the others follow.
//!
//! Each rank has a session of its own for its part of the plan. What depends on a clock, a signal
//! or a file is decided by whoever calls the [`Leader`], on rank 0: each call becomes a command to
//! all other ranks, so every rank does the same at the same step. Samples are sent by rank 0, only
//! the rows that a rank reads, unless each rank can read its share of a batch by itself.

mod counters;

use super::{
    Channel, Counters, Decision, InProcess, Session, Share, Slot, Snapshot, StepId, TensorMut,
    TensorRef, Transport,
};
use crate::error::{Error, Result};
use crate::graph::Kind;
use crate::os::threads::{JoinHandle, spawn};
use crate::plan::PlannedPrograms;
use crate::trace::{Event, Trace};
use crate::units::{Bytes, PersistentId, ProgramId, ValueId};
use counters::OfRanks;
use dahl_kernels::StepScalars;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak, mpsc};

/// What rank 0 tells the others to do.
#[derive(Debug, Serialize, Deserialize)]
enum Command {
    /// Read your samples of a batch into the next slot of a program.
    /// Of the batches announced before, those in `live` are still to be stepped with.
    Load { program: u32, batch: Batch, number: u64, live: Vec<u64> },
    /// A step on a batch that was announced; if there is none, the rows of its inputs follow.
    Step { program: u32, lr_bits: u64, counter: u64, loaded: Option<u64> },
    /// The step of a snapshot.
    Snapshot { program: u32 },
    /// Send bytes of a persistent value.
    Read { value: u32, bytes: Range<usize> },
    /// Write a persistent value; its bytes follow.
    Write { value: u32 },
    /// Send the time of the session's clock.
    Clock,
    /// Send the events that were recorded.
    Trace,
    /// The run has ended.
    End,
}

/// The samples of a batch, as every rank finds them in its own copy of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The number of the dataset in the [`BatchSource`].
    pub set: u32,
    /// The epoch, which decides random augmentation.
    pub epoch: u64,
    /// The indices of the samples.
    pub samples: Vec<usize>,
}

/// Reads samples on a rank that follows.
pub trait BatchSource: Send + Sync {
    /// Fills the [rows](Slot::rows) of a slot with the samples of a batch.
    ///
    /// # Errors
    /// Where a sample cannot be read.
    fn fill(&self, slot: Slot, batch: &Batch) -> Result<Slot>;
}

/// What the ranks of this process read samples with: set once, by rank 0.
type SharedSource = Arc<OnceLock<Arc<dyn BatchSource>>>;

/// Sends a text with its length.
fn send_text(transport: &dyn Transport, to: u32, text: &str) -> Result<()> {
    let length = (text.len() as u64).to_le_bytes();
    transport.send(to, Channel::Control, &[&length, text.as_bytes()])
}

/// Receives a text that was sent with its length.
fn receive_text(transport: &dyn Transport, from: u32) -> Result<String> {
    let mut length = [0; 8];
    transport.receive(from, Channel::Control, &mut [&mut length])?;
    let mut text = vec![0; u64::from_le_bytes(length) as usize];
    transport.receive(from, Channel::Control, &mut [&mut text])?;
    String::from_utf8(text).map_err(|_| garbled(from))
}

fn garbled(from: u32) -> Error {
    Error::Rank { rank: from, why: "a message of another version of dahl".to_owned() }
}

/// What is read of an input.
#[derive(Clone, Debug)]
struct InputRead {
    name: String,
    rows: Range<usize>,
    bytes: Range<usize>,
}

/// The samples that are read of any of the inputs.
fn rows_of(inputs: &[InputRead]) -> Range<usize> {
    let start = inputs.iter().map(|input| input.rows.start).min().unwrap_or(0);
    start..inputs.iter().map(|input| input.rows.end).max().unwrap_or(start)
}

/// The inputs of a program that the tasks of a part of a plan read, with the bytes of their rows.
fn inputs_read(part: &PlannedPrograms, program: ProgramId) -> Vec<InputRead> {
    let (graph, tasks) = part.program(program);
    let mut rows: BTreeMap<ValueId, Range<usize>> = BTreeMap::new();
    for task in &tasks.tasks {
        task.touches(|_, root, region, _| {
            if graph.value(root).kind == Kind::Input && !region.is_empty() {
                let own = if region.rank() == 0 { 0..1 } else { region.range(0) };
                let all = rows.entry(root).or_insert(own.clone());
                *all = all.start.min(own.start)..all.end.max(own.end);
            }
        });
    }
    let read = |(id, rows): (ValueId, Range<usize>)| {
        let value = graph.value(id);
        InputRead { name: value.name.clone(), bytes: bytes_of(value.meta, &rows), rows }
    };
    rows.into_iter().map(read).collect()
}

/// The bytes of rows of an input.
fn bytes_of(meta: crate::ops::Meta, rows: &Range<usize>) -> Range<usize> {
    let row = meta.bytes() / meta.shape.axes().first().copied().unwrap_or(1).max(1);
    rows.start * row..rows.end * row
}

/// The session of rank 0, with which a run of several ranks is driven as if it were one session.
pub struct Leader {
    own: Box<dyn Session>,
    planned: PlannedPrograms,
    transport: Arc<dyn Transport>,
    /// By rank and program: what the rank reads of the inputs.
    inputs: Vec<Vec<Vec<InputRead>>>,
    counters: Arc<OfRanks>,
    /// The memory of the other ranks.
    allocated: Bytes,
    last: Option<StepId>,
    source: SharedSource,
    /// The batches that were announced, and whether their slots are still there.
    announced: Vec<(u64, Weak<()>)>,
    /// How many batches were announced.
    numbered: u64,
    /// The ranks that are threads of this process.
    threads: Vec<JoinHandle<()>>,
}

impl Leader {
    /// The session of rank 0 of a plan, over transports whose other ranks [`follow`]. `others` are
    /// the counters and the memory of the other ranks, where they are of this process.
    ///
    /// # Errors
    /// Where a rank could not prepare its part.
    pub fn new(
        own: Box<dyn Session>,
        planned: &PlannedPrograms,
        transport: Arc<dyn Transport>,
        others: Vec<(Arc<dyn Counters>, Bytes)>,
    ) -> Result<Self> {
        let programs = || (0..planned.graphs().len()).map(ProgramId::new);
        let inputs = (0..transport.ranks()).map(|rank| -> Result<Vec<_>> {
            let part = planned.of_rank(rank)?;
            Ok(programs().map(|program| inputs_read(&part, program)).collect())
        });
        let inputs = inputs.collect::<Result<_>>()?;
        let allocated = Bytes(others.iter().map(|(_, bytes)| bytes.0).sum());
        let others = others.into_iter().map(|(counters, _)| counters);
        let all = std::iter::once(own.counters()).chain(others).collect();
        let counters = Arc::new(OfRanks::new(all, &planned.placement));
        let (planned, threads) = (planned.clone(), Vec::new());
        Ok(Self {
            own,
            planned,
            transport,
            inputs,
            counters,
            allocated,
            last: None,
            source: SharedSource::default(),
            announced: Vec::new(),
            numbered: 0,
            threads,
        })
    }

    fn others(&self) -> Range<u32> {
        1..self.transport.ranks()
    }

    fn command(&self, to: u32, command: &Command) -> Result<()> {
        let text = serde_json::to_string(command).map_err(|_| garbled(0))?;
        send_text(&*self.transport, to, &text)
    }

    fn command_all(&self, command: &Command) -> Result<()> {
        self.others().try_for_each(|rank| self.command(rank, command))
    }

    /// A command to follow must be one that this rank takes too.
    fn refuse_unknown(&self, program: ProgramId) -> Result<()> {
        match self.planned.graphs().get(program.index()) {
            Some(_) => Ok(()),
            None => {
                let expected = format!("one of {} programs", self.planned.graphs().len());
                Err(Error::config("program", expected, program))
            }
        }
    }

    /// How far the clock of a rank is behind this one's, in nanoseconds: measured on the shortest
    /// of a few round trips.
    fn behind(&self, rank: u32) -> Result<i64> {
        let mut best: Option<(u64, i64)> = None;
        for _ in 0..8 {
            let sent = self.counters.now();
            self.command(rank, &Command::Clock)?;
            let mut there = [0; 8];
            self.transport.receive(rank, Channel::Control, &mut [&mut there])?;
            let took = self.counters.now().saturating_sub(sent);
            let behind = (sent + took / 2) as i64 - u64::from_le_bytes(there) as i64;
            if best.is_none_or(|(shortest, _)| took < shortest) {
                best = Some((took, behind));
            }
        }
        Ok(best.map_or(0, |(_, behind)| behind))
    }

    /// The events that another rank has recorded, in the time and with the lanes of all ranks.
    fn events_of(&self, rank: u32) -> Result<Vec<Event>> {
        let behind = self.behind(rank)?;
        self.command(rank, &Command::Trace)?;
        let text = receive_text(&*self.transport, rank)?;
        let trace = Trace::parse(&text, Path::new("the trace of a rank"))?;
        let lane = |w: u32| self.counters.lane(rank, w as usize).map_or(w, |lane| lane as u32);
        let events = trace.events.into_iter().filter_map(|event| match event {
            // Rank 0 has recorded what was submitted and decided.
            Event::Submit { .. } | Event::Replan { .. } => None,
            event => Some(event.of_rank(&lane, behind)),
        });
        Ok(events.collect())
    }
}

impl Session for Leader {
    fn slot(&mut self, program: ProgramId) -> Result<Slot> {
        self.own.slot(program)
    }

    fn step(&mut self, program: ProgramId, slot: Slot, scalars: StepScalars) -> Result<StepId> {
        let mut slot = slot;
        let (StepScalars { lr, counter }, loaded) =
            (scalars, slot.wanted().as_ref().map(|share| share.number));
        for rank in self.others() {
            let (program_id, lr_bits) = (program.0, lr.to_bits());
            self.command(rank, &Command::Step { program: program_id, lr_bits, counter, loaded })?;
            let sent =
                self.inputs[rank as usize][program.index()].iter().filter(|_| loaded.is_none());
            for InputRead { name, bytes, .. } in sent {
                let input = slot.input(name)?;
                self.transport.send(rank, Channel::Control, &[&input.bytes[bytes.clone()]])?;
            }
        }
        match self.own.step(program, slot, scalars) {
            Ok(step) => {
                self.last = Some(step);
                Ok(step)
            }
            // The other ranks have begun it.
            Err(error) => {
                self.transport.abort(&error.to_string());
                Err(error)
            }
        }
    }

    fn wait(&mut self, step: StepId) -> Result<()> {
        self.own.wait(step)
    }

    fn output(
        &mut self,
        step: StepId,
        name: &str,
        read: &mut dyn FnMut(TensorRef<'_>),
    ) -> Result<()> {
        self.own.output(step, name, read)
    }

    fn read(&mut self, value: PersistentId, read: &mut dyn FnMut(TensorRef<'_>)) -> Result<()> {
        let meta = self.planned.programs().store.get(value).meta;
        let placement = &self.planned.placement;
        let replicas = self.planned.memory.replicas.iter().filter(|r| r.value == value);
        let mut missing: Vec<Range<usize>> = std::iter::once(0..meta.bytes()).collect();
        let mut sources: Vec<(u32, Range<usize>)> = Vec::new();
        let mut replicas: Vec<_> = replicas.collect();
        replicas.sort_by_key(|replica| placement.rank_of(replica.space));
        for replica in replicas {
            let rank = placement.rank_of(replica.space);
            let rows = if replica.region.rank() == 0 { 0..1 } else { replica.region.range(0) };
            let own = bytes_of(meta, &rows);
            let mut left = Vec::new();
            for part in missing {
                let both = part.start.max(own.start)..part.end.min(own.end);
                if both.is_empty() {
                    left.push(part);
                    continue;
                }
                let around = [part.start..both.start, both.end..part.end];
                left.extend(around.into_iter().filter(|range| !range.is_empty()));
                sources.push((rank, both));
            }
            missing = left;
        }
        let mut all = vec![0u64; meta.bytes().div_ceil(8)];
        let bytes: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut all)[..meta.bytes()];
        self.own.read(value, &mut |own| bytes.copy_from_slice(own.bytes))?;
        for (rank, part) in sources.into_iter().filter(|(rank, _)| *rank > 0) {
            self.command(rank, &Command::Read { value: value.0, bytes: part.clone() })?;
            self.transport.receive(rank, Channel::Control, &mut [&mut bytes[part]])?;
        }
        read(TensorRef { meta, bytes });
        Ok(())
    }

    fn write(
        &mut self,
        value: PersistentId,
        write: &mut dyn FnMut(TensorMut<'_>) -> Result<()>,
    ) -> Result<()> {
        let meta = self.planned.programs().store.get(value).meta;
        let mut all = vec![0u64; meta.bytes().div_ceil(8)];
        let bytes: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut all)[..meta.bytes()];
        self.read(value, &mut |before| bytes.copy_from_slice(before.bytes))?;
        write(TensorMut { meta, bytes })?;
        for rank in self.others() {
            self.command(rank, &Command::Write { value: value.0 })?;
            self.transport.send(rank, Channel::Control, &[bytes])?;
        }
        self.own.write(value, &mut |to| {
            to.bytes.copy_from_slice(bytes);
            Ok(())
        })
    }

    fn snapshot(&mut self, program: ProgramId) -> Result<Snapshot> {
        self.refuse_unknown(program)?;
        self.command_all(&Command::Snapshot { program: program.0 })?;
        self.own.snapshot(program)
    }

    fn counters(&self) -> Arc<dyn Counters> {
        self.counters.clone()
    }

    fn take_trace(&mut self) -> Trace {
        let mut trace = self.own.take_trace();
        let lane = |w: u32| self.counters.lane(0, w as usize).map_or(w, |lane| lane as u32);
        trace.events = trace.events.into_iter().map(|event| event.of_rank(&lane, 0)).collect();
        for rank in self.others() {
            // A rank that has failed has no trace; the run ends with its error.
            trace.events.extend(self.events_of(rank).unwrap_or_default());
        }
        trace.events.sort_by_key(Event::start);
        trace.header.workers = self.counters.workers();
        trace.header.units = self.counters.names(&self.planned.placement);
        trace
    }

    fn allocated(&self) -> Bytes {
        Bytes(self.own.allocated().0 + self.allocated.0)
    }

    fn share(&mut self, source: Arc<dyn BatchSource>) {
        // What was shared first stays: ranks may be reading with it.
        let _ = self.source.set(source);
    }

    fn announce(&mut self, program: ProgramId, slot: &mut Slot, batch: &Batch) -> Result<()> {
        self.refuse_unknown(program)?;
        if self.source.get().is_none() {
            return Ok(());
        }
        self.announced.retain(|(_, slot)| slot.strong_count() > 0);
        let live = self.announced.iter().map(|(number, _)| *number).collect();
        let (number, batch) = (self.numbered, batch.clone());
        self.command_all(&Command::Load { program: program.0, batch, number, live })?;
        let alive = Arc::new(());
        self.announced.push((number, Arc::downgrade(&alive)));
        self.numbered += 1;
        let rows = rows_of(&self.inputs[0][program.index()]);
        *slot.wanted() = Some(Share { rows, number, _alive: alive });
        Ok(())
    }

    fn replan(&mut self, _: &Decision<'_>) -> Result<()> {
        Err(Error::Unsupported {
            what: "another placement in mid-run over several ranks".to_owned(),
        })
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // The other ranks need this one's part of the last steps to end.
        let waited = self.last.map_or(Ok(()), |last| self.own.wait(last));
        if let Err(error) = waited.and_then(|()| self.command_all(&Command::End)) {
            self.transport.abort(&error.to_string());
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Does what rank 0 says with the session of another rank, until the run ends; `source` reads its
/// samples, where rank 0 does not send them.
///
/// # Errors
/// Where a step failed, here or on another rank; the other ranks then end too.
pub fn follow(
    session: &mut dyn Session,
    part: &PlannedPrograms,
    with: &dyn Transport,
    source: &dyn Fn() -> Option<Arc<dyn BatchSource>>,
) -> Result<()> {
    let mut loader: Option<Loader> = None;
    let programs = (0..part.graphs().len()).map(ProgramId::new);
    let inputs: Vec<Vec<InputRead>> = programs.map(|p| inputs_read(part, p)).collect();
    let mut last: Option<StepId> = None;
    loop {
        // The tasks of a session's first worker run while it waits: other ranks need them.
        if let Some(step) = last
            && !with.poll(0, Channel::Control)?
        {
            session.wait(step)?;
            last = None;
        }
        let text = receive_text(with, 0)?;
        let command: Command = serde_json::from_str(&text).map_err(|_| garbled(0))?;
        match command {
            Command::Load { program, batch, number, live } => {
                let loader = match &mut loader {
                    Some(loader) => loader,
                    none => {
                        let source = source().ok_or_else(|| garbled(0))?;
                        none.insert(Loader::start(source, with.rank())?)
                    }
                };
                loader.keep(&live)?;
                let mut slot = session.slot(ProgramId(program))?;
                let rows = rows_of(&inputs[program as usize]);
                *slot.wanted() = Some(Share { rows, number, _alive: Arc::default() });
                loader.begin((number, slot, batch));
            }
            Command::Step { program, lr_bits, counter, loaded } => {
                let program = ProgramId(program);
                let slot = match (&mut loader, loaded) {
                    (Some(loader), Some(number)) => loader.take(number)?,
                    _ => {
                        let mut slot = session.slot(program)?;
                        for InputRead { name, bytes, .. } in &inputs[program.index()] {
                            let input = slot.input(name)?;
                            let rows = &mut input.bytes[bytes.clone()];
                            with.receive(0, Channel::Control, &mut [rows])?;
                        }
                        slot
                    }
                };
                let scalars = StepScalars { lr: f64::from_bits(lr_bits), counter };
                last = Some(session.step(program, slot, scalars)?);
            }
            Command::Snapshot { program } => {
                session.snapshot(ProgramId(program))?;
            }
            Command::Read { value, bytes } => {
                let mut sent = Ok(());
                session.read(PersistentId(value), &mut |own| {
                    sent = with.send(0, Channel::Control, &[&own.bytes[bytes.clone()]]);
                })?;
                sent?;
            }
            Command::Write { value } => session.write(PersistentId(value), &mut |to| {
                with.receive(0, Channel::Control, &mut [to.bytes])
            })?,
            Command::Clock => {
                let now = session.counters().activity().elapsed;
                with.send(0, Channel::Control, &[&now.to_le_bytes()])?;
            }
            Command::Trace => send_text(with, 0, &session.take_trace().to_text())?,
            Command::End => return Ok(()),
        }
    }
}

/// Fills slots on a thread of its own while steps run, in the order in which it is told.
struct Loader {
    work: mpsc::Sender<(u64, Slot, Batch)>,
    filled: mpsc::Receiver<(u64, Result<Slot>)>,
    /// The batches that are being read, in order.
    begun: VecDeque<u64>,
}

impl Loader {
    fn start(source: Arc<dyn BatchSource>, rank: u32) -> Result<Self> {
        let (work, todo) = mpsc::channel::<(u64, Slot, Batch)>();
        let (done, filled) = mpsc::channel();
        let name = format!("dahl-loader-{rank}");
        let body = move || {
            for (number, slot, batch) in todo {
                if done.send((number, source.fill(slot, &batch))).is_err() {
                    return;
                }
            }
        };
        spawn(&name, body).map_err(|e| Error::thread(&name, e))?;
        Ok(Self { work, filled, begun: VecDeque::new() })
    }

    fn begin(&mut self, work: (u64, Slot, Batch)) {
        self.begun.push_back(work.0);
        // Where the thread has gone, waiting for it tells.
        drop(self.work.send(work));
    }

    /// The next batch that is filled.
    fn next(&mut self) -> Result<(u64, Slot)> {
        self.begun.pop_front();
        let gone = || Error::Task {
            task: "of the loader".to_owned(),
            message: "it ended early".to_owned(),
        };
        let (number, slot) = self.filled.recv().map_err(|_| gone())?;
        Ok((number, slot?))
    }

    /// Gives the slots of batches back that no step will use.
    fn keep(&mut self, live: &[u64]) -> Result<()> {
        while self.begun.front().is_some_and(|number| !live.contains(number)) {
            self.next()?;
        }
        Ok(())
    }

    /// The slot of a batch.
    fn take(&mut self, number: u64) -> Result<Slot> {
        loop {
            match self.next()? {
                (found, slot) if found == number => return Ok(slot),
                _ => {}
            }
        }
    }
}

/// All ranks of a plan in this process: rank 0 on the thread that calls the session, each other
/// rank on a thread of its own. `prepare` makes the session of a part of the plan.
///
/// # Errors
/// Where a part cannot be prepared, or there is no thread for a rank.
pub fn in_process(
    planned: &PlannedPrograms,
    prepare: impl Fn(&PlannedPrograms, Arc<dyn Transport>) -> Result<Box<dyn Session>>
    + Clone
    + Send
    + 'static,
) -> Result<Box<dyn Session>> {
    let mut transports = InProcess::new(planned.placement.ranks()).into_iter();
    let first: Arc<dyn Transport> = Arc::new(transports.next().expect("there is a rank 0"));
    let own = prepare(&planned.of_rank(0)?, first.clone())?;
    let (mut threads, mut others) = (Vec::new(), Vec::new());
    let source = SharedSource::default();
    for transport in transports {
        let (part, prepare) = (planned.of_rank(transport.rank())?, prepare.clone());
        let (ready, prepared) = mpsc::channel();
        let source = source.clone();
        let name = format!("dahl-rank-{}", transport.rank());
        let body = move || {
            let transport: Arc<dyn Transport> = Arc::new(transport);
            let mut session = match prepare(&part, transport.clone()) {
                Ok(session) => session,
                Err(error) => return drop(ready.send(Err(error))),
            };
            if ready.send(Ok((session.counters(), session.allocated()))).is_err() {
                return;
            }
            let followed = catch_unwind(AssertUnwindSafe(|| {
                follow(&mut *session, &part, &*transport, &|| source.get().cloned())
            }));
            match followed {
                Ok(Ok(())) => {}
                Ok(Err(error)) => transport.abort(&error.to_string()),
                Err(_) => transport.abort("its thread panicked"),
            }
        };
        let started = spawn(&name, body).map_err(|e| Error::thread(&name, e));
        let of_rank = started.and_then(|thread| {
            threads.push(thread);
            prepared.recv().unwrap_or_else(|_| Err(garbled(0)))
        });
        match of_rank {
            Ok(of_rank) => others.push(of_rank),
            Err(error) => {
                // The ranks that wait for a command end.
                first.abort(&error.to_string());
                threads.into_iter().for_each(|thread| drop(thread.join()));
                return Err(error);
            }
        }
    }
    let mut leader = Leader::new(own, planned, first, others)?;
    (leader.threads, leader.source) = (threads, source);
    Ok(Box::new(leader))
}
