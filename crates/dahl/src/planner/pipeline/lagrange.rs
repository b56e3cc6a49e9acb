//! The Lagrangian relaxation: potentials of sets of layers with multipliers of units, where
//! combinations of units are too many (README.md).
//!
//! A subgradient method maximises the bound: the subgradient is what the shortest path uses too
//! much of, the step is as long as would reach the cost of a plan that is known (Polyak 1969).

use super::cells::{Cell, Potential, Range};
use super::cost::StageOption;
use super::families::{self, Family, Weights};
use super::stage_options::OptionTable;

/// Steps of the subgradient method, and with how many that gain nothing it ends.
const ROUNDS: [usize; 2] = [80, 16];
/// A bound that no plan reaches.
const ENDLESS: f64 = 1e24;
/// The same where stages are not listed: a step is soon done.
const QUICK_ROUNDS: [usize; 2] = [300, 40];

/// What is left of a stage option.
#[derive(Clone, Copy)]
struct Slim {
    before: u32,
    unit: u8,
    replicas: u16,
    joules: f64,
    sum: f64,
}

/// What a search for multipliers begins with, and may know.
#[derive(Clone, Copy, Default)]
pub(super) struct Hint<'a> {
    /// What a good plan costs, if one is known.
    pub(super) aim: Option<f64>,
    /// Prices of another cell that is much alike.
    pub(super) like: Option<&'a Cell>,
}

/// Stage options of a cell: those that matter, or families with their fewest units.
enum Choices {
    Listed(Vec<Vec<Slim>>),
    Families(Vec<Vec<u16>>),
}

/// The shortest path through the sets.
struct Shortest {
    by_set: Vec<f64>,
    /// Units that it uses, and seconds that add up.
    used: Vec<usize>,
    sum: f64,
}

impl OptionTable<'_> {
    /// Stage options by set, none with stages as slow as this: more units only where they take fewer
    /// seconds or joules.
    fn slim(&self, most_high: f64, allowed: impl Fn(&StageOption) -> bool) -> Choices {
        if let Some(families) = &self.families {
            let fewest = |of: &Vec<Family>| of.iter().map(|f| f.fewest(most_high)).collect();
            return Choices::Families(families.iter().map(fewest).collect());
        }
        let of = |end: usize| {
            let mut all: Vec<Slim> = Vec::new();
            let mut first = 0;
            for c in self.ending[end].iter().filter(|c| allowed(c)) {
                let same = |s: &Slim| (s.before, s.unit) == (c.before, c.unit);
                if !all.last().is_some_and(same) {
                    first = all.len();
                }
                let better = |s: &Slim| s.joules <= c.joules && s.sum <= c.sum;
                if !all[first..].iter().any(better) {
                    let (before, unit, replicas) = (c.before, c.unit, c.replicas);
                    all.push(Slim { before, unit, replicas, joules: c.joules, sum: c.sum });
                }
            }
            all
        };
        Choices::Listed((0..self.sets()).map(of).collect())
    }

    /// The potentials of a cell by set, with multipliers of units and of seconds that make the
    /// bound of all plans large.
    pub(super) fn lagrangian(&self, range: Range, hint: Hint<'_>) -> Cell {
        let options =
            self.slim(self.slowest_in(range), |option| self.useful(range)(option).is_some());
        let types = self.unit_counts.available.len();
        let watts: Vec<f64> =
            (0..types).map(|unit| self.cost.unit_watts(unit) * range.low).collect();
        // Seconds that may add up, where they do.
        let room = range.high - self.slowest * range.most_low;
        let room = Some(room).filter(|room| self.adds_up && room.is_finite() && *room > 0.0);
        let mut begin = vec![0.0; types];
        let mut theta = 0.0;
        if let Some(Cell { range, potential: Potential::Lagrangian { multipliers, .. } }) =
            hint.like
        {
            begin.clone_from(multipliers);
            theta = if room.is_some() { range.theta } else { 0.0 };
        }
        let (by_set, multipliers, theta) = self.maximise(
            &options,
            room,
            hint.aim,
            (begin, theta),
            &Weights { joules: 1.0, sum: 0.0, unit: watts },
        );
        Cell {
            range: Range { theta, ..range },
            potential: Potential::Lagrangian { by_set, multipliers },
        }
    }

    /// The least sum of the seconds that add up, where no stage is as slow as this; it may be much
    /// like another.
    pub(super) fn lagrangian_sums(
        &self,
        most_high: f64,
        aim: Option<f64>,
        like: Option<&Potential>,
    ) -> Potential {
        let options = self.slim(most_high, |option| option.most < most_high);
        let types = self.unit_counts.available.len();
        let multipliers = match like {
            Some(Potential::Lagrangian { multipliers, .. }) => multipliers.clone(),
            _ => vec![0.0; types],
        };
        let begin = (multipliers, 0.0);
        let weights = Weights { joules: 0.0, sum: 1.0, unit: vec![0.0; types] };
        let (by_set, multipliers, _) = self.maximise(&options, None, aim, begin, &weights);
        Potential::Lagrangian { by_set, multipliers }
    }

    /// Maximises the bound: potentials by set, multipliers of units, multiplier of a second.
    /// `weights` are those of a stage option without multipliers.
    fn maximise(
        &self,
        options: &Choices,
        room: Option<f64>,
        aim: Option<f64>,
        (begin, theta): (Vec<f64>, f64),
        weights: &Weights,
    ) -> (Vec<f64>, Vec<f64>, f64) {
        let end = self.sets() - 1;
        // A type without units has no stage options.
        let counts: Vec<f64> =
            self.unit_counts.available.iter().map(|&c| c.max(1) as f64).collect();
        // Prices of all of a resource: of the units of a type each, then of the seconds.
        let mut multipliers: Vec<f64> = begin.iter().zip(&counts).map(|(p, c)| p * c).collect();
        multipliers.extend(room.map(|room| theta * room));
        let apart = |multipliers: &[f64]| -> (Vec<f64>, f64) {
            let each = multipliers.iter().zip(&counts).map(|(p, c)| p / c).collect();
            (each, room.map_or(0.0, |room| multipliers[counts.len()] / room))
        };
        let mut best: Option<(f64, Vec<f64>, Vec<f64>)> = None;
        let (mut stride, mut since) = (1.0, 0);
        let [rounds, patience] = match options {
            Choices::Families(_) => QUICK_ROUNDS,
            Choices::Listed(_) => ROUNDS,
        };
        for _ in 0..rounds {
            let (each, theta) = apart(&multipliers);
            let unit = weights.unit.iter().zip(&each).map(|(own, each)| own + each);
            let Weights { joules, sum, .. } = *weights;
            let priced = Weights { joules, sum: sum + theta, unit: unit.collect() };
            let way = self.shortest(options, &priced);
            let bound = way.by_set[end] - multipliers.iter().sum::<f64>();
            if best.as_ref().is_none_or(|(known, ..)| bound > *known) {
                let gained = best.as_ref().map(|(known, ..)| bound - known);
                // Little by little is as good as not at all.
                since = if gained.is_some_and(|g| g < 1e-5 * bound.abs()) { since + 1 } else { 0 };
                best = Some((bound, way.by_set, multipliers.clone()));
            } else {
                since += 1;
                if since % 4 == 0 {
                    stride *= 0.6;
                    // From the best multipliers again.
                    multipliers = best.as_ref().map_or(multipliers, |(_, _, known)| known.clone());
                }
            }
            let reached = aim.is_some_and(|aim| bound >= aim);
            // Where no plan is, the bound has no end.
            if !bound.is_finite() || since > patience || reached || bound > ENDLESS {
                break;
            }
            let mut over: Vec<f64> =
                way.used.iter().zip(&counts).map(|(u, c)| *u as f64 / c - 1.0).collect();
            over.extend(room.map(|room| way.sum / room - 1.0));
            let free = |i: usize| over[i] > 0.0 || multipliers[i] > 0.0;
            let norm: f64 = (0..over.len()).filter(|&i| free(i)).map(|i| over[i] * over[i]).sum();
            if norm == 0.0 || stride < 1e-3 {
                break;
            }
            let missing = match aim {
                Some(aim) => (aim - bound).max(0.01 * aim.abs()),
                None => bound.abs().max(1e-9),
            };
            for (multiplier, over) in multipliers.iter_mut().zip(&over) {
                *multiplier = (*multiplier + stride * missing * over / norm).max(0.0);
            }
        }
        let (_, by_set, multipliers) = best.expect("at least one round");
        let (each, theta) = apart(&multipliers);
        (by_set, each, theta)
    }

    /// Prices that show that no plan is in a cell, if they are found: such that all units
    /// together cost less than what any plan needs (weights of Arora et al. 2012).
    pub(super) fn impossible(&self, range: Range) -> Option<Cell> {
        let options =
            self.slim(self.slowest_in(range), |option| self.useful(range)(option).is_some());
        let end = self.sets() - 1;
        let counts: Vec<f64> =
            self.unit_counts.available.iter().map(|&c| c.max(1) as f64).collect();
        let mut shares: Vec<f64> = counts.iter().map(|_| 1.0 / counts.len() as f64).collect();
        for round in 0..ROUNDS[0] {
            let multipliers: Vec<f64> = shares.iter().zip(&counts).map(|(s, c)| s / c).collect();
            let weights = Weights { joules: 0.0, sum: 0.0, unit: multipliers.clone() };
            let Shortest { by_set, used, .. } = self.shortest(&options, &weights);
            if by_set[end] > 1.0 + 1e-9 {
                // As large as no plan's energy is.
                let scale = 1e24 / (by_set[end] - 1.0).min(1e12);
                return Some(Cell {
                    range: Range { theta: 0.0, ..range },
                    potential: Potential::Lagrangian {
                        by_set: by_set.iter().map(|x| x * scale).collect(),
                        multipliers: multipliers.iter().map(|x| x * scale).collect(),
                    },
                });
            }
            let rate = 1.0 / (1.0 + round as f64 / 8.0);
            for ((share, used), count) in shares.iter_mut().zip(used).zip(&counts) {
                *share *= (rate * (used as f64 / count - 1.0).clamp(-1.0, 1.0)).exp();
            }
            let all: f64 = shares.iter().sum();
            shares.iter_mut().for_each(|share| *share /= all);
        }
        None
    }

    /// The seconds of the slowest stage that surely are too many for a cell.
    fn slowest_in(&self, range: Range) -> f64 {
        // A stage counts for the slowest so often, and its own seconds besides.
        let counts = match self.adds_up {
            true => self.slowest + 1.0,
            false => self.slowest,
        };
        range.most_high.min(range.high / counts)
    }

    /// The least cost of each set, and what the way to all layers uses.
    fn shortest(&self, options: &Choices, weights: &Weights) -> Shortest {
        let (mut used, mut sum) = (vec![0; self.unit_counts.available.len()], 0.0);
        let options = match (options, &self.families) {
            (Choices::Families(fewest), Some(families)) => {
                let (by_set, through) = families::shortest(families, fewest, weights);
                let mut at = by_set.len() - 1;
                while let Some(chosen) = through[at] {
                    used[chosen.unit as usize] += chosen.replicas as usize;
                    sum += chosen.sum;
                    at = chosen.before as usize;
                }
                return Shortest { by_set, used, sum };
            }
            (Choices::Listed(options), _) => options,
            (Choices::Families(_), None) => return Shortest { by_set: vec![0.0], used, sum },
        };
        let cost = |slim: &Slim| {
            let each = weights.unit[slim.unit as usize];
            weights.joules * slim.joules + weights.sum * slim.sum + slim.replicas as f64 * each
        };
        let mut by_set = vec![f64::INFINITY; options.len()];
        let mut through: Vec<Option<Slim>> = vec![None; options.len()];
        by_set[0] = 0.0;
        for (end, of) in options.iter().enumerate().skip(1) {
            for slim in of {
                let total = cost(slim) + by_set[slim.before as usize];
                if total < by_set[end] {
                    by_set[end] = total;
                    through[end] = Some(*slim);
                }
            }
        }
        let mut at = options.len() - 1;
        while let Some(slim) = through[at] {
            used[slim.unit as usize] += slim.replicas as usize;
            sum += slim.sum;
            at = slim.before as usize;
        }
        Shortest { by_set, used, sum }
    }

    /// The cheapest way to all layers by multipliers of units, with families: stage options, the last
    /// first. It may need more units than there are.
    pub(super) fn relaxed_path(
        &self,
        weights: &Weights,
        most_high: f64,
    ) -> Option<Vec<(usize, StageOption)>> {
        let families = self.families.as_ref()?;
        let Choices::Families(fewest) = self.slim(most_high, |_| true) else { return None };
        let (_, through) = families::shortest(families, &fewest, weights);
        let mut at = families.len() - 1;
        let mut path = Vec::new();
        while at > 0 {
            let chosen = through[at]?;
            let mut works = self.ideals.ending[at].iter();
            let work = works.find(|work| work.before == chosen.before as usize)?;
            let on = [chosen.unit as usize, chosen.replicas as usize, chosen.power as usize];
            path.push((at, self.cost.stage_option(work, on)));
            at = chosen.before as usize;
        }
        Some(path)
    }

    /// The same at the multipliers of a cell.
    pub(super) fn relaxed_path_of(&self, cell: &Cell) -> Option<Vec<(usize, StageOption)>> {
        let Potential::Lagrangian { multipliers, .. } = &cell.potential else { return None };
        let watts = |unit: usize| self.cost.unit_watts(unit) * cell.range.low;
        let unit = multipliers.iter().enumerate().map(|(unit, each)| watts(unit) + each).collect();
        let weights = Weights { joules: 1.0, sum: cell.range.theta, unit };
        self.relaxed_path(&weights, self.slowest_in(cell.range))
    }
}
