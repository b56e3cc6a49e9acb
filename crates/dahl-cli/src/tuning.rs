//! `--tune`: kernels by measurement, and what is said of it meanwhile.

use crate::output::say;
use crate::progress::Show;
use clap::Args;
use dahl::calibrate;
use dahl::graph::Programs;
use dahl::native::headroom;
use dahl::plan::{Numerics, Plan};
use dahl::planner::Grain;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Instant;

/// How kernels are chosen
#[derive(Args)]
pub(crate) struct TuneArgs {
    /// Choose kernels by measuring them on this machine instead of by the costs
    /// that dahl comes with; a plan records them
    #[arg(long)]
    pub(crate) tune: bool,
}

impl TuneArgs {
    /// The plan of a grain, measured where that is asked for; what is measured is
    /// said as `show` says.
    pub(crate) fn plan(
        &self,
        grain: &Grain,
        programs: &Programs,
        show: Show,
    ) -> dahl::Result<Plan> {
        grain.plan_with(programs, self.numerics(grain, programs, show)?)
    }

    /// The numerics for a grain's target, measured where that is asked for.
    pub(crate) fn numerics(
        &self,
        grain: &Grain,
        programs: &Programs,
        show: Show,
    ) -> dahl::Result<Numerics> {
        if !self.tune {
            return Ok(Numerics::default_for(programs, grain.target));
        }
        // Measuring takes about the memory of the largest ops.
        let shipped = grain.plan(programs)?;
        if let Some(room) = headroom() {
            shipped.check_memory(programs, room)?;
        }
        let (begin, mut said) = (Instant::now(), Said::new(show));
        let numerics = calibrate::tuned(programs, &grain.target, |op| said.measures(op));
        let measured = said.end();
        if show != Show::Nothing {
            say(format_args!(
                "tuned: {measured} measured in {:.1} s, {} of the plan's kernels are not those by default",
                begin.elapsed().as_secs_f64(),
                differing(&numerics, &shipped.numerics)
            ));
        }
        Ok(numerics)
    }
}

/// How many nodes have another variant.
fn differing(a: &Numerics, b: &Numerics) -> usize {
    let pairs = a.programs.iter().zip(&b.programs);
    pairs.flat_map(|(a, b)| a.variants.iter().zip(&b.variants)).filter(|(a, b)| a != b).count()
}

/// What was said of measurements: a line that is drawn again on a terminal, a
/// line an op elsewhere.
struct Said {
    show: Show,
    bar: Option<ProgressBar>,
    ops: usize,
}

impl Said {
    fn new(show: Show) -> Self {
        Self { show, bar: None, ops: 0 }
    }

    fn measures(&mut self, op: &str) {
        self.ops += 1;
        match self.show {
            Show::Nothing => {}
            Show::Lines => say(format_args!("measuring {op}")),
            Show::Bar => {
                let bar = self.bar.get_or_insert_with(|| {
                    let style = ProgressStyle::with_template("measuring {msg}");
                    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
                    ProgressBar::no_length().with_style(style)
                });
                bar.set_message(op.to_owned());
                bar.tick();
            }
        }
    }

    /// Removes what is no line of its own; what was measured.
    fn end(self) -> String {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
        format!("{} op{}", self.ops, if self.ops == 1 { "" } else { "s" })
    }
}
