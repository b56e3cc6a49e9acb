//! `trace`, `stats`, `report`, meters and live views, as people use them.

use crate::browser::{Browser, get};
use crate::runs::Place;
use dahl::report::{Mode, page, runs_json};
use dahl::run::RunRecord;
use dahl::trace::{CodeletShape, Event, Header, ProgramHeader, TaskWork, Trace, VERSION};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// Trains the small model on some workers.
fn train(place: &Place, workers: &str, more: &[&str]) -> (i32, String, String) {
    let common = ["train", "--model", "small.toml", "--limit", "48", "--batch", "6", "--workers"];
    place.dahl(&[&common[..], &[workers], more].concat())
}

/// A powercap directory of one package, of which a run takes nothing.
pub(crate) fn powercap(place: &Place, name: &str) -> String {
    let path = place.0.join(name);
    for (entry, domain) in
        [("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:1", "package-1")]
    {
        let path = path.join(entry);
        fs::create_dir_all(&path).expect("as written");
        fs::write(path.join("name"), domain).expect("as written");
        fs::write(path.join("energy_uj"), "1000000").expect("as written");
        fs::write(path.join("max_energy_range_uj"), "262143328850").expect("as written");
    }
    path.to_str().expect("as written").to_owned()
}

pub(crate) fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("as written");
    text.lines().map(|line| serde_json::from_str(line).expect("as written")).collect()
}

#[test]
fn a_run_is_traced_counted_and_exported() {
    let place = Place::new("see");
    let (code, stdout, stderr) = train(&place, "2", &["--run", "r", "--epochs", "2", "--trace"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.contains("energy: ") && stdout.contains("modelled from"), "{stdout}");
    let run = place.0.join("runs/r");
    for (format, expected) in [
        ("perfetto", "{\"displayTimeUnit\":\"ns\",\"traceEvents\":["),
        ("paje", "%EventDef PajeDefineContainerType 0"),
        ("dot", "digraph tasks {"),
        ("csv", "kind,step,program,task,call,codelet"),
    ] {
        let (code, stdout, stderr) = place.dahl(&["trace", "r", "--format", format]);
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.starts_with(expected), "{format}: {}", &stdout[..80.min(stdout.len())]);
        let file = place.0.join(format);
        let file = file.to_str().unwrap();
        let (code, ..) = place.dahl(&["trace", "r", "--format", format, "-o", file]);
        assert_eq!(code, 0);
        assert_eq!(fs::read_to_string(file).unwrap(), stdout, "{format}");
    }
    let (_, text, _) = place.dahl(&["stats", "r", "--shapes"]);
    for part in ["parallel efficiency", "critical path", "largest gaps", "GFLOP/s", "f32["] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Without the trace the counters speak, and they count the same calls.
    let json = |args: &[&str]| -> Value {
        let (code, stdout, stderr) = place.dahl(args);
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str(&stdout).unwrap()
    };
    let (full, counted) =
        (json(&["stats", "r", "--json"]), json(&["stats", "r", "--json", "--counters"]));
    assert_eq!((&full["from"], &counted["from"]), (&json!("trace"), &json!("counters")));
    let calls = |stats: &Value| -> u64 {
        stats["codelets"].as_array().unwrap().iter().map(|c| c["calls"].as_u64().unwrap()).sum()
    };
    assert_eq!(calls(&full), calls(&counted));
    assert_eq!(lines(&run.join("energy.jsonl")).len(), 3, "two epochs and the rest");
    fs::remove_file(run.join("trace.jsonl")).unwrap();
    place.check(&["trace", "r", "--format", "csv"], 2, "dahl train --trace");
    assert_eq!(json(&["stats", "r", "--json"])["from"], "counters");
    place.check(
        &["stats", "none"],
        2,
        "runs/none: expected a run directory, found nothing; known runs: r",
    );
}

#[test]
fn traces_are_off_by_default_and_bounded() {
    let place = Place::new("bounded");
    place.train(&["--run", "off"]);
    assert!(!place.0.join("runs/off/trace.jsonl").exists());
    assert!(place.0.join("runs/off/counters.json").exists());
    let (code, _, stderr) =
        place.train(&["--run", "on", "--trace", "--trace-from", "3", "--trace-events", "1"]);
    assert_eq!(code, 0, "{stderr}");
    let events = lines(&place.0.join("runs/on/trace.jsonl"));
    let steps: Vec<u64> = events.iter().filter_map(|e| e["submit"]["step"].as_u64()).collect();
    assert_eq!(steps, [3]);
}

#[test]
fn one_of_a_thing_is_singular_and_no_run_is_compared_with_itself() {
    let place = Place::new("words");
    assert_eq!(train(&place, "1", &["--run", "a", "--epochs", "1"]).0, 0);
    let said = |args: &[&str], part: &str| {
        let (code, stdout, stderr) = place.dahl(args);
        assert_eq!(code, 0, "{stderr}");
        assert!(format!("{stdout}{stderr}").contains(part), "{part}: {stdout}{stderr}");
    };
    said(&["stats", "a"], " on 1 worker, from counters");
    said(&["train", "--resume", "a"], " has finished its 1 epoch; for more: ");
    said(&["plan", "small.toml", "--workers", "1"], " edges, 1 worker\n");
    let hidden = "output: expected a name that no run has, such as one with an extension, found a, \
                  which is the run runs/a";
    place.check(&["report", "a", "-o", "a"], 2, hidden);
    place.check(&["trace", "a", "--format", "csv", "-o", "a"], 2, hidden);
    assert!(!place.0.join("a").exists());
    said(&["report", "a", "a", "-o", "r.html"], "note: a is the same run twice: nothing is");
}

#[test]
fn measured_and_modelled_stand_apart() {
    let place = Place::new("meters");
    let tree = powercap(&place, "powercap");
    let (code, stdout, stderr) = place.train(&["--run", "m", "--powercap", &tree]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("measured by RAPL (package-0, package-1)"), "{stdout}");
    let first = &lines(&place.0.join("runs/m/energy.jsonl"))[0];
    let names: Vec<&str> =
        first["measured"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["package-0", "package-0/core", "package-1"]);
    assert_eq!(first["measured"][0]["source"], "rapl");
    assert_eq!(first["interval"], 0.1);
    assert!(first["modelled"]["base"]["value"].as_f64().unwrap() > 0.0);
    let (_, text, _) = place.dahl(&["stats", "m", "--co2", "400"]);
    assert!(
        text.contains("energy 0 µJ: measured by RAPL") && text.contains("modelled from"),
        "{text}"
    );
    assert!(text.contains("g of CO2 at 400 g/kWh") && text.contains("EDP"), "{text}");
    // What was asked for and is not there is an error, with what to do.
    place.check(&["train", "--no-run", "--powercap", "nowhere"], 2, "sudo modprobe");
}

#[test]
fn a_command_measures() {
    let place = Place::new("command");
    let command = "while true; do echo 50 W; sleep 0.01; done";
    let (code, stdout, stderr) =
        place.train(&["--run", "c", "--meter-cmd", command, "--epochs", "3"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("measured by meter-cmd (command)"), "{stdout}");
}

#[test]
fn an_energy_budget_stops_after_the_step() {
    let place = Place::new("budget");
    // The first step takes more than this; the second is not begun.
    let (code, _, stderr) = place.train(&["--run", "b", "--energy-budget", "0.001mJ"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("stopped by --energy-budget after step 1, saved"), "{stderr}");
    assert!(stderr.contains("modelled from"), "it says what it was stopped by: {stderr}");
    // It goes on from there, with the flags of a new start.
    let (code, stdout, stderr) = place.dahl(&["train", "--resume", "b", "--energy-budget", "1kWh"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let (code, _, stderr) = place.train(&["--run", "t", "--max-time", "1ms"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("stopped by --max-time after step 1, saved"), "{stderr}");
    place.check(&["train", "--energy-budget", "5W"], 2, "expected an energy such as");
}

#[test]
fn flags_of_the_guide_are_there() {
    let place = Place::new("guide");
    let commands: [&[&str]; 8] = [
        &["train"],
        &["plan"],
        &["stats"],
        &["trace"],
        &["report"],
        &["bench", "kernels"],
        &["platform", "detect"],
        &["eval"],
    ];
    let help: Vec<String> =
        commands.iter().map(|c| place.dahl(&[c, &["--help"][..]].concat()).1).collect();
    let help = help.join("\n");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance.md");
    let guide = fs::read_to_string(guide).unwrap();
    let is_flag = |c: char| c.is_ascii_alphanumeric() || c == '-';
    for part in guide.split("--").skip(1) {
        let flag = &part[..part.find(|c| !is_flag(c)).unwrap_or(part.len())];
        // Those of cargo, and rules of tables.
        if ["bench", "release", "test", ""].contains(&flag) || flag.starts_with('-') {
            continue;
        }
        assert!(help.contains(&format!("--{flag}")), "--{flag} is no flag");
    }
}

/// The canvas of the first chart, what it shows and where it is.
const VIEW: &str = "(() => { const c = document.querySelector('canvas'); return [Number(c.dataset.from), \
                    Number(c.dataset.to)]; })()";

fn view(browser: &mut Browser) -> [f64; 2] {
    let value = browser.value(VIEW);
    [value[0].as_f64().expect("as written"), value[1].as_f64().expect("as written")]
}

#[test]
fn the_report_is_used_in_a_browser() {
    let place = Place::new("browser");
    for (name, workers) in [("first", "1"), ("second", "2")] {
        let (code, _, stderr) =
            train(&place, workers, &["--run", name, "--epochs", "3", "--trace"]);
        assert_eq!(code, 0, "{stderr}");
    }
    let laptop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../platforms/laptop.toml");
    let file = place.0.join("report.html");
    let (code, stdout, stderr) = place.dahl(&[
        "report",
        "first",
        "second",
        "-o",
        file.to_str().unwrap(),
        "--platform",
        laptop.to_str().unwrap(),
    ]);
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains("µs per sample") && stdout.contains("wall-clock time in ns per sample"),
        "{stdout}"
    );
    assert!(stdout.contains("total"), "{stdout}");
    let Some(mut browser) = Browser::start("report", [1200, 900]) else { return };
    browser.open(&format!("file://{}", file.display()));
    // The comparison says it in words and by codelet.
    let text = browser.value("document.querySelector('#summary').innerText");
    let text = text.as_str().unwrap();
    assert!(text.contains("µs per sample") && text.contains("largest differences first"), "{text}");
    assert!(text.contains("mJ per sample, modelled"), "{text}");
    // Every section can be gone to, at the width of most screens too.
    browser.resize([1280, 900]);
    let cut = "[...document.querySelectorAll('nav a')].filter((a) => { const r = \
               a.getBoundingClientRect(); return r.left < 0 || r.right > innerWidth \
               || r.right > a.parentNode.getBoundingClientRect().right + 1; }).length";
    assert_eq!(browser.value(cut), json!(0));
    browser.resize([1200, 900]);
    // Zoom by button, wheel and key; all of it again.
    browser.until("document.querySelector('canvas').dataset.drawn >= 1");
    // Both charts have one scale, by which the longer one is seen to be longer.
    browser.until("[...document.querySelectorAll('canvas')].every((c) => c.dataset.drawn >= 1)");
    let scales = browser.value(
        "[...document.querySelectorAll('canvas')].map((c) => \
         `${c.dataset.to - c.dataset.from} ns ${c.dataset.watts} W`)",
    );
    assert!(scales[0] == scales[1] && scales[2].is_null(), "{scales}");
    assert!(!scales[0].as_str().unwrap().contains(" 0 W"), "{scales}");
    let all = view(&mut browser);
    let half = |[a, b]: [f64; 2]| (b - a) / 2.0;
    let shown = |v: [f64; 2]| {
        format!(
            "Number(document.querySelector('canvas').dataset.to) - \
                 Number(document.querySelector('canvas').dataset.from) < {}",
            v[1] - v[0] - 1.0
        )
    };
    browser.value("document.querySelector('[data-zoom=in]').click()");
    browser.until(&shown(all));
    let closer = view(&mut browser);
    assert!((closer[1] - closer[0] - half(all)).abs() < 2.0, "{all:?} {closer:?}");
    browser.value("document.querySelector('canvas').scrollIntoView({block: 'center'})");
    let place_of = "(() => { const r = document.querySelector('canvas').getBoundingClientRect(); return \
                    [r.left + r.width / 2, r.top + 40]; })()";
    let at = browser.value(place_of);
    // The wheel alone is the page's.
    let free = browser.value(
        "document.querySelector('canvas').dispatchEvent(new WheelEvent('wheel', \
         {deltaY: -240, cancelable: true, bubbles: true}))",
    );
    assert_eq!((free, view(&mut browser)), (json!(true), closer));
    browser.value("document.querySelector('canvas').focus({preventScroll: true})");
    browser
        .mouse(json!({"type": "mouseWheel", "x": at[0], "y": at[1], "deltaX": 0, "deltaY": -240}));
    browser.until(&shown(closer));
    let wheeled = view(&mut browser);
    browser.value("document.querySelector('canvas').focus()");
    browser.key("+");
    browser.until(&shown(wheeled));
    let before = view(&mut browser);
    browser.key("ArrowRight");
    browser
        .until(&format!("Number(document.querySelector('canvas').dataset.from) > {}", before[0]));
    // Dragging moves it back.
    let moved = view(&mut browser);
    let (x, y) = (at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
    for (kind, x) in [("mousePressed", x), ("mouseMoved", x + 60.0), ("mouseReleased", x + 60.0)] {
        browser.mouse(
            json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1}),
        );
    }
    browser.until(&format!("Number(document.querySelector('canvas').dataset.from) < {}", moved[0]));
    browser.key(".");
    browser.until("document.querySelector('.details').innerText.includes(' ns from ')");
    // However close one looks, no two ticks say the same, and the gaps' times are the chart's.
    for _ in 0..12 {
        browser.value("document.querySelector('[data-zoom=in]').click()");
    }
    browser.until(
        "(() => { const t = document.querySelector('canvas').dataset.ticks.split('|'); \
         return new Set(t).size === t.length; })()",
    );
    browser.key("0");
    browser.until(&format!("Number(document.querySelector('canvas').dataset.to) === {}", all[1]));
    // What the table says is what the statistics say, to the nanosecond.
    let (_, stats, _) = place.dahl(&["stats", "first", "--json"]);
    let stats: Value = serde_json::from_str(&stats).unwrap();
    let told: Vec<u64> = stats["codelets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["total"].as_u64().unwrap())
        .collect();
    let shown = browser.value(
        "[...document.querySelector('table.codelets').querySelectorAll('[data-ns]')].map((x) => \
         Number(x.dataset.ns))",
    );
    assert_eq!(shown, json!(told));
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR"));
    browser.picture(&pictures.join("report-light.png"), true);
    browser.scheme("dark");
    browser.open(&format!("file://{}", file.display()));
    assert_eq!(browser.value("document.documentElement.classList.contains('dark')"), json!(true));
    browser.picture(&pictures.join("report-dark.png"), true);
    // A phone: nothing is wider than the window.
    browser.resize([390, 844]);
    browser.open(&format!("file://{}", file.display()));
    let wide = browser.value("document.documentElement.scrollWidth");
    assert!(wide.as_u64().unwrap() <= 390, "{wide} pixels on a phone");
    // Figures are on the screen beside their names, and texts of charts can be read.
    let figures = browser.value(
        "[...document.querySelectorAll('#summary table td:nth-child(2), table.codelets td:nth-child(2)')]\
         .map((x) => x.getBoundingClientRect().right)",
    );
    let right = figures.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).fold(0.0, f64::max);
    assert!(right > 0.0 && right <= 390.0, "{right}");
    let tall = browser.value(
        "Math.min(...[...document.querySelectorAll('figure > svg text')].map((x) => \
         x.getBoundingClientRect().height))",
    );
    assert!(tall.as_f64().unwrap() >= 10.0, "{tall} pixels");
    browser.picture(&pictures.join("report-phone.png"), true);
    assert!(browser.errors.is_empty(), "{:?}", browser.errors);
}

#[test]
fn the_dashboard_shows_the_running_job() {
    let place = Place::new("dashboard");
    let mut job = place
        .command(&[
            "train",
            "--model",
            "small.toml",
            "--data",
            "synthetic:1x8x8:10",
            "--limit",
            "60",
            "--epochs",
            "1000000",
            "--run",
            "live",
            "--dashboard",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines().map_while(Result::ok);
    let url = lines.find_map(|line| Some(line.strip_prefix("dashboard: ")?.to_owned())).unwrap();
    std::thread::spawn(move || lines.for_each(drop));
    let (host, token) = url.trim_start_matches("http://").split_once("/?").unwrap();
    assert!(host.starts_with("127.0.0.1:"), "{url}");
    let metrics = get(host, &format!("/metrics?{token}"));
    assert!(metrics.contains("# TYPE dahl_steps_total counter"), "{metrics}");
    assert!(get(host, "/metrics").starts_with("Forbidden"));
    assert!(get(host, "/metrics?token=0123").contains("missing or wrong"));
    if let Some(mut browser) = Browser::start("dashboard", [1200, 900]) {
        browser.open(&url);
        browser.until("Number(document.documentElement.dataset.asked) >= 2");
        browser.until("document.querySelector('table.codelets').innerText.includes('linear')");
        browser.until("document.getElementById('footer').innerText.startsWith('live')");
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard.png");
        browser.picture(&file, false);
        assert!(browser.errors.is_empty(), "{:?}", browser.errors);
    }
    job.kill().unwrap();
    job.wait().unwrap();
}

/// A million calls on four workers.
fn million() -> Trace {
    let codelets = ["conv2d.gemm", "conv2d_backward.gemm", "linear.gemm", "sgd.plain"];
    let cell =
        |codelet| CodeletShape { codelet, shape: "f32[8]".to_owned(), flops: 100, bytes: 10 };
    let work = TaskWork { calls: vec![(0, 0), (1, 1), (2, 0), (3, 1)], after: Vec::new() };
    let header = Header {
        dahl_trace: VERSION,
        engine: "native".to_owned(),
        workers: 4,
        codelets: codelets.map(str::to_owned).to_vec(),
        cells: (0..4).map(cell).collect(),
        layers: vec!["features.0".to_owned(), "classifier".to_owned()],
        programs: vec![ProgramHeader {
            name: "train 8".to_owned(),
            tasks: (0..4).map(|t| format!("t{t}")).collect(),
            work: vec![work; 4],
            ..ProgramHeader::default()
        }],
        ..Header::default()
    };
    let mut events = Vec::new();
    for i in 0..250_000u64 {
        for worker in 0..4u32 {
            let from = 10_000 * i + u64::from(worker) * 7;
            let to = from + 2_000 + (i * 7919 + u64::from(worker) * 104_729) % 7_000;
            let codelet = (i % 4) as u32;
            events.push(Event::Call {
                step: i / 4,
                program: 0,
                task: worker,
                codelet,
                worker,
                from,
                to,
            });
        }
    }
    Trace { header, events }
}

#[test]
fn a_million_events_are_drawn() {
    // Where there is no browser there is nothing to draw with.
    let Some(mut browser) = Browser::start("million", [1200, 900]) else { return };
    let place = Place::new("million");
    let run =
        RunRecord { name: "million".to_owned(), trace: Some(million()), ..RunRecord::default() };
    let file = place.0.join("million.html");
    fs::write(&file, page(&runs_json(&[run], None), Mode::File)).unwrap();
    browser.open(&format!("file://{}", file.display()));
    let all = "document.querySelector('.tools').innerText.includes('1,000,000 events')";
    assert_eq!(browser.value(all), json!(true));
    let ready = browser.value("document.documentElement.dataset.ready");
    let frame = browser.value(
        "(async () => { const c = document.querySelector('canvas'); const begin = performance.now(); \
         const before = Number(c.dataset.drawn || 0); document.querySelector('[data-zoom=in]').click(); \
         while (Number(c.dataset.drawn || 0) === before) await new Promise(requestAnimationFrame); \
         return performance.now() - begin; })()",
    );
    eprintln!("a million events: drawn after {ready} ms, zoomed in {frame} ms");
    browser.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("million.png"), false);
    assert!(browser.errors.is_empty(), "{:?}", browser.errors);
}

/// A directory of others made `stats` and `report` wait for a writer that never comes.
#[cfg(unix)]
#[test]
fn a_run_with_a_pipe_among_its_files_is_read_without_it() {
    let place = Place::new("pipe");
    let train =
        ["train", "--model", "small.toml", "--limit", "12", "--batch", "6", "--epochs", "1"];
    let (code, _, stderr) = place.dahl(&[&train[..], &["--run", "r", "--workers", "1"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let trace = place.0.join("runs/r").join(dahl::run::files::TRACE);
    let _socket = std::os::unix::net::UnixListener::bind(&trace).expect("a socket");
    let (code, _, stderr) = place.dahl(&["stats", "r"]);
    assert!(stderr.contains("expected a regular file, found a socket"), "{code} {stderr}");
    fs::remove_file(&trace).expect("a socket");
    std::os::unix::fs::symlink("/dev/zero", &trace).expect("a link");
    let (code, _, stderr) = place.dahl(&["report", "r", "-o", "r.html"]);
    assert!(stderr.contains("expected a regular file, found a device"), "{code} {stderr}");
}
