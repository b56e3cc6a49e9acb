//! Good plans where the exact search is far from its end: simulated annealing (Kirkpatrick et al.
//! 1983) over cuts of an order of layers, and over unit types, replicas and powers of its stages.
//!
//! It starts from plans that are known and from balanced ones, and all that it finds joins the
//! front: each objective begins with the plans of the others. Numbers are drawn by a seed, so that
//! the same number of steps finds the same plans.

use super::cost::{CostModel, Load, StageOption, fits, objective_value};
use super::explain::cost_of;
use super::front::Front;
use dahl_certify::{Assignment, Objective, Problem, Stage};

/// How much worse, as a part of its value, a step may be at the beginning and at the end.
const HEAT: [f64; 2] = [0.05, 1e-4];

/// Numbers that look like chance (Steele et al. 2014, splitmix64).
pub(super) struct Chance(pub(super) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One of `0..n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Layers in an order in which each stands behind its inputs, with sums over its beginnings.
pub(super) struct Order<'a> {
    cost: CostModel<'a>,
    pub(super) layers: Vec<usize>,
    /// By type and place: seconds of the layers before it.
    seconds: Vec<Vec<f64>>,
    parameters: Vec<f64>,
    outputs: Vec<f64>,
    /// By place: the places of inputs with the bytes that come from there.
    inputs: Vec<Vec<(u32, f64)>>,
    /// Whether each layer takes the output of the one before it alone.
    chain: bool,
}

/// A stage of a plan that is being changed: it ends before a place.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    end: u32,
    unit: u8,
    replicas: u16,
    power: u8,
}

/// What a plan takes: the value that is made small, seconds and joules.
#[derive(Clone, Copy, Debug)]
struct Worth {
    value: f64,
    seconds: f64,
    joules: f64,
}

impl<'a> Order<'a> {
    pub(super) fn new(cost: CostModel<'a>, layers: Vec<usize>) -> Self {
        let all = &cost.problem.layers;
        let mut place = vec![0u32; all.len()];
        layers.iter().enumerate().for_each(|(at, &layer)| place[layer] = at as u32);
        let sums = |of: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let mut sums = vec![0.0];
            layers.iter().for_each(|&layer| sums.push(sums[sums.len() - 1] + of(layer)));
            sums
        };
        let types = 0..cost.problem.units.len();
        let inputs = layers.iter().map(|&layer| {
            let from = all[layer].inputs.iter();
            from.map(|&from| (place[from], all[from].output_bytes)).collect()
        });
        let inputs: Vec<Vec<(u32, f64)>> = inputs.collect();
        let chain = inputs.iter().enumerate().all(|(at, from)| match from[..] {
            [] => true,
            [(from, _)] => from as usize + 1 == at,
            _ => false,
        });
        Self {
            seconds: types.map(|unit| sums(&|layer| all[layer].seconds[unit])).collect(),
            parameters: sums(&|layer| all[layer].parameter_bytes),
            outputs: sums(&|layer| all[layer].output_bytes),
            cost,
            layers,
            inputs,
            chain,
        }
    }

    /// Bytes that a stage takes from earlier ones.
    fn input(&self, first: usize, end: usize) -> f64 {
        if self.chain {
            return self.inputs[first].first().map_or(0.0, |from| from.1);
        }
        let mut taken: Vec<(u32, f64)> = Vec::new();
        for from in &self.inputs[first..end] {
            taken.extend(from.iter().filter(|from| (from.0 as usize) < first));
        }
        taken.sort_unstable_by_key(|from| from.0);
        taken.dedup_by_key(|from| from.0);
        taken.iter().map(|from| from.1).sum()
    }

    fn option(&self, first: usize, part: &Part) -> StageOption {
        let end = part.end as usize;
        let input = self.input(first, end);
        let seconds = &self.seconds[part.unit as usize];
        let work = Load {
            // Sums are differences here: rounding must not make them negative.
            seconds: (seconds[end] - seconds[first]).max(0.0),
            parameters: (self.parameters[end] - self.parameters[first]).max(0.0),
            input,
            activations: (self.outputs[end] - self.outputs[first]).max(0.0) + input,
        };
        let on = [part.unit as usize, part.replicas as usize, part.power as usize];
        self.cost.option_of(&work, on)
    }

    /// What a plan takes; infinite if it does not fit into memory.
    fn worth(&self, parts: &[Part], aim: &Aim) -> Worth {
        let problem = self.cost.problem;
        let never = Worth { value: f64::INFINITY, seconds: f64::INFINITY, joules: f64::INFINITY };
        let (mut sum, mut most, mut joules) = (0.0, 0.0f64, 0.0);
        let mut used = [0usize; dahl_certify::MOST_TYPES];
        let mut units = parts.iter().map(|part| part.replicas as usize).sum::<usize>();
        let mut first = 0;
        for (s, part) in parts.iter().enumerate() {
            let option = self.option(first, part);
            let bytes = option.memory(problem.semantics, units, parts.len() - s);
            if !fits(bytes, problem.units[part.unit as usize].memory_bytes) {
                return never;
            }
            units -= part.replicas as usize;
            sum += option.sum;
            most = most.max(option.most);
            joules += option.joules;
            used[part.unit as usize] += part.replicas as usize;
            first = part.end as usize;
        }
        let watts = self.cost.idle_watts(&used[..problem.units.len()]);
        let above_idle = [sum + self.cost.slowest_counts() * most, joules];
        let (seconds, joules) = self.cost.waited(watts, above_idle);
        Worth { value: aim.value(seconds, joules), seconds, joules }
    }

    fn assignment(&self, parts: &[Part]) -> Assignment {
        let mut first = 0;
        let stages = parts.iter().map(|part| {
            let mut layers = self.layers[first..part.end as usize].to_vec();
            layers.sort_unstable();
            first = part.end as usize;
            Stage {
                layers,
                unit: part.unit as usize,
                replicas: part.replicas as usize,
                power: part.power as usize,
            }
        });
        let stages = stages.collect();
        let mut plan = Assignment { stages, shares: Vec::new(), period_s: 0.0, energy_j: 0.0 };
        // Layer by layer: differences of sums lose small layers.
        [plan.period_s, plan.energy_j] = cost_of(self.cost.problem, &plan);
        plan
    }

    /// A plan as parts of this order, if its stages are.
    fn parts(&self, plan: &Assignment) -> Option<Vec<Part>> {
        let mut first = 0;
        let mut parts = Vec::new();
        for stage in plan.stages.iter().filter(|_| plan.shares.is_empty()) {
            let end = first + stage.layers.len();
            let mut own = self.layers.get(first..end)?.to_vec();
            own.sort_unstable();
            if own != stage.layers || stage.replicas > self.cost.problem.units[stage.unit].count {
                return None;
            }
            let (unit, replicas) = (stage.unit as u8, stage.replicas as u16);
            parts.push(Part { end: end as u32, unit, replicas, power: stage.power as u8 });
            first = end;
        }
        (first == self.layers.len() && self.free(&parts).is_some()).then_some(parts)
    }

    /// Units that are left, by type, if there are enough.
    fn free(&self, parts: &[Part]) -> Option<Vec<usize>> {
        let units = &self.cost.problem.units;
        let mut free: Vec<usize> = units.iter().map(|unit| unit.count).collect();
        for part in parts {
            let left = &mut free[part.unit as usize];
            *left = left.checked_sub(part.replicas as usize)?;
        }
        Some(free)
    }

    /// Types one after the other, each with all of its units and as many layers as it is fast.
    fn balanced(&self, types: &[usize]) -> Vec<Part> {
        let units = &self.cost.problem.units;
        let count = self.layers.len();
        let speed = |unit: usize| {
            units[unit].count as f64 / self.seconds[unit][count].max(f64::MIN_POSITIVE)
        };
        let mut left: f64 = types.iter().map(|&unit| speed(unit)).sum();
        let (mut first, mut parts) = (0, Vec::new());
        for (i, &unit) in types.iter().enumerate() {
            let seconds = &self.seconds[unit];
            let share = (seconds[count] - seconds[first]) * speed(unit) / left;
            left -= speed(unit);
            let end = seconds.partition_point(|at| *at < seconds[first] + share);
            if first == count {
                break;
            }
            let end = if i + 1 == types.len() { count } else { end.clamp(first + 1, count) };
            let replicas = units[unit].count as u16;
            parts.push(Part { end: end as u32, unit: unit as u8, replicas, power: 0 });
            first = end;
        }
        parts
    }
}

/// What is made small.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    pub(super) objective: Objective,
    /// Plans that take longer cost more, the longer the more.
    pub(super) period_cap: f64,
}

impl Aim {
    fn value(&self, seconds: f64, joules: f64) -> f64 {
        let late = (seconds / self.period_cap - 1.0).max(0.0);
        objective_value(self.objective, seconds, joules) * (1.0 + 20.0 * late)
    }
}

/// A search along one order.
pub(super) struct Annealing<'a> {
    pub(super) order: &'a Order<'a>,
    pub(super) aim: Aim,
    pub(super) chance: Chance,
}

impl Annealing<'_> {
    /// The plan to begin with: the best of those that are known and of some balanced ones.
    fn begin(&mut self, front: &Front) -> Option<Vec<Part>> {
        let order = self.order;
        let units = &order.cost.problem.units;
        let mut all: Vec<Vec<Part>> =
            front.plans().iter().filter_map(|plan| order.parts(plan)).collect();
        let there: Vec<usize> = (0..units.len()).filter(|&unit| units[unit].count > 0).collect();
        for &unit in &there {
            all.push(order.balanced(&[unit]));
            let one = Part { replicas: 1, ..order.balanced(&[unit])[0] };
            all.push(vec![one]);
        }
        for _ in 0..8 {
            let mut types = there.clone();
            for i in (1..types.len()).rev() {
                types.swap(i, self.chance.below(i + 1));
            }
            let kept = 1 + self.chance.below(types.len());
            all.push(order.balanced(&types[..types.len().min(order.layers.len())]));
            all.push(order.balanced(&types[..kept.min(order.layers.len())]));
        }
        let worth = |parts: &Vec<Part>| order.worth(parts, &self.aim).value;
        let best = all.into_iter().map(|parts| (worth(&parts), parts));
        best.filter(|(value, _)| value.is_finite())
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, parts)| parts)
    }

    /// So many steps; plans that are better join the front. Returns the best value that it found.
    pub(super) fn run(&mut self, front: &mut Front, steps: usize, stop: &dyn Fn() -> bool) -> f64 {
        let Some(begin) = self.begin(front) else { return f64::INFINITY };
        let order = self.order;
        let mut here = begin;
        let mut at = order.worth(&here, &self.aim);
        let (mut best, mut best_at) = (here.clone(), at);
        let mut free = order.free(&here).unwrap_or_default();
        let mut next = Vec::with_capacity(here.len() + 1);
        let cooling = (HEAT[1] / HEAT[0]).powf(1.0 / steps.max(1) as f64);
        let mut heat = HEAT[0];
        for step in 0..steps {
            heat *= cooling;
            if step % 1024 == 0 && stop() {
                break;
            }
            next.clone_from(&here);
            if !self.change(&mut next, &free) {
                continue;
            }
            let worth = order.worth(&next, &self.aim);
            let worse = (worth.value - at.value) / at.value.max(f64::MIN_POSITIVE);
            if worse > 0.0 && self.chance.part() >= (-worse / heat).exp() {
                continue;
            }
            let Some(left) = order.free(&next) else { continue };
            free = left;
            std::mem::swap(&mut here, &mut next);
            at = worth;
            if at.value < best_at.value {
                best.clone_from(&here);
                best_at = at;
            }
            if front.would_take(at.seconds, at.joules) {
                front.add(order.assignment(&here));
            }
        }
        front.add(order.assignment(&best));
        best_at.value
    }

    /// One change; whether there was one to make.
    fn change(&mut self, parts: &mut Vec<Part>, free: &[usize]) -> bool {
        let units = &self.order.cost.problem.units;
        let count = parts.len();
        let i = self.chance.below(count);
        let first = |parts: &[Part], i: usize| if i == 0 { 0 } else { parts[i - 1].end };
        match self.chance.below(10) {
            // A cut moves, a little or anywhere.
            0..=2 => {
                if i + 1 == count {
                    return false;
                }
                let (low, high) = (first(parts, i) + 1, parts[i + 1].end - 1);
                if low >= high {
                    return false;
                }
                let reach = if self.chance.below(4) == 0 { high - low } else { 3 };
                let step = 1 + self.chance.below(reach as usize) as u32;
                let end = match self.chance.below(2) {
                    0 => parts[i].end.saturating_sub(step).max(low),
                    _ => (parts[i].end + step).min(high),
                };
                let moved = end != parts[i].end;
                parts[i].end = end;
                moved
            }
            // Fewer or more units.
            3 => {
                let left = free[parts[i].unit as usize] as u16;
                let reach = if self.chance.below(2) == 0 { 1 } else { left.max(1) as usize };
                let step = 1 + self.chance.below(reach) as u16;
                if self.chance.below(2) == 0 {
                    parts[i].replicas += step.min(left);
                    left > 0
                } else {
                    let fewer = parts[i].replicas.saturating_sub(step).max(1);
                    let changed = fewer != parts[i].replicas;
                    parts[i].replicas = fewer;
                    changed
                }
            }
            // Units go from one stage to another of their type.
            4 => {
                let j = self.chance.below(count);
                if i == j || parts[i].unit != parts[j].unit || parts[i].replicas == 1 {
                    return false;
                }
                let most = parts[i].replicas as usize - 1;
                let reach = most.min(1 + self.chance.below(4));
                let step = 1 + self.chance.below(reach) as u16;
                parts[i].replicas -= step;
                parts[j].replicas += step;
                true
            }
            // Other units for a stage.
            5 => {
                let unit = self.chance.below(units.len());
                if free[unit] == 0 || unit == parts[i].unit as usize {
                    return false;
                }
                parts[i].unit = unit as u8;
                parts[i].replicas = 1 + self.chance.below(free[unit]) as u16;
                parts[i].power = self.chance.below(units[unit].powers.len()) as u8;
                true
            }
            // Two stages exchange their units.
            6 => {
                let j = self.chance.below(count);
                let [a, b] = [parts[i], parts[j]];
                parts[i] = Part { end: a.end, ..b };
                parts[j] = Part { end: b.end, ..a };
                i != j
            }
            // Two stages of one.
            7 => {
                let from = first(parts, i);
                if parts[i].end - from < 2 {
                    return false;
                }
                let end = from + 1 + self.chance.below((parts[i].end - from - 1) as usize) as u32;
                let unit = self.chance.below(units.len());
                let new = if parts[i].replicas > 1 && self.chance.below(2) == 0 {
                    let step = 1 + self.chance.below(parts[i].replicas as usize - 1) as u16;
                    parts[i].replicas -= step;
                    Part { end, replicas: step, ..parts[i] }
                } else if free[unit] > 0 {
                    let replicas = 1 + self.chance.below(free[unit]) as u16;
                    let power = self.chance.below(units[unit].powers.len()) as u8;
                    Part { end, unit: unit as u8, replicas, power }
                } else {
                    return false;
                };
                parts.insert(i, new);
                if self.chance.below(2) == 0 {
                    let (a, b) = (parts[i], parts[i + 1]);
                    parts[i] = Part { end: a.end, ..b };
                    parts[i + 1] = Part { end: b.end, ..a };
                }
                true
            }
            // One stage of two.
            8 => {
                if i + 1 == count {
                    return false;
                }
                let [a, b] = [parts[i], parts[i + 1]];
                let kept = match (a.unit == b.unit, self.chance.below(2)) {
                    (true, _) => Part { replicas: a.replicas + b.replicas, ..b },
                    (false, 0) => Part { end: b.end, ..a },
                    (false, _) => b,
                };
                parts[i] = kept;
                parts.remove(i + 1);
                true
            }
            // Another power.
            _ => {
                let powers = units[parts[i].unit as usize].powers.len();
                let power = self.chance.below(powers) as u8;
                let changed = power != parts[i].power;
                parts[i].power = power;
                changed
            }
        }
    }
}

/// Orders of the layers in which each stands behind its inputs, each once: that of the problem, depth
/// first, breadth first, the one that keeps the fewest bytes between parts, and some by chance.
pub(super) fn orders(problem: &Problem, count: usize, chance: &mut Chance) -> Vec<Vec<usize>> {
    let layers = &problem.layers;
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); layers.len()];
    for (i, layer) in layers.iter().enumerate() {
        layer.inputs.iter().for_each(|&from| users[from].push(i));
    }
    let mut all: Vec<Vec<usize>> = vec![(0..layers.len()).collect()];
    let chain = (1..layers.len()).all(|i| layers[i].inputs == [i - 1]);
    for kind in 1..if chain { 1 } else { count } {
        let mut missing: Vec<usize> = layers.iter().map(|layer| layer.inputs.len()).collect();
        let mut unused: Vec<usize> = users.iter().map(Vec::len).collect();
        let mut ready: Vec<usize> = (0..layers.len()).filter(|&i| missing[i] == 0).collect();
        let mut order = Vec::new();
        while !ready.is_empty() {
            let next = match kind {
                1 => ready.len() - 1,
                2 => 0,
                3 => {
                    // What a layer adds to the bytes that are still needed.
                    let grows = |&layer: &usize| {
                        let own =
                            if users[layer].is_empty() { 0.0 } else { layers[layer].output_bytes };
                        let last = layers[layer].inputs.iter().filter(|from| unused[**from] == 1);
                        own - last.map(|&from| layers[from].output_bytes).sum::<f64>()
                    };
                    let least = (0..ready.len())
                        .min_by(|&a, &b| grows(&ready[a]).total_cmp(&grows(&ready[b])));
                    least.unwrap_or(0)
                }
                // Mostly depth first, so that branches stay together.
                _ if chance.below(3) > 0 => ready.len() - 1,
                _ => chance.below(ready.len()),
            };
            let layer = ready.remove(next);
            order.push(layer);
            layers[layer].inputs.iter().for_each(|&from| unused[from] -= 1);
            for &user in &users[layer] {
                missing[user] -= 1;
                if missing[user] == 0 {
                    ready.push(user);
                }
            }
        }
        if !all.contains(&order) {
            all.push(order);
        }
    }
    all
}

/// How many steps one annealing has.
const STEPS: usize = 400_000;
/// Orders of the layers that are tried, where there are several.
const ORDERS: usize = 12;

/// Plans of all objectives, by rounds of annealing over some orders: until so much of the time is
/// used and each objective had a round, or for so many rounds.
pub(super) fn anneal(
    cost: CostModel<'_>,
    front: &mut Front,
    (rounds, seed): (usize, u64),
    stop: &dyn Fn() -> bool,
) {
    let problem = cost.problem;
    let mut chance = Chance(seed);
    let orders = orders(problem, ORDERS, &mut chance);
    let orders: Vec<Order<'_>> =
        orders.into_iter().map(|layers| Order::new(cost, layers)).collect();
    let cap = problem.period_cap.unwrap_or(f64::INFINITY);
    // The fastest first: what others need may be known from it.
    let mut aims = vec![Aim { objective: Objective::Time, period_cap: f64::INFINITY }];
    for objective in [problem.objective, Objective::Energy, Objective::Edp] {
        let aim = Aim { objective, period_cap: cap };
        if !aims.iter().any(|known| (known.objective, known.period_cap) == (objective, cap)) {
            aims.push(aim);
        }
    }
    // Of several orders those that serve the objective are kept.
    let mut best: Vec<(f64, usize)> = (0..orders.len()).map(|order| (0.0, order)).collect();
    let steps = STEPS.min(300 * problem.layers.len().max(10));
    for round in 0..rounds {
        let kept = best.len().div_ceil(1 + round);
        for entry in &mut best[..kept] {
            for (i, &aim) in aims.iter().enumerate() {
                if stop() {
                    return;
                }
                let order = &orders[entry.1];
                let seed = Chance(seed ^ (round as u64) << 32 ^ (entry.1 as u64) << 8 ^ i as u64);
                let mut search = Annealing { order, aim, chance: seed };
                let value = search.run(front, steps << round.min(4), stop);
                if aim.objective == problem.objective {
                    entry.0 = value;
                }
            }
        }
        best[..kept].sort_by(|a, b| a.0.total_cmp(&b.0));
    }
}
