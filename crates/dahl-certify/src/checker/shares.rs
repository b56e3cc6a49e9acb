//! Plans in which units of several types share a batch: all numbers of units at all powers, and all
//! shares, are looked at, so a certificate lists none.

use super::cost::{idle_watts, threads_of_share, value};
use super::{Checker, down, sum, up};
use crate::problem::{Assignment, Medium, Problem, Way};
use crate::{Flaw, flaw, require};

/// More combinations of units and powers are refused.
const MOST: usize = 200_000;

/// Units of a type at a power, and what a sample takes on each of them.
struct On {
    unit: usize,
    units: usize,
    power: usize,
    seconds: f64,
    joules: f64,
}

/// The way that gradients are summed over, with seconds and joules of the sum.
fn summing(p: &Problem, on: &[On]) -> [f64; 2] {
    let units: usize = on.iter().map(|of| of.units).sum();
    let (mut way, mut ends) = (Way::FREE, 0);
    for of in on {
        let unit = &p.units[of.unit];
        for other in [unit.input, unit.reduce] {
            way.seconds_per_byte = way.seconds_per_byte.max(other.seconds_per_byte);
            way.joules_per_byte = way.joules_per_byte.max(other.joules_per_byte);
            way.latency_s = way.latency_s.max(other.latency_s);
            way.medium = way.medium.max(other.medium);
        }
        let each = |way: &Way| of.units.div_ceil(way.units_per_end);
        ends += each(&unit.reduce).max(each(&unit.input));
    }
    let n = units as f64;
    let bytes = 4.0 * (n - 1.0) / n * sum(p.layers.iter().map(|layer| layer.parameter_bytes));
    let turns = if way.medium == Medium::Bus { (ends as f64 / 2.0).max(1.0) } else { 1.0 };
    let waiting = if bytes > 0.0 { 2.0 * (n - 1.0) * way.latency_s } else { 0.0 };
    [bytes * way.seconds_per_byte * turns + waiting, bytes * way.joules_per_byte]
}

impl Checker<'_> {
    /// The units of some stages, of which each has all layers.
    fn on(&self, stages: &[(usize, usize, usize)], samples: usize) -> Vec<On> {
        let of = |&(unit, units, power): &(usize, usize, usize)| {
            let whole = sum(self.p.layers.iter().map(|layer| layer.seconds[unit]));
            let (of, at) = (&self.p.units[unit], &self.p.units[unit].powers[power]);
            let seconds = whole / at.speed / samples as f64;
            On { unit, units, power, seconds, joules: seconds * (at.busy_watts - of.idle_watts) }
        };
        stages.iter().map(of).collect()
    }

    /// Bytes of a unit with so many samples, rounded down.
    fn held(&self, of: &On, own: usize, samples: usize) -> f64 {
        let parameters = sum(self.p.layers.iter().map(|layer| layer.parameter_bytes));
        let outputs = sum(self.p.layers.iter().map(|layer| layer.output_bytes));
        let threads = threads_of_share(&self.p.units[of.unit], of.units) as f64;
        down(2.0 * parameters / threads + outputs * own as f64 / samples as f64)
    }

    /// Seconds and joules of a batch with idle units, longer under a power cap.
    fn waited(&self, on: &[On], [seconds, joules]: [f64; 2]) -> Option<[f64; 2]> {
        let mut used = vec![0; self.p.units.len()];
        on.iter().for_each(|of| used[of.unit] += of.units);
        let watts = idle_watts(self.p, &used);
        let seconds = match self.p.power_cap {
            Some(cap) if cap <= watts => return None,
            Some(cap) => seconds.max(joules / (cap - watts)),
            None => seconds,
        };
        Some([seconds, joules + watts * seconds])
    }

    /// No plan of shares is better than the claim; how many periods were looked at.
    pub(super) fn shares(&self) -> Result<u64, Flaw> {
        let Some(samples) = self.p.samples else { return Ok(0) };
        let choices = self.p.units.iter().map(|unit| unit.count * unit.powers.len() + 1);
        let size = choices.fold(1usize, usize::saturating_mul);
        require(size <= MOST, "problem", format!("at most {MOST} ways to share a batch"), size)?;
        let mut all: Vec<Vec<(usize, usize, usize)>> = vec![Vec::new()];
        for (unit, of) in self.p.units.iter().enumerate() {
            for i in 0..all.len() {
                for units in 1..=of.count {
                    for power in 0..of.powers.len() {
                        let on = [&all[i][..], &[(unit, units, power)]].concat();
                        all.push(on);
                    }
                }
            }
        }
        let mut checked = 0;
        for stages in all.iter().filter(|on| on.len() > 1) {
            let units: usize = stages.iter().map(|on| on.1).sum();
            self.spend(20 * stages.len() as u64 + self.p.layers.len() as u64)?;
            if units <= samples {
                checked += self.dealings(&self.on(stages, samples), samples)?;
            }
        }
        Ok(checked)
    }

    /// The least joules for each period that one of these units may decide.
    fn dealings(&self, on: &[On], samples: usize) -> Result<u64, Flaw> {
        let [summed, moved] = summing(self.p, on);
        let room = |of: &On| {
            let (mut fits, mut too_many) = (0, samples + 1);
            while too_many - fits > 1 {
                let own = fits.midpoint(too_many);
                let holds = self.held(of, own, samples) <= self.p.units[of.unit].memory_bytes;
                if holds { fits = own } else { too_many = own }
            }
            fits
        };
        let rooms: Vec<usize> = on.iter().map(room).collect();
        let mut order: Vec<usize> = (0..on.len()).collect();
        order.sort_by(|&a, &b| on[a].joules.total_cmp(&on[b].joules));
        let units: usize = on.iter().map(|of| of.units).sum();
        let mut checked = 0;
        for (of, &own) in on.iter().zip(&rooms) {
            self.spend((own * (20 + 10 * on.len())) as u64)?;
            'periods: for n in 1..=own {
                let period = up(n as f64 * of.seconds);
                let (mut left, mut joules) = (samples - units, 0.0);
                for &i in &order {
                    let most =
                        (up(period / on[i].seconds.max(f64::MIN_POSITIVE)) as usize).min(rooms[i]);
                    if most == 0 {
                        continue 'periods;
                    }
                    let more = ((most - 1) * on[i].units).min(left);
                    joules += (on[i].units + more) as f64 * on[i].joules;
                    left -= more;
                }
                checked += 1;
                let seconds = down(n as f64 * of.seconds + summed);
                let Some([seconds, joules]) = self.waited(on, [seconds, down(joules + moved)])
                else {
                    continue;
                };
                let late = down(seconds) > self.p.period_cap.unwrap_or(f64::INFINITY);
                let found = down(value(self.p.objective, down(seconds), down(joules)));
                if left == 0 && !late && found < self.of.value {
                    let names = on.iter().map(|of| {
                        let unit = &self.p.units[of.unit];
                        format!("{} x{} @ {}", unit.name, of.units, unit.powers[of.power].name)
                    });
                    let found = format!("{found} of {}", names.collect::<Vec<_>>().join(" + "));
                    return flaw("shares", format!("no less than {}", self.of.value), found);
                }
            }
        }
        Ok(checked)
    }

    /// A plan of shares is one, and is worth what it says.
    pub(super) fn plan_of_shares(&self, plan: &Assignment) -> Result<[f64; 2], Flaw> {
        let all: Vec<usize> = (0..self.p.layers.len()).collect();
        let samples = plan.shares.iter().flatten().sum::<usize>();
        let same = self.p.samples == Some(samples) && plan.shares.len() == plan.stages.len();
        require(same, "plan", "shares of all samples", samples)?;
        let mut stages = Vec::new();
        for (stage, shares) in plan.stages.iter().zip(&plan.shares) {
            let there = self.p.units.get(stage.unit).is_some_and(|unit| {
                stage.power < unit.powers.len() && (1..=unit.count).contains(&stage.replicas)
            });
            let new = !stages.iter().any(|on: &(usize, usize, usize)| on.0 == stage.unit);
            let right = there && new && stage.layers == all && shares.len() == stage.replicas;
            require(right, "plan", "units that there are, with all layers", format!("{stage:?}"))?;
            stages.push((stage.unit, stage.replicas, stage.power));
        }
        let on = self.on(&stages, samples);
        let (mut slowest, mut joules) = (0.0f64, 0.0);
        for (of, shares) in on.iter().zip(&plan.shares) {
            let most = shares.iter().copied().max().unwrap_or(0);
            let fits = self.held(of, most, samples) <= self.p.units[of.unit].memory_bytes;
            require(fits, "plan", "what fits into memory", "more")?;
            slowest = slowest.max(most as f64 * of.seconds);
            joules += shares.iter().sum::<usize>() as f64 * of.joules;
        }
        let [summed, moved] = summing(self.p, &on);
        match self.waited(&on, [slowest + summed, joules + moved]) {
            Some(total) => Ok(total),
            None => flaw("plan", "fewer watts while it waits than the cap", "more"),
        }
    }
}
