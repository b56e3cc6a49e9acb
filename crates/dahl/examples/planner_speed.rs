//! How long the planner takes on made-up chains, and what it proves:
//!
//! ```text
//! cargo run --release -p dahl --example planner_speed [exact|full|large] [stale|sync] [seconds] [energy|time|edp]
//! ```
//!
//! `exact` is 100 layers on 3 types of 8 units, `full` the same with four powers a type and
//! memories that matter, `large` 200 layers on 4 types of 16 units with a period of at
//! least 1.2 times the fastest that was found.

use dahl::planner::pipeline::{
    Layer, Limits, NodeType, Objective, Power, Problem, Semantics, Solution, UnitType, Way, solve,
};
use std::time::{Duration, Instant};

/// A chain with the ups and downs of a convolutional network, always the same.
fn chain(length: usize, slowdowns: &[f64]) -> Vec<Layer> {
    let mut state = 12345u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let layer = |i: usize| {
        let depth = i as f64 / length as f64;
        let seconds = (0.2 + next()) * 0.02;
        Layer {
            name: format!("layer {i}"),
            // Types differ in what they are good at, too.
            seconds: slowdowns.iter().map(|slow| seconds * slow * (0.8 + 0.4 * next())).collect(),
            output_bytes: (0.5 + next()) * 2e8 * (1.0 - 0.9 * depth),
            parameter_bytes: (0.5 + next()) * 2e6 * (1.0 + 20.0 * depth),
            inputs: if i == 0 { vec![] } else { vec![i - 1] },
        }
    };
    (0..length).map(layer).collect()
}

fn unit(
    name: &str,
    [busy, idle]: [f64; 2],
    count: usize,
    powers: usize,
    memory_bytes: f64,
) -> UnitType {
    let way = Way::new(1.25e9, 20e-9);
    let power = |p: usize| {
        let part = 1.0 - 0.15 * p as f64;
        Power {
            name: format!("{:.0} %", 100.0 * part),
            speed: part.sqrt(),
            busy_watts: idle + (busy - idle) * part.powf(1.3),
        }
    };
    UnitType {
        name: name.to_owned(),
        count,
        powers: (0..powers).map(power).collect(),
        idle_watts: idle,
        memory_bytes,
        input: way,
        reduce: way,
        within: None,
        node: 0,
        per_node: 1,
        sharing: 1,
    }
}

fn report(name: &str, problem: &Problem, from: Instant, found: &Solution) {
    let front = found.front.plans();
    let best = found.best.as_ref().map(|plan| (plan.period_s, plan.energy_j));
    println!(
        "{name}, {}, {}: {:.1} s, whole {}, {} labels, front of {}, best {best:.6?}, bound {:.6}, gap {:.4?}",
        problem.semantics.name(),
        problem.objective.name(),
        from.elapsed().as_secs_f64(),
        found.whole,
        found.labels,
        front.len(),
        found.lower_bound,
        found.gap(problem),
    );
}

fn main() -> dahl::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |i: usize, default: &str| args.get(i).map_or(default.to_owned(), Clone::clone);
    let (kind, semantics, seconds) = (arg(0, "exact"), arg(1, "stale"), arg(2, "60"));
    let seconds: f64 = seconds.parse().unwrap_or(60.0);
    let semantics = match semantics.as_str() {
        "sync" => Semantics::Synchronous { micro_batches: 8 },
        _ => Semantics::Stale,
    };
    let (length, slowdowns, watts, count, powers, memory) = match kind.as_str() {
        "large" => {
            let watts = vec![[300.0, 40.0], [150.0, 20.0], [110.0, 45.0], [220.0, 30.0]];
            (200, vec![1.0, 2.2, 9.0, 1.4], watts, 16, 1, f64::INFINITY)
        }
        kind => {
            let watts = vec![[300.0, 40.0], [150.0, 20.0], [110.0, 45.0]];
            let full = kind == "full";
            let (powers, memory) = if full { (4, 1.5e10) } else { (1, f64::INFINITY) };
            (100, vec![1.0, 2.2, 9.0], watts, 8, powers, memory)
        }
    };
    let names = ["fast", "middle", "slow", "fourth"];
    let mut problem = Problem {
        layers: chain(length, &slowdowns),
        units: (watts.iter().zip(names)).map(|(w, n)| unit(n, *w, count, powers, memory)).collect(),
        nodes: vec![NodeType { name: "nodes".to_owned(), base_watts: 0.0 }],
        semantics,
        objective: match arg(3, "energy").as_str() {
            "time" => Objective::Time,
            "edp" => Objective::Edp,
            _ => Objective::Energy,
        },
        period_cap: None,
        power_cap: None,
        samples: None,
        scopes: Vec::new(),
    };
    let run = |problem: &Problem| -> dahl::Result<Solution> {
        let from = Instant::now();
        let stop = || from.elapsed() > Duration::from_secs_f64(seconds);
        let found = solve(problem, &Limits { stop: &stop, ..Limits::default() })?;
        report(&kind, problem, from, &found);
        Ok(found)
    };
    if kind == "large" {
        problem.objective = Objective::Time;
        let fastest = run(&problem)?.best.map(|plan| plan.period_s);
        problem.objective = Objective::Energy;
        problem.period_cap = fastest.map(|seconds| 1.2 * seconds);
    }
    run(&problem).map(|_| ())
}
