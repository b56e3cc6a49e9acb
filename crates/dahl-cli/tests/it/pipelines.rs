//! `dahl plan --profile`, `dahl plan diff` and `dahl certify`.

use crate::support::{Scratch, check, dahl};
use serde_json::Value;
use std::path::Path;

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dahl/tests/planner").join(name);
    path.to_str().expect("a path of text").to_owned()
}

fn platform(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../platforms").join(name);
    path.to_str().expect("a path of text").to_owned()
}

/// Types of four units each, with these speeds, busy and idle watts.
fn types(all: &[(&str, f64, f64, f64)]) -> String {
    let mut text = "dahl_platform = 1\nname = \"types\"\n".to_owned();
    for (name, speed, busy, idle) in all {
        text += &format!(
            "[[node]]\nname = \"{name}\"\ncount = 4\nbase_watts = 0\n\
             memory = [{{ name = \"ram\", bytes = \"1 TiB\", bandwidth = 1e12 }}]\n\
             [[node.unit]]\nname = \"gpu\"\nkind = \"{name}\"\nspeed = {speed:?}\n\
             busy_watts = {busy:?}\nspinning_watts = {busy:?}\nidle_watts = {idle:?}\n"
        );
    }
    let names: Vec<String> = all.iter().map(|(name, ..)| format!("{name:?}")).collect();
    text + &format!(
        // 1.25 GB/s for both directions together.
        "[[link]]\nname = \"net\"\nconnects = [{}]\nbandwidth = 0.625e9\nlatency = 0\n\
         joules_per_byte = 20e-9\nshared = \"ends\"\n",
        names.join(", ")
    )
}

fn three(scratch: &Scratch) -> String {
    let all = [
        ("fast", 1.0, 300.0, 40.0),
        ("middle", 1.0 / 2.2, 150.0, 20.0),
        ("slow", 1.0 / 9.0, 110.0, 45.0),
    ];
    scratch.write("three.toml", types(&all).as_bytes())
}

#[test]
fn the_front_of_vgg16_is_certified() {
    let scratch = Scratch::new("front");
    let (profile, units) = (data("vgg16.graph.txt"), three(&scratch));
    let (proof, svg) = (scratch.path("proof.json"), scratch.path("front.svg"));
    let plan =
        ["plan", "--profile", &profile, "--platform", &units, "--allow-stale", "--period", "0.14"];
    // It ends by itself, on a busy machine too.
    let more = ["--json", "--certificate", &proof, "--svg", &svg, "--max-time", "1h"];
    let (code, out, err) = dahl(&[&plan[..], &more].concat());
    assert_eq!(code, 0, "{err}");
    let found: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(found["semantics"], "stale");
    assert_eq!(found["status"], "optimal");
    assert_eq!(found["gap"], 0.0);
    assert_eq!(format!("{:.6}", found["energy_j"].as_f64().expect("joules")), "216.761816");
    assert_eq!(format!("{:.9}", found["period_s"].as_f64().expect("seconds")), "0.137549483");
    assert_eq!(found["front"].as_array().map(Vec::len), Some(6));
    assert_eq!(found["stages"].as_array().map(Vec::len), Some(3));
    assert!(std::fs::read_to_string(&svg).expect("a drawing").contains("<circle"));

    // The certificate is of the printed plan, and both commands say so first.
    assert_eq!(found["certificate"]["of_this_plan"], true);
    assert_eq!(found["certificate"]["no_plan_below"], found["certified"]);
    let (code, out, err) = dahl(&["certify", &proof]);
    assert_eq!(code, 0, "{err}");
    let lines: Vec<&str> = out.lines().collect();
    let stages = found["certificate"]["stages"].as_str().expect("stages");
    assert!(lines[0].starts_with(&format!("plan   {stages}: 0.13754948")), "{out}");
    assert!(lines[1].starts_with("space  cost model dahl, stale weights; stages of"), "{out}");
    assert!(
        lines[2].starts_with("holds: no plan of this space has energy below 216.7618"),
        "{out}"
    );
    // The files that it is about, and others.
    let other = data("alexnet.graph.txt");
    let four = scratch.write("four.toml", types(&[("fast", 1.0, 300.0, 40.0)]).as_bytes());
    let same = ["certify", &proof, "--profile", &profile, "--platform", &units];
    check(&same, 0, "the problem is that of profile", "");
    check(&["certify", &proof, "--profile", &profile], 0, "the problem is that of profile", "");
    check(&["certify", &proof, "--profile", &other], 1, "", "layers that are not those of");
    check(&["certify", &proof, "--platform", &four], 1, "", "units that are not those of");
    let twice = [&same[..], &["--machines", "2"]].concat();
    check(&twice, 1, "", "units that are not those of");
    let text = std::fs::read_to_string(&proof).expect("a proof");
    // What the checker computes itself is not in it.
    assert!(text.len() < 40_000, "{}", text.len());
    let mut tampered: Value = serde_json::from_str(&text).expect("JSON");
    tampered["value"] = 216.77.into();
    let path = scratch.write("tampered.json", tampered.to_string().as_bytes());
    check(&["certify", &path], 1, "", "tampered.json: plan: expected at least 216.77");
    tampered["value"] = 216.0.into();
    tampered["problem"]["units"][1]["idle_watts"] = 10.0.into();
    let path = scratch.write("tampered.json", tampered.to_string().as_bytes());
    check(&["certify", &path], 1, "", "tampered.json: ");
    for key in ["", "/problem", "/problem/units/0", "/plan", "/plan/stages/0", "/cells/0"] {
        let mut unknown: Value = serde_json::from_str(&text).expect("JSON");
        unknown.pointer_mut(key).expect("an object")["note"] = "x".into();
        let path = scratch.write("unknown.json", unknown.to_string().as_bytes());
        check(&["certify", &path], 4, "", "unknown field `note`");
    }
    let path = scratch.write("half.json", &text.as_bytes()[..text.len() / 2]);
    check(&["certify", &path], 4, "", "expected a certificate");
}

#[test]
fn what_is_missing_is_told() {
    let scratch = Scratch::new("missing");
    let (profile, units) = (data("vgg16.graph.txt"), three(&scratch));
    let plan = ["plan", "--profile", &profile, "--platform", &units, "--allow-stale"];
    let plan = [&plan[..], &["--max-time", "1h"]].concat();
    let with = |more: &[&'static str]| [&plan[..], more].concat();
    check(&with(&["--period", "0.1"]), 3, "", "the fastest takes 0.12776");
    check(
        &with(&["--memory-limit", "1MiB"]),
        3,
        "",
        "plan: memory: expected units with enough memory",
    );
    check(&with(&["--power-cap", "10"]), 3, "", "power-cap");
    check(&["plan", "--profile", &profile], 2, "", "platform: expected a file of units");
    check(&["plan", "--profile", &units, "--platform", &units], 4, "", "three.toml: line 1");
    check(&["plan", "--profile", "nowhere", "--platform", &units], 4, "", "nowhere");
    check(&with(&["--what-if", "more"]), 2, "", "add=1xA40");
    // Before the search, which would end with code 3.
    let late = ["--period", "0.1", "--what-if"];
    let with = |change: &'static str| with(&[&late[..], &[change]].concat());
    check(&with("add=1xH100"), 2, "", "one of fast/gpu, middle/gpu, slow/gpu, found H100");
    check(&with("remove=5xslow"), 2, "", "at most 4 x slow/gpu to remove, found remove=5xslow");
}

#[test]
fn plans_are_compared() {
    let scratch = Scratch::new("compared");
    let (profile, units) = (data("vgg16.graph.txt"), three(&scratch));
    let plan = |more: &[&str]| {
        let base = ["plan", "--profile", &profile, "--platform", &units, "--allow-stale", "--json"];
        let (code, out, err) = dahl(&[&base[..], &["--max-time", "1h"], more].concat());
        assert_eq!(code, 0, "{err}");
        out
    };
    let a = scratch.write("a.json", plan(&[]).as_bytes());
    let b = scratch.write("b.json", plan(&["--period", "0.18"]).as_bytes());
    check(&["plan", "diff", &a, &a], 0, "the same stages", "");
    check(&["plan", "diff", &a, &b], 1, "fast/gpu x1 @ full | fast/gpu x3 @ full", "");
    check(&["plan", "diff", &a, &units], 4, "", "a plan in JSON, as `dahl plan` prints it");
    let said = plan(&["--what-if", "add=1xfast", "--advice", "--period", "0.13"]);
    let found: Value = serde_json::from_str(&said).expect("JSON");
    assert!(found["what_if"][0]["after"]["joules"].is_number());
    assert!(found["advice"]["watts"].is_array());
    // The same plan as for the platform with five machines of the kind, written out.
    let five = std::fs::read_to_string(&units).expect("a platform");
    let five = scratch.write("five.toml", five.replacen("count = 4", "count = 5", 1).as_bytes());
    let there = ["plan", "--profile", &profile, "--platform", &five, "--allow-stale"];
    let (code, out, err) =
        dahl(&[&there[..], &["--json", "--period", "0.13", "--max-time", "1h"]].concat());
    assert_eq!(code, 0, "{err}");
    let written: Value = serde_json::from_str(&out).expect("JSON");
    for key in ["period_s", "energy_j", "gap"] {
        assert_eq!(found["what_if"][0][key], written[key], "{key}");
    }
    assert_eq!(found["what_if"][0]["machines"], "1 x fast (gpu x1)");
}

#[test]
fn published_plans_are_reproduced() {
    let scratch = Scratch::new("published");
    let text = types(&[("gpu", 1.0, 250.0, 30.0)]).replace("0.625e9", "1e9");
    let units = scratch.write("four.toml", text.as_bytes());
    let profile = data("vgg16.graph.txt");
    let plan = [
        "plan",
        "--profile",
        &profile,
        "--platform",
        &units,
        "--cost-model",
        "pipedream",
        "--json",
    ];
    let (code, out, err) = dahl(&plan);
    assert_eq!(code, 0, "{err}");
    let found: Value = serde_json::from_str(&out).expect("JSON");
    let period = found["period_s"].as_f64().expect("seconds");
    assert_eq!(format!("{period:.9}"), "0.205520896");
    assert_eq!([&found["stages"][0]["replicas"], &found["stages"][1]["replicas"]], [3, 1]);
    for (name, load) in
        [("bert24_training.json", "41.7458"), ("resnet50_inference.json", "33.7747")]
    {
        let graph = data(name);
        check(&["plan", "--profile", &graph, "--cost-model", "max-load"], 0, load, "");
    }
}

#[test]
fn four_kinds_of_gpus_are_planned_for() {
    let (profile, units) = (data("resnet50.graph.txt"), platform("zeus.toml"));
    let plan = ["plan", "--profile", &profile, "--platform", &units, "--allow-stale", "--json"];
    let energy = |more: &[&str]| -> f64 {
        let (code, out, err) = dahl(&[&plan[..], &["--max-time", "1h"], more].concat());
        assert_eq!(code, 0, "{err}");
        let found: Value = serde_json::from_str(&out).expect("JSON");
        found["energy_j"].as_f64().expect("joules")
    };
    let (least, full) = (energy(&[]), energy(&["--full-power"]));
    assert!(least < full, "{least} {full}");
}

/// A machine of two processors, the second at half the speed.
fn two(scratch: &Scratch) -> String {
    let unit = |name: &str, speed: f64, busy: f64| {
        format!(
            "[[node.unit]]\nname = {name:?}\nkind = \"cpu\"\nspeed = {speed:?}\n\
             flops = {:?}\nbusy_watts = {busy:?}\nspinning_watts = {busy:?}\nidle_watts = 1\n",
            speed * 5e10
        )
    };
    let text = format!(
        "dahl_platform = 1\nname = \"two\"\n[[node]]\nname = \"box\"\nbase_watts = 10\n\
         [[node.memory]]\nname = \"ram\"\nbytes = \"8 GiB\"\nbandwidth = 2e10\n{}{}",
        unit("fast", 1.0, 12.0),
        unit("slow", 0.5, 4.0)
    );
    scratch.write("two.toml", text.as_bytes())
}

#[test]
fn a_model_is_planned_over_units() {
    let scratch = Scratch::new("over-units");
    let units = two(&scratch);
    let model = ["--model", "lenet", "--batch", "12", "--optimizer", "sgd"];
    let plan = [&["plan"][..], &model, &["--platform", &units, "--max-time", "1h"]].concat();
    let (code, out, err) = dahl(&[&plan[..], &["--objective", "time", "--json"]].concat());
    assert_eq!(code, 0, "{err}");
    let found: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&found["semantics"], &found["objective"]), (&"synchronous".into(), &"time".into()));
    let samples = |stage: usize| found["stages"][stage]["samples"][0].as_u64().expect("samples");
    assert_eq!((samples(0), samples(1)), (8, 4));
    let number = |key: &str| found[key].as_f64().expect("a number");
    // All shares were looked at.
    assert_eq!((number("gap"), &found["status"]), (0.0, &"optimal".into()));
    assert_eq!(found["bound_space"], "any plan of this space");
    let runs = found["runs"].as_array().expect("runs");
    let steps: Vec<f64> = runs.iter().map(|run| run["step_s"].as_f64().expect("s")).collect();
    assert!(steps.len() >= 3 && steps.is_sorted(), "{steps:?}");
    // A number for each point of the front, whose semantics it names.
    assert!(found["front"].as_array().expect("front").iter().all(|p| p["semantics"].is_string()));
    check(&[&plan[..], &["--period", "1e-9"]].concat(), 3, "", "a plan of at most");
    check(&[&plan[..], &["--memory-limit", "1KiB"]].concat(), 3, "", "memory");
    check(&[&plan[..], &["--cost-model", "pipedream"]].concat(), 2, "", "dahl for a model");
    // Two such machines have no link.
    check(&[&plan[..], &["--what-if", "add=1xbox/fast"]].concat(), 4, "", "a way between nodes");
    check(&["plan", "lenet", "--objective", "time"], 2, "", "--platform");
    // What it prints as a plan is one.
    let (code, text, err) = dahl(&[&plan[..], &["--show", "plan"]].concat());
    assert_eq!(code, 0, "{err}");
    let file = scratch.write("p.plan", text.as_bytes());
    check(&[&["plan"][..], &model, &["--check", &file]].concat(), 0, "2 workers", "");
}

/// The printed plan has uneven shares, and so has that of the certificate: both commands name it, and
/// one space, before what is claimed.
#[test]
fn a_claim_names_its_plan_and_space_first() {
    let scratch = Scratch::new("claims");
    let (units, proof) = (two(&scratch), scratch.path("proof.json"));
    let plan = ["plan", "--model", "lenet", "--batch", "12", "--platform", &units];
    let more = ["--objective", "time", "--certificate", &proof, "--max-time", "1h"];
    let (code, out, err) = dahl(&[&plan[..], &more].concat());
    assert_eq!(code, 0, "{err}");
    #[track_caller]
    fn starts(out: &str, lines: &[(usize, &str)]) {
        for (line, expected) in lines {
            let found = out.lines().nth(*line).unwrap_or_default();
            assert!(found.starts_with(expected), "{expected:?} in\n{out}");
        }
    }
    let shares = "box/fast x1 + box/slow x1 side by side, samples 8:4";
    let stages = "stages of one unit type each";
    starts(
        &out,
        &[
            (0, &format!("plan         optimal for time: {shares}")),
            (1, &format!("space        cost model dahl; {stages}, cut at all ideals; or one")),
            (5, "lower bound  of any plan of this space: 0.0"),
            (6, &format!("certificate  of this plan; space: {stages}, cut at all ideals; or one")),
        ],
    );
    let (code, out, err) = dahl(&["certify", &proof]);
    assert_eq!(code, 0, "{err}");
    starts(
        &out,
        &[
            (0, &format!("plan   {shares}: 0.0")),
            (1, &format!("space  cost model dahl, synchronous weights; {stages}")),
            (2, "holds: no plan of this space has time below 0.0"),
            (3, &format!("made from platform {units}, which were not compared")),
        ],
    );
}

#[test]
fn flags_that_a_cost_model_has_no_use_for_are_refused() {
    let scratch = Scratch::new("useless");
    let one = types(&[("gpu", 1.0, 300.0, 40.0)]);
    let units = scratch.write("one.toml", one.as_bytes());
    let (profile, svg) = (data("vgg16.graph.txt"), scratch.path("front.svg"));
    let plan = ["plan", "--profile", &profile, "--platform", &units];
    for (model, flags) in [
        ("pipedream", vec!["--period", "0.1"]),
        ("pipedream", vec!["--svg", &svg]),
        ("pipedream", vec!["--objective", "energy"]),
        ("max-load", vec!["--advice"]),
        ("max-load", vec!["--power-cap", "100"]),
    ] {
        let flag = flags[0].trim_start_matches("--");
        let all = [&plan[..], &["--cost-model", model], &flags].concat();
        let expected = format!("{flag}: expected --cost-model dahl with it, found {model}");
        let (code, out, err) = dahl(&all);
        assert!(code != 0 && out.is_empty() && err.contains(&expected), "{code} {out}{err}");
    }
}
