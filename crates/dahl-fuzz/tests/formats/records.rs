//! What runs leave behind: traces, calibrations, run directories.

use crate::{TEXT, repair, text};
use dahl::perf::PerfModel;
use dahl::report::{Detail, Energy, Mode, Stats, compare, export, page, runs_json};
use dahl::run::RunRecord;
use dahl::trace::Trace;
use dahl::train::Checkpoints;
use dahl_fuzz::{Bound, Target, fuzz};
use std::io::sink;

/// A trace may have 65,536 workers, and statistics of each.
const WORKERS: Target = Target {
    peak: Bound { times: 300, plus: 64 << 20 },
    total: Bound { times: 4000, plus: 256 << 20 },
    ..TEXT
};

#[test]
fn fuzz_trace() {
    let target = text("trace", |case, place| {
        let Ok(trace) = Trace::parse(&case.text(), place) else { return false };
        assert_eq!(Trace::parse(&trace.to_text(), place).unwrap(), trace);
        assert!(!Stats::of_trace(&trace).to_text(Detail::Shapes).is_empty());
        export::csv(&trace, &mut sink()).unwrap();
        export::dot(&trace, &mut sink()).unwrap();
        export::paje(&trace, export::Watts::default(), &mut sink()).unwrap();
        export::perfetto(&trace, export::Watts::default(), &mut sink()).unwrap();
        true
    });
    fuzz!(Target { peak: WORKERS.peak, total: WORKERS.total, ..target });
}

#[test]
fn fuzz_calibration() {
    fuzz!(text("calibration", |case, place| {
        let Ok(model) = PerfModel::parse(&case.text(), place) else { return false };
        assert_eq!(PerfModel::parse(&model.to_text(), place).unwrap().to_text(), model.to_text());
        let _ = model.summaries();
        true
    }));
}

#[test]
fn fuzz_run_directory() {
    let target = text("run_directory", |_, place| {
        let checkpoint = Checkpoints::newest_whole(&place.join("checkpoints"));
        let Ok(run) = RunRecord::read(place) else { return false };
        let whole = run.problems.is_empty() && matches!(checkpoint, Ok(Some(_)));
        let energies = [Energy::measured(&run), Energy::modelled(&run)];
        energies.iter().flatten().for_each(|energy| drop(energy.to_text(Some(380.0))));
        if let Some(counted) = &run.counted {
            let stats = Stats::of_counters(&counted.shapes, &counted.activity, counted.steps);
            let _ = stats.to_text(Detail::Shapes);
        }
        let runs = [run.clone(), run];
        let _ = compare(&runs[0], &runs[1]).to_text();
        assert!(page(&runs_json(&runs, None), Mode::File).contains("</html>"));
        whole
    });
    let repair = repair::run_directory;
    // A report is made of each.
    fuzz!(Target { few: 50, peak: WORKERS.peak, total: WORKERS.total, repair, ..target });
}
