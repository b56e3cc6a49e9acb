//! The session: submits steps, drives worker 0, hands out slots and values.
#![expect(unsafe_code, reason = "leases buffers that no task uses")]

use super::Native;
use super::counters::SessionCounters;
use super::memory::{Lease, Token};
use super::recording::Recorder;
use super::runner::{StepRecord, WorkerState};
use super::worker::{Shared, Threads};
use crate::error::{Error, Result};
use crate::exec::{
    Arenas, Counters, Decision, Idle, NamedTensors, Returned, Session, Slot, Slots, Snapshot,
    StepId, TensorMut, TensorRef, input_tensors, output_tensors,
};
use crate::plan::PlannedPrograms;
use crate::trace::{Event, Header, Trace};
use crate::units::{Bytes, PersistentId, ProgramId};
use dahl_kernels::StepScalars;
use std::collections::VecDeque;
use std::sync::Arc;

/// What the session knows of a program.
pub(super) struct ProgramInfo {
    pub(super) name: String,
    pub(super) inputs: NamedTensors,
    pub(super) outputs: NamedTensors,
    /// The steps that used it, newest last, as many as it has output slots.
    recent: VecDeque<StepId>,
    runs: u64,
    /// Shared with whoever holds a snapshot of it.
    token: Token,
}

impl ProgramInfo {
    pub(super) fn new(planned: &PlannedPrograms, p: usize) -> Self {
        let program = ProgramId::new(p);
        Self {
            name: planned.programs().programs[p].name.clone(),
            inputs: input_tensors(planned, program),
            outputs: output_tensors(planned, program),
            recent: VecDeque::new(),
            runs: 0,
            token: Token::new(),
        }
    }
}

/// Programs that are prepared to run on this machine's processors.
pub struct NativeSession {
    pub(super) shared: Arc<Shared>,
    pub(super) threads: Threads,
    pub(super) driver: WorkerState,
    pub(super) programs: Vec<ProgramInfo>,
    pub(super) header: Arc<Header>,
    pub(super) recorder: Recorder,
    pub(super) events: Vec<Event>,
    /// Steps that worker 0 has not driven yet.
    pub(super) undriven: VecDeque<Arc<StepRecord>>,
    pub(super) submitted: u64,
    /// The last step's program, and every worker's tasks up to it and with it.
    pub(super) last: Option<(usize, Vec<u64>)>,
    pub(super) base: Vec<u64>,
    /// Slots that nobody fills, those that were dropped among them.
    pub(super) free: Returned,
    pub(super) busy: VecDeque<(StepId, Idle)>,
    /// The counters of all placements.
    pub(super) counters: Arc<SessionCounters>,
    /// What prepared it, for another placement.
    pub(super) engine: Native,
    /// The number of the placement.
    pub(super) placement: u32,
}

impl NativeSession {
    fn buffers(&self) -> &Arenas {
        &self.shared.buffers
    }

    fn info(&self, program: ProgramId) -> Result<&ProgramInfo> {
        self.programs.get(program.index()).ok_or_else(|| {
            let expected = format!("one of {} programs", self.programs.len());
            Error::config("program", expected, program)
        })
    }

    /// Drives worker 0 until the first `steps` steps need nothing of it any
    /// more.
    fn drive(&mut self, steps: u64) -> Result<()> {
        while self.undriven.front().is_some_and(|record| record.number < steps) {
            let record = self.undriven.pop_front().expect("just seen");
            let done = self
                .shared
                .guarded(&mut self.driver, |shared, worker| shared.drive(worker, &record));
            self.driver.leave();
            if done.is_err() {
                return Err(self.shared.failure());
            }
        }
        Ok(())
    }

    /// Takes the events of all workers; no step is under way.
    pub(super) fn gather_events(&mut self) {
        self.events.append(&mut self.driver.events);
        self.events.append(&mut self.shared.take_events());
    }

    pub(super) fn wait_all(&mut self) -> Result<()> {
        match self.submitted {
            0 => self.shared.check(),
            n => self.wait(StepId(n - 1)),
        }
    }

    /// Refuses a program whose outputs are lent out.
    fn refuse_lent(&self, program: ProgramId) -> Result<()> {
        if self.programs[program.index()].token.is_held() {
            let expected = "the last snapshot to be dropped first";
            return Err(Error::config("snapshot", expected, "it is still held"));
        }
        Ok(())
    }

    /// Submits a step whose inputs are in a slot of the engine.
    fn submit(&mut self, program: ProgramId, input: usize, scalars: StepScalars) -> Result<StepId> {
        self.shared.check()?;
        let number = self.submitted;
        // As many steps under way as have inputs; fewer where the outputs' slots are.
        let window = self.shared.under_way();
        if number >= window {
            self.wait(StepId(number - window))?;
        }
        let p = program.index();
        let slots = self.shared.planned.memory.programs[p].output_slots;
        if self.programs[p].recent.len() == slots
            && let Some(&step) = self.programs[p].recent.front()
        {
            self.wait(step)?;
        }
        let info = &mut self.programs[p];
        let output = (info.runs % slots as u64) as usize;
        info.runs += 1;
        info.recent.push_back(StepId(number));
        if info.recent.len() > slots {
            info.recent.pop_front();
        }
        let (before, base_before) = match &self.last {
            Some((before, base)) => (Some(*before), base.clone()),
            None => (None, vec![0; self.base.len()]),
        };
        // At most a wait a task, and a look at the clock a call.
        let traced = self.shared.runner.earlier + p as u32;
        let work = &self.header.programs[traced as usize].work;
        let others = 1 + self.shared.waits_for_the_end();
        let most = || others + work.iter().map(|task| 1 + 2 * task.calls.len()).sum::<usize>();
        let (events, driver, shared) = (&self.events, &self.driver.events, &self.shared);
        let counted = || events.len() + driver.len() + shared.count_events();
        let recorded = self.recorder.wants(number, counted, most);
        let record = Arc::new(StepRecord {
            number,
            program: p,
            before,
            slots: Slots { input, output },
            scalars,
            recorded,
            base: self.base.clone(),
            base_before,
        });
        self.last = Some((p, self.base.clone()));
        for (base, length) in self.base.iter_mut().zip(self.shared.lengths(p)) {
            *base += length;
        }
        self.submitted += 1;
        if recorded {
            let at = self.shared.runner.counters.ticks.now();
            self.events.push(Event::Submit { step: number, program: traced, at });
        }
        self.shared.submit(record.clone());
        self.undriven.push_back(record);
        // The others may begin with this step; worker 0 does those before.
        self.drive((number + 2).saturating_sub(window))?;
        Ok(StepId(number))
    }

    /// The output slot that a step's outputs are in.
    fn output_slot(&self, step: StepId) -> Result<(usize, usize)> {
        for (p, info) in self.programs.iter().enumerate() {
            if let Some(at) = info.recent.iter().position(|&s| s == step) {
                let behind = info.recent.len() - 1 - at;
                let run = info.runs - 1 - behind as u64;
                let slots = self.shared.planned.memory.programs[p].output_slots;
                return Ok((p, (run % slots as u64) as usize));
            }
        }
        let expected = "one of the last steps, whose outputs are kept";
        Err(Error::config("step", expected, step.0))
    }

    /// Waits for all steps, to read or write a persistent value.
    fn settle(&mut self, value: PersistentId) -> Result<()> {
        let values = self.shared.planned.programs().store.values.len();
        if value.index() >= values {
            let expected = format!("one of {values} persistent values");
            return Err(Error::config("value", expected, value));
        }
        self.wait_all()
    }
}

impl Session for NativeSession {
    fn slot(&mut self, program: ProgramId) -> Result<Slot> {
        let inputs = self.info(program)?.inputs.clone();
        self.shared.check()?;
        let free = self.free.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let idle = match free {
            Some(idle) => idle,
            None => {
                let Some((step, idle)) = self.busy.pop_front() else {
                    let expected = "a slot that was stepped with or dropped";
                    return Err(Error::config("slot", expected, "all slots handed out"));
                };
                self.wait(step)?;
                idle
            }
        };
        Ok(Slot::new(idle, self.free.clone(), inputs))
    }

    fn step(&mut self, program: ProgramId, slot: Slot, scalars: StepScalars) -> Result<StepId> {
        let info = self.info(program)?;
        let mine = self.programs.iter().any(|p| Arc::ptr_eq(&p.inputs, slot.tensors()));
        if !mine || info.inputs != *slot.tensors() {
            let expected = format!("a slot for {:?}", info.name);
            let found = if mine { "one for another program" } else { "one of another session" };
            return Err(Error::config("slot", expected, found));
        }
        self.refuse_lent(program)?;
        // The slot is the engine's again before any task reads it.
        let idle = slot.into_idle();
        let step = self.submit(program, idle.index, scalars)?;
        self.busy.push_back((step, idle));
        Ok(step)
    }

    fn wait(&mut self, step: StepId) -> Result<()> {
        if step.0 >= self.submitted {
            let expected = format!("one of the {} steps submitted", self.submitted);
            return Err(Error::config("step", expected, step.0));
        }
        self.drive(step.0 + 1)?;
        self.shared.await_step(
            step.0,
            &self.base,
            self.last.as_ref().map(|(_, base)| &base[..]),
            self.submitted,
        )
    }

    fn output(
        &mut self,
        step: StepId,
        name: &str,
        read: &mut dyn FnMut(TensorRef<'_>),
    ) -> Result<()> {
        self.wait(step)?;
        let (p, slot) = self.output_slot(step)?;
        let info = &self.programs[p];
        let Some((_, meta, offset)) = info.outputs.iter().find(|(n, ..)| n == name) else {
            let names: Vec<&str> = info.outputs.iter().map(|(n, ..)| n.as_str()).collect();
            return Err(Error::config("output", format!("one of {names:?}"), format!("{name:?}")));
        };
        let buffer = &self.buffers().first().outputs[p][slot];
        // SAFETY: the step has ended, and no later step of the program has this
        // slot while `&mut self` is borrowed.
        let bytes = unsafe { buffer.slice(*offset, meta.bytes()) };
        read(TensorRef { meta: *meta, bytes });
        Ok(())
    }

    fn read(&mut self, value: PersistentId, read: &mut dyn FnMut(TensorRef<'_>)) -> Result<()> {
        self.settle(value)?;
        // SAFETY: no step is under way while `&mut self` is borrowed.
        unsafe { self.buffers().read(&self.shared.planned, value, read) };
        Ok(())
    }

    fn write(
        &mut self,
        value: PersistentId,
        write: &mut dyn FnMut(TensorMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.settle(value)?;
        // SAFETY: no step is under way while `&mut self` is borrowed.
        unsafe { self.buffers().write(&self.shared.planned, value, write) }
    }

    fn snapshot(&mut self, program: ProgramId) -> Result<Snapshot> {
        let info = self.info(program)?;
        if !info.inputs.is_empty() {
            let expected = "a program without inputs";
            return Err(Error::config("snapshot", expected, format!("{:?}", info.name)));
        }
        self.refuse_lent(program)?;
        let step = self.submit(program, 0, StepScalars::default())?;
        self.wait(step)?;
        let (p, slot) = self.output_slot(step)?;
        let (outputs, held) = (self.programs[p].outputs.clone(), self.programs[p].token.hold());
        let buffer = self.buffers().first().outputs[p][slot].clone();
        // SAFETY: the step has ended; the program is not run again while the
        // token is held.
        let memory = Box::new(unsafe { Lease::new(buffer, held) });
        Ok(Snapshot::new(memory, outputs))
    }

    fn counters(&self) -> Arc<dyn Counters> {
        self.counters.clone()
    }

    fn take_trace(&mut self) -> Trace {
        let _ = self.wait_all();
        self.gather_events();
        let mut events = std::mem::take(&mut self.events);
        let rate = self.shared.runner.counters.ticks.rate();
        events.iter_mut().for_each(|event| event.scale(rate));
        events.sort_by_key(Event::start);
        let mut header = (*self.header).clone();
        (header.steps, header.bound) = (Some(self.submitted), self.recorder.bound());
        Trace { header, events }
    }

    fn allocated(&self) -> Bytes {
        Bytes(self.buffers().allocated() as u64)
    }

    fn replan(&mut self, decision: &Decision<'_>) -> Result<()> {
        self.go_on(decision)
    }
}

impl Drop for NativeSession {
    fn drop(&mut self) {
        // Another rank may still need the messages of this one.
        if self.shared.runner.transport.is_some() {
            let _ = self.wait_all();
        }
        self.shared.stop();
        self.threads.join();
    }
}

#[cfg(test)]
mod tests;
