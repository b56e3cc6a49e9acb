//! The best placement whose devices are between sets of a lattice.
//!
//! A label at a set says how many accelerators and cores do all of the set, and with which largest
//! load. From each set all larger ones are visited along the links, as long as one more device can do
//! what they have more within the limit. Labels that others dominate, and labels whose remaining
//! groups do not fit on the remaining devices (`relaxed.rs`), are dropped.

use super::super::groups::Grouped;
use super::lattice::Lattice;
use super::relaxed::{Capacity, Multipliers, multipliers};
use super::{Device, Load};

/// A placement: groups by device, in the order of the devices.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) stages: Vec<(Load, Vec<usize>)>,
    pub(super) load: f64,
}

impl Placed {
    /// Its devices.
    pub(super) fn devices(&self, graph: &Grouped<'_>) -> Vec<Device> {
        let device = |(kind, groups): &(Load, Vec<usize>)| {
            let of = || groups.iter().map(|&group| &graph.groups[group]);
            let mut operators: Vec<usize> =
                of().flat_map(|group| group.operators.iter().copied()).collect();
            operators.sort_unstable();
            Device { kind: *kind, operators, load: load_of(graph, *kind, groups) }
        };
        self.stages.iter().map(device).collect()
    }
}

/// The load of a device with some groups, whose memory is enough.
pub(super) fn load_of(graph: &Grouped<'_>, kind: Load, groups: &[usize]) -> f64 {
    let of = || groups.iter().map(|&group| &graph.groups[group]);
    match kind {
        Load::Core => of().map(|group| group.core).sum(),
        Load::Accelerator => {
            let mut transfers = graph.transfers();
            of().for_each(|group| transfers.add(group));
            of().map(|group| group.accelerator).sum::<f64>() + transfers.total()
        }
    }
}

/// What a search found: the best placement that is better than the limit, and whether it saw all.
pub(super) struct Found {
    pub(super) placed: Option<Placed>,
    pub(super) whole: bool,
}

/// What a search is allowed.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    pub(super) graph: &'a Grouped<'a>,
    /// Only smaller largest loads are looked for.
    pub(super) limit: f64,
    /// Nothing is below this: a placement that has it ends the search.
    pub(super) bound: f64,
    /// Labels that may be kept at a time.
    pub(super) labels: usize,
    pub(super) stop: &'a dyn Fn() -> bool,
}

/// Bytes of a label.
pub(super) const BYTES: usize = size_of::<Label>();

#[derive(Clone, Copy, Debug)]
struct Label {
    /// Accelerators and cores in use.
    used: [u32; 2],
    load: f64,
    /// The set before it, the label there, and the device of what is between.
    from: Option<(u32, u32, Load)>,
}

/// Sums over the groups that a larger set has more.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    accelerator: f64,
    core: f64,
    bytes: f64,
}

/// A set on the way from a smaller one.
struct Step {
    set: usize,
    /// The next link to follow.
    link: usize,
    sums: Sums,
    /// The group that led here and the transfers before it, if an accelerator is still possible.
    added: Option<(usize, f64)>,
}

impl Search<'_> {
    /// The best placement over a lattice.
    pub(super) fn run(&self, lattice: &Lattice) -> Found {
        let (count, last) = (lattice.len(), lattice.len() - 1);
        let of = self.graph.of;
        // No device has less than a group.
        let devices =
            [of.accelerators, of.cores].map(|n| n.min(self.graph.len()).max(1).min(n) as u32);
        let Some(remains) = Remains::new(self, lattice, devices) else {
            return Found { placed: None, whole: true };
        };
        let mut labels: Vec<Vec<Label>> = vec![Vec::new(); count];
        let mut tidy_at = vec![TIDY; count];
        labels[0].push(Label { used: [0, 0], load: 0.0, from: None });
        let (mut held, mut limit, mut whole) = (1, self.limit, true);
        let mut transfers = self.graph.transfers();
        let mut seen = vec![usize::MAX; count];
        let mut path: Vec<Step> = Vec::new();
        for at in 0..last {
            if limit <= self.bound * (1.0 + 1e-12) {
                break;
            }
            if held > self.labels || (self.stop)() {
                whole = false;
                break;
            }
            let mut from = std::mem::take(&mut labels[at]);
            held -= from.len();
            from.retain(|label| label.load < limit && remains.fit(at, label.used));
            tidy(&mut from);
            held += from.len();
            let free = |kind: usize| from.iter().any(|label| label.used[kind] < devices[kind]);
            let free = [free(0), free(1)];
            if from.is_empty() {
                continue;
            }
            let start = Sums::default();
            path.push(Step { set: at, link: lattice.range(at).start, sums: start, added: None });
            while let Some(step) = path.last_mut() {
                if step.link == lattice.range(step.set).end {
                    if let Some((group, before)) = step.added {
                        transfers.remove(&self.graph.groups[group], before);
                    }
                    path.pop();
                    continue;
                }
                let (group, to) = lattice.link(step.link);
                step.link += 1;
                if seen[to] == at {
                    continue;
                }
                seen[to] = at;
                let it = &self.graph.groups[group];
                let sums = Sums {
                    accelerator: step.sums.accelerator + it.accelerator,
                    core: step.sums.core + it.core,
                    bytes: step.sums.bytes + it.bytes,
                };
                // Larger sets take more of both, but for transfers.
                let possible = [
                    free[0] && sums.accelerator < limit && sums.bytes <= of.accelerator_bytes,
                    free[1] && sums.core < limit,
                ];
                if possible == [false; 2] {
                    continue;
                }
                let mut loads = [f64::INFINITY; 2];
                let mut added = None;
                if possible[0] {
                    added = Some((group, transfers.total()));
                    transfers.add(it);
                    loads[0] = sums.accelerator + transfers.total();
                }
                if possible[1] {
                    loads[1] = sums.core;
                }
                path.push(Step { set: to, link: lattice.range(to).start, sums, added });
                for (kind, load) in [Load::Accelerator, Load::Core].into_iter().zip(loads) {
                    if load >= limit {
                        continue;
                    }
                    for (i, label) in from.iter().enumerate() {
                        let mut used = label.used;
                        used[kind as usize] += 1;
                        if used[kind as usize] > devices[kind as usize]
                            || !remains.fit_quickly(to, used)
                        {
                            continue;
                        }
                        let load = label.load.max(load);
                        if to == last {
                            limit = limit.min(load);
                        }
                        labels[to].push(Label {
                            used,
                            load,
                            from: Some((at as u32, i as u32, kind)),
                        });
                        held += 1;
                    }
                }
                if labels[to].len() >= tidy_at[to] {
                    held -= labels[to].len();
                    tidy(&mut labels[to]);
                    held += labels[to].len();
                    tidy_at[to] = TIDY.max(2 * labels[to].len());
                }
            }
            labels[at] = from;
        }
        let best = labels[last].iter().min_by(|a, b| a.load.total_cmp(&b.load));
        let placed = best.filter(|label| label.load < self.limit);
        Found { placed: placed.map(|label| self.placed(lattice, &labels, label)), whole }
    }

    fn placed(&self, lattice: &Lattice, labels: &[Vec<Label>], last: &Label) -> Placed {
        let mut stages = Vec::new();
        let (mut set, mut label) = (lattice.len() - 1, last);
        while let Some((before, i, kind)) = label.from {
            stages.push((kind, lattice.between(before as usize, set)));
            (set, label) = (before as usize, &labels[before as usize][i as usize]);
        }
        stages.reverse();
        // Sums along the links round differently.
        let loads = stages.iter().map(|(kind, groups)| load_of(self.graph, *kind, groups));
        let load = loads.fold(0.0, f64::max);
        Placed { stages, load }
    }
}

/// At so many labels of a set those that others dominate are dropped.
const TIDY: usize = 64;

/// What the groups outside of each set take at least, by multiplier.
struct Remains {
    multipliers: Vec<Multipliers>,
    /// By set, then by multiplier.
    weights: Vec<f64>,
    /// What is left over by rounding, by multiplier.
    margins: Vec<f64>,
    capacity: Capacity,
    devices: [u32; 2],
}

impl Remains {
    /// `None` if a group fits nowhere within the limit.
    fn new(search: &Search<'_>, lattice: &Lattice, devices: [u32; 2]) -> Option<Self> {
        let graph = search.graph;
        let capacity = Capacity::new(graph, search.limit.min(MOST));
        let multipliers = multipliers(graph, &capacity);
        let own = |group| multipliers.iter().map(move |m| m.weight(group, &capacity));
        let own: Vec<f64> = graph.groups.iter().flat_map(own).collect();
        if own.iter().any(|weight| weight.is_infinite()) {
            return None;
        }
        let k = multipliers.len();
        let mut weights = vec![f64::NAN; lattice.len() * k];
        for (m, all) in weights.iter_mut().take(k).enumerate() {
            *all = own.iter().skip(m).step_by(k).sum();
        }
        for set in 0..lattice.len() {
            for (group, to) in lattice.range(set).map(|link| lattice.link(link)) {
                for m in 0..k {
                    weights[to * k + m] = weights[set * k + m] - own[group * k + m];
                }
            }
        }
        let margins = (0..k).map(|m| 1e-9 * weights[m]).collect();
        Some(Self { multipliers, weights, margins, capacity, devices })
    }

    fn fits(&self, m: usize, set: usize, used: [u32; 2]) -> bool {
        let free = [0, 1].map(|kind| f64::from(self.devices[kind] - used[kind]));
        let offered = self.multipliers[m].offered(&self.capacity, free);
        self.weights[set * self.multipliers.len() + m] <= offered + self.margins[m]
    }

    /// Whether all that a set lacks may fit on the devices that are not in use.
    fn fit(&self, set: usize, used: [u32; 2]) -> bool {
        (0..self.multipliers.len()).all(|m| self.fits(m, set, used))
    }

    /// The same by the best multiplier alone.
    fn fit_quickly(&self, set: usize, used: [u32; 2]) -> bool {
        self.fits(0, set, used)
    }
}

/// A load that stands for no limit.
const MOST: f64 = 1e60;

/// Removes labels that others dominate.
fn tidy(labels: &mut Vec<Label>) {
    labels.sort_by(|a, b| a.load.total_cmp(&b.load).then(a.used.cmp(&b.used)));
    // Numbers of devices of kept labels of which none has fewer of both.
    let mut least: Vec<[u32; 2]> = Vec::new();
    labels.retain(|label| {
        let covers = |a: &[u32; 2], b: &[u32; 2]| a[0] <= b[0] && a[1] <= b[1];
        if least.iter().any(|used| covers(used, &label.used)) {
            return false;
        }
        least.retain(|used| !covers(&label.used, used));
        least.push(label.used);
        true
    });
}
