//! The output of a run on a terminal.

use crate::live::Screen;
use crate::output::{FAILED, quoted, say, show_part};
use crate::progress::{Meter, Progress, Show};
use crate::stop::by;
use dahl::Result;
use dahl::native::{peak_bytes, resident_bytes};
use dahl::run::{EpochMetrics, Outcome, StopReason};
use dahl::train::{Confusion, EpochRecord, Pass, State};
use dahl::units::Bytes;
use std::fmt::Display;
use std::path::Path;

/// The amount of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputMode {
    Text,
    Json,
    /// Nothing but the result.
    Quiet,
    /// Nothing but the last line of JSON.
    LastJson,
}

/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    pub(crate) epochs: usize,
    /// Training samples per epoch.
    pub(crate) samples: usize,
    /// Whether the learning rate changes meanwhile.
    pub(crate) has_schedule: bool,
}

/// Tells a person how a run goes.
pub(crate) struct Report {
    mode: OutputMode,
    length: Length,
    /// Whether the table has its head.
    headed: bool,
    progress: Progress,
    /// The pass that is shown: its name and how far it is.
    meter: Option<(String, Meter)>,
    /// Results could not be printed.
    unprinted: bool,
    /// The terminal, where somebody else draws on it; what is to be said after that, and the
    /// epochs that are to be printed.
    screen: Option<Screen>,
    held: Vec<String>,
    epochs: String,
}

impl Report {
    pub(crate) fn new(mode: OutputMode, length: Length) -> Self {
        let progress = Progress::of_looking(Show::Nothing);
        let (meter, screen, held, epochs) = (None, None, Vec::new(), String::new());
        let (headed, unprinted) = (false, false);
        Self { mode, length, headed, progress, meter, unprinted, screen, held, epochs }
    }

    /// Somebody draws on the terminal: what is said waits.
    pub(crate) fn hold(&mut self, screen: Screen) {
        self.screen = Some(screen);
    }

    /// The terminal is free again: what waited is said.
    pub(crate) fn release(&mut self) {
        self.screen = None;
        self.held.drain(..).for_each(say);
        let epochs = std::mem::take(&mut self.epochs);
        if !epochs.is_empty() {
            self.show(show_part(&epochs));
        }
    }

    /// Whether the terminal is in full-screen mode, which may have ended.
    fn is_held(&mut self) -> bool {
        let held = self.screen.as_ref().is_some_and(Screen::is_drawn_on);
        if !held && self.screen.is_some() {
            self.release();
        }
        held
    }

    /// Training begins, or goes on from here.
    pub(crate) fn begin(&mut self, state: &State) {
        let Length { epochs, samples, .. } = self.length;
        let before = state.epoch as usize * samples + state.pass.samples;
        self.progress = Progress::new(self.shown(), epochs * samples, before);
    }

    /// The style of progress.
    pub(crate) fn shown(&self) -> Show {
        if self.is_quiet() { Show::Nothing } else { Show::on_stderr() }
    }

    fn is_quiet(&self) -> bool {
        matches!(self.mode, OutputMode::Quiet | OutputMode::LastJson)
    }

    /// A line for the log.
    pub(crate) fn log(&mut self, text: impl Display) {
        if !self.is_quiet() {
            self.warn(text);
        }
    }

    /// A line for people; with `--json` there is none.
    pub(crate) fn aside(&mut self, text: impl Display) {
        if self.mode == OutputMode::Text {
            self.warn(text);
        }
    }

    /// Something that the user should know even of a run that is silent.
    pub(crate) fn warn(&mut self, text: impl Display) {
        self.clear();
        match self.is_held() {
            true => self.held.push(text.to_string()),
            false => say(text),
        }
    }

    /// Where the run is kept, and how far it is.
    pub(crate) fn place(&mut self, path: &Path, state: &State) {
        match state.steps {
            0 => self.log(format_args!("run directory: {}", path.display())),
            steps => self.log(format_args!(
                "run directory: {}; continues after step {steps}, epoch {}",
                path.display(),
                state.epoch + 1
            )),
        }
    }

    /// A training step has ended.
    pub(crate) fn step(&mut self, epoch: u64, pass: &Pass) {
        if self.is_held() {
            return;
        }
        let Length { epochs, samples, .. } = self.length;
        let (progress, done) = (self.progress, (epoch as usize - 1) * samples);
        self.meter(&format!("epoch {epoch}/{epochs}"), |title| {
            progress.learn(title, samples, done)
        })
        .show(pass);
    }

    /// A step of an evaluation has ended.
    pub(crate) fn evaluating(&mut self, name: &str, pass: &Pass, of: usize) {
        if self.is_held() {
            return;
        }
        let progress = self.progress;
        self.meter(name, |title| progress.look(&title, of)).show(pass);
    }

    /// The progress of a pass of this title; that of another pass ends.
    fn meter(&mut self, title: &str, make: impl FnOnce(String) -> Meter) -> &mut Meter {
        if self.meter.as_ref().is_some_and(|(shown, _)| shown != title) {
            self.meter = None;
        }
        let make = || (title.to_owned(), make(title.to_owned()));
        &mut self.meter.get_or_insert_with(make).1
    }

    /// Removes what is no line of its own.
    pub(crate) fn clear(&mut self) {
        self.meter = None;
    }

    /// Prints a result. Training is worth more than its table: where that cannot
    /// be printed, the run goes on.
    fn show(&mut self, printed: Result<()>) {
        if let Err(error) = printed
            && !self.unprinted
        {
            self.warn(format_args!("warning: {error}; the run continues"));
            self.unprinted = true;
        }
    }

    /// The exit code of a run that was not stopped.
    pub(crate) fn code(&self) -> u8 {
        if self.unprinted { FAILED } else { 0 }
    }

    /// An epoch has ended.
    pub(crate) fn epoch(&mut self, record: &EpochRecord) {
        self.clear();
        let last = record.epoch >= self.length.epochs as u64;
        let text = match self.mode {
            OutputMode::Quiet => return,
            OutputMode::LastJson if !last => return,
            OutputMode::Json | OutputMode::LastJson => {
                format!("{}\n", EpochMetrics::from(record).to_json())
            }
            OutputMode::Text => {
                let (head, row) = table(record, self.length);
                format!("{}{row}", if self.headed { "" } else { &head })
            }
        };
        self.headed = true;
        match self.is_held() {
            true => self.epochs += &text,
            false => self.show(show_part(&text)),
        }
    }

    /// The run stops before its end.
    pub(crate) fn stopped(&self, why: StopReason, steps: u64, run: Option<&Path>) {
        // Without it a run that is silent would look as if it had ended.
        let mark = if self.is_quiet() { "warning: " } else { "" };
        let saved =
            run.map(|run| format!(", saved; resume with: dahl train --resume {}", quoted(run)));
        let saved = saved.unwrap_or_default();
        say(format_args!("{mark}stopped {} after step {steps}{saved}", by(why)));
    }

    /// The run has ended.
    pub(crate) fn conclude(
        &mut self,
        end: &Outcome,
        speed: f64,
        energy: Option<String>,
        longer: Option<usize>,
    ) {
        if matches!(self.mode, OutputMode::Json | OutputMode::LastJson) {
            return;
        }
        let known = |bytes: Option<u64>| {
            bytes.map_or("unknown".to_owned(), |bytes| Bytes(bytes).to_string())
        };
        let (resident, peak) = (known(resident_bytes()), known(peak_bytes()));
        let session = if end.from == 0 { "" } else { " in this session" };
        let Some(last) = end.history.last() else { return };
        let (name, pass) = match last.evaluated.last() {
            Some((name, pass)) => (&**name, pass),
            None => ("training", &last.train),
        };
        let mut text = end.confusion.as_ref().map_or(String::new(), Confusion::to_string);
        let (accuracy, samples) = (100.0 * pass.accuracy(), pass.samples);
        text += &format!(
            "{name} accuracy {accuracy:.2} % ({samples} samples) after {:.1} s{session}, {speed:.0} \
             samples/s in training\nmemory: {} planned, {resident} resident, {peak} peak\n",
            end.seconds, end.planned
        );
        text.extend(energy.map(|energy| format!("energy: {energy}\n")));
        let weights = end.save.as_deref().or(end.kept.as_deref());
        let file = weights.map(|path| format!("{}, ", path.display()));
        // The first digits tell runs apart; the directory has them all.
        let hash = &end.sha256[..end.sha256.len().min(16)];
        text += &format!("weights: {}sha256 {hash}…\n", file.unwrap_or_default());
        if self.mode == OutputMode::Text {
            // What was not written cannot be evaluated.
            text += &match end.directory.as_deref().filter(|_| end.kept.is_some()) {
                Some(run) => {
                    let run = quoted(run.strip_prefix("runs").unwrap_or(run));
                    let longer = longer.map(|epochs| {
                        format!("      dahl train --resume {run} --epochs {epochs}\n")
                    });
                    format!(
                        "next: dahl eval --run {run} --confusion\n      \
                         dahl predict --run {run} IMAGE…\n      \
                         dahl report {run} -o report.html\n{}",
                        longer.unwrap_or_default()
                    )
                }
                None => match weights.map(quoted) {
                    Some(file) => format!(
                        "next: dahl eval --weights {file} --confusion\n      \
                         dahl predict --weights {file} IMAGE…\n"
                    ),
                    None => {
                        "next: dahl train --model lenet --data DIR, dahl train --help\n".to_owned()
                    }
                },
            };
        }
        self.show(show_part(&text));
    }
}

/// The head of the table of epochs, and the row of one. The learning rate is in it where it
/// changes and there is room.
fn table(record: &EpochRecord, length: Length) -> (String, String) {
    let cells = |pass: &Pass, loss: usize, accuracy: usize| {
        // A large one would move the columns.
        let mean = match pass.loss() {
            mean if mean.abs() > 1e9 => format!("{mean:.1e}"),
            mean => format!("{mean:.4}"),
        };
        format!("  {mean:>loss$}  {:>accuracy$.2}%", 100.0 * pass.accuracy())
    };
    // Two evaluation sets fit into 80 columns with short heads.
    let accuracy = if record.evaluated.len() > 1 { "acc." } else { "accuracy" };
    let mut head = "epoch     loss  accuracy".to_owned();
    let mut row = format!("{:>5}{}", record.epoch, cells(&record.train, 7, 7));
    for (name, pass) in &record.evaluated {
        let name = if name == "validation" { "val" } else { name };
        head += &format!("  {name} loss  {name} {accuracy}");
        row += &cells(pass, name.len() + 5, name.len() + accuracy.len());
    }
    if let (Some(lr), true) = (record.lr, length.has_schedule && record.evaluated.len() < 2) {
        head += "        lr";
        row += &format!("  {:>8}", format!("{lr:.2e}"));
    }
    (format!("{head}  samples/s\n"), format!("{row}  {:>9.0}\n", record.samples_per_second()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Length = Length { epochs: 1, samples: 2, has_schedule: false };

    fn record(train: Pass, sets: &[&str]) -> EpochRecord {
        let evaluated = |name: &&str| ((*name).to_owned(), Pass { total_loss: 1.0, ..train });
        let evaluated = sets.iter().map(evaluated).collect();
        let (seconds, time, lr) = (1.0, 0.0, Some(0.0015));
        EpochRecord { epoch: 1, steps: 1, train, evaluated, seconds, time, lr }
    }

    #[test]
    fn a_large_loss_does_not_move_the_columns() {
        let train = Pass { samples: 2, correct: 1, total_loss: 3e12 };
        let (head, row) = table(&record(train, &["test"]), LENGTH);
        assert!(row.starts_with("    1   1.5e12    50.00%     0.5000         50.00%"), "{row}");
        assert_eq!(head.len(), row.len());
    }

    #[test]
    fn a_learning_rate_that_changes_is_in_the_table() {
        let train = Pass { samples: 2, correct: 1, total_loss: 3.0 };
        let scheduled = Length { has_schedule: true, ..LENGTH };
        let (head, row) = table(&record(train, &["test"]), scheduled);
        assert!(head.ends_with("test accuracy        lr  samples/s\n"), "{head}");
        assert!(row.ends_with("50.00%   1.50e-3          2\n"), "{row}");
        assert_eq!(head.len(), row.len());
        // Neither a constant one nor one without room is.
        let two = record(train, &["validation", "test"]);
        for (record, length) in [(two, scheduled), (record(train, &["test"]), LENGTH)] {
            let (head, row) = table(&record, length);
            assert!(!head.contains("lr") && head.len() <= 81 && head.len() == row.len(), "{head}");
        }
    }
}
