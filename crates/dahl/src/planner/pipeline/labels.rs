//! Labels: all partial plans that may still become the best, from the last layer to the first. A
//! label that another dominates, or that cannot become better than what is known, is dropped.

use super::bounds::{Aim, Bounds, PartialPlan};
use super::cost::{StageOption, fits, objective_value, plan_value};
use super::front::Front;
use super::solve::pick;
use dahl_certify::{Assignment, Objective};
use std::collections::BTreeMap;

/// A partial plan, and what it was made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) partial: PartialPlan,
    pub(super) stages: u32,
    /// The label before its last stage option, and that stage option's place.
    from: Option<(u32, u32)>,
}

/// How much may be looked at.
pub(super) struct Effort<'a> {
    /// Labels that are kept.
    pub(super) labels: usize,
    /// Labels of one set of layers, if not all: then the best are taken, and others lost.
    pub(super) width: Option<usize>,
    /// Whether to stop.
    pub(super) stop: &'a dyn Fn() -> bool,
}

/// What a search is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The Pareto front of period and energy.
    Front,
    /// The best of them.
    Objective,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing was left out.
    All,
    /// There was no time or no room for all, or some were dropped.
    Cut,
}

/// A search, label by label.
pub(super) struct Search<'a> {
    bounds: &'a Bounds<'a>,
    pub(super) kept: Vec<Label>,
    /// By set: labels by combination.
    waiting: Vec<BTreeMap<usize, Bucket>>,
    waiting_labels: usize,
}

#[derive(Default)]
struct Bucket {
    labels: Vec<Label>,
    /// When there are so many, those that are worse than others go.
    tidy_at: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(bounds: &'a Bounds<'a>) -> Self {
        let mut waiting: Vec<BTreeMap<usize, Bucket>> = Vec::new();
        waiting.resize_with(bounds.table.sets(), BTreeMap::new);
        let start = Label { partial: bounds.start(), stages: 0, from: None };
        waiting[start.partial.set].entry(0).or_default().labels.push(start);
        Self { bounds, kept: Vec::new(), waiting, waiting_labels: 1 }
    }

    /// Adds everything to the front that is better than what is there, or what is better
    /// for the objective alone.
    pub(super) fn run(&mut self, front: &mut Front, effort: &Effort<'_>, wanted: Wanted) -> Ended {
        let problem = self.bounds.table.problem;
        let rank = (problem.objective, problem.period_cap.unwrap_or(f64::INFINITY));
        let mut ended = Ended::All;
        for set in (1..self.waiting.len()).rev() {
            let labels = self.take(set, effort.width, rank, &mut ended);
            if self.kept.len() + self.waiting_labels > effort.labels || (effort.stop)() {
                return Ended::Cut;
            }
            let known = front.clone();
            let aim = match wanted {
                Wanted::Front => Aim::Front(&known),
                Wanted::Objective => {
                    let best = pick(problem, &known).map(|plan| plan_value(problem, &plan));
                    let value = best.unwrap_or(f64::INFINITY) * (1.0 - 1e-12);
                    Aim::Claim { objective: rank.0, value, period_cap: rank.1 }
                }
            };
            for group in labels {
                self.extend(set, group, aim, &mut |plan| front.add(plan));
                let many = self.kept.len() + self.waiting_labels > effort.labels;
                if many || (effort.stop)() {
                    return Ended::Cut;
                }
            }
        }
        ended
    }

    /// Looks for a plan that is better than a claim; without one, what was kept proves it.
    pub(super) fn prove(&mut self, aim: Aim<'_>, effort: &Effort<'_>) -> Option<Ended> {
        let Aim::Claim { objective, value, period_cap } = aim else { return None };
        if !self.bounds.hopeful(&self.bounds.start(), aim) {
            self.waiting.iter_mut().for_each(BTreeMap::clear);
        }
        let mut broken = false;
        for set in (1..self.waiting.len()).rev() {
            let labels = self.take(set, None, (objective, period_cap), &mut Ended::All);
            if self.kept.len() + self.waiting_labels > effort.labels {
                return Some(Ended::Cut);
            }
            for group in labels {
                self.extend(set, group, aim, &mut |plan| {
                    let worth = objective_value(objective, plan.period_s, plan.energy_j);
                    broken |= plan.period_s <= period_cap && worth < value;
                });
                let many = self.kept.len() + self.waiting_labels > effort.labels;
                if many || (effort.stop)() {
                    return Some(Ended::Cut);
                }
            }
        }
        (!broken).then_some(Ended::All)
    }

    /// The labels of a set that are not worse than others, by combination; they are kept.
    fn take(
        &mut self,
        set: usize,
        width: Option<usize>,
        (objective, cap): (Objective, f64),
        ended: &mut Ended,
    ) -> Vec<std::ops::Range<usize>> {
        let mut groups: Vec<Vec<Label>> = Vec::new();
        for (_, mut bucket) in std::mem::take(&mut self.waiting[set]) {
            self.waiting_labels -= bucket.labels.len();
            tidy(&mut bucket.labels);
            groups.push(bucket.labels);
        }
        let all: usize = groups.iter().map(Vec::len).sum();
        if let Some(width) = width.filter(|&width| all > width) {
            *ended = Ended::Cut;
            let mut ranks: Vec<f64> = groups
                .iter()
                .flatten()
                .map(|label| self.bounds.least(&label.partial, objective, cap))
                .collect();
            let mut sorted = ranks.clone();
            sorted.sort_by(f64::total_cmp);
            let last = sorted[width - 1];
            for group in groups.iter_mut().rev() {
                let at = ranks.len() - group.len();
                let mut own = ranks.split_off(at).into_iter();
                group.retain(|_| own.next().is_some_and(|rank| rank <= last));
            }
        }
        let range = |group: Vec<Label>| {
            let first = self.kept.len();
            self.kept.extend(group);
            first..self.kept.len()
        };
        groups.into_iter().map(range).collect()
    }

    /// All stage options behind labels of one combination.
    fn extend(
        &mut self,
        set: usize,
        group: std::ops::Range<usize>,
        aim: Aim<'_>,
        whole: &mut dyn FnMut(Assignment),
    ) {
        let table = self.bounds.table;
        let unit_counts = &table.unit_counts;
        let Some(used) = self.kept.get(group.start).map(|label| label.partial.used) else { return };
        let counts = unit_counts.all_used(used);
        let units: usize = counts.iter().sum();
        for (place, option) in table.ending[set].iter().enumerate() {
            let (unit, r) = (option.unit as usize, option.replicas as usize);
            if counts[unit] + r > unit_counts.available[unit] {
                continue;
            }
            let holds = table.problem.units[unit].memory_bytes;
            let next = used + r * unit_counts.strides[unit];
            let before = option.before as usize;
            for at in group.clone() {
                let label = self.kept[at];
                let stages = label.stages + 1;
                let memory = option.memory(table.problem.semantics, units + r, stages as usize);
                if !fits(memory, holds) {
                    continue;
                }
                let partial = PartialPlan {
                    set: before,
                    used: next,
                    sum: label.partial.sum + option.sum,
                    most: label.partial.most.max(option.most),
                    joules: label.partial.joules + option.joules,
                };
                if !self.bounds.hopeful(&partial, aim) {
                    continue;
                }
                if before == 0 {
                    let mut chosen = self.chosen(at);
                    chosen.insert(0, (set, *option));
                    whole(table.cost.evaluate(&table.ideals, &chosen));
                    continue;
                }
                let stages = if table.depth_counts { stages } else { 0 };
                let from = Some((at as u32, place as u32));
                let bucket = self.waiting[before].entry(next).or_default();
                bucket.labels.push(Label { partial, stages, from });
                self.waiting_labels += 1;
                if bucket.labels.len() > bucket.tidy_at.max(256) {
                    let count = bucket.labels.len();
                    tidy(&mut bucket.labels);
                    self.waiting_labels -= count - bucket.labels.len();
                    bucket.tidy_at = 2 * bucket.labels.len();
                }
            }
        }
    }

    /// The stage options of a label with the sets that they end with, from the first layer on.
    fn chosen(&self, label: usize) -> Vec<(usize, StageOption)> {
        let mut chosen = Vec::new();
        let mut at = self.kept[label];
        while let Some((from, place)) = at.from {
            let before = self.kept[from as usize];
            chosen.push((
                before.partial.set,
                self.bounds.table.ending[before.partial.set][place as usize],
            ));
            at = before;
        }
        chosen
    }
}

/// Removes labels than which others are as good in everything.
fn tidy(labels: &mut Vec<Label>) {
    labels.sort_by(|a, b| {
        let [x, y] = [a, b].map(|label| label.partial);
        (x.most.total_cmp(&y.most))
            .then(x.sum.total_cmp(&y.sum))
            .then(x.joules.total_cmp(&y.joules))
    });
    // By number of stages: sums that grow with joules that fall, of labels whose slowest
    // stage is no slower.
    let mut stairs: Vec<(u32, Vec<(f64, f64)>)> = Vec::new();
    labels.retain(|label| {
        let PartialPlan { sum, joules, .. } = label.partial;
        let covered =
            stairs.iter().filter(|(stages, _)| *stages <= label.stages).any(|(_, steps)| {
                let after = steps.partition_point(|step| step.0 <= sum);
                after > 0 && steps[after - 1].1 <= joules
            });
        if covered {
            return false;
        }
        let own = match stairs.iter().position(|(stages, _)| *stages == label.stages) {
            Some(own) => own,
            None => {
                stairs.push((label.stages, Vec::new()));
                stairs.len() - 1
            }
        };
        let steps = &mut stairs[own].1;
        let at = steps.partition_point(|step| step.0 < sum);
        let end = at + steps[at..].iter().take_while(|step| step.1 >= joules).count();
        steps.splice(at..end, [(sum, joules)]);
        true
    });
}
