//! Changes of placement, as lines of text.

use crate::exec::{
    Batch, BatchSource, Counters, Decision, Session, Slot, Snapshot, StepId, TensorMut, TensorRef,
};
use crate::trace::Trace;
use crate::units::{Bytes, PersistentId, ProgramId};
use crate::{Result, StepScalars};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The changes of a session that nobody has looked at, a line each.
#[derive(Clone, Default)]
pub(super) struct Changes(Rc<RefCell<Vec<String>>>);

impl Changes {
    /// Those since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

/// The same session, and its changes of placement.
pub(super) fn announced(session: Box<dyn Session>) -> (Box<dyn Session>, Changes) {
    let changes = Changes::default();
    (Box::new(Announcing { session, changes: changes.clone(), next: None }), changes)
}

struct Announcing {
    session: Box<dyn Session>,
    changes: Changes,
    /// The placement of the step that comes next, and why.
    next: Option<(String, String)>,
}

impl Session for Announcing {
    fn slot(&mut self, program: ProgramId) -> Result<Slot> {
        self.session.slot(program)
    }

    fn step(&mut self, program: ProgramId, slot: Slot, scalars: StepScalars) -> Result<StepId> {
        if let Some((name, why)) = self.next.take() {
            // Steps are counted from 1.
            let step = scalars.counter + 1;
            let line = format!("placement: {name} from step {step} on: {why}");
            self.changes.0.borrow_mut().push(line);
        }
        self.session.step(program, slot, scalars)
    }

    fn wait(&mut self, step: StepId) -> Result<()> {
        self.session.wait(step)
    }

    fn output(
        &mut self,
        step: StepId,
        name: &str,
        read: &mut dyn FnMut(TensorRef<'_>),
    ) -> Result<()> {
        self.session.output(step, name, read)
    }

    fn read(&mut self, value: PersistentId, read: &mut dyn FnMut(TensorRef<'_>)) -> Result<()> {
        self.session.read(value, read)
    }

    fn write(
        &mut self,
        value: PersistentId,
        write: &mut dyn FnMut(TensorMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.session.write(value, write)
    }

    fn snapshot(&mut self, program: ProgramId) -> Result<Snapshot> {
        self.session.snapshot(program)
    }

    fn counters(&self) -> Arc<dyn Counters> {
        self.session.counters()
    }

    fn take_trace(&mut self) -> Trace {
        self.session.take_trace()
    }

    fn allocated(&self) -> Bytes {
        self.session.allocated()
    }

    fn share(&mut self, source: Arc<dyn BatchSource>) -> Result<()> {
        self.session.share(source)
    }

    fn announce(&mut self, program: ProgramId, slot: &mut Slot, batch: &Batch) -> Result<()> {
        self.session.announce(program, slot, batch)
    }

    fn replan(&mut self, decision: &Decision<'_>) -> Result<()> {
        self.session.replan(decision)?;
        if decision.to.is_some() {
            // A decision is made right before a training step, which knows its number.
            self.next = Some((decision.name.to_owned(), decision.why.to_owned()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Engine;
    use crate::model::{Model, Optimizer, TrainSpec};
    use crate::native::Native;
    use crate::planner::Grain;
    use crate::train::Trainer;
    use crate::units::Nanos;

    #[test]
    fn a_change_of_placement_is_a_line_and_staying_is_none() {
        let model = Model::sequential("xor", &[2], |s| s.linear(2));
        let spec = TrainSpec::new(4, crate::DType::F32, Optimizer::adam(0.05));
        let lowered = model.lower(&spec).unwrap();
        let plan = Grain::for_workers(1).plan(&lowered.programs).unwrap();
        let (session, changes) = announced(Native::default().prepare(&plan).unwrap());
        let mut trainer = Trainer::with_session(lowered, plan.clone(), &spec, session).unwrap();
        trainer.set_steps(411);
        let mut steps = |to| {
            if let Some(to) = to {
                let (name, why) = ("sample=3,shares=2:1", "worker 1 is slow");
                let [measured, predicted, took] = [2, 1, 0].map(Nanos);
                let decision = Decision { to, name, why, measured, predicted, took };
                trainer.session().replan(&decision).unwrap();
            }
            let slot = trainer.slot(4).unwrap();
            trainer.step(slot).unwrap();
            changes.take()
        };
        assert!(steps(None).is_empty());
        let expected = "placement: sample=3,shares=2:1 from step 413 on: worker 1 is slow";
        assert_eq!(steps(Some(Some(&plan))), [expected]);
        assert!(steps(Some(None)).is_empty() && steps(None).is_empty());
    }
}
