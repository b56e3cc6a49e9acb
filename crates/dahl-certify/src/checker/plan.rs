//! The plan of a certificate: it is one, and is worth what it says.

use super::Checker;
use super::cost::idle_watts;
use crate::{Flaw, flaw, require};

impl Checker<'_> {
    /// The plan is one, and is worth what is claimed, but for roundings.
    pub(super) fn plan(&self) -> Result<(), Flaw> {
        let (p, plan) = (self.p, &self.of.plan);
        if !plan.shares.is_empty() {
            let total = self.plan_of_shares(plan)?;
            return self.worth(total);
        }
        let mut left: Vec<usize> = (0..p.layers.len()).collect();
        let (mut sum, mut most, mut joules) = (0.0, 0.0f64, 0.0);
        let mut used = vec![0; p.units.len()];
        for (s, stage) in plan.stages.iter().enumerate() {
            let place = format!("stage {s}");
            let Some(unit) = p.units.get(stage.unit) else {
                return flaw(place, "a unit type", stage.unit);
            };
            require(stage.power < unit.powers.len(), &place, "a power", stage.power)?;
            let few = stage.replicas <= unit.count;
            require(few, &place, "no more units than there are", stage.replicas)?;
            if stage.replicas == 0 || stage.layers.is_empty() || !stage.layers.is_sorted() {
                return flaw(place, "layers in order, and units", format!("{stage:?}"));
            }
            let count = left.len();
            left.retain(|layer| stage.layers.binary_search(layer).is_err());
            let early =
                stage.layers.iter().flat_map(|&i| p.layers.get(i).map_or(&[][..], |l| &l.inputs));
            let early = early.filter(|from| left.contains(from)).count();
            let there = count - left.len() == stage.layers.len() && early == 0;
            let layers = format!("{:?}", stage.layers);
            require(there, &place, "layers whose inputs are there, each once", &layers)?;
            let mut options = Vec::new();
            self.on_units(&stage.layers, [0, 1], &mut options);
            let powers: usize =
                p.units[..stage.unit].iter().map(|u| u.count * u.powers.len()).sum();
            let at = powers + (stage.replicas - 1) * unit.powers.len() + stage.power;
            let Some(option) = options.get(at).filter(|c| c.unit == stage.unit) else {
                return flaw(place, "no more units than there are", stage.replicas);
            };
            sum += option.sum;
            most = most.max(option.most);
            joules += option.joules;
            used[stage.unit] += stage.replicas;
            let behind: usize = plan.stages[s..].iter().map(|stage| stage.replicas).sum();
            let bytes = self.memory(option, behind, plan.stages.len() - s);
            require(bytes <= unit.memory_bytes, &place, "what fits into memory", "more")?;
            let done: Vec<bool> =
                (0..p.layers.len()).map(|layer| left.binary_search(&layer).is_err()).collect();
            let between = self.inside.contains(&done);
            require(between, &place, "layers between two of the sets", &layers)?;
        }
        if !left.is_empty() || used.iter().zip(&p.units).any(|(n, unit)| *n > unit.count) {
            return flaw("plan", "all layers, and units that there are", format!("{left:?} left"));
        }
        let idle = idle_watts(p, &used);
        let mut seconds = sum + self.slowest() * most;
        if let Some(cap) = p.power_cap {
            if cap <= idle {
                return flaw("plan", format!("less than {cap} W while it waits"), idle);
            }
            seconds = seconds.max(joules / (cap - idle));
        }
        let total = joules + idle * seconds;
        self.worth([seconds, total])
    }

    /// The plan takes so many seconds and joules, and is worth no less than the claim.
    fn worth(&self, [seconds, total]: [f64; 2]) -> Result<(), Flaw> {
        let (p, plan) = (self.p, &self.of.plan);
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        if !close(seconds, plan.period_s) || !close(total, plan.energy_j) {
            return flaw(
                "plan",
                format!("{seconds} s, {total} J"),
                format!("{} s, {} J", plan.period_s, plan.energy_j),
            );
        }
        let value = self.of.plan_value();
        if value < self.of.value
            || plan.period_s > p.period_cap.unwrap_or(f64::INFINITY) * (1.0 + 1e-9)
        {
            return flaw("plan", format!("at least {}, within the period", self.of.value), value);
        }
        Ok(())
    }
}
