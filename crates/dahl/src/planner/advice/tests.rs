//! What other units would change: the same as a platform with them, written out.

use super::*;
use crate::planner::pipeline::tests::made::{Chance, problem};
use crate::planner::pipeline::*;
use crate::platform::Platform;

/// Machines of three kinds, so many of each: some have two unit types, one of them with a memory
/// of its own, and powers; the first link is slow, so that it counts who sums gradients over it.
fn written_out(counts: [usize; 3]) -> Platform {
    let unit = |name: &str, kind: &str, count: usize, [speed, busy, idle]: [f64; 3]| {
        format!(
            "[[node.unit]]\nname = {name:?}\nkind = {kind:?}\ncount = {count}\nmemory = {:?}\n\
             speed = {speed:?}\nbusy_watts = {busy:?}\nspinning_watts = {busy:?}\n\
             idle_watts = {idle:?}\n",
            if name == "gpu" { "vram" } else { "ram" }
        )
    };
    let ram = "[[node.memory]]\nname = \"ram\"\nbytes = \"16 GiB\"\nbandwidth = 3e10\n";
    let vram = "[[node.memory]]\nname = \"vram\"\nbytes = \"2 GiB\"\nbandwidth = 5e11\n\
                [[node.link]]\nname = \"pcie\"\nconnects = [\"ram\", \"vram\"]\nbandwidth = 2e10\n\
                latency = 0\njoules_per_byte = 1e-10\n";
    let state = "states = [{ name = \"slow\", speed = 0.6, busy_watts = 90 }]\n";
    let kinds = [
        (
            "new",
            50.0,
            ram.to_owned()
                + &unit("core", "cpu", 2, [0.1, 10.0, 1.0])
                + &unit("gpu", "gpu", 1, [1.0, 200.0, 20.0])
                + state
                + vram,
        ),
        ("old", 30.0, ram.to_owned() + &unit("core", "cpu", 2, [0.05, 9.0, 2.0])),
        ("newer", 60.0, ram.to_owned() + vram + &unit("gpu", "gpu", 1, [1.3, 300.0, 30.0])),
    ];
    let there = kinds.iter().zip(counts).filter(|(_, count)| *count > 0);
    let mut text = "dahl_platform = 1\nname = \"made\"\nswitches = [\"net\"]\n".to_owned();
    for ((name, base, units), count) in there.clone() {
        text += &format!("[[node]]\nname = {name:?}\ncount = {count}\nbase_watts = {base:?}\n");
        text += units;
    }
    for ((name, ..), _) in there {
        let bandwidth = if *name == "newer" { 1e9 } else { 1e8 };
        text += &format!(
            "[[link]]\nname = \"to {name}\"\nconnects = [{name:?}, \"net\"]\n\
             bandwidth = {bandwidth:?}\nlatency = 0\njoules_per_byte = 2e-8\n"
        );
    }
    Platform::parse("made.toml", &text).unwrap()
}

/// A made-up network on the units of a platform.
fn on(platform: &Platform, seed: u64) -> Problem {
    let machines = machinery(platform, Watts::Likely).unwrap();
    let mut chance = Chance(seed);
    let layer = |i: usize| {
        let seconds = chance.within(0.1, 1.0);
        Layer {
            name: i.to_string(),
            seconds: machines.slowdowns.iter().map(|slow| slow * seconds).collect(),
            output_bytes: chance.within(0.0, 1e7),
            parameter_bytes: chance.within(0.0, 5e7),
            inputs: if i == 0 { vec![] } else { vec![i - 1] },
        }
    };
    let layers = (0..3).map(layer).collect();
    let semantics = match seed % 2 {
        0 => Semantics::Stale,
        _ => Semantics::Synchronous { micro_batches: 4 },
    };
    let objective = [Objective::Energy, Objective::Time, Objective::Edp][seed as usize % 3];
    Problem {
        layers,
        units: machines.units,
        nodes: machines.nodes,
        semantics,
        objective,
        samples: (seed % 4 == 1).then_some(8),
        scopes: machines.scopes,
        ..problem(0)
    }
}

/// All that is found, with units by name: kinds of machines that are gone have no index.
fn results(platform: &Platform, seed: u64) -> String {
    let p = Problem { period_cap: None, power_cap: None, ..on(platform, seed) };
    let found = solve(&p, &Limits::default()).unwrap();
    let plan = |plan: &Assignment| {
        let stages = plan.stages.iter().map(|s| {
            let unit = &p.units[s.unit];
            (s.layers.clone(), unit.name.clone(), s.replicas, unit.powers[s.power].name.clone())
        });
        let stages = stages.collect::<Vec<_>>();
        format!("{stages:?} {:?} {:?} s {:?} J", plan.shares, plan.period_s, plan.energy_j)
    };
    let front: Vec<String> = found.front.plans().iter().map(plan).collect();
    format!("{:?}\n{front:#?}\n{:?}", found.best.as_ref().map(plan), found.lower_bound)
}

#[test]
fn a_what_if_equals_the_platform_written_out() {
    // Each kind of change: one more or fewer of a machine by each of its units, several, the
    // first of two of a type, the last of a kind.
    let cases = [
        ([1, 1, 1], "add=1xnew/gpu", [2, 1, 1]),
        ([1, 1, 1], "add=2xnew/core", [2, 1, 1]),
        ([1, 1, 0], "add=1xnew/gpu", [2, 1, 0]),
        ([1, 1, 1], "add=1xNEWER", [1, 1, 2]),
        ([0, 1, 1], "add=2xold", [0, 2, 1]),
        ([1, 2, 1], "remove=2xold/core", [1, 1, 1]),
        ([2, 1, 1], "remove=1xnew/gpu", [1, 1, 1]),
        ([1, 2, 1], "remove=4xold", [1, 0, 1]),
        ([1, 1, 1], "remove=1xnewer/gpu", [1, 1, 0]),
        ([1, 1, 1], "remove=2xnew/core", [0, 1, 1]),
    ];
    let mut helped = 0;
    for (seed, (before, change, after)) in (0..).zip(cases) {
        let platform = written_out(before);
        let change: Change = change.parse().unwrap();
        let changed = change.apply(&platform).unwrap();
        for seed in [seed, seed + 100] {
            let expected = results(&written_out(after), seed);
            assert_eq!(results(&changed, seed), expected, "{before:?} {change}, seed {seed}");
            helped += usize::from(results(&platform, seed) != expected);
        }
        if !after.contains(&0) && !before.contains(&0) {
            assert_eq!(changed, written_out(after));
        }
    }
    assert!(helped > 10, "{helped} of 20 changes change anything");
}

/// The gradients of two GPUs go over the network: with one of them there was no other.
#[test]
fn one_more_unit_of_a_type_of_one_sums_gradients_over_the_network() {
    let platform = written_out([1, 1, 0]);
    let gpu = |platform: &Platform| machinery(platform, Watts::Likely).unwrap().units[1].clone();
    assert_eq!((gpu(&platform).count, gpu(&platform).reduce.seconds_per_byte), (1, 0.0));
    let changed = "add=1xnew/gpu".parse::<Change>().unwrap().apply(&platform).unwrap();
    assert_eq!((gpu(&changed).count, gpu(&changed).reduce.seconds_per_byte), (2, 1e-8));
}

#[test]
fn changes_that_are_not_clear_are_refused() {
    let platform = written_out([1, 1, 1]);
    let refused = |text: &str| {
        let change: Change = text.parse().unwrap();
        change.apply(&platform).unwrap_err().to_string()
    };
    assert!(refused("add=1xnew").contains("one of new/core, new/gpu, found new"));
    assert!(refused("add=1xgpu").contains("one of new/core, new/gpu, old/core, newer/gpu"));
    assert!(refused("add=1xo/").contains("one of new/core"));
    assert!(refused("add=3xold").contains("a multiple of 2 x old/core: units come in whole"));
    assert!(refused("remove=2xnewer").contains("at most 1 x newer/gpu to remove"));
}
