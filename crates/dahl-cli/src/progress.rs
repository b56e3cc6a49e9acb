//! How far a pass over samples is: a bar on a terminal, a line now and then
//! elsewhere. It goes to standard error and never into results.

use crate::output::{Colour, escaped, say};
use dahl::os::threads::spawn;
use dahl::train::Pass;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between drawings of a bar; a shorter pass shows none.
const DRAWN: Duration = Duration::from_millis(100);

/// Interval between lines if there is no terminal.
const WRITTEN: Duration = Duration::from_secs(10);

/// The least room for the bar itself.
const BAR: usize = 10;

/// The style of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Not at all, as `--quiet` asks for.
    Nothing,
    /// A line every ten seconds.
    Lines,
    /// A bar that is drawn again and again.
    Bar,
}

impl Show {
    /// As standard error can: a bar needs a terminal that moves its cursor.
    pub(crate) fn on_stderr() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if std::io::stderr().is_terminal() && !dumb { Show::Bar } else { Show::Lines }
    }

    /// The same, but nothing with `--quiet`.
    pub(crate) fn unless(quiet: bool) -> Self {
        if quiet { Show::Nothing } else { Show::on_stderr() }
    }
}

/// What is measured now, of things that take some time each: a bar that is gone when this is
/// dropped, or lines.
pub(crate) struct Measuring {
    show: Show,
    /// The number of things, if it is known: then one line every ten seconds is enough.
    count: Option<usize>,
    bar: Option<ProgressBar>,
    written: Instant,
}

impl Measuring {
    pub(crate) fn new(show: Show, count: Option<usize>) -> Self {
        Self { show, count, bar: None, written: Instant::now() }
    }

    /// Measuring of a thing begins; some are `done`.
    pub(crate) fn begin(&mut self, done: usize, what: &str) {
        match (self.show, self.count) {
            (Show::Nothing, _) => {}
            (Show::Lines, None) => say(format_args!("measuring {what}")),
            (Show::Lines, Some(_)) if self.written.elapsed() < WRITTEN => {}
            (Show::Lines, Some(count)) => {
                self.written = Instant::now();
                say(format_args!("measuring {what} ({} of {count})", done + 1));
            }
            (Show::Bar, count) => {
                let bar = self.bar.get_or_insert_with(|| {
                    let bars = count.map_or("measuring {msg}", |_| "{pos}/{len} {wide_bar} {msg}");
                    let style = ProgressStyle::with_template(bars);
                    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
                    ProgressBar::new(count.unwrap_or(0) as u64).with_style(style)
                });
                bar.set_message(what.to_owned());
                bar.set_position(done as u64);
            }
        }
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Reports, line by line, that something that may take minutes is still under way, until it is
/// dropped.
pub(crate) struct Waiting {
    /// Dropped when it ends, which the thread waits for.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Begins, with the first line after some seconds. It does without where the system has no
    /// thread to give.
    pub(crate) fn begin(show: Show, what: String) -> Self {
        Self::every(show, WRITTEN, move |seconds| say(format_args!("{what}, {seconds} s")))
    }

    fn every(show: Show, time: Duration, mut tell: impl FnMut(u64) + Send + 'static) -> Self {
        if show == Show::Nothing {
            return Self { end: None, thread: None };
        }
        let (end, ended) = mpsc::channel();
        let begin = Instant::now();
        let body = move || {
            while ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                tell(begin.elapsed().as_secs());
            }
        };
        Self { end: Some(end), thread: spawn("dahl-waiting", body).ok() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// The progress of a run of several passes.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    show: Show,
    begin: Instant,
    /// The samples that the run learns from, all epochs together.
    samples: usize,
    /// The number of samples that earlier sessions had trained on in this epoch.
    before: usize,
}

impl Progress {
    /// Of a run that begins now, which is long `samples` samples. It may have
    /// done some `before`, in the run that it goes on with.
    pub(crate) fn new(show: Show, samples: usize, before: usize) -> Self {
        Self { show, begin: Instant::now(), samples, before }
    }

    /// Where nothing is learned.
    pub(crate) fn of_looking(show: Show) -> Self {
        Self::new(show, 0, 0)
    }

    /// Begins a pass that learns from `samples` samples; the run has learned
    /// from `done` when it begins.
    pub(crate) fn learn(&self, title: String, samples: usize, done: usize) -> Meter {
        self.meter(title, samples, Some(done))
    }

    /// Begins a pass that looks at `samples` samples.
    pub(crate) fn look(&self, title: &str, samples: usize) -> Meter {
        self.meter(title.to_owned(), samples, None)
    }

    /// The time that the run will take after this, where it is longer than the
    /// pass: one of `of` samples that began at `done` and has `read` some.
    fn left(&self, done: usize, of: usize, read: usize) -> Option<Duration> {
        let learned = (done + read).checked_sub(self.before).filter(|&n| n > 0)?;
        let rest = self.samples.checked_sub(done + of).filter(|&n| n > 0)? + of - read.min(of);
        Some(self.begin.elapsed().mul_f64(rest as f64 / learned as f64))
    }

    fn meter(&self, title: String, samples: usize, done: Option<usize>) -> Meter {
        let title = escaped(&title).into_owned();
        Meter { run: *self, title, samples, done, from: None, shown: Instant::now(), bar: None }
    }
}

fn style() -> ProgressStyle {
    let template = match Colour::of_stderr() {
        Colour::Ansi => "{prefix} {wide_bar:.cyan/dim}{msg}",
        Colour::Never => "{prefix} {wide_bar}{msg}",
    };
    let style = ProgressStyle::with_template(template);
    let chars = if is_utf8() { "━╸─" } else { "=>-" };
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars(chars)
}

/// Whether the locale writes more than ASCII.
fn is_utf8() -> bool {
    let variables = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
    let mut set = variables.filter(|value| !value.is_empty());
    set.next().is_some_and(|value| value.to_string_lossy().to_lowercase().contains("utf"))
}

/// The progress of a pass. Its bar is gone when it is dropped.
pub(crate) struct Meter {
    run: Progress,
    title: String,
    samples: usize,
    /// The samples that earlier sessions had trained on, in a training pass.
    done: Option<usize>,
    /// The samples that were through when it was first told, and when that was:
    /// a pass may go on in its middle.
    from: Option<(usize, Instant)>,
    shown: Instant,
    bar: Option<ProgressBar>,
}

impl Meter {
    /// Shows a pass over samples that are trained or evaluated on.
    pub(crate) fn show(&mut self, pass: &Pass) {
        self.update(pass.samples, Some(pass));
    }

    /// Shows that so many samples were looked at.
    pub(crate) fn count(&mut self, samples: usize) {
        self.update(samples, None);
    }

    fn update(&mut self, samples: usize, pass: Option<&Pass>) {
        let pause = match self.run.show {
            Show::Nothing => return,
            Show::Lines => WRITTEN,
            Show::Bar => DRAWN,
        };
        let (from, begin) = *self.from.get_or_insert_with(|| (samples, Instant::now()));
        if self.shown.elapsed() < pause || samples == from {
            return;
        }
        self.shown = Instant::now();
        let elapsed = begin.elapsed();
        let run_left = self.done.and_then(|done| self.run.left(done, self.samples, samples));
        let state = State { samples, from, of: self.samples, pass, elapsed, run_left };
        match self.run.show {
            Show::Bar => {
                // A bar is drawn as soon as it is there, so it comes with its text.
                let bar = self.bar.get_or_insert_with(ProgressBar::hidden);
                let columns = terminal_size::terminal_size_of(std::io::stderr())
                    .map_or(80, |(width, _)| usize::from(width.0));
                let room = columns.saturating_sub(self.title.chars().count() + 1 + BAR);
                bar.set_message(state.beside_bar(room));
                bar.set_position(samples as u64);
                if bar.length().is_none() {
                    bar.set_prefix(self.title.clone());
                    bar.set_style(style());
                    bar.set_length(self.samples as u64);
                    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(20));
                }
            }
            _ => say(state.line(&self.title)),
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// The progress of a pass.
struct State<'a> {
    samples: usize,
    /// The number of samples before the start of the elapsed time.
    from: usize,
    of: usize,
    pass: Option<&'a Pass>,
    elapsed: Duration,
    run_left: Option<Duration>,
}

impl State<'_> {
    fn percent(&self) -> String {
        format!("{:>3.0} %", 100.0 * self.samples as f64 / self.of.max(1) as f64)
    }

    fn speed(&self) -> f64 {
        self.samples.saturating_sub(self.from) as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn left(&self) -> Duration {
        let rest = self.of.saturating_sub(self.samples) as f64;
        self.elapsed.mul_f64(rest / self.samples.saturating_sub(self.from).max(1) as f64)
    }

    /// What stands beside the bar: as much as there is room for, the most
    /// important first.
    fn beside_bar(&self, room: usize) -> String {
        // In the order of their places, each with its rank.
        let mut parts = vec![(0, format!(" {}", self.percent()))];
        parts.push((4, format!("  {:.0}/s", self.speed())));
        if let Some(pass) = self.pass {
            parts.push((2, format!("  loss {:.4}", pass.loss())));
            parts.push((3, format!("  {:.2} %", 100.0 * pass.accuracy())));
        }
        parts.push((1, format!("  {} left", span(self.left()))));
        if let Some(run) = self.run_left {
            parts.push((5, format!(", {} in all", span(run))));
        }
        let width = |parts: &[(u8, String)]| -> usize {
            parts.iter().map(|(_, text)| text.chars().count()).sum()
        };
        while parts.len() > 1 && width(&parts) > room {
            let last = parts.iter().map(|(rank, _)| *rank).max();
            parts.retain(|(rank, _)| Some(*rank) != last);
        }
        parts.into_iter().map(|(_, text)| text).collect()
    }

    fn line(&self, title: &str) -> String {
        let mut text = format!("{title}: {}, {:.0} samples/s", self.percent().trim(), self.speed());
        if let Some(pass) = self.pass {
            let accuracy = 100.0 * pass.accuracy();
            text += &format!(", loss {:.4}, accuracy {accuracy:.2} %", pass.loss());
        }
        text += &format!(", {} left", span(self.left()));
        if let Some(run) = self.run_left {
            text += &format!(", {} in all", span(run));
        }
        text
    }
}

/// A time in at most two units.
fn span(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    let (minutes, hours) = (seconds.div_ceil(60), seconds / 3600);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{minutes} min"),
        7200..172_800 => format!("{hours} h {} min", seconds % 3600 / 60),
        _ => format!("{} d {} h", hours / 24, hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: Pass = Pass { samples: 430, correct: 400, total_loss: 43.0 };

    fn state(pass: Option<&Pass>) -> State<'_> {
        State {
            samples: 430,
            from: 0,
            of: 1000,
            pass,
            elapsed: Duration::from_secs(2),
            run_left: Some(Duration::from_secs(200)),
        }
    }

    #[test]
    fn a_narrow_terminal_gets_what_matters_most() {
        let check = |room, expected: &str| {
            assert_eq!(state(Some(&PASS)).beside_bar(room), expected);
            assert!(expected.chars().count() <= room.max(6));
        };
        check(100, "  43 %  215/s  loss 0.1000  93.02 %  3 s left, 4 min in all");
        check(50, "  43 %  215/s  loss 0.1000  93.02 %  3 s left");
        check(40, "  43 %  loss 0.1000  93.02 %  3 s left");
        check(20, "  43 %  3 s left");
        check(0, "  43 %");
    }

    #[test]
    fn lines_say_it_in_words() {
        let expected = "epoch 1: 43 %, 215 samples/s, loss 0.1000, accuracy 93.02 %, 3 s left, \
                        4 min in all";
        assert_eq!(state(Some(&PASS)).line("epoch 1"), expected);
        let resumed = State { from: 400, ..state(None) };
        assert_eq!(resumed.line("x"), "x: 43 %, 15 samples/s, 38 s left, 4 min in all");
        let checked = State { run_left: None, ..state(None) };
        assert_eq!(checked.line("pets"), "pets: 43 %, 215 samples/s, 3 s left");
    }

    #[test]
    fn the_run_is_longer_than_its_last_pass() {
        let run = Progress::new(Show::Nothing, 300, 100);
        assert_eq!(run.left(100, 100, 0), None, "nothing was measured yet");
        assert!(run.left(100, 100, 50).is_some());
        assert_eq!(run.left(200, 100, 50), None, "the last pass");
        assert_eq!(Progress::of_looking(Show::Nothing).left(0, 10, 5), None);
    }

    #[test]
    fn what_takes_long_says_that_it_goes_on() {
        let (told, heard) = mpsc::channel();
        let tell = move |seconds| told.send(seconds).unwrap_or_default();
        let waiting = Waiting::every(Show::Lines, Duration::from_millis(1), tell);
        assert!(heard.recv().is_ok() && heard.recv().is_ok());
        drop(waiting);
        // Its thread has ended: this would wait for more.
        let _ = heard.iter().count();
        let silent = |_| panic!("it was to be silent");
        drop(Waiting::every(Show::Nothing, Duration::ZERO, silent));
    }

    #[test]
    fn nothing_is_known_before_the_first_sample() {
        let none = State {
            samples: 0,
            from: 0,
            of: 0,
            pass: Some(&Pass::default()),
            elapsed: Duration::ZERO,
            run_left: None,
        };
        assert_eq!(none.line("x"), "x: 0 %, 0 samples/s, loss 0.0000, accuracy 0.00 %, 0 s left");
    }

    #[test]
    fn times_have_fitting_units() {
        for (seconds, expected) in [
            (0, "0 s"),
            (119, "119 s"),
            (121, "3 min"),
            (7199, "120 min"),
            (7200, "2 h 0 min"),
            (100_000, "27 h 46 min"),
            (200_000, "2 d 7 h"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), expected);
        }
    }
}
