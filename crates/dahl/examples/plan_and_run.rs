//! Plans a training over the processing units of this machine, runs the plan, and reports.
//!
//! This is what `dahl train --plan auto --platform FILE` does. `dahl report` and `dahl train
//! --resume` accept the run directory that it writes.

use dahl::calibrate::host;
use dahl::choose::ThisMachine;
use dahl::model::Fusion;
use dahl::perf::PerfModel;
use dahl::report::Energy;
use dahl::run::{Event, Meters, Prepare, Run, RunConfig, Start, open, prepare};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let begin = Instant::now();
    let mut config = RunConfig::default();
    config.placement.epochs = 3;
    // Settings can be given as texts too: SETTING=VALUE …, such as platform=laptop.toml.
    config.set("plan", &["auto"])?;
    let texts: Vec<String> = std::env::args().skip(1).collect();
    let given: Vec<(&str, &str)> = texts.iter().filter_map(|text| text.split_once('=')).collect();
    for (name, value) in &given {
        config.set(name, &[value])?;
    }
    let names: Vec<&str> = given.iter().map(|(name, _)| *name).collect();

    let opened = open(config, &names)?;
    let data = opened.data(&mut |_, _| ())?;
    let meters = Meters::open(&opened.config)?;
    let known = PerfModel::default();
    let prepared = prepare(
        &opened.config,
        Prepare {
            model: &data.model,
            samples: data.counts(),
            fusion: Fusion::On,
            platform: meters.platform.as_ref(),
            known: known.clone(),
            resumed: opened.resumed(),
            measurer: Some(&mut ThisMachine),
        },
    )?;
    prepared.why.iter().for_each(|why| println!("{why}"));

    let about = serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "machine": host() });
    let start = Start { about, seed: prepared.config.identity.seed, command: Vec::new() };
    let run = Run::new(opened, &data, prepared, (meters, known), (start, begin))?;
    let outcome = run.go(&|| None, &mut |event| {
        if let Event::Epoch(record) = event {
            println!("epoch {}: loss {:.4}", record.epoch, record.train.loss());
        }
    });
    let outcome = outcome.map_err(|failed| failed.error)?;
    if let Some(energy) = Energy::best(&outcome.energy) {
        println!("energy: {}", energy.headline());
    }
    if let Some(directory) = outcome.directory {
        println!("run directory: {}", directory.display());
    }
    Ok(())
}
