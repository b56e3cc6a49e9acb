//! Plans over several machines and devices: as tasks with moves, simulated, and with the bits of
//! one space where one process runs them.

use crate::support::{Setup, engine, setup};
use dahl::choose::{PlanRequest, PlannedUnits, in_words};
use dahl::error::MemoryLimit;
use dahl::graph::Shards;
use dahl::native::Scheduling;
use dahl::ops::Target;
use dahl::perf::PerfModel;
use dahl::plan::{Does, MemoryLimits, PlannedPrograms, Space};
use dahl::planner::Deployed;
use dahl::planner::pipeline::{Assignment, Objective, Stage};
use dahl::platform::Platform;
use dahl::sim::{EngineModel, Known, Order, Steps, Worker, run};
use dahl::units::{Bytes, ProgramId};
use dahl::{DType, Error, Result};
use std::time::Duration;

/// Two computers, the first with a device, all connected.
fn lab(link: &str) -> Platform {
    let unit = |name: &str, kind: &str, memory: &str, count: usize, flops: f64| {
        format!(
            "[[node.unit]]\nname = {name:?}\nkind = {kind:?}\nmemory = {memory:?}\n\
             count = {count}\nflops = {flops:?}\nbusy_watts = 10\nspinning_watts = 8\n\
             idle_watts = 1\n"
        )
    };
    let memory = |name: &str, bytes: &str| {
        format!("[[node.memory]]\nname = {name:?}\nbytes = {bytes:?}\nbandwidth = 2e10\n")
    };
    let text = [
        "dahl_platform = 1\nname = \"lab\"\n[[node]]\nname = \"big\"\nbase_watts = 5\n".to_owned(),
        memory("ram", "8 GiB"),
        memory("vram", "1 GiB"),
        unit("core", "cpu", "ram", 2, 2e10),
        unit("gpu", "gpu-x", "vram", 1, 4e10),
        "[[node.link]]\nname = \"pcie\"\nconnects = [\"ram\", \"vram\"]\nbandwidth = 1e10\n\
         latency = 1e-6\njoules_per_byte = 1e-10\n"
            .to_owned(),
        "[[node]]\nname = \"small\"\nbase_watts = 2\n".to_owned(),
        memory("ram", "2 GiB"),
        unit("core", "cpu", "ram", 1, 1e10),
        link.to_owned(),
    ];
    Platform::parse("lab.toml", &text.concat()).unwrap()
}

const ETHERNET: &str = "[[link]]\nname = \"ethernet\"\nconnects = [\"big\", \"small\"]\n\
    bandwidth = 1e9\nlatency = 1e-6\njoules_per_byte = 1e-9\nshared = \"nobody\"\n";

fn request<'a>(setup: &'a Setup, platform: &'a Platform, limits: MemoryLimits) -> PlanRequest<'a> {
    PlanRequest {
        model: &setup.model,
        spec: &setup.spec,
        target: Target::here(),
        platform,
        objective: Objective::Time,
        period: None,
        power_cap: None,
        allow_stale: false,
        micro_batches: Some(2),
        limits,
        engine: None,
        steps: 0,
        time: Duration::from_secs(60),
    }
}

/// Stages: the type of their units, how many, and of how many layers; and the samples of each unit.
type Over<'a> = (&'a [(usize, usize, usize)], Vec<Vec<usize>>);

/// A plan over units.
fn deployed(
    setup: &Setup,
    platform: &Platform,
    limits: MemoryLimits,
    (stages, shares): Over<'_>,
) -> Result<Deployed> {
    let known = PerfModel::default();
    let request = request(setup, platform, limits);
    let problem = request.problem_of(&known)?;
    let mut first = 0;
    let stages = stages.iter().map(|&(unit, replicas, layers)| {
        let layers = match shares.is_empty() {
            true => first..first + layers,
            false => 0..problem.layers.len(),
        };
        first = layers.end;
        Stage { layers: layers.collect(), unit, replicas, power: 0 }
    });
    let stages = stages.collect();
    let of = Assignment { stages, shares, period_s: 0.0, energy_j: 0.0 };
    request.deployment(&known).deploy(&problem, &of)
}

fn batch_of_12() -> Setup {
    let mut setup = setup("lenet", DType::F32);
    setup.spec.train[0] = 12;
    setup
}

/// The same plan in the host memories of one process.
fn in_one_process(planned: &PlannedPrograms) -> PlannedPrograms {
    let mut placement = planned.placement.clone();
    for (number, space) in placement.spaces.iter_mut().enumerate() {
        *space = Space::host(0, number as u32);
    }
    // Only the first has inputs, and all have workers.
    if placement.spaces.len() > placement.workers {
        placement.spaces.truncate(placement.workers);
    }
    let (programs, numerics) = (planned.programs(), planned.numerics.clone());
    let recompute = planned.recompute.clone();
    PlannedPrograms::plan(programs, numerics, recompute, |_| Ok(placement)).unwrap()
}

fn names(run: &Deployed) -> Vec<String> {
    run.plan.placement.spaces.iter().map(Space::to_string).collect()
}

#[track_caller]
fn assert_bits(setup: &Setup, run: &Deployed) {
    let spec = run.spec.clone();
    let setup = Setup { spec, ..setup.clone() };
    let plan = in_one_process(&run.plan);
    let trained = setup.train(&plan, &engine(Scheduling::Static)).unwrap();
    trained.assert_same(&setup.reference(), &format!("{:?}", run.plan.placement.units));
}

/// Types of units of [`lab`]: the cores and the device of the first computer, the second's core.
const CORES: usize = 0;
const GPU: usize = 1;
const SMALL: usize = 2;

#[test]
fn unequal_units_of_several_machines_share_a_batch() {
    let (setup, platform) = (batch_of_12(), lab(ETHERNET));
    let shares = vec![vec![3, 3], vec![4], vec![2]];
    let stages = [(CORES, 2, 0), (GPU, 1, 0), (SMALL, 1, 0)];
    let run = deployed(&setup, &platform, MemoryLimits::default(), (&stages, shares)).unwrap();
    assert_eq!(names(&run), ["host", "gpu0", "rank1"]);
    assert_eq!(run.spec.shards, Shards::new(vec![6, 4, 2]).unwrap());
    let units = ["big[0]/core[0]", "big[0]/core[1]", "big[0]/gpu[0]", "small[0]/core[0]"];
    assert_eq!(run.plan.placement.units, units);
    assert!(run.step.as_ref().unwrap().step.0 > 0 && run.moved().0 > 0);
    assert_bits(&setup, &run);
}

#[test]
fn stages_of_several_machines_follow_each_other() {
    let (setup, platform) = (batch_of_12(), lab(ETHERNET));
    let none = MemoryLimits::default;
    let stages = [(SMALL, 1, 2), (CORES, 2, 1), (GPU, 1, 2)];
    let run = deployed(&setup, &platform, none(), (&stages, Vec::new())).unwrap();
    // The first stage's machine is the first process; inputs of the second are in its host.
    assert_eq!(names(&run), ["host", "rank1", "rank1/gpu0"]);
    assert_eq!((run.spec.micro_batches, run.spec.shards.count()), (2, 2));
    assert_bits(&setup, &run);
    // A stage on the device alone leaves the host memory of its machine without a worker.
    let stages = [(GPU, 1, 3), (SMALL, 1, 2)];
    let run = deployed(&setup, &platform, none(), (&stages, Vec::new())).unwrap();
    assert_eq!(names(&run), ["host", "gpu0", "rank1"]);
    assert_eq!(run.plan.memory.workers, [0, 1, 1]);
}

#[test]
fn a_plan_over_machines_reads_back_and_takes_the_links() {
    let (setup, platform) = (batch_of_12(), lab(ETHERNET));
    let stages = [(CORES, 1, 0), (SMALL, 1, 0)];
    let shares = vec![vec![8], vec![4]];
    let run_of = deployed(&setup, &platform, MemoryLimits::default(), (&stages, shares)).unwrap();
    let text = run_of.plan.to_text();
    assert!(text.contains("units = [\"big[0]/core[0]\", \"small[0]/core[0]\"]"), "{text}");
    let read = PlannedPrograms::parse(&text, &run_of.lowered.programs).unwrap();
    assert_eq!(*read, *run_of.plan);
    let on = platform.expand();
    let find = |name: &String| Worker { unit: on.find(name).unwrap(), state: None };
    let workers: Vec<Worker> = read.placement.units.iter().map(find).collect();
    let (known, what) = (PerfModel::default(), (&read, ProgramId(0)));
    let steps = Steps::new(what, (&on, workers), 1, &mut Known::new(&known)).unwrap();
    let outcome = run(&steps.scenario, &on, &EngineModel::default(), Order::Static).unwrap();
    assert_eq!(outcome.moved.bytes, run_of.moved());
    // Bytes and latencies over a link of a gigabyte per second.
    let (_, tasks) = read.program(ProgramId(0));
    let moves = tasks.tasks.iter().filter(|task| matches!(task.does, Does::Move(_))).count();
    let seconds = run_of.moved().0 as f64 / 1e9 + 1e-6 * moves as f64;
    assert!((outcome.moved.time.0 as f64 / 1e9 / seconds - 1.0).abs() < 0.01);
    let joules = run_of.moved().0 as f64 * 1e-9;
    assert!((outcome.moved.joules.0 / joules - 1.0).abs() < 1e-6);
    // The engine of this process has no such memories.
    let error = dahl::native::Native::default().prepare_native(&read).err().unwrap();
    let expected = "plan: spaces: expected host memories, such as host and host1: devices can be simulated, not run, found rank1";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_move_without_a_link_is_refused() {
    let (setup, platform) = (batch_of_12(), lab(""));
    let error = request(&setup, &platform, MemoryLimits::default())
        .plan(PerfModel::default(), None)
        .err()
        .expect("no link");
    let expected = "platform: links: expected a way between nodes, found none";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn each_memory_of_a_platform_is_a_limit() {
    let setup = batch_of_12();
    let platform = lab(ETHERNET);
    let plan = |limits| {
        let shares = vec![vec![8], vec![4]];
        deployed(&setup, &platform, limits, (&[(CORES, 1, 0), (GPU, 1, 0)], shares))
    };
    let gpu: Space = "gpu0".parse().unwrap();
    let error = plan(MemoryLimits::default().within(&gpu, Bytes(1000))).err().unwrap();
    let Error::Memory { space, limit, .. } = &error else { panic!("{error}") };
    assert_eq!(space.as_deref(), Some("gpu0"));
    assert_eq!(*limit, MemoryLimit::Given(Bytes(1000)));
    let mut small = platform.clone();
    small.nodes[0].memories[1].bytes = 2000;
    let shares = vec![vec![8], vec![4]];
    let stages = [(CORES, 1, 0), (GPU, 1, 0)];
    let error = deployed(&setup, &small, MemoryLimits::default(), (&stages, shares)).err().unwrap();
    assert!(error.to_string().contains("of memory in gpu0, 2.0 KiB are allowed"), "{error}");
}

#[test]
fn automatic_plans_over_machines_are_simulated_best_first() {
    let (setup, platform) = (batch_of_12(), lab(ETHERNET));
    let request = request(&setup, &platform, MemoryLimits::default());
    let PlannedUnits { problem, deployed, .. } = request.plan(PerfModel::default(), None).unwrap();
    assert!(deployed.len() > 3);
    let seconds: Vec<f64> = deployed.iter().map(|run| run.expected()[0]).collect();
    assert!(seconds.is_sorted(), "{seconds:?}");
    for run in &deployed {
        let ranks = run.plan.placement.spaces.iter().map(|space| space.rank + 1).max().unwrap();
        assert!(run.spec.shards.count() >= ranks as usize, "{}", in_words(&problem, run));
        assert!(run.step.is_some());
    }
    let several = deployed.iter().filter(|run| run.moved().0 > 0);
    assert!(several.count() > 0);
}

/// Equal computers that are declared one by one are units of one type.
#[test]
fn equal_machines_of_two_declarations_are_deployed() {
    let setup = batch_of_12();
    let node = |name: &str, flops: &str| {
        format!(
            "[[node]]\nname = {name:?}\nbase_watts = 5\n[[node.memory]]\nname = \"ram\"\n\
             bytes = \"8 GiB\"\nbandwidth = 2e10\n[[node.unit]]\nname = \"core\"\n\
             kind = \"cpu\"\nflops = {flops}\nbusy_watts = 10\nspinning_watts = 8\n\
             idle_watts = 1\n"
        )
    };
    let link = "[[link]]\nname = \"ethernet\"\nconnects = [\"a\", \"b\", \"c\"]\n\
                bandwidth = 1e9\nlatency = 1e-6\njoules_per_byte = 1e-9\nshared = \"nobody\"\n";
    let nodes = [node("a", "2e10"), node("b", "2e10"), node("c", "1e10"), link.to_owned()];
    let text = format!("dahl_platform = 1\nname = \"three\"\n{}", nodes.concat());
    let platform = Platform::parse("three.toml", &text).unwrap();
    // Two of the first type, one of the second.
    let over = (&[(0, 2, 0), (1, 1, 0)][..], vec![vec![5, 5], vec![2]]);
    let run = deployed(&setup, &platform, MemoryLimits::default(), over).unwrap();
    assert_eq!(run.plan.placement.units, ["a[0]/core[0]", "b[0]/core[0]", "c[0]/core[0]"]);
    assert_eq!(
        (names(&run), run.types()),
        (vec!["host".into(), "rank1".into(), "rank2".into()], &[0, 0, 1][..])
    );
    assert_eq!(run.spec.shards, Shards::new(vec![5, 5, 2]).unwrap());
    assert_bits(&setup, &run);
}
