//! Platforms are read back as they were written; examples, schema and parser agree.

mod bad;
mod detect;
mod headroom;

use super::limits::{
    BANDWIDTH, FLOPS, JOULES, JOULES_PER_BYTE, MOST_BYTES, Quantity, SECONDS, SPEED, WATTS,
};
use super::*;
use crate::error::Error;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn origins() -> impl Strategy<Value = Origin> {
    (0..3usize).prop_map(|i| Origin::ALL[i])
}

fn figures(quantity: Quantity) -> impl Strategy<Value = Figure> {
    let Quantity { least, most, .. } = quantity;
    let values = prop_oneof![Just(least), Just(most), least..=most, least..=(1e3f64.min(most))];
    // Factors of one leave no interval.
    let factors = prop_oneof![Just(1.0), 0.0..1.0f64];
    (values, factors.clone(), factors, origins()).prop_map(move |(value, low, high, from)| Figure {
        value,
        low: (low * value).max(least),
        high: (value + (1.0 - high) * value).min(most),
        from,
    })
}

fn names(many: std::ops::Range<usize>) -> impl Strategy<Value = Vec<String>> {
    let number = |names: Vec<String>| {
        names.into_iter().enumerate().map(|(i, name)| format!("{i}{name}")).collect()
    };
    vec("[\\PC&&[^/\\[\\]]]{0,12}", many).prop_map(number)
}

fn links<P: Clone + std::fmt::Debug>(ends: Vec<P>) -> impl Strategy<Value = Vec<Link<P>>> {
    let figures = || (figures(BANDWIDTH), figures(SECONDS), figures(JOULES_PER_BYTE));
    let links = names(0..3).prop_flat_map(move |names| {
        names.into_iter().map(|name| (Just(name), figures(), 0..3usize)).collect::<Vec<_>>()
    });
    links.prop_map(move |links| {
        // With less than two ends there is no link.
        let links = links.into_iter().filter(|_| ends.len() > 1);
        let link = |(name, (bandwidth, latency, joules_per_byte), sharing): (_, _, usize)| Link {
            name,
            connects: ends.clone(),
            bandwidth,
            latency,
            messages: match sharing {
                0 => Vec::new(),
                _ => [(1.5, 1e-6), (4096.0, 0.25)]
                    .map(|(bytes, seconds)| Message { bytes, seconds })
                    .to_vec(),
            },
            joules_per_byte,
            price_per_byte: [0.0, 8e-11, 0.5][sharing],
            sharing: Sharing::ALL[sharing],
        };
        links.map(link).collect()
    })
}

/// A figure of at least some watts.
fn above(idle: Figure, more: Figure) -> Figure {
    let value = idle.value.max(more.value);
    Figure { value, low: more.low.min(value), high: more.high.max(value), from: more.from }
}

fn units(memories: usize) -> impl Strategy<Value = Vec<Unit>> {
    let states = names(0..3).prop_flat_map(|names| {
        let state = |name| (Just(name), figures(SPEED), figures(WATTS));
        names.into_iter().map(state).collect::<Vec<_>>()
    });
    let watts = [(); 3].map(|()| figures(WATTS));
    let unit = (1..1000usize, 0..memories, figures(SPEED), watts, states);
    let flops = proptest::option::of(figures(FLOPS));
    let unit = (unit, flops, "[a-z0-9-]{1,9}");
    let unit =
        unit.prop_map(|((count, memory, speed, [idle, busy, spinning], states), flops, kind)| {
            let state =
                |(name, speed, watts)| PowerState { name, speed, busy_watts: above(idle, watts) };
            Unit {
                name: String::new(),
                kind,
                count,
                memory,
                speed,
                flops,
                busy_watts: above(idle, busy),
                spinning_watts: above(idle, spinning),
                idle_watts: idle,
                price_per_hour: count as f64 / 8.0,
                states: states.into_iter().map(state).collect(),
            }
        });
    (vec(unit, 1..3), names(3..4)).prop_map(|(units, names)| {
        units.into_iter().zip(names).map(|(unit, name)| Unit { name, ..unit }).collect()
    })
}

fn sleeps() -> impl Strategy<Value = Option<Sleep>> {
    let sleep = (figures(WATTS), figures(SECONDS), figures(JOULES));
    proptest::option::of(sleep.prop_map(|(watts, wake_seconds, wake_joules)| Sleep {
        watts,
        wake_seconds,
        wake_joules,
    }))
}

fn nodes() -> impl Strategy<Value = Node> {
    let memory = (1..=MOST_BYTES, 0..31u32, figures(BANDWIDTH));
    let memories = (vec(memory, 1..4), names(4..5)).prop_map(|(memories, names)| {
        let memory = |((bytes, shift, bandwidth), name): ((u64, u32, _), _)| Memory {
            name,
            // Some have a unit that fits.
            bytes: ((bytes >> shift) << shift).max(1),
            bandwidth,
        };
        memories.into_iter().zip(names).map(memory).collect::<Vec<_>>()
    });
    memories.prop_flat_map(|memories| {
        let count = memories.len();
        let parts = (units(count), links((0..count).collect()));
        (1..1000usize, figures(WATTS), sleeps(), Just(memories), parts).prop_map(
            |(count, base_watts, sleep, memories, (units, links))| Node {
                name: String::new(),
                count,
                base_watts,
                price_per_hour: (count % 7) as f64 * 0.3,
                price_per_kwh: (count % 2 == 0).then_some(0.12),
                sleep,
                memories,
                units,
                links,
            },
        )
    })
}

fn platforms() -> impl Strategy<Value = Platform> {
    (vec(nodes(), 1..4), names(6..7), 0..3usize, 0..2usize).prop_flat_map(
        |(nodes, mut names, switches, fairness)| {
            let switches = names.split_off(names.len() - switches);
            let places = (0..nodes.len()).map(Place::Nodes);
            let places = places.chain((0..switches.len()).map(Place::Switch)).collect();
            let named = |(node, name)| Node { name, ..node };
            let nodes: Vec<Node> = nodes.into_iter().zip(names).map(named).collect();
            (Just((nodes, switches)), links(places), "\\PC{1,100}").prop_map(
                move |((nodes, switches), links, name)| Platform {
                    name,
                    fairness: Fairness::ALL[fairness],
                    nodes,
                    switches,
                    links,
                },
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn platforms_are_read_back(platform in platforms()) {
        let text = platform.to_toml();
        let again = Platform::parse("again.toml", &text);
        prop_assert_eq!(again.map_err(|e| format!("{e}\n{text}")), Ok(platform));
    }

    /// Whatever a file has, it is a platform or an error with its line.
    #[test]
    fn no_text_is_too_strange(at in 0..bad::GOOD.len(), end in 0..bad::GOOD.len(), put in "\\PC{0,3}") {
        let (at, end) = (at.min(end), at.max(end));
        let text = format!("{}{put}{}", &bad::GOOD[..at], &bad::GOOD[end..]);
        if let Err(error) = Platform::parse("strange.toml", &text) {
            prop_assert!(error.to_string().starts_with("strange.toml:"), "{}", error);
        }
    }
}

fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(in_repository("platforms")).expect("examples");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    assert!(paths.len() >= 5, "{paths:?}");
    paths
}

#[test]
fn examples_are_platforms_whose_parts_are_connected() {
    for path in examples() {
        let platform = Platform::read(&path).unwrap_or_else(|e| panic!("{e}"));
        let again = Platform::parse("again.toml", &platform.to_toml());
        assert_eq!(again.unwrap_or_else(|e| panic!("{e}")), platform);
        let missing = platform.unconnected();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(text_of(&path).starts_with("#:schema ../docs/platform.schema.json\n"));
    }
}

#[test]
fn the_page_of_the_format_has_an_example_that_is_read() {
    let page = text_of(&in_repository("docs/platform-format.md"));
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let whole: Vec<&str> = blocks.filter(|block| block.starts_with("dahl_platform")).collect();
    assert_eq!(whole.len(), 1);
    Platform::parse("docs/platform-format.md", whole[0]).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn schema_page_and_parser_have_the_same_keys() {
    let schema = text_of(&in_repository("docs/platform.schema.json"));
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let page = text_of(&in_repository("docs/platform-format.md"));
    for (table, keys) in [
        ("platform", parse::PLATFORM),
        ("node", parse::NODE),
        ("sleep", parse::SLEEP),
        ("memory", parse::MEMORY),
        ("unit", parse::UNIT),
        ("state", parse::STATE),
        ("link", parse::LINK),
        ("figure", parse::FIGURE),
    ] {
        let of = if table == "platform" { &schema } else { &schema["$defs"][table] };
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        let properties = of["properties"].as_object().expect("properties");
        let mut found: Vec<&str> = properties.keys().map(String::as_str).collect();
        found.sort_unstable();
        assert_eq!(found, keys, "{table}");
        assert_eq!(of["additionalProperties"], false, "{table}");
        for key in keys {
            assert!(page.contains(&format!("| `{key}` |")), "{key} of {table} has no line");
        }
    }
    for (name, quantity) in [
        ("watts", WATTS),
        ("seconds", SECONDS),
        ("joules", JOULES),
        ("joules_per_byte", JOULES_PER_BYTE),
        ("bandwidth", BANDWIDTH),
        ("flops", FLOPS),
        ("speed", SPEED),
    ] {
        let number = &schema["$defs"][name]["anyOf"][0];
        let bounds = [&number["minimum"], &number["maximum"]].map(Value::as_f64);
        assert_eq!(bounds, [Some(quantity.least), Some(quantity.most)], "{name}");
    }
    let names = |all: &[&str]| Value::from(all.to_vec());
    assert_eq!(schema["$defs"]["origin"]["enum"], names(&Origin::ALL.map(Origin::name)));
    let shared = &schema["$defs"]["link"]["properties"]["shared"]["enum"];
    assert_eq!(*shared, names(&Sharing::ALL.map(Sharing::name)));
    let fairness = &schema["properties"]["fairness"]["enum"];
    assert_eq!(*fairness, names(&Fairness::ALL.map(Fairness::name)));
}

#[test]
fn what_no_link_leads_to_is_found() {
    let check = |from: &str, to: &str, expected: &[&str]| {
        let text = bad::GOOD.replacen(from, to, 1);
        let platform = Platform::parse("a.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let found: Vec<String> = platform.unconnected().iter().map(Error::to_string).collect();
        assert_eq!(found, expected);
    };
    check("", "", &[]);
    let link = &bad::GOOD[bad::GOOD.find("[[node.link]]").expect("a link")..];
    let link = &link[..link.find("[[link]]").expect("another")];
    let none = "platform: node \"laptop\": expected a link, found none from \"ram\" to \"vram\"";
    check(link, "", &[none]);
    let other = "[[node]]\nname = \"other\"\nbase_watts = 1\n\
        memory = [{ name = \"m\", bytes = 1, bandwidth = 1 }]\n\
        unit = [{ name = \"u\", kind = \"k\", busy_watts = 1, spinning_watts = 1, idle_watts = 1 }]\n";
    let none =
        "platform: links: expected a way between nodes, found none from \"laptop\" to \"other\"";
    check("[[link]]\n", &format!("{other}[[link]]\n"), &[none]);
}

/// Bandwidth and latency come from measured messages where the file does not have them.
#[test]
fn messages_stand_for_bandwidth_and_latency() {
    let read = |lines: &str| {
        let text = bad::GOOD.replacen("bandwidth = 125e6\nlatency = 5e-5\n", lines, 1);
        let platform = Platform::parse("a.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let again =
            Platform::parse("b.toml", &platform.to_toml()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again, platform);
        platform.links[0].clone()
    };
    let messages = "messages = [[1e3, 1.1e-4], [1e6, 1.01e-2], [1e8, 1.0001]]\n";
    let link = read(messages);
    assert!(
        (link.latency.value - 1e-4).abs() < 1e-9 && (link.bandwidth.value / 1e8 - 1.0).abs() < 1e-6
    );
    assert_eq!((link.bandwidth.from, link.messages.len()), (Origin::Measured, 3));
    let link = read(&format!("{messages}bandwidth = 5e7\n"));
    assert!(link.bandwidth.value == 5e7 && (link.latency.value - 1e-4).abs() < 1e-9);
}
