//! The model of dnn-partitioning: minimise the largest load of accelerators and cores.
//!
//! Devices have an order: the operators of the first of them are an ideal of the forward graph, so
//! that the part of each device, also of a core, is contiguous. All ideals are searched if they are
//! few enough, else many topological orders.

mod improve;
mod labels;
mod lattice;
mod orders;
mod relaxed;
#[cfg(test)]
mod tests;

use super::groups::Grouped;
use super::import::Operators;
use crate::error::{Error, Result};
use improve::{Improve, MOST_PLACES};
use labels::{Placed, Search};
use lattice::{Lattice, Size};
use orders::Orders;

/// A device and its operators.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Whether it is an accelerator or a core.
    pub kind: Load,
    /// Its operators, by index.
    pub operators: Vec<usize>,
    /// Its time.
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

/// The placements that were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// All: the ideals of the forward graph were searched, so many of them.
    Ideals(usize),
    /// Those along so many topological orders, and some near them.
    Orders(usize),
}

/// The best placement that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxLoad {
    /// Devices that have operators, in their order.
    pub devices: Vec<Device>,
    /// The largest load.
    pub load: f64,
    /// No placement has a smaller largest load.
    pub lower_bound: f64,
    /// What it is the best of.
    pub compared: Compared,
}

impl MaxLoad {
    /// The largest possible distance from the optimum, as a part of the load.
    pub fn gap(&self) -> f64 {
        if self.load <= self.lower_bound { 0.0 } else { (self.load - self.lower_bound) / self.load }
    }
}

/// How much a search may use.
#[derive(Clone, Copy)]
pub struct Effort<'a> {
    /// Graphs with more ideals are not searched exactly.
    pub ideals: usize,
    /// Bytes of ideals and partial placements of an exact search.
    pub bytes: usize,
    /// Starts of the local search over orders, where there is no exact result.
    pub rounds: usize,
    /// Whether to stop, with the best placement so far.
    pub stop: &'a dyn Fn() -> bool,
}

impl Default for Effort<'_> {
    fn default() -> Self {
        Self { ideals: 60_000, bytes: 1 << 30, rounds: 20, stop: &|| false }
    }
}

/// Ideals around an order that are searched at once.
const NEAR: usize = 3_000;

/// The best placement so far.
#[derive(Default)]
struct Known {
    devices: Vec<Device>,
    load: Option<f64>,
}

impl Known {
    fn load(&self) -> f64 {
        self.load.unwrap_or(f64::INFINITY)
    }

    fn offer(&mut self, graph: &Grouped<'_>, placed: Option<&Placed>) {
        if let Some(placed) = placed.filter(|placed| placed.load < self.load()) {
            (self.devices, self.load) = (placed.devices(graph), Some(placed.load));
        }
    }
}

/// Finds the placement with the smallest largest load, or a good one with a lower bound.
///
/// # Errors
/// If there are no devices, or no placement fits or was found.
pub fn max_load(of: &Operators, effort: &Effort<'_>) -> Result<MaxLoad> {
    if of.accelerators + of.cores == 0 {
        return Err(Error::plan("devices", "at least one accelerator or core", 0));
    }
    let graph = Grouped::new(of);
    let bound = relaxed::lower_bound(&graph);
    if bound.is_infinite() {
        return Err(infeasible(&graph, true));
    }
    let mut known = Known::default();
    let mut starts = Orders::new(&graph);
    // Of very many groups, blocks are placed, other ones in each round.
    let mut blocks = |round: usize| {
        let many = graph.len() > MOST_PLACES;
        if many { graph.blocks(&starts.start(round), MOST_PLACES) } else { graph.clone() }
    };
    let first = blocks(0);
    let mut orders = Orders::new(&first);
    let mut search = local(&first, bound, effort);
    search.begin(&mut orders);
    known.offer(&first, search.best.as_ref());
    let open = |known: &Known| known.load() > bound && !(effort.stop)();
    let size = Size { sets: effort.ideals, bytes: effort.bytes / 4 };
    let all = if open(&known) { Lattice::new(&graph.inputs(), size) } else { None };
    if let Some(all) = all {
        let exact = Search {
            graph: &graph,
            limit: known.load() * (1.0 - 1e-12),
            bound,
            labels: effort.bytes / 2 / labels::BYTES,
            stop: effort.stop,
        };
        let found = exact.run(&all);
        known.offer(&graph, found.placed.as_ref());
        if found.whole {
            let Some(load) = known.load else { return Err(infeasible(&graph, true)) };
            let compared = Compared::Ideals(all.len());
            return Ok(MaxLoad { devices: known.devices, load, lower_bound: load, compared });
        }
    }
    if graph.len() <= MOST_PLACES && open(&known) {
        search.rounds(&mut orders, effort.rounds);
        known.offer(&first, search.best.as_ref());
    }
    let mut compared = search.orders;
    // Other blocks in every round.
    for round in 1..=effort.rounds {
        if graph.len() <= MOST_PLACES || !open(&known) {
            break;
        }
        let other = blocks(round);
        let mut orders = Orders::new(&other);
        let mut search = local(&other, bound, effort);
        search.rounds(&mut orders, 1);
        known.offer(&other, search.best.as_ref());
        compared += search.orders;
    }
    let compared = Compared::Orders(compared);
    let Some(load) = known.load else { return Err(infeasible(&graph, false)) };
    Ok(MaxLoad { devices: known.devices, load, lower_bound: bound.min(load), compared })
}

/// The local search over orders of a graph.
fn local<'a>(graph: &'a Grouped<'a>, bound: f64, effort: &Effort<'a>) -> Improve<'a> {
    Improve {
        graph,
        bound,
        size: Size { sets: NEAR.min(effort.ideals), bytes: effort.bytes / 8 },
        labels: effort.bytes / labels::BYTES,
        stop: effort.stop,
        best: None,
        orders: 0,
    }
}

fn infeasible(graph: &Grouped<'_>, proved: bool) -> Error {
    let of = graph.of;
    let needed: f64 = graph.groups.iter().map(|group| group.bytes).sum();
    let room = of.accelerators as f64 * of.accelerator_bytes;
    let largest = graph.groups.iter().map(|group| group.bytes).fold(0.0, f64::max);
    let expected = match proved {
        true => "accelerators with enough memory for all operators, or cores",
        false => "a placement that was found in the time given",
    };
    let found = format!(
        "{needed:.4e} bytes of operators (at most {largest:.4e} that stay together), {room:.4e} on {} accelerators",
        of.accelerators
    );
    Error::plan("memory", expected, found)
}
