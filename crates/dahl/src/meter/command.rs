//! A meter of the user's own: a command that prints what it reads.
//!
//! Each line is a reading: watts (`42.5`, `42.5 W`, `900 mW`) or joules so far
//! (`1234 J`, `3.2 kJ`). A command that goes on is read line by line; one that ends is
//! started again after a while. Watts hold until the next reading, for ten seconds at
//! most and not beyond a failure of the command: what follows is missed.

use super::{Covers, Meter, Source, Total};
use crate::os::threads;
use std::io::Read;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Watts are not taken to hold for longer.
const LONGEST: Duration = Duration::from_secs(10);
/// More watts than any machine draws: such a value must have another unit.
const MOST_WATTS: f64 = 1e6;
/// The longest line that may be a reading, in bytes.
const LINE: usize = 200;

/// One line of a command.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reading {
    Watts(f64),
    Joules(f64),
}

fn reading(line: &str) -> Option<Reading> {
    let text = line.trim();
    let digits = text.find(|c: char| c.is_alphabetic() && c != 'e' && c != 'E');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let number: f64 = number.trim().parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0)?;
    let found = match unit.trim() {
        "" | "W" => Reading::Watts(number),
        "mW" => Reading::Watts(number / 1e3),
        "kW" => Reading::Watts(number * 1e3),
        "J" => Reading::Joules(number),
        "mJ" => Reading::Joules(number / 1e3),
        "kJ" => Reading::Joules(number * 1e3),
        "Wh" => Reading::Joules(number * 3.6e3),
        "kWh" => Reading::Joules(number * 3.6e6),
        _ => return None,
    };
    let believed = match found {
        Reading::Watts(watts) => watts <= MOST_WATTS,
        // A counter whose differences are still exact to a thousandth of a joule.
        Reading::Joules(joules) => joules <= 1e12,
    };
    believed.then_some(found)
}

#[derive(Debug)]
struct State {
    total: Total,
    /// Up to when time is counted, as known or as missed.
    counted: Option<Instant>,
    /// The last reading, and its time.
    last: Option<(Instant, Reading)>,
    /// Why there is no reading.
    trouble: String,
    /// While this is open the command runs.
    leash: Option<ChildStdin>,
    ended: bool,
}

impl State {
    fn new() -> Self {
        let total = Total::new("command".to_owned(), Source::Command, Covers::Machine);
        let trouble = "the command has printed nothing yet".to_owned();
        Self { total, counted: None, last: None, trouble, leash: None, ended: false }
    }

    /// The time that is not counted yet; from here on it is.
    fn uncounted(&mut self, now: Instant) -> Duration {
        let from = self.counted.unwrap_or(now);
        // Whoever was kept waiting may come with an earlier time.
        self.counted = Some(now.max(from));
        now.saturating_duration_since(from)
    }

    /// Counts the time up to now by what was read last.
    fn advance(&mut self, now: Instant) {
        match self.last {
            // However often it is looked at: what was read does not get younger.
            Some((then, _)) if now.saturating_duration_since(then) > LONGEST => {
                self.trouble = format!("the command was silent for {} s", LONGEST.as_secs());
                self.last = None;
                self.miss(now);
            }
            Some((_, Reading::Watts(watts))) => {
                let time = self.uncounted(now);
                self.total.add(watts * time.as_secs_f64(), time);
            }
            // Joules are counted when the next ones are known.
            Some((_, Reading::Joules(_))) => {}
            None => self.miss(now),
        }
    }

    /// The time up to now is missed.
    fn miss(&mut self, now: Instant) {
        let time = self.uncounted(now);
        if !time.is_zero() {
            self.total.miss(time, &self.trouble);
        }
    }

    fn take(&mut self, now: Instant, line: &str) {
        let new = reading(line);
        match (self.last, new) {
            (Some((_, Reading::Joules(before))), Some(Reading::Joules(joules))) => {
                let time = self.uncounted(now);
                if joules < before {
                    self.total.miss(time, "the command's joules decreased");
                } else if joules - before > MOST_WATTS * time.as_secs_f64().max(1.0) {
                    self.total.miss(time, "the command's joules jumped");
                } else {
                    self.total.add(joules - before, time);
                }
            }
            _ => self.advance(now),
        }
        match new {
            Some(new) => {
                self.last = Some((now, new));
                let time = self.uncounted(now);
                if !time.is_zero() {
                    self.total.miss(time, "the command's joules ended");
                }
            }
            None => {
                let line: String = line.trim().chars().take(60).collect();
                self.trouble =
                    format!("the command printed {line:?}, which is neither watts nor joules");
                self.last = None;
                self.miss(now);
            }
        }
    }

    /// The command has ended. What it said last holds until it is started again, where it
    /// ended well: one that prints a line and ends is read again and again. After a failure
    /// nothing is known.
    fn end(&mut self, now: Instant, status: Option<ExitStatus>, said: &str) {
        let code = status.map_or("unknown status".to_owned(), |status| status.to_string());
        let failed = !status.is_some_and(|status| status.success());
        let said = said.trim().lines().last().unwrap_or_default();
        self.advance(now);
        if failed || self.last.is_none() {
            let colon = if said.is_empty() { "" } else { ": " };
            self.trouble = format!("the command ended with {code}{colon}{said}");
        }
        if failed {
            self.last = None;
            self.miss(now);
        }
    }
}

/// A command that is read. It and all that it started end with the meter, or with the
/// process that has it.
#[derive(Debug)]
pub struct Command {
    shared: Arc<(Mutex<State>, Condvar)>,
}

fn lock(shared: &(Mutex<State>, Condvar)) -> MutexGuard<'_, State> {
    shared.0.lock().unwrap_or_else(|e| e.into_inner())
}

impl Command {
    /// Starts a command of the shell; one that ends is started again after `pause`.
    ///
    /// # Errors
    /// Where there is no shell.
    pub fn start(command: &str, pause: Duration) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::new(State::new()), Condvar::new()));
        let mut first = Some(spawn(command)?);
        let (command, inside) = (command.to_owned(), shared.clone());
        let body = move || {
            loop {
                match first.take().map_or_else(|| spawn(&command), Ok) {
                    Ok(child) => follow(child, &inside),
                    Err(error) => lock(&inside).trouble = format!("the command: {error}"),
                }
                let state = lock(&inside);
                let state = inside.1.wait_timeout_while(state, pause, |state| !state.ended);
                if state.unwrap_or_else(|e| e.into_inner()).0.ended {
                    return;
                }
            }
        };
        // Whoever waits for the thread may wait for something that left the command's group
        // and holds its pipe.
        threads::spawn("dahl-meter-cmd", body)?;
        Ok(Self { shared })
    }
}

/// The command runs in a group of its own, beside a watcher that ends the group when the
/// standard input is closed: by the meter, or because this process is no more. What it
/// leaves behind when it ends goes too.
const LEASHED: &str = "exec 3<&0 </dev/null; (read x <&3; kill -KILL 0) >/dev/null 2>&1 & \
                       sh -c \"$0\" 3<&-; code=$?; trap '' TERM; kill -TERM 0; exit $code";

fn spawn(command: &str) -> std::io::Result<Child> {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", LEASHED, command]).stdin(Stdio::piped());
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    shell.spawn()
}

/// Reads what a command says until it ends.
fn follow(mut child: Child, shared: &(Mutex<State>, Condvar)) {
    {
        let mut state = lock(shared);
        // Without it the watcher ends the command.
        state.leash = child.stdin.take().filter(|_| !state.ended);
    }
    let errors = child.stderr.take();
    let said = threads::spawn("dahl-meter-err", move || {
        let mut last = String::new();
        lines(errors, |line| last = line.to_owned());
        last
    });
    lines(child.stdout.take(), |line| lock(shared).take(Instant::now(), line));
    lock(shared).leash = None;
    let status = child.wait().ok();
    let said = said.ok().and_then(|thread| thread.join().ok());
    lock(shared).end(Instant::now(), status, &said.unwrap_or_default());
}

/// Gives the lines of a stream, of which no more than some bytes are kept.
fn lines(stream: Option<impl Read>, mut take: impl FnMut(&str)) {
    let Some(mut stream) = stream else { return };
    let (mut line, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let read = match stream.read(&mut buffer) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        for &byte in &buffer[..read] {
            if byte == b'\n' {
                take(&String::from_utf8_lossy(&line));
                line.clear();
            } else if line.len() < LINE {
                line.push(byte);
            }
        }
    }
    if !line.is_empty() {
        take(&String::from_utf8_lossy(&line));
    }
}

impl Meter for Command {
    fn read(&mut self, now: Instant) -> Vec<Total> {
        let mut state = lock(&self.shared);
        state.advance(now);
        vec![state.total.clone()]
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        {
            let mut state = lock(&self.shared);
            state.ended = true;
            state.leash = None;
        }
        self.shared.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_watts_or_joules() {
        for (line, expected) in [
            ("42.5", Some(Reading::Watts(42.5))),
            (" 42.5 W\r", Some(Reading::Watts(42.5))),
            ("900mW", Some(Reading::Watts(0.9))),
            ("1e3 J", Some(Reading::Joules(1000.0))),
            ("2 Wh", Some(Reading::Joules(7200.0))),
            ("-1 W", None),
            ("NaN", None),
            ("1e300 W", None),
            ("1e300 J", None),
            ("power: 3 W", None),
            ("", None),
        ] {
            assert_eq!(reading(line), expected, "{line:?}");
        }
    }

    #[test]
    fn watts_hold_until_the_next_line() {
        let (mut state, begin) = (State::new(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        state.advance(at(0));
        state.take(at(1), "10 W");
        state.advance(at(2));
        state.take(at(4), "20 W");
        state.advance(at(5));
        assert_eq!((state.total.joules, state.total.seconds), (50.0, 4.0));
        assert_eq!(state.total.missed, 1.0, "before the first line");
        state.advance(at(60));
        assert_eq!((state.total.joules, state.total.missed), (50.0, 56.0), "it is silent");
        state.take(at(61), "what?");
        state.advance(at(62));
        assert_eq!(state.total.missed, 58.0);
    }

    #[test]
    fn a_command_that_falls_silent_is_missed_though_it_is_looked_at() {
        for (line, joules) in [("10 W", 100.0), ("10 J", 0.0)] {
            let (mut state, begin) = (State::new(), Instant::now());
            let at = |tenths: u64| begin + Duration::from_millis(100 * tenths);
            state.take(at(0), line);
            (1..=300).for_each(|tenths| state.advance(at(tenths)));
            // Watts hold for ten seconds, joules without others are none.
            let known = if joules > 0.0 { 10.0 } else { 0.0 };
            let total = &state.total;
            assert!((total.joules - joules).abs() < 1e-6, "{line}: {total:?}");
            assert!((total.seconds - known).abs() < 1e-6, "{line}: {total:?}");
            assert!((total.missed - (30.0 - known)).abs() < 1e-6, "{line}: {total:?}");
            assert!(total.why.as_ref().unwrap().contains("silent for 10 s"), "{total:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_a_command_said_does_not_outlive_its_failure() {
        use std::os::unix::process::ExitStatusExt;
        // As wait() encodes them.
        let [well, badly] = [0, 3 << 8].map(ExitStatus::from_raw);
        for (line, status, expected) in [
            ("40 W", well, (120.0, 3.0, 0.0)),
            ("40 W", badly, (40.0, 1.0, 2.0)),
            ("40 J", badly, (0.0, 0.0, 3.0)),
        ] {
            let (mut state, begin) = (State::new(), Instant::now());
            let at = |seconds| begin + Duration::from_secs(seconds);
            state.take(at(0), line);
            state.end(at(1), Some(status), "");
            state.advance(at(2));
            state.take(at(3), line);
            let total = &state.total;
            assert_eq!((total.joules, total.seconds, total.missed), expected, "{line}, {status}");
            let why = total.why.as_deref();
            assert_eq!(why, (status == badly).then_some("the command ended with exit status: 3"));
        }
    }

    #[test]
    fn joules_are_differences() {
        let (mut state, begin) = (State::new(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        state.take(at(0), "100 J");
        state.advance(at(1));
        state.take(at(2), "130 J");
        assert_eq!((state.total.joules, state.total.seconds), (30.0, 2.0));
        // It was started again.
        state.take(at(3), "5 J");
        state.take(at(4), "6 J");
        assert_eq!(state.total.joules, 31.0);
        // What was spent meanwhile is not known; nor is it when it says something else.
        assert_eq!((state.total.seconds, state.total.missed), (3.0, 1.0));
        state.take(at(6), "7 W");
        state.advance(at(7));
        let total = &state.total;
        assert_eq!((total.joules, total.seconds, total.missed), (38.0, 4.0, 3.0));
    }

    #[cfg(unix)]
    #[test]
    fn a_command_is_started_again_and_ends_with_its_meter() {
        let file = std::env::temp_dir().join(format!("dahl-meter-{}", std::process::id()));
        let command = format!("echo 5 W; echo x >> {}", file.display());
        let mut meter = Command::start(&command, Duration::from_millis(1)).unwrap();
        let lines = || std::fs::read_to_string(&file).map_or(0, |text| text.len());
        while lines() < 6 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let total = meter.read(Instant::now()).remove(0);
        assert!(total.seconds > 0.0 && total.joules > 0.0, "{total:?}");
        drop(meter);
        let _ = std::fs::remove_file(&file);
    }

    /// Waits until the meter says why it reads nothing.
    #[cfg(unix)]
    fn trouble(command: &str, expected: &str) {
        let mut meter = Command::start(command, Duration::from_secs(60)).unwrap();
        let end = Instant::now() + Duration::from_secs(600);
        loop {
            let total = meter.read(Instant::now()).remove(0);
            let why = total.why.clone().unwrap_or_default();
            if why.contains(expected) {
                assert_eq!(total.seconds, 0.0);
                return;
            }
            assert!(Instant::now() < end, "{command}: {why:?}, not {expected:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_command_that_reads_nothing_says_why() {
        trouble("no-such-meter-at-all", "not found");
        trouble("echo out of order >&2; exit 3", "exit status: 3: out of order");
        trouble("echo P=50 W; sleep 100", "printed \"P=50 W\"");
        // A line without an end is not kept.
        trouble("tr '\\0' x </dev/zero | head -c 10000000; echo; sleep 100", "printed \"xxxx");
    }

    #[cfg(unix)]
    #[test]
    fn what_a_command_started_ends_with_its_meter() {
        let file = std::env::temp_dir().join(format!("dahl-orphan-{}", std::process::id()));
        let command = format!("sleep 1000 & echo $! > {}; echo 5 W; wait", file.display());
        let meter = Command::start(&command, Duration::from_millis(1)).unwrap();
        let end = Instant::now() + Duration::from_secs(600);
        let pid = loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if let Some(pid) = text.strip_suffix('\n') {
                break pid.to_owned();
            }
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(1));
        };
        drop(meter);
        // Gone, or dead and not yet buried by whoever inherited it.
        let lives = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        while lives() {
            assert!(Instant::now() < end, "{pid} is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = std::fs::remove_file(&file);
    }
}
