//! What a plan makes of a program.

use super::edges::Edges;
use super::memory::ProgramMemory;
use super::placement::{Placement, ProgramPlacement, pieces};
use super::storage::Layout;
use crate::error::{Error, Result};
use crate::graph::{Graph, Programs};
use crate::ops::{Access, Mapped, Metas};
use crate::units::{NodeId, TaskId, ValueId, WorkerId};
use dahl_kernels::{Piece, Region};

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

/// Calls that one worker runs one after the other.
#[derive(Clone, Debug)]
pub struct Task {
    /// What is run, in order.
    pub calls: Vec<CallSpec>,
    /// The group it belongs to.
    pub group: usize,
    /// Which piece of the group it is.
    pub piece: usize,
    /// The worker of a static replay.
    pub worker: WorkerId,
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
    /// The task graphs of all programs, without the edges of memory reuse.
    pub fn build(expanded: &Programs, placement: &Placement) -> Result<Vec<Self>> {
        placement.check(expanded)?;
        let all = expanded.programs.iter().zip(&placement.programs);
        all.map(|(program, placement)| {
            Self::of(&program.graph, placement).map_err(|e| match e {
                Error::Plan(at) => {
                    Error::plan(format!("{:?}, {}", program.name, at.what), at.expected, at.found)
                }
                e => e,
            })
        })
        .collect()
    }

    fn of(graph: &Graph, placement: &ProgramPlacement) -> Result<Self> {
        let roots = graph.roots();
        let mut tasks = Vec::new();
        let mut task_of: Vec<Vec<TaskId>> = vec![Vec::new(); graph.nodes.len()];
        for (g, group) in placement.groups.iter().enumerate() {
            let mut calls: Vec<Vec<CallSpec>> = vec![Vec::new(); group.workers.len()];
            for (&id, cuts) in group.nodes.iter().zip(&group.cuts) {
                let node = graph.node(id);
                let (inputs, outputs) = graph.metas(node);
                let metas = Metas { inputs: &inputs, outputs: &outputs };
                let parts = pieces(graph, node, cuts).map_err(|(expected, found)| {
                    Error::plan(format!("group {g}"), expected, found)
                })?;
                for (calls, piece) in calls.iter_mut().zip(parts) {
                    let regions = node.op.regions(metas, &piece);
                    let operands = node.inputs.len() + node.outputs.len();
                    if regions.len() != operands {
                        let place = format!("regions of {} {:?}", node.op.name(), node.path);
                        return Err(Error::plan(place, format!("{operands} boxes"), regions.len()));
                    }
                    let uses = node.inputs.iter().map(|_| Use::Read).chain(
                        (0..node.outputs.len()).map(|i| match node.op.access(i) {
                            Access::Write => Use::Write,
                            Access::Update => Use::Update,
                        }),
                    );
                    let values = node.inputs.iter().chain(&node.outputs);
                    let operands =
                        values.zip(uses).zip(&regions).map(|((&value, usage), region)| {
                            let mapped = graph.map_to_root(&roots, value, region);
                            if matches!(mapped, Mapped::Cover(_)) && usage != Use::Read {
                                let expected =
                                    "written regions that are boxes of what a view looks at";
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
            for (piece, (calls, &worker)) in calls.into_iter().zip(&group.workers).enumerate() {
                let id = TaskId::new(tasks.len());
                group.nodes.iter().for_each(|n| task_of[n.index()].push(id));
                tasks.push(Task { calls, group: g, piece, worker });
            }
        }
        let edges = Edges::from_regions(graph, &tasks, &task_of)?;
        let layout = Layout::of(graph, &roots, &tasks);
        Ok(Self { tasks, edges, layout })
    }

    /// Adds the edges that the reuse of bytes asks for.
    pub(super) fn add_reuse(&mut self, memory: &ProgramMemory) -> Result<()> {
        self.edges.add_reuse(&self.tasks, &self.layout, memory)
    }

    /// The task of an id.
    pub fn task(&self, id: TaskId) -> &Task {
        &self.tasks[id.index()]
    }

    /// A task for people: its ops, its place in the model and its piece.
    pub fn label(&self, graph: &Graph, id: TaskId) -> String {
        let task = self.task(id);
        let calls: Vec<String> = task.calls.iter().map(|call| call.label(graph)).collect();
        let calls = match &calls[..] {
            [first, .., last] if calls.len() > 2 => format!("{first} … {last}"),
            calls => calls.join(", "),
        };
        format!("{id} ({calls}, {})", self.piece_label(id))
    }

    /// One call of a task for people: its op, its place in the model and its
    /// piece.
    pub fn call_label(&self, graph: &Graph, id: TaskId, call: usize) -> String {
        let call = self.task(id).calls[call].label(graph);
        format!("{id} ({call}, {})", self.piece_label(id))
    }

    fn piece_label(&self, id: TaskId) -> String {
        let task = self.task(id);
        // The tasks of a group stand together, in the order of their pieces.
        let group = &self.tasks[id.index() - task.piece..];
        let pieces = group.iter().take_while(|t| t.group == task.group).count();
        format!("piece {} of {pieces}", task.piece + 1)
    }
}
