//! The text of a learning-rate schedule, in epochs.

use dahl::model::Schedule;

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) epochs: usize,
    pub(crate) steps_an_epoch: usize,
}

/// A schedule as people write it: `constant`, `step:30:0.1`, `cosine`,
/// `warmup:5+cosine:0.01`. It becomes a [`Schedule`] once the steps of the run
/// are known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScheduleText {
    /// Epochs of the ramp from 0 to 1.
    warmup: f64,
    then: Then,
}

#[derive(Clone, Debug, PartialEq)]
enum Then {
    Constant,
    /// Times the factor every so many epochs.
    Step {
        epochs: f64,
        factor: f64,
    },
    /// Half a cosine down to this factor, over what is left of the run.
    Cosine {
        least: f64,
    },
}

impl ScheduleText {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected constant, step:EPOCHS:FACTOR, cosine or cosine:LEAST, each after \
             warmup:EPOCHS+ if wanted, such as warmup:5+cosine"
                .to_owned()
        };
        let number = |text: &str| {
            text.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0).ok_or_else(wrong)
        };
        let least = |text: &str| match number(text)? {
            least if least <= 1.0 => Ok(least),
            least => Err(format!(
                "expected a LEAST of cosine from 0 to 1, found {least}; it is the last learning \
                 rate over the first, and cosine runs over all epochs"
            )),
        };
        let epochs = |text| number(text).and_then(|x| if x > 0.0 { Ok(x) } else { Err(wrong()) });
        let (warmup, then) = match text.strip_prefix("warmup:").map(|rest| rest.split_once('+')) {
            Some(Some((ramp, then))) => (epochs(ramp)?, then),
            Some(None) => return Err(wrong()),
            None => (0.0, text),
        };
        let then = match then.split(':').collect::<Vec<_>>()[..] {
            ["constant"] => Then::Constant,
            ["step", every, factor] => {
                Then::Step { epochs: epochs(every)?, factor: number(factor)? }
            }
            ["cosine"] => Then::Cosine { least: 0.0 },
            ["cosine", end] => Then::Cosine { least: least(end)? },
            _ => return Err(wrong()),
        };
        Ok(Self { warmup, then })
    }

    /// Whether the learning rate is the same in every step.
    pub(crate) fn is_constant(&self) -> bool {
        *self == Self { warmup: 0.0, then: Then::Constant }
    }

    /// The schedule of a run. Parts of epochs are rounded to steps, at least one.
    pub(crate) fn over(&self, run: Span) -> Schedule {
        let steps = |epochs: f64| ((epochs * run.steps_an_epoch as f64).round() as u64).max(1);
        let ramp = if self.warmup > 0.0 { steps(self.warmup) } else { 0 };
        let all = (run.epochs as u64).saturating_mul(run.steps_an_epoch as u64);
        let then = match self.then {
            Then::Constant => Schedule::Constant,
            Then::Step { epochs, factor } => Schedule::Step { every: steps(epochs), factor },
            Then::Cosine { least } => {
                Schedule::Cosine { steps: all.saturating_sub(ramp).max(1), least }
            }
        };
        if ramp == 0 { then } else { Schedule::Warmup { steps: ramp, then: Box::new(then) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Schedule) {
        let run = Span { epochs: 20, steps_an_epoch: 10 };
        assert_eq!(ScheduleText::parse(text).unwrap().over(run), expected);
    }

    #[test]
    fn texts_become_schedules_in_steps() {
        check("constant", Schedule::Constant);
        check("step:5:0.1", Schedule::Step { every: 50, factor: 0.1 });
        check("step:0.25:0.5", Schedule::Step { every: 3, factor: 0.5 });
        check("step:1e-9:0.5", Schedule::Step { every: 1, factor: 0.5 });
        check("cosine", Schedule::Cosine { steps: 200, least: 0.0 });
        let cosine = Schedule::Cosine { steps: 150, least: 0.01 };
        let then = Box::new(cosine);
        check("warmup:5+cosine:0.01", Schedule::Warmup { steps: 50, then });
        let then = Box::new(Schedule::Cosine { steps: 1, least: 0.0 });
        check("warmup:30+cosine", Schedule::Warmup { steps: 300, then });
    }

    /// `cosine:30`, meant as 30 epochs, raised the learning rate 30 times.
    #[test]
    fn a_cosine_raises_no_learning_rate() {
        for text in ["cosine:30", "warmup:5+cosine:1.01"] {
            let error = ScheduleText::parse(text).unwrap_err();
            assert!(error.contains("from 0 to 1") && error.contains("all epochs"), "{error}");
        }
        check("cosine:1", Schedule::Cosine { steps: 200, least: 1.0 });
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "linear",
            "step",
            "step:5",
            "step:0:0.1",
            "step:5:-1",
            "step:5:0.1:2",
            "cosine:x",
            "warmup:5",
            "warmup:+cosine",
            "warmup:0+cosine",
            "warmup:5+",
            "cosine:inf",
        ] {
            assert!(ScheduleText::parse(text).is_err(), "{text:?}");
        }
    }
}
