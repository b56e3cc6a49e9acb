//! Files that are wrong: each is reported at its line.

use super::super::Platform;

pub(super) const GOOD: &str = r#"dahl_platform = 1
name = "two"
from = "guess"
switches = ["rack"]

[[node]]
name = "laptop"
count = 2
base_watts = 8
sleep = { watts = 0.5, wake_seconds = 2, wake_joules = 60 }

[[node.memory]]
name = "ram"
bytes = "16 GiB"
bandwidth = 40e9

[[node.memory]]
name = "vram"
bytes = 8e9
bandwidth = 200e9

[[node.unit]]
name = "core"
kind = "cpu-avx2"
count = 8
memory = "ram"
flops = 30e9
busy_watts = { value = 9, low = 7, high = 12, from = "measured" }
spinning_watts = 7
idle_watts = 1
states = [
  { name = "1.2 GHz", speed = 0.5, busy_watts = 3 },
  { name = "0.8 GHz", speed = 0.4, busy_watts = 2 },
]

[[node.link]]
name = "pcie"
connects = ["ram", "vram"]
bandwidth = 12e9
latency = 2e-6
joules_per_byte = 1e-10

[[link]]
name = "ethernet"
connects = ["laptop", "rack"]
bandwidth = 125e6
latency = 5e-5
joules_per_byte = 2e-8
shared = "ends"
"#;

/// What is put in the place of what, and what is said of it behind `bad.toml:`.
const BAD: &[(&str, &str, &str)] = &[
    // The file.
    (
        "dahl_platform = 1",
        "dahl_platform = 2",
        "1: dahl_platform: expected 1, the only version of the format, found 2",
    ),
    (
        "dahl_platform = 1",
        "",
        "1: dahl_platform: expected the version of the format, 1, found nothing",
    ),
    (
        "name = \"two\"",
        "name = \"\"",
        "2: name: expected a name of 1 to 100 characters in quotes, found \"\"",
    ),
    (
        "name = \"two\"",
        "name = 2",
        "2: name: expected a name of 1 to 100 characters in quotes, found 2",
    ),
    (
        "name = \"two\"",
        "name = \"a\\nb\"",
        "2: name: expected a name of 1 to 100 characters in quotes, found \"a\\nb\"",
    ),
    ("name = \"two\"", "", "1: name: expected a name, found nothing"),
    ("name = \"two\"", "name = \"two", "2: expected a TOML file, found "),
    (
        "name = \"two\"",
        "name = \"two\"\nname = \"three\"",
        "3: expected a TOML file, found duplicate key",
    ),
    (
        "\"guess\"",
        "\"hearsay\"",
        "3: from: expected one of \"measured\", \"data sheet\", \"guess\", found \"hearsay\"",
    ),
    (
        "from = \"guess\"",
        "fairness = \"tcp\"",
        "3: fairness: expected one of \"latency\", \"equal\", found \"tcp\"",
    ),
    ("from = \"guess\"", "form = \"guess\"", "3: expected a key, such as from, found form"),
    (
        "from = \"guess\"",
        "temperature = 20",
        "3: expected a key, one of dahl_platform, name, from, fairness, switches, node, link, found temperature",
    ),
    ("[\"rack\"]", "\"rack\"", "4: switches: expected a list of names, found \"rack\""),
    (
        "[\"rack\"]",
        "[\"rack\", 7]",
        "4: switches: expected a name of 1 to 100 characters in quotes, found 7",
    ),
    (
        "[\"rack\"]",
        "[\"rack\", \"rack\"]",
        "4: switches: expected a name that no node and no other switch has, found \"rack\"",
    ),
    (
        "[\"rack\"]",
        "[\"rack\", \"laptop\"]",
        "4: switches: expected a name that no node and no other switch has, found \"laptop\"",
    ),
    // A node.
    ("name = \"laptop\"\n", "", "6: node 1: name: expected a name, found nothing"),
    (
        "count = 2",
        "count = 0",
        "8: node \"laptop\": count: expected a whole number from 1 to 10000000, found 0",
    ),
    (
        "count = 2",
        "count = -1",
        "8: node \"laptop\": count: expected a whole number from 1 to 10000000, found -1",
    ),
    (
        "count = 2",
        "count = 2.5",
        "8: node \"laptop\": count: expected a whole number from 1 to 10000000, found 2.5",
    ),
    (
        "count = 2",
        "count = \"two\"",
        "8: node \"laptop\": count: expected a whole number from 1 to 10000000, found \"two\"",
    ),
    ("count = 2", "cuont = 2", "8: node \"laptop\": expected a key, such as count, found cuont"),
    (
        "kind = \"cpu-avx2\"",
        "kind = \"cpu/avx2\"",
        "24: node \"laptop\": unit \"core\": kind: expected a name without /, [ and ], found \"cpu/avx2\"",
    ),
    (
        "name = \"core\"",
        "name = \"core[8]\"",
        "23: node \"laptop\": unit \"core[8]\": name: expected a name without /, [ and ], found \"core[8]\"",
    ),
    // 8 cores, 2 memories, 4 ends to send and to receive, and the node itself.
    (
        "count = 2",
        "count = 9_000_000",
        "8: node \"laptop\": count: expected at most 10000000 units, memories and ends of links in all, found 135000000",
    ),
    (
        "count = 2",
        "count = 666_666",
        "45: link \"ethernet\": connects: expected at most 10000000 units, memories and ends of links in all, found 11333324",
    ),
    (
        "base_watts = 8",
        "",
        "6: node \"laptop\": base_watts: expected watts from 0 to 1e9, found nothing",
    ),
    (
        "base_watts = 8",
        "base_watts = -8",
        "9: node \"laptop\": base_watts: expected watts from 0 to 1e9, found -8",
    ),
    (
        "base_watts = 8",
        "base_watts = nan",
        "9: node \"laptop\": base_watts: expected watts from 0 to 1e9, found nan",
    ),
    (
        "base_watts = 8",
        "base_watts = inf",
        "9: node \"laptop\": base_watts: expected watts from 0 to 1e9, found inf",
    ),
    (
        "base_watts = 8",
        "base_watts = 1e300",
        "9: node \"laptop\": base_watts: expected watts from 0 to 1e9, found 1e300",
    ),
    (
        "base_watts = 8",
        "base_watts = 1e999",
        "9: node \"laptop\": base_watts: expected watts from 0 to 1e9, found 1e999",
    ),
    (
        "base_watts = 8",
        "base_watts = \"8 W\"",
        "9: node \"laptop\": base_watts: expected watts from 0 to 1e9, found \"8 W\"",
    ),
    (
        "base_watts = 8",
        "base_watts = true",
        "9: node \"laptop\": base_watts: expected watts from 0 to 1e9, found true",
    ),
    (
        "base_watts = 8",
        "base_watts = 99999999999999999999999999999999999999999",
        "9: node \"laptop\": base_watts: expected watts from 0 to 1e9, found 99999999999999999999999999999999999999999",
    ),
    (
        "base_watts = 8",
        "base_watts = {}",
        "9: node \"laptop\": base_watts: value: expected watts from 0 to 1e9, found nothing",
    ),
    (
        "{ watts = 0.5, wake_seconds = 2, wake_joules = 60 }",
        "0.5",
        "10: node \"laptop\": sleep: expected a table, found 0.5",
    ),
    (
        "wake_seconds = 2, ",
        "",
        "10: node \"laptop\": sleep: wake_seconds: expected seconds from 0 to 1e6, found nothing",
    ),
    (
        "wake_seconds = 2",
        "wake_seconds = -2",
        "10: node \"laptop\": sleep: wake_seconds: expected seconds from 0 to 1e6, found -2",
    ),
    (
        "wake_joules = 60",
        "wake_joule = 60",
        "10: node \"laptop\": sleep: expected a key, such as wake_joules, found wake_joule",
    ),
    // Memories.
    (
        "[[node.memory]]\nname = \"ram\"",
        "[node.memory]\nname = \"ram\"",
        "17: expected a TOML file, found duplicate key",
    ),
    (
        "\"16 GiB\"",
        "0",
        "14: node \"laptop\": memory \"ram\": bytes: expected bytes up to 1 EiB, such as \"16 GiB\" or 16e9, found 0",
    ),
    (
        "\"16 GiB\"",
        "-16",
        "14: node \"laptop\": memory \"ram\": bytes: expected bytes up to 1 EiB, such as \"16 GiB\" or 16e9, found -16",
    ),
    (
        "\"16 GiB\"",
        "\"16\"",
        "14: node \"laptop\": memory \"ram\": bytes: expected bytes up to 1 EiB, such as \"16 GiB\" or 16e9, found \"16\"",
    ),
    (
        "\"16 GiB\"",
        "\"nan GiB\"",
        "14: node \"laptop\": memory \"ram\": bytes: expected bytes up to 1 EiB, such as \"16 GiB\" or 16e9, found \"nan GiB\"",
    ),
    (
        "\"16 GiB\"",
        "\"-1 GiB\"",
        "14: node \"laptop\": memory \"ram\": bytes: expected bytes up to 1 EiB, such as \"16 GiB\" or 16e9, found \"-1 GiB\"",
    ),
    (
        "\"16 GiB\"",
        "\"9999 PiB\"",
        "14: node \"laptop\": memory \"ram\": bytes: expected bytes up to 1 EiB, such as \"16 GiB\" or 16e9, found \"9999 PiB\"",
    ),
    (
        "\"16 GiB\"",
        "1.5",
        "14: node \"laptop\": memory \"ram\": bytes: expected bytes up to 1 EiB, such as \"16 GiB\" or 16e9, found 1.5",
    ),
    (
        "bandwidth = 40e9",
        "bandwidth = 0",
        "15: node \"laptop\": memory \"ram\": bandwidth: expected bytes per second from 1 to 1e18, found 0",
    ),
    (
        "bandwidth = 40e9",
        "bandwidth = \"40 GB/s\"",
        "15: node \"laptop\": memory \"ram\": bandwidth: expected bytes per second from 1 to 1e18, found \"40 GB/s\"",
    ),
    (
        "name = \"vram\"",
        "name = \"ram\"",
        "18: node \"laptop\": memory \"ram\": name: expected a unique name, found \"ram\" again",
    ),
    // Units.
    (
        "kind = \"cpu-avx2\"\n",
        "",
        "22: node \"laptop\": unit \"core\": kind: expected a name, found nothing",
    ),
    (
        "count = 8",
        "count = 0",
        "25: node \"laptop\": unit \"core\": count: expected a whole number from 1 to 10000000, found 0",
    ),
    (
        "count = 8",
        "count = 18446744073709551616",
        "25: node \"laptop\": unit \"core\": count: expected a whole number from 1 to 10000000, found 18446744073709551616",
    ),
    (
        "count = 8",
        "count = 10_000_000",
        "8: node \"laptop\": count: expected at most 10000000 units, memories and ends of links in all, found 20000014",
    ),
    (
        "memory = \"ram\"",
        "memory = \"rma\"",
        "26: node \"laptop\": unit \"core\": memory: expected a name, such as ram, found \"rma\"",
    ),
    (
        "memory = \"ram\"",
        "memory = \"cache\"",
        "26: node \"laptop\": unit \"core\": memory: expected a name, one of ram, vram, found \"cache\"",
    ),
    (
        "memory = \"ram\"",
        "memory = 0",
        "26: node \"laptop\": unit \"core\": memory: expected a name, one of ram, vram, found 0",
    ),
    (
        "memory = \"ram\"\n",
        "",
        "22: node \"laptop\": unit \"core\": memory: expected one of ram, vram, found nothing",
    ),
    (
        "flops = 30e9",
        "flops = 0",
        "27: node \"laptop\": unit \"core\": flops: expected operations per second from 1 to 1e21, found 0",
    ),
    (
        "flops = 30e9",
        "speed = 0",
        "27: node \"laptop\": unit \"core\": speed: expected a speed from 1e-6 to 1e6, found 0",
    ),
    (
        "flops = 30e9",
        "speed = -0.0",
        "27: node \"laptop\": unit \"core\": speed: expected a speed from 1e-6 to 1e6, found -0.0",
    ),
    (
        "value = 9, ",
        "",
        "28: node \"laptop\": unit \"core\": busy_watts: value: expected watts from 0 to 1e9, found nothing",
    ),
    (
        "value = 9, ",
        "value = \"9\", ",
        "28: node \"laptop\": unit \"core\": busy_watts: value: expected watts from 0 to 1e9, found \"9\"",
    ),
    (
        "low = 7",
        "low = 10",
        "28: node \"laptop\": unit \"core\": busy_watts: low: expected at most the value, 9, found 10",
    ),
    (
        "low = 7",
        "low = -7",
        "28: node \"laptop\": unit \"core\": busy_watts: low: expected watts from 0 to 1e9, found -7",
    ),
    (
        "high = 12",
        "high = 8.5",
        "28: node \"laptop\": unit \"core\": busy_watts: high: expected at least the value, 9, found 8.5",
    ),
    (
        "high = 12",
        "high = nan",
        "28: node \"laptop\": unit \"core\": busy_watts: high: expected watts from 0 to 1e9, found nan",
    ),
    (
        "high = 12",
        "hihg = 12",
        "28: node \"laptop\": unit \"core\": busy_watts: expected a key, such as high, found hihg",
    ),
    (
        "from = \"measured\"",
        "from = 1",
        "28: node \"laptop\": unit \"core\": busy_watts: from: expected one of \"measured\", \"data sheet\", \"guess\", found 1",
    ),
    (
        "spinning_watts = 7",
        "spinning_watts = 0.5",
        "29: node \"laptop\": unit \"core\": spinning_watts: expected at least the idle watts, 1, found 0.5",
    ),
    (
        "spinning_watts = 7\n",
        "",
        "22: node \"laptop\": unit \"core\": spinning_watts: expected watts from 0 to 1e9, found nothing",
    ),
    (
        "idle_watts = 1",
        "idle_watts = 2.5",
        "33: node \"laptop\": unit \"core\": state \"0.8 GHz\": busy_watts: expected at least the idle watts, 2.5, found 2",
    ),
    (
        "idle_watts = 1",
        "idle_watts = -1",
        "30: node \"laptop\": unit \"core\": idle_watts: expected watts from 0 to 1e9, found -1",
    ),
    (
        "name = \"1.2 GHz\", ",
        "",
        "32: node \"laptop\": unit \"core\": state 1: name: expected a name, found nothing",
    ),
    (
        "speed = 0.5",
        "speed = 0",
        "32: node \"laptop\": unit \"core\": state \"1.2 GHz\": speed: expected a speed from 1e-6 to 1e6, found 0",
    ),
    (
        "name = \"0.8 GHz\"",
        "name = \"1.2 GHz\"",
        "33: node \"laptop\": unit \"core\": state \"1.2 GHz\": name: expected a unique name, found \"1.2 GHz\" again",
    ),
    (
        "{ name = \"0.8 GHz\", speed = 0.4, busy_watts = 2 }",
        "0.4",
        "33: node \"laptop\": unit \"core\": state 2: expected a table, found 0.4",
    ),
    // Links inside of a node.
    (
        "[\"ram\", \"vram\"]",
        "[\"ram\"]",
        "38: node \"laptop\": link \"pcie\": connects: expected at least two ends, found 1",
    ),
    (
        "[\"ram\", \"vram\"]",
        "[]",
        "38: node \"laptop\": link \"pcie\": connects: expected at least two ends, found 0",
    ),
    (
        "[\"ram\", \"vram\"]",
        "[\"ram\", \"laptop\"]",
        "38: node \"laptop\": link \"pcie\": connects: expected a name, one of ram, vram, found \"laptop\"",
    ),
    (
        "[\"ram\", \"vram\"]",
        "[\"ram\", \"vram\", \"ram\"]",
        "38: node \"laptop\": link \"pcie\": connects: expected each name once, found \"ram\"",
    ),
    (
        "[\"ram\", \"vram\"]",
        "\"ram\"",
        "38: node \"laptop\": link \"pcie\": connects: expected a list of names, found \"ram\"",
    ),
    (
        "latency = 2e-6",
        "latency = -1",
        "40: node \"laptop\": link \"pcie\": latency: expected seconds from 0 to 1e6, found -1",
    ),
    (
        "joules_per_byte = 1e-10\n",
        "",
        "36: node \"laptop\": link \"pcie\": joules_per_byte: expected joules per byte from 0 to 1, found nothing",
    ),
    (
        "joules_per_byte = 1e-10",
        "joules_per_byte = 20",
        "41: node \"laptop\": link \"pcie\": joules_per_byte: expected joules per byte from 0 to 1, found 20",
    ),
    (
        "latency = 2e-6",
        "messages = [[1e3, 1e-6], [1e6, 0]]",
        "40: node \"laptop\": link \"pcie\": messages: expected seconds from 1e-9 to 1e6, found 0",
    ),
    (
        "latency = 2e-6",
        "messages = [[1e6, 1e-4], [1e3, 1e-6]]",
        "40: node \"laptop\": link \"pcie\": messages: expected a list of [bytes, seconds], at least two, of ascending sizes, found",
    ),
    (
        "latency = 2e-6",
        "messages = [[1e6, 1e-4, 2]]",
        "40: node \"laptop\": link \"pcie\": messages: expected [bytes, seconds], found",
    ),
    // Links between nodes.
    (
        "[\"laptop\", \"rack\"]",
        "[\"laptop\", \"ram\"]",
        "45: link \"ethernet\": connects: expected a name, one of laptop, rack, found \"ram\"",
    ),
    (
        "[\"laptop\", \"rack\"]",
        "[\"rack\"]",
        "45: link \"ethernet\": connects: expected at least two ends, found 1",
    ),
    (
        "bandwidth = 125e6",
        "bandwidth = -125e6",
        "46: link \"ethernet\": bandwidth: expected bytes per second from 1 to 1e18, found -125e6",
    ),
    (
        "latency = 5e-5\n",
        "",
        "43: link \"ethernet\": latency: expected seconds from 0 to 1e6, found nothing",
    ),
    (
        "shared = \"ends\"",
        "shared = true",
        "49: link \"ethernet\": shared: expected one of \"all\", \"ends\", \"nobody\", found true",
    ),
    (
        "shared = \"ends\"",
        "shared = \"ends\"\n[[link]]\nname = \"ethernet\"\nconnects = [\"laptop\"]\nbandwidth = 1\nlatency = 0\njoules_per_byte = 0",
        "51: link \"ethernet\": name: expected a unique name, found \"ethernet\" again",
    ),
    ("[[link]]", "[link]", "43: link: expected a list of tables, found [link]"),
];

#[test]
fn each_is_told_at_its_line() {
    Platform::parse("good.toml", GOOD).unwrap_or_else(|e| panic!("{e}"));
    let mut wrong = String::new();
    for (from, to, expected) in BAD {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let error = Platform::parse("bad.toml", &text).expect_err(expected).to_string();
        let shown = error.lines().any(|line| line.starts_with(&format!("bad.toml:{expected}")));
        // What is called by a name that is wrong is not found either.
        if !shown || error.lines().count() > 2 {
            wrong += &format!("\n{from} as {to}: expected\n{expected}\nfound\n{error}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn everything_is_told_at_once_from_the_top() {
    let text = GOOD.replace("watts = ", "wats = ").replace("40e9", "0");
    let error = Platform::parse("bad.toml", &text).expect_err("much is wrong").to_string();
    let lines: Vec<usize> = error
        .lines()
        .map(|line| line.split(':').nth(1).expect("a line").parse().expect("a number"))
        .collect();
    assert!(lines.len() > 10 && lines.is_sorted(), "{error}");
}

#[test]
fn nothing_and_nonsense_are_no_platforms() {
    let check = |text: &str, expected: &str| {
        let error = Platform::parse("bad.toml", text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("", "bad.toml:1: dahl_platform: expected the version of the format, 1, found nothing");
    check("", "bad.toml:1: node: expected at least one [[node]], found none");
    check(
        "node = [{}]",
        "bad.toml:1: node 1: unit: expected at least one [[node.unit]], found none",
    );
    check("node = 3", "bad.toml:1: node: expected a list of tables, found 3");
    check("\n\n[[node", "bad.toml:3: expected a TOML file, found ");
    check(&"[".repeat(100_000), "bad.toml:1: expected a TOML file, found ");
    check(&format!("a = {}", "[".repeat(100_000)), "bad.toml:1: expected a TOML file, found ");
}

#[test]
fn a_figure_is_bare_or_has_an_interval() {
    use super::super::{Figure, Origin};
    let platform = Platform::parse("good.toml", GOOD).unwrap_or_else(|e| panic!("{e}"));
    let node = &platform.nodes[0];
    assert_eq!(node.base_watts, Figure::exact(8.0, Origin::Guess));
    let busy = Figure { value: 9.0, low: 7.0, high: 12.0, from: Origin::Measured };
    assert_eq!(node.units[0].busy_watts, busy);
    assert_eq!(node.units[0].speed, Figure::exact(1.0, Origin::Guess));
    assert_eq!((node.memories[0].bytes, node.memories[1].bytes), (16 << 30, 8_000_000_000));
}

#[test]
fn a_file_of_mistakes_is_told_up_to_a_limit() {
    let text = format!("dahl_platform = 1\nx {}\n", "=".repeat(1000));
    let crate::Error::Lines { errors, .. } = Platform::parse("bad.toml", &text).unwrap_err() else {
        panic!("expected an error of lines");
    };
    assert_eq!((errors.len(), errors[0].line), (super::super::reader::MOST_ERRORS, 2));
}
