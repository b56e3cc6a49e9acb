//! The order ideals of a network: sets of layers with all that they need. A stage lies between two
//! of them. Where there are too many, only those that the layers' order begins with are taken.

use dahl_certify::{Assignment, Layer, Problem};
use std::collections::BTreeMap;

/// Of which cuts plans are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// Of all that there are.
    All,
    /// Of those between two layers of one order.
    InOrder,
    /// Of some of these, evenly spread.
    SomePlaces,
}

impl Cuts {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all ideals",
            Self::InOrder => "one order of the layers",
            Self::SomePlaces => "some places of one order of the layers",
        }
    }
}

/// Longer chains are cut at some places.
const MOST_CHAIN: usize = 2500;

/// A set of layers.
type Bits = Vec<u64>;

/// What a stage has to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StageWork {
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
pub(super) struct Ideals {
    pub(super) cuts: Cuts,
    sets: Vec<Bits>,
    /// The stages that end with each set.
    pub(super) ending: Vec<Vec<StageWork>>,
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

/// The layers of a set that a smaller one lacks, ascending.
fn inside<'a>(smaller: &'a [u64], larger: &'a [u64]) -> impl Iterator<Item = usize> + 'a {
    larger.iter().zip(smaller).enumerate().flat_map(|(word, (l, s))| {
        let mut bits = l & !s;
        std::iter::from_fn(move || {
            let bit = bits.trailing_zeros() as usize;
            bits &= bits.wrapping_sub(1);
            (bit < 64).then_some(word * 64 + bit)
        })
    })
}

/// All sets of layers that need no layer outside, smallest first; nothing where there
/// are more than so many.
pub(in crate::planner) fn ideals(inputs: &[Vec<usize>], limit: usize) -> Option<Vec<Bits>> {
    let words = inputs.len().div_ceil(64).max(1);
    let mut all = vec![vec![0u64; words]];
    let mut from = 0;
    // Sets of one size after the other; a map, so that the order is always the same.
    while from < all.len() {
        let mut next: BTreeMap<Bits, ()> = BTreeMap::new();
        for set in &all[from..] {
            for (layer, needs) in inputs.iter().enumerate() {
                if !has(set, layer) && needs.iter().all(|&input| has(set, input)) {
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

/// What a stage of some layers, in ascending order, has to do, whatever sets it lies between.
pub(super) fn stage_work(layers: &[Layer], own: &[usize]) -> StageWork {
    let types = layers.first().map_or(0, |layer| layer.seconds.len());
    let of = |i: &usize| &layers[*i];
    let mut taken: Vec<usize> = own.iter().flat_map(|i| of(i).inputs.iter().copied()).collect();
    taken.sort_unstable();
    taken.dedup();
    let outside = taken.iter().filter(|i| own.binary_search(i).is_err());
    let input: f64 = outside.map(|i| of(i).output_bytes).sum();
    StageWork {
        before: 0,
        seconds: (0..types).map(|k| own.iter().map(|i| of(i).seconds[k]).sum()).collect(),
        parameters: own.iter().map(|i| of(i).parameter_bytes).sum(),
        input,
        activations: own.iter().map(|i| of(i).output_bytes).sum::<f64>() + input,
    }
}

impl Ideals {
    /// All sets, if there are at most so many.
    pub(super) fn all(problem: &Problem, limit: usize) -> Option<Self> {
        let layers = &problem.layers;
        let inputs: Vec<Vec<usize>> = layers.iter().map(|layer| layer.inputs.clone()).collect();
        let sets = ideals(&inputs, limit)?;
        Some(Self::of(layers, sets, Cuts::All))
    }

    /// All sets of a chain, however many.
    pub(super) fn chain(problem: &Problem) -> Option<Self> {
        let layers = &problem.layers;
        let chain = (1..layers.len()).all(|i| layers[i].inputs.contains(&(i - 1)));
        (chain && layers.len() <= MOST_CHAIN).then(|| Self::in_order(problem, None, layers.len()))
    }

    /// Whether each set lies in the next.
    pub(super) fn are_nested(&self) -> bool {
        self.sets.windows(2).all(|pair| contains(&pair[1], &pair[0]))
    }

    /// Those of an order, at no more than so many places; those where stages of a plan end are
    /// among them.
    pub(super) fn in_order(problem: &Problem, along: Option<&Assignment>, places: usize) -> Self {
        let layers = &problem.layers;
        let (mut order, mut kept) = ((0..layers.len()).collect::<Vec<usize>>(), Vec::new());
        if let Some(plan) = along.filter(|plan| plan.shares.is_empty()) {
            order.clear();
            for stage in &plan.stages {
                order.extend(&stage.layers);
                kept.push(order.len());
            }
        }
        let places = places.min(layers.len()).max(1);
        let mut set = vec![0u64; layers.len().div_ceil(64)];
        let mut sets = vec![set.clone()];
        for (at, &layer) in order.iter().enumerate() {
            put(&mut set, layer);
            // The places that parts of equal numbers of layers end at.
            let place = (at + 1) * places / layers.len() > at * places / layers.len();
            if place || kept.binary_search(&(at + 1)).is_ok() {
                sets.push(set.clone());
            }
        }
        let all = sets.len() > layers.len();
        let chain = (1..layers.len()).all(|i| layers[i].inputs.contains(&(i - 1)));
        let cuts = match all {
            true if chain => Cuts::All,
            true => Cuts::InOrder,
            false => Cuts::SomePlaces,
        };
        Self::of(layers, sets, cuts)
    }

    fn of(layers: &[Layer], sets: Vec<Bits>, cuts: Cuts) -> Self {
        let types = layers.first().map_or(0, |layer| layer.seconds.len());
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
        let empty = |before: usize| StageWork {
            before,
            seconds: vec![0.0; types],
            parameters: 0.0,
            input: 0.0,
            activations: 0.0,
        };
        // Summed layer by layer: differences of sums would lose small layers.
        let add = |work: &mut StageWork, i: usize| {
            let layer = &layers[i];
            work.seconds.iter_mut().zip(&layer.seconds).for_each(|(sum, x)| *sum += x);
            work.parameters += layer.parameter_bytes;
            work.activations += layer.output_bytes;
        };
        let fed = |mut work: StageWork, end: usize| {
            let b = work.before;
            let used = |&&i: &&usize| {
                users[i].iter().any(|&user| has(&sets[end], user) && !has(&sets[b], user))
            };
            work.input = open[b].iter().filter(used).map(|&i| layers[i].output_bytes).sum();
            work.activations += work.input;
            work
        };
        if sets.windows(2).all(|pair| contains(&pair[1], &pair[0])) {
            // Each set lies in the next: a stage has what the shorter one has, and some more.
            let steps: Vec<Vec<usize>> =
                sets.windows(2).map(|pair| inside(&pair[0], &pair[1]).collect()).collect();
            let ending = (0..sets.len()).map(|end| {
                let mut own = empty(end);
                let longer = (0..end).rev().map(|b| {
                    own.before = b;
                    steps[b].iter().for_each(|&i| add(&mut own, i));
                    fed(own.clone(), end)
                });
                let mut works: Vec<StageWork> = longer.collect();
                works.reverse();
                works
            });
            let ending = ending.collect();
            return Self { cuts, ending, sets };
        }
        let ending = (0..sets.len()).map(|end| {
            let before = (0..end).filter(|&b| contains(&sets[end], &sets[b]));
            let work = |b: usize| {
                let mut work = empty(b);
                inside(&sets[b], &sets[end]).for_each(|i| add(&mut work, i));
                fed(work, end)
            };
            before.map(work).collect()
        });
        let ending = ending.collect();
        Self { cuts, ending, sets }
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
        inside(&self.sets[before], &self.sets[end]).collect()
    }
}
