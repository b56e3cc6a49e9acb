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

/// Rows of a metric: labels and value.
type Rows = Vec<(String, f64)>;

/// Metrics, each with its help and type; one without a row is left out.
struct Metrics(String);

impl Metrics {
    fn add(&mut self, name: &str, kind: &str, help: &str, rows: Rows) {
        if !rows.is_empty() {
            let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        for (labels, value) in rows {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    /// One without labels.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: Option<f64>) {
        self.add(name, kind, help, value.map(|value| (String::new(), value)).into_iter().collect());
    }
}

/// All metrics of a run.
pub(super) fn text(shared: &View) -> String {
    let (now, mut out) = (shared.now(), Metrics(String::new()));
    let (steps, samples) = (Some(now.steps as f64), Some(now.samples as f64));
    out.one("dahl_steps_total", "counter", "Training steps of this session.", steps);
    out.one("dahl_samples_total", "counter", "Training samples of this session.", samples);
    let epochs = Some(now.epochs.len() as f64);
    out.one("dahl_epoch", "gauge", "Epochs that have ended.", epochs);
    out.one("dahl_loss", "gauge", "Mean loss of the last step.", now.losses.last().copied());
    let accuracy = now.epochs.last().and_then(EpochMetrics::test_accuracy);
    out.one("dahl_test_accuracy", "gauge", "Test accuracy of the last epoch.", accuracy);
    activity(shared, &mut out);
    energy(shared, &mut out);
    let resident = dahl::native::resident_bytes().map(|bytes| bytes as f64);
    out.one("dahl_resident_bytes", "gauge", "Memory of the process.", resident);
    out.0
}

/// Time of the workers by state, and calls by codelet.
fn activity(shared: &View, out: &mut Metrics) {
    let mut rows = Vec::new();
    for (w, worker) in shared.metered.counters().activity().workers.iter().enumerate() {
        for (state, nanos) in
            [("busy", worker.busy), ("spinning", worker.spinning), ("waiting", worker.parked)]
        {
            rows.push((format!("{{worker=\"{w}\",state=\"{state}\"}}"), nanos as f64 * 1e-9));
        }
    }
    out.add("dahl_worker_seconds_total", "counter", "Time of the workers by state.", rows);
    let mut codelets: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for shape in shared.metered.counters().shapes().iter().filter(|shape| shape.calls > 0) {
        let row = codelets.entry(format!("{{codelet=\"{}\"}}", escaped(&shape.codelet)));
        let row = row.or_default();
        *row = (row.0 + shape.calls as f64, row.1 + shape.nanos as f64 * 1e-9);
    }
    let of = |value: fn(&(f64, f64)) -> f64| -> Rows {
        codelets.iter().map(|(labels, row)| (labels.clone(), value(row))).collect()
    };
    out.add("dahl_codelet_calls_total", "counter", "Calls by codelet.", of(|row| row.0));
    out.add("dahl_codelet_seconds_total", "counter", "Time by codelet.", of(|row| row.1));
}

/// Measured and modelled joules.
fn energy(shared: &View, out: &mut Metrics) {
    let totals = shared.metered.totals();
    let of_meters = |value: fn(&Total) -> f64| -> Rows {
        let row = |total: &Total| {
            let (name, source) = (escaped(&total.name), escaped(&total.source.to_string()));
            let covers = serde_json::to_value(total.covers).unwrap_or_default();
            let covers = covers.as_str().unwrap_or_default().to_owned();
            let labels = format!("{{domain=\"{name}\",source=\"{source}\",covers=\"{covers}\"}}");
            (labels, value(total))
        };
        totals.iter().map(row).collect()
    };
    let help = "Measured energy since the meters were opened; packages include their parts.";
    out.add("dahl_measured_joules_total", "counter", help, of_meters(|total| total.joules));
    let help = "Time that the meters missed.";
    out.add("dahl_measured_missed_seconds_total", "counter", help, of_meters(|t| t.missed));
    let mut rows = Vec::new();
    for energy in Energy::modelled(&shared.record()) {
        let [low, high] = energy.total.interval;
        let source = escaped(&energy.total.source);
        for (bound, joules) in [("value", energy.total.joules), ("low", low), ("high", high)] {
            rows.push((format!("{{source=\"{source}\",bound=\"{bound}\"}}"), joules));
        }
    }
    out.add("dahl_modelled_joules", "gauge", "Modelled energy of the run, with bounds.", rows);
}
