//! Plans a training over the processing units of this machine, runs the plan, and reports.
//!
//! This is what `dahl train --plan auto --platform FILE` does. `dahl report` and `dahl train
//! --resume` accept the run directory that it writes.

use dahl::calibrate::host;
use dahl::prelude::*;
use std::path::PathBuf;

fn main() -> Result<()> {
    // Settings are given as texts: SETTING=VALUE …, such as platform=laptop.toml.
    let texts: Vec<String> = std::env::args().skip(1).collect();
    let setting = |text: &'_ String| {
        let expected = || Error::config("setting", "SETTING=VALUE", format!("{text:?}"));
        text.split_once('=')
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .ok_or_else(expected)
    };
    let given: Vec<(String, String)> = texts.iter().map(setting).collect::<Result<_>>()?;
    let given: Vec<(&str, &str)> = given.iter().map(|(n, v)| (&n[..], &v[..])).collect();
    if let Some(directory) = train(&given)? {
        println!("run directory: {}", directory.display());
    }
    Ok(())
}

/// Trains with these settings; returns the run directory.
pub(crate) fn train(given: &[(&str, &str)]) -> Result<Option<PathBuf>> {
    let begin = Instant::now();
    let mut config = RunConfig::default();
    for (name, value) in [("epochs", "3"), ("plan", "auto")].iter().chain(given) {
        config.set(name, &[value])?;
    }
    let names: Vec<&str> = given.iter().map(|(name, _)| *name).collect();

    let opened = open(config, &names)?;
    let data = opened.data(&mut |_, _| ())?;
    let (meters, known) = (Meters::open(&opened.config)?, PerfModel::default());
    let with = opened.with(&data, &meters, &known);
    let with = Prepare { measurer: Some(&mut ThisMachine), ..with };
    let prepared = prepare(&opened.config, with)?;
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
    Ok(outcome.directory)
}
