//! The whole front of a problem, or as much of it as there is time for, and the plan
//! that the objective asks for, with what no plan can be better than.

use super::bounds::Bounds;
use super::cells::{Cell, Potential};
use super::cost::{Column, evaluate};
use super::front::Front;
use super::labels::{Effort, Ended, Search};
use super::space::Cuts;
use super::table::{Replicas, Table};
use super::types::{Pipeline, Problem};
use crate::error::{Error, Result};
use crate::units::Bytes;

/// How much a search may look at.
pub struct Limits<'a> {
    /// Sets of layers of a graph; with more, only cuts of the layers' order are taken.
    pub ideals: usize,
    /// Half-made plans at a time, about 100 bytes each.
    pub labels: usize,
    /// Whether to stop: with the best plans so far.
    pub stop: &'a dyn Fn() -> bool,
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Self { ideals: 1500, labels: 20_000_000, stop: &|| false }
    }
}

/// What is known of a problem.
#[derive(Clone, Debug)]
pub struct Solution {
    /// The best plan for the objective within the caps.
    pub best: Option<Pipeline>,
    /// All plans of which none is both faster and cheaper, whatever the period's cap.
    pub front: Front,
    /// No plan has an objective below this.
    pub lower_bound: f64,
    /// Whether the front is all of it.
    pub whole: bool,
    /// Of which cuts plans were made.
    pub cuts: Cuts,
    /// Which numbers of units a stage may have.
    pub replicas: Replicas,
    /// Half-made plans that were kept.
    pub labels: usize,
}

impl Solution {
    /// How far the best plan may be from the best that there is, as a part of its value.
    pub fn gap(&self, problem: &Problem) -> Option<f64> {
        let best = self.best.as_ref()?;
        let value = problem.objective.value(best.period_s, best.energy_j);
        if value <= self.lower_bound || value == 0.0 {
            return Some(0.0);
        }
        Some((value - self.lower_bound) / value)
    }
}

impl Solution {
    /// One plan from elsewhere, with what no plan is below.
    pub fn single(plan: &Pipeline, lower_bound: f64) -> Self {
        let mut front = Front::default();
        front.add(plan.clone());
        Self {
            best: Some(plan.clone()),
            front,
            lower_bound,
            whole: false,
            cuts: Cuts::All,
            replicas: Replicas::All,
            labels: 0,
        }
    }

    /// The plans that 'optimal' refers to.
    pub fn space(&self) -> String {
        let numbers = match self.replicas {
            Replicas::All => "",
            Replicas::Thinned => ", above 16 not every number of them",
        };
        format!("stages of one unit type each{numbers}, cut at {}", self.cuts.name())
    }
}

/// Why there is no plan: what is missing.
pub fn infeasible(problem: &Problem, found: &Solution) -> Error {
    let fastest = found.front.plans().first();
    if let (Some(cap), Some(fastest)) = (problem.period_cap, fastest) {
        let expected = format!("a plan of at most {cap} s a batch");
        let is = if found.whole { "the fastest takes" } else { "the fastest that was found takes" };
        return Error::plan("period", expected, format!("{is} {} s", fastest.period_s));
    }
    if let (true, Some(cap)) = (found.whole, problem.power_cap) {
        let mut free = problem.clone();
        free.power_cap = None;
        let least = problem.units.iter().enumerate().filter(|(_, unit)| unit.count > 0).map(|(k, _)| {
            let mut used = vec![0; problem.units.len()];
            used[k] = 1;
            problem.idle_watts(&used)
        });
        let least = least.fold(f64::INFINITY, f64::min);
        if least >= cap {
            let found = format!("{least} W of one unit that only waits, with its machine");
            return Error::plan("power-cap", format!("units that draw less than {cap} W"), found);
        }
    }
    if !found.whole {
        return Error::plan("time", "a plan in the time given", "none yet");
    }
    // The layer that needs most, on the unit that holds most.
    let alone = |i: usize| {
        let load = super::space::load(&problem.layers, &[i]);
        let bytes = |unit: usize| {
            let column = super::cost::column(problem, &load, [unit, 1, 0]);
            column.memory(problem.semantics, 1, 1)
        };
        (0..problem.units.len()).map(bytes).fold(f64::INFINITY, f64::min)
    };
    let needs = (0..problem.layers.len()).map(|i| (alone(i), i));
    let (bytes, layer) = needs.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0));
    let holds = problem.units.iter().map(|unit| unit.memory_bytes).fold(0.0, f64::max);
    let all: f64 = problem.units.iter().map(|unit| unit.memory_bytes * unit.count as f64).sum();
    let weights: f64 = problem.layers.iter().map(|layer| 2.0 * layer.parameter_bytes).sum();
    let size = |x: f64| Bytes(x as u64);
    let found = format!(
        "at most {} on a unit and {} on all; the largest layer alone ({}) needs {}, weights and gradients of all {}",
        size(holds),
        size(all),
        problem.layers[layer].name,
        size(bytes),
        size(weights)
    );
    Error::plan("memory", "units that hold weights, gradients and activations of their stages", found)
}

/// The cells that a search begins with, and the plans that were met on the way.
pub(super) struct Prepared<'a> {
    pub(super) bounds: Bounds<'a>,
    pub(super) front: Front,
}

/// Finds the front and the best plan.
pub fn solve(problem: &Problem, limits: &Limits<'_>) -> Result<Solution> {
    problem.check()?;
    let table = Table::new(problem, limits.ideals);
    let cap = problem.period_cap.unwrap_or(f64::INFINITY);
    let Prepared { bounds, mut front } = prepare(&table, limits);
    let exact = matches!(bounds.cells[0].potential, Potential::Full(_));
    let rank = (problem.objective, cap);
    let mut search = Search::new(&bounds);
    let width = if exact { None } else { Some(2000) };
    let effort = Effort { labels: limits.labels, width, stop: limits.stop };
    let ended = search.front(&mut front, &effort, rank);
    let labels = search.kept.len();
    drop(search);
    if exact && ended == Ended::Cut {
        // Something better than what the cells gave, without looking at everything.
        for width in [20, 200, 2000] {
            let effort = Effort { labels: limits.labels, width: Some(width), stop: limits.stop };
            Search::new(&bounds).front(&mut front, &effort, rank);
        }
    }
    let best = pick(problem, &front);
    let value = best.as_ref().map(|plan| problem.objective.value(plan.period_s, plan.energy_j));
    let lower_bound = match (ended, value) {
        (Ended::All, Some(value)) => value,
        (Ended::All, None) => f64::INFINITY,
        (Ended::Cut, _) => {
            let least = bounds.least(&bounds.start(), problem.objective, cap);
            value.map_or(least, |value| least.min(value))
        }
    };
    Ok(Solution {
        best,
        lower_bound,
        whole: ended == Ended::All,
        cuts: table.space.cuts,
        replicas: table.numbers,
        labels,
        front,
    })
}

/// The best plan of a front.
pub(super) fn pick(problem: &Problem, front: &Front) -> Option<Pipeline> {
    let cap = problem.period_cap.unwrap_or(f64::INFINITY);
    let within = front.plans().iter().filter(|plan| plan.period_s <= cap);
    let value = |plan: &Pipeline| problem.objective.value(plan.period_s, plan.energy_j);
    within.min_by(|a, b| value(a).total_cmp(&value(b))).cloned()
}

/// Potentials of all combinations where their number allows it, else prices.
pub(super) fn prepare<'a>(table: &'a Table<'a>, limits: &Limits<'_>) -> Prepared<'a> {
    prepare_cells(table, limits, 64)
}

/// The same with no more than so many cells, where there are as many as states allow.
pub(super) fn prepare_cells<'a>(
    table: &'a Table<'a>,
    limits: &Limits<'_>,
    most: usize,
) -> Prepared<'a> {
    let groups: usize = table.space.stages() * table.lattice.counts.len();
    let numbers = table.lattice.size.saturating_mul(table.sets());
    let full = numbers <= 6_000_000 && table.lattice.size.saturating_mul(groups) <= 1_500_000_000;
    let mut maker = Maker {
        table,
        idle: if full { table.idle() } else { Vec::new() },
        full,
        front: Front::default(),
        cells: Vec::new(),
    };
    let most = if full { (60_000_000 / numbers).clamp(6, most) } else { most.max(24) };
    maker.spread(limits, most);
    let synchronous = table.ending.iter().flatten().any(|column| column.sum > 0.0);
    let sums = if full && synchronous { table.sums() } else { Vec::new() };
    let Maker { cells, idle, front, .. } = maker;
    Prepared { bounds: Bounds::new(table, cells, sums, idle), front }
}

struct Maker<'a> {
    table: &'a Table<'a>,
    idle: Vec<f64>,
    full: bool,
    front: Front,
    cells: Vec<Cell>,
}

impl Maker<'_> {
    /// The cell of an interval; the plan that it leads to joins the front.
    fn make(&mut self, low: f64, high: f64) -> Cell {
        let cell = match self.full {
            true => self.table.full(&self.idle, low, high),
            false => self.table.priced(low, high, self.front.joules_within(low), 60),
        };
        if let Some(plan) = self.trace(&cell) {
            self.front.add(plan);
        }
        cell
    }

    /// What plans of a cell take at least.
    fn bound(&self, cell: &Cell) -> f64 {
        let end = self.table.sets() - 1;
        match &cell.potential {
            Potential::Full(all) => all[end * self.table.lattice.size],
            Potential::Priced { by_set, prices } => {
                let paid = prices.iter().zip(&self.table.lattice.counts);
                by_set[end] - paid.map(|(p, c)| p * *c as f64).sum::<f64>()
            }
        }
    }

    /// Cells that cover all periods, fine where that helps.
    fn spread(&mut self, limits: &Limits<'_>, most: usize) {
        // The greenest, and the fastest within some percent.
        let all = self.make(0.0, f64::INFINITY);
        let slow = self.front.plans().last().map_or(1.0, |plan| plan.period_s).max(1e-12);
        // A little below it, so that no rounding moves its columns over an edge.
        let slow = slow * (1.0 - 1e-10);
        let mut reached = slow;
        let mut missed = slow / 1e6;
        while reached > missed * 1.02 && !(limits.stop)() {
            let middle = (reached * missed).sqrt();
            let cell = self.make(middle, middle * (1.0 + 1e-9));
            if self.possible(&cell) { reached = middle } else { missed = middle }
        }
        let steps = (most / 4).max(2);
        let mut edges = vec![0.0, missed];
        let ratio = (slow.max(missed * 1.02) / missed).powf(1.0 / steps as f64);
        (0..steps).for_each(|_| edges.push(edges[edges.len() - 1] * ratio));
        edges.push(f64::INFINITY);
        let mut cells: Vec<Cell> = Vec::new();
        for pair in edges.windows(2) {
            match (limits.stop)() {
                true => cells.push(Cell { low: pair[0], high: pair[1], ..all.clone() }),
                false => cells.push(self.make(pair[0], pair[1])),
            }
        }
        // Where cells may hide most, they are split.
        while cells.len() < most && !(limits.stop)() {
            let hidden = |cell: &Cell| {
                let (known, bound) = (self.front.joules_within(cell.low.max(1e-300)), self.bound(cell));
                match known.is_finite() {
                    true => (known - bound) / known,
                    // Faster than all that are known.
                    false if bound.is_finite() && self.possible(cell) => 1.0,
                    false => 0.0,
                }
            };
            let scores: Vec<f64> = cells.iter().map(hidden).collect();
            let order = |a: &usize, b: &usize| scores[*a].total_cmp(&scores[*b]);
            let Some(worst) = (0..cells.len()).max_by(order) else { break };
            if scores[worst] <= 1e-12 {
                break;
            }
            let (low, high) = (cells[worst].low, cells[worst].high);
            let inside = self.front.plans().iter().map(|plan| plan.period_s);
            let inside: Vec<f64> = inside.filter(|&at| at > low * 1.0001 && at < high * 0.9999).collect();
            let middle = match inside.get(inside.len() / 2) {
                Some(&at) => at * (1.0 - 1e-10),
                None if high.is_finite() => (low.max(high / 4.0) * high).sqrt(),
                None => low * 2.0,
            };
            if !(middle > low && middle < high) || high - low < low * 1e-7 {
                break;
            }
            let right = self.make(middle, high);
            let left = self.make(low, middle);
            cells.splice(worst..=worst, [left, right]);
        }
        self.cells = cells;
    }

    /// Whether plans exist whose columns are all below the end of a cell; with prices,
    /// whether it seems so.
    fn possible(&self, cell: &Cell) -> bool {
        match &cell.potential {
            Potential::Full(_) => self.bound(cell).is_finite(),
            Potential::Priced { by_set, .. } => {
                by_set.last().is_some_and(|x| x.is_finite()) && self.trace(cell).is_some()
            }
        }
    }

    /// The plan that the potentials of a cell lead to, if it can be.
    fn trace(&self, cell: &Cell) -> Option<Pipeline> {
        let table = self.table;
        let lattice = &table.lattice;
        let mut set = table.sets() - 1;
        let mut used = 0;
        let mut chosen: Vec<(usize, Column)> = Vec::new();
        while set > 0 {
            let mut best: Option<(f64, Column)> = None;
            table.each_useful(set, cell.high, |column| {
                let (unit, r) = (column.unit as usize, column.replicas as usize);
                if lattice.used(used, unit) + r > lattice.counts[unit] {
                    return;
                }
                let next = used + r * lattice.strides[unit];
                let before = column.before as usize;
                let total = column.joules
                    + match &cell.potential {
                        Potential::Full(all) => all[before * lattice.size + next],
                        Potential::Priced { by_set, prices } => {
                            by_set[before] + r as f64 * (table.unit_watts(unit) * cell.low + prices[unit])
                        }
                    };
                if total.is_finite() && best.is_none_or(|(known, _)| total < known) {
                    best = Some((total, *column));
                }
            });
            let (_, column) = best?;
            let (unit, r) = (column.unit as usize, column.replicas as usize);
            used += r * lattice.strides[unit];
            chosen.push((set, column));
            set = column.before as usize;
            let units = lattice.all_used(used).iter().sum();
            let memory = column.memory(table.problem.semantics, units, chosen.len());
            if memory > table.problem.units[unit].memory_bytes {
                return None;
            }
        }
        chosen.reverse();
        Some(evaluate(table.problem, &table.space, &chosen))
    }
}
