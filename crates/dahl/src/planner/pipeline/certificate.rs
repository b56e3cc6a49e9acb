//! Makes certificates: the same potentials and labels as a search has, rounded so that
//! they hold against every rounding of the checker.

use super::bounds::{Aim, Bounds};
use super::cells::{Cell, Level, Potential};
use super::cover::{Prepared, prepare};
use super::labels::{Effort, Ended, Search};
use super::proof::{CellProof, Certificate, LabelProof, LevelProof};
use super::solve::Limits;
use super::table::Table;
use super::types::{Pipeline, Problem, Semantics};

/// How far below a plan's value a search looks, and a claim is: their difference is more
/// than all roundings of potentials, labels and the checker together.
const LOOKED_FOR: f64 = 1e-9;
const CLAIMED: f64 = 1e-8;

/// A claim that no plan is better than one, with its proof; of no plan is better than
/// what can be proved, where that is less. Nothing where there was no time, or where the
/// proof would be too large.
pub fn certificate(problem: &Problem, plan: &Pipeline, limits: &Limits<'_>) -> Option<Certificate> {
    let table = Table::new(problem, limits.ideals);
    if table.numbers != super::table::Replicas::All {
        return None;
    }
    let known = problem.objective.value(plan.period_s, plan.energy_j);
    let cap = problem.period_cap.unwrap_or(f64::INFINITY);
    // The fewer potentials the smaller the file; labels fill what they leave open.
    let numbers = table.lattice.size.saturating_mul(table.sets());
    let most = (1_200_000 / numbers.max(1)).clamp(6, 24);
    let most = if problem.semantics == Semantics::Stale { most } else { most.min(12) };
    // Prices are few numbers.
    let most = if numbers > limits.states { 64 } else { most };
    let Prepared { bounds, .. } = prepare(&table, limits, most);
    let bounds = lowered(bounds);
    let mut value = known * (1.0 - LOOKED_FOR);
    let aim = |value| Aim::Claim { objective: problem.objective, value, period_cap: cap };
    let effort = Effort { labels: limits.labels.min(400_000), width: None, stop: limits.stop };
    let mut search = Search::new(&bounds);
    let proved = search.prove(aim(value), &effort) == Some(Ended::All);
    if !proved {
        // What the potentials show by themselves.
        value =
            bounds.least(&bounds.start(), problem.objective, cap).min(known) * (1.0 - LOOKED_FOR);
        search = Search::new(&bounds);
        if search.prove(aim(value), &effort) != Some(Ended::All) {
            return None;
        }
    }
    let finite = |x: &f64| x.is_finite().then_some(*x);
    let cells = bounds.cells.iter().map(|cell| {
        let range = cell.range;
        let mut proof = CellProof {
            low: range.low,
            high: finite(&range.high),
            most_low: range.most_low,
            most_high: finite(&range.most_high),
            theta: range.theta,
            joules: Vec::new(),
            by_set: Vec::new(),
            prices: Vec::new(),
        };
        match &cell.potential {
            Potential::Full(all) => proof.joules = all.iter().map(finite).collect(),
            Potential::Priced { by_set, prices } => {
                proof.by_set = by_set.iter().map(finite).collect();
                proof.prices = prices.clone();
            }
        }
        proof
    });
    let levels = bounds.levels.iter().map(|level| LevelProof {
        most_high: finite(&level.most_high),
        sums: level.sums.iter().map(finite).collect(),
    });
    let last = table.sets() - 1;
    let labels = search.kept.iter().map(|label| LabelProof {
        set: label.half.set,
        used: label.half.used,
        sum: less(label.half.sum, label.half.set, last),
        most: less(label.half.most, label.half.set, last),
        joules: less(label.half.joules, label.half.set, last),
        stages: label.stages as usize,
    });
    Some(Certificate {
        dahl_certificate: 1,
        problem: problem.clone(),
        plan: plan.clone(),
        value: value * (1.0 - CLAIMED),
        sets: (0..=last).map(|set| table.space.between(0, set)).collect(),
        levels: levels.collect(),
        cells: cells.collect(),
        labels: labels.collect(),
    })
}

/// A part of 1e-11 less, and more for each set that is done: so much below its true
/// value that what a column adds to the label before is still above it.
fn less(x: f64, set: usize, last: usize) -> f64 {
    x * (1.0 - 1e-12 * (last - set + 1) as f64)
}

/// The same potentials, lower by more than what the checker may lose: each set loses more
/// than the ones that it contains.
fn lowered(bounds: Bounds<'_>) -> Bounds<'_> {
    let table = bounds.table;
    let size = table.lattice.size;
    let lower = |all: &[f64], size: usize| -> Vec<f64> {
        let part = |i: usize| 1e-12 * (i / size + 1) as f64;
        all.iter().enumerate().map(|(i, x)| x - x.abs() * part(i)).collect()
    };
    let cells: Vec<Cell> = bounds
        .cells
        .iter()
        .map(|cell| Cell {
            potential: match &cell.potential {
                Potential::Full(all) => Potential::Full(lower(all, size)),
                Potential::Priced { by_set, prices } => {
                    Potential::Priced { by_set: lower(by_set, 1), prices: prices.clone() }
                }
            },
            ..cell.clone()
        })
        .collect();
    let levels = bounds
        .levels
        .iter()
        .map(|level| Level { most_high: level.most_high, sums: lower(&level.sums, size) });
    let levels = levels.collect();
    Bounds::new(table, cells, levels, bounds.idle)
}
