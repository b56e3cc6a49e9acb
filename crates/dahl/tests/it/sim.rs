//! The simulator: cases with their sums in the comments, properties, SimGrid.

use dahl::platform::{
    Fairness, Figure, Link, Memory, MemoryId, Node, Origin, Place, Platform, Sharing, Sleep, Unit,
    UnitId,
};
use dahl::sched::{FirstCome, WorkStealing};
use dahl::sim::pipeline::{self, Schedule, Stage};
use dahl::sim::{
    EngineModel, Job, JobId, Order, Outcome, SCRIPT, Scenario, Start, Tasks, Worker, run,
    to_simgrid,
};
use dahl::units::{Bytes, Nanos};
use dahl_kernels::math::uniform;
use proptest::prelude::*;
use std::path::Path;
use std::process::Command;

fn exact(value: f64) -> Figure {
    Figure::exact(value, Origin::Guess)
}

/// A node with one unit of so many operations per second.
fn host(name: &str, flops: f64, [idle, busy]: [f64; 2]) -> Node {
    Node {
        name: name.to_owned(),
        count: 1,
        base_watts: exact(0.0),
        price_per_hour: 0.0,
        price_per_kwh: None,
        sleep: None,
        memories: vec![Memory { name: "ram".to_owned(), bytes: 1 << 40, bandwidth: exact(1e15) }],
        units: vec![Unit {
            name: "core".to_owned(),
            kind: "cpu".to_owned(),
            count: 1,
            memory: 0,
            speed: exact(1.0),
            flops: Some(exact(flops)),
            busy_watts: exact(busy),
            spinning_watts: exact(busy),
            idle_watts: exact(idle),
            price_per_hour: 0.0,
            states: Vec::new(),
        }],
        links: Vec::new(),
    }
}

fn line(name: &str, connects: &[usize], bandwidth: f64, latency: f64) -> Link<Place> {
    Link {
        name: name.to_owned(),
        connects: connects.iter().map(|&kind| Place::Nodes(kind)).collect(),
        bandwidth: exact(bandwidth),
        latency: exact(latency),
        messages: Vec::new(),
        joules_per_byte: exact(0.0),
        price_per_byte: 0.0,
        sharing: Sharing::All,
    }
}

fn platform(nodes: Vec<Node>, links: Vec<Link<Place>>) -> Platform {
    Platform { nodes, links, ..Platform::default() }
}

fn simulated(platform: &Platform, scenario: &Scenario) -> Outcome {
    run(scenario, &platform.expand(), &EngineModel::default(), Order::Static).expect("a run")
}

fn workers(count: u32) -> Vec<Worker> {
    (0..count).map(|unit| Worker { unit: UnitId(unit), state: None }).collect()
}

fn compute(worker: u32, nanos: u64) -> Job {
    Job::Compute { worker, work: Nanos(nanos), spread: 0.0, traffic: Bytes(0) }
}

fn seconds(nanos: Nanos) -> f64 {
    nanos.0 as f64 / 1e9
}

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs(), "{found} is not {expected}");
}

/// A on the first, B on the second behind 500 MB, C on the first, D behind both.
///
/// A ends at 2 s; its bytes arrive 1 ms + 0.5 s later; B takes 2 s and ends at 4.501;
/// its bytes arrive at 5.002; D takes 1 s: 6.002 s. The first is busy for 4 s of
/// them: 4 · 200 + 2.002 · 50 J; the second for 2 s: 2 · 300 + 4.002 · 30 J.
#[test]
fn a_diamond_on_two_hosts() {
    let nodes = vec![host("cpu", 1e9, [50.0, 200.0]), host("gpu", 10e9, [30.0, 300.0])];
    let platform = platform(nodes, vec![line("pcie", &[0, 1], 1e9, 1e-3)]);
    let text = "dahl_tasks = 1
        task = [
          { name = 'A', on = 'cpu', flops = 2e9 },
          { name = 'B', on = 'gpu', flops = 20e9, after = [{ task = 'A', bytes = 500e6 }] },
          { name = 'C', on = 'cpu/core', flops = 1e9, after = ['A'] },
          { name = 'D', on = 'cpu[0]/core[0]', seconds = 1, after = [{ task = 'B', bytes = 500e6 }, 'C'] },
        ]";
    let on = platform.expand();
    let tasks = Tasks::parse(text, Path::new("diamond.toml"), &on).expect("tasks");
    let outcome = simulated(&platform, &tasks.scenario);
    assert_eq!(outcome.makespan, Nanos(6_002_000_000));
    let joules = |w: usize| outcome.workers[w].joules.iter().map(|j| j.0).sum::<f64>();
    near(joules(0), 900.1);
    near(joules(1), 720.06);
    near(outcome.joules().0, 1620.16);
}

/// Two transfers over one line of 1 GB/s, of 1 and 3 GB: both have half until the
/// first ends at 2 s; the second then has 2 GB left and all of it: 4 s.
#[test]
fn transfers_share_a_line() {
    let nodes = vec![host("a", 1e9, [1.0, 2.0]), host("b", 1e9, [1.0, 2.0])];
    let platform = platform(nodes, vec![line("line", &[0, 1], 1e9, 0.0)]);
    let mut scenario = Scenario::new(workers(2));
    for bytes in [1_000_000_000, 3_000_000_000] {
        let (from, to) = (MemoryId(0), MemoryId(1));
        scenario.add(Job::Transfer { from, to, bytes: Bytes(bytes) }, &[]);
    }
    let outcome = simulated(&platform, &scenario);
    let ends: Vec<f64> = outcome.spans.iter().map(|(_, end)| seconds(*end)).collect();
    assert_eq!(ends, [2.0, 4.0]);
    assert_eq!(outcome.moved.bytes, Bytes(4_000_000_000));
}

/// Two jobs of 1 s that move 1 GB each through a memory of 1.5 GB/s: together they
/// want 2 GB/s and get 0.75 each: 4/3 s.
#[test]
fn jobs_share_the_bandwidth_of_their_memory() {
    let mut node = host("a", 1e9, [1.0, 2.0]);
    node.memories[0].bandwidth = exact(1.5e9);
    node.units[0].count = 2;
    let platform = platform(vec![node], Vec::new());
    let mut scenario = Scenario::new(workers(2));
    for worker in 0..2 {
        let (work, traffic) = (Nanos(1_000_000_000), Bytes(1_000_000_000));
        scenario.add(Job::Compute { worker, work, spread: 0.0, traffic }, &[]);
    }
    assert_eq!(simulated(&platform, &scenario).makespan, Nanos(1_333_333_333));
    // Alone there is enough.
    scenario.workers.truncate(2);
    let mut alone = Scenario::new(workers(1));
    alone.add(scenario.jobs[0], &[]);
    assert_eq!(simulated(&platform, &alone).makespan, Nanos(1_000_000_000));
}

/// Woken in 2 s for 60 J, then 1 s of work: 3 s, base power for one of them.
#[test]
fn nodes_that_sleep_are_woken() {
    let mut node = host("a", 1e9, [1.0, 5.0]);
    node.base_watts = exact(10.0);
    node.sleep =
        Some(Sleep { watts: exact(0.5), wake_seconds: exact(2.0), wake_joules: exact(60.0) });
    let platform = platform(vec![node], Vec::new());
    let mut scenario = Scenario::new(workers(1));
    scenario.add(compute(0, 1_000_000_000), &[]);
    let engine_model = EngineModel { start: Start::Asleep, ..EngineModel::default() };
    let outcome = run(&scenario, &platform.expand(), &engine_model, Order::Static).expect("a run");
    assert_eq!(outcome.makespan, Nanos(3_000_000_000));
    near(outcome.joules().0, 60.0 + 10.0 + 5.0);
}

/// Two stages, four micro-batches, 1 s forwards and 2 s backwards: with all forwards
/// first 4 + 1 + (4 + 1) · 2 = 15 s, whichever order; and no update.
#[test]
fn a_pipeline_has_its_bubble() {
    let nodes = vec![host("a", 1e9, [1.0, 2.0]), host("b", 1e9, [1.0, 2.0])];
    let platform = platform(nodes, vec![line("line", &[0, 1], 1e9, 0.0)]);
    let on = platform.expand();
    let stage = |unit| Stage {
        units: vec![UnitId(unit)],
        times: [Nanos(1_000_000_000), Nanos(2_000_000_000)],
        input: Bytes(0),
        parameters: Bytes(0),
        update: Nanos(0),
    };
    for schedule in [Schedule::GPipe, Schedule::OneForwardOneBackward] {
        let scenario = pipeline::step(&on, &[stage(0), stage(1)], 4, schedule).expect("a step");
        let outcome = simulated(&platform, &scenario);
        assert_eq!(outcome.makespan, Nanos(15_000_000_000), "{schedule:?}");
    }
}

/// A pipeline × data-parallel step on 10,000 nodes of four types.
#[test]
fn ten_thousand_nodes() {
    let types = [1.0, 0.8, 0.5, 0.2];
    let nodes = types.iter().enumerate().map(|(i, &speed)| {
        let mut node = host(&format!("type{i}"), 1e9, [10.0, 100.0]);
        node.count = 2500;
        node.units[0].speed = exact(speed);
        node
    });
    let switch = Link { sharing: Sharing::Ends, ..line("switch", &[0, 1, 2, 3], 1.25e9, 1e-5) };
    let platform = platform(nodes.collect(), vec![switch]);
    let on = platform.expand();
    let stages: Vec<Stage> = (0..8)
        .map(|s| Stage {
            units: (0..1250).map(|r| UnitId(s * 1250 + r)).collect(),
            times: [Nanos(3_000_000), Nanos(6_000_000)],
            input: Bytes(1 << 20),
            parameters: Bytes(10 << 20),
            update: Nanos(100_000),
        })
        .collect();
    let scenario = pipeline::step(&on, &stages, 8 * 1250, Schedule::OneForwardOneBackward);
    let scenario = scenario.expect("a step");
    assert!(scenario.jobs.len() > 160_000);
    let outcome = simulated(&platform, &scenario);
    // The slowest stage computes for 8 · 9 ms at a fifth of the speed.
    assert!(outcome.makespan.0 > 360_000_000, "{}", outcome.makespan);
}

/// A random scenario on random hosts, from a seed.
fn random(seed: u64, hosts: usize, jobs: usize) -> (Platform, Scenario) {
    let mut next = 0;
    let mut number = |below: usize| {
        next += 1;
        (uniform(seed, 7, 0, next) * below as f64) as usize
    };
    let nodes = (0..hosts).map(|i| {
        let idle = 10.0 + number(50) as f64;
        host(
            &format!("h{i}"),
            1e9 * (1 + number(9)) as f64,
            [idle, idle + 20.0 + number(200) as f64],
        )
    });
    let mut nodes: Vec<Node> = nodes.collect();
    for node in &mut nodes {
        node.units[0].speed = exact(0.25 * (1 + number(12)) as f64);
    }
    let mut links = Vec::new();
    let mut link = |name: String, ends: &[usize]| {
        let (bandwidth, latency) = (1e8 * (1 + number(20)) as f64, 1e-5 * (1 + number(50)) as f64);
        links.push(line(&name, ends, bandwidth, latency));
    };
    // A line between any two hosts, or one from each to a switch.
    let switches: Vec<String> = (seed % 2 == 1).then(|| "switch".to_owned()).into_iter().collect();
    for a in 0..hosts {
        match switches.is_empty() {
            true => (a + 1..hosts).for_each(|b| link(format!("l{a}-{b}"), &[a, b])),
            false => link(format!("l{a}"), &[a]),
        }
    }
    for link in links.iter_mut().filter(|_| !switches.is_empty()) {
        link.connects.push(Place::Switch(0));
    }
    let mut scenario = Scenario::new(workers(hosts as u32));
    let mut made: Vec<(JobId, usize)> = Vec::new();
    for _ in 0..jobs {
        let on = number(hosts);
        let mut after = Vec::new();
        for _ in 0..number(4) {
            if made.is_empty() {
                break;
            }
            let (job, from) = made[number(made.len())];
            if from == on {
                after.push(job);
            } else {
                let bytes = Bytes(1_000_000 * (1 + number(300)) as u64);
                let (from, to) = (MemoryId(from as u32), MemoryId(on as u32));
                after.push(scenario.add(Job::Transfer { from, to, bytes }, &[job]));
            }
        }
        let id = scenario.add(compute(on as u32, 1_000_000 * (1 + number(2000)) as u64), &after);
        made.push((id, on));
    }
    (Platform { switches, ..platform(nodes, links) }, scenario)
}

/// The longest chain, every transfer alone on its way.
fn critical_path(platform: &Platform, scenario: &Scenario) -> f64 {
    let on = platform.expand();
    let mut ends = Vec::new();
    for (i, job) in scenario.jobs.iter().enumerate() {
        let preds = scenario.preds(JobId(i as u32)).iter().map(|p| ends[p.0 as usize]);
        let ready = preds.fold(0.0, f64::max);
        ends.push(ready + alone(&on, scenario, job));
    }
    ends.into_iter().fold(0.0, f64::max)
}

fn alone(on: &dahl::platform::Expanded<'_>, scenario: &Scenario, job: &Job) -> f64 {
    match *job {
        Job::Compute { worker, work, .. } => {
            seconds(work) / on.unit(scenario.workers[worker as usize].unit).speed.value
        }
        Job::Transfer { from, to, bytes } => {
            let route = on.route(from, to).expect("a way");
            route.latency + bytes.0 as f64 / route.bandwidth
        }
        Job::Collective { time, .. } | Job::Copy { work: time, .. } => seconds(time),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_run_beats_its_bounds(seed: u64, hosts in 1usize..6, jobs in 0usize..40) {
        let (platform, scenario) = random(seed, hosts, jobs);
        let outcome = simulated(&platform, &scenario);
        prop_assert_eq!(&outcome, &simulated(&platform, &scenario));
        let on = platform.expand();
        let rounding = 1e-9 * scenario.jobs.len() as f64;
        let makespan = seconds(outcome.makespan) + rounding;
        prop_assert!(makespan >= critical_path(&platform, &scenario));
        let work: f64 = scenario.jobs.iter().filter(|j| matches!(j, Job::Compute { .. })).map(|j| alone(&on, &scenario, j)).sum();
        prop_assert!(makespan >= work / hosts as f64);
        let idle: f64 = (0..hosts).map(|h| on.unit(UnitId(h as u32)).idle_watts.value).sum();
        prop_assert!(outcome.joules().0 + 1e-6 >= idle * seconds(outcome.makespan));
        for used in &outcome.workers {
            prop_assert_eq!((used.busy + used.spinning + used.idle).0, outcome.makespan.0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Policies are bound by the same laws, and run everything.
    #[test]
    fn no_policy_beats_the_bounds(seed: u64, units in 1usize..6, jobs in 0usize..40) {
        let mut node = host("node", 1e9, [10.0, 100.0]);
        node.units[0].count = units;
        let platform = platform(vec![node], Vec::new());
        let on = platform.expand();
        let mut next = 0;
        let mut number = |below: usize| {
            next += 1;
            (uniform(seed, 7, 0, next) * below as f64) as usize
        };
        let mut scenario = Scenario::new(workers(units as u32));
        for job in 0..jobs {
            let after: Vec<JobId> =
                (0..number(4).min(job)).map(|_| JobId(number(job) as u32)).collect();
            scenario.add(compute(number(units) as u32, 1_000 * (1 + number(2000)) as u64), &after);
        }
        let work: f64 = scenario.jobs.iter().map(|job| alone(&on, &scenario, job)).sum();
        let path = critical_path(&platform, &scenario);
        let policies: [&mut dyn dahl::sched::Policy; 5] = [
            &mut FirstCome::default(),
            &mut WorkStealing::new(units),
            &mut scenario.critical_path(),
            &mut scenario.earliest_finish(&on, 0.0),
            &mut scenario.earliest_finish(&on, 1e9),
        ];
        for policy in policies {
            let name = policy.name();
            let outcome = run(&scenario, &on, &EngineModel::default(), Order::Policy(policy)).unwrap();
            let makespan = seconds(outcome.makespan) + 1e-9 * jobs as f64;
            prop_assert!(makespan >= path && makespan >= work / units as f64, "{}", name);
            // Nobody is idle while a job is ready: within twice of the best (Graham 1966).
            if ["first-come", "work-stealing", "critical-path"].contains(&name) {
                prop_assert!(seconds(outcome.makespan) <= path + work / units as f64 + 1e-6);
            }
        }
    }
}

#[test]
fn a_policy_over_units_that_differ_is_refused() {
    let nodes = vec![host("a", 1e9, [1.0, 2.0]), host("b", 1e9, [1.0, 2.0])];
    let platform = platform(nodes, vec![line("line", &[0, 1], 1e9, 0.0)]);
    let mut scenario = Scenario::new(workers(2));
    scenario.add(compute(0, 1_000), &[]);
    let order = &mut FirstCome::default();
    let error = run(&scenario, &platform.expand(), &EngineModel::default(), Order::Policy(order));
    assert!(error.unwrap_err().to_string().contains("one kind in one memory"));
}

#[test]
fn a_run_of_centuries_is_refused() {
    let mut node = host("slow", 1e9, [1.0, 2.0]);
    node.units[0].speed = exact(1e-6);
    let platform = platform(vec![node], Vec::new());
    let mut scenario = Scenario::new(workers(1));
    scenario.add(compute(0, 1_000_000_000_000_000_000), &[]);
    let error = run(&scenario, &platform.expand(), &EngineModel::default(), Order::Static);
    assert!(error.unwrap_err().to_string().contains("less than a century"));
}

/// A node that is still waking when the run ends has waited for nothing.
#[test]
fn a_node_that_never_wakes_costs_its_waking() {
    let sleep =
        |wake| Sleep { watts: exact(0.5), wake_seconds: exact(wake), wake_joules: exact(60.0) };
    let node = |wake| {
        let mut node = host("node", 1e9, [5.0, 10.0]);
        node.sleep = Some(sleep(wake));
        node
    };
    let mut nodes = vec![node(1.0), node(100.0)];
    nodes[1].name = "late".to_owned();
    let platform = platform(nodes, vec![line("line", &[0, 1], 1e9, 0.0)]);
    let mut scenario = Scenario::new(workers(2));
    scenario.add(compute(0, 1_000_000_000), &[]);
    let engine_model = EngineModel { start: Start::Asleep, ..EngineModel::default() };
    let outcome = run(&scenario, &platform.expand(), &engine_model, Order::Static).expect("a run");
    assert_eq!(outcome.makespan, Nanos(2_000_000_000));
    near(outcome.joules().0, 60.0 + 10.0 + 60.0);
}

/// Members of a ring over one bus share it; ends of a switch do not.
#[test]
fn a_ring_shares_what_its_ways_share() {
    let nodes = || (0..4).map(|i| host(&format!("h{i}"), 1e9, [1.0, 2.0])).collect();
    let time = |sharing| {
        let link = Link { sharing, ..line("link", &[0, 1, 2, 3], 1e9, 0.0) };
        let platform = platform(nodes(), vec![link]);
        let members: Vec<MemoryId> = (0..4).map(MemoryId).collect();
        match dahl::sim::all_reduce(&platform.expand(), &members, Bytes(4_000_000)).unwrap() {
            Job::Collective { time, .. } => time,
            other => panic!("{other:?}"),
        }
    };
    // Six rounds of 1 MB, at 1 GB/s or at a quarter of it.
    assert_eq!(time(Sharing::Ends), Nanos(6_000_000));
    assert_eq!(time(Sharing::All), Nanos(24_000_000));
}

#[test]
fn bytes_alone_take_the_time_of_the_memory() {
    let mut node = host("node", 1e9, [1.0, 2.0]);
    node.memories[0].bandwidth = exact(1e9);
    let platform = platform(vec![node], Vec::new());
    let mut scenario = Scenario::new(workers(1));
    let (work, traffic) = (Nanos(0), Bytes(2_000_000_000));
    scenario.add(Job::Compute { worker: 0, work, spread: 0.0, traffic }, &[]);
    assert_eq!(simulated(&platform, &scenario).makespan, Nanos(2_000_000_000));
}

/// What SimGrid says, or `None` where it is not installed.
fn simgrid(platform: &Platform, scenario: &Scenario, name: &str) -> Option<(f64, Vec<f64>)> {
    let python = "/usr/bin/python3";
    let has = Command::new(python).args(["-c", "import simgrid"]).output().ok()?;
    if !has.status.success() {
        return None;
    }
    let (text, _) =
        to_simgrid(scenario, &platform.expand(), &EngineModel::default()).expect("JSON");
    let directory =
        std::env::temp_dir().join(format!("dahl-simgrid-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let (script, file) = (directory.join("replay.py"), directory.join("scenario.json"));
    std::fs::write(&script, SCRIPT).expect("the script");
    std::fs::write(&file, text).expect("the scenario");
    let output = Command::new(python).arg(&script).arg(&file).output().expect("a replay");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let said = stdout.lines().last().unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(said)
        .unwrap_or_else(|_| panic!("{stdout}{}", String::from_utf8_lossy(&output.stderr)));
    let _ = std::fs::remove_dir_all(&directory);
    let joules = value["joules"].as_array().expect("joules");
    let joules = joules.iter().map(|j| j.as_f64().expect("a number")).collect();
    Some((value["makespan"].as_f64().expect("a number"), joules))
}

/// 50 random task graphs over 2 to 8 hosts, with links and power.
#[test]
fn simgrid_agrees() {
    for seed in 0..50 {
        let (platform, scenario) = random(seed, 2 + seed as usize % 7, 10 + seed as usize % 30);
        let outcome = simulated(&platform, &scenario);
        let Some((makespan, joules)) = simgrid(&platform, &scenario, &seed.to_string()) else {
            crate::support::skipped("SimGrid (python3-simgrid)");
            return;
        };
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-3 * b.abs();
        let found = seconds(outcome.makespan);
        assert!(close(found, makespan), "{seed}: {found} s, SimGrid {makespan} s");
        for (w, joules) in joules.iter().enumerate() {
            let found = outcome.workers[w].joules.iter().map(|j| j.0).sum::<f64>();
            assert!(close(found, *joules), "{seed}: worker {w}: {found} J, SimGrid {joules} J");
        }
    }
}

#[test]
fn transfers_of_long_ways_get_less_of_a_line() {
    let nodes = (0..3).map(|i| host(&format!("h{i}"), 1e9, [1.0, 2.0])).collect();
    let mut links: Vec<Link<Place>> = vec![
        line("near", &[0], 1e12, 1e-3),
        line("far", &[1], 1e12, 3e-3),
        line("shared", &[2], 1e9, 1e-3),
    ];
    links.iter_mut().for_each(|link| link.connects.push(Place::Switch(0)));
    let switches = vec!["switch".to_owned()];
    let platform = Platform { switches, ..platform(nodes, links) };
    let mut scenario = Scenario::new(workers(3));
    for from in [MemoryId(0), MemoryId(1)] {
        scenario.add(Job::Transfer { from, to: MemoryId(2), bytes: Bytes(1_000_000_000) }, &[]);
    }
    // Ways of 2 and 4 ms: two thirds and one third.
    let ends: Vec<f64> =
        simulated(&platform, &scenario).spans.iter().map(|(_, end)| seconds(*end)).collect();
    assert!((ends[0] - 1.5).abs() < 0.01 && (ends[1] - 2.0).abs() < 0.01, "{ends:?}");
    let equal = Platform { fairness: Fairness::Equal, ..platform };
    let ends: Vec<f64> =
        simulated(&equal, &scenario).spans.iter().map(|(_, end)| seconds(*end)).collect();
    assert!(ends.iter().all(|end| (end - 2.0).abs() < 0.01), "{ends:?}");
}

/// A lane takes a processor: beside two workers on two processors, all three get two thirds.
#[test]
fn a_copy_shares_the_processors_with_the_workers() {
    let mut node = host("box", 1e9, [0.0, 1.0]);
    node.units[0].count = 2;
    let platform = platform(vec![node], Vec::new());
    let copy = |lane, millis: u64| Job::Copy {
        lane,
        memory: MemoryId(0),
        work: Nanos(millis * 1_000_000),
        bytes: Bytes(1000),
    };
    let mut scenario = Scenario::new(workers(2));
    let first = scenario.add(compute(0, 10_000_000), &[]);
    scenario.add(compute(1, 10_000_000), &[]);
    scenario.add(copy(0, 4), &[]);
    // Until the copy has ended after 6 ms, the workers have done 4 of 10 ms.
    assert_eq!(simulated(&platform, &scenario).makespan, Nanos(12_000_000));
    // A worker alone leaves a processor to the lane. Each waits for the other's end to be seen.
    let mut chain = Scenario::new(workers(1));
    let compute_first = chain.add(compute(0, 10_000_000), &[]);
    let copied = chain.add(copy(1, 4), &[compute_first]);
    chain.add(compute(0, 1_000_000), &[copied]);
    let engine_model = EngineModel { lane_hop: Nanos(500_000), ..EngineModel::default() };
    let outcome = run(&chain, &platform.expand(), &engine_model, Order::Static).unwrap();
    assert_eq!(outcome.makespan, Nanos(16_000_000));
    assert_eq!(outcome.moved.bytes, Bytes(1000));
    assert_eq!(outcome.spans[first.0 as usize].0, Nanos(0));
}
