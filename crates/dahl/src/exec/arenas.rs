//! The memory of a plan on the host, and its calls on it: what an engine needs beside an order.
//!
//! # Invariants
//! - A [`Buffer`]'s bytes are reached only through [`Operand`]s handed to calls, through one
//!   exclusive lease at a time, and while no task runs.
//! - The plan's edges order any two tasks whose operands overlap where one of
//!   them writes; an engine starts a task only when its edges are met.
#![expect(unsafe_code, reason = "the module that hands out disjoint views of arenas")]

use super::{NamedTensors, TensorMut, TensorRef};
use crate::error::{Error, MemoryLimit, Result};
use crate::graph::{Graph, Value};
use crate::ops::copy::CloneAny;
use crate::ops::{Op, ViewMap};
use crate::plan::{
    ALIGN, CallSpec, Does, Home, Move, OperandSpec, PlannedPrograms, Space, SpaceKind, Storage,
    Task, TaskGraph, Use,
};
use crate::units::{Bytes, PersistentId, ProgramId, SpaceId, TaskId, ValueId};
use dahl_kernels::{Call, Isa, MAX_AXES, Operand, Piece, Region, StepScalars};
use std::cell::UnsafeCell;
use std::collections::TryReserveError;
use std::ops::Range;
use std::sync::Arc;

#[repr(C, align(64))]
struct Line(UnsafeCell<[u8; ALIGN]>);

/// Zeroed, aligned bytes that tasks share.
pub(crate) struct Buffer {
    lines: Box<[Line]>,
    len: usize,
}

// SAFETY: see the module's invariants.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Fails where there is not so much memory.
    pub(crate) fn new(len: usize) -> Result<Arc<Self>, TryReserveError> {
        // At least one line, so that the address of nothing is aligned too.
        let count = len.div_ceil(ALIGN).max(1);
        let mut lines = Vec::new();
        lines.try_reserve_exact(count)?;
        lines.extend((0..count).map(|_| Line(UnsafeCell::new([0; ALIGN]))));
        Ok(Arc::new(Self { lines: lines.into(), len }))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn base(&self) -> *mut u8 {
        UnsafeCell::raw_get(self.lines.as_ptr().cast::<UnsafeCell<[u8; ALIGN]>>()).cast()
    }

    /// A part of the buffer.
    ///
    /// # Safety
    /// No task writes to it while the slice lives.
    pub(crate) unsafe fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: within the allocation; the caller excludes writers.
        unsafe { std::slice::from_raw_parts(self.base().add(offset), len) }
    }

    /// A part of the buffer, to be written.
    ///
    /// # Safety
    /// Nothing else reads or writes it while the slice lives.
    #[expect(clippy::mut_from_ref, reason = "the caller promises exclusive access")]
    pub(crate) unsafe fn slice_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: within the allocation; the caller promises exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.base().add(offset), len) }
    }
}

/// The memory of a session in one space.
#[derive(Clone)]
pub(crate) struct SpaceArenas {
    pub(crate) persistent: Arc<Buffer>,
    pub(crate) work: Arc<Buffer>,
    pub(crate) inputs: Vec<Arc<Buffer>>,
    /// By program and slot.
    pub(crate) outputs: Vec<Vec<Arc<Buffer>>>,
}

/// All memory of a session: the plan's, allocated once.
pub(crate) struct Arenas {
    /// Empty for the spaces of other ranks.
    pub(crate) spaces: Vec<SpaceArenas>,
    /// The space that inputs are loaded into and outputs are read from.
    first: SpaceId,
    /// By worker; lanes have none.
    pub(crate) scratch: Vec<Arc<Buffer>>,
}

impl Arenas {
    /// Fails where there is not so much memory.
    pub(crate) fn new(planned: &PlannedPrograms) -> Result<Self, TryReserveError> {
        let memory = &planned.memory;
        let many = |count: usize, bytes: usize| (0..count).map(|_| Buffer::new(bytes)).collect();
        let spaces = memory.spaces().map(|space| -> Result<_, TryReserveError> {
            if !planned.has(space) {
                let (persistent, work) = (Buffer::new(0)?, Buffer::new(0)?);
                return Ok(SpaceArenas {
                    persistent,
                    work,
                    inputs: Vec::new(),
                    outputs: Vec::new(),
                });
            }
            let outputs = memory.programs.iter().map(|p| (p.output_slots, p.spaces[space.index()]));
            let outputs = outputs.map(|(slots, of)| many(slots, of.outputs));
            Ok(SpaceArenas {
                persistent: Buffer::new(memory.persistent_bytes[space.index()])?,
                work: Buffer::new(memory.work(space))?,
                inputs: many(memory.input_slots, memory.input_slot(space))?,
                outputs: outputs.collect::<Result<_, _>>()?,
            })
        });
        let spaces = spaces.collect::<Result<_, _>>()?;
        Ok(Self { spaces, first: planned.first_space(), scratch: scratch(planned)? })
    }

    /// The same persistent values, inputs and outputs with the work memory of another placement.
    pub(crate) fn with_work_of(&self, planned: &PlannedPrograms) -> Result<Self, TryReserveError> {
        let work = |(s, of): (usize, &SpaceArenas)| -> Result<_, TryReserveError> {
            let space = SpaceId::new(s);
            let bytes = if planned.has(space) { planned.memory.work(space) } else { 0 };
            Ok(SpaceArenas { work: Buffer::new(bytes)?, ..of.clone() })
        };
        let spaces = self.spaces.iter().enumerate().map(work).collect::<Result<_, _>>()?;
        Ok(Self { spaces, first: self.first, scratch: scratch(planned)? })
    }

    /// What another placement has too: all but the work memory and scratch.
    pub(crate) fn kept(&self) -> Result<Self, TryReserveError> {
        let nothing = Buffer::new(0)?;
        let without = |of: &SpaceArenas| SpaceArenas { work: nothing.clone(), ..of.clone() };
        let spaces = self.spaces.iter().map(without);
        Ok(Self { spaces: spaces.collect(), first: self.first, scratch: Vec::new() })
    }

    /// The space that inputs are loaded into and outputs are read from.
    pub(crate) fn first(&self) -> &SpaceArenas {
        &self.spaces[self.first.index()]
    }

    /// The bytes of all buffers of a space.
    pub(crate) fn allocated_in(&self, planned: &PlannedPrograms, space: SpaceId) -> usize {
        let of = &self.spaces[space.index()];
        let slots = of.inputs.iter().chain(of.outputs.iter().flatten());
        let all = [&of.persistent, &of.work].into_iter().chain(slots);
        let workers = planned.placement.space_of.iter().zip(&self.scratch);
        let scratch = workers.filter(|(own, _)| **own == space).map(|(_, buffer)| buffer);
        all.chain(scratch).map(|b| b.len()).sum()
    }

    /// The bytes of all buffers.
    pub(crate) fn allocated(&self) -> usize {
        let of = |of: &SpaceArenas| {
            let slots = of.inputs.iter().chain(of.outputs.iter().flatten());
            [&of.persistent, &of.work].into_iter().chain(slots).map(|b| b.len()).sum::<usize>()
        };
        self.spaces.iter().map(of).chain(self.scratch.iter().map(|b| b.len())).sum()
    }

    /// The parts of the bytes of each replica of a persistent value: those of the replica, and
    /// those of the whole value.
    fn replicas(
        &self,
        planned: &PlannedPrograms,
        id: PersistentId,
    ) -> impl Iterator<Item = (&Buffer, Range<usize>, Range<usize>)> {
        let meta = planned.programs().store.get(id).meta;
        let memory = &planned.memory;
        let row = meta.bytes() / meta.shape.axes().first().copied().unwrap_or(1).max(1);
        let own = memory
            .replicas
            .iter()
            .zip(&memory.persistent)
            .filter(move |(r, _)| r.value == id && planned.has(r.space));
        let parts: Vec<_> = own
            .map(|(replica, &at)| {
                let rows = match replica.region.rank() {
                    0 => 0..1,
                    _ => replica.region.range(0),
                };
                let whole = rows.start * row..rows.end * row;
                (replica.space, at..at + whole.len(), whole)
            })
            .collect();
        parts
            .into_iter()
            .map(|(space, own, whole)| (&*self.spaces[space.index()].persistent, own, whole))
    }

    /// Reads a persistent value.
    ///
    /// # Safety
    /// No task runs.
    pub(crate) unsafe fn read(
        &self,
        planned: &PlannedPrograms,
        id: PersistentId,
        read: &mut dyn FnMut(TensorRef<'_>),
    ) {
        let meta = planned.programs().store.get(id).meta;
        let mut replicas: Vec<_> = self.replicas(planned, id).collect();
        let whole = replicas.iter().position(|(.., part)| part.len() == meta.bytes());
        // SAFETY: the caller excludes tasks.
        let bytes = |(buffer, own, _): &(&Buffer, Range<usize>, Range<usize>)| unsafe {
            std::slice::from_raw_parts(buffer.slice(own.start, own.len()).as_ptr(), own.len())
        };
        if let Some(at) = whole {
            return read(TensorRef { meta, bytes: bytes(&replicas[at]) });
        }
        let mut memory = vec![0u64; meta.bytes().div_ceil(8)];
        let all = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut memory)[..meta.bytes()];
        replicas.iter_mut().for_each(|part| all[part.2.clone()].copy_from_slice(bytes(part)));
        read(TensorRef { meta, bytes: all });
    }

    /// Writes a persistent value, to all spaces that have it.
    ///
    /// # Safety
    /// No task runs, and nothing else reads or writes the value.
    pub(crate) unsafe fn write(
        &self,
        planned: &PlannedPrograms,
        id: PersistentId,
        write: &mut dyn FnMut(TensorMut<'_>) -> Result<()>,
    ) -> Result<()> {
        let meta = planned.programs().store.get(id).meta;
        let replicas: Vec<_> = self.replicas(planned, id).collect();
        if let [(buffer, own, _)] = &replicas[..]
            && own.len() == meta.bytes()
        {
            // SAFETY: the caller's promise.
            let bytes = unsafe { buffer.slice_mut(own.start, own.len()) };
            return write(TensorMut { meta, bytes });
        }
        let mut memory = vec![0u64; meta.bytes().div_ceil(8)];
        let all = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut memory)[..meta.bytes()];
        // What is not written stays as it was.
        // SAFETY: the caller's promise.
        unsafe { self.read(planned, id, &mut |value| all.copy_from_slice(value.bytes)) };
        write(TensorMut { meta, bytes: all })?;
        for (buffer, own, part) in replicas {
            // SAFETY: the caller's promise.
            unsafe { buffer.slice_mut(own.start, own.len()) }.copy_from_slice(&all[part]);
        }
        Ok(())
    }

    /// The calls of a program's tasks, in order, on these bytes.
    pub(crate) fn calls(
        &self,
        planned: &PlannedPrograms,
        program: ProgramId,
    ) -> Vec<Box<[PreparedCall]>> {
        let (graph, TaskGraph { tasks, layout, .. }) = planned.program(program);
        let output_slots = planned.memory.programs[program.index()].output_slots;
        // By slots of inputs and outputs, where an operand is in one.
        let in_slots = |space, root, region: &Region| {
            let home = layout.storages[layout.find(space, root, region)].home;
            matches!(home, Home::Input | Home::Output)
        };
        let combinations = |in_slots: bool| {
            let count = if in_slots { planned.memory.input_slots * output_slots } else { 1 };
            (0..count).map(|c| Slots { input: c / output_slots, output: c % output_slots })
        };
        let call = |task: &Task, spec: &CallSpec| {
            let node = graph.node(spec.node);
            let slotted = |o: &OperandSpec| in_slots(task.space, o.root, &o.root_region);
            let operands = combinations(spec.operands.iter().any(slotted)).map(|slots| {
                let of = |o| self.operand(planned, program, (task.space, o), slots);
                spec.operands.iter().map(of).collect()
            });
            PreparedCall {
                op: node.op.clone(),
                variant: node.variant,
                inputs: spec.operands.iter().filter(|o| o.usage == Use::Read).count(),
                piece: spec.piece.clone(),
                operands: operands.collect(),
                output_slots,
                scratch: spec.scratch,
            }
        };
        let copy = |of: &Move, &(root, region): &(ValueId, Region)| {
            let spec =
                |usage| OperandSpec { value: root, region, root, root_region: region, usage };
            let ends = [(of.from, spec(Use::Read)), (of.to, spec(Use::Write))];
            let slotted = ends.iter().any(|(space, _)| in_slots(*space, root, &region));
            let operands = combinations(slotted).map(|slots| {
                let of = |(space, o): &(SpaceId, OperandSpec)| {
                    self.operand(planned, program, (*space, o), slots)
                };
                ends.iter().map(of).collect()
            });
            PreparedCall {
                op: Arc::new(CloneAny),
                variant: 0,
                inputs: 1,
                piece: Piece { out: region, sum: 0..0 },
                operands: operands.collect(),
                output_slots,
                scratch: 0,
            }
        };
        let task = |task: &Task| match &task.does {
            Does::Calls(calls) => calls.iter().map(|spec| call(task, spec)).collect(),
            Does::Move(of) => of.parts.iter().map(|part| copy(of, part)).collect(),
            Does::Send(_) | Does::Receive(_) | Does::Elsewhere => Box::default(),
        };
        tasks.iter().map(task).collect()
    }

    /// The buffer that a storage lies in.
    pub(super) fn buffer(
        &self,
        program: ProgramId,
        storage: &Storage,
        slots: Slots,
    ) -> &Arc<Buffer> {
        let own = &self.spaces[storage.space.index()];
        match storage.home {
            Home::Input => &own.inputs[slots.input],
            Home::Output => &own.outputs[program.index()][slots.output],
            Home::Persistent(_) => &own.persistent,
            Home::Work => &own.work,
        }
    }

    /// The operand of a task's call in a space.
    fn operand(
        &self,
        planned: &PlannedPrograms,
        program: ProgramId,
        (space, spec): (SpaceId, &OperandSpec),
        slots: Slots,
    ) -> Operand {
        let (graph, TaskGraph { layout, .. }) = planned.program(program);
        let id = layout.find(space, spec.root, &spec.root_region);
        let storage = &layout.storages[id];
        let offset = planned.memory.programs[program.index()].offsets[id];
        let buffer = self.buffer(program, storage, slots);
        let meta = graph.value(spec.value).meta;
        let size = meta.dtype.size();
        let (strides, shift) = strides_of(graph, spec.value);
        // A storage that holds a part of the first axis starts that much later.
        let root = graph.value(spec.root).meta.shape;
        let skipped =
            if root.rank() == 0 { 0 } else { storage.region.range(0).start * root.strides()[0] };
        let starts = spec.region.starts();
        let inside: usize = (0..meta.shape.rank()).map(|a| starts[a] * strides[a]).sum();
        let elements = if spec.region.is_empty() { 0 } else { shift + inside - skipped };
        let at = offset + elements * size;
        let last: usize = if spec.region.is_empty() {
            0
        } else {
            let reach: usize =
                (0..meta.shape.rank()).map(|a| (spec.region.len(a) - 1) * strides[a]).sum();
            (reach + 1) * size
        };
        let end = offset.checked_add(storage.bytes).expect("an offset within memory");
        assert!(end <= buffer.len(), "a storage lies in its buffer");
        assert!(at + last <= end, "{} lies in its storage", spec.value);
        // SAFETY: the region's last element was just shown to lie within the
        // buffer, which the session keeps alive; offsets are aligned.
        unsafe {
            Operand::from_raw(buffer.base().add(at), meta.dtype, meta.shape, spec.region, strides)
        }
    }
}

/// The scratch of each worker.
fn scratch(planned: &PlannedPrograms) -> Result<Vec<Arc<Buffer>>, TryReserveError> {
    let bytes = |space| if planned.has(space) { planned.memory.scratch(space) } else { 0 };
    let of = |space: &SpaceId| Buffer::new(bytes(*space));
    planned.placement.space_of.iter().map(of).collect()
}

/// Which slots of inputs and outputs a step has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The slot of inputs, of all programs.
    pub input: usize,
    /// The slot of outputs, of the step's program.
    pub output: usize,
}

/// A call with everything that does not change from step to step.
pub struct PreparedCall {
    op: Arc<dyn Op>,
    variant: usize,
    inputs: usize,
    piece: Piece,
    /// By input slot and output slot; one entry where the call touches no slot.
    operands: Vec<Box<[Operand]>>,
    output_slots: usize,
    scratch: usize,
}

impl PreparedCall {
    /// The bytes of scratch that it needs, from a multiple of [`ALIGN`] on.
    pub fn scratch(&self) -> usize {
        self.scratch
    }

    /// Runs the kernel. The slots are of the plan, the scratch has [`scratch`](Self::scratch) bytes.
    ///
    /// # Safety
    /// While it runs, nothing else writes what it reads, nor reads or writes what it writes, and
    /// the memory that it was prepared on is there: the plan's edges are met. The instruction set is
    /// available.
    #[inline]
    pub unsafe fn run(&self, slots: Slots, scalars: &StepScalars, scratch: &mut [u8], isa: Isa) {
        let operands = match &self.operands[..] {
            [only] => only,
            all => &all[slots.input * self.output_slots + slots.output],
        };
        // SAFETY: the caller's promise.
        let call = unsafe { Call::new(operands, self.inputs, &self.piece, scalars, scratch) };
        self.op.run(self.variant, &mut call.on(isa));
    }
}

/// Planned programs on memory of their own, ready to run.
///
/// An engine that runs one task at a time needs nothing else: `&mut self` excludes whatever else
/// could touch the memory. `tests/it/outside_engine.rs` is such an engine. One that runs several
/// at the same time shares `&self` among its threads while a step is under way, and keeps the
/// promise of [`PreparedCall::run`].
pub struct PreparedPrograms {
    planned: PlannedPrograms,
    arenas: Arenas,
    /// By program and task.
    calls: Vec<Vec<Box<[PreparedCall]>>>,
}

impl PreparedPrograms {
    /// Allocates the plan's memory, zeroed, and prepares all calls.
    ///
    /// # Errors
    /// Where the plan's kernels need other instructions, or there is not so much memory.
    pub fn new(planned: &PlannedPrograms) -> Result<Self> {
        check_machine(planned)?;
        if planned.placement.ranks() > 1 {
            let expected = "a plan of one rank: messages need a transport";
            return Err(Error::plan("spaces", expected, planned.placement.ranks()));
        }
        let arenas =
            Arenas::new(planned).map_err(|_| planned.too_large(MemoryLimit::Unknown, None))?;
        let programs = (0..planned.graphs().len()).map(ProgramId::new);
        let calls = programs.map(|program| arenas.calls(planned, program)).collect();
        Ok(Self { planned: planned.clone(), arenas, calls })
    }

    /// What was prepared.
    pub fn planned(&self) -> &PlannedPrograms {
        &self.planned
    }

    /// The bytes of all memory.
    pub fn allocated(&self) -> Bytes {
        Bytes(self.arenas.allocated() as u64)
    }

    /// The bytes of all memory of a space.
    pub fn allocated_in(&self, space: SpaceId) -> Bytes {
        Bytes(self.arenas.allocated_in(&self.planned, space) as u64)
    }

    /// A slot of inputs: [`input_tensors`] says what lies where.
    pub fn input(&mut self, slot: usize) -> &mut [u8] {
        let buffer = &self.arenas.first().inputs[slot];
        // SAFETY: `&mut self` excludes all calls and slices.
        unsafe { buffer.slice_mut(0, buffer.len()) }
    }

    /// A slot of a program's outputs: [`output_tensors`] says what lies where.
    pub fn output(&mut self, program: ProgramId, slot: usize) -> &[u8] {
        let buffer = &self.arenas.first().outputs[program.index()][slot];
        // SAFETY: `&mut self` excludes all calls and slices.
        unsafe { buffer.slice(0, buffer.len()) }
    }

    /// Reads a persistent value.
    pub fn read(&mut self, id: PersistentId, read: &mut dyn FnMut(TensorRef<'_>)) {
        // SAFETY: `&mut self` excludes all calls and slices.
        unsafe { self.arenas.read(&self.planned, id, read) };
    }

    /// Writes a persistent value, in all spaces that have it.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn write(
        &mut self,
        id: PersistentId,
        write: &mut dyn FnMut(TensorMut<'_>) -> Result<()>,
    ) -> Result<()> {
        // SAFETY: `&mut self` excludes all calls and slices.
        unsafe { self.arenas.write(&self.planned, id, write) }
    }

    /// The calls of a task, in order.
    pub fn calls(&self, program: ProgramId, task: TaskId) -> &[PreparedCall] {
        &self.calls[program.index()][task.index()]
    }

    /// Runs a task, alone.
    pub fn run(&mut self, program: ProgramId, task: TaskId, slots: Slots, scalars: &StepScalars) {
        let worker = self.planned.program(program).1.task(task).worker.index();
        // Moves need none.
        let worker = worker.min(self.arenas.scratch.len() - 1);
        for call in self.calls(program, task) {
            // SAFETY: `&mut self` excludes all other calls and slices, of the scratch too.
            unsafe {
                let scratch = self.arenas.scratch[worker].slice_mut(0, call.scratch);
                call.run(slots, scalars, scratch, self.planned.numerics.isa);
            }
        }
    }
}

/// Refuses a plan whose kernels need instructions that this machine does not have, or whose spaces
/// are no host memories of this process.
pub(crate) fn check_machine(planned: &PlannedPrograms) -> Result<()> {
    let isa = planned.numerics.isa;
    if !isa.is_available() {
        let expected = format!("instructions of this machine, such as {}", Isa::detect());
        return Err(Error::plan("numerics", expected, isa));
    }
    let rank = planned.rank();
    let of_others = |space: &Space| rank.is_some_and(|rank| space.rank != rank);
    let is_host = |space: &Space| matches!(space.kind, SpaceKind::Host(_));
    let is_here = |space: &&Space| match rank {
        Some(_) => of_others(space) || is_host(space),
        None => space.rank == 0 && is_host(space),
    };
    match planned.placement.spaces.iter().find(|space| !is_here(space)) {
        Some(space) => {
            let expected =
                "host memories, such as host and host1: devices can be simulated, not run";
            Err(Error::plan("spaces", expected, space.to_string()))
        }
        None => Ok(()),
    }
}

/// Where the inputs of a program lie in a slot.
pub fn input_tensors(planned: &PlannedPrograms, program: ProgramId) -> NamedTensors {
    let at = |(id, value): (ValueId, &Value)| {
        (value.name.clone(), value.meta, offset(planned, program, id))
    };
    // A rank has no memory for inputs that none of its tasks reads.
    let (graph, tasks) = planned.program(program);
    let stored =
        |id: ValueId| !tasks.layout.of_value[planned.first_space().index()][id.index()].is_empty();
    graph.inputs().filter(|(id, _)| stored(*id)).map(at).collect()
}

/// Where the outputs of a program lie in a slot.
pub fn output_tensors(planned: &PlannedPrograms, program: ProgramId) -> NamedTensors {
    let graph = planned.program(program).0;
    if !planned.has(planned.placement.output()) {
        return NamedTensors::default();
    }
    let roots = graph.roots();
    let at = |(name, id): &(String, ValueId)| {
        let meta = graph.value(*id).meta;
        let (strides, shift) = strides_of(graph, *id);
        assert_eq!(strides, meta.shape.strides(), "{name}: contiguous outputs");
        let start = offset(planned, program, roots[id.index()].value);
        (name.clone(), meta, start + shift * meta.dtype.size())
    };
    graph.fetches.iter().map(at).collect()
}

/// Where the first storage of a value begins.
fn offset(planned: &PlannedPrograms, program: ProgramId, root: ValueId) -> usize {
    let space = planned.first_space();
    let layout = &planned.program(program).1.layout;
    let first = layout.of_value[space.index()][root.index()].start;
    planned.memory.programs[program.index()].offsets[first]
}

/// The strides of a value in the bytes of the value it looks at, and how many
/// elements it starts after them.
fn strides_of(graph: &Graph, value: ValueId) -> ([usize; MAX_AXES], usize) {
    let maker = graph.nodes.iter().find(|n| n.outputs.contains(&value) && n.op.view().is_some());
    let shape = graph.value(value).meta.shape;
    let Some(node) = maker else {
        return (shape.strides(), 0);
    };
    let (base, shift) = strides_of(graph, node.inputs[0]);
    match node.op.view().expect("a view") {
        ViewMap::Reshape => {
            let below = graph.value(node.inputs[0]).meta.shape;
            assert_eq!(base, below.strides(), "a reshape of contiguous elements");
            (shape.strides(), shift)
        }
        ViewMap::Slice { start } => (base, shift + start * base[0]),
        ViewMap::Select { axis, index } => {
            let mut strides = [0; MAX_AXES];
            let kept = (0..=shape.rank()).filter(|a| *a != axis);
            for (to, from) in kept.enumerate() {
                strides[to] = base[from];
            }
            (strides, shift + index * base[axis])
        }
    }
}
