//! A platform as tables.

use crate::models::grouped;
use crate::output::Colour;
use crate::table::table;
use dahl::platform::{Figure, Link, Node, Origin, Place, Platform};
use dahl::units::Bytes;

/// Tables of nodes, units, memories and links, and what they are all together.
pub(super) fn text(platform: &Platform, colour: Colour) -> String {
    let nodes: &[&str] =
        &["node", ">nodes", ">base W", ">sleep W", ">wake s", ">idle W", ">busy W"];
    let units_of: &[&str] = &[
        "node",
        "unit",
        ">per node",
        "kind",
        "memory",
        ">speed",
        ">Gflop/s",
        ">busy W",
        ">spinning W",
        ">idle W",
        ">states",
    ];
    let tables = [
        (nodes, platform.nodes.iter().map(node).collect::<Vec<_>>()),
        (units_of, platform.nodes.iter().flat_map(units).collect()),
        (&["node", "memory", ">size", ">GB/s"], platform.nodes.iter().flat_map(memories).collect()),
        (&["link", "connects", ">GB/s", ">µs", ">nJ/byte", "shared by"], links(platform)),
    ];
    let mut text = format!("{}: {}\n", crate::output::one_line(&platform.name), size(platform));
    for (heads, rows) in tables.iter().filter(|(_, rows)| !rows.is_empty()) {
        text += &format!("\n{}", table(heads, rows, colour));
    }
    text + &totals(platform)
}

/// Counts by kind.
pub(super) fn size(platform: &Platform) -> String {
    let nodes: usize = platform.nodes.iter().map(|node| node.count).sum();
    let units = platform
        .nodes
        .iter()
        .flat_map(|node| node.units.iter().map(|unit| node.count * unit.count));
    let many = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{} {one}s", grouped(count)),
    };
    let kinds = match platform.nodes.len() {
        1 => String::new(),
        kinds => format!(" of {kinds} kinds"),
    };
    format!("{}{kinds}, {}", many(nodes, "node"), many(units.sum(), "unit"))
}

fn node(node: &Node) -> Vec<String> {
    let sleep = |of: fn(&dahl::platform::Sleep) -> Figure| match &node.sleep {
        Some(sleep) => figure(&of(sleep), 1.0),
        None => "-".to_owned(),
    };
    let [idle, busy] = watts(node);
    vec![
        node.name.clone(),
        grouped(node.count),
        figure(&node.base_watts, 1.0),
        sleep(|sleep| sleep.watts),
        sleep(|sleep| sleep.wake_seconds),
        short(idle.value),
        short(busy.value),
    ]
}

fn units(node: &Node) -> Vec<Vec<String>> {
    let row = |unit: &dahl::platform::Unit| {
        vec![
            node.name.clone(),
            unit.name.clone(),
            grouped(unit.count),
            unit.kind.clone(),
            node.memories[unit.memory].name.clone(),
            figure(&unit.speed, 1.0),
            unit.flops.map_or("-".to_owned(), |flops| figure(&flops, 1e9)),
            figure(&unit.busy_watts, 1.0),
            figure(&unit.spinning_watts, 1.0),
            figure(&unit.idle_watts, 1.0),
            (1 + unit.states.len()).to_string(),
        ]
    };
    node.units.iter().map(row).collect()
}

fn memories(node: &Node) -> Vec<Vec<String>> {
    let row = |memory: &dahl::platform::Memory| {
        let size = Bytes(memory.bytes).to_string();
        vec![node.name.clone(), memory.name.clone(), size, figure(&memory.bandwidth, 1e9)]
    };
    node.memories.iter().map(row).collect()
}

fn links(platform: &Platform) -> Vec<Vec<String>> {
    let inside = platform.nodes.iter().flat_map(|node| {
        node.links.iter().map(|link| {
            let ends = link.connects.iter().map(|&memory| node.memories[memory].name.as_str());
            row(link, format!("{}: {}", node.name, ends.collect::<Vec<_>>().join(", ")))
        })
    });
    let between = platform.links.iter().map(|link| {
        let ends = link.connects.iter().map(|place| match *place {
            Place::Nodes(kind) => platform.nodes[kind].name.as_str(),
            Place::Switch(switch) => platform.switches[switch].as_str(),
        });
        row(link, ends.collect::<Vec<_>>().join(", "))
    });
    inside.chain(between).collect()
}

fn row<P>(link: &Link<P>, connects: String) -> Vec<String> {
    vec![
        link.name.clone(),
        connects,
        figure(&link.bandwidth, 1e9),
        figure(&link.latency, 1e-6),
        figure(&link.joules_per_byte, 1e-9),
        link.sharing.to_string(),
    ]
}

/// Watts of a node of which no unit, and every unit, computes.
fn watts(node: &Node) -> [Figure; 2] {
    let mut both = [node.base_watts; 2];
    for unit in &node.units {
        for (sum, more) in both.iter_mut().zip([unit.idle_watts, unit.busy_watts]) {
            add(sum, &more, unit.count);
        }
    }
    both
}

/// Adds a figure so many times.
fn add(sum: &mut Figure, figure: &Figure, times: usize) {
    sum.value += times as f64 * figure.value;
    sum.low += times as f64 * figure.low;
    sum.high += times as f64 * figure.high;
}

fn totals(platform: &Platform) -> String {
    let mut all = [Figure::exact(0.0, Origin::Guess); 2];
    let mut flops = Figure::exact(0.0, Origin::Guess);
    let mut unknown = false;
    for node in &platform.nodes {
        for (sum, more) in all.iter_mut().zip(watts(node)) {
            add(sum, &more, node.count);
        }
        for unit in &node.units {
            unknown |= unit.flops.is_none();
            unit.flops.iter().for_each(|more| add(&mut flops, more, node.count * unit.count));
        }
    }
    let peak = match flops.value {
        0.0 => "not known".to_owned(),
        _ => format!(
            "{} in f32{}",
            sum(&flops, &["flop/s", "kflop/s", "Mflop/s", "Gflop/s", "Tflop/s", "Pflop/s"]),
            if unknown { ", some units without a figure" } else { "" }
        ),
    };
    let count = |origin: Origin| platform.figures().filter(|figure| figure.from == origin).count();
    let [idle, busy] = all.map(|watts| sum(&watts, &["W", "kW", "MW", "GW"]));
    format!(
        "\nall together\n  peak     {peak}\n  idle     {idle}\n  busy     {busy}\n  \
         figures  {} measured, {} from data sheets (*), {} guesses (?)\n",
        count(Origin::Measured),
        count(Origin::DataSheet),
        count(Origin::Guess)
    )
}

/// A sum with what it lies in.
fn sum(figure: &Figure, names: &[&str]) -> String {
    let power = (figure.value.max(1.0).log10() / 3.0).floor().min(names.len() as f64 - 1.0);
    let [value, low, high] =
        [figure.value, figure.low, figure.high].map(|x| short(x / 1000f64.powf(power)));
    let name = names[power as usize];
    let within = if low == high { String::new() } else { format!(" ({low} to {high})") };
    format!("{value} {name}{within}")
}

/// A figure in a unit, marked where it was not measured.
fn figure(figure: &Figure, unit: f64) -> String {
    let mark = match figure.from {
        Origin::Measured => " ",
        Origin::DataSheet => "*",
        Origin::Guess => "?",
    };
    format!("{}{mark}", short(figure.value / unit))
}

/// Three digits that count.
fn short(x: f64) -> String {
    let digits = if x == 0.0 { 0.0 } else { (2.0 - x.abs().log10().floor()).clamp(0.0, 6.0) };
    let text = format!("{x:.*}", digits as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
