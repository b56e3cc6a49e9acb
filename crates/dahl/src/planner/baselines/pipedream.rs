//! PipeDream's own planner (Narayanan et al. 2019), as its code computes it, for
//! comparison: equal machines, time alone, stale weights.
//!
//! Its plans are cut at antichains that it reaches from the first source by stepping from
//! a node to one that follows; a stage of C seconds and W bytes of parameters on r machines
//! takes (C + 4 (r − 1) W / (B r)) / r, and, but for the first stage, at least
//! 2 · output / (B r) of what goes in and of what goes out. All machines are used.

use super::import::{Profile, ProfileNode};
use crate::error::{Error, Result};
use crate::planner::pipeline::{Assignment, CostModel, Problem, Stage, cost_of};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// More antichains are not looked at.
const MOST_STATES: usize = 2_000;

/// Equal machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machines {
    /// How many.
    pub count: usize,
    /// Bytes per second between them.
    pub bandwidth: f64,
    /// What each may hold, where that is to be looked at.
    pub memory_bytes: Option<f64>,
}

/// A plan of PipeDream's.
#[derive(Clone, Debug, PartialEq)]
pub struct PipeDreamPlan {
    /// Nodes of the profile and machines of each stage, and its first and last state in
    /// PipeDream's numbering.
    pub stages: Vec<(Vec<usize>, usize, [usize; 2])>,
    /// Seconds of the slowest stage.
    pub period_s: f64,
    /// How many cuts there are.
    pub states: usize,
}

impl PipeDreamPlan {
    /// The plan on the first unit type of a problem at full power: PipeDream's period, with the
    /// joules that its stages take under the problem's watts.
    pub fn assignment(&self, problem: &Problem) -> Assignment {
        let stages = self.stages.iter().map(|(layers, replicas, _)| Stage {
            layers: layers.clone(),
            unit: 0,
            replicas: *replicas,
            power: 0,
        });
        let (stages, period_s) = (stages.collect(), self.period_s);
        let mut plan = Assignment { stages, shares: Vec::new(), period_s, energy_j: 0.0 };
        let [seconds, joules] = cost_of(problem, &plan);
        // The same work, with idle watts for PipeDream's own period.
        let units = plan.stages.iter().map(|stage| stage.replicas).sum();
        let watts = CostModel::new(problem).idle_watts(&[units]);
        plan.energy_j = joules + watts * (period_s - seconds);
        plan
    }
}

/// A cut: what has been done, and what goes over it.
struct State {
    done: BTreeSet<usize>,
    seconds: f64,
    parameters: f64,
    activations: f64,
    output: f64,
    before: BTreeSet<usize>,
}

/// Seconds of the slowest stage, and the cut before the last stage with its machines.
type Known = (f64, Option<(usize, usize)>);

/// PipeDream's plan of a profile.
pub fn pipedream(profile: &Profile, machines: Machines) -> Result<PipeDreamPlan> {
    if machines.count == 0 || !machines.bandwidth.is_finite() || machines.bandwidth <= 0.0 {
        return Err(Error::config("platform", "machines with links", machines.count));
    }
    let states = states(&profile.nodes)?;
    let last = states.len() - 1;
    let count = machines.count.min(1024);
    let unlimited = f64::INFINITY;
    let fits = |bytes: f64| bytes <= machines.memory_bytes.unwrap_or(unlimited);
    let stage = |seconds: f64, parameters: f64, r: usize| {
        let r = r as f64;
        (seconds + 4.0 * (r - 1.0) * parameters / (machines.bandwidth * r)) / r
    };
    // Seconds, and the cut and machines of the last stage, by cut and machines.
    let mut best: Vec<Vec<Option<Known>>> = vec![vec![None; count + 1]; states.len()];
    for (j, end) in states.iter().enumerate() {
        for m in 1..=count {
            let under_way = (count - m).div_ceil(m) as f64;
            if fits(under_way * (end.activations + end.parameters)) {
                best[j][m] = Some((stage(end.seconds, end.parameters, m), None));
            }
            for &k in &end.before {
                let start = &states[k];
                for r in 1..m {
                    let Some((known, _)) = best[k][m - r] else { continue };
                    let parameters = end.parameters - start.parameters;
                    let stashed = end.activations - start.activations + parameters;
                    if !fits(stashed * (count - m).div_ceil(r) as f64) {
                        continue;
                    }
                    let moved = |bytes: f64| 2.0 * bytes / (machines.bandwidth * r as f64);
                    let mut seconds = stage(end.seconds - start.seconds, parameters, r);
                    seconds = seconds.max(known).max(moved(start.output));
                    if j < last {
                        seconds = seconds.max(moved(end.output));
                    }
                    if best[j][m].is_none_or(|(least, _)| seconds < least) {
                        best[j][m] = Some((seconds, Some((k, r))));
                    }
                }
            }
        }
    }
    let Some((period_s, _)) = best[last][count] else {
        let found = format!("{} machines of {:?} bytes", count, machines.memory_bytes);
        return Err(Error::plan(
            "memory",
            "enough memory for weights and activations in flight",
            found,
        ));
    };
    let mut stages = Vec::new();
    let (mut at, mut left) = (last, count);
    while let Some((_, through)) = best[at][left] {
        let (before, r) = through.map_or((None, left), |(k, r)| (Some(k), r));
        let done = before.map(|k| &states[k].done);
        let nodes = states[at].done.iter().filter(|i| done.is_none_or(|done| !done.contains(i)));
        let first = before.map_or(0, |k| k + 1);
        stages.push((nodes.copied().collect(), r, [first, at + 1]));
        let Some(k) = before else { break };
        (at, left) = (k, left - r);
    }
    stages.reverse();
    Ok(PipeDreamPlan { stages, period_s, states: states.len() })
}

/// Nodes with all that they follow, or that follow them.
fn closure(of: &[Vec<usize>], order: impl Iterator<Item = usize>) -> Vec<BTreeSet<usize>> {
    let mut all: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); of.len()];
    for i in order {
        let mut own = BTreeSet::new();
        for &next in &of[i] {
            own.insert(next);
            own.extend(all[next].iter().copied());
        }
        all[i] = own;
    }
    all
}

/// The antichains, each behind those that it is reached from.
fn states(nodes: &[ProfileNode]) -> Result<Vec<State>> {
    let count = nodes.len();
    let inputs: Vec<Vec<usize>> = nodes.iter().map(|node| node.inputs.clone()).collect();
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (to, from) in inputs.iter().enumerate() {
        from.iter().for_each(|&from| users[from].push(to));
    }
    // Parts of tuples that nobody takes are left out.
    let dropped = |i: &usize| users[*i].is_empty() && nodes[*i].name.starts_with("__getitem__");
    let gone: BTreeSet<usize> = (0..count).filter(dropped).collect();
    users.iter_mut().for_each(|of| of.retain(|user| !gone.contains(user)));
    let before = closure(&inputs, 0..count);
    let after = closure(&users, (0..count).rev());
    let augmented = |antichain: &[usize]| -> Vec<usize> {
        let mut extra = BTreeSet::new();
        for &node in antichain {
            for &earlier in &before[node] {
                let outside = |&user: &usize| !before[node].contains(&user) && user != node;
                if users[earlier].iter().any(outside) {
                    extra.insert(earlier);
                }
            }
        }
        extra.extend(antichain);
        extra.into_iter().collect()
    };
    let Some(source) = (0..count).find(|i| inputs[*i].is_empty() && !gone.contains(i)) else {
        return Err(Error::config("profile", "a node without inputs", "none"));
    };
    let start = vec![source];
    let mut ids: BTreeMap<Vec<usize>, usize> = BTreeMap::from([(augmented(&start), 0)]);
    let mut edges: Vec<BTreeSet<usize>> = vec![BTreeSet::new()];
    let mut seen: BTreeSet<Vec<usize>> = BTreeSet::new();
    let mut queue = VecDeque::from([start]);
    while let Some(antichain) = queue.pop_front() {
        if !seen.insert(antichain.clone()) {
            continue;
        }
        let wide = augmented(&antichain);
        let own = ids[&wide];
        for &old in &wide {
            for &new in &users[old] {
                let comes_back = after[new].iter().any(|later| wide.contains(later));
                if antichain.contains(&new) || comes_back {
                    continue;
                }
                let mut next: BTreeSet<usize> =
                    wide.iter().copied().filter(|&x| x != old).collect();
                next.insert(new);
                let kept = |x: &usize| !after[*x].iter().any(|later| next.contains(later));
                let next: Vec<usize> = next.iter().copied().filter(kept).collect();
                let key = augmented(&next);
                let id = *ids.entry(key).or_insert_with(|| {
                    edges.push(BTreeSet::new());
                    edges.len() - 1
                });
                if id != own {
                    edges[id].insert(own);
                }
                if edges.len() > MOST_STATES {
                    let what = format!(
                        "a profile of more than {MOST_STATES} antichains under PipeDream's cost model"
                    );
                    return Err(Error::Unsupported { what });
                }
                queue.push_back(next);
            }
        }
    }
    let inputs: Vec<Vec<usize>> = edges.iter().map(|of| of.iter().copied().collect()).collect();
    let keys: Vec<u64> = (0..edges.len() as u64).collect();
    let Some(order) = super::import::in_order(&inputs, &keys) else {
        return Err(Error::config("profile", "antichains in an order", "a cycle"));
    };
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(new, &old)| place[old] = new);
    let sets: BTreeMap<usize, &Vec<usize>> = ids.iter().map(|(key, id)| (*id, key)).collect();
    let all_before = closure(&inputs, order.iter().copied());
    let state = |old: usize| {
        let wide = sets[&old];
        let mut done: BTreeSet<usize> = wide.iter().copied().collect();
        wide.iter().for_each(|&node| done.extend(before[node].iter().copied()));
        let sum = |of: fn(&ProfileNode) -> f64| done.iter().map(|&i| of(&nodes[i])).sum();
        State {
            seconds: sum(|node| node.seconds),
            parameters: sum(|node| node.parameter_bytes),
            activations: sum(|node| node.output_bytes),
            output: wide.iter().map(|&i| nodes[i].output_bytes).sum(),
            before: all_before[old].iter().map(|&k| place[k]).collect(),
            done,
        }
    };
    Ok(order.iter().map(|&old| state(old)).collect())
}
