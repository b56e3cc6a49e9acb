//! Lower bounds of the largest load: groups may be split among devices and communicate for nothing.
//!
//! For multipliers x, y, z ≥ 0 of seconds on accelerators, of seconds on cores and of bytes on
//! accelerators, each group takes at least min(x · seconds + z · bytes on an accelerator, y · seconds
//! on a core), and all devices together offer x · A · T + y · C · T + z · A · M within a largest load
//! T. A device on which a group alone takes more than T is excluded for it.

use super::super::groups::{Group, Grouped};

/// Multipliers that sum to 1; bytes are in the time that a full memory stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Multipliers([f64; 3]);

/// What is to be proved possible or impossible: a largest load on some devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) load: f64,
    /// Bytes of an accelerator.
    pub(super) room: f64,
    /// Accelerators and cores.
    pub(super) devices: [f64; 2],
}

impl Capacity {
    pub(super) fn new(graph: &Grouped<'_>, load: f64) -> Self {
        let of = graph.of;
        let devices = [of.accelerators as f64, of.cores as f64];
        Self { load, room: of.accelerator_bytes, devices }
    }
}

impl Multipliers {
    /// The least that a group takes of the capacity; infinite if it fits nowhere.
    pub(super) fn weight(&self, group: &Group, within: &Capacity) -> f64 {
        let [x, y, z] = self.0;
        let (load, room) = (within.load, within.room);
        let full = if room > 0.0 { group.bytes / room * load } else { 0.0 };
        let fits = within.devices[0] > 0.0 && group.accelerator <= load && group.bytes <= room;
        let accelerator = if fits { x * group.accelerator + z * full } else { f64::INFINITY };
        let runs = within.devices[1] > 0.0 && group.core <= load;
        let core = if runs { y * group.core } else { f64::INFINITY };
        accelerator.min(core)
    }

    /// What so many accelerators and cores offer.
    pub(super) fn offered(&self, within: &Capacity, free: [f64; 2]) -> f64 {
        let [x, y, z] = self.0;
        within.load * ((x + z) * free[0] + y * free[1])
    }

    /// How much more all groups take than there is, above 0 only where nothing fits.
    fn excess(&self, graph: &Grouped<'_>, within: &Capacity) -> f64 {
        let taken: f64 = graph.groups.iter().map(|group| self.weight(group, within)).sum();
        taken - self.offered(within, within.devices)
    }
}

/// The place of the largest value of a concave function on [0, 1].
fn highest(steps: usize, mut of: impl FnMut(f64) -> f64) -> f64 {
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (0.0, 1.0);
    let (mut a, mut b) = (1.0 - golden, golden);
    let (mut at_a, mut at_b) = (of(a), of(b));
    for _ in 0..steps {
        if at_a < at_b {
            (low, a, at_a) = (a, b, at_b);
            b = low + golden * (high - low);
            at_b = of(b);
        } else {
            (high, b, at_b) = (b, a, at_a);
            a = high - golden * (high - low);
            at_a = of(a);
        }
    }
    (low + high) / 2.0
}

/// Multipliers with nearly the largest excess.
fn sharpest(graph: &Grouped<'_>, within: &Capacity) -> Multipliers {
    let total: f64 = graph.groups.iter().map(|group| group.bytes).sum();
    let tight = total > within.room * within.devices[0];
    let split = |s: f64, z: f64| Multipliers([(1.0 - z) * s, (1.0 - z) * (1.0 - s), z]);
    let along = |steps, z| highest(steps, |s| split(s, z).excess(graph, within));
    let inner = |z: f64| along(18, z);
    if !tight {
        return split(along(40, 0.0), 0.0);
    }
    let z = highest(14, |z| split(inner(z), z).excess(graph, within));
    let best = split(inner(z), z);
    let flat = split(inner(0.0), 0.0);
    match flat.excess(graph, within) > best.excess(graph, within) {
        true => flat,
        false => best,
    }
}

/// Multipliers that show for many partial placements that they cannot be completed.
pub(super) fn multipliers(graph: &Grouped<'_>, within: &Capacity) -> Vec<Multipliers> {
    let best = sharpest(graph, within);
    let [x, y, z] = best.0;
    let scaled = |m: [f64; 3]| {
        let sum: f64 = m.iter().sum();
        Multipliers(m.map(|each| each / sum))
    };
    let corners = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]].map(Multipliers);
    let near = [[x, 2.0 * y, z], [x, 0.5 * y, z], [x + z, y, 0.0]];
    [best].into_iter().chain(corners).chain(near.map(scaled)).collect()
}

/// No placement has a smaller largest load; infinite if there is none at all.
pub(super) fn lower_bound(graph: &Grouped<'_>) -> f64 {
    let scale: f64 = graph.groups.iter().fold(0.0, |sum, group| {
        let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
        sum + finite(group.accelerator) + finite(group.core)
    });
    let possible = |load: f64| {
        let within = Capacity::new(graph, load);
        let best = sharpest(graph, &within).excess(graph, &within);
        // Bytes alone decide whatever the load is.
        let bytes = Multipliers([0.0, 0.0, 1.0]).excess(graph, &within);
        best.max(bytes) <= 1e-12 * (scale + load)
    };
    let (mut low, mut high) = (0.0, scale.max(1e-30));
    if !possible(high) {
        return f64::INFINITY;
    }
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if possible(middle) { high = middle } else { low = middle }
    }
    // An end of an interval that the numbers themselves give is that number.
    let exact = |group: &Group| [group.accelerator, group.core];
    let ends = graph.groups.iter().flat_map(exact).filter(|x| *x > low && *x <= high);
    let end = ends.fold(f64::INFINITY, f64::min);
    if end <= high && !possible(end * (1.0 - 1e-15)) { end } else { low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::baselines::{Operator, Operators};

    fn operators(nodes: &[[f64; 3]], devices: [usize; 2], room: f64) -> Operators {
        let node = |(i, &[accelerator, core, bytes]): (usize, &[f64; 3])| Operator {
            id: i as i64,
            accelerator: accelerator.is_finite().then_some(accelerator),
            core,
            bytes,
            colour: i as i64,
            backward: false,
            pass: 0.0,
            output_bytes: 0.0,
            inputs: Vec::new(),
        };
        let nodes = nodes.iter().enumerate().map(node).collect();
        let [accelerators, cores] = devices;
        Operators { nodes, accelerators, accelerator_bytes: room, cores }
    }

    #[track_caller]
    fn check(nodes: &[[f64; 3]], devices: [usize; 2], room: f64, expected: f64) {
        let found = lower_bound(&Grouped::new(&operators(nodes, devices, room)));
        assert!(
            (found - expected).abs() < 1e-6 * expected.max(1e-6) || found == expected,
            "{found}"
        );
    }

    #[test]
    fn bounds_are_those_of_divisible_groups() {
        let four = [[1.0, 4.0, 1.0]; 4];
        check(&four, [2, 0], 9.0, 2.0);
        // A core takes twice as long: T (1 + 1/2) = 4.
        check(&[[1.0, 2.0, 1.0]; 4], [1, 1], 9.0, 8.0 / 3.0);
        // A group of 4 s on a core does not run there within less.
        check(&[[1.0, 4.0, 1.0]; 2], [1, 1], 9.0, 2.0);
        // One accelerator holds one of the two.
        check(&[[1.0, 4.0, 1.0]; 2], [1, 1], 1.0, 4.0);
        check(&[[f64::INFINITY, 7.0, 1.0], [1.0, 4.0, 1.0]], [1, 1], 9.0, 7.0);
        check(&four, [1, 0], 3.0, f64::INFINITY);
        check(&[[f64::INFINITY, 7.0, 1.0]], [1, 0], 3.0, f64::INFINITY);
    }
}
