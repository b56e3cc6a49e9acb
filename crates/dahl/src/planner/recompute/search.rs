//! Sets of nodes that run again, for a peak or for the least of all.

use super::live::Live;
use crate::units::NodeId;

/// The most segments that layers are divided into.
const SEGMENTS: usize = 24;

/// Percents of the target that are aimed at: what overshoots is pruned to other sets.
const AIMS: [u64; 4] = [100, 90, 80, 70];

/// How often the target is halved towards the least peak.
const HALVINGS: usize = 10;

/// A node whose result is this many times smaller than the peak is not worth running
/// again.
const WORTH: u64 = 1024;

/// A set of nodes that run again.
#[derive(Clone, PartialEq)]
pub(super) struct Found {
    again: Vec<bool>,
    cost: f64,
    peak: u64,
}

impl Found {
    fn of(live: &Live, again: Vec<bool>) -> Self {
        let peak = peak(&live.profile(&again));
        Self { cost: live.cost_of(&again), peak, again }
    }

    /// The work of the nodes.
    pub(super) fn cost(&self) -> f64 {
        self.cost
    }

    /// The nodes, in order.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        (0..self.again.len()).filter(|&i| self.again[i]).map(NodeId::new).collect()
    }
}

fn peak(profile: &[u64]) -> u64 {
    profile.iter().copied().max().unwrap_or(0)
}

/// How much is alive above a target, over all nodes.
fn excess(profile: &[u64], target: u64) -> u64 {
    profile.iter().map(|bytes| bytes.saturating_sub(target)).sum()
}

/// The set of the least work whose peak is at most `target`, of those that were tried.
pub(super) fn cheapest(live: &Live, target: u64) -> Option<Found> {
    let fits = proposed(live, target).into_iter().filter(|found| found.peak <= target);
    let pruned = fits.map(|found| pruned(live, found, target));
    pruned.min_by(|a, b| a.cost.total_cmp(&b.cost))
}

/// The sets of the smallest peaks that were found, the smallest first.
pub(super) fn smallest(live: &Live) -> Vec<Found> {
    let (mut low, mut high) = (0, peak(&live.profile(&vec![false; live.len()])));
    let mut all: Vec<Found> = Vec::new();
    for _ in 0..HALVINGS {
        let target = low + (high - low) / 2;
        let least = proposed(live, target).into_iter().min_by_key(|found| found.peak);
        let Some(least) = least else { break };
        if least.peak <= target {
            high = least.peak;
        } else {
            low = target;
        }
        if !all.contains(&least) {
            all.push(least);
        }
    }
    all.sort_by_key(|found| found.peak);
    all.truncate(3);
    all
}

fn proposed(live: &Live, target: u64) -> Vec<Found> {
    let aims = AIMS.map(|percent| (target as u128 * percent as u128 / 100) as u64);
    let mut all: Vec<Found> = aims.into_iter().map(|aim| greedy(live, aim)).collect();
    all.extend((1..=SEGMENTS).map(|count| segments(live, count)));
    all
}

/// One move after the other, the one that takes the most off what is above the target for
/// its work; a move is a node, alone or with what makes its inputs.
fn greedy(live: &Live, target: u64) -> Found {
    let mut again = vec![false; live.len()];
    let mut profile = live.profile(&again);
    let worth = peak(&profile) / WORTH;
    let nodes: Vec<usize> =
        (0..live.len()).filter(|&i| live.may(i) && live.made(i) > worth).collect();
    while peak(&profile) > target {
        let above = excess(&profile, target);
        let mut best: Option<(f64, Vec<usize>)> = None;
        let left: Vec<usize> = nodes.iter().copied().filter(|&i| !again[i]).collect();
        for node in left {
            let all = live.with_makers(node, &again);
            let alone = (all.len() > 1).then(|| vec![node]);
            for nodes in alone.into_iter().chain([all]) {
                let cost: f64 = nodes.iter().map(|&i| live.cost(i)).sum();
                nodes.iter().for_each(|&i| again[i] = true);
                let after = excess(&live.profile(&again), target);
                nodes.iter().for_each(|&i| again[i] = false);
                let gain = above.saturating_sub(after) as f64 / cost.max(1.0);
                // Of equals the first.
                if gain > best.as_ref().map_or(0.0, |(best, _)| *best) {
                    best = Some((gain, nodes));
                }
            }
        }
        let Some((_, nodes)) = best else { break };
        nodes.iter().for_each(|&i| again[i] = true);
        profile = live.profile(&again);
    }
    Found::of(live, again)
}

/// Only what crosses the borders of `count` segments is kept: segments of about equal
/// memory, each border where the least crosses near it.
fn segments(live: &Live, count: usize) -> Found {
    let worth = peak(&live.profile(&vec![false; live.len()])) / WORTH;
    let mut again: Vec<bool> =
        (0..live.len()).map(|i| live.may(i) && live.made(i) > worth).collect();
    let total: u64 = (0..live.len()).filter(|&i| again[i]).map(|i| live.made(i)).sum();
    let crossings = live.crossings();
    let mut borders: Vec<Option<usize>> = vec![None; count];
    let mut before = 0;
    for (i, (bytes, _)) in crossings.iter().enumerate() {
        before += if again[i] { live.made(i) } else { 0 };
        // Half a segment to each side of a border.
        let nearest = (before * count as u64 * 2 / total.max(1)).div_ceil(2) as usize;
        if let Some(border) = borders.get_mut(nearest).filter(|_| nearest > 0)
            && border.is_none_or(|at| *bytes < crossings[at].0)
        {
            *border = Some(i);
        }
    }
    for at in borders.into_iter().flatten() {
        crossings[at].1.iter().for_each(|&maker| again[maker] = false);
    }
    Found::of(live, again)
}

/// The set without nodes that it fits without, the dearest first.
fn pruned(live: &Live, found: Found, target: u64) -> Found {
    let mut again = found.again;
    let mut order: Vec<usize> = (0..again.len()).filter(|&i| again[i]).collect();
    order.sort_by(|&a, &b| live.cost(b).total_cmp(&live.cost(a)).then(a.cmp(&b)));
    for i in order {
        again[i] = false;
        if peak(&live.profile(&again)) > target {
            again[i] = true;
        }
    }
    Found::of(live, again)
}
