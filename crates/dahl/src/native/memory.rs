//! The bytes of a session, and operands that point into them.
//!
//! # Invariants
//! - A [`Buffer`]'s bytes are reached only through [`Operand`]s handed to
//!   tasks, through a [`Lease`] (one at a time a buffer) and through the
//!   session's `&mut self` while no task runs.
//! - The plan's edges order any two tasks whose operands overlap where one of
//!   them writes; the engine starts a task only when its edges are met.
#![expect(unsafe_code, reason = "the module that hands out disjoint views of arenas")]

use super::sync::{AtomicBool, Ordering};
use crate::exec::Lent;
use crate::graph::Graph;
use crate::ops::ViewMap;
use crate::plan::{ALIGN, Home, Layout, Memory, OperandSpec, ProgramMemory, Storage};
use crate::units::ValueId;
use dahl_kernels::{MAX_AXES, Operand};
use std::cell::UnsafeCell;
use std::collections::TryReserveError;
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

/// Tells whether a lease that was given its [`Held`] is still alive. A flag and
/// not `Arc::strong_count`, which orders nothing: the reads under the lease
/// could then still be going on while the engine writes.
pub(crate) struct Token(Arc<AtomicBool>);

/// Lives as long as a lease.
pub(crate) struct Held(Arc<AtomicBool>);

impl Token {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// Whether it is held. Once it says no, everything that was done under the
    /// lease has happened before.
    pub(crate) fn is_held(&self) -> bool {
        // Acquire: pairs with the Release of `Held`'s drop.
        self.0.load(Ordering::Acquire)
    }

    /// Holds it; it must not be held.
    pub(crate) fn hold(&self) -> Held {
        assert!(!self.is_held(), "one lease at a time");
        self.0.store(true, Ordering::Relaxed);
        Held(self.0.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Exclusive use of a buffer, handed to whoever fills or reads a slot.
pub(crate) struct Lease {
    buffer: Arc<Buffer>,
    /// Lives as long as the lease, so that the engine can see whether it does.
    _held: Held,
}

impl Lease {
    /// # Safety
    /// No other lease of the buffer lives, and no task uses it until this one
    /// is dropped.
    pub(crate) unsafe fn new(buffer: Arc<Buffer>, held: Held) -> Self {
        Self { buffer, _held: held }
    }
}

impl Lent for Lease {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the lease is exclusive.
        unsafe { self.buffer.slice(0, self.buffer.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the lease is exclusive.
        unsafe { self.buffer.slice_mut(0, self.buffer.len()) }
    }
}

/// All memory of a session: the plan's, allocated once.
pub(crate) struct Buffers {
    pub(crate) persistent: Arc<Buffer>,
    pub(crate) work: Arc<Buffer>,
    pub(crate) inputs: Vec<Arc<Buffer>>,
    /// By program and slot.
    pub(crate) outputs: Vec<Vec<Arc<Buffer>>>,
    pub(crate) scratch: Vec<Arc<Buffer>>,
}

impl Buffers {
    pub(crate) fn new(memory: &Memory) -> Result<Self, TryReserveError> {
        let many = |count: usize, bytes: usize| (0..count).map(|_| Buffer::new(bytes)).collect();
        let outputs = memory.programs.iter().map(|p| many(p.output_slots, p.outputs));
        Ok(Self {
            persistent: Buffer::new(memory.persistent_bytes)?,
            work: Buffer::new(memory.work())?,
            inputs: many(memory.input_slots, memory.input_slot())?,
            outputs: outputs.collect::<Result<_, _>>()?,
            scratch: many(memory.workers, memory.scratch())?,
        })
    }

    /// All but the work memory and scratch, which are those of another placement.
    pub(crate) fn with_work_of(&self, memory: &Memory) -> Result<Self, TryReserveError> {
        let scratch = (0..memory.workers).map(|_| Buffer::new(memory.scratch()));
        Ok(Self {
            persistent: self.persistent.clone(),
            work: Buffer::new(memory.work())?,
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            scratch: scratch.collect::<Result<_, _>>()?,
        })
    }

    /// What another placement has too: all but the work memory and scratch.
    pub(crate) fn kept(&self) -> Result<Self, TryReserveError> {
        let nothing = Buffer::new(0)?;
        Ok(Self {
            persistent: self.persistent.clone(),
            work: nothing,
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            scratch: Vec::new(),
        })
    }

    /// The bytes of all buffers.
    pub(crate) fn allocated(&self) -> usize {
        let shared = [&self.persistent, &self.work].into_iter();
        let slots = self.inputs.iter().chain(self.outputs.iter().flatten());
        shared.chain(slots).chain(&self.scratch).map(|b| b.len()).sum()
    }

    /// The buffer and offset of a storage.
    pub(crate) fn locate(
        &self,
        program: usize,
        memory: &ProgramMemory,
        storage: (usize, &Storage),
        (input_slot, output_slot): (usize, usize),
    ) -> (&Arc<Buffer>, usize) {
        let buffer = match storage.1.home {
            Home::Input => &self.inputs[input_slot],
            Home::Output => &self.outputs[program][output_slot],
            Home::Persistent(_) => &self.persistent,
            Home::Work => &self.work,
        };
        (buffer, memory.offsets[storage.0])
    }

    /// The operand of a task's call.
    pub(crate) fn operand(
        &self,
        program: usize,
        graph: &Graph,
        layout: &Layout,
        memory: &ProgramMemory,
        spec: &OperandSpec,
        slots: (usize, usize),
    ) -> Operand {
        let id = layout.find(spec.root, &spec.root_region);
        let storage = &layout.storages[id];
        let (buffer, offset) = self.locate(program, memory, (id, storage), slots);
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

/// The strides of a value in the bytes of the value it looks at, and how many
/// elements it starts after them.
pub(super) fn strides_of(graph: &Graph, value: ValueId) -> ([usize; MAX_AXES], usize) {
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
