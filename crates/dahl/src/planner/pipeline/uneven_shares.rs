//! One stage on units of several types: each has all layers and a share of the batch.
//!
//! Samples are whole. Of all ways to deal them those are kept of which none is both faster and
//! cheaper; what such a plan costs is in `cost.rs`. Weights change once per batch, whatever the semantics of pipelines are.

use super::cost::{CostModel, ShareCosts, fits, objective_value};
use super::front::Front;
use super::ideals::{StageWork, stage_work};
use dahl_certify::{Assignment, Layer, Power, Problem, Stage, UnitType};

/// With more combinations of units and powers, not all powers and numbers of units are tried.
const MOST: usize = 200_000;

/// How a batch is dealt: the units that are on, of each type as many at one power.
type On = Vec<(usize, usize, usize)>;

/// Plans of uneven shares, and whether nothing that is better was left out.
pub struct Dealt {
    /// The best of them, by period and energy; those of one type are stages like others, and not
    /// among them.
    pub front: Front,
    /// Whether every number of units at every power was looked at.
    pub whole: bool,
}

/// All plans of uneven shares that are worth it, or those that there was time for.
pub fn uneven_shares(problem: &Problem, samples: usize, stop: &dyn Fn() -> bool) -> Dealt {
    let mut front = Front::default();
    shared_by_all_units(problem, samples).into_iter().for_each(|plan| front.add(plan));
    let work = whole(problem);
    let (all, mut complete) = combinations(problem);
    for (i, on) in all.into_iter().filter(|on| on.len() > 1).enumerate() {
        if i % 64 == 0 && stop() {
            complete = false;
            break;
        }
        deal_all(problem, &work, samples, &on, &mut front);
    }
    Dealt { front, whole: complete }
}

/// The plan in which all units have a share at full power, if there are several types.
pub fn shared_by_all_units(problem: &Problem, samples: usize) -> Option<Assignment> {
    let there = problem.units.iter().enumerate().filter(|(_, unit)| unit.count > 0);
    let on: On = there.map(|(unit, it)| (unit, it.count, 0)).collect();
    if on.len() > 1 { dealt(problem, &whole(problem), samples, &on) } else { None }
}

/// The dealings of a batch among these units of which none is both faster and cheaper join the
/// front: for each period that a dealing may have, units get as many samples as they can compute in
/// it, those first that take the fewest joules per sample.
fn deal_all(problem: &Problem, work: &StageWork, samples: usize, on: &On, front: &mut Front) {
    let model = CostModel::new(problem);
    let units: usize = on.iter().map(|(_, n, _)| n).sum();
    if units > samples {
        return;
    }
    let each = |&(unit, n, power): &(usize, usize, usize)| {
        let (of, at) = (&problem.units[unit], &problem.units[unit].powers[power]);
        let seconds = work.seconds[unit] / at.speed / samples as f64;
        // Bytes grow with samples.
        let fits_with = |own: usize| {
            let shares = [vec![own; n]];
            let bytes = model.shares(work, &[(unit, n, power)], &shares).bytes[0]
                - work.activations * own as f64 / (own * n) as f64
                + work.activations * own as f64 / samples as f64;
            fits(bytes, of.memory_bytes)
        };
        let (mut room, mut too_many) = (0, samples + 1);
        while too_many - room > 1 {
            let middle = room.midpoint(too_many);
            if fits_with(middle) { room = middle } else { too_many = middle }
        }
        Each { seconds, joules: seconds * (at.busy_watts - of.idle_watts), units: n, room }
    };
    let all: Vec<Each> = on.iter().map(each).collect();
    if all.iter().any(|of| of.room == 0) {
        return;
    }
    let mut used = vec![0; problem.units.len()];
    on.iter().for_each(|&(unit, n, _)| used[unit] += n);
    let watts = model.idle_watts(&used);
    // What a sum of gradients takes, however samples are dealt.
    let ones: Vec<Vec<usize>> = on.iter().map(|of| vec![1; of.1]).collect();
    let ShareCosts { summing, moved, .. } = model.shares(work, on, &ones);
    let mut periods: Vec<f64> = Vec::new();
    for of in &all {
        periods.extend((1..=of.room.min(samples)).map(|n| n as f64 * of.seconds));
    }
    periods.sort_by(f64::total_cmp);
    periods.dedup();
    let least = all.iter().map(|of| of.units as f64 * of.joules).sum::<f64>()
        + (samples - units) as f64 * all.iter().map(|of| of.joules).fold(f64::INFINITY, f64::min);
    for period in periods {
        // Neither this period nor a later one takes fewer joules than this.
        let (seconds, joules) = model.waited(watts, [period + summing, least + moved]);
        if !front.would_take(seconds, joules) {
            break;
        }
        let Some(counts) = fill(&all, samples, period) else { continue };
        let above = all.iter().zip(&counts).map(|(of, n)| *n as f64 * of.joules).sum::<f64>();
        let (seconds, joules) = model.waited(watts, [period + summing, above + moved]);
        if front.would_take(seconds, joules) {
            front.add(of_counts(problem, work, on, &counts));
        }
    }
}

/// What a sample takes on a unit, and how many there are and fit into its memory.
struct Each {
    seconds: f64,
    joules: f64,
    units: usize,
    room: usize,
}

/// The samples of each type, if all are computed within so many seconds: at least one per unit, and
/// the others where they take the fewest joules.
fn fill(all: &[Each], samples: usize, period: f64) -> Option<Vec<usize>> {
    let most = |of: &Each| {
        let most = period * (1.0 + 1e-12) / of.seconds.max(f64::MIN_POSITIVE);
        if most >= of.room as f64 { of.room } else { most as usize }
    };
    let mut counts: Vec<usize> = all.iter().map(|of| of.units).collect();
    let mut left = samples.checked_sub(counts.iter().sum())?;
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&a, &b| all[a].joules.total_cmp(&all[b].joules));
    for i in order {
        let more = (most(&all[i]).checked_sub(1)? * all[i].units).min(left);
        counts[i] += more;
        left -= more;
    }
    (left == 0).then_some(counts)
}

/// The plan in which each type has so many samples, dealt evenly among its units.
fn of_counts(problem: &Problem, work: &StageWork, on: &On, counts: &[usize]) -> Assignment {
    let shares = on.iter().zip(counts).map(|(&(_, units, _), &n)| {
        (0..units).map(|unit| n / units + usize::from(unit < n % units)).collect()
    });
    planned(problem, work, on, shares.collect())
}

fn whole(problem: &Problem) -> StageWork {
    let all: Vec<usize> = (0..problem.layers.len()).collect();
    stage_work(&problem.layers, &all)
}

/// What a plan of uneven shares costs; its stages have as many samples per unit as it says.
pub(super) fn cost(problem: &Problem, plan: &Assignment) -> ShareCosts {
    let on: On = plan.stages.iter().map(|s| (s.unit, s.replicas, s.power)).collect();
    CostModel::new(problem).shares(&whole(problem), &on, &plan.shares)
}

/// The plan in which units have so many samples each that the last ends soonest; nothing
/// where one would have none, or more than it can hold.
fn dealt(problem: &Problem, work: &StageWork, samples: usize, on: &On) -> Option<Assignment> {
    let time = |&(unit, _, power): &(usize, usize, usize)| {
        work.seconds[unit] / problem.units[unit].powers[power].speed
    };
    let units = on.iter().enumerate().flat_map(|(s, of)| vec![(s, time(of)); of.1]);
    let units: Vec<(usize, f64)> = units.collect();
    if units.len() > samples {
        return None;
    }
    // As near as whole samples come from below, then one by one to whom it delays least.
    let rates: f64 = units.iter().map(|(_, time)| 1.0 / time.max(f64::MIN_POSITIVE)).sum();
    let part = |time: f64| samples as f64 / time.max(f64::MIN_POSITIVE) / rates;
    let mut counts: Vec<usize> = units.iter().map(|&(_, time)| part(time) as usize).collect();
    for _ in counts.iter().sum::<usize>()..samples {
        let end = |u: usize| (counts[u] + 1) as f64 * units[u].1;
        let next = (0..units.len()).min_by(|&a, &b| end(a).total_cmp(&end(b)))?;
        counts[next] += 1;
    }
    let mut shares = vec![Vec::new(); on.len()];
    units.iter().zip(&counts).for_each(|(&(stage, _), &n)| shares[stage].push(n));
    if counts.contains(&0) {
        return None;
    }
    let costs = CostModel::new(problem).shares(work, on, &shares);
    let held = on.iter().zip(&costs.bytes);
    if !held.into_iter().all(|(of, &bytes)| fits(bytes, problem.units[of.0].memory_bytes)) {
        return None;
    }
    Some(planned(problem, work, on, shares))
}

fn planned(problem: &Problem, work: &StageWork, on: &On, shares: Vec<Vec<usize>>) -> Assignment {
    let model = CostModel::new(problem);
    let costs = model.shares(work, on, &shares);
    let mut used = vec![0; problem.units.len()];
    on.iter().for_each(|&(unit, n, _)| used[unit] += n);
    let (period_s, energy_j) = model.waited(model.idle_watts(&used), costs.total());
    let layers: Vec<usize> = (0..problem.layers.len()).collect();
    let stages = on.iter().map(|&(unit, replicas, power)| {
        let layers = layers.clone();
        Stage { layers, unit, replicas, power }
    });
    Assignment { stages: stages.collect(), shares, period_s, energy_j }
}

/// Every number of units of each type, at each of its powers, or some of them; and whether it is all.
fn combinations(problem: &Problem) -> (Vec<On>, bool) {
    let choices = |thin: bool| -> Vec<Vec<Option<(usize, usize, usize)>>> {
        let of = |(unit, it): (usize, &UnitType)| {
            let numbers =
                (1..=it.count).filter(|&n| !thin || n == it.count || n.is_power_of_two() && n <= 8);
            let cheapest = (0..it.powers.len()).min_by(|&a, &b| {
                let joules = |p: usize| it.powers[p].busy_watts / it.powers[p].speed;
                joules(a).total_cmp(&joules(b))
            });
            let powers = (0..it.powers.len()).filter(|&p| !thin || p == 0 || Some(p) == cheapest);
            let powers: Vec<usize> = powers.collect();
            let on = numbers.flat_map(|n| powers.iter().map(move |&p| Some((unit, n, p))));
            [None].into_iter().chain(on).collect()
        };
        problem.units.iter().enumerate().map(of).collect()
    };
    let size = |of: &[Vec<_>]| of.iter().try_fold(1usize, |all, of| all.checked_mul(of.len()));
    let all = choices(false);
    let whole = size(&all).is_some_and(|n| n <= MOST);
    let all = if whole { all } else { choices(true) };
    if !whole && size(&all).is_none_or(|n| n > MOST) {
        return (nested(problem), false);
    }
    let mut result: Vec<On> = vec![Vec::new()];
    for of in all {
        let with = |on: &On| {
            let longer = |choice: &Option<_>| on.iter().copied().chain(*choice).collect::<On>();
            of.iter().map(longer).collect::<Vec<_>>()
        };
        result = result.iter().flat_map(with).collect();
    }
    result.retain(|on| !on.is_empty());
    (result, whole)
}

/// Where even few of each type are too many: the fastest types, those of the fewest joules, and so
/// on, each with all of its units but the last.
fn nested(problem: &Problem) -> Vec<On> {
    let whole = |unit: usize| problem.layers.iter().map(|l| l.seconds[unit]).sum::<f64>();
    let powers = |unit: usize| 0..problem.units[unit].powers.len();
    let joules = |unit: usize, power: usize| {
        let at = &problem.units[unit].powers[power];
        whole(unit) / at.speed * at.busy_watts
    };
    let cheapest = |unit: usize| {
        let order = |a: &usize, b: &usize| joules(unit, *a).total_cmp(&joules(unit, *b));
        powers(unit).min_by(order).unwrap_or(0)
    };
    let there = || (0..problem.units.len()).filter(|&unit| problem.units[unit].count > 0);
    let mut fastest: Vec<(usize, usize)> = there().map(|unit| (unit, 0)).collect();
    fastest.sort_by(|a, b| whole(a.0).total_cmp(&whole(b.0)));
    let mut thrifty: Vec<(usize, usize)> = there().map(|unit| (unit, cheapest(unit))).collect();
    thrifty.sort_by(|a, b| joules(a.0, a.1).total_cmp(&joules(b.0, b.1)));
    let mut all: Vec<On> = Vec::new();
    for order in [fastest, thrifty] {
        for last in 0..order.len() {
            for n in 1..=problem.units[order[last].0].count.min(64) {
                let mut on: On = order[..last]
                    .iter()
                    .map(|&(unit, power)| (unit, problem.units[unit].count, power))
                    .collect();
                on.push((order[last].0, n, order[last].1));
                on.sort_unstable();
                all.push(on);
            }
        }
    }
    all
}

/// What no plan at all is below: also none whose stages have units of several types, or which
/// parts layers among units.
///
/// Seconds: with multipliers y of a unit's second, Σ count · y = 1, a batch takes at least what its
/// layers cost at these multipliers where each is cheapest. Joules: a unit that computes is on, and
/// so is its machine; if each machine's base watts are divided among its units, a layer takes at
/// least its time · (busy watts + that part) where it is cheapest. Any multipliers and any division
/// give a bound; the best of some is taken.
pub fn wide_bound(problem: &Problem) -> f64 {
    let whole = |t: usize| problem.layers.iter().map(|layer| layer.seconds[t]).sum::<f64>();
    let fastest = |t: usize| problem.units[t].powers.iter().map(|p| p.speed).fold(0.0, f64::max);
    let types = 0..problem.units.len();
    let cheapest = |cost: &dyn Fn(usize, f64) -> f64| -> f64 {
        let least = |layer: &Layer| {
            let on = types.clone().filter(|&t| problem.units[t].count > 0);
            on.map(|t| cost(t, layer.seconds[t])).fold(f64::INFINITY, f64::min)
        };
        problem.layers.iter().map(least).sum()
    };
    // As fast as types are for the whole network, and as many seconds for all.
    let by_speed = |t: usize| fastest(t) / whole(t).max(f64::MIN_POSITIVE);
    let seconds = [&by_speed as &dyn Fn(usize) -> f64, &|_| 1.0].map(|multiplier| {
        let all: f64 = types.clone().map(|t| problem.units[t].count as f64 * multiplier(t)).sum();
        cheapest(&|t, seconds| seconds / fastest(t) * multiplier(t)) / all
    });
    let seconds = seconds.into_iter().fold(0.0, f64::max);
    let partings = [&by_speed as &dyn Fn(usize) -> f64, &|_| 1.0];
    let joules = partings.map(|weight| {
        let of_node = |node: usize| {
            let own = types.clone().filter(|&t| problem.units[t].node == node);
            own.map(|t| problem.units[t].per_node as f64 * weight(t)).sum::<f64>()
        };
        let all: Vec<f64> = (0..problem.nodes.len()).map(of_node).collect();
        cheapest(&|t, seconds| {
            let unit = &problem.units[t];
            let base = problem.nodes[unit.node].base_watts * weight(t) / all[unit.node];
            let power = |p: &Power| seconds / p.speed * (p.busy_watts + base);
            unit.powers.iter().map(power).fold(f64::INFINITY, f64::min)
        })
    });
    let joules = joules.into_iter().fold(0.0, f64::max);
    // Rounding must not lift it above what it bounds.
    objective_value(problem.objective, seconds, joules) * (1.0 - 1e-9)
}
