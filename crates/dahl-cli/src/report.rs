//! What a person sees of a run.

use crate::output::print;
use crate::rundir::{metrics, speed};
use crate::stop::Reason;
use dahl::native::resident_bytes;
use dahl::train::{EpochRecord, Pass, State};
use dahl::units::Bytes;
use dahl::{Error, Result};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How much is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    Text,
    Json,
    /// Nothing but the result.
    Quiet,
}

/// Tells a person how a run goes.
pub(crate) struct Report {
    voice: Voice,
    samples: usize,
    /// Whether the table has its head.
    headed: bool,
    bar: Option<Bar>,
}

/// What a run gave.
pub(crate) struct Conclusion<'a> {
    pub(crate) last: &'a EpochRecord,
    pub(crate) planned: Bytes,
    pub(crate) sha256: String,
    /// Where the weights are.
    pub(crate) file: Option<PathBuf>,
    pub(crate) seconds: f64,
}

impl Report {
    pub(crate) fn new(voice: Voice, samples: usize) -> Self {
        Self { voice, samples, headed: false, bar: None }
    }

    /// A line for the log.
    pub(crate) fn log(&self, text: impl Display) {
        if self.voice == Voice::Text {
            eprintln!("{text}");
        }
    }

    /// Something that the user should know even of a run that is silent.
    pub(crate) fn warn(&mut self, text: impl Display) {
        self.clear();
        eprintln!("{text}");
    }

    /// Where the run is kept, and how far it is.
    pub(crate) fn place(&self, path: &Path, state: &State) {
        match state.steps {
            0 => self.log(format_args!("run directory: {}", path.display())),
            steps => self.log(format_args!(
                "run directory: {}; goes on after step {steps}, epoch {}",
                path.display(),
                state.epoch + 1
            )),
        }
    }

    /// A step has ended.
    pub(crate) fn step(&mut self, epoch: u64, pass: &Pass) {
        if self.voice != Voice::Quiet && std::io::stderr().is_terminal() {
            let bar = self.bar.get_or_insert_with(|| Bar::new(pass));
            bar.show(epoch, pass, self.samples);
        }
    }

    /// Removes what is no line of its own.
    pub(crate) fn clear(&mut self) {
        if self.bar.take().is_some() {
            let _ = write!(std::io::stderr(), "\r{:79}\r", "");
        }
    }

    /// An epoch has ended.
    pub(crate) fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.clear();
        let text = match self.voice {
            Voice::Quiet => return Ok(()),
            Voice::Json => format!("{}\n", metrics(record)),
            Voice::Text => {
                // As wide as their heads.
                let (mut head, mut judged) = (String::new(), String::new());
                for (name, pass) in &record.judged {
                    let (loss, right) = (pass.loss(), 100.0 * pass.accuracy());
                    head += &format!("  {name} loss  {name} accuracy");
                    let (wide, wider) = (name.len() + 5, name.len() + 8);
                    judged += &format!("  {loss:>wide$.4}  {right:>wider$.2}%");
                }
                let head = format!("epoch     loss  accuracy{head}  samples/s\n");
                format!(
                    "{}{:>5}  {:>7.4}  {:>7.2}%{judged}  {:>9.0}\n",
                    if self.headed { "" } else { &head },
                    record.epoch,
                    record.train.loss(),
                    100.0 * record.train.accuracy(),
                    speed(record),
                )
            }
        };
        self.headed = true;
        show(&text)
    }

    /// The run stops before its end.
    pub(crate) fn stopped(&self, why: Reason, steps: u64, run: Option<&Path>) {
        match run {
            Some(run) => self.log(format_args!(
                "stopped {why} after step {steps}, saved; go on with: dahl train --resume {}",
                run.display()
            )),
            None => self.log(format_args!("stopped {why} after step {steps}")),
        }
    }

    /// The run has ended.
    pub(crate) fn conclude(&self, end: &Conclusion<'_>) -> Result<()> {
        if self.voice == Voice::Json {
            return Ok(());
        }
        let resident =
            resident_bytes().map_or("unknown".to_owned(), |bytes| Bytes(bytes).to_string());
        let (name, pass) = end.judged();
        let mut text = format!(
            "{:.2} % of {} {name} samples right after {:.1} s; memory {} planned, {resident} resident\n",
            100.0 * pass.accuracy(),
            pass.samples,
            end.seconds,
            end.planned,
        );
        let file = end.file.as_ref().map(|path| format!("{}, ", path.display()));
        text += &format!("weights: {}sha256 {}\n", file.unwrap_or_default(), end.sha256);
        if self.voice == Voice::Text {
            text += "try: --model lenet --data DIR, --help\n";
        }
        show(&text)
    }
}

impl Conclusion<'_> {
    /// What the run is judged by: the last judge, or training itself.
    fn judged(&self) -> (&str, Pass) {
        match self.last.judged.last() {
            Some((name, pass)) => (name, *pass),
            None => ("training", self.last.train),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut value = metrics(self.last);
        value["weights_sha256"] = json!(self.sha256);
        value["memory_planned_bytes"] = json!(self.planned.0);
        value["memory_resident_bytes"] = json!(resident_bytes());
        value
    }
}

fn show(text: &str) -> Result<()> {
    print(text).map_err(|source| Error::Io { path: "standard output".into(), source })
}

/// A line on the terminal that says how far an epoch is.
struct Bar {
    /// Samples that were through when it appeared.
    from: usize,
    begin: Instant,
    shown: Instant,
}

impl Bar {
    fn new(pass: &Pass) -> Self {
        Self { from: pass.samples, begin: Instant::now(), shown: Instant::now() }
    }

    fn show(&mut self, epoch: u64, pass: &Pass, samples: usize) {
        if self.shown.elapsed().as_millis() < 100 {
            return;
        }
        self.shown = Instant::now();
        let (done, left) = (pass.samples - self.from, samples - pass.samples);
        let left = self.begin.elapsed().as_secs_f64() * left as f64 / done.max(1) as f64;
        let part = pass.samples as f64 / samples.max(1) as f64;
        let filled = (part * 20.0) as usize;
        let _ = write!(
            std::io::stderr(),
            "\repoch {epoch} [{:20}] {:>3.0} %  loss {:.4}  {:.2} %  {left:.0} s left ",
            "=".repeat(filled),
            100.0 * part,
            pass.loss(),
            100.0 * pass.accuracy(),
        );
    }
}
