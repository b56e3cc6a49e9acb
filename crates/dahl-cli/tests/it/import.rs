//! `dahl import`, and plans of what it makes.

use crate::support::{Scratch, check, dahl};
use serde_json::Value;
use std::path::Path;

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dahl/tests/planner").join(name);
    path.to_str().expect("a path of text").to_owned()
}

/// Two machines of each of two kinds, and one with a unit that nobody measured.
fn cloud(scratch: &Scratch) -> String {
    let node = |name: &str, kind: &str, count: usize, watts: f64| {
        format!(
            "[[node]]\nname = {name:?}\nbase_watts = 0\ncount = {count}\n\
             memory = [{{ name = \"ram\", bytes = \"40 GiB\", bandwidth = 1e12 }}]\n\
             [[node.unit]]\nname = \"gpu\"\nkind = {kind:?}\nbusy_watts = {watts:?}\n\
             spinning_watts = {watts:?}\nidle_watts = 30\n"
        )
    };
    let text = format!(
        "dahl_platform = 1\nname = \"cloud\"\nlink = [{{ name = \"net\", connects = [\"a100\", \"v100\", \"t4\"], \
         bandwidth = 3e9, latency = 0, joules_per_byte = 1e-8, shared = \"ends\" }}]\n{}{}{}",
        node("a100", "gpu-a100", 2, 400.0),
        node("v100", "gpu-v100", 2, 300.0),
        node("t4", "gpu-t4", 1, 70.0)
    );
    scratch.write("cloud.toml", text.as_bytes())
}

#[test]
fn published_profiles_of_sailor_are_planned() {
    let scratch = Scratch::new("sailor");
    let (units, profile) = (cloud(&scratch), scratch.path("opt.json"));
    let times = ["a100=excerpt_A100-40.json", "v100=excerpt_V100-16.json"].map(|of| {
        let (kind, file) = of.split_once('=').expect("a kind and a file");
        format!("gpu-{kind}={}", data(&format!("sailor/{file}")))
    });
    let sizes = data("sailor/sizes.json");
    let import = ["import", "sailor", &times[0], &times[1], "--model", "OPT-350", "--batch", "16"];
    let whole = [&import[..], &["--sizes", &sizes, "--output", &profile]].concat();
    check(&whole, 0, "", "");
    let plan = ["plan", "--profile", &profile, "--platform", &units, "--max-time", "1h"];
    let time = |more: &[&str]| -> Value {
        let (code, out, err) =
            dahl(&[&plan[..], &["--objective", "time", "--json"], more].concat());
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).expect("JSON")
    };
    let found = time(&["--micro-batches", "4"]);
    assert_eq!(found["status"], "optimal");
    let off =
        found["units"].as_array().expect("units").iter().find(|unit| unit["unit"] == "t4/gpu");
    assert_eq!(off.expect("a unit")["used"], 0);
    // Larger micro-batches were faster per sample: on one A100, 16 samples of layer 1 in four parts.
    let one = ["--micro-batches", "4", "--machines", "1"];
    let scored = scratch
        .write("one.json", br#"{"stages": [{"first": 0, "last": "layer3", "unit": "a100"}]}"#);
    let price = time(&[&one[..], &["--score", &scored]].concat());
    let seconds: f64 =
        [0.000509 + 2e-6, 0.008593 + 0.022721, 0.008119 + 0.0228, 0.016123 + 0.014861].iter().sum();
    let period = price["period_s"].as_f64().expect("seconds");
    assert!((period / (4.0 * seconds) - 1.0).abs() < 0.01, "{period} {seconds}");
    check(&[&plan[..], &["--cost-model", "max-load"]].concat(), 2, "", "dahl for a profile");
    // A proof is compared with the profile.
    let proof = scratch.path("proof.json");
    time(&["--micro-batches", "4", "--certificate", &proof]);
    let certify = ["certify", &proof, "--profile", &profile, "--platform", &units];
    check(&certify, 0, "the problem is that of profile", "");
    let text = std::fs::read_to_string(&profile).expect("a profile");
    let other = scratch
        .write("other.json", text.replace("\"8\"", "\"9\"").replace("\"4\"", "\"5\"").as_bytes());
    let compared = ["certify", &proof, "--profile", &other, "--platform", &units];
    check(&compared, 1, "", "layers that are not those of");
    check(&["certify", &proof, "--profile", &profile], 2, "", "requires --platform");
    // Without the bytes of layers it is said that there are none.
    let (code, out, err) = dahl(&import);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("without --sizes") && out.contains("\"parameter_bytes\": 0.0"), "{err}");
    let other = [&import[..], &["--tensor-parallel", "4"]].concat();
    check(
        &other,
        4,
        "",
        "expected times of 4 GPUs per unit (tensor parallelism), found those of 1, 2",
    );
    check(
        &["import", "sailor", "x.json", "--model", "m", "--batch", "1"],
        2,
        "",
        "a name and a file",
    );
    check(&["import", "sailor", "x=none.json", "--model", "m", "--batch", "1"], 4, "", "none.json");
    check(&["import", "sailor", "x=none.json", "--model", "m", "--batch", "0"], 2, "", "batch");
}

#[test]
fn published_tables_of_zeus_are_a_platform() {
    let scratch = Scratch::new("zeus");
    let (platform, profile) = (scratch.path("gpus.toml"), data("vgg16.graph.txt"));
    let tables =
        ["a40", "v100"].map(|gpu| format!("{gpu}={}", data(&format!("zeus/excerpt_{gpu}.csv"))));
    let import = ["import", "zeus", &tables[0], &tables[1], "--memory", "48GiB,32GiB"];
    let whole = [&import[..], &["--network", "imagenet/resnet50", "--batch", "128"]].concat();
    check(&[&whole[..], &["--output", &platform]].concat(), 0, "", "");
    check(&["platform", "check", &platform], 0, "", "");
    let plan = ["plan", "--profile", &profile, "--platform", &platform, "--allow-stale"];
    check(&plan, 0, "gpu x1 @ 1", "");
    // It is printed without --output.
    check(&whole, 0, "busy_watts = { value = 244.26", "");
    let other = [&import[..], &["--network", "vgg"]].concat();
    check(&other, 4, "", "network: expected the network vgg, found imagenet/resnet50");
    let three = ["import", "zeus", &tables[0], "--memory", "1GiB,2GiB", "--network", "resnet50"];
    check(&three, 2, "", "memory: expected one size, or 1 for the tables");
}
