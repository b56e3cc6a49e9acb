//! How a network may be cut: sets of layers with all that they need, and what lies
//! between two of them.
//!
//! A stage is the difference of two such sets (ideals), so that a batch passes stages
//! in an order. Where there are too many of them, only those that the order of the
//! layers begins with are taken.

use super::types::{Layer, Problem};
use std::collections::BTreeMap;

/// Of which cuts plans are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// Of all that there are.
    All,
    /// Of those between two layers of the order in which they stand.
    InOrder,
    /// Of some of these, evenly spread.
    SomePlaces,
}

impl Cuts {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all ideals",
            Self::InOrder => "layers in their order",
            Self::SomePlaces => "some places of the layers' order",
        }
    }
}

/// A set of layers.
type Bits = Vec<u64>;

/// What a stage has to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Load {
    /// The set before it.
    pub(super) before: usize,
    /// Seconds on one unit, by type.
    pub(super) seconds: Vec<f64>,
    /// Bytes of parameters.
    pub(super) parameters: f64,
    /// Bytes of other stages' outputs that it takes.
    pub(super) input: f64,
    /// Bytes of outputs of its own and of those that it takes.
    pub(super) activations: f64,
}

/// All sets, each behind those that it contains, and all stages.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub(super) cuts: Cuts,
    sets: Vec<Bits>,
    /// The stages that end with each set.
    pub(super) ending: Vec<Vec<Load>>,
    layers: usize,
}

fn has(bits: &[u64], layer: usize) -> bool {
    bits[layer / 64] >> (layer % 64) & 1 == 1
}

fn put(bits: &mut [u64], layer: usize) {
    bits[layer / 64] |= 1 << (layer % 64);
}

fn contains(larger: &[u64], smaller: &[u64]) -> bool {
    smaller.iter().zip(larger).all(|(s, l)| s & !l == 0)
}

/// All sets of layers that need no layer outside, smallest first; nothing where there
/// are more than so many.
pub(super) fn ideals(inputs: &[Vec<usize>], limit: usize) -> Option<Vec<Bits>> {
    let words = inputs.len().div_ceil(64).max(1);
    let mut all = vec![vec![0u64; words]];
    let mut from = 0;
    // Sets of one size after the other; a map, so that the order is always the same.
    while from < all.len() {
        let mut next: BTreeMap<Bits, ()> = BTreeMap::new();
        for set in &all[from..] {
            for layer in 0..inputs.len() {
                if !has(set, layer) && inputs[layer].iter().all(|&input| has(set, input)) {
                    let mut larger = set.clone();
                    put(&mut larger, layer);
                    next.insert(larger, ());
                }
            }
            if all.len() + next.len() > limit {
                return None;
            }
        }
        from = all.len();
        all.extend(next.into_keys());
    }
    Some(all)
}

impl Space {
    /// All sets where there are at most so many, else those of the order.
    pub(super) fn new(problem: &Problem, limit: usize) -> Self {
        let layers = &problem.layers;
        let inputs: Vec<Vec<usize>> = layers.iter().map(|layer| layer.inputs.clone()).collect();
        match ideals(&inputs, limit) {
            Some(sets) => Self::of(layers, sets, Cuts::All),
            None => Self::in_order(problem, usize::MAX),
        }
    }

    /// Those of the order, at no more than so many places.
    pub(super) fn in_order(problem: &Problem, places: usize) -> Self {
        let layers = &problem.layers;
        let places = places.min(layers.len()).max(1);
        let mut set = vec![0u64; layers.len().div_ceil(64)];
        let mut sets = vec![set.clone()];
        for layer in 0..layers.len() {
            put(&mut set, layer);
            // The places that parts of equal numbers of layers end at.
            if (layer + 1) * places / layers.len() > layer * places / layers.len() {
                sets.push(set.clone());
            }
        }
        let cuts = if places < layers.len() { Cuts::SomePlaces } else { Cuts::InOrder };
        Self::of(layers, sets, cuts)
    }

    fn of(layers: &[Layer], sets: Vec<Bits>, cuts: Cuts) -> Self {
        let types = layers.first().map_or(0, |layer| layer.seconds.len());
        let sum = |bits: &Bits, of: &dyn Fn(&Layer) -> f64| -> f64 {
            let inside = layers.iter().enumerate().filter(|(i, _)| has(bits, *i));
            inside.map(|(_, layer)| of(layer)).sum()
        };
        let seconds: Vec<Vec<f64>> = sets
            .iter()
            .map(|set| (0..types).map(|k| sum(set, &|layer| layer.seconds[k])).collect())
            .collect();
        let parameters: Vec<f64> =
            sets.iter().map(|set| sum(set, &|layer| layer.parameter_bytes)).collect();
        let outputs: Vec<f64> = sets.iter().map(|set| sum(set, &|layer| layer.output_bytes)).collect();
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); layers.len()];
        for (i, layer) in layers.iter().enumerate() {
            layer.inputs.iter().for_each(|&from| users[from].push(i));
        }
        // The outputs of a set that are used outside.
        let open: Vec<Vec<usize>> = sets
            .iter()
            .map(|set| {
                let inside = (0..layers.len()).filter(|&i| has(set, i));
                inside.filter(|&i| users[i].iter().any(|&user| !has(set, user))).collect()
            })
            .collect();
        let ending = (0..sets.len()).map(|end| {
            let before = (0..end).filter(|&b| contains(&sets[end], &sets[b]));
            let load = |b: usize| {
                let used = |&&i: &&usize| {
                    users[i].iter().any(|&user| has(&sets[end], user) && !has(&sets[b], user))
                };
                let input: f64 = open[b].iter().filter(used).map(|&i| layers[i].output_bytes).sum();
                Load {
                    before: b,
                    seconds: (0..types).map(|k| (seconds[end][k] - seconds[b][k]).max(0.0)).collect(),
                    parameters: (parameters[end] - parameters[b]).max(0.0),
                    input,
                    activations: (outputs[end] - outputs[b]).max(0.0) + input,
                }
            };
            before.map(load).collect()
        });
        let ending = ending.collect();
        Self { cuts, ending, sets, layers: layers.len() }
    }

    /// How many sets there are; the first is empty, the last has all layers.
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// How many stages there are, whatever units they run on.
    pub(super) fn stages(&self) -> usize {
        self.ending.iter().map(Vec::len).sum()
    }

    /// The layers between two sets.
    pub(super) fn between(&self, before: usize, end: usize) -> Vec<usize> {
        let inside = |&i: &usize| has(&self.sets[end], i) && !has(&self.sets[before], i);
        (0..self.layers).filter(inside).collect()
    }
}
