//! Statistics for people.

use super::spread::CAUSES;
use super::{CodeletRow, From, Recorded, Stats};
use crate::units::Nanos;
use std::fmt::{self, Write as _};

/// Parts of a whole in tenths of percent that sum up to 100.0 as they are printed: what
/// rounding leaves goes to those that lost most by it.
pub fn percents(parts: &[f64]) -> Vec<f64> {
    tenths(parts, 1000).into_iter().map(|t| t as f64 / 10.0).collect()
}

/// Parts of a whole as whole numbers that sum up to `all`; zeros where there is no whole.
fn tenths(parts: &[f64], all: i64) -> Vec<i64> {
    let whole: f64 = parts.iter().sum();
    if !(whole > 0.0 && whole.is_finite()) {
        return vec![0; parts.len()];
    }
    let exact: Vec<f64> = parts.iter().map(|part| all as f64 * part / whole).collect();
    let mut tenths: Vec<i64> = exact.iter().map(|x| x.floor() as i64).collect();
    let left = all - tenths.iter().sum::<i64>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    for &i in order.iter().cycle().take(left.max(0) as usize) {
        tenths[i] += 1;
    }
    tenths
}

/// Whether shapes are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// A line per codelet.
    #[default]
    Codelets,
    /// A line per shape too.
    Shapes,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(Detail::Codelets))
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, last] = self.steps;
        write!(f, "steps {first} to {last}")?;
        self.of.map_or(Ok(()), |of| write!(f, " of {of}"))?;
        let programs: Vec<String> =
            self.programs.iter().map(|(name, steps)| format!("{steps} of {name:?}")).collect();
        write!(f, " ({})", programs.join(", "))?;
        let bound = |bound| write!(f, ", ended by the bound of {bound} events,");
        self.bound.map_or(Ok(()), bound)
    }
}

/// A time that may not be known: 0 is none.
fn known(n: u64) -> String {
    if n == 0 { "-".to_owned() } else { nanos(n) }
}

/// So many of something: `1 worker`, `2 workers`.
fn counted(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn nanos(n: u64) -> String {
    Nanos(n).to_string()
}

impl Stats {
    /// As text; every time that is exact is there in nanoseconds too, in `--json`.
    pub fn to_text(&self, detail: Detail) -> String {
        let mut text = String::new();
        let source = match (self.from, self.engine.as_str()) {
            (From::Trace, "simulated") => "a simulated trace: nothing was measured".to_owned(),
            (From::Trace, "") => "the trace".to_owned(),
            (From::Trace, engine) => format!("the trace of the {engine} engine"),
            (From::Counters, _) => "counters of the session, p50 to p99 within an eighth; a trace \
                                    has more details"
                .to_owned(),
        };
        let what = match (&self.recorded, self.from) {
            (Some(recorded), _) => recorded.to_string(),
            (None, From::Trace) => "no step".to_owned(),
            (None, From::Counters) => counted(self.steps, "training step"),
        };
        let (time, workers) =
            (nanos(self.window), counted(self.computing().len() as u64, "worker"));
        let _ = writeln!(text, "{what} in {time} on {workers}, from {source}");
        for decision in &self.decisions {
            let _ = writeln!(text, "{decision}");
        }
        self.codelet_table(&mut text, detail);
        self.worker_table(&mut text);
        for path in &self.paths {
            let _ = writeln!(
                text,
                "\ncritical path of {:?}, median of {}: {} of {} ({:.1} %), {} of work",
                path.program,
                counted(path.steps, "step"),
                nanos(path.path),
                nanos(path.span),
                100.0 * path.path as f64 / path.span.max(1) as f64,
                nanos(path.work)
            );
            for (codelet, time) in path.codelets.iter().take(5) {
                let part = 100.0 * *time as f64 / path.path.max(1) as f64;
                let _ = writeln!(text, "  {:>10}  {part:5.1} %  {codelet}", nanos(*time));
            }
        }
        self.gap_table(&mut text);
        self.spread_table(&mut text);
        text
    }

    fn codelet_table(&self, text: &mut String, detail: Detail) {
        let shares: Vec<f64> = self.codelets.iter().map(|row| row.total as f64).collect();
        let shares = tenths(&shares, 1000);
        let wide = self.codelets.iter().map(|row| row.codelet.len()).max().unwrap_or(7).max(7);
        let _ = writeln!(
            text,
            "\n{:wide$} {:>9} {:>10} {:>6} {:>10} {:>10} {:>10} {:>10} {:>8}",
            "codelet", "calls", "total", "share", "mean", "p50", "p90", "p99", "GFLOP/s"
        );
        let speed = |gflops: Option<f64>| gflops.map_or("-".to_owned(), |g| format!("{g:.2}"));
        for (row, all) in self.codelets.iter().zip(shares) {
            let share = all as f64 / 10.0;
            let CodeletRow { codelet, calls, total, mean, p50, p90, p99, .. } = row;
            let _ = writeln!(
                text,
                "{codelet:wide$} {calls:>9} {:>10} {share:>5.1}% {:>10} {:>10} {:>10} {:>10} {:>8}",
                nanos(*total),
                nanos(mean.round() as u64),
                known(*p50),
                known(*p90),
                known(*p99),
                speed(row.gflops())
            );
            if detail == Detail::Codelets {
                continue;
            }
            let parts: Vec<f64> = row.shapes.iter().map(|shape| shape.total as f64).collect();
            for (shape, share) in row.shapes.iter().zip(tenths(&parts, all)) {
                let share = share as f64 / 10.0;
                let _ = writeln!(
                    text,
                    "{:wide$} {:>9} {:>10} {share:>5.1}% {:>10} {:>10} {:>10} {:>10} {:>8}",
                    "",
                    shape.calls,
                    nanos(shape.total),
                    nanos(shape.mean.round() as u64),
                    known(shape.p50),
                    known(shape.p90),
                    known(shape.p99),
                    speed(shape.gflops()),
                );
                let _ = writeln!(text, "  {}", shape.shape);
            }
        }
    }

    /// A worker in a table of workers: its unit, or its number.
    fn short_name(&self, worker: usize) -> String {
        self.units.get(worker).cloned().unwrap_or_else(|| worker.to_string())
    }

    /// A worker in a sentence.
    fn worker_name(&self, worker: usize) -> String {
        self.units.get(worker).cloned().unwrap_or_else(|| format!("worker {worker}"))
    }

    fn worker_table(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nparallel efficiency {:.1} % {}: where the workers' time went",
            100.0 * self.efficiency(),
            match self.from {
                From::Trace => "of what was recorded",
                From::Counters => "of the session, with evaluation and pauses",
            }
        );
        let names: Vec<String> = (0..self.workers.len()).map(|w| self.short_name(w)).collect();
        let wide = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(9);
        let _ = writeln!(
            text,
            "{:<wide$} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "worker", "busy", "no work", "waiting", "transfer", "spinning", "overhead"
        );
        for (name, of) in names.iter().zip(&self.workers) {
            let parts = [of.busy, of.no_work, of.waiting, of.transfer, of.spinning, of.overhead];
            let cells = percents(&parts.map(|part| part as f64));
            let cells: Vec<String> = cells.iter().map(|p| format!(" {p:>7.1}%")).collect();
            let _ = writeln!(text, "{name:<wide$}{}", cells.concat());
        }
        if let Some(left) = self.left_ready {
            let all = self.window as f64 * self.computing().len() as f64;
            let part = if all > 0.0 { 100.0 * left as f64 / all } else { 0.0 };
            let _ =
                writeln!(text, "including {part:.2} % waiting or spinning while a task was ready");
        }
        if self.from == From::Trace && self.engine == "native" {
            text.push_str("(worker 0 is the caller: its overhead is the caller's time too)\n");
        }
        if self.from == From::Counters {
            text.push_str(
                "(no work includes the engine's overhead, which counters do not separate)\n",
            );
        }
    }

    fn gap_table(&self, text: &mut String) {
        if self.gaps.is_empty() {
            return;
        }
        text.push_str("\nlargest gaps, by time since the first event\n");
        for gap in &self.gaps {
            let _ = writeln!(
                text,
                "  {:>10}  {} at {}, step {}, {}",
                nanos(gap.to - gap.from),
                self.worker_name(gap.worker as usize),
                nanos(gap.from - self.begin),
                gap.step,
                gap.cause
            );
            let _ = writeln!(text, "{:14}ended by {}; then {}", "", gap.ended_by, gap.then);
        }
    }

    fn spread_table(&self, text: &mut String) {
        if self.spreads.is_empty() {
            return;
        }
        text.push_str("\nwhy the same codelet and shape takes different times\n");
        for spread in &self.spreads {
            let _ = writeln!(
                text,
                "  {} x {}: {} ± {}",
                spread.calls,
                spread.codelet,
                nanos(spread.mean.round() as u64),
                nanos(spread.deviation.round() as u64)
            );
            let parts = percents(&spread.parts);
            let parts = parts.iter().zip(CAUSES).filter(|(part, _)| **part >= 0.1);
            let parts: Vec<String> = parts.map(|(p, cause)| format!("{cause} {p:.1} %")).collect();
            let _ = writeln!(text, "    {}", parts.join(", "));
            let level = |level: &super::Level| {
                format!("{} {} ({})", level.what, nanos(level.mean.round() as u64), level.calls)
            };
            let levels: Vec<String> = spread.levels.iter().map(level).collect();
            if !levels.is_empty() {
                let _ = writeln!(text, "    {}", levels.join(", "));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_parts_sum_up() {
        for parts in [vec![1.0, 1.0, 1.0], vec![0.1; 7], vec![5.0], vec![1e-9, 1.0, 2.0, 3.3]] {
            let tenths: f64 = percents(&parts).iter().map(|p| (10.0 * p).round()).sum();
            assert_eq!(tenths, 1000.0, "{parts:?}");
        }
        assert_eq!(percents(&[0.0, 0.0]), [0.0, 0.0]);
    }
}
