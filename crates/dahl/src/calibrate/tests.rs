//! What is measured is plausible: which shapes, how many, not how fast.

use super::*;
use crate::model::{Model, Optimizer, TrainSpec};
use crate::perf::{About, PerfModel, Source, Work};
use crate::plan::{Group, Placement, PlannedPrograms, ProgramPlacement};
use crate::units::{NodeId, ProgramId, WorkerId};
use dahl_kernels::DType;
use std::time::Duration;

const TRAIN: ProgramId = ProgramId(0);
const SHORT: Duration = Duration::from_millis(3);

fn programs(batch: usize) -> Programs {
    let model =
        Model::sequential("small", &[1, 6, 6], |s| s.conv2d(3, 3).relu().flatten().linear(4));
    let spec = TrainSpec::new(batch, DType::F32, Optimizer::sgd(0.1));
    model.lower(&spec).unwrap().programs
}

/// Every node a task a piece, on workers in turn.
fn plan(programs: &Programs, numerics: Numerics, pieces: usize) -> PlannedPrograms {
    let expanded = numerics.expand(programs).unwrap();
    let placed = expanded.programs.iter().map(|program| {
        let graph = &program.graph;
        let groups = graph.node_ids().filter(|&id| graph.node(id).op.view().is_none()).map(|id| {
            let node = graph.node(id);
            let (inputs, outputs) = graph.metas(node);
            let metas = Metas { inputs: &inputs, outputs: &outputs };
            let cut = node.op.cuts(metas).into_iter().find(|cut| cut.axis == 0 && cut.align == 1);
            let count = cut.map_or(1, |_| pieces.min(outputs[0].shape[0]));
            let cuts = if count > 1 { vec![(0, count).into()] } else { Vec::new() };
            let workers = (0..count).map(|i| WorkerId::new(i % 2)).collect();
            Group::new(vec![id], vec![cuts], workers)
        });
        ProgramPlacement::new(groups.collect())
    });
    let placement = Placement::new(2, placed.collect());
    PlannedPrograms::placed(programs, numerics, placement).unwrap()
}

#[test]
fn every_call_of_a_plan_is_in_the_model() {
    let programs = programs(4);
    let plan = plan(&programs, Numerics::default_for(&programs, Target::here()), 2);
    let mut model = PerfModel::new(About::default());
    let measured = steps(&plan, TRAIN, SHORT, "cpu-test", &mut model).unwrap();
    assert!(measured.steps >= 2, "{measured:?}");
    let overheads = model.overheads.expect("measured on the way");
    assert!(overheads.step_ns.is_finite() && overheads.spin_ns > 0.0, "{overheads:?}");

    let (expanded, graphs) = (plan.expanded(), plan.graphs());
    let calls: Vec<_> = graphs[0].tasks.iter().flat_map(|task| task.calls()).collect();
    assert_eq!(measured.calls, calls.len());
    for call in calls {
        let work = Work::of_node(&expanded.programs[0].graph, call.node, &call.piece);
        let key = work.key("cpu-test");
        let found = model.estimate(&key, work.features).expect("a measured shape");
        assert!(found.source == Source::Measured && found.nanos >= 1.0, "{key:?} {found:?}");
        assert_eq!(found.traffic.is_some(), measured.steps_beside > 0, "{key:?}");
        let kept = model.history(&key).expect("its times").samples().len();
        assert!(kept <= 128, "{key:?} {kept}");
        assert_eq!(model.estimate(&work.key("gpu"), work.features), None);
    }
    assert_eq!(model.bandwidth.is_some(), measured.steps_beside > 0);
    let shapes: usize = model.summaries().iter().map(|s| s.shapes).sum();
    assert_eq!(shapes, measured.shapes);

    // A piece that was not measured is estimated from those that were.
    let graph = &expanded.programs[0].graph;
    let whole = graph.whole(graph.node(NodeId(0)));
    let work = Work::of_node(graph, NodeId(0), &whole);
    let found = model.estimate(&work.key("cpu-test"), work.features).unwrap();
    assert_eq!(found.source, Source::Regression);
}

#[test]
fn measuring_again_adds_times() {
    let programs = programs(2);
    let plan = plan(&programs, Numerics::default_for(&programs, Target::here()), 1);
    let mut model = PerfModel::default();
    steps(&plan, TRAIN, SHORT, "cpu", &mut model).unwrap();
    let before = model.clone();
    steps(&plan, TRAIN, SHORT, "cpu", &mut model).unwrap();
    assert_eq!(model.overheads, before.overheads);
    let shapes = |model: &PerfModel| -> Vec<(usize, usize)> {
        model.summaries().iter().map(|s| (s.shapes, s.stats.count)).collect()
    };
    for (before, after) in shapes(&before).iter().zip(shapes(&model)) {
        assert!(after.0 == before.0 && after.1 > before.1, "{before:?} {after:?}");
    }
}

#[test]
fn every_variant_has_its_turn() {
    let programs = programs(2);
    let target = Target::here();
    let all = variants(&programs, &target);
    assert_eq!(all[0], Numerics::default_for(&programs, target));
    let any = Target { accuracy: Some(Accuracy::Fast), ..target };
    for (p, program) in programs.programs.iter().enumerate() {
        for (n, node) in program.graph.nodes.iter().enumerate() {
            let (inputs, outputs) = program.graph.metas(node);
            let metas = Metas { inputs: &inputs, outputs: &outputs };
            for variant in node.op.allowed(metas, &any) {
                let has = |numerics: &Numerics| numerics.programs[p].variants[n] == variant;
                assert!(all.iter().any(has), "{} {variant}", node.op.name());
            }
        }
    }
    for numerics in all {
        plan(&programs, numerics, 1);
    }
}
