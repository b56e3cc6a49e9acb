//! Cells that cover all periods and all slowest stages, fine where that helps, and the plans
//! that they lead to.

use super::bottleneck_bounds::slowest;
use super::bounds::Bounds;
use super::cells::{ASIDE, Cell, Depth, Level, Range};
use super::cost::{StageOption, fits, objective_value, plan_value};
use super::front::Front;
use super::labels::Wanted;
use super::lagrange::Hint;
use super::solve::{Limits, pick};
use super::stage_options::OptionTable;

/// Numbers of all cells together.
pub(super) const MOST_NUMBERS: usize = 40_000_000;

/// What is known of all plans before one looks at partial plans.
pub(super) struct Cover<'a> {
    pub(super) table: &'a OptionTable<'a>,
    /// Plans that were met on the way.
    pub(super) front: Front,
    pub(super) cells: Vec<EvaluatedCell>,
    /// From fast stages to all.
    pub(super) levels: Vec<Level>,
    pub(super) idle: Vec<f64>,
    /// More joules than computing and moving take in any plan.
    busy: f64,
    /// Whether combinations of units are few enough for a number each.
    pub(super) full: bool,
}

/// A cell, and what it says.
#[derive(Clone)]
pub(super) struct EvaluatedCell {
    pub(super) cell: Cell,
    /// Joules that plans in it take at least.
    bound: f64,
    /// What its potentials lead to.
    leads: Option<Leads>,
    /// Whether parts of it would say no more.
    done: bool,
}

/// Seconds that add up, those of the slowest stage, and watts of units that wait.
#[derive(Clone, Copy)]
struct Leads {
    sum: f64,
    most: f64,
    watts: f64,
}

impl<'a> Cover<'a> {
    /// Potentials of all combinations where their number allows it, else multipliers; in a few
    /// cells. Plans of `front` are known.
    pub(super) fn new(table: &'a OptionTable<'a>, limits: &Limits<'_>, front: Front) -> Self {
        let full = table.is_countable(limits);
        let mut cover = Self {
            table,
            front,
            cells: Vec::new(),
            levels: Vec::new(),
            idle: if full { table.idle() } else { Vec::new() },
            busy: table.cost.most_busy_joules(),
            full,
        };
        cover.begin(limits);
        cover
    }

    /// As many cells as there may be.
    pub(super) fn most_cells(&self) -> usize {
        let each = self.cells.first().map_or(1, |known| known.cell.potential.len());
        (MOST_NUMBERS / each.max(1)).clamp(8, 1000)
    }

    /// All cells and levels as one.
    pub(super) fn bounds(&self) -> Bounds<'_> {
        let cells = self.cells.iter().map(|known| &known.cell).collect();
        Bounds::new(self.table, cells, &self.levels, &self.idle)
    }

    /// Intervals of the period from the fastest plan to the cheapest one.
    fn begin(&mut self, limits: &Limits<'_>) {
        let all = self.known(Range::of(0.0, f64::INFINITY), None, limits);
        // Its potentials hold everywhere.
        let as_part = |range: Range| {
            let cell = Cell { range, potential: all.cell.potential.clone() };
            EvaluatedCell { cell, ..all.clone() }
        };
        self.make_levels(limits);
        let slow = self.front.plans().last().map_or(1.0, |plan| plan.period_s).max(1e-12);
        let slow = slow * (1.0 - ASIDE);
        let seconds = self.seconds(0.0, f64::INFINITY) * (1.0 - 2.0 * ASIDE);
        let first = match seconds > 0.0 && seconds.is_finite() {
            // Levels show that no plan is in it.
            true => as_part(Range::of(0.0, seconds)),
            false => self.too_fast(limits, slow),
        };
        let missed = first.cell.range.high;
        let steps = if self.table.adds_up { 6 } else { 16 };
        let ratio = (slow.max(missed * 1.02) / missed).powf(1.0 / steps as f64);
        let mut edges = vec![missed];
        (0..steps).for_each(|_| edges.push(edges[edges.len() - 1] * ratio));
        edges.push(f64::INFINITY);
        self.cells.push(first);
        for pair in edges.windows(2) {
            let range = Range::of(pair[0], pair[1]);
            let known = match (limits.stop)() {
                true => as_part(range),
                false => self.known(range, Some(&all.cell), limits),
            };
            self.cells.push(known);
        }
    }

    /// An interval from 0 on that surely has no plan, where nothing adds up.
    fn too_fast(&mut self, limits: &Limits<'_>, slow: f64) -> EvaluatedCell {
        let mut reached = slow;
        let mut missed = slow / 1e6;
        let mut proof = self.table.impossible(Range::of(0.0, missed));
        while reached > missed * 1.01 && !(limits.stop)() {
            let middle = (reached * missed).sqrt();
            let known = self.known(Range::of(middle, middle * (1.0 + 1e-9)), None, limits);
            let found = match self.full {
                true => !known.bound.is_finite(),
                false => match self.table.impossible(Range::of(0.0, middle)) {
                    Some(cell) => {
                        proof = Some(cell);
                        true
                    }
                    None => false,
                },
            };
            if found { missed = middle } else { reached = middle }
        }
        match proof.filter(|_| !self.full) {
            Some(cell) => self.evaluate(cell),
            None => self.known(Range::of(0.0, missed), None, limits),
        }
    }

    /// The cell of a range, with the multiplier of seconds that shows most; it may be much like
    /// another one.
    fn known(&mut self, range: Range, like: Option<&Cell>, limits: &Limits<'_>) -> EvaluatedCell {
        if !self.full {
            let aim = self.front.joules_within(range.low.max(1e-300));
            let aim = Some(aim).filter(|aim| aim.is_finite());
            let cell = self.table.lagrangian(range, Hint { aim, like });
            return self.evaluate(cell);
        }
        let with_multiplier = self.table.adds_up && range.high.is_finite();
        let theta = like.map_or(0.0, |cell| cell.range.theta);
        let mut best =
            self.at_multiplier(Range { theta: if with_multiplier { theta } else { 0.0 }, ..range });
        if !with_multiplier {
            return best;
        }
        // What a second more or less would change: the bound is concave in the multiplier. On both
        // sides of the best multiplier, two lines are above it and meet above the best.
        let slope = |known: &EvaluatedCell| {
            let leads = known.leads?;
            Some(leads.sum + self.table.slowest * range.most_low - range.high)
        };
        let line =
            |known: &EvaluatedCell| Some((known.cell.range.theta, known.bound, slope(known)?));
        let (mut rising, mut falling) = (None, None);
        let mut last = line(&best);
        for _ in 0..6 {
            if (limits.stop)() {
                break;
            }
            let Some((theta, bound, slope)) = last else { break };
            if !bound.is_finite() || bound > self.table.cost.most_joules(self.busy, range.high) {
                break;
            }
            if slope > 0.0 {
                rising = last
            } else {
                falling = last
            }
            let next = match (rising, falling) {
                (Some((a, x, up)), Some((b, y, down))) => {
                    let meet = (y - x + up * a - down * b) / (up - down);
                    let most = x + up * (meet - a);
                    if most - best.bound <= 1e-5 * best.bound.abs() {
                        break;
                    }
                    meet
                }
                (Some(_), None) if theta == 0.0 => bound / range.high,
                (Some(_), None) => theta * 6.0,
                (None, Some((at, ..))) if at > 0.0 => 0.0,
                _ => break,
            };
            if !next.is_finite() || next < 0.0 || next == theta {
                break;
            }
            let known = self.at_multiplier(Range { theta: next, ..range });
            last = line(&known);
            if known.bound > best.bound {
                best = known;
            }
        }
        best
    }

    fn at_multiplier(&mut self, range: Range) -> EvaluatedCell {
        let cell = self.table.full(&self.idle, range);
        self.evaluate(cell)
    }

    /// What a cell says; the plan that it leads to joins the front.
    fn evaluate(&mut self, cell: Cell) -> EvaluatedCell {
        let table = self.table;
        let least = cell.potential.at(&table.unit_counts, table.sets() - 1, 0);
        let bound = least + cell.range.beyond(0.0, table.slowest, 0.0);
        let path = table.path(&cell, Depth::Ignored);
        let leads = path.as_ref().map(|path| {
            let mut used = vec![0; table.problem.units.len()];
            for (_, option) in path {
                used[option.unit as usize] += option.replicas as usize;
            }
            Leads {
                sum: path.iter().map(|(_, option)| option.sum).sum(),
                most: slowest(path),
                watts: table.cost.idle_watts(&used),
            }
        });
        if path.is_some_and(|path| !self.meet(path)) {
            table.path(&cell, Depth::Counted).map(|path| self.meet(path));
        }
        EvaluatedCell { cell, bound, leads, done: false }
    }

    /// A plan, its last stage option first, joins the front, where it fits into memory.
    pub(super) fn meet(&mut self, mut path: Vec<(usize, StageOption)>) -> bool {
        let fits = self.table.holds(&path);
        if fits {
            path.reverse();
            self.front.add(self.table.cost.evaluate(&self.table.ideals, &path));
        }
        fits
    }

    /// Splits cells until there are so many, or until nothing is gained: those that leave the
    /// objective most open, or the front.
    pub(super) fn refine(&mut self, wanted: Wanted, limits: &Limits<'_>, count: usize) {
        while self.cells.len() < count && !(limits.stop)() {
            let problem = self.table.problem;
            let best = pick(problem, &self.front);
            let best = best.map_or(f64::INFINITY, |plan| plan_value(problem, &plan));
            let open = |known: &EvaluatedCell| match wanted {
                Wanted::Objective => (best - self.worth(known)) / best,
                Wanted::Front => self.hidden(known),
            };
            let open = |known: &EvaluatedCell| {
                let open = open(known);
                // Without a plan everything is open.
                if open.is_nan() { 1.0 } else { open }
            };
            let cells = self.cells.iter().enumerate().filter(|(_, known)| !known.done);
            let worst = cells.map(|(i, known)| (open(known), i));
            let Some((open, worst)) = worst.max_by(|a, b| a.0.total_cmp(&b.0)) else { return };
            if open <= 1e-7 {
                return;
            }
            let Some(parts) = self.split(&self.cells[worst]) else {
                self.cells[worst].done = true;
                continue;
            };
            let like = self.cells.swap_remove(worst);
            for range in parts {
                let known = self.known(range, Some(&like.cell), limits);
                self.cells.push(known);
            }
        }
    }

    /// The least value of the objective that a plan of a cell may have.
    fn worth(&self, known: &EvaluatedCell) -> f64 {
        let problem = self.table.problem;
        match self.reached(known) {
            Some(at) if at <= problem.period_cap.unwrap_or(f64::INFINITY) => {
                objective_value(problem.objective, at, known.bound)
            }
            _ => f64::INFINITY,
        }
    }

    /// The least period of a plan of a cell, if it can have one.
    fn reached(&self, known: &EvaluatedCell) -> Option<f64> {
        let range = &known.cell.range;
        let problem = self.table.problem;
        if !(known.bound.is_finite()
            && known.bound <= self.table.cost.most_joules(self.busy, range.high))
        {
            return None;
        }
        let power = problem.power_cap.map_or(0.0, |cap| known.bound / cap);
        let at = range.low.max(power).max(self.seconds(range.most_low, range.most_high));
        (at < range.high).then_some(at)
    }

    /// Which part of the joules of plans that are known a cell's plans may save.
    fn hidden(&self, known: &EvaluatedCell) -> f64 {
        let Some(at) = self.reached(known) else { return 0.0 };
        let joules = self.front.joules_within(at.max(1e-300));
        match joules.is_finite() {
            true => (joules - known.bound) / joules,
            // Faster than all that are known.
            false if self.full => 1.0,
            false => 0.0,
        }
    }

    /// The parts of a cell, in period or slowest stage, whichever hides more; nothing where
    /// parts would hide as much.
    fn split(&self, known: &EvaluatedCell) -> Option<[Range; 2]> {
        let range = known.cell.range;
        let slowest = self.table.slowest;
        let leads = known.leads?;
        let period = leads.sum + slowest * leads.most;
        let watts = leads.watts.max(1e-300);
        // Joules between the bound and the plan that it leads to.
        let early = period.min(range.high) - range.low;
        let late = if range.theta > 0.0 { (range.high - period).max(0.0) } else { 0.0 };
        let mut by_period = watts * early + range.theta * late;
        if self.table.problem.objective != dahl_certify::Objective::Energy {
            by_period += known.bound * early / range.low.max(range.high.min(period) * 1e-3);
        }
        // What takes too long may do so because the slowest stage counts for nothing yet.
        let aside = slowest * (leads.most - range.most_low).max(0.0);
        let too_long = period > range.high && aside > 1e-9 * period;
        let by_slowest = if too_long { f64::INFINITY } else { range.theta * aside };
        // Where nothing adds up, fewer stages fit into shorter periods.
        if self.table.adds_up && by_period.max(by_slowest) <= 1e-6 * known.bound.abs() {
            return None;
        }
        if by_slowest > by_period {
            let middle = halfway(range.most_low, range.most_high, leads.most)?;
            return Some([
                Range { most_high: middle, ..range },
                Range { most_low: middle, ..range },
            ]);
        }
        let inside = self.front.plans().iter().map(|plan| plan.period_s);
        let inside: Vec<f64> = inside.filter(|at| *at > range.low && *at < range.high).collect();
        let near = inside.get(inside.len() / 2).copied().unwrap_or(period);
        let middle = halfway(range.low, range.high, near)?;
        Some([Range { high: middle, ..range }, Range { low: middle, ..range }])
    }
}

/// A place in an interval, near the one that is wanted but not near the ends.
fn halfway(low: f64, high: f64, wanted: f64) -> Option<f64> {
    let wanted = wanted * (1.0 - ASIDE);
    let middle = match high.is_finite() {
        true => wanted.clamp(low + 0.3 * (high - low), low + 0.7 * (high - low)),
        false if wanted > low * 1.0001 => wanted,
        false => low * 2.0,
    };
    (middle > low * (1.0 + 1e-7) && middle * (1.0 + 1e-7) < high).then_some(middle)
}

impl OptionTable<'_> {
    /// Whether combinations of units are few enough for a number each.
    pub(super) fn is_countable(&self, limits: &Limits<'_>) -> bool {
        if !self.listed {
            return false;
        }
        let groups: usize = self.ideals.stages() * self.unit_counts.available.len();
        let numbers = self.unit_counts.size.saturating_mul(self.sets());
        numbers <= limits.states && self.unit_counts.size.saturating_mul(groups) <= 1_500_000_000
    }

    /// Whether the stages of a path, the last first, fit into their memories.
    fn holds(&self, path: &[(usize, StageOption)]) -> bool {
        let mut units = 0;
        let mut used = vec![0; self.problem.units.len()];
        path.iter().enumerate().all(|(behind, (_, option))| {
            units += option.replicas as usize;
            used[option.unit as usize] += option.replicas as usize;
            // A relaxed path may have more units than there are.
            if used[option.unit as usize] > self.problem.units[option.unit as usize].count {
                return false;
            }
            let bytes = option.memory(self.problem.semantics, units, behind + 1);
            fits(bytes, self.problem.units[option.unit as usize].memory_bytes)
        })
    }
}
