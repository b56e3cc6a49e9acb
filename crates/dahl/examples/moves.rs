//! What a plan over several memories moves: `moves MODEL BATCH SPACES [SHARDS]`.

use dahl::DType;
use dahl::graph::Shards;
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::plan::Does;
use dahl::planner::Grain;
use dahl::units::{Bytes, ProgramId};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).map(|text| text.parse::<usize>()).transpose();
    let model = Model::named(args.first().map_or("resnet18", String::as_str))?;
    let (batch, spaces) = (number(1)?.unwrap_or(32), number(2)?.unwrap_or(2));
    let shards = Shards::even(batch, number(3)?.unwrap_or(spaces))?;
    let spec = TrainSpec { shards, ..TrainSpec::new(batch, DType::F32, Optimizer::sgd(0.1)) };
    let lowered = model.lower(&spec)?;
    let begin = Instant::now();
    let grain = Grain { spaces, ..Grain::for_workers(spaces) };
    let planned = grain.plan(&lowered.programs)?;
    println!("planned in {:.2} s", begin.elapsed().as_secs_f64());
    let (graph, tasks) = planned.program(ProgramId(0));
    let mut sent = vec![0u64; spaces];
    let mut moves = 0;
    for task in &tasks.tasks {
        if let Does::Move(of) = &task.does {
            moves += 1;
            sent[of.from.index()] += of.bytes(graph).0;
        }
    }
    println!("{} tasks, of them {moves} moves", tasks.tasks.len());
    for (space, sent) in planned.memory.spaces().zip(sent).take(8) {
        let name = &planned.placement.spaces[space.index()];
        println!("{name}: sends {sent} bytes a step, has {}", planned.memory.peak_of(space));
    }
    let one = Grain::for_workers(1).plan(&lowered.programs)?;
    println!("all: {}; one space: {}", planned.memory.peak(), one.memory.peak());
    println!("resident {}", Bytes(dahl::native::peak_bytes().unwrap_or_default()));
    Ok(())
}
