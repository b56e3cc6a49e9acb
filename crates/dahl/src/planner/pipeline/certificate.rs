//! Makes certificates: the same potentials and labels as a search has, rounded so that
//! they hold against every rounding of the checker.

use super::bounds::{Aim, Bounds};
use super::cells::{Cell, Level, Potential};
use super::cost::{CostModel, plan_value};
use super::explain::scope_of;
use super::front::Front;
use super::labels::{Effort, Ended, Search, Wanted};
use super::refine::Cover;
use super::scopes::within_share;
use super::solve::Limits;
use super::stage_options::OptionTable;
use dahl_certify::{Assignment, Problem};
use dahl_certify::{CellProof, Certificate, LabelProof, LevelProof, ScopeProof};

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
pub fn certificate(
    problem: &Problem,
    plan: &Assignment,
    limits: &Limits<'_>,
) -> Option<Certificate> {
    certificate_by(CostModel::new(problem), plan, limits)
}

/// The same by a cost model that may have other constants.
pub(super) fn certificate_by(
    cost: CostModel<'_>,
    plan: &Assignment,
    limits: &Limits<'_>,
) -> Option<Certificate> {
    let problem = cost.problem;
    let parts: Vec<Problem> = problem.all_scopes().map(|scope| problem.in_scope(scope)).collect();
    let mut proofs = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let cost = CostModel { problem: part, ..cost };
        let proof = within_share(limits, parts.len() - i, |limits| prove(cost, plan, limits));
        proofs.push(proof?);
    }
    let value = proofs.iter().map(|(value, _)| *value).fold(f64::INFINITY, f64::min);
    // Versions before list what potentials do not exclude.
    let listed = proofs.iter().any(|(_, proof)| !proof.labels.is_empty());
    let (_, ScopeProof { sets, cells, levels, labels }) = proofs.pop()?;
    Some(Certificate {
        dahl_certificate: match problem.scopes.is_empty() && problem.samples.is_none() && listed {
            true => 2,
            false => 3,
        },
        problem: problem.clone(),
        plan: plan.clone(),
        not_about: None,
        files: Vec::new(),
        value: value * (1.0 - CLAIMED),
        sets,
        levels,
        cells,
        labels,
        scopes: proofs.into_iter().map(|(_, proof)| proof).collect(),
        plan_scope: scope_of(problem, plan),
    })
}

/// A proof that no plan on the units of one scope is better than a value, which is returned too.
fn prove(cost: CostModel<'_>, plan: &Assignment, limits: &Limits<'_>) -> Option<(f64, ScopeProof)> {
    let problem = cost.problem;
    let table = OptionTable::new(cost, limits, Some(plan));
    if table.numbers != super::stage_options::Replicas::All {
        return None;
    }
    let known = plan_value(problem, plan);
    let cap = problem.period_cap.unwrap_or(f64::INFINITY);
    let mut value = known * (1.0 - LOOKED_FOR);
    let aim = |value| Aim::Claim { objective: problem.objective, value, period_cap: cap };
    let mut front = Front::default();
    front.add(plan.clone());
    let mut cover = Cover::new(&table, limits, front);
    // The fewer potentials the sooner it is checked; labels fill what they leave open.
    let each = table.unit_counts.size.saturating_mul(table.sets());
    let most_cells = match cover.full {
        true => (MOST_NUMBERS / each).max(16).min(cover.most_cells()),
        false => cover.most_cells(),
    };
    let more = if table.listed { 8 } else { 40 };
    let (mut count, mut most) = (cover.cells.len() + more, FEW);
    let (cells, levels, kept) = loop {
        cover.refine(Wanted::Objective, limits, count.min(most_cells));
        let (cells, levels) = lowered(&cover);
        let bounds = Bounds::new(&table, cells.iter().collect(), &levels, &cover.idle);
        let last = count >= most_cells || (limits.stop)() || !table.listed;
        let shown = bounds.least_of_all(problem.objective, cap);
        // Many labels close a small gap; a wide one takes time that cells use better.
        let labels = if last || shown >= known * (1.0 - NEAR) { most } else { FEW };
        let effort = Effort { labels, width: None, stop: limits.stop };
        let mut search = Search::new(&bounds);
        // Without a list of stage options there are no labels.
        if table.listed && search.prove(aim(value), &effort) == Some(Ended::All) {
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
    if numbers.sum::<usize>() > dahl_certify::MOST_POTENTIALS {
        return None;
    }
    let finite = |x: f64| x.is_finite().then_some(x);
    let multipliers = |potential: &Potential| match potential {
        Potential::Full(_) => Vec::new(),
        Potential::Lagrangian { multipliers, .. } => multipliers.clone(),
    };
    let cells = cells.iter().map(|Cell { range, potential }| CellProof {
        low: range.low,
        high: finite(range.high),
        most_low: range.most_low,
        most_high: finite(range.most_high),
        theta: range.theta,
        multipliers: multipliers(potential),
        ..CellProof::default()
    });
    let levels = levels.iter().map(|Level { most_high, potential }| LevelProof {
        most_high: finite(*most_high),
        multipliers: multipliers(potential),
        ..LevelProof::default()
    });
    let last = table.sets() - 1;
    let labels = kept.iter().map(|label| LabelProof {
        set: label.partial.set,
        used: label.partial.used,
        sum: less(label.partial.sum, label.partial.set, last),
        // Nothing is added up, so that nothing more is lost.
        most: label.partial.most * (1.0 - 3e-13),
        joules: less(label.partial.joules, label.partial.set, last),
        stages: label.stages as usize,
    });
    let proof = ScopeProof {
        sets: (0..=last).map(|set| table.ideals.between(0, set)).collect(),
        levels: levels.collect(),
        cells: cells.collect(),
        labels: labels.collect(),
    };
    Some((value, proof))
}

/// A little less, and more for each set that is done: so much below its true value that what
/// a stage option adds to the label before is still above it, each rounded down by the checker.
fn less(x: f64, set: usize, last: usize) -> f64 {
    x * (1.0 - 3e-13 * (last - set + 1) as f64)
}

/// The same potentials, lower by more than what the checker may lose: each set loses more
/// than the ones that it contains.
fn lowered(cover: &Cover<'_>) -> (Vec<Cell>, Vec<Level>) {
    let lower = |potential: &mut Potential| {
        let (all, each) = match potential {
            Potential::Full(all) => (all, cover.table.unit_counts.size),
            Potential::Lagrangian { by_set, .. } => (by_set, 1),
        };
        for (i, x) in all.iter_mut().enumerate() {
            *x -= x.abs() * (1e-12 * (i / each + 1) as f64);
        }
    };
    let mut cells: Vec<Cell> = cover.cells.iter().map(|known| known.cell.clone()).collect();
    let mut levels = cover.levels.clone();
    cells.iter_mut().for_each(|cell| lower(&mut cell.potential));
    levels.iter_mut().for_each(|level| lower(&mut level.potential));
    (cells, levels)
}
