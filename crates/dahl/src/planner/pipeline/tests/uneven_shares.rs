//! Unequal shares of a batch, and what no plan is below.

use super::super::*;
use super::made::problem;
use super::tried;

/// All ways to part whole samples among some units.
fn partings(samples: usize, units: usize) -> Vec<Vec<usize>> {
    if units == 1 {
        return vec![vec![samples]];
    }
    let first = |n: usize| {
        let rest = partings(samples - n, units - 1);
        rest.into_iter().map(move |rest| [vec![n], rest].concat())
    };
    (0..=samples).flat_map(first).collect()
}

/// Seconds that the slowest of some units takes for its samples.
fn slowest(p: &Problem, plan: &Assignment, counts: &[usize]) -> f64 {
    let all: usize = counts.iter().sum();
    let units = plan.stages.iter().flat_map(|stage| {
        let whole: f64 = p.layers.iter().map(|layer| layer.seconds[stage.unit]).sum();
        vec![whole / p.units[stage.unit].powers[stage.power].speed; stage.replicas]
    });
    units.zip(counts).map(|(whole, &n)| whole * n as f64 / all as f64).fold(0.0, f64::max)
}

#[test]
fn no_other_parting_of_a_batch_ends_sooner() {
    let mut seen = 0;
    for seed in 0..60 {
        let p = Problem { samples: Some(7), power_cap: None, ..problem(seed) };
        let front = uneven_shares(&p, 7, &|| false);
        for plan in front.plans() {
            let counts = plan.shares.concat();
            if counts.len() > 4 {
                continue;
            }
            seen += 1;
            assert_eq!(counts.iter().sum::<usize>(), 7);
            let own = slowest(&p, plan, &counts);
            for other in partings(7, counts.len()) {
                let theirs = slowest(&p, plan, &other);
                assert!(own <= theirs * (1.0 + 1e-12), "{seed}: {counts:?}, not {other:?}");
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn a_plan_of_shares_costs_what_it_says() {
    for seed in 0..60 {
        let p = Problem { samples: Some(9), ..problem(seed) };
        let front = uneven_shares(&p, 9, &|| false);
        for plan in front.plans() {
            let [seconds, joules] = cost_of(&p, plan);
            assert!((seconds / plan.period_s - 1.0).abs() < 1e-12, "{seed}");
            assert!((joules / plan.energy_j - 1.0).abs() < 1e-12, "{seed}");
            let parts = explain(&p, plan);
            let sum: f64 = parts.stages.iter().map(|s| s.compute_j + s.moved_j).sum();
            let sum = sum + parts.idle_j + parts.base_j;
            assert!((sum / plan.energy_j - 1.0).abs() < 1e-9, "{seed}: {sum} {}", plan.energy_j);
        }
    }
}

/// By hand: units of 1 s and 2 s a batch, 10 W and 4 W busy, 1 W idle each, 5 W base.
#[test]
fn two_units_share_a_batch_two_to_one() {
    let unit = |name: &str, busy_watts: f64| UnitType {
        name: name.to_owned(),
        count: 1,
        powers: vec![Power { name: "full".to_owned(), speed: 1.0, busy_watts }],
        idle_watts: 1.0,
        memory_bytes: f64::INFINITY,
        input: Way::FREE,
        reduce: Way::FREE,
        within: None,
        node: 0,
        per_node: 1,
        sharing: 1,
    };
    let p = Problem {
        layers: vec![Layer {
            name: "all".to_owned(),
            seconds: vec![1.0, 2.0],
            output_bytes: 0.0,
            parameter_bytes: 0.0,
            inputs: vec![],
        }],
        units: vec![unit("fast", 10.0), unit("slow", 4.0)],
        nodes: vec![NodeType { name: "box".to_owned(), base_watts: 5.0 }],
        semantics: Semantics::Synchronous { micro_batches: 1 },
        objective: Objective::Energy,
        period_cap: None,
        power_cap: None,
        samples: Some(6),
        scopes: Vec::new(),
    };
    let found = solve(&p, &Limits::default()).unwrap();
    let best = found.best.clone().unwrap();
    // 4 samples in 2/3 s and 2 in 2/3 s: 2/3 · (9 + 3) above idle, 2/3 · (5 + 2) else; alone,
    // the fast one takes 9 + 6 = 15 J and the slow one 2 · (3 + 6) = 18 J.
    assert_eq!(best.shares, [vec![4], vec![2]]);
    assert!((best.period_s - 2.0 / 3.0).abs() < 1e-12);
    assert!((best.energy_j - 38.0 / 3.0).abs() < 1e-12);
    // Base watts go to the units as their speeds are, 2 : 1: at least 1 · (10 + 10 / 3) on the
    // fast one or 2 · (4 + 5 / 3) on the slow one, of which the second is less; evenly divided,
    // 12.5 or 13.
    assert!((found.lower_bound - 12.5).abs() < 1e-6, "{}", found.lower_bound);
    assert!(found.gap(&p).unwrap() < 0.014);
    let time = Problem { objective: Objective::Time, ..p };
    assert!((wide_bound(&time) - 2.0 / 3.0).abs() < 1e-6);
}

#[test]
fn nothing_is_below_the_bound_for_all_plans() {
    for seed in tried(200) {
        let p = Problem { samples: Some(16), period_cap: None, power_cap: None, ..problem(seed) };
        let bound = wide_bound(&p);
        let found = solve(&p, &Limits::default()).unwrap();
        for plan in found.front.plans() {
            let value = plan_value(&p, plan);
            assert!(bound <= value, "{seed}: {bound} above {value}");
        }
    }
}

#[test]
fn a_certificate_is_about_stages_alone() {
    let p = Problem { samples: None, ..problem(1) };
    let limits = Limits::default();
    let best = solve(&p, &limits).unwrap().best.unwrap();
    let mut proof = certificate(&p, &best, &limits).unwrap();
    assert!(certify(&proof).is_ok());
    proof.plan.shares = vec![vec![1]; proof.plan.stages.len()];
    assert!(certify(&proof).is_err());
}
