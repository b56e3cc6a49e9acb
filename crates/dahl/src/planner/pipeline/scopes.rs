//! The search of one scope of a problem after the other (`platform_scopes.rs`): what is known of one
//! bounds the others.

use super::cost::{CostModel, plan_value};
use super::front::Front;
use super::ideals::Cuts;
use super::labels::{Effort, Ended, Search, Wanted};
use super::local_search::anneal;
use super::refine::Cover;
use super::solve::{Bounded, Extent, Limits, Shares, Solution, pick};
use super::stage_options::{OptionTable, Replicas};
use super::uneven_shares::{uneven_shares, wide_bound};
use dahl_certify::{Objective, Problem};

/// The part of the time that local search has before bounds are computed, at most.
const FOR_HEURISTICS: f64 = 0.3;
/// Its rounds, of which each has twice the steps of the one before.
const ROUNDS: usize = 4;

/// What the search of one scope says.
struct Searched {
    /// Whether it left out nothing that may be better than the best plan that is known.
    proved: bool,
    /// Whether it left out nothing of the front.
    whole: bool,
    /// No plan of the scope has an objective below this.
    least: f64,
    cuts: Cuts,
    replicas: Replicas,
    labels: usize,
}

/// Searches all scopes, the whole platform last: it has most units.
pub(super) fn over_scopes(problem: &Problem, limits: &Limits<'_>) -> Solution {
    let parts: Vec<Problem> = problem.all_scopes().map(|scope| problem.in_scope(scope)).collect();
    let mut front = Front::default();
    let mut shared = Front::default();
    let mut all_dealt = true;
    if let Some(samples) = problem.samples {
        for part in &parts {
            let dealt = uneven_shares(part, samples, limits.stop);
            all_dealt &= dealt.whole;
            dealt.front.plans().iter().for_each(|plan| shared.add(plan.clone()));
        }
    }
    let all = search_all(&parts, &mut front, limits);
    let best_pipeline = pick(problem, &front);
    let value = best_pipeline.as_ref().map_or(f64::INFINITY, |plan| plan_value(problem, plan));
    // Bounds are no finer than this.
    let bound = |of: &Searched| match of.proved || of.least > value * (1.0 - 1e-9) {
        true => value,
        false => of.least,
    };
    let mut lower_bound = all.iter().map(bound).fold(f64::INFINITY, f64::min);
    let mut bounded = Bounded::Space;
    let mut whole = all.iter().all(|of| of.whole);
    if all.iter().any(|of| of.replicas != Replicas::All || of.cuts != Cuts::All) {
        // The search knows nothing of other cuts and numbers of units.
        lower_bound = lower_bound.min(wide_bound(problem));
        bounded = Bounded::Any;
        whole = false;
    }
    let mut best = best_pipeline.clone();
    if problem.samples.is_some() {
        // All dealings were looked at, or else no bound is about them alone.
        let within = pick(problem, &shared).map(|plan| plan_value(problem, &plan));
        shared.plans().iter().for_each(|plan| front.add(plan.clone()));
        best = pick(problem, &front);
        if all_dealt {
            lower_bound = lower_bound.min(within.unwrap_or(f64::INFINITY));
        } else {
            lower_bound = lower_bound.min(wide_bound(problem));
            bounded = Bounded::Any;
            whole = false;
        }
    }
    let wide = wide_bound(problem);
    if lower_bound < wide {
        lower_bound = wide;
        bounded = Bounded::Any;
    }
    let widest = &all[all.len() - 1];
    Solution {
        best,
        best_pipeline,
        lower_bound,
        bounded,
        whole,
        proved: all.iter().all(|of| of.proved),
        cuts: all.iter().map(|of| of.cuts).find(|cuts| *cuts != Cuts::All).unwrap_or(widest.cuts),
        replicas: {
            let some = all.iter().map(|of| of.replicas).find(|numbers| *numbers != Replicas::All);
            some.unwrap_or(widest.replicas)
        },
        shares: match problem.samples {
            None => Shares::None,
            Some(_) if all_dealt => Shares::All,
            Some(_) => Shares::Some,
        },
        labels: all.iter().map(|of| of.labels).sum(),
        front,
    }
}

/// The objective first in all scopes, then all of the front.
fn search_all(parts: &[Problem], front: &mut Front, limits: &Limits<'_>) -> Vec<Searched> {
    let both = [Wanted::Objective, Wanted::Front];
    let wanted = match limits.extent {
        Extent::Best => &both[..1],
        Extent::Front => &both[..],
    };
    if let [one] = parts {
        return vec![search(one, front, limits, wanted)];
    }
    let mut all: Vec<Searched> = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        all.push(within_share(limits, parts.len() - i, |limits| {
            search(part, front, limits, &both[..1])
        }));
    }
    // What the others have left of the time.
    for (i, part) in parts.iter().enumerate() {
        let wanted = match (all[i].proved, limits.extent) {
            (true, Extent::Best) => continue,
            (true, Extent::Front) => &both[1..],
            (false, _) => wanted,
        };
        if (limits.stop)() {
            break;
        }
        let again =
            within_share(limits, parts.len() - i, |limits| search(part, front, limits, wanted));
        let (proved, least) = (again.proved || all[i].proved, again.least.max(all[i].least));
        all[i] = Searched { proved, least, ..again };
    }
    all
}

/// Calls with limits of an equal share of the time that is left.
pub(super) fn within_share<T>(
    limits: &Limits<'_>,
    parts: usize,
    call: impl FnOnce(&Limits<'_>) -> T,
) -> T {
    let from = (limits.used)();
    let part = (1.0 - from) / parts.max(1) as f64;
    let used = || ((limits.used)() - from) / part.max(f64::MIN_POSITIVE);
    let stop = || (limits.stop)() || parts > 1 && used() >= 1.0;
    call(&Limits { stop: &stop, used: &used, ..*limits })
}

/// Searches one scope, with plans that are known from elsewhere.
fn search(
    problem: &Problem,
    front: &mut Front,
    limits: &Limits<'_>,
    wanted: &[Wanted],
) -> Searched {
    let cost = CostModel::new(problem);
    let cap = problem.period_cap.unwrap_or(f64::INFINITY);
    let mut table = OptionTable::new(cost, limits, None);
    let exact = table.ideals.cuts == Cuts::All && table.numbers == Replicas::All;
    let exact = exact && table.is_countable(limits);
    if !exact {
        let part = || (limits.stop)() || (limits.used)() >= FOR_HEURISTICS;
        anneal(cost, front, (ROUNDS, 1), &part);
        let along = pick(problem, front).filter(|_| table.ideals.cuts != Cuts::All);
        if let Some(plan) = along {
            table = OptionTable::new(cost, limits, Some(&plan));
        }
    }
    let mut cover = Cover::new(&table, limits, std::mem::take(front));
    let (mut proved, mut whole, mut labels) = (false, false, 0);
    for &wanted in wanted {
        let ended;
        (ended, labels) = refine_and_label(&mut cover, limits, wanted);
        proved |= ended == Ended::All;
        whole = ended == Ended::All && wanted == Wanted::Front;
    }
    let least = cover.bounds().least_of_all(problem.objective, cap);
    *front = std::mem::take(&mut cover.front);
    let (cuts, replicas) = (table.ideals.cuts, table.numbers);
    let value = |front: &Front| pick(problem, front).map(|plan| plan_value(problem, &plan));
    let mut seed = 2;
    // Time that is left, while something may be better.
    while !exact && !proved && !(limits.stop)() && (limits.used)() > 0.0 {
        if value(front).is_some_and(|value| least > value * (1.0 - 1e-9)) {
            break;
        }
        anneal(cost, front, (ROUNDS, seed), limits.stop);
        seed += 1;
    }
    Searched { proved, whole, least, cuts, replicas, labels }
}

/// Looks through partial plans, with ever finer cells: the tighter bounds are, the less is
/// looked at, but they take their time. Says whether nothing was left out, and how many
/// partial plans were kept.
fn refine_and_label(cover: &mut Cover<'_>, limits: &Limits<'_>, wanted: Wanted) -> (Ended, usize) {
    let (more, mut labels) = match (wanted, cover.full) {
        (Wanted::Objective, true) => (16, 4_000),
        (Wanted::Objective, false) => (64, 4_000),
        (Wanted::Front, _) => (128, 30_000),
    };
    let mut cells = cover.cells.len() + more;
    // Without a list of stage options there are no labels.
    if !cover.table.listed {
        let problem = cover.table.problem;
        let only = problem.objective == Objective::Time && wanted == Wanted::Objective;
        if !only {
            cover.refine(wanted, limits, cells.min(cover.most_cells()));
        }
        return (Ended::Cut, 0);
    }
    let mut seed = 100;
    loop {
        cover.refine(wanted, limits, cells.min(cover.most_cells()));
        let mut front = std::mem::take(&mut cover.front);
        if !cover.full && wanted == Wanted::Objective {
            let until = (limits.used)() + FOR_HEURISTICS / 3.0;
            let part = || (limits.stop)() || (limits.used)() >= until;
            anneal(cover.table.cost, &mut front, (ROUNDS, seed), &part);
            seed += 1;
        }
        let bounds = cover.bounds();
        // The best partial plans first: the better what is known, the less is looked at.
        let widths: &[Option<usize>] = match (cover.full, cells < cover.most_cells()) {
            (true, _) => &[Some(30), None],
            (false, true) => &[Some(30)],
            (false, false) => &[Some(30), Some(1000)],
        };
        let (mut ended, mut kept) = (Ended::Cut, 0);
        for &width in widths {
            // What is narrow ends by itself.
            let labels = if width.is_some() { limits.labels } else { labels.min(limits.labels) };
            let effort = Effort { labels, width, stop: limits.stop };
            let mut search = Search::new(&bounds);
            ended = search.run(&mut front, &effort, wanted);
            kept = search.kept.len();
            if ended == Ended::All {
                break;
            }
        }
        drop(bounds);
        cover.front = front;
        let most = cells >= cover.most_cells() && (labels >= limits.labels || !cover.full);
        if ended == Ended::All || (limits.stop)() || most {
            return (ended, kept);
        }
        cells *= 2;
        labels *= 8;
    }
}
