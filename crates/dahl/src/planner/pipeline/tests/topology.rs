//! What plans pay for communication, on platforms made by chance: by the units that they use alone.

use super::super::*;
use super::brute::{Stages, each_plan, front_of, stage_costs};
use super::made::Chance;
use super::some;
use crate::platform::{Expanded, MemoryId, NodeId, Platform, Sharing};

/// A kind of machine of a made-up platform.
#[derive(Clone)]
struct Kind {
    name: String,
    count: usize,
    base_watts: f64,
    /// Cores and, with memories of their own, GPUs.
    units: [usize; 2],
    figures: [f64; 3],
    /// Bandwidth, latency and joules per byte of its line, and what shares it.
    line: ([f64; 3], &'static str),
}

fn kind(i: usize, chance: &mut Chance) -> Kind {
    let units = [[1, 0], [2, 0], [1, 1], [0, 2]][chance.below(4)];
    let line = [[1e8, 1e9][chance.below(2)], 2e-3, 1e-8];
    Kind {
        name: format!("kind{}", char::from(b'a' + i as u8)),
        count: 1 + chance.below(2),
        base_watts: chance.within(0.0, 50.0),
        units,
        figures: [chance.within(0.2, 1.0), chance.within(20.0, 90.0), chance.within(0.0, 20.0)],
        line: (line, ["ends", "all"][chance.below(2)]),
    }
}

fn kinds(seed: u64) -> Vec<Kind> {
    let mut chance = Chance(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    (0..2 + chance.below(2)).map(|i| kind(i, &mut chance)).collect()
}

fn text(kinds: &[Kind]) -> String {
    let mut text = "dahl_platform = 1\nname = \"made\"\nswitches = [\"net\"]\n".to_owned();
    for Kind { name, count, base_watts, units: [cores, gpus], figures, .. } in kinds {
        text += &format!(
            "[[node]]\nname = {name:?}\ncount = {count}\nbase_watts = {base_watts:?}\n\
             [[node.memory]]\nname = \"ram\"\nbytes = \"16 GiB\"\nbandwidth = 3e10\n"
        );
        let mut unit = |unit: &str, count: usize, memory: &str, times: f64| {
            let [speed, busy, idle] = figures.map(|x| x * times);
            text += &format!(
                "[[node.unit]]\nname = {unit:?}\nkind = \"{}\"\ncount = {count}\n\
                 memory = {memory:?}\nspeed = {speed:?}\nbusy_watts = {busy:?}\n\
                 spinning_watts = {busy:?}\nidle_watts = {:?}\n",
                &unit[..3],
                idle.min(busy)
            );
        };
        if *cores > 0 {
            unit("core", *cores, "ram", 1.0);
        }
        for gpu in 0..*gpus {
            unit(&format!("gpu{gpu}"), 1, &format!("vram{gpu}"), 1.5);
        }
        for gpu in 0..*gpus {
            text += &format!(
                "[[node.memory]]\nname = \"vram{gpu}\"\nbytes = \"2 GiB\"\nbandwidth = 5e11\n\
                 [[node.link]]\nname = \"pcie{gpu}\"\nconnects = [\"ram\", \"vram{gpu}\"]\n\
                 bandwidth = 2e9\nlatency = 1e-4\njoules_per_byte = 1e-9\nshared = \"ends\"\n"
            );
        }
    }
    for Kind { name, line: ([bandwidth, latency, joules], shared), .. } in kinds {
        text += &format!(
            "[[link]]\nname = \"to {name}\"\nconnects = [{name:?}, \"net\"]\n\
             bandwidth = {bandwidth:?}\nlatency = {latency:?}\njoules_per_byte = {joules:?}\n\
             shared = {shared:?}\n"
        );
    }
    text
}

fn parsed(kinds: &[Kind]) -> Platform {
    Platform::parse(std::path::Path::new("made.toml"), &text(kinds)).unwrap()
}

/// A small network on the units of a platform: the same for each order of its kinds.
fn on(platform: &Platform, seed: u64) -> Problem {
    let machines = machinery(platform, Watts::Likely).unwrap();
    let mut chance = Chance(seed ^ 0x5555);
    let layer = |i: usize| {
        let seconds = chance.within(0.1, 1.0);
        Layer {
            name: i.to_string(),
            seconds: machines.slowdowns.iter().map(|slow| slow * seconds).collect(),
            output_bytes: chance.within(0.0, 2e7),
            parameter_bytes: chance.within(0.0, 5e7),
            inputs: if i == 0 { vec![] } else { vec![i - 1] },
        }
    };
    let layers = (0..2).map(layer).collect();
    let semantics = match seed % 2 {
        0 => Semantics::Stale,
        _ => Semantics::Synchronous { micro_batches: 4 },
    };
    Problem {
        layers,
        units: machines.units,
        nodes: machines.nodes,
        scopes: machines.scopes,
        semantics,
        objective: Objective::ALL[seed as usize % 3],
        period_cap: None,
        power_cap: None,
        samples: None,
    }
}

/// The units that a plan uses, as memories of the platform: of each type the first machines that
/// have enough.
fn memories(machines: &Machinery, on: &Expanded<'_>, used: &[usize]) -> Vec<Vec<MemoryId>> {
    let units = machines.units_of(on);
    let own = units.iter().zip(used);
    own.map(|(all, &n)| all[..n].iter().map(|unit| on.units[unit.0 as usize].memory).collect())
        .collect()
}

/// The problem in which all units pay what the units of a plan pay, from routes alone.
fn as_used(p: &Problem, platform: &Platform, used: &[usize]) -> Problem {
    let machines = machinery(platform, Watts::Likely).unwrap();
    let on = platform.expand();
    // Machines of the kind of each type that are on, and whether a plan is in one machine.
    let on_of = |node: usize| {
        let own = p.units.iter().zip(used).filter(|(unit, _)| unit.node == node);
        own.map(|(unit, n)| n.div_ceil(unit.per_node)).max().unwrap_or(0)
    };
    let one = (0..p.nodes.len()).map(on_of).sum::<usize>() <= 1;
    let node_of = |memory: MemoryId| on.memories[memory.0 as usize].node;
    // With several machines of a kind, any two of them may have to exchange: a unit of each type
    // stands in the first and in the last.
    let mut own = memories(&machines, &on, used);
    for (unit, memories) in own.iter_mut().enumerate().filter(|(unit, _)| used[*unit] > 0) {
        let all = machines.units_of(&on)[unit].clone();
        let mut nodes: Vec<NodeId> = all.iter().map(|u| on.units[u.0 as usize].node).collect();
        nodes.dedup();
        nodes.truncate(on_of(p.units[unit].node));
        if used[unit] > 1 || nodes.len() > 1 {
            let here = all.iter().map(|u| on.units[u.0 as usize]);
            let here = here.filter(|of| nodes.contains(&of.node)).map(|of| of.memory);
            *memories = if used[unit] > 1 { here.collect() } else { here.take(1).collect() };
        }
    }
    let route = |a: MemoryId, b: MemoryId| -> (Way, bool) {
        if a == b {
            return (Way::FREE, false);
        }
        let route = on.route(a, b).unwrap();
        let bus = route.narrowest == Sharing::All;
        let own = route.narrowest == Sharing::Nobody;
        let way = Way {
            seconds_per_byte: if bus { 1.0 } else { 0.5 } / route.bandwidth,
            joules_per_byte: route.joules_per_byte,
            latency_s: route.latency,
            medium: if bus { Medium::Bus } else { Medium::Lines },
            units_per_end: 1,
        };
        (way, !own)
    };
    let worst = |pairs: &mut dyn Iterator<Item = (MemoryId, MemoryId)>, each: usize| {
        let mut all = Way::FREE;
        for (a, b) in pairs {
            let (way, ends) = route(a, b);
            all.seconds_per_byte = all.seconds_per_byte.max(way.seconds_per_byte);
            all.joules_per_byte = all.joules_per_byte.max(way.joules_per_byte);
            all.latency_s = all.latency_s.max(way.latency_s);
            all.medium = all.medium.max(way.medium);
            all.units_per_end = all.units_per_end.max(if ends { each } else { 1 });
        }
        all
    };
    let pairs = |a: &[MemoryId], b: &[MemoryId], same: bool| {
        let mut all = Vec::new();
        for (i, &x) in a.iter().enumerate() {
            for (j, &y) in b.iter().enumerate() {
                if !same || i != j {
                    all.push((x, y));
                }
            }
        }
        all
    };
    let mut result = Problem { scopes: Vec::new(), ..p.clone() };
    for unit in (0..used.len()).filter(|&unit| used[unit] > 0) {
        let of = &p.units[unit];
        let each = if one { of.sharing } else { of.per_node };
        let mut all = Vec::new();
        for a in 0..used.len() {
            for b in 0..used.len() {
                all.extend(pairs(&own[a], &own[b], a == b));
            }
        }
        let input = worst(&mut all.into_iter(), each);
        let same = pairs(&own[unit], &own[unit], true);
        let inside = same.iter().copied().filter(|(a, b)| node_of(*a) == node_of(*b));
        let near = worst(&mut inside.collect::<Vec<_>>().into_iter(), of.sharing);
        let several = same.iter().any(|(a, b)| node_of(*a) != node_of(*b));
        let to = &mut result.units[unit];
        to.input = input;
        (to.reduce, to.within) = match several {
            true => (worst(&mut same.into_iter(), of.per_node), Some(near)),
            false => (near, None),
        };
    }
    result
}

/// All plans, each at what its own units pay.
fn brute(p: &Problem, platform: &Platform) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut known: std::collections::BTreeMap<Vec<usize>, Problem> = Default::default();
    each_plan(p, 0, &mut vec![0; p.units.len()], &mut Vec::new(), &mut |stages: &Stages| {
        let mut used = vec![0; p.units.len()];
        stages.iter().for_each(|stage| used[stage.1] += stage.2);
        let own = known.entry(used.clone()).or_insert_with(|| as_used(p, platform, &used));
        points.extend(stage_costs(own, stages));
    });
    front_of(points)
}

fn points(p: &Problem) -> Vec<(f64, f64)> {
    let found = solve(p, &Limits::default()).unwrap();
    assert!(found.whole && found.gap(p) == Some(0.0));
    found.front.plans().iter().map(|plan| (plan.period_s, plan.energy_j)).collect()
}

/// Whether each point of a front has one of another that is as fast and as cheap.
#[track_caller]
fn no_worse(name: &str, than: &[(f64, f64)], front: &[(f64, f64)]) {
    for &(t, e) in than {
        let near = front.iter().any(|&(u, f)| u <= t * (1.0 + 1e-9) && f <= e * (1.0 + 1e-9));
        assert!(near, "{name}: {t} s, {e} J not reached by {front:?}");
    }
}

#[test]
fn plans_pay_for_the_units_that_they_use() {
    for seed in some(1000, 20) {
        let platform = parsed(&kinds(seed));
        let p = on(&platform, seed);
        let (found, all) = (points(&p), brute(&p, &platform));
        no_worse(&format!("platform {seed}, solve"), &all, &found);
        no_worse(&format!("platform {seed}, all plans"), &found, &all);
    }
}

/// Machines and types that are added, removed, or stand in another order, and faster lines.
#[test]
fn other_units_never_hurt() {
    let mut added = 0;
    for seed in some(1000, 16) {
        let name = format!("platform {seed}");
        let kinds = kinds(seed);
        let front = points(&on(&parsed(&kinds), seed));
        let mut turned = kinds.clone();
        turned.reverse();
        let same = points(&on(&parsed(&turned), seed));
        no_worse(&name, &front, &same);
        no_worse(&name, &same, &front);
        let mut more = kinds.clone();
        more[seed as usize % kinds.len()].count += 1;
        no_worse(&name, &front, &points(&on(&parsed(&more), seed)));
        // A machine of a core: with more types than these, only bandwidths would tell ways apart.
        more[seed as usize % kinds.len()].count -= 1;
        more.push(Kind { units: [1, 0], count: 1, ..kind(kinds.len(), &mut Chance(seed)) });
        if on(&parsed(&more), seed).scopes.len() < 200 {
            no_worse(&name, &front, &points(&on(&parsed(&more), seed)));
            added += 1;
        }
        let mut faster = kinds.clone();
        for kind in &mut faster {
            kind.line.0[0] *= 2.0;
            kind.line.0[1] *= 0.5;
        }
        no_worse(&name, &front, &points(&on(&parsed(&faster), seed)));
        // What the best plan does not use is not missed.
        let p = on(&parsed(&kinds), seed);
        let best = solve(&p, &Limits::default()).unwrap().best.unwrap();
        let uses = |kind: &Kind| {
            let own = |unit: usize| p.units[unit].name.starts_with(&kind.name);
            best.stages.iter().any(|stage| own(stage.unit) || p.nodes.len() == 1)
        };
        let fewer: Vec<Kind> = kinds.iter().filter(|kind| uses(kind)).cloned().collect();
        let p = on(&parsed(&fewer), seed);
        let value = plan_value(&p, &solve(&p, &Limits::default()).unwrap().best.unwrap());
        let before = objective_value(p.objective, best.period_s, best.energy_j);
        assert!((value - before).abs() <= 1e-9 * before, "{name}: {value} {before}");
    }
    assert!(added > some(1000, 16).end / 2, "{added}");
}

/// Four GPUs that only their memories tell apart, and machines that only their names do.
#[test]
fn equal_units_are_one_type() {
    let server = |name: &str| Kind {
        name: name.to_owned(),
        count: 1,
        base_watts: 10.0,
        units: [1, 2],
        figures: [1.0, 50.0, 5.0],
        line: ([1e9, 0.0, 0.0], "nobody"),
    };
    let machines = machinery(&parsed(&[server("left1"), server("left2")]), Watts::Likely).unwrap();
    let types: Vec<(&str, usize, usize)> =
        machines.units.iter().map(|unit| (&*unit.name, unit.count, unit.per_node)).collect();
    assert_eq!(types, [("left/core", 2, 1), ("left/gpu", 4, 2)]);
    assert_eq!(machines.find("left2/gpu1").unwrap(), 1);
    // Inside a machine over two links of 2 GB/s in both directions, else over the network.
    let gpu = &machines.units[1];
    assert_eq!(gpu.within.map(|way| way.seconds_per_byte), Some(0.25e-9));
    assert_eq!(gpu.reduce.seconds_per_byte, 0.5e-9);
    let one = machinery(&parsed(&[server("left1")]), Watts::Likely).unwrap();
    assert_eq!(one.units[1].reduce.seconds_per_byte, 0.25e-9);
}
