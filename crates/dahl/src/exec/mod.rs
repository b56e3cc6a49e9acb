//! The contracts between plans and engines.
//!
//! An [`Engine`] prepares a [`Session`] from planned programs; a session steps
//! through programs over shared values. What every engine on the host needs
//! stands ready: [`PreparedPrograms`], the plan's memory and its calls on it.

mod arenas;
mod messages;
mod ranks;
mod transport;

pub(crate) use arenas::{Arenas, Buffer, check_machine};
pub use arenas::{PreparedCall, PreparedPrograms, Slots, input_tensors, output_tensors};
pub(crate) use messages::PreparedMessage;
pub use ranks::{Batch, BatchSource, Leader, follow, in_process};
pub use transport::{Channel, InProcess, Transport};

use crate::error::{Error, Result};
use crate::ops::Meta;
use crate::plan::PlannedPrograms;
use crate::trace::{Activity, CodeletCount, ShapeCount, Trace, WorkerCounts};
use crate::units::{Bytes, Nanos, PersistentId, ProgramId};
use dahl_kernels::{Element, StepScalars};
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

/// Something that can run plans.
pub trait Engine {
    /// Its name, for traces and reports.
    fn name(&self) -> &'static str;

    /// Allocates the plan's memory and precomputes everything that steps need.
    fn prepare(&self, planned: &PlannedPrograms) -> Result<Box<dyn Session>>;
}

/// A step that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepId(pub u64);

/// Prepared programs over shared values.
///
/// All access to values goes through `&mut self`, so that no sequence of calls
/// can wait for itself; slots and snapshots are owned tokens that may be filled
/// and read on other threads.
pub trait Session {
    /// A free slot for a program's inputs; waits until there is one.
    fn slot(&mut self, program: ProgramId) -> Result<Slot>;

    /// Submits a step. It may return before the step has ended; steps follow
    /// each other as if each ended before the next.
    fn step(&mut self, program: ProgramId, slot: Slot, scalars: StepScalars) -> Result<StepId>;

    /// Waits until a step has ended.
    fn wait(&mut self, step: StepId) -> Result<()>;

    /// Waits for a step and reads one of its outputs. Outputs are kept until
    /// as many further steps of the program were submitted as it has slots.
    fn output(
        &mut self,
        step: StepId,
        name: &str,
        read: &mut dyn FnMut(TensorRef<'_>),
    ) -> Result<()>;

    /// Waits for all steps and reads a persistent value.
    fn read(&mut self, value: PersistentId, read: &mut dyn FnMut(TensorRef<'_>)) -> Result<()>;

    /// Waits for all steps and writes a persistent value.
    fn write(
        &mut self,
        value: PersistentId,
        write: &mut dyn FnMut(TensorMut<'_>) -> Result<()>,
    ) -> Result<()>;

    /// Runs a program without inputs and hands out its outputs, to be read on
    /// any thread while further steps run. One at a time per program.
    fn snapshot(&mut self, program: ProgramId) -> Result<Snapshot>;

    /// The counters, to be looked at by anyone while steps run.
    fn counters(&self) -> Arc<dyn Counters>;

    /// What was recorded since the last call; empty unless recording was asked
    /// for.
    fn take_trace(&mut self) -> Trace;

    /// The memory that the session allocated for the plan.
    fn allocated(&self) -> Bytes;

    /// Gives a session of several ranks what its other ranks read samples with, where they are
    /// threads of this process. Without it rank 0 sends them their samples.
    ///
    /// # Errors
    /// [`Error::Config`] where they have another source already.
    fn share(&mut self, _: Arc<dyn BatchSource>) -> Result<()> {
        Ok(())
    }

    /// Says which samples a slot is to be filled with. In a session of several ranks each rank then
    /// reads its share of the batch, and the slot wants the [rows](Slot::rows) of rank 0 only.
    ///
    /// # Errors
    /// Where the run has ended.
    fn announce(&mut self, _: ProgramId, _: &mut Slot, _: &Batch) -> Result<()> {
        Ok(())
    }

    /// Goes on as decided. A plan of the same numerics changes no bit: values, slots, the
    /// outputs that are kept and the numbers of steps stay as they are. What was decided is
    /// in the trace.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the engine cannot change its plan,
    /// [`Error::Plan`] where the plan has other numerics.
    fn replan(&mut self, _: &Decision<'_>) -> Result<()> {
        Err(Error::Unsupported { what: "another placement in mid-run".to_owned() })
    }
}

/// By which placement a session goes on, and why.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// The plan; `None` to stay.
    pub to: Option<&'a PlannedPrograms>,
    /// What the placement is called.
    pub name: &'a str,
    /// Why it was taken.
    pub why: &'a str,
    /// What a step took before.
    pub measured: Nanos,
    /// What a step is expected to take.
    pub predicted: Nanos,
    /// How long it took to decide.
    pub took: Nanos,
}

/// Counters of a session that are always on. Looking at them disturbs nobody; what
/// runs meanwhile may be counted in a part of them only.
pub trait Counters: Send + Sync {
    /// How often each codelet ran and for how long.
    fn codelets(&self) -> Vec<CodeletCount>;

    /// The same shape by shape, with the spread of the times.
    fn shapes(&self) -> Vec<ShapeCount>;

    /// The same worker by worker, without the spread.
    fn by_worker(&self) -> Vec<WorkerCounts>;

    /// What the workers did.
    fn activity(&self) -> Activity;
}

/// A tensor to read.
#[derive(Clone, Copy)]
pub struct TensorRef<'a> {
    /// Shape and element type.
    pub meta: Meta,
    /// Its elements in row-major order.
    pub bytes: &'a [u8],
}

impl<'a> TensorRef<'a> {
    /// The elements.
    ///
    /// # Panics
    /// If they are of another type.
    #[track_caller]
    pub fn as_slice<T: Element>(&self) -> &'a [T] {
        assert_eq!(self.meta.dtype, T::DTYPE, "a tensor of another element type");
        bytemuck::cast_slice(self.bytes)
    }

    /// The elements as `f64`.
    pub fn to_f64(&self) -> Vec<f64> {
        use dahl_kernels::DType;
        match self.meta.dtype {
            DType::F32 => self.as_slice::<f32>().iter().map(|&x| f64::from(x)).collect(),
            DType::F64 => self.as_slice::<f64>().to_vec(),
            DType::U8 => self.as_slice::<u8>().iter().map(|&x| f64::from(x)).collect(),
            DType::I64 => self.as_slice::<i64>().iter().map(|&x| x as f64).collect(),
        }
    }
}

/// A tensor to write.
pub struct TensorMut<'a> {
    /// Shape and element type.
    pub meta: Meta,
    /// Its elements in row-major order.
    pub bytes: &'a mut [u8],
}

impl TensorMut<'_> {
    /// The elements.
    ///
    /// # Panics
    /// If they are of another type.
    #[track_caller]
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(self.meta.dtype, T::DTYPE, "a tensor of another element type");
        bytemuck::cast_slice_mut(self.bytes)
    }

    /// Writes elements that are given as `f64`, each rounded once. Too few or
    /// too many are an error, and so is a fraction where integers belong.
    pub fn write_f64(&mut self, from: impl IntoIterator<Item = f64>) -> Result<()> {
        use dahl_kernels::DType;
        fn write<T: Element>(to: &mut [T], from: impl IntoIterator<Item = f64>) -> Result<()> {
            let expected = format!("{} elements of {}", to.len(), T::DTYPE);
            let wrong = |found: String| Error::config("tensor", &expected, found);
            let mut from = from.into_iter();
            for (i, to) in to.iter_mut().enumerate() {
                let Some(x) = from.next() else {
                    return Err(wrong(format!("only {i}")));
                };
                if !T::DTYPE.is_float() && T::from_f64(x).to_f64() != x {
                    return Err(wrong(format!("{x} at index {i}")));
                }
                *to = T::from_f64(x);
            }
            match from.next() {
                Some(_) => Err(wrong("more than that".to_owned())),
                None => Ok(()),
            }
        }
        match self.meta.dtype {
            DType::F32 => write(self.as_mut_slice::<f32>(), from),
            DType::F64 => write(self.as_mut_slice::<f64>(), from),
            DType::U8 => write(self.as_mut_slice::<u8>(), from),
            DType::I64 => write(self.as_mut_slice::<i64>(), from),
        }
    }
}

/// Where named tensors lie in some memory.
pub type NamedTensors = Arc<[(String, Meta, usize)]>;

/// Memory that an engine lends out, aligned for every element.
pub trait Lent: Send {
    /// All of its bytes.
    fn bytes(&self) -> &[u8];
    /// All of its bytes, to be written.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Memory of its own, for engines that copy.
impl Lent for Vec<u64> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }
}

/// A slot of inputs that nobody fills.
pub struct Idle {
    /// Which slot of the engine it is.
    pub index: usize,
    /// What inputs are written to.
    pub memory: Box<dyn Lent>,
}

/// Where slots go that are dropped instead of stepped with.
pub type Returned = Arc<Mutex<Vec<Idle>>>;

/// The right to fill one slot of inputs. Dropping it gives it back.
pub struct Slot {
    idle: Option<Idle>,
    returned: Returned,
    inputs: NamedTensors,
    /// The share of the batch that is wanted here; `None` for all of it.
    share: Option<Share>,
}

/// The share of a batch that a rank reads.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) rows: Range<usize>,
    /// The number of the batch among those that were announced.
    pub(crate) number: u64,
    /// Lives as long as the slot: a slot that is dropped is stepped with on no rank.
    pub(crate) _alive: Arc<()>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(idle) = self.idle.take() {
            self.returned.lock().unwrap_or_else(|e| e.into_inner()).push(idle);
        }
    }
}

impl Slot {
    /// The right to fill a slot with inputs that lie in it as `inputs` says.
    pub fn new(idle: Idle, returned: Returned, inputs: NamedTensors) -> Self {
        Self { idle: Some(idle), returned, inputs, share: None }
    }

    /// Takes a filled slot back, to step with it.
    pub fn into_idle(mut self) -> Idle {
        self.idle.take().expect("a slot is taken once")
    }

    /// Where the inputs lie: what it was made with.
    pub fn tensors(&self) -> &NamedTensors {
        &self.inputs
    }

    /// The samples of the batch that are wanted here, where other ranks read the others.
    pub fn rows(&self) -> Option<&Range<usize>> {
        self.share.as_ref().map(|share| &share.rows)
    }

    /// The share of the batch that is wanted here.
    pub(crate) fn wanted(&mut self) -> &mut Option<Share> {
        &mut self.share
    }

    /// The names, shapes and types of the inputs.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Meta)> {
        self.inputs.iter().map(|(name, meta, _)| (name.as_str(), *meta))
    }

    /// An input, to be filled in place.
    pub fn input(&mut self, name: &str) -> Result<TensorMut<'_>> {
        let found = self.inputs.iter().find(|(n, ..)| n == name);
        let Some(&(_, meta, offset)) = found else {
            let names: Vec<&str> = self.inputs.iter().map(|(n, ..)| n.as_str()).collect();
            return Err(Error::config("input", format!("one of {names:?}"), format!("{name:?}")));
        };
        let memory = &mut self.idle.as_mut().expect("a slot is taken once").memory;
        let bytes = &mut memory.bytes_mut()[offset..offset + meta.bytes()];
        Ok(TensorMut { meta, bytes })
    }
}

/// Values as they were at one moment, readable on any thread.
pub struct Snapshot {
    memory: Box<dyn Lent>,
    outputs: NamedTensors,
    /// Shared with a session that has to know whether the snapshot is still there.
    held: Option<Arc<()>>,
}

impl Snapshot {
    /// Outputs that lie in a memory as `outputs` says.
    pub fn new(memory: Box<dyn Lent>, outputs: NamedTensors) -> Self {
        Self { memory, outputs, held: None }
    }

    /// Tells whether the snapshot is still there.
    pub(crate) fn held(&mut self) -> Weak<()> {
        Arc::downgrade(self.held.get_or_insert_default())
    }

    /// The names and values.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, TensorRef<'_>)> {
        self.outputs.iter().map(|(name, meta, offset)| {
            let bytes = &self.memory.bytes()[*offset..*offset + meta.bytes()];
            (name.as_str(), TensorRef { meta: *meta, bytes })
        })
    }
}
