//! `dahl plan --objective money`.

use crate::support::{Scratch, check, dahl};
use serde_json::Value;
use std::path::Path;

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dahl/tests/planner").join(name);
    path.to_str().expect("a path of text").to_owned()
}

/// Two machines in each of two zones: east is fast and dear, west slow and cheap.
fn zones(scratch: &Scratch, east_per_hour: f64) -> String {
    let node = |name: &str, speed: f64, hour: f64, kwh: f64| {
        format!(
            "[[node]]\nname = {name:?}\ncount = 2\nbase_watts = 50\nprice_per_hour = {hour:?}\n\
             price_per_kwh = {kwh:?}\n\
             memory = [{{ name = \"ram\", bytes = \"64 GiB\", bandwidth = 1e12 }}]\n\
             [[node.unit]]\nname = \"gpu\"\nkind = \"gpu\"\nspeed = {speed:?}\nflops = {:?}\n\
             busy_watts = 300\nspinning_watts = 300\nidle_watts = 30\nprice_per_hour = 0.1\n",
            1e13 * speed
        )
    };
    let text = format!(
        "dahl_platform = 1\nname = \"zones\"\n{}{}[[link]]\nname = \"wan\"\n\
         connects = [\"east\", \"west\"]\nbandwidth = 1e9\nlatency = 0\njoules_per_byte = 1e-8\n\
         price_per_byte = 8e-11\nshared = \"ends\"\n",
        node("east", 1.0, east_per_hour, 0.3),
        node("west", 0.4, 0.5, 0.1)
    );
    scratch.write(&format!("zones-{east_per_hour}.toml"), text.as_bytes())
}

#[test]
fn the_cheapest_plan_follows_the_prices() {
    let scratch = Scratch::new("money");
    let profile = data("vgg16.graph.txt");
    let (cheap, dear) = (zones(&scratch, 1.0), zones(&scratch, 5.0));
    let plan = |units: &str, more: &[&str]| -> Value {
        let base = ["plan", "--profile", &profile, "--platform", units, "--allow-stale", "--json"];
        let (code, out, err) = dahl(&[&base[..], &["--max-time", "1h"], more].concat());
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).expect("JSON")
    };
    let money = ["--objective", "money"];
    let unit = |found: &Value| found["stages"][0]["unit"].as_str().expect("a unit").to_owned();
    let (east, west) = (plan(&cheap, &money), plan(&dear, &money));
    assert_eq!((unit(&east), unit(&west)), ("east/gpu".to_owned(), "west/gpu".to_owned()));
    let number = |of: &Value, key: &str| of[key].as_f64().expect("a number");
    for found in [&east, &west] {
        assert_eq!((&found["status"], &found["objective"]), (&"optimal".into(), &"money".into()));
        let parts = ["money_rent", "money_energy", "money_transfers"].map(|key| number(found, key));
        let whole = number(found, "money");
        assert!((parts.iter().sum::<f64>() / whole - 1.0).abs() < 1e-9 && parts[0] > parts[1]);
        assert!(number(found, "lower_bound") <= whole * (1.0 + 1e-9));
        // One machine: its rent, and its joules at the price of its zone.
        let (hour, kwh) = if unit(found) == "east/gpu" { (1.1, 0.3) } else { (0.6, 0.1) };
        assert!((parts[0] / (hour / 3600.0 * number(found, "period_s")) - 1.0).abs() < 1e-9);
        assert!((parts[1] / (kwh / 3.6e6 * number(found, "energy_j")) - 1.0).abs() < 1e-9);
        let front = found["front"].as_array().expect("a front");
        assert!(front.iter().any(|point| (number(point, "money") / whole - 1.0).abs() < 1e-9));
    }
    // Within a period that one machine does not reach, money is spent for more of them.
    let half = (0.55 * number(&east, "period_s")).to_string();
    let faster = plan(&cheap, &["--objective", "money", "--period", &half]);
    assert!(number(&faster, "money") > number(&east, "money"));
    // The same plan where it is dearer is as far from the best as both say.
    let file =
        scratch.write("east.json", br#"{"stages": [{"first": 0, "last": 39, "unit": "east"}]}"#);
    let scored = plan(&dear, &["--objective", "money", "--score", &file]);
    let gap = 1.0 - number(&west, "money") / number(&scored, "money");
    assert!(gap > 0.1 && (number(&scored, "gap") - gap).abs() < 1e-6, "{scored}");
    assert!((number(&scored, "energy_j") / number(&east, "energy_j") - 1.0).abs() < 1e-9);
    let base = ["plan", "--profile", &profile, "--platform", &cheap, "--allow-stale"];
    let money = [&base[..], &money].concat();
    check(&money, 0, "plan         optimal for money: east/gpu x1", "");
    check(&money, 0, "Pareto front of period and money, complete:", "");
    check(&[&money[..], &["--score", &file]].concat(), 0, "; gap of the scored plan 0.000 %", "");
    check(
        &[&money[..], &["--power-cap", "100"]].concat(),
        2,
        "",
        "power-cap cannot be combined with --objective money",
    );
    check(
        &[&money[..], &["--cost-model", "pipedream"]].concat(),
        2,
        "",
        "objective: expected --cost-model dahl",
    );
    let lenet = ["plan", "lenet", "--batch", "12", "--platform", &cheap, "--objective", "money"];
    check(&[&lenet[..], &["--max-time", "5s"]].concat(), 0, "for money: ", "");
}
