//! What stages and plans take, in seconds, joules and bytes: the cost model `dahl`. README.md beside
//! this file has the formulas and what they leave out. No other file of the planner has them; the
//! checker of certificates has its own.

use super::ideals::{Ideals, StageWork};
use dahl_certify::{
    Assignment, Layer, Medium, Objective, Problem, Semantics, Stage, UnitType, Way,
};

/// What plans of a problem take.
#[derive(Clone, Copy, Debug)]
pub struct CostModel<'a> {
    pub(super) problem: &'a Problem,
    /// Bytes that a sum of gradients over r units moves per byte of parameters, as a multiple of
    /// (r − 1) / r.
    pub(super) all_reduce: f64,
    /// How often an input is moved: its activations there, their gradients back.
    pub(super) round_trip: f64,
    /// How far the bound on joules lies above what plans may take, for roundings.
    pub(super) joules_margin: f64,
}

/// A stage on so many units of a type at a power.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StageOption {
    /// The set of layers before it.
    pub(super) before: u32,
    pub(super) unit: u8,
    pub(super) replicas: u16,
    pub(super) power: u8,
    /// What adds up over stages, in seconds.
    pub(super) sum: f64,
    /// What the slowest stage decides, in seconds.
    pub(super) most: f64,
    /// Joules beyond idle watts.
    pub(super) joules: f64,
    /// Bytes of parameters.
    parameters: f64,
    /// The same for each of the units that are threads over one memory.
    own_parameters: f64,
    /// Bytes of activations of a whole batch on each unit.
    activations: f64,
}

/// What a stage has to do on a unit of one type, in seconds at full power and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) seconds: f64,
    pub(super) parameters: f64,
    pub(super) input: f64,
    pub(super) activations: f64,
}

impl StageWork {
    fn load(&self, unit: usize) -> Load {
        let Self { parameters, input, activations, .. } = *self;
        Load { seconds: self.seconds[unit], parameters, input, activations }
    }
}

/// What a stage takes: seconds of computing, of sums of gradients and of its input; joules of
/// computing, and all beyond idle watts.
pub(super) struct StageParts {
    pub(super) compute: f64,
    gradients: f64,
    feeding: f64,
    /// Seconds that the messages of one micro-batch are on the way, beside those of their bytes.
    delay: f64,
    pub(super) compute_j: f64,
    joules: f64,
}

/// What units that share a batch take.
pub(super) struct ShareCosts {
    /// Seconds that a unit computes, by stage.
    pub(super) compute: Vec<f64>,
    /// Joules above idle of all units of a stage.
    pub(super) joules: Vec<f64>,
    /// Bytes on a unit, by stage.
    pub(super) bytes: Vec<f64>,
    /// Seconds of sums of gradients.
    pub(super) summing: f64,
    /// Joules of them.
    pub(super) moved: f64,
}

impl ShareCosts {
    /// Seconds per batch, and joules above idle watts.
    pub(super) fn total(&self) -> [f64; 2] {
        let slowest = self.compute.iter().copied().fold(0.0, f64::max);
        [slowest + self.summing, self.joules.iter().sum::<f64>() + self.moved]
    }
}

/// Ends of a way that so many units of a stage have, if as many as possible are together.
fn ends(way: &Way, replicas: usize) -> usize {
    replicas.div_ceil(way.units_per_end)
}

/// Over how many lines as many units of a stage take their input at once.
fn lines(way: &Way, replicas: usize) -> f64 {
    match way.medium {
        Medium::Lines => ends(way, replicas) as f64,
        Medium::Bus => 1.0,
    }
}

/// The way that the units of a stage sum gradients over. Stages on 1, 2, 4 … units always fit into
/// machines so that none is in two of them, if these numbers divide the units of a machine.
fn reduce_way(unit: &UnitType, replicas: usize) -> &Way {
    let together = replicas.is_power_of_two() && unit.per_node.is_multiple_of(replicas);
    unit.within.as_ref().filter(|_| together).unwrap_or(&unit.reduce)
}

/// Seconds of a sum over a ring of units, of which so many ends meet: on a bus they take turns, and
/// each of 2 (r − 1) rounds waits for a message.
fn summing_seconds(way: &Way, bytes: f64, replicas: usize, meeting: usize) -> f64 {
    let turns = match way.medium {
        Medium::Lines => 1.0,
        Medium::Bus => (meeting as f64 / 2.0).max(1.0),
    };
    let rounds = if bytes > 0.0 { 2.0 * (replicas as f64 - 1.0) } else { 0.0 };
    bytes * way.seconds_per_byte * turns + rounds * way.latency_s
}

/// How many units of a stage are threads over one memory at the least, wherever its units are.
fn threads(unit: &UnitType, replicas: usize) -> usize {
    let all = unit.sharing;
    let one_memory = unit.count <= unit.per_node && unit.per_node <= all;
    let divides = replicas.is_power_of_two() && all.is_multiple_of(replicas);
    match () {
        () if replicas.is_multiple_of(all) => all,
        () if one_memory || divides => replicas,
        () => 1,
    }
}

impl<'a> CostModel<'a> {
    /// That of a problem.
    pub fn new(problem: &'a Problem) -> Self {
        Self { problem, all_reduce: 4.0, round_trip: 2.0, joules_margin: 1.001 }
    }

    /// How often the slowest stage counts: seconds of a batch are sum + this · most.
    pub(super) fn slowest_counts(&self) -> f64 {
        match self.problem.semantics {
            Semantics::Synchronous { micro_batches } => micro_batches as f64 - 1.0,
            Semantics::Stale => 1.0,
        }
    }

    pub(super) fn parts(&self, work: &StageWork, on: [usize; 3]) -> StageParts {
        self.parts_of(&work.load(on[0]), on)
    }

    fn parts_of(&self, work: &Load, [unit, replicas, power]: [usize; 3]) -> StageParts {
        let (of, r) = (&self.problem.units[unit], replicas as f64);
        let at = &of.powers[power];
        let compute = work.seconds / at.speed / r;
        let reduce = reduce_way(of, replicas);
        let summed = self.all_reduce * (r - 1.0) * work.parameters / r;
        let fed = self.round_trip * work.input;
        let compute_j = r * compute * (at.busy_watts - of.idle_watts);
        StageParts {
            compute,
            gradients: summing_seconds(reduce, summed, replicas, ends(reduce, replicas)),
            feeding: fed * of.input.seconds_per_byte / lines(&of.input, replicas),
            delay: if fed > 0.0 { 2.0 * of.input.latency_s } else { 0.0 },
            compute_j,
            joules: compute_j + of.input.joules_per_byte * fed + reduce.joules_per_byte * summed,
        }
    }

    /// A stage on so many units of a type at a power.
    pub(super) fn stage_option(&self, work: &StageWork, on: [usize; 3]) -> StageOption {
        let option = self.option_of(&work.load(on[0]), on);
        StageOption { before: work.before as u32, ..option }
    }

    /// The same for what a stage has to do on units of one type.
    pub(super) fn option_of(&self, work: &Load, on: [usize; 3]) -> StageOption {
        let [unit, replicas, power] = on;
        let StageParts { compute, gradients, feeding, delay, joules, .. } = self.parts_of(work, on);
        let r = replicas as f64;
        let (sum, most, held) = match self.problem.semantics {
            Semantics::Stale => (0.0, (compute + gradients / r).max(feeding), 1.0),
            Semantics::Synchronous { micro_batches } => {
                let m = micro_batches as f64;
                ((compute + feeding) / m + delay + gradients, compute.max(feeding) / m, r)
            }
        };
        let threads = threads(&self.problem.units[unit], replicas) as f64;
        StageOption {
            before: 0,
            unit: unit as u8,
            replicas: replicas as u16,
            power: power as u8,
            sum,
            most,
            joules,
            parameters: work.parameters,
            own_parameters: work.parameters / threads,
            activations: work.activations / held,
        }
    }

    /// One stage on units of several types, as (unit type, units, power) by type; `shares` are
    /// samples of each unit.
    pub(super) fn shares(
        &self,
        work: &StageWork,
        on: &[(usize, usize, usize)],
        shares: &[Vec<usize>],
    ) -> ShareCosts {
        let units: usize = on.iter().map(|(_, n, _)| n).sum();
        let all: usize = shares.iter().flatten().sum();
        let of = |samples: usize| samples as f64 / all.max(1) as f64;
        let (mut compute, mut joules, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut way, mut meeting) = (Way::FREE, 0);
        for (&(unit, _, power), own) in on.iter().zip(shares) {
            let it = &self.problem.units[unit];
            let at = &it.powers[power];
            let whole = work.seconds[unit] / at.speed;
            let most = own.iter().copied().max().unwrap_or(0);
            compute.push(whole * of(most));
            joules.push(whole * of(own.iter().sum()) * (at.busy_watts - it.idle_watts));
            let threads = own.len() % it.sharing;
            let threads = if threads == 0 { it.sharing } else { threads };
            bytes.push(2.0 * work.parameters / threads as f64 + work.activations * of(most));
            for other in [it.input, it.reduce] {
                way.seconds_per_byte = way.seconds_per_byte.max(other.seconds_per_byte);
                way.joules_per_byte = way.joules_per_byte.max(other.joules_per_byte);
                way.latency_s = way.latency_s.max(other.latency_s);
                way.medium = way.medium.max(other.medium);
            }
            meeting += ends(&it.reduce, own.len()).max(ends(&it.input, own.len()));
        }
        let summed = self.all_reduce * (units as f64 - 1.0) * work.parameters / units as f64;
        let summing = summing_seconds(&way, summed, units, meeting);
        let moved = summed * way.joules_per_byte;
        ShareCosts { compute, joules, bytes, summing, moved }
    }

    /// Joules of computing by layer of a stage that has a share of each batch.
    pub(super) fn layers_j(&self, stage: &Stage, share: f64) -> Vec<f64> {
        let unit = &self.problem.units[stage.unit];
        let power = &unit.powers[stage.power];
        let dearer = share * (power.busy_watts - unit.idle_watts) / power.speed;
        let joules = |&i: &usize| self.problem.layers[i].seconds[stage.unit] * dearer;
        stage.layers.iter().map(joules).collect()
    }

    /// Watts that units of the types draw with their machines while they wait.
    pub fn idle_watts(&self, used: &[usize]) -> f64 {
        let problem = self.problem;
        let mut watts = 0.0;
        for (unit, &n) in problem.units.iter().zip(used) {
            watts += n as f64 * unit.idle_watts;
        }
        for (node, it) in problem.nodes.iter().enumerate() {
            let of = problem.units.iter().zip(used).filter(|(unit, _)| unit.node == node);
            let on = of.map(|(unit, n)| n.div_ceil(unit.per_node)).max().unwrap_or(0);
            watts += on as f64 * it.base_watts;
        }
        watts
    }

    /// Watts of a unit that is used, with its part of a machine that is full.
    pub(super) fn unit_watts(&self, unit: usize) -> f64 {
        let of = &self.problem.units[unit];
        let sharing = self.problem.units.iter().filter(|other| other.node == of.node).count();
        let base = self.problem.nodes[of.node].base_watts;
        of.idle_watts + base / (of.per_node * sharing) as f64
    }

    /// More joules than any plan takes that ends within so many seconds; `busy` are
    /// [`most_busy_joules`](Self::most_busy_joules).
    pub(super) fn most_joules(&self, busy: f64, seconds: f64) -> f64 {
        let all: Vec<usize> = self.problem.units.iter().map(|unit| unit.count).collect();
        let total = busy + self.idle_watts(&all) * seconds;
        if total.is_nan() { f64::INFINITY } else { total * self.joules_margin }
    }

    /// More joules than computing and moving take in any plan.
    pub(super) fn most_busy_joules(&self) -> f64 {
        let problem = self.problem;
        let dearest = |layer: &Layer| {
            let each = problem.units.iter().zip(&layer.seconds).flat_map(|(unit, seconds)| {
                unit.powers
                    .iter()
                    .map(move |p| seconds / p.speed * (p.busy_watts - unit.idle_watts))
            });
            each.fold(0.0, f64::max)
        };
        let ways = problem.units.iter();
        let ways = ways.flat_map(|unit| [unit.input, unit.reduce].into_iter().chain(unit.within));
        let joules = ways.map(|way| way.joules_per_byte).fold(0.0, f64::max);
        // Each stage takes each output at most once, and there are no more stages than layers.
        let outputs: f64 = problem.layers.iter().map(|layer| layer.output_bytes).sum();
        let parameters: f64 = problem.layers.iter().map(|layer| layer.parameter_bytes).sum();
        let moved =
            self.round_trip * outputs * problem.layers.len() as f64 + self.all_reduce * parameters;
        let computing: f64 = problem.layers.iter().map(dearest).sum();
        computing + joules * moved
    }

    /// The plan of stage options, each with the set of layers that it ends with.
    pub(super) fn evaluate(&self, ideals: &Ideals, chosen: &[(usize, StageOption)]) -> Assignment {
        let (mut sum, mut most, mut joules) = (0.0, 0.0f64, 0.0);
        let mut used = vec![0; self.problem.units.len()];
        let mut stages = Vec::new();
        for &(end, option) in chosen {
            sum += option.sum;
            most = most.max(option.most);
            joules += option.joules;
            used[option.unit as usize] += option.replicas as usize;
            stages.push(Stage {
                layers: ideals.between(option.before as usize, end),
                unit: option.unit as usize,
                replicas: option.replicas as usize,
                power: option.power as usize,
            });
        }
        let seconds = sum + self.slowest_counts() * most;
        let (period_s, energy_j) = self.waited(self.idle_watts(&used), [seconds, joules]);
        Assignment { stages, shares: Vec::new(), period_s, energy_j }
    }

    /// Seconds and joules of a batch, longer where no more than some watts may be drawn;
    /// infinite where idle watts alone are more.
    pub(super) fn waited(&self, idle_watts: f64, [seconds, joules]: [f64; 2]) -> (f64, f64) {
        let least = match self.problem.power_cap {
            None => 0.0,
            Some(cap) if cap > idle_watts => joules / (cap - idle_watts),
            Some(_) if joules + idle_watts > 0.0 => return (f64::INFINITY, f64::INFINITY),
            Some(_) => 0.0,
        };
        let seconds = seconds.max(least);
        (seconds, joules + idle_watts * seconds)
    }
}

/// The value of an objective for a period and an energy.
pub fn objective_value(objective: Objective, seconds: f64, joules: f64) -> f64 {
    match objective {
        Objective::Energy => joules,
        Objective::Time => seconds,
        Objective::Edp => seconds * joules,
    }
}

/// The value of a problem's objective that a plan has.
pub fn plan_value(problem: &Problem, plan: &Assignment) -> f64 {
    objective_value(problem.objective, plan.period_s, plan.energy_j)
}

impl StageOption {
    /// Bytes that each of its units holds, when so many units are in use from this
    /// stage on, in so many stages: weights with their gradient and with a version for
    /// each batch under way, activations of what is under way (one forward, one
    /// backward).
    pub(super) fn memory(&self, semantics: Semantics, units: usize, stages: usize) -> f64 {
        match semantics {
            Semantics::Stale => {
                let under_way = units.div_ceil(self.replicas as usize) as f64;
                self.parameters * (under_way + 1.0) + self.activations * under_way
            }
            Semantics::Synchronous { micro_batches } => {
                let part = stages.min(micro_batches) as f64 / micro_batches as f64;
                2.0 * self.own_parameters + self.activations * part
            }
        }
    }

    /// With how many units in use from this stage on it still fits, at the least depth.
    pub(super) fn most_units(&self, semantics: Semantics, holds: f64, all: usize) -> usize {
        let fitting = |units: &usize| fits(self.memory(semantics, *units, 1), holds);
        // The more units are in use, the more is under way.
        match fitting(&all) {
            true => all,
            false => (self.replicas as usize..all).take_while(fitting).last().unwrap_or(0),
        }
    }
}

/// Whether bytes fit; differences of rounding do not count.
pub(super) fn fits(bytes: f64, holds: f64) -> bool {
    bytes <= holds * (1.0 + 1e-12)
}
