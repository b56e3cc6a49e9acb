//! What a run took: joules a sample, an epoch, to an accuracy; what that means for the
//! climate.

use super::record::RunRecord;
use crate::meter::{Modelled, Total, widest};
use serde::{Deserialize, Serialize};

/// What an epoch took, or what was left when a session ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyLine {
    /// The epoch, from 1; none for the rest of a session.
    pub epoch: Option<u64>,
    /// Its time from end to end, judging included.
    pub seconds: f64,
    /// Training samples that were learned from.
    pub samples: u64,
    /// What meters read, each with its source.
    #[serde(default)]
    pub measured: Vec<Total>,
    /// How often they were read, in seconds.
    #[serde(default)]
    pub interval: f64,
    /// The measured watts of the machine before the first step, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_watts: Option<f64>,
    /// What the platform's watts say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modelled: Option<Modelled>,
}

/// An amount of energy with where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Joules.
    pub joules: f64,
    /// `measured by …` or `modelled from …`, and how often or from which watts.
    pub source: String,
    /// Why it is not all, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
}

impl Figure {
    /// The measured figure of a line that says most.
    pub fn measured(line: &EnergyLine) -> Option<Self> {
        let (joules, of) = widest(&line.measured)?;
        let names: Vec<&str> = of.iter().map(|total| total.name.as_str()).collect();
        let mut sources: Vec<String> = of.iter().map(|total| total.source.to_string()).collect();
        sources.dedup();
        let missed = of.iter().filter(|total| total.is_partial());
        let partial: Vec<String> = missed
            .map(|total| {
                let why = total.why.as_deref().unwrap_or("not read");
                format!("{}: {:.1} s missed, {why}", total.name, total.missed)
            })
            .collect();
        Some(Self {
            joules: joules.0,
            source: format!(
                "measured by {} ({}), every {} s",
                sources.join(", "),
                names.join(", "),
                line.interval
            ),
            partial: (!partial.is_empty()).then(|| partial.join("; ")),
        })
    }

    /// The modelled figure of a line.
    pub fn modelled(line: &EnergyLine) -> Option<Self> {
        let of = line.modelled.as_ref()?;
        let total = of.total();
        Some(Self {
            joules: total.value,
            source: format!(
                "modelled from {:?} (watts: {}), {:.4} to {:.4} J",
                of.platform, of.watts, total.low, total.high
            ),
            partial: None,
        })
    }
}

/// The energy of a run by one kind of figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// All sessions together.
    pub total: Figure,
    /// The time that it was spent in, in seconds.
    pub seconds: f64,
    /// Joules a training sample.
    pub per_sample: f64,
    /// Joules of each epoch: the last time that it was run.
    pub epochs: Vec<(u64, f64)>,
    /// Joules by cause.
    pub causes: Vec<(String, f64)>,
    /// Energy times delay, in joule-seconds.
    pub edp: f64,
    /// Test accuracies and the joules after which they were reached first.
    pub to_accuracy: Vec<(f64, f64)>,
}

/// Accuracies that people ask for.
const ACCURACIES: [f64; 8] = [0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99];

impl Energy {
    /// What was measured, where all of the run was.
    pub fn measured(run: &RunRecord) -> Option<Self> {
        let mut causes = Vec::new();
        let energy = Self::of(run, Figure::measured)?;
        let known: Option<f64> =
            run.energy.iter().map(|line| Some(line.idle_watts? * line.seconds)).sum();
        if let Some(idle) = known {
            let idle = idle.min(energy.total.joules);
            causes.push(("base and idle (measured before the run)".to_owned(), idle));
            causes.push(("busy".to_owned(), energy.total.joules - idle));
        }
        Some(Self { causes, ..energy })
    }

    /// What the platform says.
    pub fn modelled(run: &RunRecord) -> Option<Self> {
        let energy = Self::of(run, Figure::modelled)?;
        let all = || run.energy.iter().filter_map(|line| line.modelled.as_ref());
        let sum = |of: fn(&Modelled) -> f64| all().map(of).sum::<f64>();
        let mut causes = vec![
            ("base".to_owned(), sum(|m| m.base.value)),
            ("idle".to_owned(), sum(|m| m.idle.value)),
            ("spinning".to_owned(), sum(|m| m.spinning.value)),
        ];
        let workers = all().map(|m| m.busy.len()).max().unwrap_or(0);
        for w in 0..workers {
            let busy = all().filter_map(|m| m.busy.get(w)).map(|part| part.value).sum();
            causes.push((format!("busy, worker {w}"), busy));
        }
        Some(Self { causes, ..energy })
    }

    fn of(run: &RunRecord, figure: fn(&EnergyLine) -> Option<Figure>) -> Option<Self> {
        let figures: Vec<(&EnergyLine, Option<Figure>)> =
            run.energy.iter().map(|line| (line, figure(line))).collect();
        let known = || figures.iter().filter_map(|(line, f)| Some((*line, f.as_ref()?)));
        let source = known().next()?.1.source.clone();
        let joules: f64 = known().map(|(_, f)| f.joules).sum();
        let seconds: f64 = run.energy.iter().map(|line| line.seconds).sum();
        let samples: u64 = known().map(|(line, _)| line.samples).sum();
        let missing = figures.iter().filter(|(_, f)| f.is_none()).count();
        let mut why: Vec<String> = known().filter_map(|(_, f)| f.partial.clone()).collect();
        why.dedup();
        if missing > 0 {
            why.insert(0, format!("{missing} of {} parts have no figure", figures.len()));
        }
        let source = match source.split_once("), ") {
            // The interval of a part is not that of the sum.
            Some((head, _)) if source.starts_with("modelled") => {
                let total =
                    run.energy.iter().filter_map(|l| l.modelled.as_ref()).map(Modelled::total);
                let total: crate::meter::Part = total.sum();
                format!("{head}), {:.4} to {:.4} J", total.low, total.high)
            }
            _ => source,
        };
        let mut epochs: Vec<(u64, f64)> = Vec::new();
        let mut spent = 0.0;
        let mut to_accuracy: Vec<(f64, f64)> = Vec::new();
        for (line, f) in &figures {
            let Some(f) = f else { continue };
            spent += f.joules;
            let Some(epoch) = line.epoch else { continue };
            epochs.retain(|(e, _)| *e != epoch);
            epochs.push((epoch, f.joules));
            let record = run.epochs.iter().find(|e| e["epoch"].as_u64() == Some(epoch));
            let accuracy = record.and_then(|e| e["test_accuracy"].as_f64()).unwrap_or(0.0);
            for wanted in ACCURACIES {
                if accuracy >= wanted && to_accuracy.iter().all(|(a, _)| *a != wanted) {
                    to_accuracy.push((wanted, spent));
                }
            }
        }
        Some(Self {
            total: Figure { joules, source, partial: (!why.is_empty()).then(|| why.join("; ")) },
            seconds,
            per_sample: if samples > 0 { joules / samples as f64 } else { 0.0 },
            epochs,
            causes: Vec::new(),
            edp: joules * seconds,
            to_accuracy,
        })
    }

    /// Grams of CO2 at a grid's intensity in grams a kilowatt-hour.
    pub fn co2(&self, grams_per_kwh: f64) -> f64 {
        self.total.joules / 3.6e6 * grams_per_kwh
    }

    /// As text, a line a figure; `grid` in grams of CO2 a kilowatt-hour.
    pub fn to_text(&self, grid: Option<f64>) -> String {
        use std::fmt::Write as _;
        let joules = |j: f64| crate::units::Joules(j).to_string();
        let mut text = format!("energy {}: {}\n", joules(self.total.joules), self.total.source);
        if let Some(why) = &self.total.partial {
            let _ = writeln!(text, "  partial: {why}");
        }
        let whole: f64 = self.causes.iter().map(|cause| cause.1).sum();
        for (cause, part) in &self.causes {
            let share = 100.0 * part / whole.max(f64::MIN_POSITIVE);
            let _ = writeln!(text, "  {:>10}  {share:5.1} %  {cause}", joules(*part));
        }
        let _ = writeln!(text, "  a sample {}, EDP {:.3} J s", joules(self.per_sample), self.edp);
        let epochs: Vec<String> =
            self.epochs.iter().map(|(epoch, j)| format!("{epoch}: {}", joules(*j))).collect();
        let _ = writeln!(text, "  by epoch {}", epochs.join(", "));
        for (accuracy, spent) in &self.to_accuracy {
            let _ = writeln!(text, "  to {:.0} % of the test {}", 100.0 * accuracy, joules(*spent));
        }
        if let Some(grid) = grid {
            let grams = self.co2(grid);
            let _ = writeln!(text, "  {grams:.4} g of CO2 at {grid} g/kWh");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::{Covers, Part, Source};
    use serde_json::json;

    fn total(joules: f64, missed: f64) -> Total {
        Total {
            name: "package-0".to_owned(),
            source: Source::Rapl,
            covers: Covers::Package,
            joules,
            seconds: 1.0,
            missed,
            why: (missed > 0.0).then(|| "it was gone".to_owned()),
        }
    }

    fn line(epoch: Option<u64>, measured: Vec<Total>) -> EnergyLine {
        let part = |value: f64| Part { value, low: value / 2.0, high: value * 2.0 };
        let modelled = Modelled {
            platform: "p".to_owned(),
            watts: "guess".to_owned(),
            seconds: 1.0,
            base: part(4.0),
            idle: part(1.0),
            spinning: part(0.0),
            busy: vec![part(2.0), part(1.0)],
        };
        EnergyLine {
            epoch,
            seconds: 1.0,
            samples: 10,
            measured,
            interval: 0.1,
            idle_watts: None,
            modelled: Some(modelled),
        }
    }

    fn run(energy: Vec<EnergyLine>) -> RunRecord {
        let epoch = |epoch: u64, accuracy: f64| json!({"epoch": epoch, "test_accuracy": accuracy});
        RunRecord { energy, epochs: vec![epoch(1, 0.6), epoch(2, 0.92)], ..RunRecord::default() }
    }

    #[test]
    fn figures_are_by_sample_epoch_and_accuracy() {
        let lines = [Some(1), Some(2), None].map(|e| line(e, vec![total(5.0, 0.0)]));
        let run = run(lines.to_vec());
        let measured = Energy::measured(&run).unwrap();
        assert_eq!(measured.total.joules, 15.0);
        assert_eq!(measured.total.source, "measured by RAPL (package-0), every 0.1 s");
        assert_eq!(measured.total.partial, None);
        assert_eq!((measured.per_sample, measured.edp), (0.5, 45.0));
        assert_eq!(measured.epochs, [(1, 5.0), (2, 5.0)]);
        assert_eq!(measured.to_accuracy, [(0.5, 5.0), (0.7, 10.0), (0.8, 10.0), (0.9, 10.0)]);
        assert!((measured.co2(360.0) - 0.0015).abs() < 1e-12);
        let modelled = Energy::modelled(&run).unwrap();
        assert_eq!(modelled.total.joules, 24.0);
        assert!(modelled.total.source.ends_with("(watts: guess), 12.0000 to 48.0000 J"));
        let causes: f64 = modelled.causes.iter().map(|cause| cause.1).sum();
        assert_eq!((modelled.causes.len(), causes), (5, 24.0));
    }

    #[test]
    fn what_is_missing_is_said() {
        let run = run(vec![line(Some(1), vec![total(5.0, 0.25)]), line(Some(2), Vec::new())]);
        let partial = Energy::measured(&run).unwrap().total.partial.unwrap();
        assert!(partial.contains("1 of 2 parts have no figure"), "{partial}");
        assert!(partial.contains("package-0: 0.2 s missed, it was gone"), "{partial}");
        let nothing = RunRecord { energy: vec![line(None, Vec::new())], ..RunRecord::default() };
        assert!(Energy::measured(&nothing).is_none(), "nothing modelled takes its place");
    }

    #[test]
    fn an_epoch_that_was_run_twice_is_paid_twice() {
        let run =
            run(vec![line(Some(1), vec![total(5.0, 0.0)]), line(Some(1), vec![total(7.0, 0.0)])]);
        let energy = Energy::measured(&run).unwrap();
        assert_eq!((energy.total.joules, &energy.epochs[..]), (12.0, &[(1, 7.0)][..]));
    }

    #[test]
    fn base_and_busy_are_apart_where_rest_was_measured() {
        let idle = EnergyLine { idle_watts: Some(2.0), ..line(Some(1), vec![total(5.0, 0.0)]) };
        let energy = Energy::measured(&run(vec![idle])).unwrap();
        let causes: Vec<f64> = energy.causes.iter().map(|cause| cause.1).collect();
        assert_eq!(causes, [2.0, 3.0]);
    }
}
