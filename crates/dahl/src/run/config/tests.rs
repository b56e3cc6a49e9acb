use super::*;
use crate::units::{Bytes, Joules};
use std::path::PathBuf;
use std::time::Duration;

fn config(settings: &[(&str, &str)]) -> RunConfig {
    let mut config = RunConfig::default();
    settings.iter().for_each(|(name, value)| config.set(name, &[value]).unwrap());
    config
}

/// A file with a text, and the configuration in it.
fn read(name: &str, text: &str) -> Result<RunConfig, String> {
    let path = std::env::temp_dir().join(format!("dahl-config-{name}-{}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let read = RunConfig::read(&path).map_err(|error| error.to_string());
    std::fs::remove_file(&path).unwrap();
    read
}

#[test]
fn settings_are_written_and_read_back() {
    let all = [
        ("lr", "1e-3"),
        ("flip", "true"),
        ("data", "synthetic:\"1"),
        ("betas", "0.8,0.9"),
        ("schedule", "warmup:5+cosine:0.01"),
        ("stages", "a,b"),
        ("speeds", "1,0.5"),
        ("validation", "0.1"),
        ("normalize", "0.5:0.4,1"),
        ("memory-limit", "2GiB"),
        ("epochs", "3"),
    ];
    let config = config(&all);
    let text = config.to_toml().unwrap();
    for line in ["lr = 0.001\n", "flip = true\n", "data = 'synthetic:\"1'\n", "# end\n"] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("max-time"), "settings of a session are not kept");
    assert_eq!(read("back", &text).unwrap(), config);
    let wrong = |text: &str| read("wrong", text).unwrap_err();
    let unknown = wrong("lrr = 1\n# end\n");
    assert!(unknown.ends_with("key: expected a setting that a run keeps, found lrr"), "{unknown}");
    let cut = wrong(&text[..text.find("flip").unwrap()]);
    assert!(cut.contains("last line: expected \"# end\": it is cut off"), "{cut}");
    let no_toml = wrong("lr = 1\nepochs = [");
    assert!(no_toml.contains(":2:11: configuration: expected a TOML file"), "{no_toml}");
    for list in ["[]", "[1]", "[1, 2]"] {
        let error = wrong(&format!("epochs = {list}\n# end\n"));
        assert!(error.contains(": epochs: expected a text, a number or true"), "{error}");
    }
}

#[test]
fn names_are_no_paths() {
    let kept = |name: &str, value: &str| {
        let text = config(&[(name, value)]).to_toml().unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name} ="))).unwrap();
        line.split_once('"').map(|(_, rest)| rest.trim_end_matches('"').to_owned()).unwrap()
    };
    // Both are here, as a directory and as a file.
    assert_eq!(kept("model", "src"), "src");
    assert_eq!(kept("model", "lenet"), "lenet");
    assert!(PathBuf::from(kept("model", "Cargo.toml")).is_absolute());
    for name in ["digits", "mnist", "cifar-10", "synthetic:1x8x8:10"] {
        assert_eq!(kept("data", name), name);
    }
    assert!(PathBuf::from(kept("data", "src")).is_absolute());
    assert!(PathBuf::from(kept("init", "weights")).is_absolute());
    // It is called from here when it is read.
    let text = config(&[("init", "weights"), ("data", "./digits")]).to_toml().unwrap();
    let back = read("near", &text).unwrap();
    assert_eq!(back.identity.init, Some(PathBuf::from("weights")));
    // A directory that has the name of a set keeps its path.
    assert!(back.placement.data.is_path());
}

#[test]
fn only_what_changes_no_bit_may_change() {
    let stored = config(&[("lr", "0.01")]);
    let resumed = |settings: &[(&str, &str)]| {
        let given: Vec<&str> = settings.iter().map(|(name, _)| *name).collect();
        stored.clone().resumed(&config(settings), &given).map_err(|error| error.to_string())
    };
    let on = resumed(&[("epochs", "20"), ("lr", "1e-2"), ("resume", "x")]).unwrap();
    assert_eq!((on.placement.epochs, on.identity.lr), (20, 0.01));
    assert_eq!(on.session.resume, Some(PathBuf::from("x")));
    let error = resumed(&[("lr", "0.02")]).unwrap_err();
    assert!(error.starts_with("lr: expected 0.01 as in the run,"), "{error}");
    let error = resumed(&[("flip", "true")]).unwrap_err();
    assert!(error.starts_with("flip: expected none as in the run,"), "{error}");
}

/// Every setting reads back what it prints, whatever its class.
#[test]
fn defaults_are_values() {
    let default = RunConfig::default();
    for setting in SETTINGS {
        for value in setting.of(&default) {
            assert_eq!(setting.check(&value), Ok(()), "{} {value}", setting.name);
        }
        let mut config = RunConfig::default();
        let values = setting.of(&default);
        let texts: Vec<&str> = values.iter().map(String::as_str).collect();
        config.set(setting.name, &texts).unwrap();
        assert_eq!(config, default, "{}", setting.name);
    }
    assert_eq!(default.check().map_err(|e| e.to_string()), Ok(()));
}

#[test]
fn settings_that_exclude_each_other_are_refused() {
    let check = |settings: &[(&str, &str)], expected: &str| {
        assert_eq!(config(settings).check().unwrap_err().to_string(), expected);
    };
    check(&[("run", "a"), ("resume", "b")], "run cannot be combined with resume");
    check(&[("plan", "auto"), ("grain", "auto")], "plan cannot be combined with grain");
    check(&[("stages", "2")], "stages requires pipeline");
    check(&[("no-run", "true"), ("keep", "3")], "no-run cannot be combined with keep");
}

#[test]
fn times_sizes_and_energies_are_read() {
    let seconds = |text: &str| Duration::parse(text).ok().map(|time| time.as_secs_f64());
    for (text, expected) in [("90s", 90.0), ("90", 90.0), ("1.5m", 90.0), ("2h", 7200.0)] {
        assert_eq!(seconds(text), Some(expected), "{text}");
    }
    assert_eq!((seconds("1d"), seconds("250ms")), (Some(86400.0), Some(0.25)));
    for wrong in ["", "s", "-1s", "1x", "1e3s", "1..2s", "999999999999999999999d"] {
        assert_eq!(seconds(wrong), None, "{wrong}");
    }
    let joules = |text: &str| Joules::parse(text).ok().map(|joules| joules.0);
    for (text, expected) in
        [("500J", 500.0), ("500", 500.0), ("2.5kJ", 2500.0), ("1 Wh", 3600.0), ("0.1kWh", 360e3)]
    {
        assert_eq!(joules(text), Some(expected), "{text}");
    }
    for wrong in ["0J", "-1J", "5W", ""] {
        assert_eq!(joules(wrong), None, "{wrong}");
    }
    assert_eq!(Bytes::parse("2GiB"), Ok(Bytes(2 << 30)));
    assert_eq!(Bytes::parse("100KiB"), Ok(Bytes(100 << 10)));
    assert!(Bytes::parse("2GB").is_err() && Bytes::parse("x").is_err());
}

#[test]
fn a_throttle_is_read() {
    use crate::native::Throttle;
    let found = Throttle::parse("1=0.5@100").unwrap();
    assert_eq!((found.worker, found.speed, found.from_step), (1, 0.5, 100));
    assert_eq!(Throttle::parse("0=0.25").unwrap().from_step, 0);
    for wrong in ["", "1", "1=", "1=0", "1=2", "x=0.5", "1=0.5@", "1=0.5@x", "1=nan", "0=1e-300"] {
        assert!(Throttle::parse(wrong).is_err(), "{wrong}");
    }
}

/// A run that was stored on a larger machine could not be resumed, evaluated or exported on a
/// smaller one, though nothing of it was to run there.
#[test]
fn runs_of_other_machines_and_versions_are_read() {
    let text = "workers = 100000\nisa = \"neon\"\nspeeds = [1, 0.5]\nscheduling = \"stealing\"\n";
    let stored = read("other", &format!("{text}pipeline = \"1f1b\"\n# end\n")).unwrap();
    assert_eq!(stored.placement.workers, Some(100_000));
    assert_eq!(stored.identity.speeds, Some(Speeds(vec![1.0, 0.5])));
    assert_eq!(stored.placement.scheduling, crate::sched::Rule::WorkStealing);
    if !dahl_kernels::Isa::Neon.is_available() {
        let error = stored.check().unwrap_err().to_string();
        assert!(error.starts_with("isa: expected one of this machine"), "{error}");
    }
    for (key, text, expected) in [
        ("--lr", "1e-3", "0.001"),
        ("--betas", "0.90, 0.999", "0.9,0.999"),
        ("--schedule", "cosine:0.10", "cosine:0.1"),
        ("--speeds", "1, 0.5", "1,0.5"),
        ("training set", "1e-3", "1e-3"),
    ] {
        assert_eq!(canonical(key, text), expected, "{key}");
    }
}

#[test]
fn values_that_cannot_be_are_refused_though_they_are_set_as_data() {
    let mut config = RunConfig::default();
    config.identity.batch = 0;
    let error = config.check().unwrap_err().to_string();
    assert_eq!(error, "batch: expected at least 1, found 0");
    assert!(RunConfig::default().set("run", &[""]).is_err(), "no directory has no name");
}
