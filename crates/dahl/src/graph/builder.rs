//! Building a graph op by op, collecting everything that is wrong.

use super::{Class, Graph, Kind, Node, Phase, Store, Value};
use crate::error::{Error, ModelError, Result};
use crate::ops::{Access, Meta, Mismatch, Op, Recorder, Var};
use crate::units::ValueId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A graph under construction.
///
/// What does not fit is noted and the most likely result put in its place, so
/// that [`finish`](Self::finish) can report all errors at once.
#[derive(Debug)]
pub struct Builder<'a> {
    pub(super) graph: Graph,
    store: &'a mut Store,
    path: Vec<String>,
    phase: Phase,
    part: usize,
    errors: Vec<ModelError>,
    persistent: BTreeMap<u32, ValueId>,
}

impl<'a> Builder<'a> {
    /// An empty graph whose persistent values are declared in `store`.
    pub fn new(store: &'a mut Store) -> Self {
        Self {
            graph: Graph::default(),
            store,
            path: Vec::new(),
            phase: Phase::Forward,
            part: 0,
            errors: Vec::new(),
            persistent: BTreeMap::new(),
        }
    }

    /// Declares a value that is filled before each step.
    pub fn input(&mut self, name: &str, meta: Meta) -> Var {
        self.check_size(name, &meta);
        self.value(name.to_owned(), meta, Kind::Input)
    }

    /// A persistent value of this name below the current path.
    pub fn persistent(&mut self, name: &str, meta: Meta, class: Class) -> Var {
        let name = self.name_of(name);
        self.persistent_named(&name, meta, class)
    }

    /// A persistent value of this whole name.
    pub fn persistent_named(&mut self, name: &str, meta: Meta, class: Class) -> Var {
        self.check_size(name, &meta);
        let id = self.store.declare(name, meta, class);
        if let Some(&var) = self.persistent.get(&id.0) {
            return var;
        }
        let meta = self.store.get(id).meta;
        let var = self.value(name.to_owned(), meta, Kind::Persistent(id));
        self.persistent.insert(id.0, var);
        var
    }

    /// The persistent values that this graph uses, with their classes.
    pub fn persistents(&self) -> Vec<(Var, String, Class)> {
        let of = |(&id, &var): (&u32, &Var)| {
            let p = self.store.get(crate::units::PersistentId(id));
            (var, p.name.clone(), p.class)
        };
        self.persistent.iter().map(of).collect()
    }

    /// Whether this graph uses a persistent value of this whole name.
    pub fn is_declared(&self, name: &str) -> bool {
        self.store.find(name).is_some_and(|id| self.persistent.contains_key(&id.0))
    }

    /// Runs `body` one level down the path.
    pub fn scope<R>(&mut self, name: &str, body: impl FnOnce(&mut Self) -> R) -> R {
        // An empty name is transparent: a block whose parts are named directly.
        if name.is_empty() {
            return body(self);
        }
        self.path.push(name.to_owned());
        let result = body(self);
        self.path.pop();
        result
    }

    /// The current place in the model.
    pub fn path(&self) -> String {
        self.path.join(".")
    }

    /// Sets the part of the program that the following nodes belong to.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Sets the part of the batch that the following nodes compute.
    pub fn set_part(&mut self, part: usize) {
        self.part = part;
    }

    /// Makes a value readable after a step, as it is at this place of the
    /// program. Inputs, persistent values and views with gaps are copied.
    pub fn fetch(&mut self, name: &str, var: Var) {
        let plain = self.graph.is_local_and_contiguous(var);
        let var = if plain { var } else { self.ops().clone_of(var) };
        self.graph.fetches.push((name.to_owned(), var));
    }

    /// This builder as what ops are recorded on.
    pub fn ops(&mut self) -> &mut (dyn Recorder + '_) {
        self
    }

    /// Notes something that is wrong at the current place.
    pub fn error(&mut self, op: &str, mismatch: Mismatch) {
        self.errors.push(ModelError {
            op: op.to_owned(),
            path: self.path(),
            fault: mismatch.fault,
        });
    }

    /// The errors so far.
    pub fn errors(&self) -> &[ModelError] {
        &self.errors
    }

    /// Rewrites the graph so far.
    pub fn rewrite(&mut self, rewrite: impl FnOnce(Graph) -> Graph) {
        if self.errors.is_empty() {
            self.graph = rewrite(std::mem::take(&mut self.graph));
        }
    }

    /// The graph, or everything that is wrong with it.
    pub fn finish(self) -> Result<Graph> {
        if !self.errors.is_empty() {
            return Err(Error::Model(self.errors));
        }
        self.graph.check()?;
        Ok(self.graph)
    }

    fn name_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path()) }
    }

    pub(super) fn value(&mut self, name: String, meta: Meta, kind: Kind) -> ValueId {
        self.graph.values.push(Value { name, meta, kind });
        ValueId::new(self.graph.values.len() - 1)
    }

    fn check_size(&mut self, what: &str, meta: &Meta) {
        if meta.checked_bytes().is_none() {
            let found = format!("{meta}, whose product overflows");
            self.error(what, Mismatch::new("size", "a tensor that can be addressed", found));
        }
    }

    fn push(&mut self, op: Arc<dyn Op>, inputs: &[Var], outputs: Vec<Var>) {
        let path = self.path();
        let inputs = inputs.to_vec();
        let (phase, part) = (self.phase, self.part);
        self.graph.nodes.push(Node { op, inputs, outputs, path, phase, variant: 0, part });
    }
}

impl Recorder for Builder<'_> {
    fn apply(&mut self, op: Arc<dyn Op>, inputs: &[Var]) -> Vec<Var> {
        let metas: Vec<Meta> = inputs.iter().map(|&v| self.meta(v)).collect();
        let inferred = op.infer(&metas).unwrap_or_else(|mismatch| {
            let guess = mismatch.guess.as_deref().copied().unwrap_or(metas[0]);
            self.error(op.name(), mismatch);
            vec![guess; op.outputs()]
        });
        if let Some(meta) = inferred.iter().find(|m| m.checked_bytes().is_none()) {
            self.check_size(op.name(), meta);
        }
        let name = self.name_of(op.name());
        let outputs: Vec<Var> =
            inferred.into_iter().map(|meta| self.value(name.clone(), meta, Kind::Local)).collect();
        self.push(op, inputs, outputs.clone());
        outputs
    }

    fn update(&mut self, op: Arc<dyn Op>, inputs: &[Var], outputs: &[Var]) {
        debug_assert!((0..outputs.len()).all(|i| op.access(i) == Access::Update));
        self.push(op, inputs, outputs.to_vec());
    }

    fn meta(&self, var: Var) -> Meta {
        self.graph.value(var).meta
    }
}
