//! All plans of small problems, one by one, costed from the documented formulas alone.

use super::super::*;
use super::made::{problem, scoped};
use super::{some, tried};

/// A partial plan: stages from the first layers on.
pub(super) type Stages = Vec<(Vec<usize>, usize, usize, usize)>;

/// Calls with every plan: sets of layers by bits.
pub(super) fn each_plan(
    p: &Problem,
    done: u32,
    used: &mut Vec<usize>,
    stages: &mut Stages,
    call: &mut dyn FnMut(&Stages),
) {
    let all = (1u32 << p.layers.len()) - 1;
    if done == all {
        call(stages);
        return;
    }
    let ideal = |set: u32| {
        let needs = |i: usize| p.layers[i].inputs.iter().all(|&from| set >> from & 1 == 1);
        (0..p.layers.len()).filter(|&i| set >> i & 1 == 1).all(needs)
    };
    for end in done + 1..=all {
        if end & done != done || !ideal(end) {
            continue;
        }
        let layers: Vec<usize> =
            (0..p.layers.len()).filter(|&i| (end ^ done) >> i & 1 == 1).collect();
        for unit in 0..p.units.len() {
            for r in 1..=p.units[unit].count - used[unit] {
                for power in 0..p.units[unit].powers.len() {
                    used[unit] += r;
                    stages.push((layers.clone(), unit, r, power));
                    each_plan(p, end, used, stages, call);
                    stages.pop();
                    used[unit] -= r;
                }
            }
        }
    }
}

/// Period and energy of a plan, if it fits and may be.
pub(super) fn stage_costs(p: &Problem, stages: &Stages) -> Option<(f64, f64)> {
    let (mut sum, mut most, mut joules) = (0.0, 0.0f64, 0.0);
    let mut used = vec![0usize; p.units.len()];
    for (s, (layers, unit, r, power)) in stages.iter().enumerate() {
        let of = &p.units[*unit];
        let n = *r as f64;
        let work: f64 = layers.iter().map(|&i| p.layers[i].seconds[*unit]).sum();
        let c = work / of.powers[*power].speed / n;
        let w: f64 = layers.iter().map(|&i| p.layers[i].parameter_bytes).sum();
        let taken = |i: &usize| {
            !layers.contains(i) && layers.iter().any(|&to| p.layers[to].inputs.contains(i))
        };
        let input: f64 = (0..p.layers.len()).filter(taken).map(|i| p.layers[i].output_bytes).sum();
        let own: f64 = layers.iter().map(|&i| p.layers[i].output_bytes).sum();
        // Whole machines, halves, quarters …: these never need two machines.
        let part = |whole: usize| whole.is_multiple_of(*r) && r.count_ones() == 1;
        let reduce = if part(of.per_node) { of.within.unwrap_or(of.reduce) } else { of.reduce };
        let (bus, latency) = (reduce.medium == Medium::Bus, reduce.latency_s);
        let turns =
            if bus { (r.div_ceil(reduce.units_per_end) as f64 / 2.0).max(1.0) } else { 1.0 };
        let g = 4.0 * (n - 1.0) * w / n * reduce.seconds_per_byte * turns
            + if w > 0.0 { 2.0 * (n - 1.0) * latency } else { 0.0 };
        let bus = of.input.medium == Medium::Bus;
        let lines = if bus { 1 } else { r.div_ceil(of.input.units_per_end) };
        let f = 2.0 * input * of.input.seconds_per_byte / lines as f64;
        let delay = if input > 0.0 { 2.0 * of.input.latency_s } else { 0.0 };
        joules += n * c * (of.powers[*power].busy_watts - of.idle_watts)
            + of.input.joules_per_byte * 2.0 * input
            + reduce.joules_per_byte * 4.0 * (n - 1.0) * w / n;
        let threads = match of.sharing {
            all if r.is_multiple_of(all) => all,
            all if part(all) || (of.count <= of.per_node && of.per_node <= all) => *r,
            _ => 1,
        };
        let behind: usize = stages[s..].iter().map(|stage| stage.2).sum();
        let memory = match p.semantics {
            Semantics::Stale => {
                most = most.max((c + g / n).max(f));
                let batches = behind.div_ceil(*r) as f64;
                w * (batches + 1.0) + (own + input) * batches
            }
            Semantics::Synchronous { micro_batches } => {
                let m = micro_batches as f64;
                sum += c / m + f / m + delay + g;
                most = most.max(c.max(f) / m);
                let under_way = (stages.len() - s).min(micro_batches) as f64;
                2.0 * w / threads as f64 + (own + input) / n * under_way / m
            }
        };
        if memory > of.memory_bytes * (1.0 + 1e-12) {
            return None;
        }
        used[*unit] += r;
    }
    let period = match p.semantics {
        Semantics::Stale => most,
        Semantics::Synchronous { micro_batches } => sum + (micro_batches as f64 - 1.0) * most,
    };
    let mut idle: f64 = p.units.iter().zip(&used).map(|(u, n)| u.idle_watts * *n as f64).sum();
    for (node, it) in p.nodes.iter().enumerate() {
        let on = p.units.iter().zip(&used).filter(|(u, _)| u.node == node);
        idle += it.base_watts * on.map(|(u, n)| n.div_ceil(u.per_node)).max().unwrap_or(0) as f64;
    }
    let period = match p.power_cap {
        None => period,
        Some(cap) if cap > idle => period.max(joules / (cap - idle)),
        Some(_) => return None,
    };
    Some((period, joules + idle * period))
}

/// The least costs of a plan in a scope that has all of its units.
fn costs(p: &Problem, stages: &Stages) -> Vec<(f64, f64)> {
    let there = |part: &Problem| {
        (0..part.units.len()).all(|unit| {
            let own = stages.iter().filter(|stage| stage.1 == unit);
            own.map(|stage| stage.2).sum::<usize>() <= part.units[unit].count
        })
    };
    let parts = p.all_scopes().map(|scope| p.in_scope(scope)).filter(there);
    parts.filter_map(|part| stage_costs(&part, stages)).collect()
}

/// The front of all plans.
pub(super) fn brute(p: &Problem) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    each_plan(p, 0, &mut vec![0; p.units.len()], &mut Vec::new(), &mut |stages| {
        points.extend(costs(p, stages));
    });
    front_of(points)
}

/// Those of some costs that no other is as good as.
pub(super) fn front_of(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut least = f64::INFINITY;
    points.retain(|point| {
        let better = point.1 < least * (1.0 - 1e-11);
        least = least.min(point.1);
        better
    });
    points
}

#[test]
fn the_planner_agrees_with_all_plans_of_small_problems() {
    let (mut feasible, mut infeasible) = (0, 0);
    // Certificates whose labels carry the claim, and those that hold without one of them: a
    // search looks a little further than what is claimed.
    let (mut carried, mut spare) = (0, 0);
    for seed in tried(500) {
        let p = if seed % 4 == 3 { scoped(seed) } else { problem(seed) };
        let expected = brute(&p);
        let found = solve(&p, &Limits::default()).unwrap();
        assert!(found.whole, "problem {seed}");
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        // Points of the same period within rounding may stand for each other.
        for (have, want) in [(&found_points(&found), &expected), (&expected, &found_points(&found))]
        {
            for &(t, e) in have {
                let near =
                    want.iter().any(|&(u, f)| u <= t * (1.0 + 1e-9) && f <= e * (1.0 + 1e-9));
                assert!(near, "problem {seed}: {t} {e} not in {want:?}\n{p:#?}");
            }
        }
        for plan in found.front.plans() {
            let stages: Stages = plan
                .stages
                .iter()
                .map(|s| (s.layers.clone(), s.unit, s.replicas, s.power))
                .collect();
            let same = |&(t, e): &(f64, f64)| close(t, plan.period_s) && close(e, plan.energy_j);
            assert!(costs(&p, &stages).iter().any(same), "problem {seed}");
        }
        let cap = p.period_cap.unwrap_or(f64::INFINITY);
        let values = expected.iter().filter(|point| point.0 <= cap);
        let best = values.map(|&(t, e)| objective_value(p.objective, t, e)).min_by(f64::total_cmp);
        match (best, &found.best) {
            (Some(best), Some(plan)) => {
                let value = plan_value(&p, plan);
                assert!(close(best, value), "problem {seed}: {best} {value}");
                match proof(&p, plan, best, seed) {
                    Labels::None => {}
                    Labels::Carry => carried += 1,
                    Labels::Spare => spare += 1,
                }
                feasible += 1;
            }
            (None, None) => infeasible += 1,
            (a, b) => panic!("problem {seed}: {a:?} {b:?}"),
        }
    }
    let all = tried(500).end;
    assert!(feasible > all / 2 && infeasible > all / 50, "{feasible} {infeasible}");
    assert!(carried > 10 * spare && carried > all / 10, "{carried} {spare}");
}

/// What labels are to a certificate.
enum Labels {
    None,
    Carry,
    Spare,
}

/// Where units have multipliers instead of potentials, bounds hold, and certificates check.
#[test]
fn prices_bound_what_all_plans_take() {
    let mut proved = 0;
    for seed in tried(150) {
        let p = problem(seed);
        let whole = solve(&p, &Limits::default()).unwrap();
        let limits = Limits { states: 0, ..Limits::default() };
        let found = solve(&p, &limits).unwrap();
        let value = |of: &Solution| of.best.as_ref().map(|plan| plan_value(&p, plan));
        let Some(best) = value(&whole) else { continue };
        assert!(found.lower_bound <= best * (1.0 + 1e-9), "problem {seed}");
        let Some(plan) = &found.best else { continue };
        assert!(value(&found).is_some_and(|value| value >= best * (1.0 - 1e-9)), "problem {seed}");
        proved += usize::from(found.gap(&p) == Some(0.0));
        if let Some(made) = certificate(&p, plan, &limits) {
            assert!(made.value <= best, "problem {seed}");
            if let Err(flaw) = certify(&made) {
                panic!("problem {seed}: {flaw}");
            }
        }
    }
    assert!(proved > tried(150).end as usize / 3, "{proved}");
}

/// Chains whose stages are not listed: bounds hold, and the checker, which looks at all stages, agrees.
#[test]
fn bounds_without_a_list_of_stages_hold() {
    let (mut near, mut all) = (0, 0);
    for seed in some(200, 5) {
        let mut p = Problem { power_cap: None, ..problem(seed) };
        for (i, layer) in p.layers.iter_mut().enumerate() {
            layer.inputs = i.checked_sub(1).into_iter().collect();
            layer.parameter_bytes *= 0.1;
            layer.output_bytes *= 0.1;
        }
        for unit in &mut p.units {
            (unit.within, unit.count) = (None, unit.count + 4);
            (unit.input.medium, unit.reduce.medium) = (Medium::Lines, Medium::Lines);
            unit.input.units_per_end = 1;
        }
        let whole = solve(&p, &Limits::default()).unwrap();
        let limits = Limits { options: 0, ..Limits::default() };
        let found = solve(&p, &limits).unwrap();
        let value = |of: &Solution| of.best.as_ref().map(|plan| plan_value(&p, plan));
        let (Some(best), Some(plan)) = (value(&whole), &found.best) else { continue };
        assert!(found.lower_bound <= best * (1.0 + 1e-9), "problem {seed}");
        assert_eq!(found.space(), "stages of one unit type each, cut at all ideals");
        all += 1;
        near += usize::from(plan_value(&p, plan) <= 1.02 * best);
        let proof = certificate(&p, plan, &limits).unwrap();
        assert!(proof.labels.is_empty() && proof.value <= best, "problem {seed}");
        if let Err(flaw) = certify(&proof) {
            panic!("problem {seed}: {flaw}");
        }
        let more = Certificate { value: best * (1.0 + 1e-6), ..proof };
        assert!(certify(&more).is_err(), "problem {seed}");
    }
    // Local search finds plans that are about as good.
    assert!(near * 10 > all * 9, "{near} of {all}");
}

fn found_points(found: &Solution) -> Vec<(f64, f64)> {
    found.front.plans().iter().map(|plan| (plan.period_s, plan.energy_j)).collect()
}

/// A certificate is there and holds; tampered ones do not.
fn proof(p: &Problem, plan: &Assignment, best: f64, seed: u64) -> Labels {
    let made = certificate(p, plan, &Limits::default());
    let made = made.unwrap_or_else(|| panic!("problem {seed}: no certificate"));
    assert!(made.value >= best * (1.0 - 2e-8), "problem {seed}: {} {best}", made.value);
    let text = serde_json::to_string(&made).unwrap();
    let read: Certificate = serde_json::from_str(&text).unwrap();
    if let Err(flaw) = certify(&read) {
        panic!("problem {seed}: {flaw}");
    }
    // More than the truth: a plan that is worth less than the claim, or a claim that the
    // labels do not carry.
    let mut more = read.clone();
    more.value = best * 1.01 + 1e-9;
    assert!(certify(&more).is_err(), "problem {seed}");
    more.plan.energy_j *= 1.02;
    more.plan.period_s *= 1.02;
    assert!(certify(&more).is_err(), "problem {seed}");
    let mut holes = read.clone();
    let labels = match holes.labels.pop().map(|_| certify(&holes)) {
        None => Labels::None,
        Some(Err(_)) => Labels::Carry,
        Some(Ok(_)) => Labels::Spare,
    };
    // Periods that nothing is said of.
    let mut gone = read.clone();
    gone.cells.remove(seed as usize % gone.cells.len());
    assert!(certify(&gone).is_err(), "problem {seed}");
    // Another problem: faster units.
    let mut other = read;
    other.problem.units.iter_mut().flat_map(|u| &mut u.powers).for_each(|p| p.speed *= 2.0);
    assert!(certify(&other).is_err(), "problem {seed}");
    labels
}
