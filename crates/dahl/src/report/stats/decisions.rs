//! Where a run changed its placement.

use crate::trace::{Event, Trace};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A decision about the placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRow {
    /// The first step after it.
    pub step: u64,
    /// The new placement, and the reason; `None` if nothing changed.
    pub change: Option<(String, String)>,
    /// The time of a step before, in nanoseconds.
    pub measured: u64,
    /// The predicted time of a step.
    pub predicted: u64,
    /// The time of the decision and the change.
    pub took: u64,
}

impl fmt::Display for DecisionRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [measured, predicted, took] = [self.measured, self.predicted, self.took].map(Nanos);
        write!(f, "step {}: ", self.step)?;
        match &self.change {
            Some((name, why)) => write!(f, "placement {name}, since {why}")?,
            None => f.write_str("placement kept")?,
        }
        write!(f, "; {measured} a step before, {predicted} predicted; took {took}")
    }
}

pub(super) fn decisions(trace: &Trace) -> Vec<DecisionRow> {
    let mut current = 0;
    let mut all = Vec::new();
    for event in &trace.events {
        let Event::Replan { step, placement, measured, predicted, from, to } = *event else {
            continue;
        };
        let header = (placement as usize).checked_sub(1).map(|i| &trace.header.placements[i]);
        let change = header.filter(|_| placement != current);
        let change = change.map(|header| (header.name.clone(), header.why.clone()));
        current = placement;
        all.push(DecisionRow { step, change, measured, predicted, took: to - from });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Header, PlacementHeader};

    #[test]
    fn a_decision_is_a_line() {
        let (name, why) = ("sample=3,shares=2:1".to_owned(), "worker 1 is slow".to_owned());
        let placements = vec![PlacementHeader { name, why, program: 0 }];
        let replan = |step, placement| {
            let (measured, predicted, from, to) = (3_000_000, 2_000_000, 5, 1_000_005);
            Event::Replan { step, placement, measured, predicted, from, to }
        };
        let header = Header { placements, ..Header::default() };
        let trace = Trace { header, events: vec![replan(8, 0), replan(16, 1), replan(24, 1)] };
        let lines: Vec<String> = decisions(&trace).iter().map(|row| row.to_string()).collect();
        assert!(lines[0].starts_with("step 8: placement kept; "), "{}", lines[0]);
        let expected = "step 16: placement sample=3,shares=2:1, since worker 1 is slow; ";
        assert!(lines[1].starts_with(expected), "{}", lines[1]);
        assert!(lines[2].starts_with("step 24: placement kept; "), "{}", lines[2]);
    }
}
