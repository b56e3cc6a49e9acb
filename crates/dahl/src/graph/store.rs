//! The values that outlive a step, and the programs that share them.

use super::{Graph, Shards};
use crate::ops::Meta;
use crate::units::{PersistentId, ProgramId};
use std::collections::BTreeMap;

/// The role of a persistent value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Learned: in the state dict, updated by the optimizer.
    Parameter,
    /// Tracked: in the state dict, updated by the model (running statistics).
    Buffer,
    /// The optimizer's: momentum, squares.
    Optimizer,
}

/// A value that outlives the step.
#[derive(Clone, Debug)]
pub struct Persistent {
    /// Its name in the state dict, or the parameter's and the state's.
    pub name: String,
    /// Shape and element type.
    pub meta: Meta,
    /// Its role.
    pub class: Class,
}

/// The persistent values of a session, in the order they were declared.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// All of them.
    pub values: Vec<Persistent>,
    ids: BTreeMap<String, PersistentId>,
}

impl Store {
    /// The value of a name, declared now if it was not before.
    pub fn declare(&mut self, name: &str, meta: Meta, class: Class) -> PersistentId {
        self.find(name).unwrap_or_else(|| {
            let id = PersistentId::new(self.values.len());
            self.values.push(Persistent { name: name.to_owned(), meta, class });
            self.ids.insert(name.to_owned(), id);
            id
        })
    }

    /// The id of a name.
    pub fn find(&self, name: &str) -> Option<PersistentId> {
        self.ids.get(name).copied()
    }

    /// The value of an id.
    pub fn get(&self, id: PersistentId) -> &Persistent {
        &self.values[id.index()]
    }

    /// The ids and values of a class.
    pub fn of_class(&self, class: Class) -> impl Iterator<Item = (PersistentId, &Persistent)> {
        let all = self.values.iter().enumerate().filter(move |(_, p)| p.class == class);
        all.map(|(i, p)| (PersistentId::new(i), p))
    }
}

/// A named graph.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name: `train`, `eval`.
    pub name: String,
    /// Its nodes.
    pub graph: Graph,
    /// How many steps' outputs are kept: 2 where one step's are read while the
    /// next one runs.
    pub output_slots: usize,
    /// Which turn it has, where programs take turns: steps under way at once then have
    /// bytes of their own.
    pub turn: usize,
}

/// The programs of a session and the values they share.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The shared values.
    pub store: Store,
    /// The programs.
    pub programs: Vec<Program>,
    /// The shares of the batch that their sums are taken in.
    pub shards: Shards,
}

impl Programs {
    /// Other programs over the same values, with the same shards.
    pub fn with(&self, programs: Vec<Program>) -> Self {
        Self { store: self.store.clone(), programs, shards: self.shards.clone() }
    }

    /// The program of a name.
    pub fn find(&self, name: &str) -> Option<ProgramId> {
        self.programs.iter().position(|p| p.name == name).map(ProgramId::new)
    }

    /// The program of an id.
    pub fn get(&self, id: ProgramId) -> &Program {
        &self.programs[id.index()]
    }
}
