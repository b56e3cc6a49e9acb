//! Reports: what traces, statistics, exports and pages say is the same to the nanosecond.

use crate::support::feed;
use dahl::DType;
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::native::Native;
use dahl::planner::Grain;
use dahl::platform::Platform;
use dahl::report::export::{self, Watts};
use dahl::report::{Calls, Mode, Stats, page, runs_json};
use dahl::run::{Predicted, RunRecord};
use dahl::trace::{CodeletShape, Event, Header, ProgramHeader, TaskWork, Trace, VERSION};
use dahl::train::Trainer;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

fn traced() -> (Trainer, Trace) {
    let spec = TrainSpec::new(8, DType::F32, Optimizer::sgd(0.1));
    let engine = Native { record: true, ..Native::default() };
    let model = Model::named("seed-cnn").unwrap();
    let mut trainer = Trainer::new(&model, &spec, Grain::for_workers(2), &engine).unwrap();
    for seed in 0..12 {
        feed(&mut trainer, 8, seed).unwrap();
    }
    let trace = trainer.session().take_trace();
    (trainer, trace)
}

/// Two workers, two tasks of two and one calls, by hand.
fn by_hand() -> Trace {
    let header = Header {
        dahl_trace: VERSION,
        engine: "native".to_owned(),
        scheduling: "static".to_owned(),
        workers: 2,
        codelets: vec!["conv2d.gemm".to_owned(), "relu.plain".to_owned()],
        cells: vec![
            CodeletShape { codelet: 0, shape: "f32[2]".to_owned(), flops: 1000, bytes: 80 },
            CodeletShape { codelet: 1, shape: "f32[2]".to_owned(), flops: 10, bytes: 8 },
        ],
        layers: vec!["features.0".to_owned(), "features.1".to_owned()],
        programs: vec![ProgramHeader {
            name: "train 2".to_owned(),
            tasks: vec!["t0".to_owned(), "t1".to_owned()],
            work: vec![
                TaskWork { calls: vec![(0, 0), (1, 1)], after: vec![] },
                TaskWork { calls: vec![(0, 0)], after: vec![0] },
            ],
            ..ProgramHeader::default()
        }],
        ..Header::default()
    };
    let call = |task, codelet, worker, from, to| Event::Call {
        step: 0,
        program: 0,
        task,
        codelet,
        worker,
        from,
        to,
    };
    let events = vec![
        Event::Submit { step: 0, program: 0, at: 100 },
        call(0, 0, 0, 120, 220),
        Event::Wait { worker: 1, from: 130, to: 240, parked: false },
        call(0, 1, 0, 220, 240),
        call(1, 0, 1, 250, 400),
        Event::Preempt { worker: 1, from: 130, to: 400, lost: 30 },
    ];
    Trace { header, events }
}

#[test]
fn a_trace_by_hand_is_understood() {
    let trace = by_hand();
    let stats = Stats::of_trace(&trace);
    // From the submission at 100 to the end at 400.
    assert_eq!((stats.window, stats.steps, stats.busy()), (300, 1, 270));
    assert_eq!(stats.efficiency(), 270.0 / 600.0);
    let first = &stats.codelets[0];
    assert_eq!((first.codelet.as_str(), first.calls, first.total), ("conv2d.gemm", 2, 250));
    assert_eq!((first.p50, first.p90, first.mean), (100, 150, 125.0));
    assert_eq!(first.gflops(), Some(2000.0 / 250.0));
    let [zero, one] = [stats.workers[0], stats.workers[1]];
    // Worker 0: 20 until its first call, and nothing more to do from 240 on.
    assert_eq!((zero.busy, zero.overhead, zero.no_work), (120, 20, 160));
    // Worker 1: 30 before it waited, 110 of spinning, 10 from there to its call.
    assert_eq!((one.busy, one.spinning, one.overhead), (150, 110, 40));
    let path = &stats.paths[0];
    assert_eq!((path.path, path.span, path.work), (270, 280, 270));
    assert_eq!(path.tasks, [("t0".to_owned(), 120), ("t1".to_owned(), 150)]);
    let gap = &stats.gaps[0];
    assert_eq!((gap.worker, gap.from, gap.to, gap.cause.as_str()), (1, 100, 250, "spinning"));
    assert_eq!((gap.ended_by.as_str(), gap.then.as_str()), ("t0 on worker 0", "t1"));
    // Text and page count from the first event.
    assert!(stats.to_string().contains("worker 1 at 0 ns, step 0, spinning"), "{stats}");
    assert!(stats.to_string().starts_with("steps 0 to 0 (1 of \"train 2\") in 300"), "{stats}");
    let calls = Calls::of(&trace);
    let warm: Vec<bool> = calls.all.iter().map(|call| call.warm).collect();
    assert_eq!(warm, [false, true, false], "who knows whose, its own, the other worker's");
    assert_eq!(calls.all[2].lost, 30);
    assert!(calls.all.iter().all(|call| call.neighbours == 0.0));
}

#[test]
fn joules_of_layers_are_those_of_the_calls_in_the_trace() {
    let platform = platform();
    let unit = &platform.nodes[0].units[0];
    let watts = unit.busy_watts.value - unit.idle_watts.value;
    // Whatever other sessions took: counters and energies of the run are not asked.
    let run = RunRecord { trace: Some(by_hand()), ..RunRecord::default() };
    let data = runs_json(&[run], Some(&platform));
    let layers = data["all"][0]["layers"].as_array().unwrap();
    let sum: f64 = layers.iter().map(|layer| layer[3].as_f64().unwrap()).sum();
    assert!((sum - watts * 270e-9).abs() < 1e-15, "{layers:?}");
}

#[test]
fn a_prediction_is_compared_with_steps_of_its_program() {
    let mut trace = by_hand();
    // A program of judging runs the same codelet once.
    let set = ProgramHeader { name: "eval 2".to_owned(), ..trace.header.programs[0].clone() };
    trace.header.programs.push(set);
    let step =
        Event::Call { step: 1, program: 1, task: 0, codelet: 0, worker: 0, from: 500, to: 900 };
    trace.events.push(step);
    let stats = Stats::of_trace(&trace);
    let train = stats.paths.iter().find(|path| path.program == "train 2").unwrap();
    assert_eq!(train.steps, 1);
    assert_eq!(train.times, [("conv2d.gemm".to_owned(), 250), ("relu.plain".to_owned(), 20)]);
    let predicted = Predicted { program: "train 2".to_owned(), ..Predicted::default() };
    let run = RunRecord { trace: Some(trace), predicted: Some(predicted), ..RunRecord::default() };
    let platform = platform();
    let node = &platform.nodes[0];
    let idle: f64 = node.units.iter().map(|u| u.count as f64 * u.idle_watts.value).sum();
    let busy = node.units[0].busy_watts.value - node.units[0].idle_watts.value;
    // 280 ns from the first call to the end of the last, 270 of them calls.
    let expected = (node.base_watts.value + idle) * 280e-9 + busy * 270e-9;
    let data = runs_json(&[run], Some(&platform));
    let found = data["all"][0]["step_joules"].as_f64().unwrap();
    assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
}

#[test]
fn a_simulated_trace_says_so() {
    let mut trace = by_hand();
    trace.header.engine = "simulated".to_owned();
    let text = Stats::of_trace(&trace).to_string();
    assert!(text.contains("from a simulated trace: nothing was measured"), "{text}");
}

#[test]
fn a_trace_that_contradicts_itself_is_still_counted() {
    // The engine's own trace is not parsed, so not checked: nothing may be out of range.
    let mut trace = by_hand();
    let Event::Call { step, program, task, worker, .. } = trace.events[3] else { panic!() };
    for (codelet, from, to) in [(1, 230, 260), (0, 390, 395)] {
        trace.events.push(Event::Call { step, program, task, codelet, worker, from, to });
    }
    trace.events.sort_by_key(Event::start);
    let stats = Stats::of_trace(&trace);
    let calls: u64 = stats.codelets.iter().map(|row| row.calls).sum();
    assert_eq!(calls, 5);
}

#[test]
fn times_agree_to_the_nanosecond_and_shares_are_a_whole() {
    let (_, trace) = traced();
    let stats = Stats::of_trace(&trace);
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for event in &trace.events {
        if let Event::Call { codelet, from, to, .. } = *event {
            *sums.entry(&trace.header.codelets[codelet as usize]).or_default() += to - from;
        }
    }
    for row in &stats.codelets {
        assert_eq!(row.total, sums[row.codelet.as_str()], "{}", row.codelet);
        assert_eq!(row.total, row.shapes.iter().map(|shape| shape.total).sum::<u64>());
    }
    assert_eq!(stats.codelets.len(), sums.len());
    let layers: u64 = stats.layers.iter().map(|layer| layer.2).sum();
    assert_eq!(layers, stats.busy());
    for (w, worker) in stats.workers.iter().enumerate() {
        let parts = [worker.no_work, worker.waiting, worker.transfer, worker.spinning];
        let sum = worker.busy + worker.overhead + parts.iter().sum::<u64>();
        assert_eq!(sum, stats.window, "worker {w}");
    }
    let shares: f64 = stats.codelets.iter().map(|row| row.share).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    for spread in &stats.spreads {
        assert!((spread.parts.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{spread:?}");
    }
    assert_eq!(stats.gaps.len(), 10);
    // The page has the same numbers.
    let run = RunRecord { trace: Some(trace.clone()), ..RunRecord::default() };
    let data = runs_json(&[run], None);
    for (row, shown) in
        stats.codelets.iter().zip(data["all"][0]["stats"]["codelets"].as_array().unwrap())
    {
        assert_eq!(shown["total"].as_u64(), Some(row.total));
    }
    assert_eq!(data["all"][0]["gantt"]["events"].as_u64(), {
        let drawn = |e: &&Event| matches!(e, Event::Call { .. } | Event::Wait { .. });
        Some(trace.events.iter().filter(drawn).count() as u64)
    });
    // So has the table for other tools.
    let mut text = Vec::new();
    export::csv(&trace, &mut text).unwrap();
    let mut table = csv::Reader::from_reader(&text[..]);
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for row in table.records() {
        let row = row.unwrap();
        if &row[0] == "call" {
            *found.entry(row[5].to_owned()).or_default() += row[11].parse::<u64>().unwrap();
        }
    }
    let sums: BTreeMap<String, u64> = sums.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
    assert_eq!(found, sums);
}

fn platform() -> Platform {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../platforms/laptop.toml");
    Platform::read(&path).unwrap()
}

/// What the trace event format asks of each kind of event.
fn check_event(event: &Value) {
    let phase = event["ph"].as_str().expect("a phase");
    assert!(event["name"].is_string() && event["pid"].is_u64() && event["tid"].is_u64());
    assert!(event["ts"].as_f64().is_some_and(|ts| ts >= 0.0), "{event}");
    match phase {
        "X" => {
            assert!(event["dur"].as_f64().is_some_and(|dur| dur >= 0.0), "{event}");
            assert!(event["cat"].is_string());
        }
        "i" => assert!(["g", "p", "t"].contains(&event["s"].as_str().unwrap_or_default())),
        "C" => {
            let series = event["args"].as_object().expect("series");
            assert!(!series.is_empty() && series.values().all(Value::is_number), "{event}");
        }
        "M" => assert!(event["args"]["name"].is_string()),
        other => panic!("{other} is no phase that is written"),
    }
    for key in event.as_object().unwrap().keys() {
        let known = ["ph", "name", "pid", "tid", "ts", "dur", "cat", "args", "s"];
        assert!(known.contains(&key.as_str()), "{key}");
    }
}

#[test]
fn the_perfetto_file_is_what_the_format_asks_for() {
    let (_, trace) = traced();
    let platform = platform();
    let watts = Watts { platform: Some(&platform), measured: None };
    let mut text = Vec::new();
    export::perfetto(&trace, watts, &mut text).unwrap();
    let file: Value = serde_json::from_slice(&text).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    events.iter().for_each(check_event);
    let of = |phase: &str, name: &str| {
        let found = |e: &&Value| {
            e["ph"] == phase && e["name"].as_str().is_some_and(|n| n.starts_with(name))
        };
        events.iter().filter(found).count()
    };
    let calls = trace.events.iter().filter(|e| matches!(e, Event::Call { .. })).count();
    let shown = events.iter().filter(|e| e["cat"] == "call").count();
    assert_eq!(shown, calls);
    assert!(of("C", "watts, modelled from") > 10 && of("C", "bytes/s") > 10);
    assert_eq!(of("M", "thread_name"), 2);
    // A worker's calls do not overlap, and microseconds lose nothing.
    let nanos = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as u64;
    let sum: u64 = events.iter().filter(|e| e["cat"] == "call").map(|e| nanos(&e["dur"])).sum();
    assert_eq!(sum, Stats::of_trace(&trace).busy());
}

#[test]
fn other_tools_read_what_is_written() {
    let (_, trace) = traced();
    let platform = platform();
    let watts = Watts { platform: Some(&platform), measured: None };
    let mut paje = Vec::new();
    export::paje(&trace, watts, &mut paje).unwrap();
    let file = std::env::temp_dir().join(format!("dahl-{}.paje", std::process::id()));
    std::fs::write(&file, &paje).unwrap();
    // Older packages have no pj_validate; pj_dump reads and simulates the whole file too.
    let tools: [&[&str]; 2] = [&["pj_validate"], &["pj_dump", "--quiet"]];
    let read = tools
        .iter()
        .find_map(|tool| Command::new(tool[0]).args(&tool[1..]).arg(&file).output().ok());
    match read {
        Some(output) => {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(output.status.success(), "{said}");
            assert!(!said.to_lowercase().contains("exception"), "{said}");
        }
        None => crate::support::skipped("pajeng"),
    }
    std::fs::remove_file(&file).unwrap();
    let mut dot = Vec::new();
    export::dot(&trace, &mut dot).unwrap();
    let graph =
        Command::new("dot").arg("-Tdot").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    match graph {
        Ok(mut child) => {
            child.stdin.take().unwrap().write_all(&dot).unwrap();
            assert!(child.wait().unwrap().success());
        }
        Err(_) => crate::support::skipped("Graphviz"),
    }
}

#[test]
fn counters_answer_without_a_trace() {
    let (mut trainer, trace) = traced();
    let counters = trainer.session().counters();
    let stats = Stats::of_counters(&counters.shapes(), &counters.activity(), 12);
    let full = Stats::of_trace(&trace);
    let calls = |stats: &Stats| -> BTreeMap<String, u64> {
        stats.codelets.iter().map(|row| (row.codelet.clone(), row.calls)).collect()
    };
    assert_eq!(calls(&stats), calls(&full));
    for row in &stats.codelets {
        let exact = full.codelets.iter().find(|r| r.codelet == row.codelet).unwrap();
        let apart = row.total.abs_diff(exact.total) as f64 / exact.total.max(1) as f64;
        assert!(apart < 0.01, "{}: {} and {}", row.codelet, row.total, exact.total);
        assert!(row.p50 <= row.p90 && row.p90 <= row.p99);
    }
}

#[test]
fn a_page_has_no_outside_references() {
    let run = RunRecord {
        name: "</script><script>alert(1)</script><!--".to_owned(),
        trace: Some(by_hand()),
        ..RunRecord::default()
    };
    let page = page(&runs_json(&[run], None), Mode::File);
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        let found = page.matches(outside).count();
        // The namespace of SVG is a name, not an address.
        let allowed = page.matches("http://www.w3.org/2000/svg").count();
        assert!(found <= if outside == "http://" { allowed } else { 0 }, "{outside}");
    }
    assert!(!page.contains("<script>alert"));
    assert_eq!(page.matches("</script>").count(), 2);
}
