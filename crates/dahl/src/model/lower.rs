//! From a model to the programs of a session.

use super::layer::{BUFFER, LayerKind, lower_sequence};
use super::learn::{learn, loss};
use super::stages::Delays;
use super::{Init, Layer, Model, Optimizer};
use crate::error::{Error, ModelError, Result, Unexpected};
use crate::graph::{Builder, Class, Graph, Program, Programs, Shards, Store, fuse, fuse_updates};
use crate::names::named;
use crate::ops::{Meta, Mismatch, Op, Recorder, Var, split};
use crate::units::{PersistentId, ProgramId};
use dahl_kernels::{DType, Shape};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
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

/// Which samples batch norm takes its statistics over while training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormOver {
    /// All samples of the batch: a batch in parts is refused.
    #[default]
    Batch,
    /// Those of a part of the batch.
    Part,
}

named! {
    NormOver {
        Batch = "batch": "The whole batch; models with batch norm then cannot use micro-batches",
        Part = "micro": "Each micro-batch; the number of micro-batches then affects the result",
    }
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
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The largest norm of all gradients together.
    pub clip_grad_norm: Option<f64>,
    /// Whether ops are fused.
    pub fusion: Fusion,
    /// Into how many parts (micro-batches) a batch is cut. Each goes forward and
    /// backward by itself; their gradients are added in order.
    pub micro_batches: usize,
    /// The shares of each micro-batch whose sums are taken apart: a part of the numerics.
    pub shards: Shards,
    /// Which samples batch norm takes its statistics over.
    pub norm_over: NormOver,
    /// Which older parameters steps compute with; `None`: the newest.
    pub delays: Option<Delays>,
    /// The seed of everything random.
    pub seed: u64,
}

impl TrainSpec {
    /// Training with one batch size, cross entropy and an optimizer.
    pub fn new(batch: usize, dtype: DType, optimizer: Optimizer) -> Self {
        Self {
            dtype,
            train: vec![batch],
            eval: Vec::new(),
            loss: Loss::CrossEntropy,
            optimizer,
            clip_grad_norm: None,
            fusion: Fusion::On,
            micro_batches: 1,
            shards: Shards::default(),
            norm_over: NormOver::Batch,
            delays: None,
            seed: 0,
        }
    }
}

/// The programs of a session and what they start from.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// The programs and the values they share.
    pub programs: Programs,
    /// The training programs of each batch size: step k runs number k modulo how many
    /// there are. More than one where steps compute with older parameters.
    pub train: BTreeMap<usize, Vec<ProgramId>>,
    /// The evaluation program of each batch size.
    pub eval: BTreeMap<usize, ProgramId>,
    /// The program that copies everything that outlives a step.
    pub snapshot: ProgramId,
    /// What a batch of the first program gives.
    pub output: Shape,
    /// What each persistent value starts from.
    pub inits: Vec<Init>,
    /// For each persistent value the parameter that it is an older version of, if it is.
    pub version_of: Vec<Option<PersistentId>>,
    /// The seed that they start under.
    pub seed: u64,
}

impl Lowered {
    /// How many numbers the model gives for a sample: with labels, one per class.
    pub fn outputs(&self) -> usize {
        self.output.axes().get(1).copied().unwrap_or(0)
    }

    /// The values that a persistent value starts from.
    pub fn initial(&self, id: PersistentId) -> impl Iterator<Item = f64> + use<> {
        // Older versions start from what the newest does.
        let of = self.version_of[id.index()].unwrap_or(id);
        self.inits[id.index()].values(self.seed, &self.programs.store.get(of).name)
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
        let layers = count(&self.layers);
        if layers > MOST_LAYERS {
            return Err(Error::Model(vec![ModelError {
                op: "model".to_owned(),
                path: String::new(),
                fault: Unexpected::new("layers", format!("at most {MOST_LAYERS}"), layers),
            }]));
        }
        self.check_parts(spec)?;
        let turns = spec.delays.as_ref().map_or(1, Delays::turns);
        let mut output = None;
        for &batch in &spec.train {
            let Entry::Vacant(entry) = train.entry(batch) else { continue };
            let ids = entry.insert(Vec::new());
            for turn in 0..turns {
                let what = What { mode: Mode::Train, batch, turn };
                let (graph, shape) = self.program(spec, what, &mut store, &mut inits)?;
                output.get_or_insert(shape);
                ids.push(ProgramId::new(programs.len()));
                let name = match turns {
                    1 => format!("train {batch}"),
                    _ => format!("train {batch}, turn {turn}"),
                };
                programs.push(Program { name, graph, output_slots: 2, turn });
            }
        }
        for &batch in &spec.eval {
            let Entry::Vacant(entry) = eval.entry(batch) else { continue };
            let what = What { mode: Mode::Eval, batch, turn: 0 };
            let (graph, shape) = self.program(spec, what, &mut store, &mut inits)?;
            output.get_or_insert(shape);
            entry.insert(ProgramId::new(programs.len()));
            let name = format!("eval {batch}");
            programs.push(Program { name, graph, output_slots: 2, turn: 0 });
        }
        let snapshot = ProgramId::new(programs.len());
        programs.push(snapshot_program(&mut store)?);
        // The optimizer's states start from zero.
        let of = |name: &String| inits.get(name).map_or(Init::Constant(0.0), |(init, _)| *init);
        let version = |name: &String| inits.get(name).and_then(|(_, of)| store.find(of.as_ref()?));
        let version_of = store.values.iter().map(|v| version(&v.name)).collect();
        let inits = store.values.iter().map(|v| of(&v.name)).collect();
        let programs = Programs { store, programs, shards: spec.shards.clone() };
        let output = output.unwrap_or(Shape::new(&[]));
        let seed = spec.seed;
        Ok(Lowered { programs, train, eval, snapshot, output, inits, version_of, seed })
    }

    /// Refuses a batch in parts where that would change what is computed unasked.
    fn check_parts(&self, spec: &TrainSpec) -> Result<()> {
        if spec.micro_batches == 0 {
            return Err(Error::config("micro-batches", "at least 1", 0));
        }
        if spec.micro_batches > 1
            && spec.norm_over == NormOver::Batch
            && let Some(path) = normalised(&self.layers, "")
        {
            let expected = "a model without batch norm, or its statistics over micro-batches \
                            (`bn` micro), which differ from those of the batch";
            let found = format!("batch_norm2d {path:?} and {} micro-batches", spec.micro_batches);
            return Err(Error::config("micro-batches", expected, found));
        }
        Ok(())
    }

    fn program(
        &self,
        spec: &TrainSpec,
        What { mode, batch, turn }: What,
        store: &mut Store,
        inits: &mut Inits,
    ) -> Result<(Graph, Shape)> {
        let mut builder = Builder::new(store);
        if self.input.len() > 4 || self.input.contains(&0) {
            let expected = "a sample of at most 4 axes, none of length 0";
            return Err(Error::config("input", expected, format!("{:?}", self.input)));
        }
        let shape: Vec<usize> = std::iter::once(batch).chain(self.input.iter().copied()).collect();
        let x = builder.input("input", Meta::new(&shape[..], spec.dtype));
        let parts = split(batch, if mode == Mode::Train { spec.micro_batches } else { 1 }, 1);
        let (mut after, mut versions, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        let mut layers = BTreeMap::new();
        for (part, samples) in parts.iter().enumerate() {
            builder.set_part(part);
            let x = if parts.len() > 1 { builder.ops().slice(x, samples.clone()) } else { x };
            let builder = &mut builder;
            let place = Place { mode, turn, samples: samples.clone(), streams: 0 };
            let layers = &mut layers;
            let mut l = Lowering { builder, spec, place, inits, layers, after, versions };
            outputs.push(lower_sequence(&self.layers, x, &mut l));
            (after, versions) = (l.after, l.versions);
        }
        let shape = builder.meta(outputs[0]).shape;
        let losses = loss(&mut builder, spec, (batch, &parts), &outputs);
        if spec.fusion == Fusion::On {
            builder.rewrite(fuse);
        }
        if mode == Mode::Train {
            learn(&mut builder, spec, &losses, Kept { after, versions });
            if spec.fusion == Fusion::On {
                builder.rewrite(|graph| fuse_updates(graph, &spec.shards));
            }
        }
        let graph = builder.finish().map_err(|e| match e {
            Error::Model(errors) => Error::Model(once_each(errors)),
            e => e,
        })?;
        Ok((graph, shape))
    }
}

/// What values start from, by name, and the parameter that each is an older version of.
type Inits = BTreeMap<String, (Init, Option<String>)>;

/// Which program is lowered.
struct What {
    mode: Mode,
    batch: usize,
    /// Which of the programs that take turns.
    turn: usize,
}

/// The most layers of a model: how long it takes to plan it grows faster than they do.
const MOST_LAYERS: usize = 10_000;

/// How many layers there are, those of blocks too.
fn count(layers: &[Layer]) -> usize {
    let inside = |layer: &Layer| layer.kind.parts().into_iter().map(count).sum::<usize>();
    layers.iter().map(|layer| 1 + inside(layer)).sum()
}

/// The path of a layer that normalises over samples.
fn normalised(layers: &[Layer], above: &str) -> Option<String> {
    layers.iter().enumerate().find_map(|(i, layer)| {
        let name = layer.name.clone().unwrap_or_else(|| i.to_string());
        let path = if above.is_empty() { name } else { format!("{above}.{name}") };
        match &layer.kind {
            LayerKind::BatchNorm2d { .. } => Some(path),
            kind => kind.parts().into_iter().find_map(|layers| normalised(layers, &path)),
        }
    })
}

/// Each error once: several batch sizes report the same.
fn once_each(errors: Vec<ModelError>) -> Vec<ModelError> {
    let mut seen = Vec::new();
    errors.into_iter().for_each(|e| {
        // By their texts: they may be about numbers that are none.
        if !seen.iter().any(|s: &ModelError| s.to_string() == e.to_string()) {
            seen.push(e)
        }
    });
    seen
}

fn snapshot_program(store: &mut Store) -> Result<Program> {
    let all: Vec<_> = store.values.clone();
    let mut b = Builder::new(store);
    for value in all {
        let var = b.persistent_named(&value.name, value.meta, value.class);
        let copy = b.scope(&value.name, |b| b.ops().clone_of(var));
        b.fetch(&value.name, copy);
    }
    let name = "snapshot".to_owned();
    Ok(Program { name, graph: b.finish()?, output_slots: 1, turn: 0 })
}

/// What has to be done to persistent values once the loss is known.
pub(super) type After = (Arc<dyn Op>, Var, Vec<Var>, String);

/// A parameter that a step computes with an older version of.
pub(super) struct Versioned {
    /// The newest.
    pub(super) parameter: Var,
    /// What is computed with.
    pub(super) read: Var,
    /// What the updated one is kept as.
    pub(super) next: Var,
}

/// What layers have left to be done behind the loss.
pub(super) struct Kept {
    pub(super) after: Vec<After>,
    pub(super) versions: Vec<Versioned>,
}

/// Where in the programs a layer is lowered.
#[derive(Clone)]
struct Place {
    mode: Mode,
    turn: usize,
    /// The samples of the batch.
    samples: Range<usize>,
    /// How many random layers came before.
    streams: u32,
}

/// What a layer is lowered with.
pub struct Lowering<'a, 'b> {
    builder: &'a mut Builder<'b>,
    spec: &'a TrainSpec,
    place: Place,
    inits: &'a mut Inits,
    /// How many layers with a name each path has.
    layers: &'a mut BTreeMap<String, usize>,
    after: Vec<After>,
    versions: Vec<Versioned>,
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
        self.place.mode
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
        let newest = self.persistent(name, meta, Class::Parameter, init);
        let (Mode::Train, Some(delays)) = (self.place.mode, &self.spec.delays) else {
            return newest;
        };
        let path = self.builder.path();
        let Some([read, next]) = delays.versions(&path, self.place.turn) else { return newest };
        let full = self.full_name(name);
        let [read, next] = [read, next].map(|slot| {
            let name = format!("{full}@{slot}");
            self.inits.entry(name.clone()).or_insert((init, Some(full.clone())));
            self.builder.persistent_named(&name, meta, Class::Optimizer)
        });
        if self.is_first_part() {
            self.versions.push(Versioned { parameter: newest, read, next });
        }
        read
    }

    /// A tracked value of this layer.
    pub fn buffer(&mut self, name: &str, meta: Meta, init: Init) -> Var {
        self.persistent(name, meta, BUFFER, init)
    }

    fn full_name(&self, name: &str) -> String {
        let path = self.builder.path();
        if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
    }

    fn persistent(&mut self, name: &str, meta: Meta, class: Class, init: Init) -> Var {
        let full = self.full_name(name);
        let again = self.builder.is_declared(&full);
        let layers = self.layers.get(&self.builder.path()).copied().unwrap_or(0);
        // The later parts of a batch use what the first has declared; of two layers of one
        // path the path was refused.
        if again && self.is_first_part() && layers < 2 {
            self.taken(&full);
        }
        self.inits.entry(full).or_insert((init, None));
        self.builder.persistent(name, meta, class)
    }

    /// Notes that a layer with a name is lowered at the current path, which must have no other.
    pub(super) fn count_layer(&mut self) {
        if !self.is_first_part() {
            return;
        }
        let path = self.builder.path();
        let layers = self.layers.entry(path.clone()).or_insert(0);
        *layers += 1;
        if *layers > 1 {
            self.taken(&path);
        }
    }

    /// Two layers of one name would learn one value, and nothing could tell them apart.
    pub(super) fn taken(&mut self, name: &str) {
        let expected = "a unique name in the model";
        self.builder.error("layer", Mismatch::new("name", expected, format!("{name} again")));
    }

    fn is_first_part(&self) -> bool {
        self.place.samples.start == 0
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
        self.place.streams += 1;
        self.place.streams - 1
    }

    /// How many elements of this value came before, in earlier parts of the batch.
    pub(super) fn elements_before(&self, var: Var) -> usize {
        let shape = self.meta(var).shape;
        let samples = self.place.samples.len().max(1);
        self.place.samples.start * (shape.checked_elements().unwrap_or(0) / samples)
    }

    /// Runs `body` one level down the path.
    pub(super) fn scope<R>(
        &mut self,
        name: &str,
        body: impl FnOnce(&mut Lowering<'_, '_>) -> R,
    ) -> R {
        let (spec, place, inits) = (self.spec, self.place.clone(), &mut *self.inits);
        let layers = &mut *self.layers;
        let (after, versions) =
            (std::mem::take(&mut self.after), std::mem::take(&mut self.versions));
        let (result, streams, after, versions) = self.builder.scope(name, |builder| {
            let mut l = Lowering { builder, spec, place, inits, layers, after, versions };
            let result = body(&mut l);
            (result, l.place.streams, l.after, l.versions)
        });
        (self.place.streams, self.after, self.versions) = (streams, after, versions);
        result
    }
}
