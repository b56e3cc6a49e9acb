//! One session over several ranks: rank 0 leads, the others follow.
//!
//! Each rank has a session of its own for its part of the plan. What depends on a clock, a signal
//! or a file is decided by whoever calls the [`Leader`], on rank 0: each call becomes a command to
//! all other ranks, so every rank does the same at the same step. Samples are sent by rank 0, only
//! the rows that a rank reads, unless each rank can read its share of a batch by itself.

mod command;
mod counters;
mod follow;

pub use follow::follow;

use super::{
    Channel, Counters, Decision, InProcess, NamedTensors, Session, Share, Slot, Snapshot, StepId,
    TensorMut, TensorRef, Transport, input_tensors,
};
use crate::error::{Error, Result};
use crate::graph::Kind;
use crate::ops::Meta;
use crate::os::threads::{JoinHandle, spawn};
use crate::plan::PlannedPrograms;
use crate::trace::{Event, Trace};
use crate::units::{Bytes, PersistentId, ProgramId, ValueId};
use command::Command;
use counters::OfRanks;
use dahl_kernels::StepScalars;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak, mpsc};

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

/// The source of samples of the ranks of this process, which rank 0 sets.
type SharedSource = Arc<OnceLock<Arc<dyn BatchSource>>>;

/// The part of an input that a rank reads.
#[derive(Clone, Debug)]
struct InputRead {
    name: String,
    rows: Range<usize>,
    bytes: Range<usize>,
}

/// The samples that a rank reads of any of the inputs.
fn rows_of(inputs: &[InputRead]) -> Range<usize> {
    let start = inputs.iter().map(|input| input.rows.start).min().unwrap_or(0);
    start..inputs.iter().map(|input| input.rows.end).max().unwrap_or(start)
}

/// The inputs that the tasks of a part of a plan read, by program.
fn inputs_of(part: &PlannedPrograms) -> Vec<Vec<InputRead>> {
    (0..part.graphs().len()).map(|p| inputs_read(part, ProgramId::new(p))).collect()
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
fn bytes_of(meta: Meta, rows: &Range<usize>) -> Range<usize> {
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
    /// What a slot of each program has, on rank 0.
    slots: Vec<NamedTensors>,
    /// By program: whether its last snapshot is still held.
    lent: Vec<Weak<()>>,
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
        let inputs = (0..transport.ranks()).map(|rank| Ok(inputs_of(&planned.of_rank(rank)?)));
        let inputs = inputs.collect::<Result<_>>()?;
        let programs = (0..planned.graphs().len()).map(ProgramId::new);
        let slots: Vec<NamedTensors> =
            programs.map(|program| input_tensors(planned, program)).collect();
        let lent = slots.iter().map(|_| Weak::new()).collect();
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
            slots,
            lent,
            source: SharedSource::default(),
            announced: Vec::new(),
            numbered: 0,
            threads,
        })
    }

    fn others(&self) -> Range<u32> {
        1..self.transport.ranks()
    }

    /// Sends a command. If that fails, the run ends on all ranks.
    fn command(&self, to: u32, command: &Command, payload: &[&[u8]]) -> Result<()> {
        self.or_end(command::send(&*self.transport, to, command, payload))
    }

    fn command_all(&self, command: &Command) -> Result<()> {
        self.others().try_for_each(|rank| self.command(rank, command, &[]))
    }

    /// Ends the run on all ranks after an error: the others have done what this rank has not.
    fn or_end<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.transport.abort(&error.to_string()))
    }

    /// Refuses a program that is unknown, or whose snapshot is held, before any rank hears of it.
    fn check_program(&self, program: ProgramId) -> Result<()> {
        let Some(lent) = self.lent.get(program.index()) else {
            let expected = format!("one of {} programs", self.lent.len());
            return Err(Error::config("program", expected, program));
        };
        if lent.strong_count() > 0 {
            let expected = "the last snapshot to be dropped first";
            return Err(Error::config("snapshot", expected, "it is still held"));
        }
        Ok(())
    }

    /// Refuses a slot of another program or session.
    fn check_slot(&self, program: ProgramId, slot: &Slot) -> Result<()> {
        if self.slots[program.index()] == *slot.tensors() {
            return Ok(());
        }
        let name = &self.planned.programs().programs[program.index()].name;
        Err(Error::config("slot", format!("a slot for {name:?}"), "one for another program"))
    }

    fn check_value(&self, value: PersistentId) -> Result<Meta> {
        let store = &self.planned.programs().store;
        if value.index() >= store.values.len() {
            let expected = format!("one of {} persistent values", store.values.len());
            return Err(Error::config("value", expected, value));
        }
        Ok(store.get(value).meta)
    }

    /// How far the clock of a rank is behind this one's, in nanoseconds: measured on the shortest
    /// of a few round trips.
    fn behind(&self, rank: u32) -> Result<i64> {
        let mut best: Option<(u64, i64)> = None;
        for _ in 0..8 {
            let sent = self.counters.now();
            self.command(rank, &Command::Clock, &[])?;
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
        self.command(rank, &Command::Trace, &[])?;
        let (text, _) = command::receive_text(&*self.transport, rank)?;
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
        self.check_program(program)?;
        self.check_slot(program, &slot)?;
        let mut slot = slot;
        let loaded = slot.wanted().as_ref().map(|share| share.number);
        let (lr_bits, counter) = (scalars.lr.to_bits(), scalars.counter);
        let command = Command::Step { program: program.0, lr_bits, counter, loaded };
        for rank in self.others() {
            let read = &self.inputs[rank as usize][program.index()];
            let sent = read.iter().filter(|_| loaded.is_none());
            let mut payload: Vec<Vec<u8>> = Vec::new();
            for InputRead { name, bytes, .. } in sent {
                payload.push(slot.input(name)?.bytes[bytes.clone()].to_vec());
            }
            let payload: Vec<&[u8]> = payload.iter().map(|part| &part[..]).collect();
            self.command(rank, &command, &payload)?;
        }
        let step = self.own.step(program, slot, scalars);
        let step = self.or_end(step)?;
        self.last = Some(step);
        Ok(step)
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
        let meta = self.check_value(value)?;
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
            self.command(rank, &Command::Read { value: value.0, bytes: part.clone() }, &[])?;
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
        let meta = self.check_value(value)?;
        let mut all = vec![0u64; meta.bytes().div_ceil(8)];
        let bytes: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut all)[..meta.bytes()];
        self.read(value, &mut |before| bytes.copy_from_slice(before.bytes))?;
        write(TensorMut { meta, bytes })?;
        for rank in self.others() {
            self.command(rank, &Command::Write { value: value.0 }, &[bytes])?;
        }
        let written = self.own.write(value, &mut |to| {
            to.bytes.copy_from_slice(bytes);
            Ok(())
        });
        self.or_end(written)
    }

    fn snapshot(&mut self, program: ProgramId) -> Result<Snapshot> {
        self.check_program(program)?;
        if !self.slots[program.index()].is_empty() {
            let name = &self.planned.programs().programs[program.index()].name;
            let expected = "a program without inputs";
            return Err(Error::config("snapshot", expected, format!("{name:?}")));
        }
        self.command_all(&Command::Snapshot { program: program.0 })?;
        let snapshot = self.own.snapshot(program);
        let mut snapshot = self.or_end(snapshot)?;
        self.lent[program.index()] = snapshot.held();
        Ok(snapshot)
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
        trace.header.lanes = trace.header.workers - self.planned.placement.workers;
        trace.header.units = self.counters.names(&self.planned.placement);
        trace
    }

    fn allocated(&self) -> Bytes {
        Bytes(self.own.allocated().0 + self.allocated.0)
    }

    fn share(&mut self, source: Arc<dyn BatchSource>) -> Result<()> {
        self.source.set(source).map_err(|_| {
            // Ranks may be reading with the first.
            Error::config("datasets", "those that the ranks share already", "others")
        })
    }

    fn announce(&mut self, program: ProgramId, slot: &mut Slot, batch: &Batch) -> Result<()> {
        self.check_program(program)?;
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
                follow(&mut *session, &part, &transport, &|| source.get().cloned())
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
            prepared.recv().unwrap_or_else(|_| {
                let why = "its session could not be prepared".to_owned();
                Err(Error::Rank { rank: others.len() as u32 + 1, why })
            })
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
