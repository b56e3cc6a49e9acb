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

    /// The least joules of a plan that takes no longer.
    pub fn joules_within(&self, seconds: f64) -> f64 {
        let after = self.plans.partition_point(|plan| plan.period_s <= seconds);
        after.checked_sub(1).map_or(f64::INFINITY, |last| self.plans[last].energy_j)
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
