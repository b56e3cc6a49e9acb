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

/// Every combination of units of a problem, each type at one power.
fn combinations(p: &Problem) -> Vec<Vec<Stage>> {
    let layers: Vec<usize> = (0..p.layers.len()).collect();
    let mut all: Vec<Vec<Stage>> = vec![Vec::new()];
    for (unit, of) in p.units.iter().enumerate() {
        let mut more = all.clone();
        for replicas in 1..=of.count {
            for power in 0..of.powers.len() {
                let stage = Stage { layers: layers.clone(), unit, replicas, power };
                more.extend(all.iter().map(|on| [&on[..], std::slice::from_ref(&stage)].concat()));
            }
        }
        all = more;
    }
    all.retain(|on| on.len() > 1);
    all
}

#[test]
fn no_other_parting_of_a_batch_is_faster_or_cheaper() {
    let mut seen = 0;
    for seed in tried(60) {
        let p = Problem { samples: Some(7), power_cap: None, ..problem(seed) };
        let dealt = uneven_shares(&p, 7, &|| false);
        assert!(dealt.whole, "{seed}");
        for stages in combinations(&p) {
            let units: usize = stages.iter().map(|stage| stage.replicas).sum();
            if units > 4 {
                continue;
            }
            for counts in partings(7, units).into_iter().filter(|all| !all.contains(&0)) {
                let mut left = counts.iter().copied();
                let shares = stages.iter().map(|of| left.by_ref().take(of.replicas).collect());
                let shares = shares.collect();
                let (period_s, energy_j) = (0.0, 0.0);
                let plan = Assignment { stages: stages.clone(), shares, period_s, energy_j };
                let costs = explain(&p, &plan);
                let holds = |(of, stage): (&StageCost, &Stage)| {
                    of.memory_bytes <= p.units[stage.unit].memory_bytes
                };
                if !costs.stages.iter().zip(&plan.stages).all(holds) {
                    continue;
                }
                seen += 1;
                let [seconds, joules] = costs.total;
                let known = dealt.front.joules_within(seconds * (1.0 + 1e-9));
                assert!(known <= joules * (1.0 + 1e-9), "{seed}: {counts:?} {known} {joules}");
            }
        }
    }
    assert!(seen > 500, "{seen}");
}

/// Two units of one speed, of which the second draws twenty times as much: within a period of 58/64
/// of the first one's, it has what the first has no time for.
#[test]
fn shares_are_dealt_for_joules_too() {
    let mut p = two_units();
    p.layers[0].seconds = vec![1.0, 1.0];
    p.nodes[0].base_watts = 0.0;
    for (unit, watts) in p.units.iter_mut().zip([5.0, 100.0]) {
        (unit.idle_watts, unit.powers[0].busy_watts) = (0.0, watts);
    }
    (p.samples, p.period_cap) = (Some(64), Some(58.0 / 64.0));
    let found = solve(&p, &Limits::default()).unwrap();
    let best = found.best.clone().unwrap();
    assert_eq!(best.shares, [vec![58], vec![6]]);
    assert!((best.energy_j - (58.0 * 5.0 + 6.0 * 100.0) / 64.0).abs() < 1e-9);
    assert_eq!(found.gap(&p), Some(0.0));
}

#[test]
fn a_plan_of_shares_costs_what_it_says() {
    for seed in 0..60 {
        let p = Problem { samples: Some(9), ..problem(seed) };
        let front = uneven_shares(&p, 9, &|| false).front;
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

/// Units of 1 s and 2 s a batch, 10 W and 4 W busy, 1 W idle each, 5 W base.
fn two_units() -> Problem {
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
    Problem {
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
    }
}

#[test]
fn two_units_share_a_batch_two_to_one() {
    let p = two_units();
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
    assert!((wide_bound(&p) - 12.5).abs() < 1e-6);
    // All dealings were looked at.
    assert_eq!((found.gap(&p), found.bounded), (Some(0.0), Bounded::Space));
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

/// A certificate of a problem with shares is about them too.
#[test]
fn certificates_are_about_all_shares() {
    let (mut shared, mut refused) = (0, 0);
    for seed in tried(60) {
        let (period_cap, power_cap, objective) = (None, None, Objective::Time);
        let mut p =
            Problem { samples: Some(12), period_cap, power_cap, objective, ..problem(seed) };
        p.layers.iter_mut().for_each(|layer| layer.parameter_bytes *= 1e-3);
        let limits = Limits::default();
        let found = solve(&p, &limits).unwrap();
        let Some(best) = &found.best else { continue };
        assert_eq!(found.gap(&p), Some(0.0), "{seed}");
        let proof = certificate(&p, best, &limits).unwrap();
        if let Err(flaw) = certify(&proof) {
            panic!("{seed}: {flaw}");
        }
        shared += usize::from(!best.shares.is_empty());
        // A plan without shares where one with shares is better.
        let pipelines = found.best_pipeline.as_ref().filter(|_| !best.shares.is_empty());
        if let Some(plan) =
            pipelines.filter(|plan| plan_value(&p, plan) > 1.001 * plan_value(&p, best))
        {
            let wrong = certificate(&p, plan, &limits).unwrap();
            let flaw = certify(&wrong).expect_err("a better plan with shares").to_string();
            assert!(flaw.contains("shares: expected no less than"), "{seed}: {flaw}");
            refused += 1;
        }
    }
    assert!(shared > 2 && refused > 2, "{shared} {refused}");
}
