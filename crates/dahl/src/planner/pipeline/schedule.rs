//! Pipelines: parts of a batch through stages of layers, each with workers of its own.

use crate::error::Result;
use crate::graph::{Graph, Phase, Program, Programs};
use crate::model::{Delays, Stages};
use crate::plan::Placement;
use crate::planner::grain::{Batch, Each, Grain, Memories, place, place_batches};
use crate::planner::recompute::Placer;
use crate::units::NodeId;
use std::ops::Range;

/// In which order a stage takes the parts of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All forward, then all backward: GPipe.
    AllForward,
    /// As few forward as keep the later stages busy, then one backward for each forward:
    /// 1F1B.
    OneForwardOneBackward,
}

/// A pipeline.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Which layers.
    pub stages: Stages,
    /// In which order.
    pub order: Order,
    /// How old the parameters are that steps compute with: then steps are under way at
    /// once, and each stage has memory for as many as it has begun.
    pub delays: Option<Delays>,
    /// The workers of each stage, side by side; where it says nothing, evenly many for each.
    pub own: Vec<Range<usize>>,
}

/// A part of a batch on its way through a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Visit {
    phase: Phase,
    part: usize,
}

impl Flow {
    /// The placement of programs whose partial sums and repeated nodes are explicit. Where
    /// workers are in several memories or unequal, `memories` has those of the workers.
    fn place(
        &self,
        grain: &Grain,
        memories: Option<&Memories>,
        expanded: &Programs,
    ) -> Result<Placement> {
        let stages = self.stages.count();
        let own: Vec<Range<usize>> = (0..stages).map(|stage| self.workers(stage, grain)).collect();
        let ahead = (0..grain.workers).map(|w| {
            let own = (0..stages).filter(|&s| own[s].contains(&w));
            let steps = |s| self.delays.as_ref().map_or(1, |delays| delays.under_way(s));
            own.map(steps).max().unwrap_or(1)
        });
        let ahead = ahead.collect();
        let Some(memories) = memories else {
            let placed = expanded.programs.iter().map(|program| match is_training(program) {
                true => place_batches(&program.graph, grain, &self.batches(&program.graph, grain)),
                false => place(&program.graph, grain),
            });
            return Ok(Placement { ahead, ..Placement::new(grain.workers, placed.collect()) });
        };
        // Programs that evaluate go through the stages too: the parameters stay where they are.
        let batches = |program: &Program| -> Vec<Vec<NodeId>> {
            match is_training(program) {
                true => {
                    let batches = self.batches(&program.graph, grain).into_iter();
                    batches.map(|batch| batch.nodes).collect()
                }
                false => self.by_stage(&program.graph),
            }
        };
        let team = (&self.stages, &own[..]);
        let placement = grain.placement_of_stages(team, memories, expanded, &batches)?;
        Ok(Placement { ahead, ..placement })
    }

    /// The nodes of each stage of a program that does not learn.
    fn by_stage(&self, graph: &Graph) -> Vec<Vec<NodeId>> {
        let of = |stage| {
            let own = |id: &NodeId| self.stages.of(&graph.node(*id).path) == stage;
            graph.node_ids().filter(own).collect()
        };
        (0..self.stages.count()).map(of).collect()
    }

    /// The workers of a stage; where there are fewer workers than stages they have several.
    pub fn workers(&self, stage: usize, grain: &Grain) -> Range<usize> {
        if let Some(own) = self.own.get(stage) {
            return own.clone();
        }
        let stages = self.stages.count();
        let first = stage * grain.workers / stages;
        first..((stage + 1) * grain.workers / stages).max(first + 1)
    }

    /// The nodes of each visit, in an order in which all could run, updates last.
    fn batches(&self, graph: &Graph, grain: &Grain) -> Vec<Batch> {
        let parts = graph.nodes.iter().map(|node| node.part + 1).max().unwrap_or(1);
        let of = |stage: usize, wanted: &dyn Fn(Phase, usize) -> bool| {
            let own = |id: &NodeId| {
                let node = graph.node(*id);
                self.stages.of(&node.path) == stage && wanted(node.phase, node.part)
            };
            Batch {
                nodes: graph.node_ids().filter(own).collect(),
                workers: self.workers(stage, grain),
            }
        };
        let visits = in_order(self.stages.count(), parts, self.order);
        let mut batches: Vec<Batch> = visits
            .into_iter()
            .map(|(stage, visit)| {
                let own = |phase| match phase {
                    Phase::Recompute => visit.phase == Phase::Backward,
                    phase => phase == visit.phase,
                };
                of(stage, &|phase, part| own(phase) && part == visit.part)
            })
            .collect();
        // What all stages wait for, such as the norm of all gradients, is of the last.
        let updates = (0..self.stages.count()).rev();
        batches.extend(updates.map(|stage| of(stage, &|phase, _| phase == Phase::Update)));
        batches.retain(|batch| !batch.nodes.is_empty());
        batches
    }
}

impl Placer for (&Flow, &Grain) {
    fn placement(&self, expanded: &Programs) -> Result<Placement> {
        let (flow, grain) = *self;
        grain.check()?;
        let own: Vec<Range<usize>> =
            (0..flow.stages.count()).map(|stage| flow.workers(stage, grain)).collect();
        let apart = grain.spaces > 1 || !grain.shares.is_empty();
        let memories = apart.then(|| Memories::of_stages(grain, &own));
        flow.place(grain, memories.as_ref(), expanded)
    }
}

impl Placer for (&Flow, &Grain, &Memories) {
    fn placement(&self, expanded: &Programs) -> Result<Placement> {
        let (flow, grain, memories) = *self;
        grain.check()?;
        flow.place(grain, Some(memories), expanded)
    }
}

impl Placer for (&Grain, &Memories) {
    fn placement(&self, expanded: &Programs) -> Result<Placement> {
        let (grain, memories) = *self;
        grain.check()?;
        grain.placement_in(memories, Each::Worker, expanded)
    }
}

fn is_training(program: &Program) -> bool {
    program.graph.nodes.iter().any(|node| node.phase == Phase::Update)
}

/// What each stage does, one after the other.
fn visits(stage: usize, stages: usize, parts: usize, order: Order) -> Vec<Visit> {
    let forward = |part| Visit { phase: Phase::Forward, part };
    let backward = |part| Visit { phase: Phase::Backward, part };
    let first = match order {
        Order::AllForward => parts,
        Order::OneForwardOneBackward => (stages - stage).min(parts),
    };
    let mut all: Vec<Visit> = (0..first).map(forward).collect();
    for part in 0..parts {
        all.push(backward(part));
        all.extend((first + part < parts).then(|| forward(first + part)));
    }
    all
}

/// All visits of all stages, in the order in which they begin, if forward takes one and
/// backward two units of time.
fn in_order(stages: usize, parts: usize, order: Order) -> Vec<(usize, Visit)> {
    let lists: Vec<Vec<Visit>> = (0..stages).map(|s| visits(s, stages, parts, order)).collect();
    let mut next = vec![0; stages];
    let mut free = vec![0u64; stages];
    // When each part has gone forward and backward through each stage.
    let mut ends = vec![vec![[None::<u64>; 2]; parts]; stages];
    let mut all: Vec<(u64, usize, Visit)> = Vec::new();
    while next.iter().zip(&lists).any(|(n, list)| *n < list.len()) {
        let ready = |stage: usize| {
            let visit = *lists[stage].get(next[stage])?;
            let waits = match visit.phase {
                Phase::Forward if stage == 0 => Some(0),
                Phase::Forward => ends[stage - 1][visit.part][0],
                _ if stage + 1 == stages => ends[stage][visit.part][0],
                _ => ends[stage + 1][visit.part][1],
            };
            Some((waits?.max(free[stage]), stage, visit))
        };
        let earliest =
            (0..stages).filter_map(ready).min_by_key(|(start, stage, _)| (*start, *stage));
        let (start, stage, visit) = earliest.expect("some stage can go on");
        let (which, takes) = if visit.phase == Phase::Forward { (0, 1) } else { (1, 2) };
        free[stage] = start + takes;
        ends[stage][visit.part][which] = Some(free[stage]);
        next[stage] += 1;
        all.push((start, stage, visit));
    }
    all.sort_by_key(|(start, stage, _)| (*start, *stage));
    all.into_iter().map(|(_, stage, visit)| (stage, visit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(stage: usize, stages: usize, parts: usize, order: Order) -> String {
        let name = |visit: Visit| match visit.phase {
            Phase::Forward => format!("F{}", visit.part),
            _ => format!("B{}", visit.part),
        };
        let names: Vec<String> =
            visits(stage, stages, parts, order).into_iter().map(name).collect();
        names.join(" ")
    }

    #[test]
    fn stages_take_parts_as_gpipe_and_1f1b_do() {
        let one = Order::OneForwardOneBackward;
        assert_eq!(text(0, 2, 4, Order::AllForward), "F0 F1 F2 F3 B0 B1 B2 B3");
        assert_eq!(text(0, 2, 4, one), "F0 F1 B0 F2 B1 F3 B2 B3");
        assert_eq!(text(1, 2, 4, one), "F0 B0 F1 B1 F2 B2 F3 B3");
        assert_eq!(text(0, 4, 2, one), "F0 F1 B0 B1");
    }

    #[test]
    fn every_visit_comes_once_and_behind_what_it_needs() {
        for (stages, parts) in [(1, 1), (1, 5), (2, 1), (2, 8), (3, 2), (4, 7), (5, 5)] {
            for order in [Order::AllForward, Order::OneForwardOneBackward] {
                let all = in_order(stages, parts, order);
                assert_eq!(all.len(), 2 * stages * parts);
                let at = |stage, phase, part| {
                    let visit = (stage, Visit { phase, part });
                    all.iter().position(|v| *v == visit).expect("a visit")
                };
                for part in 0..parts {
                    for stage in 1..stages {
                        assert!(
                            at(stage - 1, Phase::Forward, part) < at(stage, Phase::Forward, part)
                        );
                        assert!(
                            at(stage, Phase::Backward, part) < at(stage - 1, Phase::Backward, part)
                        );
                    }
                    let last = stages - 1;
                    assert!(at(last, Phase::Forward, part) < at(last, Phase::Backward, part));
                }
            }
        }
    }
}
