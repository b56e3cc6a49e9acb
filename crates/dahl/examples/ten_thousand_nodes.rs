//! One training step of a pipeline with replicas on ten thousand nodes of four types,
//! on virtual time.
//!
//!     cargo run --release -p dahl --example ten_thousand_nodes [platform.toml]

use dahl::native::peak_bytes;
use dahl::platform::{Platform, UnitId};
use dahl::sim::pipeline::{Schedule, Stage, step};
use dahl::sim::{EngineModel, Order, run};
use dahl::units::{Bytes, Nanos};
use std::time::Instant;

const STAGES: usize = 8;
const MICRO_BATCHES: usize = 8;

fn main() -> dahl::Result<()> {
    let file = std::env::args().nth(1).unwrap_or_else(|| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../platforms/cluster.toml").to_owned()
    });
    let begin = Instant::now();
    let platform = Platform::read(&file)?;
    let on = platform.expand();
    // One unit a node computes.
    let mut units: Vec<UnitId> = Vec::new();
    for (u, of) in on.units.iter().enumerate() {
        if of.node.0 as usize == units.len() {
            units.push(UnitId(u as u32));
        }
    }
    let replicas = units.len() / STAGES;
    let stages: Vec<Stage> = units
        .chunks_exact(replicas)
        .take(STAGES)
        .map(|units| Stage {
            units: units.to_vec(),
            times: [Nanos(30_000_000), Nanos(60_000_000)],
            input: Bytes(1 << 20),
            parameters: Bytes(40 << 20),
            update: Nanos(1_000_000),
        })
        .collect();
    let schedule = Schedule::OneForwardOneBackward;
    let scenario = step(&on, &stages, MICRO_BATCHES * replicas, schedule)?;
    let outcome = run(&scenario, &on, &EngineModel::default(), Order::Static)?;
    println!(
        "{}: {} nodes, {STAGES} stages of {replicas} replicas, {} jobs",
        platform.name,
        on.nodes.len(),
        scenario.jobs.len()
    );
    println!("a step takes {} and {} (modelled)", outcome.makespan, outcome.joules());
    let memory = peak_bytes().map_or("not told".to_owned(), |bytes| Bytes(bytes).to_string());
    println!("simulated in {:.1} s, memory {memory}", begin.elapsed().as_secs_f64());
    Ok(())
}
