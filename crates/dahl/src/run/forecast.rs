//! The predicted time and energy of a step, to be compared with those of the run.

use super::record::Predicted;
use crate::perf::PerfModel;
use crate::plan::{Memory, PlannedPrograms};
use crate::platform::{Platform, UnitId};
use crate::sim::{EngineModel, Known, Steps, Worker, predict as simulated};
use crate::units::ProgramId;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Predicts a training step from the times of calls, which are `from` somewhere, on the platform
/// that energy is modelled from.
pub fn predict(
    (known, from): (&PerfModel, &str),
    planned: &PlannedPrograms,
    platform: Option<&Platform>,
) -> Result<Predicted> {
    let platform = platform.ok_or_else(|| Error::Unsupported {
        what: "predicting on a machine that cannot be detected".to_owned(),
    })?;
    let on = platform.expand();
    let count = planned.placement.workers;
    if count > on.units.len() {
        let expected = format!("at most {}, the units of the platform", on.units.len());
        return Err(Error::config("workers", expected, count));
    }
    let worker = |unit| Worker { unit: UnitId(unit), state: None };
    let workers: Vec<Worker> = (0..count as u32).map(worker).collect();
    let (what, mut costs) = ((planned, ProgramId(0)), Known::new(known));
    let calls = Steps::new(what, (&on, workers.clone()), 1, &mut costs)?.costs;
    let step = simulated(what, &on, workers, &EngineModel::measured(known), &mut costs)?;
    let header = planned.trace_header(&[]);
    let mut by_codelet: BTreeMap<u32, f64> = BTreeMap::new();
    for (work, costs) in header.programs[0].work.iter().zip(&calls) {
        for (&(cell, _), cost) in work.calls.iter().zip(costs) {
            *by_codelet.entry(header.cells[cell as usize].codelet).or_default() += cost.nanos;
        }
    }
    let name = |(codelet, nanos): (u32, f64)| (header.codelets[codelet as usize].clone(), nanos);
    Ok(Predicted {
        program: planned.programs().programs[0].name.clone(),
        step: step.step.0,
        interval: step.interval.map(|nanos| nanos.0),
        joules: step.joules.0,
        codelets: by_codelet.into_iter().map(name).collect(),
        from: format!("{from}, on {:?}", platform.name),
    })
}

/// The memory of a plan in all spaces, part by part.
pub fn planned_parts(memory: &Memory) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = Vec::new();
    for (name, bytes) in memory.spaces().flat_map(|space| memory.parts(space)) {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += bytes as u64,
            None => all.push((name.to_owned(), bytes as u64)),
        }
    }
    all
}
