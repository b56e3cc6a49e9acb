//! Meters, budgets and what is kept of runs that end in all sorts of ways.
#![cfg(unix)]

use crate::browser::{PATIENCE, get};
use crate::runs::{Place, SMALL};
use crate::see::{lines, powercap};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

fn stats(place: &Place, args: &[&str]) -> Value {
    let (code, stdout, stderr) = place.dahl(&[&["stats", "--json"], args].concat());
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

/// Counts up the packages of a powercap directory until it is dropped.
struct Counting(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Counting {
    fn of(tree: &str) -> Self {
        let (tree, ended) = (PathBuf::from(tree), Arc::new(AtomicBool::new(false)));
        let over = ended.clone();
        let body = move || {
            for joules in 1.. {
                for package in ["intel-rapl:0", "intel-rapl:1"].map(|name| tree.join(name)) {
                    // At once: whoever reads half a number reads another.
                    let new = package.join("new");
                    fs::write(&new, format!("{joules}000000")).expect("a file");
                    fs::rename(&new, package.join("energy_uj")).expect("a file");
                }
                if over.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Self(ended, Some(std::thread::spawn(body)))
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().expect("a thread").join();
    }
}

#[test]
fn a_counter_that_does_not_move_is_warned_of_and_partial() {
    let place = Place::new("still");
    let tree = powercap(&place, "powercap");
    let still = ["--run", "a", "--epochs", "1000000", "--powercap", &tree];
    let mut dahl = place.command(&[&SMALL[..], &still].concat());
    let child = dahl.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("dahl runs");
    // Metered since before the first epoch, and for longer than a counter may stand still.
    until(&|| fs::metadata(place.run("a").join("metrics.jsonl")).is_ok_and(|file| file.len() > 0));
    std::thread::sleep(Duration::from_millis(300));
    crate::survival::signal(&child, "INT");
    let output = child.wait_with_output().expect("an end");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    let warned = |name| format!("warning: RAPL ({name}): the counter did not move in ");
    for name in ["package-0", "package-1"] {
        assert_eq!(stderr.matches(&warned(name)).count(), 1, "{stderr}");
    }
    assert!(!stderr.contains(&warned("package-0/core")), "a core may sleep: {stderr}");
    let partial = stats(&place, &["a"])["energy"]["measured"][0]["total"]["partial"].clone();
    assert!(partial.as_str().is_some_and(|p| p.contains("did not move")), "{partial}");
}

#[test]
fn a_dead_meter_hides_no_other() {
    let place = Place::new("dead");
    let tree = powercap(&place, "powercap");
    let _counting = Counting::of(&tree);
    let battery = place.0.join("power/BAT0");
    fs::create_dir_all(&battery).expect("a directory");
    for (file, text) in [("type", "Battery"), ("status", "Full"), ("energy_now", "50000000")] {
        fs::write(battery.join(file), text).expect("a file");
    }
    let power = place.0.join("power");
    let both = ["--powercap", &tree, "--power-supply", power.to_str().expect("text")];
    let more = ["--run", "a", "--epochs", "2", "--meter-cmd", "sleep 1000"];
    let (code, stdout, stderr) = place.train(&[&both[..], &more].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("measured by RAPL (package-0, package-1)"), "{stdout}");
    assert!(stderr.contains("battery (battery) gave no readings: no battery is dis"), "{stderr}");
    assert!(stderr.contains("meter-cmd (command) gave no readings"), "{stderr}");
    let measured = stats(&place, &["a"])["energy"]["measured"].clone();
    assert_eq!(measured.as_array().expect("figures").len(), 1, "{measured}");
    assert!(measured[0]["total"]["partial"].is_null(), "{measured}");
}

#[test]
fn a_package_that_cannot_be_read_is_partial() {
    let place = Place::new("unread");
    let tree = powercap(&place, "powercap");
    fs::write(Path::new(&tree).join("intel-rapl:1/energy_uj"), "many").expect("a file");
    let (code, stdout, stderr) = place.train(&["--run", "a", "--powercap", &tree, "--quiet"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("warning:") && stderr.contains("package-1 is not in"), "{stderr}");
    // Where the run takes long enough, the counter of the other one did not move either.
    let (_, partial) = stdout.split_once("partial: ").expect("a part is missing");
    assert!(partial.contains("package-1: "), "{stdout}");
}

#[test]
fn a_meter_s_command_that_fails_makes_the_figure_partial() {
    let place = Place::new("fails");
    // It says something before each failure, and is started again.
    let command = "test -e first && touch second; touch first; echo 40 W; exit 3";
    let fails = ["--run", "a", "--epochs", "1000000", "--meter-cmd", command];
    let mut dahl = place.command(&[&SMALL[..], &fails].concat());
    let child = dahl.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("dahl runs");
    // On a busy machine the command had failed twice before training began.
    until(&|| place.run("a").join("sessions.jsonl").exists());
    for _ in 0..3 {
        let _ = fs::remove_file(place.0.join("second"));
        until(&|| place.0.join("second").exists());
    }
    crate::survival::signal(&child, "INT");
    let output = child.wait_with_output().expect("an end");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    let warned: Vec<&str> = stderr.lines().filter(|line| line.starts_with("warning: ")).collect();
    let told = "s missed, the command ended with exit status: 3";
    assert!(warned.len() == 1 && warned[0].contains("meter-cmd (command)"), "{stderr}");
    assert!(warned[0].ends_with(told), "{stderr}");
    let measured = stats(&place, &["a"])["energy"]["measured"][0].clone();
    assert!(measured["total"]["partial"].as_str().is_some_and(|p| p.contains(told)), "{measured}");
}

#[test]
fn a_budget_holds_though_its_meter_is_dead() {
    let place = Place::new("bridge");
    let dead = ["--run", "b", "--meter-cmd", "sleep 1000", "--energy-budget", "0.001mJ", "--quiet"];
    let (code, _, stderr) = place.train(&dead);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("stopped by --energy-budget after step 1, saved"), "{stderr}");
    // What was spent is said even of a run that is silent, and what saving took apart.
    assert!(stderr.contains("as no meter has read anything"), "{stderr}");
    assert!(stderr.contains("at the stop") && stderr.contains("more to save the run"), "{stderr}");
}

#[test]
fn samples_of_a_resumed_epoch_are_counted_once() {
    let place = Place::new("once");
    assert_eq!(place.train(&["--run", "a", "--epochs", "2", "--max-steps", "3"]).0, 0);
    let (code, _, stderr) = place.dahl(&["train", "--resume", "a"]);
    assert_eq!(code, 0, "{stderr}");
    let energy = lines(&place.run("a").join("energy.jsonl"));
    let samples: Vec<u64> = energy.iter().map(|line| line["samples"].as_u64().unwrap()).collect();
    assert_eq!(samples, [18, 30, 48, 0]);
    let of: Vec<(u64, Option<u64>, bool)> = energy
        .iter()
        .map(|line| {
            let [session, epoch] = ["session", "epoch"].map(|key| line[key].as_u64());
            (session.unwrap(), epoch, line["last"].as_bool().unwrap())
        })
        .collect();
    assert_eq!(of, [(1, Some(1), true), (2, Some(1), false), (2, Some(2), false), (2, None, true)]);
    let counters: Value =
        serde_json::from_str(&fs::read_to_string(place.run("a").join("counters.json")).unwrap())
            .unwrap();
    assert_eq!((&counters["samples"], &counters["steps"]), (&78.into(), &13.into()));
    assert_eq!(counters["training"]["samples"], 78);
    // The first epoch has what both sessions spent on it.
    let modelled = &stats(&place, &["a"])["energy"]["modelled"][0];
    let joules = |i: usize| {
        let of = &energy[i]["modelled"];
        let busy = of["busy"].as_array().unwrap().iter().map(|b| b["value"].as_f64().unwrap());
        let part = |key: &str| of[key]["value"].as_f64().unwrap();
        busy.sum::<f64>() + part("base") + part("idle") + part("spinning")
    };
    let first = modelled["epochs"][0][1].as_f64().unwrap();
    assert!((first - joules(0) - joules(1)).abs() < 1e-9, "{modelled}");
    assert_eq!(modelled["samples"], 96);
}

#[test]
fn a_run_that_ends_in_nan_keeps_what_is_known() {
    let place = Place::new("nan");
    let wild = ["--optimizer", "sgd", "--lr", "1e30", "--run", "a", "--trace"];
    let (code, _, stderr) = place.train(&wild);
    assert_eq!(code, 5, "{stderr}");
    for file in ["trace.jsonl", "counters.json", "energy.jsonl"] {
        assert!(place.run("a").join(file).exists(), "{file}");
    }
    let energy = lines(&place.run("a").join("energy.jsonl"));
    assert_eq!(energy.last().expect("a line")["last"], true);
    assert_eq!(stats(&place, &["a"])["from"], "trace");
    assert!(stats(&place, &["a", "--counters"])["steps"].as_u64().expect("steps") > 0);
}

#[test]
fn a_session_that_was_killed_is_told() {
    let place = Place::new("killed");
    let mut child = place.start_endless("a");
    child.kill().expect("a kill");
    child.wait().expect("an end");
    // It may have been killed before there was a checkpoint.
    let last = place.checkpoints("a").pop();
    let done = last.map_or(0, |last| last[6..11].parse::<u64>().expect("an epoch"));
    let epochs = (done + 1).to_string();
    assert_eq!(place.dahl(&["train", "--resume", "a", "--epochs", &epochs]).0, 0);
    let partial = stats(&place, &["a"])["energy"]["modelled"][0]["total"]["partial"].clone();
    assert_eq!(partial, "session 1 has no record of its end");
}

#[test]
fn a_damaged_file_is_named_and_the_others_speak() {
    let place = Place::new("damaged");
    assert_eq!(place.train(&["--run", "a", "--epochs", "3", "--trace"]).0, 0);
    let damage = |file: &str, change: &dyn Fn(Vec<&str>) -> String| {
        let path = place.run("a").join(file);
        let text = fs::read_to_string(&path).expect("a file");
        fs::write(&path, change(text.lines().collect())).expect("a file");
    };
    damage("energy.jsonl", &|lines| {
        let half = &lines[1][..lines[1].len() / 2];
        format!("{}\n{half}\n{}\n", lines[0], lines[2])
    });
    let (code, stdout, stderr) = place.dahl(&["stats", "a"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("energy.jsonl: line 2: expected an object"), "{stderr}");
    assert!(!stdout.contains("energy "), "a sum without a line is wrong: {stdout}");
    // Half a trace is none, but the counters and the page do without.
    damage("trace.jsonl", &|lines| {
        // Ended in the middle of a line: whole lines are a trace.
        let (last, before) = lines[..lines.len() / 2].split_last().expect("lines");
        format!("{}\n{}", before.join("\n"), &last[..last.len() / 2])
    });
    place.check(&["stats", "a"], 4, "trace.jsonl: line ");
    place.check(&["stats", "a"], 4, "--counters works without");
    place.check(&["trace", "a", "--format", "csv"], 4, "trace.jsonl: line ");
    // What is wrong is said once, and not that it does without.
    for args in [&["stats", "a"][..], &["trace", "a", "--format", "csv"]] {
        let (_, _, stderr) = place.dahl(args);
        assert_eq!(stderr.matches("trace.jsonl: line ").count(), 1, "{stderr}");
    }
    assert_eq!(stats(&place, &["a", "--counters"])["from"], "counters");
    place.check(&["report", "a", "-o", "a.html"], 0, "trace.jsonl: line ");
    assert!(fs::read_to_string(place.0.join("a.html")).expect("a page").contains("ignored file"));
}

#[test]
fn a_trace_with_more_calls_than_its_header_is_refused() {
    let place = Place::new("calls");
    assert_eq!(place.train(&["--run", "a", "--epochs", "1", "--trace"]).0, 0);
    let path = place.run("a").join("trace.jsonl");
    let text = fs::read_to_string(&path).expect("a trace");
    let last = lines(&path).into_iter().rev().find(|event| event["call"].is_object());
    let mut again = last.expect("a call");
    for (key, more) in [("from", 1_000_000_000_000u64), ("to", 1_000_000_000_001)] {
        again["call"][key] = more.into();
    }
    fs::write(&path, format!("{text}{again}\n")).expect("a trace");
    place.check(&["stats", "a"], 4, "expected no more calls of a task than the header lists");
    let many = text.replacen("\"workers\":1", "\"workers\":1000000000000000", 1);
    fs::write(&path, many).expect("a trace");
    place.check(&["stats", "a"], 4, "expected at most 65536 workers");
}

#[test]
fn watts_of_one_session_are_not_drawn_over_the_trace_of_another() {
    let place = Place::new("watts");
    let tree = powercap(&place, "powercap");
    let meter = ["--powercap", tree.as_str(), "--meter-interval", "1ms"];
    let first = ["--run", "a", "--epochs", "4", "--max-steps", "30", "--trace"];
    assert_eq!(place.train(&[&first[..], &meter].concat()).0, 0);
    let watts = || {
        let (code, stdout, stderr) = place.dahl(&["trace", "a", "--format", "perfetto"]);
        assert_eq!(code, 0, "{stderr}");
        ["watts, measured: package-0", "watts, modelled from"].map(|part| stdout.contains(part))
    };
    assert_eq!(watts(), [true, true], "the platform is the run's own");
    // The trace stays, the power is of the second session.
    let again = ["train", "--resume", "a"];
    let (code, _, stderr) = place.dahl(&[&again[..], &meter].concat());
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(watts(), [false, false]);
}

/// Waits for something to happen, however busy the machine is.
#[track_caller]
fn until(happened: &dyn Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < end, "it has not happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a process is gone, or dead and not buried.
#[track_caller]
fn until_gone(pid: &str) {
    until(&|| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    });
}

#[test]
fn a_meter_s_command_leaves_no_orphans() {
    let place = Place::new("orphans");
    let command = "sleep 1000 & echo $! > pid; echo 50 W; wait";
    let pid = || fs::read_to_string(place.0.join("pid")).unwrap_or_default().trim().to_owned();
    assert_eq!(place.train(&["--run", "a", "--meter-cmd", command]).0, 0);
    until_gone(&pid());
    // However the run ends.
    fs::remove_file(place.0.join("pid")).expect("a file");
    let args = [&SMALL[..], &["--epochs", "1000000", "--no-run", "--meter-cmd", command]].concat();
    let mut child =
        place.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("dahl");
    until(&|| !pid().is_empty());
    child.kill().expect("a kill");
    child.wait().expect("an end");
    until_gone(&pid());
}

#[test]
fn a_bounded_trace_says_so() {
    let place = Place::new("bound");
    let bounded = ["--run", "a", "--epochs", "20", "--trace", "--trace-events", "1000"];
    let (code, _, stderr) = place.train(&bounded);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("ended by the bound of 1000 events"), "{stderr}");
    let (_, stdout, _) = place.dahl(&["stats", "a"]);
    assert!(stdout.starts_with("steps 0 to ") && stdout.contains("bound of 1000"), "{stdout}");
    let events = lines(&place.run("a").join("trace.jsonl")).len() - 1;
    // It ends where the most that two steps can have, about 90 events, would no longer fit; a
    // step of this model has about 20, and how often it waited is chance.
    assert!((800..=1000).contains(&events), "{events} events");
    // One without events is no reason to be silent.
    let (code, _, stderr) = place.train(&["--run", "b", "--trace", "--trace-from", "100000"]);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stats(&place, &["b"])["from"], "counters");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new("pipe");
    assert_eq!(place.train(&["--run", "a", "--epochs", "20", "--trace"]).0, 0);
    for format in ["csv", "perfetto", "paje"] {
        let mut command = place.command(&["trace", "a", "--format", format]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("dahl runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{format}");
    }
}

#[test]
fn views_of_a_resumed_run_know_what_was_before() {
    let place = Place::new("seeded");
    assert_eq!(place.train(&["--run", "a", "--epochs", "2"]).0, 0);
    let more = ["train", "--resume", "a", "--epochs", "1000000", "--dashboard"];
    let mut command = place.command(&more);
    let mut job = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("dahl");
    let mut said = BufReader::new(job.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let url = said.find_map(|line| Some(line.strip_prefix("dashboard: ")?.to_owned()));
    let url = url.expect("an address");
    std::thread::spawn(move || said.for_each(drop));
    let (host, token) = url.trim_start_matches("http://").split_once("/?").expect("a token");
    let run = loop {
        let text = get(host, &format!("/data.json?{token}"));
        let data: Value = serde_json::from_str(&text).expect("JSON");
        if data["all"][0]["epochs"].as_array().expect("epochs").len() > 2 {
            break data["all"][0].clone();
        }
    };
    job.kill().expect("a kill");
    job.wait().expect("an end");
    let epochs: Vec<u64> =
        run["epochs"].as_array().unwrap().iter().map(|e| e["epoch"].as_u64().unwrap()).collect();
    assert!(epochs.starts_with(&[1, 2, 3]), "{epochs:?}");
    assert_eq!(run["sessions"].as_array().unwrap().len(), 2);
    let energy = &run["modelled"][0];
    assert_eq!((&energy["epochs"][0][0], &energy["total"]["partial"]), (&1.into(), &Value::Null));
    assert!(!run["memory"]["resident"].as_array().unwrap().is_empty());
}

#[test]
fn a_terminal_is_left_as_it_was() {
    let place = Place::new("terminal");
    let dahl = env!("CARGO_BIN_EXE_dahl");
    let train = SMALL[1..].join(" ");
    let line = format!(
        "stty rows 40 cols 120; echo $$ > pid; exec {dahl} train {train} --no-run --epochs 1000000 --tui --dashboard"
    );
    let mut terminal = Command::new("script");
    let terminal = terminal.args(["-q", "-e", "-f", "-c", &line, "typed"]).current_dir(&place.0);
    let terminal = terminal.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = terminal.spawn() else {
        crate::support::skipped("script (bsdutils)");
        return;
    };
    let typed = || {
        let bytes = fs::read(place.0.join("typed")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    // Some pictures: later ones have only the characters that are new.
    until(&|| typed().matches("\u{1b}[?25l").count() > 3);
    // Whichever is faster, the end of the step or the second signal.
    let signal = "kill -INT $(cat pid); kill -INT $(cat pid)";
    Command::new("sh").args(["-c", signal]).current_dir(&place.0).status().expect("sh runs");
    child.wait().expect("an end");
    let typed = typed();
    assert!(!typed.contains("dashboard: http"), "the view has the address: {typed}");
    // Nothing is drawn after it was left: the cursor is shown again, and text follows.
    let (_, after) = typed.rsplit_once("\u{1b}[?1049l").expect("it was left");
    assert!(!after.replace("\u{1b}[?25h", "").contains('\u{1b}'), "{after:?}");
}

#[test]
fn a_run_whose_view_is_left_prints_its_epochs() {
    let place = Place::new("left");
    let dahl = env!("CARGO_BIN_EXE_dahl");
    let train = SMALL[1..].join(" ");
    let line = format!(
        "stty rows 40 cols 120; echo $$ > pid; exec {dahl} train {train} --no-run --epochs 1000000 --tui"
    );
    let mut terminal = Command::new("script");
    let terminal = terminal.args(["-q", "-e", "-f", "-c", &line, "typed"]).current_dir(&place.0);
    let terminal = terminal.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = terminal.spawn() else {
        crate::support::skipped("script (bsdutils)");
        return;
    };
    let typed = || {
        let bytes = fs::read(place.0.join("typed")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    until(&|| typed().contains("codelets"));
    let mut keys = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut keys, b"q").expect("a key");
    // The head, and the epochs from the first one on, those to come too.
    let epoch = |text: &str, n: u64| {
        let starts = format!("{n:>5}  ");
        // A bar may have stood in the line before.
        let last = |line: &str| line.rsplit(['\r', 'K']).next().map(str::to_owned);
        text.lines().filter_map(last).filter(|line| line.starts_with(&starts)).count()
    };
    let after = |typed: &str| typed.rsplit_once("\u{1b}[?1049l").map(|(_, after)| after.to_owned());
    let many = |typed: &str| after(typed).is_some_and(|after| after.lines().count() > 50);
    until(&|| many(&typed()));
    let typed = typed();
    Command::new("sh").args(["-c", "kill -INT $(cat pid)"]).current_dir(&place.0).status().unwrap();
    child.wait().expect("an end");
    let after = after(&typed).expect("it was left");
    assert!(after.contains("epoch     loss  accuracy"), "{after:?}");
    assert_eq!([1, 2, 30].map(|n| epoch(&after, n)), [1, 1, 1], "{after:?}");
}
