//! The Pareto front of period and energy.

use dahl_certify::Assignment;

/// Plans by period; each costs less than the ones before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Front {
    plans: Vec<Assignment>,
}

impl Front {
    /// The plans, the fastest first.
    pub fn plans(&self) -> &[Assignment] {
        &self.plans
    }

    /// The same, to be numbered otherwise.
    pub(super) fn plans_mut(&mut self) -> &mut [Assignment] {
        &mut self.plans
    }

    /// The least joules of a plan that takes no longer.
    pub fn joules_within(&self, seconds: f64) -> f64 {
        let after = self.plans.partition_point(|plan| plan.period_s <= seconds);
        after.checked_sub(1).map_or(f64::INFINITY, |last| self.plans[last].energy_j)
    }

    /// The plans without those that take the same time and joules on the same units but for
    /// rounding; of these the best plan stays.
    pub fn distinct(&self, best: &Assignment) -> Vec<&Assignment> {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        let units = |plan: &Assignment| -> Vec<(usize, usize, usize)> {
            plan.stages.iter().map(|stage| (stage.unit, stage.replicas, stage.power)).collect()
        };
        let is_best = |p: &Assignment| (p.period_s, p.energy_j) == (best.period_s, best.energy_j);
        let mut all: Vec<&Assignment> = Vec::new();
        for plan in &self.plans {
            let same = |last: &&mut &Assignment| {
                near(last.period_s, plan.period_s)
                    && near(last.energy_j, plan.energy_j)
                    && units(last) == units(plan)
                    && last.shares == plan.shares
            };
            match all.last_mut().filter(same) {
                Some(last) if is_best(plan) => *last = plan,
                Some(_) => {}
                None => all.push(plan),
            }
        }
        all
    }

    /// Whether no plan is as fast and as cheap; differences of rounding do not count.
    pub(super) fn would_take(&self, seconds: f64, joules: f64) -> bool {
        seconds.is_finite()
            && joules.is_finite()
            && joules < self.joules_within(seconds * (1.0 + 1e-9)) * (1.0 - 1e-12)
    }

    /// Adds a plan, unless another is as fast and as cheap, and removes those that are
    /// neither any more.
    pub fn add(&mut self, plan: Assignment) {
        if !self.would_take(plan.period_s, plan.energy_j) {
            return;
        }
        let at = self.plans.partition_point(|other| other.period_s < plan.period_s);
        let worse = |other: &Assignment| other.energy_j >= plan.energy_j * (1.0 - 1e-12);
        let end = at + self.plans[at..].iter().take_while(|other| worse(other)).count();
        self.plans.splice(at..end, [plan]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dahl_certify::Stage;

    #[test]
    fn a_front_has_no_row_twice() {
        let plan = |unit: usize, period_s: f64, energy_j: f64| {
            let stages = vec![Stage { layers: vec![0], unit, replicas: 1, power: 0 }];
            Assignment { stages, shares: Vec::new(), period_s, energy_j }
        };
        let plans = vec![
            plan(0, 1.0, 3.0),
            plan(0, 1.0 + 1e-12, 3.0 - 1e-12),
            plan(0, 1.0 + 1e-6, 2.9),
            plan(1, 1.0 + 1e-6, 2.9 - 1e-12),
        ];
        let front = Front { plans };
        let kept = |best: usize| -> Vec<usize> {
            let found = front.distinct(&front.plans[best]).into_iter();
            found.filter_map(|of| front.plans.iter().position(|plan| plan == of)).collect()
        };
        assert_eq!(kept(3), [0, 2, 3]);
        assert_eq!(kept(1), [1, 2, 3]);
    }
}
