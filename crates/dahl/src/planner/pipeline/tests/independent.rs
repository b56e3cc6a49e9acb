//! The checker shares no formula with the planner: it refuses what a planner claims whose own
//! formulas are wrong.

use super::super::certificate::certificate_by;
use super::super::*;
use super::made::problem;
use super::tried;

/// False claims among certificates: of the plan of the front with the largest value it is claimed
/// that none is better. All of them have to be refused; how many there were.
fn refused(name: &str, certificate: impl Fn(&Problem, &Assignment) -> Option<Certificate>) -> u64 {
    let mut refused = 0;
    for seed in tried(150) {
        let p = problem(seed);
        let found = solve(&p, &Limits::default()).unwrap();
        let Some(best) = found.best.as_ref().map(|best| plan_value(&p, best)) else { continue };
        let cap = p.period_cap.unwrap_or(f64::INFINITY);
        let plans = found.front.plans().iter().filter(|plan| plan.period_s <= cap);
        let value = |plan: &&Assignment| plan_value(&p, plan);
        let Some(worst) = plans.max_by(|a, b| value(a).total_cmp(&value(b))) else { continue };
        let Some(made) = certificate(&p, worst) else { continue };
        if made.value > best * (1.0 + 1e-6) {
            assert!(certify(&made).is_err(), "{name}, problem {seed}: {} {best}", made.value);
            refused += 1;
        }
    }
    refused
}

#[test]
fn claims_by_other_constants_are_refused() {
    for (name, times) in [
        ("all_reduce", [100.0, 1.0, 1.0]),
        ("round_trip", [1.0, 100.0, 1.0]),
        ("joules_margin", [1.0, 1.0, 0.01]),
    ] {
        let found = refused(name, |p, plan| {
            let mut cost = CostModel::new(p);
            cost.all_reduce *= times[0];
            cost.round_trip *= times[1];
            cost.joules_margin *= times[2];
            certificate_by(cost, plan, &Limits::default())
        });
        assert!(found >= 4, "{name}: {found} false claims");
    }
    let right = refused("none", |p, plan| certificate(p, plan, &Limits::default()));
    assert_eq!(right, 0, "false claims of the planner as it is");
}

/// Idle watts, base watts and times that the planner has otherwise than the certificate's problem.
#[test]
fn claims_about_another_problem_are_refused() {
    let found = refused("watts", |p, plan| {
        let mut dear = p.clone();
        dear.nodes.iter_mut().for_each(|node| node.base_watts = 10.0 * node.base_watts + 100.0);
        let [period_s, energy_j] = cost_of(&dear, plan);
        let known = Assignment { period_s, energy_j, ..plan.clone() };
        let made = certificate(&dear, &known, &Limits::default())?;
        let value = made.value.min(plan_value(p, plan) * (1.0 - 1e-8));
        Some(Certificate { problem: p.clone(), plan: plan.clone(), value, ..made })
    });
    assert!(found >= 4, "{found} false claims");
}
