//! Makes certificates: the same potentials and labels as a search has, rounded so that
//! they hold against every rounding of the checker.

use super::bounds::{Aim, Bounds};
use super::cells::{Cell, Level, Potential};
use super::certify;
use super::cover::{Cover, Known};
use super::labels::{Effort, Ended, Search, Wanted};
use super::proof::{CellProof, Certificate, LabelProof, LevelProof};
use super::solve::Limits;
use super::table::Table;
use super::types::{Pipeline, Problem};
use serde::de::IgnoredAny;

/// How far below a plan's value a search looks, and a claim is: their difference is more
/// than all roundings of potentials, labels and the checker together.
const LOOKED_FOR: f64 = 4e-9;
const CLAIMED: f64 = 1e-8;

/// Labels that are always worth a try.
const FEW: usize = 2_000;
/// The gap below which more of them are.
const NEAR: f64 = 0.02;

/// Potentials of a proof have no more numbers, where that is possible: each is computed again
/// when the proof is checked.
const MOST_NUMBERS: usize = 8_000_000;

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
    let mut value = known * (1.0 - LOOKED_FOR);
    let aim = |value| Aim::Claim { objective: problem.objective, value, period_cap: cap };
    let mut cover = Cover::new(&table, limits);
    cover.front.add(plan.clone());
    // The fewer potentials the sooner it is checked; labels fill what they leave open.
    let each = table.lattice.size.saturating_mul(table.sets());
    let most_cells = match cover.full {
        true => (MOST_NUMBERS / each).max(16).min(cover.most_cells()),
        false => cover.most_cells(),
    };
    let (mut count, mut most) = (cover.cells.len() + 8, FEW);
    let (cells, levels, kept) = loop {
        cover.refine(Wanted::Objective, limits, count.min(most_cells));
        let (cells, levels) = lowered(&cover);
        let bounds = Bounds::new(&table, cells.iter().collect(), &levels, &cover.idle);
        let last = count >= most_cells || (limits.stop)();
        let shown = bounds.least_of_all(problem.objective, cap);
        // Many labels close a small gap; a wide one takes time that cells use better.
        let labels = if last || shown >= known * (1.0 - NEAR) { most } else { FEW };
        let effort = Effort { labels, width: None, stop: limits.stop };
        let mut search = Search::new(&bounds);
        if search.prove(aim(value), &effort) == Some(Ended::All) {
            let kept = std::mem::take(&mut search.kept);
            break (cells, levels, kept);
        }
        if last {
            // What the potentials show by themselves.
            value = shown.min(known) * (1.0 - LOOKED_FOR);
            let mut search = Search::new(&bounds);
            let effort = Effort { stop: &|| false, ..effort };
            if search.prove(aim(value), &effort) != Some(Ended::All) {
                return None;
            }
            let kept = std::mem::take(&mut search.kept);
            break (cells, levels, kept);
        }
        (count, most) = (2 * count, (8 * most).min(400_000));
    };
    let numbers = cells.iter().map(|cell| cell.potential.len());
    let numbers = numbers.chain(levels.iter().map(|level| level.potential.len()));
    if numbers.sum::<usize>() > certify::MOST_NUMBERS {
        return None;
    }
    let finite = |x: f64| x.is_finite().then_some(x);
    let prices = |potential: &Potential| match potential {
        Potential::Full(_) => Vec::new(),
        Potential::Priced { prices, .. } => prices.clone(),
    };
    let cells = cells.iter().map(|Cell { range, potential }| CellProof {
        low: range.low,
        high: finite(range.high),
        most_low: range.most_low,
        most_high: finite(range.most_high),
        theta: range.theta,
        prices: prices(potential),
        joules: IgnoredAny,
        by_set: IgnoredAny,
    });
    let levels = levels.iter().map(|Level { most_high, potential }| LevelProof {
        most_high: finite(*most_high),
        prices: prices(potential),
        sums: IgnoredAny,
        by_set: IgnoredAny,
    });
    let last = table.sets() - 1;
    let labels = kept.iter().map(|label| LabelProof {
        set: label.half.set,
        used: label.half.used,
        sum: less(label.half.sum, label.half.set, last),
        // Nothing is added up, so that nothing more is lost.
        most: label.half.most * (1.0 - 3e-13),
        joules: less(label.half.joules, label.half.set, last),
        stages: label.stages as usize,
    });
    Some(Certificate {
        dahl_certificate: 2,
        problem: problem.clone(),
        plan: plan.clone(),
        not_about: None,
        value: value * (1.0 - CLAIMED),
        sets: (0..=last).map(|set| table.space.between(0, set)).collect(),
        levels: levels.collect(),
        cells: cells.collect(),
        labels: labels.collect(),
    })
}

/// A little less, and more for each set that is done: so much below its true value that what
/// a column adds to the label before is still above it, each rounded down by the checker.
fn less(x: f64, set: usize, last: usize) -> f64 {
    x * (1.0 - 3e-13 * (last - set + 1) as f64)
}

/// The same potentials, lower by more than what the checker may lose: each set loses more
/// than the ones that it contains.
fn lowered(cover: &Cover<'_>) -> (Vec<Cell>, Vec<Level>) {
    let lower = |all: &[f64], size: usize| -> Vec<f64> {
        let part = |i: usize| 1e-12 * (i / size + 1) as f64;
        all.iter().enumerate().map(|(i, x)| x - x.abs() * part(i)).collect()
    };
    let size = cover.table.lattice.size;
    let lower = |potential: &Potential| match potential {
        Potential::Full(all) => Potential::Full(lower(all, size)),
        Potential::Priced { by_set, prices } => {
            Potential::Priced { by_set: lower(by_set, 1), prices: prices.clone() }
        }
    };
    let cells = cover
        .cells
        .iter()
        .map(|Known { cell, .. }| Cell { range: cell.range, potential: lower(&cell.potential) });
    let levels = cover
        .levels
        .iter()
        .map(|level| Level { most_high: level.most_high, potential: lower(&level.potential) });
    (cells.collect(), levels.collect())
}
