//! The run in Prometheus' text format.

use dahl::meter::Total;
use dahl::report::Energy;
use dahl::run::EpochMetrics;
use dahl::run::View;
use std::collections::BTreeMap;
use std::fmt::Write as _;

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All metrics, each with its help and type.
pub(super) fn text(shared: &View) -> String {
    let (now, activity) = (shared.now(), shared.metered.counters().activity());
    let mut out = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, rows: &[(String, f64)]| {
        if rows.is_empty() {
            return;
        }
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(out, "{name}{labels} {value}");
        }
    };
    let one = |value: f64| vec![(String::new(), value)];
    metric(
        "dahl_steps_total",
        "counter",
        "Training steps of this session.",
        &one(now.steps as f64),
    );
    metric(
        "dahl_samples_total",
        "counter",
        "Training samples of this session.",
        &one(now.samples as f64),
    );
    metric("dahl_epoch", "gauge", "Epochs that have ended.", &one(now.epochs.len() as f64));
    if let Some(loss) = now.losses.last() {
        metric("dahl_loss", "gauge", "Mean loss of the last step.", &one(*loss));
    }
    if let Some(accuracy) = now.epochs.last().and_then(EpochMetrics::test_accuracy) {
        metric("dahl_test_accuracy", "gauge", "Of the last epoch.", &one(accuracy));
    }
    let mut rows = Vec::new();
    for (w, worker) in activity.workers.iter().enumerate() {
        for (state, nanos) in
            [("busy", worker.busy), ("spinning", worker.spinning), ("waiting", worker.parked)]
        {
            let labels = format!("{{worker=\"{w}\",state=\"{state}\"}}");
            rows.push((labels, nanos as f64 * 1e-9));
        }
    }
    metric("dahl_worker_seconds_total", "counter", "What workers did.", &rows);
    let mut codelets: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for shape in shared.metered.counters().shapes().iter().filter(|shape| shape.calls > 0) {
        let row = codelets.entry(format!("{{codelet=\"{}\"}}", escaped(&shape.codelet)));
        let row = row.or_default();
        *row = (row.0 + shape.calls as f64, row.1 + shape.nanos as f64 * 1e-9);
    }
    let calls: Vec<(String, f64)> = codelets.iter().map(|(l, row)| (l.clone(), row.0)).collect();
    let times: Vec<(String, f64)> = codelets.iter().map(|(l, row)| (l.clone(), row.1)).collect();
    metric("dahl_codelet_calls_total", "counter", "Calls by codelet.", &calls);
    metric("dahl_codelet_seconds_total", "counter", "Time by codelet.", &times);
    let totals = shared.metered.totals();
    let of_meters = |value: fn(&Total) -> f64| -> Vec<(String, f64)> {
        let row = |total: &Total| {
            let (name, source) = (escaped(&total.name), escaped(&total.source.to_string()));
            let covers = serde_json::to_value(total.covers).unwrap_or_default();
            let covers = covers.as_str().unwrap_or_default().to_owned();
            let labels = format!("{{domain=\"{name}\",source=\"{source}\",covers=\"{covers}\"}}");
            (labels, value(total))
        };
        totals.iter().map(row).collect()
    };
    let help = "Measured since meters were opened; parts are in their packages.";
    metric("dahl_measured_joules_total", "counter", help, &of_meters(|total| total.joules));
    let help = "Time that is not in the measured energy.";
    metric("dahl_measured_missed_seconds_total", "counter", help, &of_meters(|t| t.missed));
    let mut rows = Vec::new();
    for energy in Energy::modelled(&shared.record()) {
        let [low, high] = energy.total.interval;
        let source = escaped(&energy.total.source);
        for (bound, joules) in [("value", energy.total.joules), ("low", low), ("high", high)] {
            rows.push((format!("{{source=\"{source}\",bound=\"{bound}\"}}"), joules));
        }
    }
    let help = "Modelled energy of the run, and what it lies in.";
    metric("dahl_modelled_joules", "gauge", help, &rows);
    if let Some(bytes) = dahl::native::resident_bytes() {
        metric("dahl_resident_bytes", "gauge", "Memory of the process.", &one(bytes as f64));
    }
    out
}
