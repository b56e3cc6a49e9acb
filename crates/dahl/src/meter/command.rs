//! A meter of the user's own: a command that prints what it reads.
//!
//! Each line is a reading: watts (`42.5`, `42.5 W`, `900 mW`) or joules so far
//! (`1234 J`, `3.2 kJ`). A command that goes on is read line by line; one that ends is
//! started again after a while. Watts hold until the next reading.

use super::{Covers, Meter, Source, Total};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Watts are not taken to hold for longer.
const LONGEST: Duration = Duration::from_secs(10);

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
    Some(match unit.trim() {
        "" | "W" => Reading::Watts(number),
        "mW" => Reading::Watts(number / 1e3),
        "kW" => Reading::Watts(number * 1e3),
        "J" => Reading::Joules(number),
        "mJ" => Reading::Joules(number / 1e3),
        "kJ" => Reading::Joules(number * 1e3),
        "Wh" => Reading::Joules(number * 3.6e3),
        "kWh" => Reading::Joules(number * 3.6e6),
        _ => return None,
    })
}

#[derive(Debug)]
struct State {
    total: Total,
    /// Up to when it is known or missed, and by which reading.
    last: Option<(Instant, Option<Reading>)>,
    child: Option<Child>,
    ended: bool,
}

impl State {
    /// Counts the time up to now by what was read last.
    fn advance(&mut self, now: Instant) {
        let Some((then, last)) = self.last else {
            self.last = Some((now, None));
            return;
        };
        let time = now.saturating_duration_since(then);
        match last {
            Some(Reading::Watts(watts)) if time <= LONGEST => {
                self.total.add(watts * time.as_secs_f64(), time);
            }
            // Joules are counted when the next ones are known.
            Some(Reading::Joules(_)) if time <= LONGEST => return,
            Some(_) => self.total.miss(time, "the command was silent for long"),
            None => self.total.miss(time, "the command has said nothing yet"),
        }
        self.last = Some((now, last.filter(|_| time <= LONGEST)));
    }

    fn take(&mut self, now: Instant, line: &str) {
        let new = reading(line);
        match (self.last, new) {
            (Some((then, Some(Reading::Joules(before)))), Some(Reading::Joules(joules)))
                if joules >= before =>
            {
                self.total.add(joules - before, now.saturating_duration_since(then));
            }
            _ => self.advance(now),
        }
        if new.is_none() {
            self.total.why = Some(format!("the command printed {:?}", line.trim()));
        }
        self.last = Some((now, new));
    }
}

/// A command that is read.
#[derive(Debug)]
pub struct Command {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
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
        let total = Total::new("command".to_owned(), Source::Command, Covers::Machine);
        let state = State { total, last: None, child: None, ended: false };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let mut first = Some(spawn(command)?);
        let (command, inside) = (command.to_owned(), shared.clone());
        let body = move || {
            loop {
                let child = first.take().map_or_else(|| spawn(&command), Ok);
                if let Ok(mut child) = child {
                    let output = child.stdout.take();
                    {
                        let mut state = lock(&inside);
                        if state.ended {
                            let _ = child.kill();
                        }
                        state.child = Some(child);
                    }
                    for line in output.into_iter().flat_map(|out| BufReader::new(out).lines()) {
                        let Ok(line) = line else { break };
                        lock(&inside).take(Instant::now(), &line);
                    }
                }
                let mut state = lock(&inside);
                if let Some(mut child) = state.child.take() {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                let state = inside.1.wait_timeout_while(state, pause, |state| !state.ended);
                if state.unwrap_or_else(|e| e.into_inner()).0.ended {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("dahl-meter-cmd".to_owned()).spawn(body)?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

fn spawn(command: &str) -> std::io::Result<Child> {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped());
    shell.stderr(Stdio::null()).spawn()
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
            if let Some(child) = &mut state.child {
                let _ = child.kill();
            }
        }
        self.shared.1.notify_all();
        // A grandchild may hold the pipe open: whoever waits for it waits in vain.
        drop(self.thread.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let total = Total::new("command".to_owned(), Source::Command, Covers::Machine);
        State { total, last: None, child: None, ended: false }
    }

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
            ("power: 3 W", None),
            ("", None),
        ] {
            assert_eq!(reading(line), expected, "{line:?}");
        }
    }

    #[test]
    fn watts_hold_until_the_next_line() {
        let (mut state, begin) = (state(), Instant::now());
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
    fn joules_are_differences() {
        let (mut state, begin) = (state(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        state.take(at(0), "100 J");
        state.advance(at(1));
        state.take(at(2), "130 J");
        assert_eq!((state.total.joules, state.total.seconds), (30.0, 2.0));
        // It was started again.
        state.take(at(3), "5 J");
        state.take(at(4), "6 J");
        assert_eq!(state.total.joules, 31.0);
    }

    #[cfg(unix)]
    #[test]
    fn a_command_is_started_again_and_ends_with_its_meter() {
        let file = std::env::temp_dir().join(format!("dahl-meter-{}", std::process::id()));
        let command = format!("echo 5 W; echo x >> {}", file.display());
        let mut meter = Command::start(&command, Duration::from_millis(1)).unwrap();
        let lines = || std::fs::read_to_string(&file).map_or(0, |text| text.len());
        while lines() < 6 {
            std::thread::yield_now();
        }
        let total = meter.read(Instant::now()).remove(0);
        assert!(total.seconds > 0.0 && total.joules > 0.0, "{total:?}");
        drop(meter);
        let _ = std::fs::remove_file(&file);
    }
}
