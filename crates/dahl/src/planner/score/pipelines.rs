//! The price of stages on units under the cost model `dahl`.

use super::Misfit;
use super::foreign::{ForeignPlan, ForeignStage, Key};
use crate::error::Result;
use crate::planner::pipeline::{
    Assignment, Explained, Problem, Semantics, Solution, Stage, UnitType, explain, plan_value,
};
use std::collections::BTreeMap;

/// A plan with its costs.
#[derive(Clone, Debug)]
pub struct Score {
    /// The plan.
    pub plan: Assignment,
    /// Its costs, stage by stage.
    pub costs: Explained,
    /// Where it does not fit; empty if it can run.
    pub misfits: Vec<Misfit>,
}

impl ForeignPlan {
    /// The plan on a problem, with its costs.
    ///
    /// # Errors
    /// If it is no plan of the problem: an unknown layer or unit, a layer in no stage or in several,
    /// a stage before one of its inputs, more units than there are, or other semantics.
    pub fn score(&self, problem: &Problem) -> Result<Score> {
        let shared = self.stages.iter().any(|stage| stage.samples.is_some());
        if !shared {
            self.check_semantics(problem)?;
        }
        let names = Names::new(problem);
        let mut stages = Vec::new();
        let mut shares = Vec::new();
        for (i, stage) in self.stages.iter().enumerate() {
            let unit = self.unit(problem, i, stage)?;
            let power = self.power(&problem.units[unit], i, stage)?;
            let mut layers = self.layers(&names, i, stage)?;
            layers.sort_unstable();
            if let Some(pair) = layers.windows(2).find(|pair| pair[0] == pair[1]) {
                let found = format!("{} twice", names.of(pair[0]));
                return Err(self.fault(format!("stage {i}: layers"), "each layer once", found));
            }
            stages.push(Stage { layers, unit, replicas: stage.replicas, power });
            if shared {
                shares.push(self.samples(i, stage)?);
            }
        }
        self.check_counts(problem, &stages)?;
        match shared {
            true => self.check_side_by_side(problem, &stages)?,
            false => self.check_order(problem, &names, &stages)?,
        }
        let mut plan = Assignment { stages, shares, period_s: 0.0, energy_j: 0.0 };
        let costs = explain(problem, &plan);
        [plan.period_s, plan.energy_j] = costs.total;
        let misfits = misfits(problem, &plan, &costs);
        Ok(Score { plan, costs, misfits })
    }

    fn check_semantics(&self, problem: &Problem) -> Result<()> {
        let of = problem.semantics;
        if let Some(own) = self.semantics.as_ref().filter(|own| own.as_str() != of.name()) {
            let remedy = match of {
                Semantics::Stale => "plan without stale weights",
                Semantics::Synchronous { .. } => "allow stale weights",
            };
            let expected = format!("{} as the settings say ({remedy} to change that)", of.name());
            return Err(self.fault("semantics".to_owned(), expected, own.clone()));
        }
        match (of, self.micro_batches) {
            (Semantics::Synchronous { micro_batches }, Some(own)) if own != micro_batches => {
                let expected = format!(
                    "{micro_batches} as the settings say (set {own} micro-batches to change that)"
                );
                Err(self.fault("micro_batches".to_owned(), expected, own.to_string()))
            }
            _ => Ok(()),
        }
    }

    fn unit(&self, problem: &Problem, i: usize, stage: &ForeignStage) -> Result<usize> {
        let place = || format!("stage {i}: unit");
        let names = || -> String {
            let names: Vec<&str> = problem.units.iter().map(|unit| &*unit.name).collect();
            format!("one of {}", names.join(", "))
        };
        let Some(wanted) = &stage.unit else {
            return match &problem.units[..] {
                [_] => Ok(0),
                _ => Err(self.fault(place(), names(), "none")),
            };
        };
        let lower = wanted.to_lowercase();
        // The whole name; or that of the machine, or of the unit alone, if only one type has it.
        let fits: [&dyn Fn(&str) -> bool; 3] = [
            &|own| own == lower,
            &|own| own.split_once('/').is_some_and(|(machine, _)| machine == lower),
            &|own| own.split_once('/').is_some_and(|(_, unit)| unit == lower),
        ];
        for fits in fits {
            let found = (0..problem.units.len())
                .filter(|&unit| fits(&problem.units[unit].name.to_lowercase()));
            match found.collect::<Vec<_>>()[..] {
                [one] => return Ok(one),
                [] => {}
                _ => break,
            }
        }
        Err(self.fault(place(), names(), format!("{wanted:?}")))
    }

    fn power(&self, unit: &UnitType, i: usize, stage: &ForeignStage) -> Result<usize> {
        let Some(wanted) = &stage.power else { return Ok(0) };
        let found = unit.powers.iter().position(|power| power.name == *wanted);
        found.ok_or_else(|| {
            let names: Vec<&str> = unit.powers.iter().map(|power| &*power.name).collect();
            let expected = format!("one of {} of {}", names.join(", "), unit.name);
            self.fault(format!("stage {i}: power"), expected, format!("{wanted:?}"))
        })
    }

    fn layers(&self, names: &Names<'_>, i: usize, stage: &ForeignStage) -> Result<Vec<usize>> {
        let find = |what: &str, key: &Key| {
            names.find(key).ok_or_else(|| {
                let expected =
                    format!("a layer from 0 to {}, or its name or id", names.names.len() - 1);
                self.fault(format!("stage {i}: {what}"), expected, key.to_string())
            })
        };
        match (&stage.layers, &stage.first, &stage.last) {
            (Some(layers), ..) => layers.iter().map(|key| find("layers", key)).collect(),
            (None, Some(first), Some(last)) => {
                let (first, last) = (find("first", first)?, find("last", last)?);
                Ok((first..=last).collect())
            }
            _ if stage.samples.is_some() => Ok((0..names.names.len()).collect()),
            _ => Err(self.fault(format!("stage {i}"), "layers, or first and last", "neither")),
        }
    }

    fn samples(&self, i: usize, stage: &ForeignStage) -> Result<Vec<usize>> {
        let place = format!("stage {i}: samples");
        let Some(samples) = &stage.samples else {
            return Err(self.fault(place, "samples in every stage, or in none", "none"));
        };
        if samples.len() != stage.replicas {
            let expected = format!("a number for each of {} units", stage.replicas);
            return Err(self.fault(place, expected, samples.len().to_string()));
        }
        match samples.iter().any(|&n| n > 1_000_000_000) {
            true => Err(self.fault(place, "at most 1000000000 each", "more")),
            false => Ok(samples.clone()),
        }
    }

    fn check_counts(&self, problem: &Problem, stages: &[Stage]) -> Result<()> {
        let mut used = vec![0usize; problem.units.len()];
        for (i, stage) in stages.iter().enumerate() {
            if stage.replicas == 0 {
                return Err(self.fault(format!("stage {i}: replicas"), "at least 1", "0"));
            }
            let unit = &problem.units[stage.unit];
            used[stage.unit] = used[stage.unit].saturating_add(stage.replicas);
            if used[stage.unit] > unit.count {
                let expected = format!(
                    "at most {} x {} in all stages (the platform has no more)",
                    unit.count, unit.name
                );
                let found = used[stage.unit].to_string();
                return Err(self.fault(format!("stage {i}: replicas"), expected, found));
            }
        }
        Ok(())
    }

    /// Each layer is in one stage, behind its inputs.
    fn check_order(&self, problem: &Problem, names: &Names<'_>, stages: &[Stage]) -> Result<()> {
        let mut stage_of: Vec<Option<usize>> = vec![None; problem.layers.len()];
        for (i, stage) in stages.iter().enumerate() {
            if stage.layers.is_empty() {
                return Err(self.fault(format!("stage {i}: layers"), "at least one layer", "none"));
            }
            for &layer in &stage.layers {
                if let Some(other) = stage_of[layer].replace(i) {
                    let found = format!("{} in stage {other} and in stage {i}", names.of(layer));
                    return Err(self.fault("stages".to_owned(), "each layer in one stage", found));
                }
            }
        }
        for (layer, it) in problem.layers.iter().enumerate() {
            let Some(stage) = stage_of[layer] else {
                let found = format!("{} in none", names.of(layer));
                return Err(self.fault("stages".to_owned(), "each layer in one stage", found));
            };
            let late = |input: &&usize| stage_of[**input].is_some_and(|other| other > stage);
            if let Some(&input) = it.inputs.iter().find(late) {
                let other = stage_of[input].unwrap_or_default();
                let found = format!(
                    "{} of stage {other}, which {} takes",
                    names.of(input),
                    names.of(layer)
                );
                let expected = "inputs of the same or of earlier stages";
                return Err(self.fault(format!("stage {stage}: layers"), expected, found));
            }
        }
        Ok(())
    }

    /// Units that share a batch have all layers, and their samples are those of a batch.
    fn check_side_by_side(&self, problem: &Problem, stages: &[Stage]) -> Result<()> {
        let all = problem.layers.len();
        if let Some(i) = stages.iter().position(|stage| stage.layers.len() != all) {
            let expected = format!("all {all} layers, since the stages share each batch");
            let found = stages[i].layers.len().to_string();
            return Err(self.fault(format!("stage {i}: layers"), expected, found));
        }
        let mut types: Vec<usize> = stages.iter().map(|stage| stage.unit).collect();
        types.sort_unstable();
        types.dedup();
        if types.len() < stages.len() {
            let expected = "one stage for all units of a type that share each batch";
            return Err(self.fault("stages".to_owned(), expected, "several"));
        }
        let given = self.stages.iter().flat_map(|stage| stage.samples.iter().flatten());
        let samples = given.fold(0usize, |sum, n| sum.saturating_add(*n));
        match problem.samples.unwrap_or(samples.max(1)) {
            batch if batch != samples => {
                let expected = format!("{batch} samples in all stages, the batch of the settings");
                Err(self.fault("samples".to_owned(), expected, samples.to_string()))
            }
            _ => Ok(()),
        }
    }
}

/// Layers by name and id.
struct Names<'a> {
    names: Vec<&'a str>,
    /// Of names that several layers have, nothing.
    places: BTreeMap<&'a str, Option<usize>>,
}

impl<'a> Names<'a> {
    fn new(problem: &'a Problem) -> Self {
        let names: Vec<&str> = problem.layers.iter().map(|layer| &*layer.name).collect();
        let mut places = BTreeMap::new();
        for (i, &name) in names.iter().enumerate() {
            let id = name.split(' ').next().unwrap_or(name);
            places.entry(id).and_modify(|place| *place = None).or_insert(Some(i));
        }
        // A whole name is more than an id.
        for (i, &name) in names.iter().enumerate() {
            if names.iter().filter(|other| **other == name).count() == 1 {
                places.insert(name, Some(i));
            }
        }
        Self { names, places }
    }

    fn find(&self, key: &Key) -> Option<usize> {
        match key {
            Key::Index(index) => {
                usize::try_from(*index).ok().filter(|index| *index < self.names.len())
            }
            Key::Name(name) => self.places.get(&**name).copied().flatten(),
        }
    }

    fn of(&self, layer: usize) -> String {
        format!("layer {layer} ({})", self.names[layer])
    }
}

/// What a plan breaks.
fn misfits(problem: &Problem, plan: &Assignment, costs: &Explained) -> Vec<Misfit> {
    let mut all = Vec::new();
    for (i, (stage, cost)) in plan.stages.iter().zip(&costs.stages).enumerate() {
        let unit = &problem.units[stage.unit];
        // Differences of rounding do not count.
        if cost.memory_bytes > unit.memory_bytes * (1.0 + 1e-12) {
            all.push(Misfit::Memory {
                stage: i,
                unit: unit.name.clone(),
                needed: cost.memory_bytes,
                there: unit.memory_bytes,
            });
        }
    }
    match (problem.period_cap, problem.power_cap) {
        (_, Some(cap)) if plan.period_s.is_infinite() => all.push(Misfit::Power { cap }),
        (Some(cap), _) if plan.period_s > cap => {
            all.push(Misfit::Period { seconds: plan.period_s, cap });
        }
        _ => {}
    }
    all
}

impl Score {
    /// The value of the problem's objective.
    pub fn value(&self, problem: &Problem) -> f64 {
        plan_value(problem, &self.plan)
    }

    /// The largest possible distance from the optimum, as a part of the plan's value; `None` if the
    /// plan is below the lower bound: it is outside of the space that the bound is about.
    pub fn gap(&self, problem: &Problem, lower_bound: f64) -> Option<f64> {
        let value = self.value(problem);
        if value < lower_bound * (1.0 - 1e-9) {
            return None;
        }
        let gap = (value - lower_bound) / value;
        Some(if gap.is_finite() { gap.max(0.0) } else { 0.0 })
    }

    /// The stage that uses the largest part of its unit's memory, and that part.
    pub fn fullest(&self, problem: &Problem) -> Option<(usize, f64)> {
        let part = |(i, stage): (usize, &Stage)| {
            let there = problem.units[stage.unit].memory_bytes;
            let part = self.costs.stages[i].memory_bytes / there;
            part.is_finite().then_some((i, part))
        };
        let parts = self.plan.stages.iter().enumerate().filter_map(part);
        parts.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// How much more of something it takes than the best plan that was found, as a part of that.
    pub fn more_than(&self, found: &Solution, of: fn(&Assignment) -> f64) -> Option<f64> {
        let best = of(found.best.as_ref()?);
        (best > 0.0).then(|| of(&self.plan) / best - 1.0)
    }
}
