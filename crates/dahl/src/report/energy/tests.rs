use super::*;
use crate::meter::{Covers, Source};
use serde_json::json;

fn total(joules: f64, missed: f64) -> Total {
    Total {
        name: "package-0".to_owned(),
        source: Source::Rapl,
        covers: Covers::Package,
        joules,
        seconds: 1.0 - missed,
        missed,
        why: (missed > 0.0).then(|| "it was gone".to_owned()),
    }
}

fn wall(joules: f64) -> Total {
    let (name, source, covers) = ("command".to_owned(), Source::Command, Covers::Machine);
    Total { name, source, covers, ..total(joules, 0.0) }
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
        modelled: Some(modelled),
        ..EnergyLine::default()
    }
}

fn run(energy: Vec<EnergyLine>) -> RunRecord {
    let epoch = |epoch: u64, accuracy: f64| EpochMetrics {
        epoch,
        evaluated: [("test_accuracy".to_owned(), accuracy)].into(),
        ..EpochMetrics::default()
    };
    RunRecord { energy, epochs: vec![epoch(1, 0.6), epoch(2, 0.92)], ..RunRecord::default() }
}

fn measured(run: &RunRecord) -> Energy {
    Energy::measured(run).remove(0)
}

#[test]
fn figures_are_by_sample_epoch_and_accuracy() {
    let lines = [Some(1), Some(2), None].map(|e| line(e, vec![total(5.0, 0.0)]));
    let run = run(lines.to_vec());
    let found = measured(&run);
    assert_eq!(found.total.joules, 15.0);
    assert_eq!(found.total.source, "measured by RAPL (package-0), every 0.1 s");
    assert_eq!(found.total.partial, None);
    assert_eq!((found.per_sample, found.edp), (0.5, 45.0));
    assert_eq!(found.epochs, [(1, 5.0), (2, 5.0)]);
    assert_eq!(found.to_accuracy, [(0.5, 5.0), (0.7, 10.0), (0.8, 10.0), (0.9, 10.0)]);
    assert!((found.co2(360.0) - 0.0015).abs() < 1e-12);
    let modelled = Energy::modelled(&run).remove(0);
    assert_eq!(modelled.total.joules, 24.0);
    assert!(modelled.total.source.ends_with(", with estimated power values"));
    assert!(modelled.headline().contains(" (12–48 J), modelled from "), "{}", modelled.headline());
    let causes: f64 = modelled.causes.iter().map(|cause| cause.energy.value).sum();
    assert_eq!((modelled.causes.len(), causes), (5, 24.0));
}

#[test]
fn what_is_missing_is_said_and_summed() {
    let missed = || line(Some(1), vec![total(5.0, 0.25)]);
    let run = run(vec![missed(), missed(), line(Some(2), Vec::new())]);
    let partial = measured(&run).total.partial.unwrap();
    assert!(partial.contains("1.0 s of 3.0 s have no reading of this source"), "{partial}");
    assert!(partial.contains("package-0: 0.5 s of 2.0 s missed, it was gone"), "{partial}");
    let missed = Energy::missed(&run);
    assert_eq!(missed, ["RAPL (package-0): 0.5 s of 2.0 s missed, it was gone"]);
    let nothing = RunRecord { energy: vec![line(None, Vec::new())], ..RunRecord::default() };
    assert!(Energy::measured(&nothing).is_empty(), "nothing modelled takes its place");
}

#[test]
fn joules_of_different_meters_are_not_added() {
    let sessions = [vec![total(50.0, 0.0)], vec![total(60.0, 0.0), wall(95.0)]];
    let run = run(sessions.map(|measured| line(Some(1), measured)).to_vec());
    let found = Energy::measured(&run);
    let shown: Vec<(f64, &str)> =
        found.iter().map(|e| (e.total.joules, &e.total.source[..16])).collect();
    // The wall's has not seen half of the run.
    assert_eq!(shown, [(110.0, "measured by RAPL"), (95.0, "measured by mete")]);
    let partial = found[1].total.partial.as_ref().unwrap();
    assert!(partial.contains("1.0 s of 2.0 s have no reading of this source"), "{partial}");
}

#[test]
fn joules_of_different_platforms_are_not_added() {
    let mut other = line(Some(2), Vec::new());
    other.modelled.as_mut().unwrap().platform = "q".to_owned();
    let found = Energy::modelled(&run(vec![line(Some(1), Vec::new()), other]));
    let shown: Vec<f64> = found.iter().map(|e| e.total.joules).collect();
    assert_eq!(shown, [8.0, 8.0]);
    assert!(found.iter().all(|e| e.total.partial.is_some()));
}

#[test]
fn a_dead_meter_has_no_figure() {
    let dead = Total { seconds: 0.0, missed: 1.0, joules: 0.0, ..wall(0.0) };
    let run = run(vec![line(Some(1), vec![total(5.0, 0.0), dead])]);
    let found = Energy::measured(&run);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].total.joules, &found[0].total.partial), (5.0, &None));
    assert_eq!(
        Energy::silent(&run),
        ["meter-cmd (command) gave no readings: the run was too short"]
    );
    assert!(Energy::missed(&run).is_empty(), "it is reported once");
}

#[test]
fn an_epoch_is_all_that_was_spent_on_it() {
    let begun = EnergyLine { unfinished: true, ..line(Some(1), vec![total(5.0, 0.0)]) };
    let run = run(vec![begun, line(Some(1), vec![total(7.0, 0.0)])]);
    let energy = measured(&run);
    assert_eq!((energy.total.joules, &energy.epochs[..]), (12.0, &[(1, 12.0)][..]));
    assert_eq!(energy.to_accuracy, [(0.5, 12.0)], "not before it was evaluated");
}

#[test]
fn a_session_that_was_killed_makes_the_sum_partial() {
    let of = |session, last| EnergyLine { session, last, ..line(Some(1), vec![total(5.0, 0.0)]) };
    let sessions = vec![json!({}), json!({})];
    let killed = RunRecord { sessions: sessions.clone(), ..run(vec![of(1, false), of(2, true)]) };
    let partial = measured(&killed).total.partial.unwrap();
    assert_eq!(partial, "session 1 has no record of its end");
    let whole = RunRecord { sessions, ..run(vec![of(1, true), of(2, true)]) };
    assert_eq!(measured(&whole).total.partial, None);
}

#[test]
fn base_and_busy_are_apart_where_rest_was_measured() {
    let causes = |idle: Total, joules: f64| {
        let measured = vec![total(joules, 0.0)];
        let idle = EnergyLine { idle: vec![idle], ..line(Some(1), measured) };
        let mut found = Energy::measured(&run(vec![idle]));
        let causes = found.remove(0).causes;
        causes.into_iter().map(|c| (c.energy.value, c.name)).collect::<Vec<_>>()
    };
    let found = causes(total(2.0, 0.0), 5.0);
    assert_eq!(found.iter().map(|c| c.0).collect::<Vec<_>>(), [2.0, 3.0]);
    // 30 W that were read for 0.25 s of the second before the run are 30 W.
    let found = causes(total(7.5, 0.75), 50.0);
    assert_eq!(found.iter().map(|c| c.0).collect::<Vec<_>>(), [30.0, 20.0]);
    assert!(found[0].1.contains("0.8 s were missed"), "{found:?}");
    // More at rest than in the run is not hidden.
    let found = causes(total(9.0, 0.0), 5.0);
    assert_eq!(found[1].0, -4.0);
    assert!(found[1].1.contains("less than idle"), "{found:?}");
    assert!(causes(total(0.0, 1.0), 5.0).is_empty(), "nothing was read at rest");
}

#[test]
fn printed_shares_are_a_whole() {
    let mut odd = line(Some(1), Vec::new());
    let part = |value: f64| Part { value, low: value, high: value };
    let of = odd.modelled.as_mut().unwrap();
    (of.base, of.idle, of.spinning) = (part(1.0), part(1.0), part(1.0));
    of.busy = vec![part(1.0), part(1.0), part(1.0)];
    let text = Energy::modelled(&run(vec![odd])).remove(0).to_text(None);
    let shares = text.lines().filter_map(|line| line.split_once(" %  ")?.0.rsplit(' ').next());
    let tenths: f64 = shares.map(|share| (10.0 * share.parse::<f64>().unwrap()).round()).sum();
    assert_eq!(tenths, 1000.0, "{text}");
}

#[test]
fn many_epochs_are_told_in_short() {
    let shown = |epochs: u64| {
        let lines = (1..=epochs).map(|epoch| line(Some(epoch), vec![total(5.0, 0.0)]));
        let text = measured(&run(lines.collect())).to_text(None);
        text.lines().find(|line| line.contains("by epoch")).unwrap().to_owned()
    };
    assert!(shown(10).ends_with("10: 5 J"), "{}", shown(10));
    assert!(shown(60).ends_with("10: 5 J, … and 50 more"), "{}", shown(60));
}

#[test]
fn a_counter_that_does_not_move_has_not_measured() {
    let still = Total { name: "psys".to_owned(), covers: Covers::Machine, ..total(0.0, 0.0) };
    let run = run(vec![line(Some(1), vec![still.clone(), total(5.0, 0.0)]); 2]);
    let found = Energy::measured(&run);
    // Though the board is more than its package.
    assert_eq!((found[0].total.joules, &found[0].total.partial), (10.0, &None));
    let partial = found[1].total.partial.as_deref();
    assert_eq!(partial, Some("psys: the counter did not move in 2.0 s"));
    assert_eq!(Energy::missed(&run), ["RAPL (psys): the counter did not move in 2.0 s"]);
}
