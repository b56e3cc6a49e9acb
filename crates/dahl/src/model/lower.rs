//! From a model to the programs of a session.

use super::layer::{BUFFER, lower_sequence};
use super::{Init, Model, Optimizer};
use crate::error::{Error, ModelError, Result};
use crate::graph::{Builder, Class, Phase, Program, Programs, Store, fuse, fuse_updates};
use crate::ops::optim::CountUpdate;
use crate::ops::{Meta, Mismatch, Op, Recorder, Var};
use crate::units::{PersistentId, ProgramId};
use dahl_kernels::{DType, Shape};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// What is learned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// Logits against labels.
    #[default]
    CrossEntropy,
    /// Outputs against targets of the same shape, squared.
    Mse,
}

/// Whether a layer trains or is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With random masks and the batch's statistics.
    Train,
    /// Without masks, with tracked statistics.
    Eval,
}

/// Whether ops are fused; a part of the numerics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fusion {
    /// Where an op offers it.
    #[default]
    On,
    /// Nowhere.
    Off,
}

/// What programs a session needs.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainSpec {
    /// The element type of parameters and activations.
    pub dtype: DType,
    /// The batch sizes that are trained on: the batch, and the short last one.
    pub train: Vec<usize>,
    /// The batch sizes that are evaluated.
    pub eval: Vec<usize>,
    /// What is learned from.
    pub loss: Loss,
    /// How parameters follow their gradients.
    pub optimizer: Optimizer,
    /// The largest norm of all gradients together.
    pub clip_grad_norm: Option<f64>,
    /// Whether ops are fused.
    pub fusion: Fusion,
    /// The seed of everything random.
    pub seed: u64,
}

impl TrainSpec {
    /// Training with one batch size, cross entropy and an optimiser.
    pub fn new(batch: usize, dtype: DType, optimizer: Optimizer) -> Self {
        Self {
            dtype,
            train: vec![batch],
            eval: Vec::new(),
            loss: Loss::CrossEntropy,
            optimizer,
            clip_grad_norm: None,
            fusion: Fusion::On,
            seed: 0,
        }
    }
}

/// The programs of a session and what they start from.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The programs and the values they share.
    pub programs: Programs,
    /// The training program of each batch size.
    pub train: BTreeMap<usize, ProgramId>,
    /// The evaluation program of each batch size.
    pub eval: BTreeMap<usize, ProgramId>,
    /// The program that copies everything that outlives a step.
    pub snapshot: ProgramId,
    /// What each persistent value starts from.
    pub inits: Vec<Init>,
    /// The seed that they start under.
    pub seed: u64,
}

impl Lowered {
    /// The values that a persistent value starts from.
    pub fn initial(&self, id: PersistentId) -> impl Iterator<Item = f64> + use<> {
        self.inits[id.index()].values(self.seed, &self.programs.store.get(id).name)
    }
}

impl Model {
    /// Lowers the model to the programs that `spec` asks for, or reports
    /// everything that is wrong with it.
    pub fn lower(&self, spec: &TrainSpec) -> Result<Lowered> {
        let mut store = Store::default();
        let mut inits = BTreeMap::new();
        let mut programs = Vec::new();
        let (mut train, mut eval) = (BTreeMap::new(), BTreeMap::new());
        if let Some(&batch) = spec.train.iter().chain(&spec.eval).find(|&&batch| batch == 0) {
            return Err(Error::config("batch", "at least 1 sample", batch));
        }
        if !spec.dtype.is_float() {
            return Err(Error::config("dtype", "f32 or f64", spec.dtype));
        }
        for (mode, sizes, name, ids) in [
            (Mode::Train, &spec.train, "train", &mut train),
            (Mode::Eval, &spec.eval, "eval", &mut eval),
        ] {
            for &batch in sizes {
                if let Entry::Vacant(entry) = ids.entry(batch) {
                    let graph = self.program(spec, mode, batch, &mut store, &mut inits)?;
                    entry.insert(ProgramId::new(programs.len()));
                    let name = format!("{name} {batch}");
                    programs.push(Program { name, graph, output_slots: 2 });
                }
            }
        }
        let snapshot = ProgramId::new(programs.len());
        programs.push(snapshot_program(&mut store)?);
        // The optimiser's states start from zero.
        let of = |name: &String| inits.get(name).copied().unwrap_or(Init::Constant(0.0));
        let inits = store.values.iter().map(|v| of(&v.name)).collect();
        let programs = Programs { store, programs };
        Ok(Lowered { programs, train, eval, snapshot, inits, seed: spec.seed })
    }

    fn program(
        &self,
        spec: &TrainSpec,
        mode: Mode,
        batch: usize,
        store: &mut Store,
        inits: &mut BTreeMap<String, Init>,
    ) -> Result<crate::graph::Graph> {
        let mut builder = Builder::new(store);
        if self.input.len() > 4 || self.input.contains(&0) {
            let expected = "a sample of at most 4 axes, none of length 0";
            return Err(Error::config("input", expected, format!("{:?}", self.input)));
        }
        let shape: Vec<usize> = std::iter::once(batch).chain(self.input.iter().copied()).collect();
        let x = builder.input("input", Meta::new(&shape[..], spec.dtype));
        let mut l =
            Lowering { builder: &mut builder, spec, mode, streams: 0, inits, after: Vec::new() };
        let y = lower_sequence(&self.layers, x, &mut l);
        let after = l.after;
        let losses = loss(&mut builder, spec, y);
        if spec.fusion == Fusion::On {
            builder.rewrite(fuse);
        }
        if mode == Mode::Train {
            learn(&mut builder, spec, losses, after);
            if spec.fusion == Fusion::On {
                builder.rewrite(fuse_updates);
            }
        }
        builder.finish().map_err(|e| match e {
            Error::Model(errors) => Error::Model(once_each(errors)),
            e => e,
        })
    }
}

/// Each error once: several batch sizes report the same.
fn once_each(errors: Vec<ModelError>) -> Vec<ModelError> {
    let mut seen = Vec::new();
    errors.into_iter().for_each(|e| {
        if !seen.contains(&e) {
            seen.push(e)
        }
    });
    seen
}

/// What the loss gives: the losses that are averaged, and their mean.
struct Losses {
    terms: Var,
    mean: Var,
}

fn loss(b: &mut Builder<'_>, spec: &TrainSpec, y: Var) -> Losses {
    b.scope("loss", |b| {
        let meta = b.meta(y);
        let samples = meta.shape.axes().first().copied().unwrap_or(1);
        let terms = match spec.loss {
            Loss::CrossEntropy => {
                let labels = b.input("target", Meta::new([samples], DType::I64));
                let hits = b.ops().correct(y, labels);
                let correct = b.ops().sum_all(hits);
                b.fetch("correct", correct);
                b.ops().cross_entropy(y, labels)
            }
            Loss::Mse => {
                let target = b.input("target", meta);
                let d = b.ops().sub(y, target);
                b.ops().mul(d, d)
            }
        };
        let mean = b.ops().mean_all(terms);
        b.fetch("loss", mean);
        b.fetch("output", y);
        Losses { terms, mean }
    })
}

/// What has to be done to persistent values once the loss is known.
type After = (Arc<dyn Op>, Var, Vec<Var>, String);

fn learn(b: &mut Builder<'_>, spec: &TrainSpec, losses: Losses, after: Vec<After>) {
    let meta = b.meta(losses.terms);
    b.set_phase(Phase::Backward);
    let (ok, seed) = b.scope("loss", |b| {
        let ok = b.ops().is_finite(losses.mean);
        // The mean's gradient: 1/n for each of n terms.
        let share = 1.0 / meta.shape.checked_elements().unwrap_or(1).max(1) as f64;
        (ok, b.ops().constant(meta, share))
    });
    let params: Vec<(Var, String)> = b
        .persistents()
        .into_iter()
        .filter(|(_, _, class)| *class == Class::Parameter)
        .map(|(var, name, _)| (var, name))
        .collect();
    let wrt: Vec<Var> = params.iter().map(|(var, _)| *var).collect();
    // How many updates were made, not how many steps were taken: a step whose
    // loss is not finite leaves no trace. Counted first, so that an update can
    // follow its gradient at once.
    b.set_phase(Phase::Update);
    let t = b.persistent_named("updates", Meta::new([], DType::I64), Class::Optimizer);
    b.update(Arc::new(CountUpdate), &[ok], &[t]);
    let mut scalars = vec![ok, t];
    let grads = b.backward(&[(losses.terms, seed)], &wrt);
    b.set_phase(Phase::Update);
    let found: Vec<Var> = grads.iter().flatten().copied().collect();
    if let Some(max_norm) = spec.clip_grad_norm.filter(|_| !found.is_empty()) {
        let factor = b.scope("clip", |b| {
            let norms: Vec<Var> = found.iter().map(|&g| b.ops().norm(g)).collect();
            b.ops().clip_factor(&norms, max_norm)
        });
        scalars.push(factor);
    }
    for (op, stats, outputs, path) in after {
        b.scope(&path, |b| b.update(op, &[stats, ok], &outputs));
    }
    for ((param, name), grad) in params.iter().zip(grads) {
        if let Some(grad) = grad {
            b.scope(name, |b| spec.optimizer.record(b, (*param, name), grad, &scalars));
        }
    }
}

fn snapshot_program(store: &mut Store) -> Result<Program> {
    let all: Vec<_> = store.values.clone();
    let mut b = Builder::new(store);
    for value in all {
        let var = b.persistent_named(&value.name, value.meta, value.class);
        let copy = b.scope(&value.name, |b| b.ops().clone_of(var));
        b.fetch(&value.name, copy);
    }
    Ok(Program { name: "snapshot".to_owned(), graph: b.finish()?, output_slots: 1 })
}

/// What a layer is lowered with.
pub struct Lowering<'a, 'b> {
    builder: &'a mut Builder<'b>,
    spec: &'a TrainSpec,
    mode: Mode,
    streams: u32,
    inits: &'a mut BTreeMap<String, Init>,
    after: Vec<After>,
}

impl Lowering<'_, '_> {
    /// What ops are recorded on.
    pub fn ops(&mut self) -> &mut (dyn Recorder + '_) {
        self.builder.ops()
    }

    /// What is known of a value.
    pub fn meta(&self, var: Var) -> Meta {
        self.builder.meta(var)
    }

    /// Whether the layer trains.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The element type of parameters and activations.
    pub fn dtype(&self) -> DType {
        self.spec.dtype
    }

    /// The run's seed.
    pub fn seed(&self) -> u64 {
        self.spec.seed
    }

    /// A learned value of this layer.
    pub fn parameter(&mut self, name: &str, shape: Shape, init: Init) -> Var {
        let meta = Meta { shape, dtype: self.dtype() };
        self.persistent(name, meta, Class::Parameter, init)
    }

    /// A tracked value of this layer.
    pub fn buffer(&mut self, name: &str, meta: Meta, init: Init) -> Var {
        self.persistent(name, meta, BUFFER, init)
    }

    fn persistent(&mut self, name: &str, meta: Meta, class: Class, init: Init) -> Var {
        let path = self.builder.path();
        let full = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        if self.builder.persistents().iter().any(|(_, name, _)| *name == full) {
            // Two layers of one name would learn one value without a word.
            let expected = "a name of its own in the model";
            self.builder.error("layer", Mismatch::new("name", expected, format!("{full} again")));
        }
        self.inits.entry(full).or_insert(init);
        self.builder.persistent(name, meta, class)
    }

    /// Updates persistent values of this layer once the loss is known to be
    /// finite; `op` gets `input` and the flag.
    pub fn after_loss(&mut self, op: Arc<dyn Op>, input: Var, outputs: Vec<Var>) {
        let path = self.builder.path();
        self.after.push((op, input, outputs, path));
    }

    /// Notes something that is wrong with this layer.
    pub fn error(&mut self, layer: &str, mismatch: Mismatch) {
        self.builder.error(layer, mismatch);
    }

    /// A number of its own for each random layer.
    pub(super) fn next_stream(&mut self) -> u32 {
        self.streams += 1;
        self.streams - 1
    }

    /// Runs `body` one level down the path.
    pub(super) fn scope<R>(
        &mut self,
        name: &str,
        body: impl FnOnce(&mut Lowering<'_, '_>) -> R,
    ) -> R {
        let Lowering { spec, mode, streams, .. } = *self;
        let inits = &mut *self.inits;
        let after = std::mem::take(&mut self.after);
        let (result, streams, after) = self.builder.scope(name, |builder| {
            let mut l = Lowering { builder, spec, mode, streams, inits, after };
            let result = body(&mut l);
            (result, l.streams, l.after)
        });
        (self.streams, self.after) = (streams, after);
        result
    }
}
