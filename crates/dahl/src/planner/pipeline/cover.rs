//! Cells that cover all periods, fine where that helps, and the plans that they lead to.

use super::bounds::Bounds;
use super::cells::{Cell, Level, Potential, Range};
use super::cost::{Column, evaluate, fits};
use super::front::Front;
use super::solve::Limits;
use super::table::Table;
use super::types::Pipeline;

/// What a search begins with.
pub(super) struct Prepared<'a> {
    pub(super) bounds: Bounds<'a>,
    /// Plans that were met on the way.
    pub(super) front: Front,
}

/// Potentials of all combinations where their number allows it, else prices; about so many
/// cells, and fewer where states are many.
pub(super) fn prepare<'a>(table: &'a Table<'a>, limits: &Limits<'_>, most: usize) -> Prepared<'a> {
    let groups: usize = table.space.stages() * table.lattice.counts.len();
    let numbers = table.lattice.size.saturating_mul(table.sets());
    let full =
        numbers <= limits.states && table.lattice.size.saturating_mul(groups) <= 1_500_000_000;
    let adds_up = table.ending.iter().flatten().any(|column| column.sum > 0.0);
    let mut maker = Maker {
        table,
        idle: if full { table.idle() } else { Vec::new() },
        full,
        adds_up,
        front: Front::default(),
    };
    // Where something adds up, an interval of the period has several cells.
    let each = if adds_up { 5 } else { 1 };
    let most = if full { (60_000_000 / (each * numbers)).clamp(4, most) } else { 3 * most };
    let strips = maker.spread(limits, most);
    let levels = maker.levels(limits, 3 * most / 4);
    let cells = strips.into_iter().flat_map(|strip| strip.cells).collect();
    Prepared { bounds: Bounds::new(table, cells, levels, maker.idle), front: maker.front }
}

/// Cells of one interval of the period.
struct Strip {
    low: f64,
    high: f64,
    cells: Vec<Cell>,
    /// What plans in it take at least.
    bound: f64,
}

struct Maker<'a> {
    table: &'a Table<'a>,
    idle: Vec<f64>,
    full: bool,
    /// Whether something adds up over stages.
    adds_up: bool,
    front: Front,
}

impl Maker<'_> {
    /// Least sums of seconds for slowest stages from fast to slow; none where nothing adds
    /// up, or where combinations are too many.
    fn levels(&self, limits: &Limits<'_>, count: usize) -> Vec<Level> {
        if !self.adds_up || !self.full {
            return Vec::new();
        }
        let seconds = |plan: Option<&Pipeline>| plan.map_or(1.0, |plan| plan.period_s);
        let (fast, slow) =
            (seconds(self.front.plans().first()), seconds(self.front.plans().last()));
        let (low, high) = (fast / (self.table.slowest + 16.0), slow / (self.table.slowest + 1.0));
        let count = count.max(2);
        let ratio = (high / low).powf(1.0 / (count - 1) as f64);
        // A little aside, so that no rounding moves columns over an edge.
        let edge = |i: usize| low * ratio.powi(i as i32) * (1.0 + 1.2345e-9);
        let edges = (0..count).map(edge).chain([f64::INFINITY]);
        let edges = edges.filter(|edge| edge.is_infinite() || !(limits.stop)());
        edges.map(|most_high| Level { most_high, sums: self.table.sums(most_high) }).collect()
    }

    /// The cells of an interval; the plans that they lead to join the front.
    fn strip(&mut self, low: f64, high: f64) -> Strip {
        let mut cells = Vec::new();
        for (most_low, most_high) in self.slowest(high) {
            let range = Range { most_low, most_high, ..Range::of(low, high) };
            let cell = match self.adds_up && high.is_finite() {
                true => self.priced_seconds(range),
                false => self.cell(range),
            };
            cells.push(cell);
        }
        let bound = cells.iter().map(|cell| self.bound(cell)).fold(f64::INFINITY, f64::min);
        Strip { low, high, cells, bound }
    }

    /// Intervals of the slowest stage's seconds: so that seconds that add up are at most
    /// 1.5, 2.5, 5, 10 times as much, or more.
    fn slowest(&self, high: f64) -> Vec<(f64, f64)> {
        if !self.adds_up || self.table.slowest == 0.0 || high.is_infinite() {
            return vec![(0.0, f64::INFINITY)];
        }
        let edges = [10.0, 5.0, 2.5, 1.5].map(|times| high / (self.table.slowest + times));
        let mut all = vec![(0.0, edges[0])];
        all.extend(edges.windows(2).map(|pair| (pair[0], pair[1])));
        all.push((edges[3], f64::INFINITY));
        all
    }

    fn cell(&mut self, range: Range) -> Cell {
        let cell = match self.full {
            true => self.table.full(&self.idle, range),
            false => self.table.priced(range, self.front.joules_within(range.low)),
        };
        if let Some(plan) = self.trace(&cell) {
            self.front.add(plan);
        }
        cell
    }

    /// The cell with the price of seconds that shows most.
    fn priced_seconds(&mut self, range: Range) -> Cell {
        let mut best = self.cell(range);
        let mut known = self.bound(&best);
        let scale = self.front.joules_within(f64::INFINITY) / range.high;
        if !known.is_finite() || !scale.is_finite() {
            return best;
        }
        let mut worse = 0;
        for times in [0.25, 1.0, 4.0, 16.0, 64.0, 256.0] {
            let cell = self.cell(Range { theta: scale * times, ..range });
            let bound = self.bound(&cell);
            if bound > known {
                (best, known, worse) = (cell, bound, 0);
            } else {
                worse += 1;
            }
            if worse > 1 {
                break;
            }
        }
        best
    }

    /// What plans of a cell take at least.
    fn bound(&self, cell: &Cell) -> f64 {
        let end = self.table.sets() - 1;
        let joules = match &cell.potential {
            Potential::Full(all) => all[end * self.table.lattice.size],
            Potential::Priced { by_set, prices } => {
                let paid = prices.iter().zip(&self.table.lattice.counts);
                by_set[end] - paid.map(|(p, c)| p * *c as f64).sum::<f64>()
            }
        };
        joules + cell.range.beyond(0.0, self.table.slowest, 0.0)
    }

    /// An interval from 0 on that surely has no plan, and the end of it.
    fn too_fast(&mut self, limits: &Limits<'_>, slow: f64) -> Strip {
        let mut reached = slow;
        let mut missed = slow / 1e6;
        let mut proof = self.table.impossible(Range::of(0.0, missed));
        while reached > missed * 1.01 && !(limits.stop)() {
            let middle = (reached * missed).sqrt();
            if self.full {
                let range = Range::of(middle, middle * (1.0 + 1e-9));
                let cell = self.cell(range);
                if self.bound(&cell).is_finite() { reached = middle } else { missed = middle }
            } else {
                self.cell(Range::of(middle, middle * (1.0 + 1e-9)));
                match self.table.impossible(Range::of(0.0, middle)) {
                    Some(cell) => (proof, missed) = (Some(cell), middle),
                    None => reached = middle,
                }
            }
        }
        match proof.filter(|_| !self.full) {
            Some(cell) => {
                let bound = self.bound(&cell);
                Strip { low: 0.0, high: missed, cells: vec![cell], bound }
            }
            None => self.strip(0.0, missed),
        }
    }

    /// Strips that cover all periods.
    fn spread(&mut self, limits: &Limits<'_>, most: usize) -> Vec<Strip> {
        let all = self.cell(Range::of(0.0, f64::INFINITY));
        let slow = self.front.plans().last().map_or(1.0, |plan| plan.period_s).max(1e-12);
        // A little below it, so that no rounding moves its columns over an edge.
        let slow = slow * (1.0 - 1e-10);
        let first = self.too_fast(limits, slow);
        let missed = first.high;
        let mut strips = vec![first];
        let steps = (most / 4).max(2);
        let ratio = (slow.max(missed * 1.02) / missed).powf(1.0 / steps as f64);
        let mut edges = vec![missed];
        (0..steps).for_each(|_| edges.push(edges[edges.len() - 1] * ratio));
        edges.push(f64::INFINITY);
        for pair in edges.windows(2) {
            let strip = match (limits.stop)() {
                true => {
                    let range = Range::of(pair[0], pair[1]);
                    let cells = vec![Cell { range, ..all.clone() }];
                    Strip { low: pair[0], high: pair[1], cells, bound: 0.0 }
                }
                false => self.strip(pair[0], pair[1]),
            };
            strips.push(strip);
        }
        while strips.len() < most && !(limits.stop)() {
            let Some((worst, middle)) = self.worst(&strips) else { break };
            let (low, high) = (strips[worst].low, strips[worst].high);
            let right = self.strip(middle, high);
            let left = self.strip(low, middle);
            strips.splice(worst..=worst, [left, right]);
        }
        strips
    }

    /// The strip that may hide most, and where to split it.
    fn worst(&self, strips: &[Strip]) -> Option<(usize, f64)> {
        let problem = self.table.problem;
        let cap = problem.period_cap.unwrap_or(f64::INFINITY);
        let best = super::solve::pick(problem, &self.front);
        let best = best
            .map_or(f64::INFINITY, |plan| problem.objective.value(plan.period_s, plan.energy_j));
        let hidden = |strip: &Strip| {
            if !self.full && strip.low <= cap && best.is_finite() {
                // Prices leave gaps everywhere: what bounds the objective counts.
                return (best - problem.objective.value(strip.low, strip.bound)) / best;
            }
            let known = self.front.joules_within(strip.low.max(1e-300));
            match known.is_finite() {
                true => (known - strip.bound) / known,
                // Faster than all that are known.
                false if strip.bound.is_finite() && self.full => 1.0,
                false => 0.0,
            }
        };
        let splittable = |strip: &&(usize, &Strip)| {
            strip.1.high > strip.1.low * (1.0 + 1e-4) && strip.1.low > 0.0
                || strip.1.high.is_infinite()
        };
        let open = strips.iter().enumerate();
        let open: Vec<(usize, &Strip)> = open.collect();
        let order =
            |a: &&(usize, &Strip), b: &&(usize, &Strip)| hidden(a.1).total_cmp(&hidden(b.1));
        let &(at, strip) = open.iter().filter(splittable).max_by(order)?;
        if hidden(strip) <= 1e-12 {
            return None;
        }
        let (low, high) = (strip.low, strip.high);
        let inside = self.front.plans().iter().map(|plan| plan.period_s);
        let inside: Vec<f64> =
            inside.filter(|&at| at > low * 1.0001 && at < high * 0.9999).collect();
        let middle = match inside.get(inside.len() / 2) {
            Some(&at) => at * (1.0 - 1e-10),
            None if high.is_finite() => (low.max(high / 4.0) * high).sqrt(),
            None => low * 2.0,
        };
        (middle > low && middle < high).then_some((at, middle))
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
            let units: usize = lattice.all_used(used).iter().sum();
            table.each_useful(set, &cell.range, |column, cost| {
                let (unit, r) = (column.unit as usize, column.replicas as usize);
                let bytes = column.memory(table.problem.semantics, units + r, chosen.len() + 1);
                let room = fits(bytes, table.problem.units[unit].memory_bytes);
                if !room || lattice.used(used, unit) + r > lattice.counts[unit] {
                    return;
                }
                let next = used + r * lattice.strides[unit];
                let before = column.before as usize;
                let total = cost
                    + match &cell.potential {
                        Potential::Full(all) => all[before * lattice.size + next],
                        Potential::Priced { by_set, prices } => {
                            let each = table.unit_watts(unit) * cell.range.low + prices[unit];
                            by_set[before] + r as f64 * each
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
        }
        chosen.reverse();
        Some(evaluate(table.problem, &table.space, &chosen))
    }
}
