//! Training: a model, its programs, a plan and a session, step by step.

mod adapting;
mod card;
mod checkpoint;
mod checkpoints;
mod confusion;
mod load;
mod loop_config;
mod outputs;
mod pass;
mod shared;
mod train_loop;
mod weights;

pub use card::{Card, Origin};
pub use checkpoint::{Checkpoint, State};
pub use checkpoints::Checkpoints;
pub use confusion::Confusion;
pub use loop_config::{End, EpochRecord, EvalSet, Event, Every, LoopConfig, SampleOrder, Watcher};
pub use pass::{Pass, Samples};
pub use shared::SharedSets;
pub use train_loop::TrainLoop;
pub use weights::check_weights;

use crate::error::{Error, Result};
use crate::exec::{Engine, Session, Slot, StepId, TensorRef};
use crate::model::{Loss, Lowered, Model, Schedule, TrainSpec};
use crate::plan::PlannedPrograms;
use crate::planner::Grain;
use crate::units::{PersistentId, ProgramId};
use adapting::Adapting;
use dahl_kernels::StepScalars;

/// A model in training.
///
/// A batch goes into a slot: `input` has the samples, `target` the labels
/// (`i64`) or, for [`Loss::Mse`], numbers of the output's shape. A step gives
/// the outputs `loss` (the mean), `output` (the logits) and, with labels,
/// `correct` (how many samples were right).
///
/// ```
/// use dahl::model::{Model, Optimizer, TrainSpec};
/// use dahl::native::Native;
/// use dahl::planner::Grain;
/// use dahl::train::Trainer;
///
/// let model = Model::sequential("xor", &[2], |s| s.linear(8).relu().linear(2));
/// let spec = TrainSpec::new(4, dahl::DType::F64, Optimizer::adam(0.05));
/// let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(1), &Native::default())?;
/// for _ in 0..200 {
///     let mut slot = trainer.slot(4)?;
///     slot.input("input")?.write_f64([0., 0., 0., 1., 1., 0., 1., 1.])?;
///     slot.input("target")?.write_f64([0., 1., 1., 0.])?;
///     trainer.step(slot)?;
/// }
/// assert!(trainer.last_loss()? < 0.1);
/// # Ok::<(), dahl::Error>(())
/// ```
pub struct Trainer {
    lowered: Lowered,
    plan: PlannedPrograms,
    session: Box<dyn Session>,
    lr: f64,
    schedule: Schedule,
    steps: u64,
    last: Option<StepId>,
    /// The last step of an evaluation.
    evaluated: Option<StepId>,
    /// Number of steps that a pass has begun and not evaluated.
    open: usize,
    /// Whether a pass begins no step before it has looked at all.
    settling: bool,
    /// Number of classes of the labels; `None` if targets are numbers.
    classes: Option<usize>,
    /// Changes the placement during the run.
    adapting: Option<Adapting>,
}

impl Trainer {
    /// Lowers, plans and prepares a model; parameters start as the seed says.
    pub fn new(model: &Model, spec: &TrainSpec, grain: Grain, engine: &dyn Engine) -> Result<Self> {
        let lowered = model.lower(spec)?;
        let plan = grain.plan(&lowered.programs)?;
        Self::with_plan(lowered, plan, spec, engine)
    }

    /// Prepares a lowered model with a plan.
    pub fn with_plan(
        lowered: Lowered,
        plan: PlannedPrograms,
        spec: &TrainSpec,
        engine: &dyn Engine,
    ) -> Result<Self> {
        let session = engine.prepare(&plan)?;
        Self::with_session(lowered, plan, spec, session)
    }

    /// Starts from a session that was prepared elsewhere.
    pub fn with_session(
        lowered: Lowered,
        plan: PlannedPrograms,
        spec: &TrainSpec,
        mut session: Box<dyn Session>,
    ) -> Result<Self> {
        for id in (0..lowered.programs.store.values.len()).map(PersistentId::new) {
            session.write(id, &mut |mut to| {
                let elements = to.meta.shape.elements();
                to.write_f64(lowered.initial(id).take(elements))
            })?;
        }
        let lr = spec.optimizer.lr();
        let schedule = Schedule::Constant;
        let labels = spec.loss == Loss::CrossEntropy && lowered.output.rank() == 2;
        let classes = labels.then(|| lowered.output[1]);
        Ok(Self {
            lowered,
            plan,
            session,
            lr,
            schedule,
            steps: 0,
            last: None,
            evaluated: None,
            open: 0,
            settling: false,
            classes,
            adapting: None,
        })
    }

    /// Changes the learning rate from step to step.
    pub fn set_schedule(&mut self, schedule: Schedule) {
        self.schedule = schedule;
    }

    /// The learning rate of a step, from 0.
    pub fn learning_rate(&self, step: u64) -> f64 {
        self.lr * self.schedule.factor(step)
    }

    /// A free slot for a batch of this many samples to train on.
    pub fn slot(&mut self, batch: usize) -> Result<Slot> {
        let program = self.program(batch, 0)?;
        self.running(|session| session.slot(program))
    }

    /// Trains on a filled slot. May return before the step has ended.
    ///
    /// A label that is no class is an error. Where the loss of a step is not
    /// finite, the step changes nothing: no parameter, no optimizer's state, no
    /// running statistic.
    pub fn step(&mut self, slot: Slot) -> Result<StepId> {
        self.adapt_if_due()?;
        let slot = self.check_labels(slot)?;
        let batch = slot.inputs().next().map_or(0, |(_, meta)| meta.shape[0]);
        let program = self.program(batch, self.steps)?;
        let scalars = StepScalars { lr: self.learning_rate(self.steps), counter: self.steps };
        let step = self.running(|session| session.step(program, slot, scalars))?;
        self.count_step();
        self.steps += 1;
        self.last = Some(step);
        Ok(step)
    }

    /// The loss of a step, once it has ended.
    pub fn loss(&mut self, step: StepId) -> Result<f64> {
        self.scalar(step, "loss")
    }

    /// The loss of the last training step.
    pub fn last_loss(&mut self) -> Result<f64> {
        match self.last {
            Some(step) => self.loss(step),
            None => Err(Error::config("loss", "a step of this trainer", "none")),
        }
    }

    /// One scalar output of a step: `loss`, `correct`.
    pub fn scalar(&mut self, step: StepId, name: &str) -> Result<f64> {
        Ok(self.output(step, name)?[0])
    }

    /// An output of a step as numbers: `loss`, `correct`, `output`.
    pub fn output(&mut self, step: StepId, name: &str) -> Result<Vec<f64>> {
        let mut values = Vec::new();
        let mut read = |tensor: TensorRef<'_>| values = tensor.to_f64();
        // Those behind the last one are evaluations.
        if self.last.is_some_and(|last| step <= last) {
            self.running(|session| session.output(step, name, &mut read))?;
        } else {
            self.session.output(step, name, &mut read)?;
        }
        Ok(values)
    }

    /// A free slot for a batch of this many samples to evaluate.
    pub fn eval_slot(&mut self, batch: usize) -> Result<Slot> {
        let program = self.eval_program(batch)?;
        self.session.slot(program)
    }

    /// Evaluates a filled slot; parameters stay as they are.
    pub fn eval(&mut self, slot: Slot) -> Result<StepId> {
        let slot = self.check_labels(slot)?;
        let batch = slot.inputs().next().map_or(0, |(_, meta)| meta.shape[0]);
        let program = self.eval_program(batch)?;
        let step = self.session.step(program, slot, StepScalars::default())?;
        self.evaluated = Some(step);
        Ok(step)
    }

    /// A persistent value by its name in the state dict, as numbers.
    pub fn read(&mut self, name: &str) -> Result<Vec<f64>> {
        let id = self.find(name)?;
        let mut values = Vec::new();
        self.session.read(id, &mut |tensor| values = tensor.to_f64())?;
        Ok(values)
    }

    /// Writes a persistent value by its name in the state dict.
    pub fn write(&mut self, name: &str, values: &[f64]) -> Result<()> {
        let id = self.find(name)?;
        let expected = self.lowered.programs.store.get(id).meta.shape;
        if expected.elements() != values.len() {
            let found = format!("{} values", values.len());
            return Err(Error::config(name, expected, found));
        }
        self.session.write(id, &mut |mut to| to.write_f64(values.iter().copied()))
    }

    /// Everything that outlives a step, as it is now, to be read on any thread
    /// while training goes on.
    pub fn snapshot(&mut self) -> Result<crate::exec::Snapshot> {
        self.session.snapshot(self.lowered.snapshot)
    }

    /// How many training steps were taken: the schedule's step and the counter
    /// of random masks. The persistent value `updates` counts those that changed
    /// parameters, which is Adam's t.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// How many training steps a pass has seen the end of.
    fn ended(&self) -> u64 {
        self.steps - self.open as u64
    }

    /// A pass is to see the end of all steps before it begins another.
    fn settle(&mut self) {
        self.settling = true;
    }

    /// How many steps may be under way beside the one that is looked at: those of a pipeline
    /// that does not wait for its updates.
    fn beside(&self) -> usize {
        let turns = self.lowered.train.values().map(Vec::len).max().unwrap_or(1);
        if turns > 1 { self.plan.memory.under_way() - 1 } else { 0 }
    }

    /// Goes on as if this many training steps had been taken: what a run that
    /// is resumed needs besides its persistent values.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// The programs and what they start from.
    pub fn lowered(&self) -> &Lowered {
        &self.lowered
    }

    /// The plan that is run.
    pub fn plan(&self) -> &PlannedPrograms {
        &self.plan
    }

    /// The session that runs it.
    pub fn session(&mut self) -> &mut dyn Session {
        &mut *self.session
    }

    /// The program that trains on a batch of this size in step `step`.
    fn program(&self, batch: usize, step: u64) -> Result<ProgramId> {
        let Some(programs) = self.lowered.train.get(&batch) else {
            let known = self.lowered.train.keys();
            return Err(unknown_batch("a batch to train on", known, batch));
        };
        Ok(programs[(step % programs.len() as u64) as usize])
    }

    /// The program that evaluates a batch of this size.
    fn eval_program(&self, batch: usize) -> Result<ProgramId> {
        let Some(&program) = self.lowered.eval.get(&batch) else {
            let known = self.lowered.eval.keys();
            return Err(unknown_batch("a batch to evaluate", known, batch));
        };
        Ok(program)
    }

    fn check_labels(&self, slot: Slot) -> Result<Slot> {
        let mut slot = slot;
        let Some(classes) = self.classes else { return Ok(slot) };
        let rows = slot.rows().cloned();
        let mut target = slot.input("target")?;
        let labels = target.as_mut_slice::<i64>();
        // Other ranks read the labels of the other rows.
        let mut rows = rows.unwrap_or(0..labels.len());
        let wrong = rows.find(|&i| !(0..classes as i64).contains(&labels[i]));
        if let Some(i) = wrong {
            let found = format!("{} for sample {i}", labels[i]);
            return Err(Error::config("target", format!("a class below {classes}"), found));
        }
        Ok(slot)
    }

    fn find(&self, name: &str) -> Result<PersistentId> {
        self.lowered.programs.store.find(name).ok_or_else(|| {
            let names: Vec<&str> =
                self.lowered.programs.store.values.iter().map(|v| v.name.as_str()).collect();
            Error::config("value", format!("one of {}", names.join(", ")), format!("{name:?}"))
        })
    }
}

fn unknown_batch<'a>(what: &str, known: impl Iterator<Item = &'a usize>, found: usize) -> Error {
    let sizes: Vec<&usize> = known.collect();
    Error::config(what, format!("one of {sizes:?} samples"), found)
}
