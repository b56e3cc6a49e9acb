//! Sets of nodes that run again, for a peak or for the least of all.

use super::live::Live;
use crate::units::NodeId;

/// The most segments that layers are divided into.
const SEGMENTS: usize = 24;

/// Percents of the target that are aimed at: what overshoots is pruned to other sets.
const AIMS: [u64; 4] = [100, 90, 80, 70];

/// How often the target is halved towards the least peak.
const HALVINGS: usize = 10;

/// After how many moves all are looked at again.
const AGAIN: usize = 16;

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
    let (mut low, mut high) = (0, live.plain);
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
///
/// What a move gains mostly shrinks as others are made, so only those that looked best are
/// looked at again (Minoux 1978), and all of them every so often.
fn greedy(live: &Live, target: u64) -> Found {
    let nodes = worth(live);
    let mut again = vec![false; live.len()];
    let mut profile = live.profile(&again);
    let unknown = Move { gain: f64::INFINITY, nodes: Vec::new(), fresh: false };
    let mut moves = vec![unknown.clone(); nodes.len()];
    let mut made = 0;
    while peak(&profile) > target {
        let left = (0..nodes.len()).filter(|&n| !again[nodes[n]]);
        // Of equals the first.
        let best = left.rev().max_by(|&a, &b| moves[a].gain.total_cmp(&moves[b].gain));
        let Some(best) = best.filter(|&n| moves[n].gain > 0.0) else {
            if made == 0 {
                break;
            }
            (moves, made) = (vec![unknown.clone(); nodes.len()], 0);
            continue;
        };
        if !moves[best].fresh {
            moves[best] = best_move(live, &mut again, nodes[best], (&profile, target));
            continue;
        }
        moves[best].nodes.iter().for_each(|&i| again[i] = true);
        profile = live.profile(&again);
        made += 1;
        if made == AGAIN {
            (moves, made) = (vec![unknown.clone(); nodes.len()], 0);
        }
        moves.iter_mut().for_each(|m| m.fresh = false);
    }
    Found::of(live, again)
}

/// Nodes that run again together.
#[derive(Clone)]
struct Move {
    /// The bytes above the target that it takes off, over all nodes, for its work.
    gain: f64,
    nodes: Vec<usize>,
    /// Whether nothing was changed since.
    fresh: bool,
}

fn best_move(
    live: &Live,
    again: &mut [bool],
    node: usize,
    (profile, target): (&[u64], u64),
) -> Move {
    let above = excess(profile, target);
    let gain = |again: &mut [bool], nodes: Vec<usize>| {
        let after = excess(&with(live, again, &nodes), target);
        let cost: f64 = nodes.iter().map(|&i| live.cost(i)).sum();
        let gain = above.saturating_sub(after) as f64 / cost.max(1.0);
        Move { gain, nodes, fresh: true }
    };
    let alone = gain(again, vec![node]);
    let all = live.with_makers(node, again);
    if all.len() == 1 {
        return alone;
    }
    let together = gain(again, all);
    if together.gain > alone.gain { together } else { alone }
}

/// The memory alive where some more nodes run again.
fn with(live: &Live, again: &mut [bool], nodes: &[usize]) -> Vec<u64> {
    let before: Vec<bool> = nodes.iter().map(|&i| again[i]).collect();
    nodes.iter().for_each(|&i| again[i] = true);
    let profile = live.profile(again);
    nodes.iter().zip(before).for_each(|(&i, before)| again[i] = before);
    profile
}

/// The nodes that are worth running again.
fn worth(live: &Live) -> Vec<usize> {
    let least = live.plain / WORTH;
    (0..live.len()).filter(|&i| live.may(i) && live.made(i) > least).collect()
}

/// Only what crosses the borders of `count` segments is kept: segments of about equal
/// memory, each border where the least crosses near it.
fn segments(live: &Live, count: usize) -> Found {
    let nodes = worth(live);
    let total: u64 = nodes.iter().map(|&i| live.made(i)).sum();
    let mut again = vec![false; live.len()];
    nodes.iter().for_each(|&i| again[i] = true);
    let crossings = &live.crossings;
    let mut borders: Vec<Option<usize>> = vec![None; count];
    let mut before = 0;
    for (i, crossing) in crossings.iter().enumerate() {
        before += if again[crossing.node] { live.made(crossing.node) } else { 0 };
        // Half a segment to each side of a border.
        let nearest = (before * count as u64 * 2 / total.max(1)).div_ceil(2) as usize;
        if let Some(border) = borders.get_mut(nearest).filter(|_| nearest > 0)
            && border.is_none_or(|at| crossing.bytes < crossings[at].bytes)
        {
            *border = Some(i);
        }
    }
    for at in borders.into_iter().flatten() {
        crossings[at].makers.iter().for_each(|&maker| again[maker] = false);
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
