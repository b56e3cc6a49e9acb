//! An engine written with the public API alone: one task at a time, inputs and snapshots copied.

use crate::support::{MODELS, setup};
use dahl::exec::{
    Counters, Engine, Idle, Lent, PreparedPrograms, Returned, Session, Slot, Slots, Snapshot,
    StepId, TensorMut, TensorRef, input_tensors, output_tensors,
};
use dahl::plan::PlannedPrograms;
use dahl::planner::Grain;
use dahl::trace::{Activity, CodeletCount, ShapeCount, Trace, WorkerCounts};
use dahl::units::{Bytes, PersistentId, ProgramId, SpaceId, TaskId};
use dahl::{DType, Error, Result, StepScalars};
use std::sync::Arc;

struct InOrder;

impl Engine for InOrder {
    fn name(&self) -> &'static str {
        "in-order"
    }

    fn prepare(&self, planned: &PlannedPrograms) -> Result<Box<dyn Session>> {
        let prepared = PreparedPrograms::new(planned)?;
        Ok(Box::new(Steps { prepared, free: Returned::default(), ran: Vec::new() }))
    }
}

struct Steps {
    prepared: PreparedPrograms,
    free: Returned,
    /// The program and the slots of each step.
    ran: Vec<(ProgramId, Slots)>,
}

impl Steps {
    fn run(&mut self, program: ProgramId, inputs: &[u8], scalars: StepScalars) -> StepId {
        let planned = self.prepared.planned().clone();
        let outputs = planned.memory.programs[program.index()].output_slots;
        let before = self.ran.iter().filter(|(p, _)| *p == program).count();
        let slots = Slots { input: 0, output: before % outputs };
        self.prepared.input(slots.input)[..inputs.len()].copy_from_slice(inputs);
        for task in (0..planned.program(program).1.tasks.len()).map(TaskId::new) {
            self.prepared.run(program, task, slots, &scalars);
        }
        self.ran.push((program, slots));
        StepId(self.ran.len() as u64 - 1)
    }
}

impl Session for Steps {
    fn slot(&mut self, program: ProgramId) -> Result<Slot> {
        let inputs = input_tensors(self.prepared.planned(), program);
        let bytes = self.prepared.planned().memory.input_slot(SpaceId(0));
        let memory = vec![0u64; bytes.div_ceil(size_of::<u64>())];
        let new = || Idle { index: 0, memory: Box::new(memory) };
        let idle = self.free.lock().unwrap().pop().unwrap_or_else(new);
        Ok(Slot::new(idle, self.free.clone(), inputs))
    }

    fn step(&mut self, program: ProgramId, slot: Slot, scalars: StepScalars) -> Result<StepId> {
        let idle = slot.into_idle();
        let bytes = self.prepared.planned().memory.input_slot(SpaceId(0));
        let step = self.run(program, &idle.memory.bytes()[..bytes], scalars);
        self.free.lock().unwrap().push(idle);
        Ok(step)
    }

    fn wait(&mut self, _: StepId) -> Result<()> {
        Ok(())
    }

    fn output(
        &mut self,
        step: StepId,
        name: &str,
        read: &mut dyn FnMut(TensorRef<'_>),
    ) -> Result<()> {
        let (program, slots) = self.ran[step.0 as usize];
        let outputs = output_tensors(self.prepared.planned(), program);
        let found = outputs.iter().find(|(n, ..)| n == name);
        let &(_, meta, offset) =
            found.ok_or_else(|| Error::config("output", "one of the program's", name))?;
        let bytes = &self.prepared.output(program, slots.output)[offset..offset + meta.bytes()];
        read(TensorRef { meta, bytes });
        Ok(())
    }

    fn read(&mut self, value: PersistentId, read: &mut dyn FnMut(TensorRef<'_>)) -> Result<()> {
        self.prepared.read(value, read);
        Ok(())
    }

    fn write(
        &mut self,
        value: PersistentId,
        write: &mut dyn FnMut(TensorMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.prepared.write(value, write)
    }

    fn snapshot(&mut self, program: ProgramId) -> Result<Snapshot> {
        let step = self.run(program, &[], StepScalars::default());
        let outputs = output_tensors(self.prepared.planned(), program);
        let slot = self.ran[step.0 as usize].1.output;
        let bytes = self.prepared.output(program, slot);
        let mut memory = vec![0u64; bytes.len().div_ceil(size_of::<u64>())];
        memory.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        Ok(Snapshot::new(Box::new(memory), outputs))
    }

    fn counters(&self) -> Arc<dyn Counters> {
        Arc::new(Uncounted)
    }

    fn take_trace(&mut self) -> Trace {
        Trace::default()
    }

    fn allocated(&self) -> Bytes {
        self.prepared.allocated()
    }
}

struct Uncounted;

impl Counters for Uncounted {
    fn codelets(&self) -> Vec<CodeletCount> {
        Vec::new()
    }

    fn shapes(&self) -> Vec<ShapeCount> {
        Vec::new()
    }

    fn by_worker(&self) -> Vec<WorkerCounts> {
        Vec::new()
    }

    fn activity(&self) -> Activity {
        Activity::default()
    }
}

/// Every step, every value and a snapshot have the bits of the native engine, whatever the
/// pieces are.
#[test]
fn an_engine_from_outside_gives_the_bits_of_the_native_one() {
    for (name, pieces) in MODELS.into_iter().flat_map(|name| [(name, 1), (name, 3)]) {
        let setup = setup(name, DType::F32);
        let grain = Grain { sample: pieces, ..Grain::for_workers(2) };
        let planned = grain.plan(&setup.lower().programs).unwrap();
        let session = InOrder.prepare(&planned).unwrap();
        assert_eq!(session.allocated(), planned.memory.peak(), "{name}");
        let mut trainer = setup.trainer(planned, session);
        let run = setup.run(&mut trainer).unwrap();
        setup.reference().assert_same(&run, &format!("{name} in {pieces} pieces"));
        let snapshot = trainer.snapshot().unwrap();
        for (value, tensor) in snapshot.tensors() {
            let (_, state) = run.state.iter().find(|(n, _)| n == value).unwrap();
            assert_eq!(tensor.bytes, state, "{name}: {value}");
        }
        assert!(snapshot.tensors().count() > 0, "{name}");
    }
}

/// A slot that is dropped instead of stepped with can be filled again.
#[test]
fn what_an_outside_engine_lends_comes_back() {
    let setup = setup("dropout", DType::F64);
    let planned = Grain::for_workers(1).plan(&setup.lower().programs).unwrap();
    let mut prepared = PreparedPrograms::new(&planned).unwrap();
    prepared.input(1).fill(1);
    assert!(prepared.input(0).iter().all(|byte| *byte == 0), "slots have memory of their own");
    let free = Returned::default();
    let idle = Idle { index: 7, memory: Box::new(vec![0u64; prepared.input(0).len() / 8]) };
    let inputs = input_tensors(&planned, ProgramId(0));
    let mut slot = Slot::new(idle, free.clone(), inputs.clone());
    slot.input("input").unwrap().write_f64((0..140).map(f64::from)).unwrap();
    assert_eq!(slot.tensors(), &inputs);
    drop(slot);
    assert_eq!(free.lock().unwrap().pop().unwrap().index, 7);
}
