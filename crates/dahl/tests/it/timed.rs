//! A session whose times the test drives, however busy the machine is.

use dahl::exec::{Counters, Decision, Session, Slot, Snapshot, StepId, TensorMut, TensorRef};
use dahl::trace::{Activity, CodeletCount, ShapeCount, Trace, WorkerCounts};
use dahl::units::{Bytes, PersistentId, ProgramId};
use dahl::{Result, StepScalars};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What a session hands a tensor to.
type ReadTensor<'a> = &'a mut dyn FnMut(TensorRef<'_>);

/// What a call takes on a machine that does nothing else.
pub(crate) fn made_up_nanos(flops: u64) -> u64 {
    1000 + flops
}

/// A session whose counters show made-up times: every call takes [`made_up_nanos`], divided by
/// the speed of its worker at the time of the look.
pub(crate) struct Timed {
    session: Box<dyn Session>,
    clock: Arc<Clock>,
}

/// Counters of two workers, by made-up times.
pub(crate) struct Clock {
    real: Arc<dyn Counters>,
    speeds: Mutex<[f64; 2]>,
    shown: Mutex<Shown>,
}

/// Calls and nanoseconds by worker, of each codelet and shape.
type Shown = BTreeMap<(String, String), Vec<(u64, u64)>>;

impl Timed {
    pub(crate) fn new(session: impl Session + 'static) -> Self {
        let (speeds, shown) = (Mutex::new([1.0; 2]), Mutex::new(BTreeMap::new()));
        let clock = Arc::new(Clock { real: session.counters(), speeds, shown });
        Self { session: Box::new(session), clock }
    }

    pub(crate) fn clock(&self) -> Arc<Clock> {
        self.clock.clone()
    }
}

impl Clock {
    /// From now on calls take as long as at these speeds.
    pub(crate) fn set_speeds(&self, speeds: [f64; 2]) {
        *self.speeds.lock().unwrap() = speeds;
    }
}

impl Counters for Clock {
    fn codelets(&self) -> Vec<CodeletCount> {
        self.real.codelets()
    }

    fn shapes(&self) -> Vec<ShapeCount> {
        self.real.shapes()
    }

    fn by_worker(&self) -> Vec<WorkerCounts> {
        let (speeds, shapes) = (*self.speeds.lock().unwrap(), self.real.shapes());
        let mut shown = self.shown.lock().unwrap();
        let timed = |cell: WorkerCounts| {
            let same = |s: &&ShapeCount| s.codelet == cell.codelet && s.shape == cell.shape;
            let nanos = made_up_nanos(shapes.iter().find(same).expect("the same cells").flops);
            let of = shown.entry((cell.codelet.clone(), cell.shape.clone())).or_default();
            of.resize(cell.workers.len(), (0, 0));
            for ((shown, (calls, _)), speed) in of.iter_mut().zip(&cell.workers).zip(speeds) {
                shown.1 += ((calls - shown.0) as f64 * nanos as f64 / speed) as u64;
                shown.0 = *calls;
            }
            WorkerCounts { workers: of.clone(), ..cell }
        };
        self.real.by_worker().into_iter().map(timed).collect()
    }

    fn activity(&self) -> Activity {
        self.real.activity()
    }
}

impl Session for Timed {
    fn slot(&mut self, program: ProgramId) -> Result<Slot> {
        self.session.slot(program)
    }

    fn step(&mut self, program: ProgramId, slot: Slot, scalars: StepScalars) -> Result<StepId> {
        self.session.step(program, slot, scalars)
    }

    fn wait(&mut self, step: StepId) -> Result<()> {
        self.session.wait(step)
    }

    fn output(&mut self, step: StepId, name: &str, read: ReadTensor<'_>) -> Result<()> {
        self.session.output(step, name, read)
    }

    fn read(&mut self, value: PersistentId, read: ReadTensor<'_>) -> Result<()> {
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
        self.clock.clone()
    }

    fn take_trace(&mut self) -> Trace {
        self.session.take_trace()
    }

    fn allocated(&self) -> Bytes {
        self.session.allocated()
    }

    fn replan(&mut self, decision: &Decision<'_>) -> Result<()> {
        self.session.replan(decision)
    }
}
