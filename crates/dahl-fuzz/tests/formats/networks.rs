//! What is trained and where: weights, models, plans, platforms, profiles, certificates,
//! tasks.

use crate::{TEXT, repair, text};
use dahl::DType;
use dahl::file::TensorFile;
use dahl::graph::Programs;
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::plan::PlannedPrograms;
use dahl::planner::Grain;
use dahl::planner::baselines::{
    Effort, Imported, MeasuredProfile, Operators, SailorRequest, max_load,
};
use dahl::planner::pipeline::{
    Certificate, Objective, Problem, Semantics, Watts, certify_within, machinery,
};
use dahl::planner::score::ForeignPlan;
use dahl::platform::{Platform, ZeusRequest, ZeusTable};
use dahl::sim::Tasks;
use dahl::train::Card;
use dahl_fuzz::{Bound, Case, Target, fuzz};
use std::path::Path;
use std::sync::LazyLock;

fn spec() -> TrainSpec {
    TrainSpec::new(2, DType::F32, Optimizer::sgd(0.1))
}

#[test]
fn fuzz_safetensors() {
    let read = |_: &Case, place: &Path| {
        let path = place.join("input.safetensors");
        let Ok(file) = TensorFile::read(&path) else { return false };
        let again = place.join("again.safetensors");
        file.write(&again).unwrap();
        assert_eq!(TensorFile::read(&again).unwrap(), file);
        let _ = Card::of(&file, &path);
        true
    };
    let repair = repair::safetensors;
    fuzz!(Target { format: "safetensors", repair, read, ..TEXT });
}

#[test]
fn fuzz_model() {
    fuzz!(text("model", |case, _| {
        let Ok(model) = Model::parse(&case.text()) else { return false };
        let printed = model.to_toml().unwrap();
        assert_eq!(Model::parse(&printed).unwrap().to_toml().unwrap(), printed);
        let _ = model.lower(&spec());
        let _ = model.to_torch();
        true
    }));
}

/// Programs that plans are read for.
static PROGRAMS: LazyLock<Programs> = LazyLock::new(|| {
    let model =
        Model::sequential("tiny", &[1, 4, 4], |s| s.conv2d(2, 3).relu().flatten().linear(3));
    model.lower(&spec()).unwrap().programs
});

/// A plan as it is printed now, without the hash that an edited plan must not have.
fn plans() -> Vec<Case> {
    let made = [1, 2].map(|workers| {
        let plan = Grain::for_workers(workers).plan(&PROGRAMS).unwrap();
        let printed = plan.to_text();
        let lines = printed.lines().filter(|line| !line.starts_with("hash = "));
        let edited: String = lines.map(|line| format!("{line}\n")).collect();
        let files = vec![("input.txt".to_owned(), edited.into_bytes())];
        Case { name: format!("{workers} workers"), files }
    });
    made.into()
}

#[test]
fn fuzz_plan() {
    let read = |case: &Case, _: &Path| {
        let Ok(plan) = PlannedPrograms::parse(&case.text(), &PROGRAMS) else { return false };
        let printed = plan.to_text();
        assert_eq!(*PlannedPrograms::parse(&printed, &PROGRAMS).unwrap(), *plan);
        true
    };
    fuzz!(Target { made: plans, ..text("plan", read) });
}

/// Units of a platform that is expanded: each has a place in memory.
const MOST_PARTS: usize = 10_000;

#[test]
fn fuzz_platform() {
    let target = text("platform", |case, place| {
        let Ok(platform) = Platform::parse(place, &case.text()) else { return false };
        assert_eq!(Platform::parse(place, &platform.to_toml()).unwrap(), platform);

        let parts = platform
            .nodes
            .iter()
            .flat_map(|node| node.units.iter().map(|unit| node.count.saturating_mul(unit.count)));
        if parts.fold(0, usize::saturating_add) <= MOST_PARTS {
            let _ = platform.unconnected();
            let _ = platform.expand().units.len();
        }
        true
    });
    fuzz!(Target { peak: Bound { times: 300, plus: 8 << 20 }, ..target });
}

/// Unequal machines.
static LAB: LazyLock<Platform> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../platforms/lab.toml");
    Platform::read(root).unwrap()
});

#[test]
fn fuzz_tasks() {
    fuzz!(text("tasks", |case, place| {
        Tasks::parse(&case.text(), place, &LAB.expand()).is_ok()
    }));
}

/// Layers and loads of a network that others measured.
fn profile(case: &Case, place: &Path) -> bool {
    let Ok(network) = Imported::parse(&case.text(), place) else { return false };
    let layers = match &network {
        Imported::Profile(profile) => profile.layers(&[1.0, 2.0]),
        Imported::Operators(operators) => {
            let _ = max_load(operators, &Effort { stop: &|| true, ..Effort::default() });
            operators.layers(&[1.0, 2.0])
        }
        Imported::Measured(measured) => {
            let printed = measured.to_json();
            assert_eq!(MeasuredProfile::parse(&printed, place).unwrap(), *measured);
            let mut machines = machinery(&LAB, Watts::Likely).unwrap();
            let _ = measured.layers(&LAB, &mut machines, 3);
            return true;
        }
    };
    assert!(!layers.is_empty());
    true
}

#[test]
fn fuzz_pipedream() {
    fuzz!(text("pipedream", profile));
}

#[test]
fn fuzz_profile() {
    fuzz!(text("profile", profile));
}

/// Times and bytes in one file each.
#[test]
fn fuzz_sailor() {
    let read = |case: &Case, place: &Path| {
        let request = SailorRequest {
            times: &[],
            sizes: None,
            model: "OPT-350",
            batch: 16,
            tensor_parallel: 1,
        };
        let text = |name: &str| String::from_utf8_lossy(case.bytes(name)).into_owned();
        let [times, sizes] = ["times.json", "sizes.json"].map(text);
        let sizes = (!sizes.is_empty()).then_some((&*sizes, place));
        request.parse(&[("gpu", &times, place)], sizes).is_ok()
    };
    fuzz!(text("sailor", read));
}

#[test]
fn fuzz_zeus() {
    fuzz!(text("zeus", |case, place| {
        let table = ZeusTable { name: "gpu".to_owned(), path: place.to_owned(), memory: 1 << 30 };
        let request = ZeusRequest { tables: &[table], network: "resnet50", batch: None };
        request.parse(&[case.text()]).is_ok()
    }));
}

#[test]
fn fuzz_dnn_partitioning() {
    fuzz!(text("dnn_partitioning", profile));
}

/// A network and units that plans of other planners are priced on.
static PROBLEM: LazyLock<Problem> = LazyLock::new(|| {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/pipedream/small.graph.txt");
    let Imported::Profile(profile) = Imported::read(&corpus).unwrap() else {
        panic!("{} is a profile", corpus.display())
    };
    let machines = machinery(&LAB, Watts::Likely).unwrap();
    Problem {
        layers: profile.layers(&machines.slowdowns),
        units: machines.units,
        nodes: machines.nodes,
        semantics: Semantics::Stale,
        objective: Objective::Time,
        period_cap: None,
        power_cap: None,
        scopes: Vec::new(),
        samples: None,
    }
});

/// Operators that splits of other planners are priced on.
static OPERATORS: LazyLock<Operators> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dahl/tests/planner");
    match Imported::read(&path.join("bert24_inference.json")).unwrap() {
        Imported::Operators(of) => of,
        _ => panic!("{} has a graph of operators", path.display()),
    }
});

#[test]
fn fuzz_score() {
    fuzz!(text("score", |case, place| {
        let Ok(plan) = ForeignPlan::parse(&case.text(), place) else { return false };
        if let Ok(score) = plan.score(&PROBLEM) {
            assert!(score.plan.period_s >= 0.0 && score.plan.energy_j >= 0.0);
        }
        let _ = plan.loads(&OPERATORS);
        true
    }));
}

#[test]
fn fuzz_certificate() {
    fuzz!(text("certificate", |case, _| {
        let Ok(proof) = serde_json::from_str::<Certificate>(&case.text()) else { return false };
        let printed = serde_json::to_string(&proof).unwrap();
        assert_eq!(serde_json::from_str::<Certificate>(&printed).unwrap(), proof);
        // All that `certify` does, for as long as there is time for.
        certify_within(&proof, 100_000_000).is_ok()
    }));
}
