//! The least largest load of accelerators and cores, over all ideals where there are not
//! too many.
//!
//! Devices have an order: what the first of them do is an ideal of the forward graph, so
//! that the part of each, of a core too, is contiguous. A label (accelerators and cores in
//! use, largest load) at each ideal goes on to all larger ideals by one device more.

use super::groups::{Group, Growing, groups, users};
use super::import::Operators;
use crate::error::{Error, Result};
use crate::planner::pipeline::ideals;

/// A device and what it has to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Whether it is an accelerator or a core.
    pub kind: Load,
    /// Its operators, by index.
    pub operators: Vec<usize>,
    /// What it takes.
    pub load: f64,
}

/// The two kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// With communication and a limited memory.
    Accelerator,
    /// Without.
    Core,
}

/// The best placement that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxLoad {
    /// Those that have something to do, in their order.
    pub devices: Vec<Device>,
    /// The largest load.
    pub load: f64,
    /// No placement has a smaller one.
    pub lower_bound: f64,
    /// The sets that were looked at.
    pub states: usize,
    /// Whether all ideals were.
    pub whole: bool,
}

impl MaxLoad {
    /// How far the placement may be from the best, as a part of its load.
    pub fn gap(&self) -> f64 {
        if self.load <= self.lower_bound { 0.0 } else { (self.load - self.lower_bound) / self.load }
    }
}

/// More partial placements are not kept.
const MOST_LABELS: usize = 4_000_000;

/// Places of an order of operators that devices may begin at; of more, only some are taken.
const MOST_PLACES: usize = 2_500;

/// Sets of groups, each behind those that it contains.
enum Sets {
    /// What an order begins with, up to each of these ends.
    Nested { order: Vec<usize>, ends: Vec<usize> },
    /// Any.
    Any(Vec<Vec<usize>>),
}

impl Sets {
    fn len(&self) -> usize {
        match self {
            Sets::Nested { ends, .. } => ends.len(),
            Sets::Any(all) => all.len(),
        }
    }

    fn groups(&self, set: usize) -> &[usize] {
        match self {
            Sets::Nested { order, ends } => &order[..ends[set]],
            Sets::Any(all) => &all[set],
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Label {
    /// Accelerators and cores in use.
    used: [u32; 2],
    load: f64,
    /// The state before, its label, and what did what is between.
    from: Option<(u32, u32, Load)>,
}

/// Finds the placement; stops when asked to, with the best so far.
pub fn max_load(of: &Operators, most_ideals: usize, stop: &dyn Fn() -> bool) -> Result<MaxLoad> {
    let all = groups(of);
    let users = users(of);
    if of.accelerators + of.cores == 0 {
        return Err(Error::plan("devices", "at least one accelerator or core", 0));
    }
    let bound = relaxed(of, &all);
    // Orders first: they bound what is worth looking at.
    let mut best: Option<Placed> = None;
    for order in orders(&all) {
        let step = order.len().div_ceil(MOST_PLACES).max(1);
        let mut ends: Vec<usize> = (0..order.len()).step_by(step).collect();
        ends.push(order.len());
        let sets = Sets::Nested { order, ends };
        // Loads that are far above the bound are seldom worth looking at.
        for times in [1.5, 4.0, f64::INFINITY] {
            let known = best.as_ref().map_or(f64::INFINITY, |placed| placed.load);
            let limit = known.min(bound * times + 1e-12);
            let found = Search { of, all: &all, users: &users, limit, stop }.run(&sets);
            let enough = found.placed.is_some() || limit == known;
            best = found.placed.or(best);
            if enough {
                break;
            }
        }
    }
    let inputs: Vec<Vec<usize>> = all.iter().map(|group| group.inputs.clone()).collect();
    let sets = ideals(&inputs, most_ideals.min(100_000_000 / of.nodes.len().max(1)));
    let (mut states, mut whole) = (all.len() + 1, false);
    if let Some(sets) = sets {
        let members = |bits: &Vec<u64>| -> Vec<usize> {
            (0..all.len()).filter(|i| bits[i / 64] >> (i % 64) & 1 == 1).collect()
        };
        let sets = Sets::Any(sets.iter().map(members).collect());
        states = sets.len();
        let limit = best.as_ref().map_or(f64::INFINITY, |placed| placed.load);
        let found = Search { of, all: &all, users: &users, limit, stop }.run(&sets);
        whole = found.whole;
        best = found.placed.or(best);
    }
    let Some(placed) = best else { return Err(infeasible(of, &all, whole)) };
    let lower_bound = if whole { placed.load } else { bound.min(placed.load) };
    Ok(MaxLoad { devices: placed.devices, load: placed.load, lower_bound, states, whole })
}

fn infeasible(of: &Operators, all: &[Group], whole: bool) -> Error {
    let needed: f64 = all.iter().map(|group| group.bytes).sum();
    let room = of.accelerators as f64 * of.accelerator_bytes;
    let largest = all.iter().map(|group| group.bytes).fold(0.0, f64::max);
    let expected = match whole {
        true => "accelerators with enough memory for all operators, or cores",
        false => "a placement that was found in the time given",
    };
    let found = format!(
        "{needed:.4e} bytes of operators (at most {largest:.4e} that stay together), {room:.4e} on {} accelerators",
        of.accelerators
    );
    Error::plan("memory", expected, found)
}

/// The least load if groups could be split, without communication and memory.
fn relaxed(of: &Operators, all: &[Group]) -> f64 {
    let mut sorted: Vec<&Group> = all.iter().collect();
    // First to the cores what they are best at.
    let ratio = |group: &Group| match group.accelerator {
        x if x.is_infinite() => 0.0,
        x if x > 0.0 => group.core / x,
        _ => f64::INFINITY,
    };
    sorted.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let enough = |load: f64| {
        let (mut cores, mut accelerators) = (load * of.cores as f64, load * of.accelerators as f64);
        for group in &sorted {
            let part = if group.core > 0.0 { (cores / group.core).min(1.0) } else { 1.0 };
            let part = if of.cores == 0 { 0.0 } else { part };
            cores -= part * group.core;
            if part < 1.0 {
                accelerators -= (1.0 - part) * group.accelerator;
            }
        }
        accelerators >= 0.0
    };
    let (mut low, mut high) = (0.0, 1.0);
    while !enough(high) && high < 1e30 {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if enough(middle) { high = middle } else { low = middle }
    }
    let whole = |group: &Group| match (of.accelerators, of.cores) {
        (0, _) => group.core,
        (_, 0) => group.accelerator,
        _ => group.accelerator.min(group.core),
    };
    all.iter().map(whole).fold(low, f64::max)
}

/// Orders of the groups: as they stand, and depth first.
fn orders(all: &[Group]) -> Vec<Vec<usize>> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    for (to, group) in all.iter().enumerate() {
        group.inputs.iter().for_each(|&from| users[from].push(to));
    }
    let mut left: Vec<usize> = all.iter().map(|group| group.inputs.len()).collect();
    let mut ready: Vec<usize> = (0..all.len()).rev().filter(|&i| left[i] == 0).collect();
    let mut deep = Vec::new();
    while let Some(next) = ready.pop() {
        deep.push(next);
        for &user in users[next].iter().rev() {
            left[user] -= 1;
            if left[user] == 0 {
                ready.push(user);
            }
        }
    }
    let plain: Vec<usize> = (0..all.len()).collect();
    if plain == deep { vec![plain] } else { vec![plain, deep] }
}

struct Placed {
    devices: Vec<Device>,
    load: f64,
}

struct Found {
    placed: Option<Placed>,
    whole: bool,
}

struct Search<'a> {
    of: &'a Operators,
    all: &'a [Group],
    users: &'a [Vec<usize>],
    /// A load that is known to be possible.
    limit: f64,
    stop: &'a dyn Fn() -> bool,
}

impl Search<'_> {
    /// The best placement over sets of groups, each behind the smaller ones; nothing
    /// where none is better than the limit.
    fn run(&self, sets: &Sets) -> Found {
        let mut labels: Vec<Vec<Label>> = vec![Vec::new(); sets.len()];
        labels[0].push(Label { used: [0, 0], load: 0.0, from: None });
        let last = sets.len() - 1;
        let devices = [self.of.accelerators, self.of.cores].map(|n| n as u32);
        let mut growing = Growing::new(self.of, self.users);
        let (mut whole, mut kept) = (true, 0);
        for at in 0..last {
            tidy(&mut labels[at]);
            kept += labels[at].len();
            if kept > MOST_LABELS || (self.stop)() {
                whole = false;
                break;
            }
            let from = labels[at].clone();
            if from.is_empty() {
                continue;
            }
            let known = labels[last].iter().map(|label| label.load);
            let limit = known.fold(self.limit, f64::min);
            self.each_load(sets, at, limit, &mut growing, |to, loads| {
                for (kind, load) in [Load::Accelerator, Load::Core].into_iter().zip(loads) {
                    if load >= limit {
                        continue;
                    }
                    let next = from.iter().enumerate().filter_map(|(i, label)| {
                        let mut used = label.used;
                        used[kind as usize] += 1;
                        let free = used[kind as usize] <= devices[kind as usize];
                        let from = Some((at as u32, i as u32, kind));
                        free.then(|| Label { used, load: label.load.max(load), from })
                    });
                    labels[to].extend(next);
                }
            });
        }
        tidy(&mut labels[last]);
        let best = labels[last].iter().min_by(|a, b| a.load.total_cmp(&b.load));
        let placed = best
            .filter(|label| label.load < self.limit)
            .map(|label| Placed { load: label.load, devices: self.devices(sets, &labels, label) });
        Found { placed, whole }
    }

    /// Calls with the larger sets, and what an accelerator and a core take for what they
    /// have more.
    fn each_load(
        &self,
        sets: &Sets,
        at: usize,
        limit: f64,
        growing: &mut Growing<'_>,
        mut call: impl FnMut(usize, [f64; 2]),
    ) {
        match sets {
            Sets::Nested { order, ends } => {
                growing.clear();
                let mut work = [0.0; 2];
                for to in at + 1..ends.len() {
                    for &group in &order[ends[to - 1]..ends[to]] {
                        growing.add(&self.all[group]);
                        work[0] += self.all[group].accelerator;
                        work[1] += self.all[group].core;
                    }
                    // Larger sets take more.
                    if work[0] >= limit && (work[1] >= limit || self.of.cores == 0) {
                        return;
                    }
                    call(to, [growing.load(), work[1]]);
                }
            }
            Sets::Any(all) => {
                let mut inside = vec![false; self.all.len()];
                all[at].iter().for_each(|&group| inside[group] = true);
                for (to, set) in all.iter().enumerate().skip(at + 1) {
                    let new = set.len().saturating_sub(all[at].len());
                    let outside = || set.iter().copied().filter(|&group| !inside[group]);
                    if new == 0 || outside().count() != new {
                        continue;
                    }
                    let work: f64 = outside().map(|group| self.all[group].accelerator).sum();
                    let core: f64 = outside().map(|group| self.all[group].core).sum();
                    let mut load = f64::INFINITY;
                    if work < limit {
                        growing.clear();
                        outside().for_each(|group| growing.add(&self.all[group]));
                        load = growing.load();
                    }
                    call(to, [load, core]);
                }
            }
        }
    }

    fn devices(&self, sets: &Sets, labels: &[Vec<Label>], last: &Label) -> Vec<Device> {
        let mut devices = Vec::new();
        let (mut state, mut label) = (sets.len() - 1, last);
        while let Some((before, i, kind)) = label.from {
            let inside = sets.groups(before as usize);
            let new = sets.groups(state).iter().copied().filter(|group| !inside.contains(group));
            let new: Vec<usize> = new.collect();
            let mut operators: Vec<usize> =
                new.iter().flat_map(|&group| self.all[group].operators.iter().copied()).collect();
            operators.sort_unstable();
            let load = match kind {
                Load::Accelerator => {
                    let mut growing = Growing::new(self.of, self.users);
                    new.iter().for_each(|&group| growing.add(&self.all[group]));
                    growing.load()
                }
                Load::Core => new.iter().map(|&group| self.all[group].core).sum(),
            };
            devices.push(Device { kind, operators, load });
            (state, label) = (before as usize, &labels[before as usize][i as usize]);
        }
        devices.reverse();
        devices
    }
}

/// Removes labels than which others are as good in everything.
fn tidy(labels: &mut Vec<Label>) {
    labels.sort_by(|a, b| a.load.total_cmp(&b.load).then(a.used.cmp(&b.used)));
    let mut kept: Vec<Label> = Vec::new();
    for label in labels.drain(..) {
        let covers = |other: &Label| {
            other.used.iter().zip(&label.used).all(|(a, b)| a <= b) && other.load <= label.load
        };
        if !kept.iter().any(covers) {
            kept.push(label);
        }
    }
    *labels = kept;
}
