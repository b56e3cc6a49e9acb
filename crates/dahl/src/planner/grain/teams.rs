//! Teams: which workers, in which memories, run the layers of a stage.
//!
//! Without a pipeline there is one team of all workers. A stage of a pipeline has a team of its
//! own: in one space, or in several that share its samples and its parameters.

use super::Grain;
use super::shares::{apportion, deal};
use crate::graph::Shards;
use crate::model::Stages;
use crate::ops::split;
use crate::plan::{Placement, ProgramPlacement, Space};
use crate::units::{SpaceId, WorkerId};
use std::ops::Range;

/// The memories of a plan and the memory of each worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memories {
    /// The memories.
    pub spaces: Vec<Space>,
    /// The memory of each worker.
    pub space_of: Vec<SpaceId>,
    /// The unit of a platform that each worker is meant for; empty where there is none.
    pub units: Vec<String>,
}

impl Memories {
    /// The host memories that a grain names, with equal numbers of workers.
    pub fn even(grain: &Grain) -> Self {
        // The first worker of a space is the first that its range begins at.
        let start = |space: usize| space * grain.workers / grain.spaces;
        let of = |w: usize| (0..grain.spaces).rfind(|&space| start(space) <= w).unwrap_or(0);
        Self::hosts(grain, (0..grain.workers).map(of).collect())
    }

    /// The same for the stages of a pipeline: where there are no more memories than stages, no
    /// stage lies in two.
    pub fn of_stages(grain: &Grain, own: &[Range<usize>]) -> Self {
        let (stages, spaces) = (own.len(), grain.spaces);
        if spaces > stages || grain.workers < stages {
            return Self::even(grain);
        }
        let of = |w: usize| {
            let stage = own.iter().position(|own| own.contains(&w)).unwrap_or(0);
            stage * spaces / stages
        };
        Self::hosts(grain, (0..grain.workers).map(of).collect())
    }

    /// The placement of programs on these workers.
    pub(super) fn placement(&self, programs: Vec<ProgramPlacement>) -> Placement {
        let Self { spaces, space_of, units } = self.clone();
        let workers = space_of.len();
        Placement { spaces, space_of, units, ..Placement::new(workers, programs) }
    }

    /// Host memories, dealt to the ranks in equal numbers.
    fn hosts(grain: &Grain, space_of: Vec<usize>) -> Self {
        let ranks = split(grain.spaces, grain.ranks, 1).into_iter().enumerate();
        let of_rank = |(rank, own): (usize, Range<usize>)| {
            (0..own.len()).map(move |number| Space::host(rank as u32, number as u32))
        };
        let spaces = ranks.flat_map(of_rank).collect();
        let space_of = space_of.into_iter().map(SpaceId::new).collect();
        Self { spaces, space_of, units: Vec::new() }
    }
}

/// How many pieces the workers of a team make of their samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Each {
    /// So many of the whole batch, nearly equal.
    Pieces(usize),
    /// One per worker, as large as its share.
    Worker,
}

/// The workers of a team in one space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) space: u32,
    pub(super) workers: Range<usize>,
    /// Its share of the samples; 0 where it gets none.
    pub(super) share: usize,
}

/// The teams of all stages.
#[derive(Clone, Debug)]
pub(crate) struct Teams {
    stages: Stages,
    by_stage: Vec<Vec<Member>>,
    each: Each,
    /// The shares of the workers; empty where they are equal.
    shares: Vec<usize>,
}

impl Teams {
    /// One team of all workers of a grain.
    pub(super) fn one(grain: &Grain, memories: &Memories, each: Each) -> Self {
        let all = 0..grain.workers;
        Self::new(Stages::default(), &[all], (grain, memories), each)
    }

    /// The teams of stages whose workers are `own`.
    pub(super) fn new(
        stages: Stages,
        own: &[Range<usize>],
        (grain, memories): (&Grain, &Memories),
        each: Each,
    ) -> Self {
        let shares = grain.shares.clone();
        let team = |own: &Range<usize>| {
            let mut members: Vec<Member> = Vec::new();
            for w in own.clone() {
                let space = memories.space_of[w].0;
                match members.last_mut() {
                    Some(last) if last.space == space => last.workers.end = w + 1,
                    _ => members.push(Member { space, workers: w..w + 1, share: 1 }),
                }
            }
            let share = |m: &Member| shares[m.workers.clone()].iter().sum::<usize>();
            if !shares.is_empty() && members.iter().any(|m| share(m) > 0) {
                members.iter_mut().for_each(|member| member.share = share(member));
            }
            members
        };
        let by_stage = own.iter().map(team).collect();
        Self { stages, by_stage, each, shares }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.by_stage.len()
    }

    /// The stage of what has this path in the model.
    pub(super) fn stage(&self, path: &str) -> usize {
        self.stages.of(path).min(self.by_stage.len() - 1)
    }

    /// The team of a stage.
    pub(super) fn team(&self, stage: usize) -> &[Member] {
        &self.by_stage[stage]
    }

    /// Those of a team that get samples.
    pub(super) fn active(&self, stage: usize) -> impl Iterator<Item = &Member> {
        self.by_stage[stage].iter().filter(|member| member.share > 0)
    }

    /// The workers of a stage in a space; those of all stages where this one has none there.
    pub(super) fn workers(&self, stage: usize, space: u32) -> Range<usize> {
        let in_space = |team: &Vec<Member>| {
            let found = team.iter().find(|member| member.space == space);
            found.map(|member| member.workers.clone())
        };
        let own = in_space(&self.by_stage[stage]);
        own.or_else(|| self.by_stage.iter().find_map(in_space)).unwrap_or(0..1)
    }

    /// The samples of each member of a team: at bounds of shards where there are enough, as near
    /// to the shares as they allow.
    pub(super) fn samples(
        &self,
        stage: usize,
        length: usize,
        shards: &Shards,
    ) -> Vec<Range<usize>> {
        let team = self.team(stage);
        let shards = shards.split(length);
        let start = |shard: usize| shards.get(shard).map_or(length, |shard| shard.start);
        let total: usize = team.iter().map(|member| member.share).sum();
        let active = self.active(stage).count();
        let (mut all, mut from) = (Vec::with_capacity(team.len()), 0);
        let (mut shard, mut share, mut before) = (0, 0, 0);
        for member in team {
            share += member.share;
            before += usize::from(member.share > 0);
            let to = if before == active {
                length
            } else if member.share == 0 {
                from
            } else if shards.len() < active {
                share * length / total
            } else if self.shares.is_empty() {
                shard = before * shards.len() / active;
                start(shard)
            } else {
                // Each has a shard at least.
                let possible = shard + 1..=shards.len() - (active - before);
                let wanted = (share * length + total / 2) / total;
                let near = |&shard: &usize| (start(shard).abs_diff(wanted), shard);
                shard = possible.min_by_key(near).unwrap_or(shard + 1);
                start(shard)
            };
            all.push(from..to);
            from = to;
        }
        all
    }

    /// The pieces that a member makes of so many rows, at most: at equal sizes, or one per worker
    /// by the shares.
    pub(super) fn pieces(&self, stage: usize, space: u32, rows: usize) -> Vec<Range<usize>> {
        let workers = self.workers(stage, space);
        match self.each {
            Each::Pieces(_) => split(rows, self.count_of(stage, space), 1),
            Each::Worker => {
                let shares = match self.shares.get(workers.clone()) {
                    Some(shares) if shares.iter().any(|share| *share > 0) => shares.to_vec(),
                    _ => vec![1; workers.len()],
                };
                let mut from = 0;
                let pieces = apportion(rows, &shares).into_iter().map(|count| {
                    from += count;
                    from - count..from
                });
                pieces.filter(|piece| !piece.is_empty()).collect()
            }
        }
    }

    /// How many pieces a member makes of its samples.
    pub(super) fn count_of(&self, stage: usize, space: u32) -> usize {
        let Each::Pieces(sample) = self.each else { return self.workers(stage, space).len() };
        let team = self.team(stage);
        let Some(at) = team.iter().position(|member| member.space == space) else { return 1 };
        if self.shares.is_empty() {
            return sample.div_ceil(team.len());
        }
        let shares: Vec<usize> = team.iter().map(|member| member.share).collect();
        apportion(sample, &shares)[at].max(1)
    }

    /// The workers of pieces that lie side by side in a space.
    pub(super) fn deal(&self, stage: usize, space: u32, pieces: usize) -> Vec<WorkerId> {
        let own = self.workers(stage, space);
        if self.each == Each::Worker && pieces == self.able(&own).len() {
            return self.able(&own);
        }
        deal(pieces, own, &self.shares)
    }

    /// The workers of a range that get anything.
    fn able(&self, own: &Range<usize>) -> Vec<WorkerId> {
        let shares = self.shares.get(own.clone()).unwrap_or_default();
        let all = shares.iter().all(|share| *share == 0);
        let gets = |w: &usize| all || shares[w - own.start] > 0;
        own.clone().filter(gets).map(WorkerId::new).collect()
    }

    /// The first worker of a space that gets anything.
    pub(super) fn first(&self, stage: usize, space: u32) -> WorkerId {
        let own = self.workers(stage, space);
        self.able(&own).first().copied().unwrap_or(WorkerId::new(own.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn teams(grain: &str, workers: usize) -> Teams {
        let grain = Grain::for_workers(workers).with(grain).unwrap();
        Teams::one(&grain, &Memories::even(&grain), Each::Pieces(grain.sample))
    }

    #[test]
    fn samples_are_dealt_at_bounds_of_shards_near_the_shares() {
        let check = |grain: &str, shards: &[usize], bounds: &[usize]| {
            let teams = teams(grain, 3);
            let shards = Shards::new(shards.to_vec()).unwrap();
            let found: Vec<usize> =
                teams.samples(0, 32, &shards).iter().map(|samples| samples.end).collect();
            assert_eq!(found, bounds, "{grain} {shards}");
        };
        check("spaces=2", &[21, 11], &[21, 32]);
        check("spaces=3", &[8, 8, 8, 8], &[8, 16, 32]);
        check("spaces=3", &[32], &[10, 21, 32]);
        check("spaces=3,shares=2:1:1", &[32], &[16, 24, 32]);
        check("spaces=3,shares=2:1:1", &[8, 8, 8, 8], &[16, 24, 32]);
        check("spaces=3,shares=1:0:3", &[8, 8, 8, 8], &[8, 8, 32]);
        check("spaces=3,shares=1:1:30", &[8, 8, 8, 8], &[8, 16, 32]);
        check("spaces=3,shares=0:1:1", &[16, 16], &[0, 16, 32]);
        // Two workers in the second memory have their shares together.
        check("spaces=2,shares=2:1:1", &[8, 8, 8, 8], &[16, 32]);
        check("spaces=2,shares=1:2:1", &[8, 8, 8, 8], &[8, 32]);
    }

    #[test]
    fn no_stage_lies_in_two_spaces_where_there_are_enough() {
        let check = |workers: usize, stages: &[Range<usize>], spaces: usize, expected: &[u32]| {
            let grain = Grain { spaces, ..Grain::for_workers(workers) };
            let memories = Memories::of_stages(&grain, stages);
            let found: Vec<u32> = memories.space_of.iter().map(|space| space.0).collect();
            assert_eq!(found, expected, "{workers} workers, {stages:?}, {spaces} spaces");
            assert_eq!(memories.spaces.len(), spaces);
        };
        check(2, &[0..1, 1..2], 2, &[0, 1]);
        check(6, &[0..2, 2..4, 4..6], 2, &[0, 0, 0, 0, 1, 1]);
        check(4, &[0..2, 2..4], 4, &[0, 1, 2, 3]);
        check(3, &[0..1, 1..3], 3, &[0, 1, 2]);
        // Fewer workers than stages.
        check(2, &[0..1, 0..1, 1..2, 1..2], 2, &[0, 1]);
    }

    #[test]
    fn workers_get_pieces_by_their_shares() {
        let even = teams("sample=4,spaces=2", 4);
        assert_eq!(even.count_of(0, 1), 2);
        assert_eq!(even.pieces(0, 1, 8), [0..4, 4..8]);
        assert_eq!(even.deal(0, 1, 2), [WorkerId(2), WorkerId(3)]);
        let grain = Grain::for_workers(4).with("spaces=2,shares=3:1:0:2").unwrap();
        let own = [0..2, 2..4];
        let memories = Memories::of_stages(&grain, &own);
        let stages = Stages::new([("a", 0), ("b", 1)]);
        let uneven = Teams::new(stages, &own, (&grain, &memories), Each::Worker);
        assert_eq!(uneven.pieces(0, 0, 8), [0..6, 6..8]);
        assert_eq!(uneven.pieces(1, 1, 8), std::slice::from_ref(&(0..8)));
        assert_eq!(uneven.deal(1, 1, 1), [WorkerId(3)]);
        assert_eq!(uneven.first(1, 1), WorkerId(3));
    }
}
