//! Programs with their plan and what follows from both, as one checked value.

use super::{Edges, Memory, MemoryLimits, Numerics, Placement, Plan, Recompute, Space, TaskGraph};
use crate::error::{Error, MemoryLimit, Result};
use crate::graph::{Graph, Programs};
use crate::units::{Bytes, ProgramId, SpaceId, WorkerId};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// How many of the largest tensors an error names.
const LARGEST: usize = 5;

/// Programs, a plan that fits them, and the tasks that it makes of them: what engines,
/// simulations and predictions are given.
///
/// It is read as its [`Plan`], and exists only checked: whoever has one checks nothing again. A
/// clone is another name of the same value.
#[derive(Clone, Debug)]
pub struct PlannedPrograms(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    programs: Programs,
    expanded: Programs,
    plan: Plan,
    graphs: Vec<TaskGraph>,
    /// By the program before and the program after; made when they are first asked for.
    across: Vec<OnceLock<Edges>>,
    /// The rank whose tasks `graphs` has, and the whole plan; `None` for the tasks of all ranks.
    part: Option<(u32, PlannedPrograms)>,
}

impl Deref for PlannedPrograms {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.0.plan
    }
}

impl PlannedPrograms {
    /// Checks that a plan fits the programs and does not contradict itself.
    pub fn new(programs: &Programs, plan: Plan) -> Result<Self> {
        let expanded = plan.recompute.expand(&plan.numerics, programs)?;
        let (graphs, replicas) = TaskGraph::build(&expanded, &plan.placement)?;
        let memory = Memory { replicas, ..plan.memory };
        Self::of(programs, expanded, Plan { memory, ..plan }, graphs)
    }

    /// Checks numerics and placement against the programs and plans the memory.
    pub fn placed(programs: &Programs, numerics: Numerics, placement: Placement) -> Result<Self> {
        Self::plan(programs, numerics, Recompute::none(programs), |_| Ok(placement))
    }

    /// Plans the memory of a placement in which some nodes run again for the backward pass.
    /// `place` gets the programs with that, and their partial sums, made explicit.
    pub fn plan(
        programs: &Programs,
        numerics: Numerics,
        recompute: Recompute,
        place: impl FnOnce(&Programs) -> Result<Placement>,
    ) -> Result<Self> {
        let expanded = recompute.expand(&numerics, programs)?;
        let placement = place(&expanded)?;
        let (graphs, replicas) = TaskGraph::build(&expanded, &placement)?;
        let memory = Memory::plan(&expanded, &placement, &graphs, replicas);
        let plan = Plan { numerics, recompute, placement, memory };
        Self::of(programs, expanded, plan, graphs)
    }

    /// Adds the edges that the memory asks for, and checks it.
    fn of(
        programs: &Programs,
        expanded: Programs,
        plan: Plan,
        mut graphs: Vec<TaskGraph>,
    ) -> Result<Self> {
        plan.memory.check_sizes(&expanded, &graphs)?;
        for (graph, memory) in graphs.iter_mut().zip(&plan.memory.programs) {
            graph.add_reuse(memory)?;
        }
        plan.memory.check(&expanded, &plan.placement, &graphs)?;
        let (programs, across) = (programs.clone(), unknown(&graphs));
        Ok(Self(Arc::new(Parts { programs, expanded, plan, graphs, across, part: None })))
    }

    /// The part of a plan that one rank (process) runs: the same programs, plan and numbers of
    /// tasks, with the tasks of this rank and its halves of the moves between ranks.
    ///
    /// # Errors
    /// [`Error::Plan`] where the plan has no such rank.
    pub fn of_rank(&self, rank: u32) -> Result<Self> {
        let (parts, ranks) = (&*self.0, self.placement.ranks());
        if rank >= ranks || parts.part.is_some() {
            return Err(Error::plan("spaces", format!("one of {ranks} ranks"), rank));
        }
        let all = parts.graphs.iter().zip(&parts.expanded.programs).zip(&self.memory.programs);
        let graphs = all.map(|((tasks, program), memory)| {
            tasks.of_rank(&program.graph, (rank, &self.placement), memory)
        });
        let graphs: Vec<TaskGraph> = graphs.collect::<Result<_>>()?;
        let (programs, expanded) = (parts.programs.clone(), parts.expanded.clone());
        let (plan, across) = (parts.plan.clone(), unknown(&graphs));
        let part = Some((rank, self.clone()));
        Ok(Self(Arc::new(Parts { programs, expanded, plan, graphs, across, part })))
    }

    /// The rank whose part of the plan this is; `None` where it is the whole plan.
    pub fn rank(&self) -> Option<u32> {
        self.0.part.as_ref().map(|(rank, _)| *rank)
    }

    /// The whole plan that this is a part of, or is.
    pub fn whole(&self) -> &Self {
        self.0.part.as_ref().map_or(self, |(_, whole)| whole)
    }

    /// Whether a space belongs to this part of the plan.
    pub fn has(&self, space: SpaceId) -> bool {
        self.rank().is_none_or(|rank| self.placement.rank_of(space) == rank)
    }

    /// The space that inputs are loaded into and outputs are read from: the first host memory of this
    /// part.
    pub fn first_space(&self) -> SpaceId {
        self.placement.loading().find(|space| self.has(*space)).unwrap_or(SpaceId(0))
    }

    /// How many lists a static replay has: workers, one lane per space for the moves to it, and
    /// where ranks exchange messages one lane per rank and direction.
    pub fn lanes(&self) -> usize {
        let messages = if self.rank().is_some() { 2 * self.placement.ranks() as usize } else { 0 };
        self.placement.lanes() + messages
    }

    /// The workers and lanes that run here, in order: all workers of the spaces of this part, and
    /// the lanes that have tasks in a program.
    pub fn own_lanes(&self) -> Vec<WorkerId> {
        let mut used = vec![false; self.lanes()];
        for (used, space) in used.iter_mut().zip(&self.placement.space_of) {
            *used = self.has(*space);
        }
        let tasks = self.graphs().iter().flat_map(|graph| &graph.tasks);
        let moves = tasks.filter(|task| task.is_move());
        moves.for_each(|task| used[task.worker.index()] = true);
        // A rank that only holds values still takes part in every step.
        if !used.contains(&true) {
            used[self.placement.workers + self.first_space().index()] = true;
        }
        (0..used.len()).filter(|&w| used[w]).map(WorkerId::new).collect()
    }

    /// The memory that this part of the plan needs, from before the first step on.
    pub fn peak(&self) -> Bytes {
        let own = self.memory.spaces().filter(|space| self.has(*space));
        Bytes(own.map(|space| self.memory.peak_of(space).0).fold(0, u64::saturating_add))
    }

    /// The peak of this part of the plan, and the bytes of its persistent values.
    pub(crate) fn needs(&self) -> (Bytes, Bytes) {
        let own = self.memory.spaces().filter(|space| self.has(*space));
        let persistent: usize = own.map(|space| self.memory.persistent_bytes[space.index()]).sum();
        (self.peak(), Bytes(persistent as u64))
    }

    /// The programs as they were lowered.
    pub fn programs(&self) -> &Programs {
        &self.0.programs
    }

    /// The programs with their partial sums and what runs again made explicit: tasks refer to
    /// the nodes of these.
    pub fn expanded(&self) -> &Programs {
        &self.0.expanded
    }

    /// The tasks of each program, with the edges that the plan's memory asks for.
    pub fn graphs(&self) -> &[TaskGraph] {
        &self.0.graphs
    }

    /// The nodes and the tasks of a program.
    pub fn program(&self, id: ProgramId) -> (&Graph, &TaskGraph) {
        (&self.0.expanded.programs[id.index()].graph, &self.0.graphs[id.index()])
    }

    /// What the tasks of a program wait for where the step before was one of program `before`.
    pub fn across(&self, before: ProgramId, after: ProgramId) -> &Edges {
        let of = |p: ProgramId| (&self.0.graphs[p.index()], &self.memory.programs[p.index()]);
        let at = before.index() * self.0.graphs.len() + after.index();
        self.0.across[at].get_or_init(|| Edges::across(of(before), of(after)))
    }

    /// The largest tensors that are stored, by name.
    pub fn largest(&self, count: usize) -> Vec<(String, Bytes)> {
        self.largest_of(count, &|_| true)
    }

    /// The largest tensors that a space has a part of, by name.
    fn largest_in(&self, space: SpaceId, count: usize) -> Vec<(String, Bytes)> {
        self.largest_of(count, &|own| own == space)
    }

    fn largest_of(&self, count: usize, counts: &dyn Fn(SpaceId) -> bool) -> Vec<(String, Bytes)> {
        let mut all: Vec<(String, u64)> = self
            .expanded()
            .programs
            .iter()
            .zip(self.graphs())
            .flat_map(|(p, graph)| {
                let storages = graph.layout.storages.iter().filter(|s| counts(s.space));
                let roots = storages.map(|s| p.graph.value(s.root));
                roots.map(|v| (v.name.clone(), v.meta))
            })
            .map(|(name, meta)| (format!("{name} {meta}"), meta.bytes() as u64))
            .collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.dedup();
        all.into_iter().take(count).map(|(name, bytes)| (name, Bytes(bytes))).collect()
    }

    /// Refuses a plan whose peak is above a limit, naming the largest tensors.
    pub fn check_memory(&self, limit: impl Into<MemoryLimit>) -> Result<()> {
        let limit = limit.into();
        if self.memory.peak() <= limit.bytes() { Ok(()) } else { Err(self.too_large(limit, None)) }
    }

    /// Refuses a plan that exceeds one of the limits.
    pub fn check_limits(&self, limits: &MemoryLimits) -> Result<()> {
        limits.total.map_or(Ok(()), |limit| self.check_memory(limit))?;
        for (space, name) in self.memory.spaces().zip(&self.placement.spaces) {
            let limit = limits.spaces.get(name).copied();
            if let Some(limit) = limit.filter(|limit| self.memory.peak_of(space) > *limit) {
                return Err(self.too_large_in(Some(space), limit.into(), None));
            }
        }
        Ok(())
    }

    /// Refuses limits of spaces that the plan does not have.
    pub fn check_limited(&self, limits: &MemoryLimits) -> Result<()> {
        let spaces = &self.placement.spaces;
        match limits.spaces.keys().find(|space| !spaces.contains(space)) {
            None => Ok(()),
            Some(space) => {
                let names: Vec<String> = spaces.iter().map(Space::to_string).collect();
                let expected = format!("spaces of the plan: {}", names.join(", "));
                Err(Error::config("memory-limit", expected, space.to_string()))
            }
        }
    }

    /// There is not so much memory; `least` is the smallest peak of any plan that was found.
    pub(crate) fn too_large(&self, limit: MemoryLimit, least: Option<Bytes>) -> Error {
        self.too_large_in(None, limit, least)
    }

    /// The same of one space.
    pub(crate) fn too_large_in(
        &self,
        space: Option<SpaceId>,
        limit: MemoryLimit,
        least: Option<Bytes>,
    ) -> Error {
        let (needed, largest) = match space {
            Some(space) => (self.memory.peak_of(space), self.largest_in(space, LARGEST)),
            None => (self.peak(), self.largest(LARGEST)),
        };
        let space = space.map(|space| self.placement.spaces[space.index()].to_string());
        Error::Memory { space, needed, limit, least, largest }
    }

    /// The same without the edges that the memory asks for: broken on purpose.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn without_reuse(self) -> Self {
        let parts = Arc::into_inner(self.0).expect("no clone");
        let built = TaskGraph::build(&parts.expanded, &parts.plan.placement);
        let (graphs, _) = built.expect("as before");
        Self(Arc::new(Parts { graphs, ..parts }))
    }

    /// The same with a move of the first program that copies nothing: broken on purpose. `None`
    /// where there are not so many.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn without_move(self, index: usize) -> Option<Self> {
        let mut parts = Arc::into_inner(self.0).expect("no clone");
        let moves = parts.graphs[0].tasks.iter_mut().filter_map(|task| match &mut task.does {
            super::Does::Move(of) => Some(of),
            _ => None,
        });
        moves.skip(index).take(1).next()?.parts.clear();
        Some(Self(Arc::new(parts)))
    }
}

/// No edges between programs are known yet.
fn unknown(graphs: &[TaskGraph]) -> Vec<OnceLock<Edges>> {
    graphs.iter().flat_map(|_| graphs).map(|_| OnceLock::new()).collect()
}
