//! The grain of a plan: into how many pieces ops are cut, along which axes.

mod adapt;
mod candidates;
mod gather;
mod shares;
mod spread;
mod teams;

pub use adapt::{Adapter, Circumstances, Patience, Verdict, shared, speeds};
pub use candidates::candidates;
pub(super) use gather::{Batch, place_batches};
pub use gather::{Why, place, why};
use gather::{by_part, place_batches_over, place_over};
pub(super) use shares::apportion;
use spread::Spread;
pub(super) use teams::Each;
pub use teams::Memories;
use teams::Teams;

use super::pipeline::{even, flops};
use super::recompute::Placer;
use crate::error::{Error, Result};
use crate::graph::{Program, Programs};
use crate::model::Stages;
use crate::ops::Target;
use crate::plan::{MOST_PIECES, MOST_WORKERS, Numerics, Placement, PlannedPrograms, Recompute};
use crate::units::NodeId;
use gather::pieces;
use std::fmt;
use std::ops::Range;

/// Pieces of the batch for each worker that are tried, at most.
pub(super) const PIECES_A_WORKER: usize = 32;

/// Whether chains of ops over one piece become one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gather {
    /// They do.
    #[default]
    On,
    /// Every piece of every op is a task.
    Off,
}

/// The grain of a plan: the same for all ops, as far as they offer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grain {
    /// How many workers there are.
    pub workers: usize,
    /// Into how many pieces the batch is cut.
    pub sample: usize,
    /// Into how many pieces channels, filters and features are cut.
    pub channel: usize,
    /// Into how many pieces the rows of images are cut.
    pub row: usize,
    /// Into how many pieces the columns of images are cut.
    pub column: usize,
    /// Into how many stages the layers are cut, each with workers of its own.
    pub layer: usize,
    /// How many host memories the workers are in, equally many in each: each has a part of the
    /// batch and of the parameters, or some of the stages.
    pub spaces: usize,
    /// How many ranks (processes) the memories belong to, in even shares.
    pub ranks: usize,
    /// The shares of the workers in the pieces, one each; 0 leaves a worker out. None
    /// where all are alike.
    pub shares: Vec<usize>,
    /// Whether chains become one task.
    pub gather: Gather,
    /// What the variants of ops are chosen for.
    pub target: Target,
}

impl Grain {
    /// One piece of the batch for each worker.
    pub fn for_workers(workers: usize) -> Self {
        Self {
            workers,
            sample: workers,
            channel: 1,
            row: 1,
            column: 1,
            layer: 1,
            spaces: 1,
            ranks: 1,
            shares: Vec::new(),
            gather: Gather::On,
            target: Target::here(),
        }
    }

    /// The same pieces on the same workers, among more workers that get nothing yet: a
    /// run can give them something later. Stages have workers of their own and stay as
    /// they are.
    pub fn among(&self, workers: usize) -> Self {
        if workers <= self.workers || self.layer > 1 {
            return self.clone();
        }
        let mut shares = match &self.shares[..] {
            [] => vec![1; self.workers],
            shares => shares.to_vec(),
        };
        shares.resize(workers, 0);
        Self { workers, shares, ..self.clone() }
    }

    /// The plan of this grain with the default numerics.
    pub fn plan(&self, programs: &Programs) -> Result<PlannedPrograms> {
        self.plan_with(programs, Numerics::default_for(programs, self.target))
    }

    /// The plan of this grain with given numerics.
    pub fn plan_with(&self, programs: &Programs, numerics: Numerics) -> Result<PlannedPrograms> {
        let none = Recompute::none(programs);
        PlannedPrograms::plan(programs, numerics, none, |p| self.placement(p))
    }

    pub(super) fn check(&self) -> Result<()> {
        let all = [("workers", self.workers)].into_iter().chain(self.counts());
        if let Some((key, n)) = all.into_iter().find(|(_, n)| *n == 0) {
            return Err(Error::config(key, "at least 1", n));
        }
        if self.workers > MOST_WORKERS {
            let expected = format!("at most {MOST_WORKERS}");
            return Err(Error::config("workers", expected, self.workers));
        }
        if let Some((key, n)) = self.counts().into_iter().find(|(_, n)| *n > MOST_PIECES) {
            return Err(Error::config(key, format!("at most {MOST_PIECES}"), n));
        }
        if self.layer > self.workers {
            let expected = format!("at most {}, the workers", self.workers);
            return Err(Error::config("layer", expected, self.layer));
        }
        if self.spaces > self.workers {
            let expected = format!("at most {}, the workers", self.workers);
            return Err(Error::config("spaces", expected, self.spaces));
        }
        if self.ranks > self.spaces {
            let expected = format!("at most {}, the memories (spaces)", self.spaces);
            return Err(Error::config("ranks", expected, self.ranks));
        }
        let shares = &self.shares;
        if !shares.is_empty() && (shares.len() != self.workers || self.used() == 0) {
            let expected = format!("one for each of {} workers, not all 0", self.workers);
            return Err(Error::config("shares", expected, colons(shares)));
        }
        Ok(())
    }

    /// How many workers get anything.
    pub(super) fn used(&self) -> usize {
        match &self.shares[..] {
            [] => self.workers,
            shares => shares.iter().filter(|share| **share > 0).count(),
        }
    }

    fn counts(&self) -> [(&'static str, usize); 7] {
        [
            ("sample", self.sample),
            ("channel", self.channel),
            ("row", self.row),
            ("column", self.column),
            ("layer", self.layer),
            ("spaces", self.spaces),
            ("ranks", self.ranks),
        ]
    }

    /// Into how many pieces an axis of an op's result is cut.
    pub(super) fn of_axis(&self, axis: usize) -> usize {
        [self.sample, self.channel, self.row, self.column].get(axis).copied().unwrap_or(1)
    }

    /// This grain with what a text such as `sample=4,channel=2,gather=off` says.
    ///
    /// # Errors
    /// What was expected, and what was found.
    pub fn with(&self, text: &str) -> Result<Self> {
        let grain = self.parsed(text)?;
        grain.check()?;
        Ok(grain)
    }

    /// This grain with what a text says of the memories of a pipeline and of the shares of its
    /// workers.
    ///
    /// # Errors
    /// Where the text also cuts ops, which the stages do.
    pub fn with_memories(&self, text: &str) -> Result<Self> {
        let grain = self.with(text)?;
        let keys = text.split(',').filter_map(|part| part.split('=').next());
        if keys.map(str::trim).any(|key| !["spaces", "ranks", "shares", "gather"].contains(&key)) {
            let other =
                "pipeline, whose stages define the cut; only spaces, ranks, shares and gather can";
            return Err(Error::exclusive("grain", other));
        }
        Ok(grain)
    }

    /// Whether a text is one that [`with`](Self::with) reads, for some number of workers.
    ///
    /// # Errors
    /// What was expected, and what was found.
    pub fn check_text(text: &str) -> Result<()> {
        Self::for_workers(1).parsed(text).map(drop)
    }

    fn parsed(&self, text: &str) -> Result<Self> {
        let mut grain = self.clone();
        for part in text.split(',').map(str::trim) {
            let expected = "parts such as sample=4, channel=2, row=2, column=2, layer=2, spaces=2, ranks=2, \
                            shares=2:1, gather=on";
            let wrong = || Error::config("grain", expected, format!("{part:?}"));
            let (key, value) = part.split_once('=').ok_or_else(wrong)?;
            let number = || value.parse::<usize>().ok().filter(|n| *n > 0).ok_or_else(wrong);
            match key {
                "sample" => grain.sample = number()?,
                "channel" => grain.channel = number()?,
                "row" => grain.row = number()?,
                "column" => grain.column = number()?,
                "layer" => grain.layer = number()?,
                "spaces" => grain.spaces = number()?,
                // Each rank has a memory at least.
                "ranks" => {
                    grain.ranks = number()?;
                    grain.spaces = grain.spaces.max(grain.ranks);
                }
                "shares" => {
                    let shares = value.split(':').map(|share| share.parse::<u32>().ok());
                    let shares: Option<Vec<u32>> = shares.collect();
                    let shares = shares.filter(|all| all.iter().any(|share| *share > 0));
                    let shares = shares.ok_or_else(wrong)?;
                    grain.shares = shares.into_iter().map(|share| share as usize).collect();
                }
                "gather" => {
                    grain.gather = match value {
                        "on" => Gather::On,
                        "off" => Gather::Off,
                        _ => return Err(wrong()),
                    }
                }
                _ => return Err(wrong()),
            }
        }
        Ok(grain)
    }
}

impl Placer for Grain {
    fn placement(&self, expanded: &Programs) -> Result<Placement> {
        self.check()?;
        if self.spaces > 1 {
            let memories = match self.layer {
                1 => Memories::even(self),
                layers => Memories::of_stages(self, &self.stage_workers(layers)),
            };
            return self.placement_in(&memories, Each::Pieces(self.sample), expanded);
        }
        self.check_pieces(expanded)?;
        let placed = expanded.programs.iter().map(|p| place(&p.graph, self));
        Ok(Placement::new(self.workers, placed.collect()))
    }
}

impl Grain {
    /// The placement of programs on workers whose memories are given.
    pub(super) fn placement_in(
        &self,
        memories: &Memories,
        each: Each,
        expanded: &Programs,
    ) -> Result<Placement> {
        self.check_pieces(expanded)?;
        let placed = match self.layer {
            1 => {
                let teams = Teams::one(self, memories, each);
                let spread = Spread::new(self, &teams, expanded);
                let placed = expanded.programs.iter();
                placed.map(|p| place_over(&p.graph, self, &spread)).collect()
            }
            layers => {
                // The stages of a parameter are the same in all programs.
                let stages = even(&expanded.programs[0].graph, &vec![1.0; layers], &flops);
                let own = self.stage_workers(layers);
                let each = Each::Pieces(self.sample.div_ceil(layers));
                let teams = Teams::new(stages, &own, (self, memories), each);
                let spread = Spread::new(self, &teams, expanded);
                let placed = expanded.programs.iter();
                let place = |graph| place_batches_over(graph, self, &spread, &by_part(graph));
                placed.map(|p| place(&p.graph)).collect()
            }
        };
        Ok(memories.placement(placed))
    }

    /// The placement of a pipeline on workers whose memories are given: in each program the
    /// nodes are placed in batches, and each stage has workers of its own.
    pub(super) fn placement_of_stages(
        &self,
        (stages, own): (&Stages, &[Range<usize>]),
        memories: &Memories,
        expanded: &Programs,
        batches: &dyn Fn(&Program) -> Vec<Vec<NodeId>>,
    ) -> Result<Placement> {
        self.check_pieces(expanded)?;
        let teams = Teams::new(stages.clone(), own, (self, memories), Each::Worker);
        let spread = Spread::new(self, &teams, expanded);
        let placed = expanded.programs.iter();
        let placed =
            placed.map(|p| place_batches_over(&p.graph, self, &spread, &batches(p))).collect();
        Ok(memories.placement(placed))
    }

    /// The workers of each of so many stages.
    fn stage_workers(&self, stages: usize) -> Vec<Range<usize>> {
        let start = |stage: usize| stage * self.workers / stages;
        (0..stages).map(|stage| start(stage)..start(stage + 1)).collect()
    }

    /// Refuses a grain that cuts ops into more pieces than a plan may have.
    fn check_pieces(&self, expanded: &Programs) -> Result<()> {
        for program in &expanded.programs {
            let pieces = pieces(&program.graph, self);
            if pieces > MOST_PIECES {
                let expected = format!(
                    "a grain that cuts the ops of {:?} into at most {MOST_PIECES} pieces",
                    program.name
                );
                let found = format!("{self}, which cuts them into {pieces}");
                return Err(Error::config("grain", expected, found));
            }
        }
        Ok(())
    }
}

fn colons(shares: &[usize]) -> String {
    shares.iter().map(usize::to_string).collect::<Vec<_>>().join(":")
}

/// As [`Grain::with`] reads it, without what is 1.
impl fmt::Display for Grain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sample={}", self.sample)?;
        for (key, n) in self.counts().into_iter().skip(1).filter(|(_, n)| *n > 1) {
            write!(f, ",{key}={n}")?;
        }
        if !self.shares.is_empty() {
            write!(f, ",shares={}", colons(&self.shares))?;
        }
        f.write_str(match self.gather {
            Gather::On => "",
            Gather::Off => ",gather=off",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_workers_get_nothing_at_first() {
        let among = |text: &str, workers| {
            let grain = Grain::for_workers(2).with(text).unwrap().among(workers);
            (grain.workers, grain.to_string())
        };
        assert_eq!(among("sample=4", 4), (4, "sample=4,shares=1:1:0:0".to_owned()));
        assert_eq!(among("shares=2:1", 3), (3, "sample=2,shares=2:1:0".to_owned()));
        assert_eq!(among("sample=4", 2), (2, "sample=4".to_owned()));
        assert_eq!(among("layer=2", 4), (2, "sample=2,layer=2".to_owned()));
    }

    #[test]
    fn a_grain_reads_back() {
        let grain = Grain::for_workers(4);
        let all = "sample=1,row=4,column=2,layer=2,spaces=3,shares=2:1:0:7,gather=off";
        for text in ["sample=4", "sample=8,channel=2", all] {
            Grain::check_text(text).unwrap();
            assert_eq!(grain.with(text).unwrap().to_string(), text);
        }
        for wrong in ["", "sample", "sample=0", "sample=-1", "batch=2", "gather=yes", "layer=5"] {
            assert!(grain.with(wrong).is_err(), "{wrong}");
        }
        for wrong in ["shares=2:1", "shares=0:0:0:0", "shares=1:1:-1:1", "shares="] {
            assert!(grain.with(wrong).is_err(), "{wrong}");
        }
        assert!(Grain::check_text("layer=5,shares=2:1").is_ok());
    }
}
