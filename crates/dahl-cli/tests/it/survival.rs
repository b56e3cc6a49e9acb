//! Runs that are interrupted, killed, or have no room left.
#![cfg(unix)]

use crate::runs::{Place, SMALL};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Sends a signal as a user does.
pub(crate) fn signal(child: &Child, name: &str) {
    let line = format!("kill -{name} {}", child.id());
    let status = Command::new("sh").args(["-c", &line]).status();
    assert!(status.expect("sh runs").success(), "{line}");
}

/// Whether this process ignores SIGHUP, and so all that it starts.
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 != 0)
}

#[test]
fn a_signal_ends_a_run_after_its_step_and_it_goes_on() {
    let place = Place::new("signal");
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        if name == "HUP" && hang_up_is_ignored() {
            eprintln!("skipped: SIGHUP is ignored here, as under nohup");
            continue;
        }
        let mut child = place.start_endless(name);
        signal(&child, name);
        let status = child.wait().expect("an end");
        // A code, not a death by signal: the run ended by itself.
        assert_eq!(status.code(), Some(code), "{status}");
        let last = place.checkpoints(name).pop().expect("a checkpoint");
        let epoch: u64 = last[6..11].parse().expect("an epoch");
        // Goes on to the end of the epoch after, as a run never stopped does.
        let epochs = (epoch + 1).to_string();
        assert_eq!(place.dahl(&["train", "--resume", name, "--epochs", &epochs]).0, 0);
        let whole = format!("whole-{name}");
        assert_eq!(place.train(&["--epochs", &epochs, "--run", &whole]).0, 0);
        assert_eq!(place.gave(name), place.gave(&whole), "{name}");
    }
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let place = Place::new("second");
    let mut child = place.start_endless("a");
    signal(&child, "INT");
    signal(&child, "INT");
    // Whether it was the step's end or the second one that was faster.
    assert_eq!(child.wait().expect("an end").code(), Some(130));
}

#[test]
fn a_directory_is_for_one_process_at_a_time() {
    let place = Place::new("two");
    let mut child = place.start_endless("a");
    let expected = "run: expected a directory that no other process trains in, found runs/a";
    place.check(&["train", "--resume", "a"], 2, expected);
    place.check(&[&SMALL[..], &["--run", "a"]].concat(), 2, "runs/a already holds a run");
    child.kill().expect("a kill");
    assert_eq!(child.wait().expect("an end").signal(), Some(9));
    // The lock went with its process.
    place.check(&["train", "--resume", "a", "--max-steps", "1"], 0, "stopped by --max-steps");
}

/// A limit on the size of files stands for a disk that is full: both refuse the
/// bytes of a checkpoint in the middle of a file.
fn limited(place: &Place, args: &[&str]) -> (i32, String) {
    // The limit is in blocks of 512 or 1024 bytes, by shell. The signal that
    // comes with it would end the process, which a full disk does not.
    let line = "trap '' XFSZ; ulimit -f 6; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.current_dir(&place.0).args(["-c", line, env!("CARGO_BIN_EXE_dahl")]).args(args);
    let output = command.output().expect("sh runs");
    let stderr = String::from_utf8(output.stderr).expect("text");
    (output.status.code().unwrap_or(-1), stderr)
}

#[test]
fn a_full_disk_leaves_the_old_checkpoint_and_the_run_resumes() {
    let place = Place::new("full");
    assert_eq!(place.train(&["--epochs", "3", "--run", "whole"]).0, 0);
    let part = ["--epochs", "3", "--run", "part", "--max-steps", "5"];
    assert_eq!(place.train(&part).0, 0);
    let before = place.checkpoints("part");
    let (code, stderr) = limited(&place, &["train", "--resume", "part"]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("warning: no checkpoint: "), "{stderr}");
    assert!(stderr.contains("; the run continues\n"), "{stderr}");
    let kept = format!("runs/part/checkpoints/{} is complete; make room and resume", before[0]);
    assert!(stderr.contains("the last checkpoint was not written: "), "{stderr}");
    assert!(stderr.contains(&kept) && !stderr.contains("panicked"), "{stderr}");
    assert_eq!(place.checkpoints("part"), before);
    assert_eq!(place.dahl(&["train", "--resume", "part"]).0, 0);
    assert_eq!(place.gave("part"), place.gave("whole"));
}

/// Kills runs at random moments, resumes them until they end, and compares. The
/// number of kills is `KILLS`; `scripts/kill_campaign.sh` makes it 50.
#[test]
fn killed_at_random_moments_a_run_ends_with_the_same_bits() {
    let kills: u64 = std::env::var("KILLS").map_or(8, |n| n.parse().expect("a number"));
    let place = Place::new("killed");
    let recipe = ["--epochs", "20", "--quiet", "--checkpoint-every", "1"];
    let begin = Instant::now();
    assert_eq!(place.train(&[&recipe[..], &["--run", "whole"]].concat()).0, 0);
    let time = begin.elapsed();
    let whole = place.gave("whole");
    let mut random = 1u64;
    let (mut killed, mut round) = (0, 0);
    while killed < kills {
        round += 1;
        let name = format!("round-{round}");
        let started = || place.run(&name).join("config.toml").exists();
        loop {
            // One that was killed before it had begun is begun again.
            let new = [&SMALL[..], &recipe, &["--run", &name]].concat();
            let on = ["train", "--resume", &name, "--quiet"];
            let args = if started() { &on[..] } else { &new };
            let mut command = place.command(args);
            let mut child = command.stdout(Stdio::null()).spawn().expect("dahl runs");
            if killed < kills {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let part = (random >> 40) as f64 / (1u64 << 24) as f64;
                // A kill is to come at any moment of a step or a write, which no
                // line of output tells of; nothing depends on which it is.
                std::thread::sleep(Duration::from_secs_f64(time.as_secs_f64() * part));
                child.kill().expect("a kill");
            }
            let status = child.wait().expect("an end");
            match (status.signal(), status.code()) {
                (Some(9), _) => killed += 1,
                (_, Some(0)) => break,
                _ => panic!("{name} ended with {status} after {killed} kills"),
            }
        }
        assert_eq!(place.gave(&name), whole, "{name} after {killed} kills");
    }
    eprintln!("{killed} kills in {round} runs");
}
