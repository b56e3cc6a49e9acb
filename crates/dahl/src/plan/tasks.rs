//! What a plan makes of a program.

use super::edges::Edges;
use super::memory::ProgramMemory;
use super::moves::with_moves;
use super::placement::{Placement, ProgramPlacement, pieces};
use super::space::Replica;
use super::storage::Layout;
use crate::error::{Error, Result};
use crate::graph::{Graph, Kind, Programs};
use crate::ops::{Access, Mapped, Metas};
use crate::units::{Bytes, NodeId, PersistentId, SpaceId, TaskId, ValueId, WorkerId};
use dahl_kernels::{Piece, Region};
use std::collections::BTreeMap;

/// How a task uses an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Reads it.
    Read,
    /// Writes all of the region without reading it.
    Write,
    /// Reads and writes it.
    Update,
}

/// An operand of a call.
#[derive(Clone, Debug)]
pub struct OperandSpec {
    /// The value, as the op sees it.
    pub value: ValueId,
    /// The box of it that is touched.
    pub region: Region,
    /// The value whose bytes it looks at.
    pub root: ValueId,
    /// The box of the root that is touched.
    pub root_region: Region,
    /// How.
    pub usage: Use,
}

/// One piece of one node.
#[derive(Clone, Debug)]
pub struct CallSpec {
    /// The node of the expanded graph.
    pub node: NodeId,
    /// The piece of it.
    pub piece: Piece,
    /// The operands, inputs first.
    pub operands: Vec<OperandSpec>,
    /// The bytes of scratch it needs.
    pub scratch: usize,
}

impl CallSpec {
    fn label(&self, graph: &Graph) -> String {
        let node = graph.node(self.node);
        format!("{} {:?}", node.op.name(), node.path)
    }
}

/// What a task does.
#[derive(Clone, Debug)]
pub enum Does {
    /// Calls, one after the other.
    Calls(Vec<CallSpec>),
    /// Copies boxes of values from one space to another.
    Move(Move),
    /// Sends the boxes of a move to another rank: the half of the move in the rank that has them.
    Send(Move),
    /// Receives the boxes of a move from another rank: the half in the rank that needs them.
    Receive(Move),
    /// Nothing: another rank runs the task.
    Elsewhere,
}

/// Boxes of values that go from one space to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where they are valid.
    pub from: SpaceId,
    /// Where they are needed.
    pub to: SpaceId,
    /// The boxes, of values that are no views.
    pub parts: Vec<(ValueId, Region)>,
}

impl Move {
    /// How many bytes are moved.
    pub fn bytes(&self, graph: &Graph) -> Bytes {
        let of =
            |(v, region): &(ValueId, Region)| region.elements() * graph.value(*v).meta.dtype.size();
        Bytes(self.parts.iter().map(of).sum::<usize>() as u64)
    }
}

/// What one worker or one lane runs without a pause.
#[derive(Clone, Debug)]
pub struct Task {
    /// What it does.
    pub does: Does,
    /// Which of the groups of the reference order it belongs to; moves have groups of their own.
    pub group: usize,
    /// Which piece of the group it is.
    pub piece: usize,
    /// How many pieces the group has.
    pub pieces: usize,
    /// The worker of a static replay; behind the workers, the lane of moves to each space.
    pub worker: WorkerId,
    /// The space that it computes in, or moves to.
    pub space: SpaceId,
    /// Whether each space of its group has a copy of it.
    pub copy: bool,
}

impl Task {
    /// The calls, none of a move.
    pub fn calls(&self) -> &[CallSpec] {
        match &self.does {
            Does::Calls(calls) => calls,
            _ => &[],
        }
    }

    /// Whether it is a move, or the half of one.
    pub fn is_move(&self) -> bool {
        matches!(self.does, Does::Move(_)) || self.is_half()
    }

    /// Whether it is the half of a move between ranks.
    pub fn is_half(&self) -> bool {
        matches!(self.does, Does::Send(_) | Does::Receive(_))
    }

    /// Calls with each box that is touched: in which space, of which value, and how.
    pub fn touches(&self, mut touch: impl FnMut(SpaceId, ValueId, &Region, Use)) {
        match &self.does {
            Does::Calls(calls) => {
                calls.iter().flat_map(|call| &call.operands).for_each(|operand| {
                    touch(self.space, operand.root, &operand.root_region, operand.usage);
                })
            }
            Does::Move(Move { from, to, parts }) => parts.iter().for_each(|(root, region)| {
                touch(*from, *root, region, Use::Read);
                touch(*to, *root, region, Use::Write);
            }),
            Does::Send(Move { from, parts, .. }) => {
                parts.iter().for_each(|(root, region)| touch(*from, *root, region, Use::Read));
            }
            Does::Receive(Move { to, parts, .. }) => {
                parts.iter().for_each(|(root, region)| touch(*to, *root, region, Use::Write));
            }
            Does::Elsewhere => {}
        }
    }
}

/// The tasks of a program in the reference order, and what they wait for.
#[derive(Clone, Debug)]
pub struct TaskGraph {
    /// The tasks, in an order in which one worker could run them.
    pub tasks: Vec<Task>,
    /// What has to come before what.
    pub edges: Edges,
    /// The boxes that values are stored as.
    pub layout: Layout,
}

impl TaskGraph {
    /// The task graphs of all programs, without the edges of memory reuse, and the replicas of
    /// persistent values that they have.
    pub fn build(expanded: &Programs, placement: &Placement) -> Result<(Vec<Self>, Vec<Replica>)> {
        placement.check(expanded)?;
        let all = expanded.programs.iter().zip(&placement.programs);
        let tasks = all.map(|(program, of)| {
            let graph = &program.graph;
            let tasks = tasks_of(graph, of, &placement.space_of);
            let ordered = tasks
                .and_then(|(tasks, nodes)| Ok((Edges::of_nodes(graph, &tasks, &nodes)?, tasks)));
            ordered.map_err(|e| match e {
                Error::Plan(at) => {
                    Error::plan(format!("{:?}, {}", program.name, at.what), at.expected, at.found)
                }
                e => e,
            })
        });
        let tasks: Vec<(Edges, Vec<Task>)> = tasks.collect::<Result<_>>()?;
        let replicas = replicas(expanded, placement, tasks.iter().map(|(_, tasks)| &tasks[..]));
        let graphs = expanded.programs.iter().zip(tasks).map(|(program, (edges, tasks))| {
            let (graph, roots) = (&program.graph, program.graph.roots());
            let (edges, tasks) = match placement.spaces.len() {
                1 => (edges, tasks),
                spaces => {
                    let tasks = with_moves(graph, &roots, tasks, placement, &replicas);
                    (Edges::of_order(graph, &tasks, spaces), tasks)
                }
            };
            let layout = Layout::of(graph, &roots, &tasks, placement, &replicas);
            Self { tasks, edges, layout }
        });
        Ok((graphs.collect(), replicas))
    }

    /// Adds the edges that the reuse of bytes asks for.
    pub(super) fn add_reuse(&mut self, memory: &ProgramMemory) -> Result<()> {
        self.edges.add_reuse(&self.tasks, &self.layout, memory)
    }

    /// The tasks of one rank, under the same ids: what other ranks run is [`Does::Elsewhere`], and
    /// of a move between two ranks each has its half. The edges and the users of storages are
    /// those of these tasks alone; the halves of one direction to one peer follow each other.
    ///
    /// # Errors
    /// Where the plan's memory contradicts its order.
    pub fn of_rank(
        &self,
        graph: &Graph,
        (rank, placement): (u32, &Placement),
        memory: &ProgramMemory,
    ) -> Result<Self> {
        let own = |space: SpaceId| placement.rank_of(space) == rank;
        let half = |task: &Task| -> Task {
            let mut half = task.clone();
            match &task.does {
                Does::Move(of) if own(of.from) && own(of.to) => {}
                Does::Move(of) if own(of.from) => {
                    half.worker = placement.sends_to(placement.rank_of(of.to));
                    half.does = Does::Send(of.clone());
                }
                Does::Move(of) if own(of.to) => {
                    half.worker = placement.receives_from(placement.rank_of(of.from));
                    half.does = Does::Receive(of.clone());
                }
                _ if own(task.space) && !task.is_move() => {}
                _ => half.does = Does::Elsewhere,
            }
            half
        };
        let tasks: Vec<Task> = self.tasks.iter().map(half).collect();
        let mut layout = self.layout.clone();
        for storage in layout.storages.iter_mut().filter(|storage| !own(storage.space)) {
            storage.users.clear();
        }
        let mut edges = Edges::of_order(graph, &tasks, placement.spaces.len());
        edges.add_reuse(&tasks, &layout, memory)?;
        let mut last: BTreeMap<WorkerId, TaskId> = BTreeMap::new();
        for (t, task) in tasks.iter().enumerate().filter(|(_, task)| task.is_half()) {
            let id = TaskId::new(t);
            if let Some(before) = last.insert(task.worker, id)
                && !edges.preds[t].contains(&before)
            {
                edges.preds[t].push(before);
            }
        }
        Ok(Self { tasks, edges, layout })
    }

    /// The task of an id.
    pub fn task(&self, id: TaskId) -> &Task {
        &self.tasks[id.index()]
    }

    /// A task for people: its ops, its place in the model and its piece.
    pub fn label(&self, graph: &Graph, id: TaskId) -> String {
        let task = self.task(id);
        let does = match &task.does {
            Does::Elsewhere => return format!("{id} (of another rank)"),
            Does::Move(of) | Does::Send(of) | Does::Receive(of) => {
                let first = of.parts.first().map_or("", |(v, _)| &graph.value(*v).name);
                let more = if of.parts.len() > 1 { ", …" } else { "" };
                return format!("{id} (move {first:?}{more} from {} to {})", of.from, of.to);
            }
            Does::Calls(calls) => calls.iter().map(|call| call.label(graph)).collect::<Vec<_>>(),
        };
        let calls = match &does[..] {
            [first, .., last] if does.len() > 2 => format!("{first} … {last}"),
            calls => calls.join(", "),
        };
        format!("{id} ({calls}, {})", task.piece_label())
    }

    /// One call of a task for people: its op, its place in the model and its
    /// piece.
    pub fn call_label(&self, graph: &Graph, id: TaskId, call: usize) -> String {
        let task = self.task(id);
        match task.calls().get(call) {
            Some(call) => format!("{id} ({}, {})", call.label(graph), task.piece_label()),
            None => self.label(graph, id),
        }
    }
}

impl Task {
    fn piece_label(&self) -> String {
        format!("piece {} of {}", self.piece + 1, self.pieces)
    }
}

/// The tasks of a placement without moves, and those of each node.
fn tasks_of(
    graph: &Graph,
    placement: &ProgramPlacement,
    space_of: &[SpaceId],
) -> Result<(Vec<Task>, Vec<Vec<TaskId>>)> {
    let roots = graph.roots();
    let mut tasks = Vec::new();
    let mut task_of: Vec<Vec<TaskId>> = vec![Vec::new(); graph.nodes.len()];
    for (g, group) in placement.groups.iter().enumerate() {
        let pieces_of_group = group.workers.len() / group.copies(space_of);
        let mut calls: Vec<Vec<CallSpec>> = vec![Vec::new(); pieces_of_group];
        for (&id, cuts) in group.nodes.iter().zip(&group.cuts) {
            let node = graph.node(id);
            let (inputs, outputs) = graph.metas(node);
            let metas = Metas { inputs: &inputs, outputs: &outputs };
            let parts = pieces(graph, node, cuts)
                .map_err(|(expected, found)| Error::plan(format!("group {g}"), expected, found))?;
            for (calls, piece) in calls.iter_mut().zip(parts) {
                let regions = node.op.regions(metas, &piece);
                let operands = node.inputs.len() + node.outputs.len();
                if regions.len() != operands {
                    let place = format!("regions of {} {:?}", node.op.name(), node.path);
                    return Err(Error::plan(place, format!("{operands} boxes"), regions.len()));
                }
                let uses =
                    node.inputs.iter().map(|_| Use::Read).chain((0..node.outputs.len()).map(|i| {
                        match node.op.access(i) {
                            Access::Write => Use::Write,
                            Access::Update => Use::Update,
                        }
                    }));
                let values = node.inputs.iter().chain(&node.outputs);
                let operands = values.zip(uses).zip(&regions).map(|((&value, usage), region)| {
                    let mapped = graph.map_to_root(&roots, value, region);
                    if matches!(mapped, Mapped::Cover(_)) && usage != Use::Read {
                        let expected = "written regions that are boxes of what a view looks at";
                        return Err(Error::plan(format!("group {g}"), expected, region));
                    }
                    Ok(OperandSpec {
                        value,
                        region: *region,
                        root: roots[value.index()].value,
                        root_region: mapped.region(),
                        usage,
                    })
                });
                let operands = operands.collect::<Result<Vec<_>>>()?;
                let scratch = node.op.scratch(node.variant, metas, &piece);
                calls.push(CallSpec { node: id, piece, operands, scratch });
            }
        }
        for (i, &worker) in group.workers.iter().enumerate() {
            let id = TaskId::new(tasks.len());
            group.nodes.iter().for_each(|n| task_of[n.index()].push(id));
            tasks.push(Task {
                does: Does::Calls(calls[i % pieces_of_group].clone()),
                group: g,
                piece: i,
                pieces: group.workers.len(),
                worker,
                space: space_of[worker.index()],
                copy: group.everywhere,
            });
        }
    }
    Ok((tasks, task_of))
}

/// The rows of persistent values that each space has: around those that it touches in any program
/// that has inputs. One without is run now and then, to copy values: it moves what its space has
/// nothing of.
fn replicas<'a>(
    expanded: &Programs,
    placement: &Placement,
    tasks: impl Iterator<Item = &'a [Task]>,
) -> Vec<Replica> {
    let whole = |p: usize| Region::full(&expanded.store.values[p].meta.shape);
    let mut touched: BTreeMap<(usize, SpaceId), Region> = BTreeMap::new();
    let several = placement.spaces.len() > 1;
    let mut programs: Vec<_> = expanded.programs.iter().zip(tasks).filter(|_| several).collect();
    let copies = |graph: &Graph| graph.inputs().next().is_none();
    programs.sort_by_key(|(program, _)| copies(&program.graph));
    for (program, tasks) in programs {
        let graph = &program.graph;
        for task in tasks {
            task.touches(|space, root, region, _| {
                let Kind::Persistent(id) = graph.value(root).kind else { return };
                let key = (id.index(), space);
                if region.is_empty() || copies(graph) && !touched.contains_key(&key) {
                    return;
                }
                let rows = match region.rank() {
                    0 => *region,
                    _ => whole(id.index()).with(0, region.range(0)),
                };
                let all = touched.entry(key).or_insert(rows);
                *all = all.cover(&rows);
            });
        }
    }
    let mut all = Vec::new();
    for p in 0..expanded.store.values.len() {
        let value = PersistentId::new(p);
        let own = touched.range((p, SpaceId(0))..(p + 1, SpaceId(0)));
        let mut own: Vec<Replica> =
            own.map(|(&(_, space), &region)| Replica { value, space, region }).collect();
        // Somebody has what nobody touches.
        let mut left = vec![whole(p)];
        for replica in &own {
            left = left.iter().flat_map(|rows| rows.minus(&replica.region)).collect();
        }
        if let Some(rest) = left.into_iter().reduce(|a, b| a.cover(&b)) {
            match own.first_mut() {
                Some(first) => first.region = first.region.cover(&rest),
                None => own.push(Replica { value, space: placement.output(), region: rest }),
            }
        }
        all.extend(own);
    }
    all
}
