//! Learning-rate schedules: a factor a step.

use crate::error::Expected;

/// How the learning rate changes over the steps of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Schedule {
    /// It does not.
    #[default]
    Constant,
    /// Multiplied by `factor` every `every` steps (`StepLR`).
    Step {
        /// The steps between.
        every: u64,
        /// The factor.
        factor: f64,
    },
    /// Half a cosine from 1 to `least` over `steps` steps
    /// (`CosineAnnealingLR`), then `least`.
    Cosine {
        /// The steps of the half wave.
        steps: u64,
        /// The factor at its end.
        least: f64,
    },
    /// From 1/steps up to 1 over `steps` steps, then another schedule.
    Warmup {
        /// The steps of the ramp.
        steps: u64,
        /// What follows.
        then: Box<Schedule>,
    },
}

impl Schedule {
    /// The factor of step `step`, from 0.
    pub fn factor(&self, step: u64) -> f64 {
        match self {
            Schedule::Constant => 1.0,
            Schedule::Step { every, factor } => {
                dahl_kernels::Float::pow(*factor, (step / (*every).max(1)) as f64)
            }
            Schedule::Cosine { steps, least } => {
                let done = step.min(*steps) as f64 / (*steps).max(1) as f64;
                least + (1.0 - least) * 0.5 * (1.0 + cos_pi(done))
            }
            Schedule::Warmup { steps, then: _ } if step < *steps => {
                (step + 1) as f64 / *steps as f64
            }
            Schedule::Warmup { steps, then } => then.factor(step - steps),
        }
    }
}

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Its epochs.
    pub epochs: usize,
    /// The steps of each.
    pub steps_per_epoch: usize,
}

/// A schedule in epochs, as configurations write it: `constant`, `step:30:0.1`, `cosine`,
/// `warmup:5+cosine:0.01`. It becomes a [`Schedule`] once the steps of the run are known.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleSpec {
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

impl ScheduleSpec {
    /// The same learning rate in every step.
    pub const CONSTANT: Self = Self { warmup: 0.0, then: Then::Constant };

    /// Reads a schedule.
    pub fn parse(text: &str) -> Result<Self, Expected> {
        let wrong = || -> Expected {
            "constant, step:EPOCHS:FACTOR, cosine or cosine:MIN, each after \
             warmup:EPOCHS+ if wanted, such as warmup:5+cosine"
                .into()
        };
        let number = |text: &str| {
            text.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0).ok_or_else(wrong)
        };
        let least = |text: &str| match number(text)? {
            least if least <= 1.0 => Ok(least),
            least => Err(Expected::from(format!(
                "a MIN of cosine from 0 to 1, found {least}; it is the last learning rate over \
                 the first, and cosine runs over all epochs"
            ))),
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
    pub fn is_constant(&self) -> bool {
        *self == Self::CONSTANT
    }

    /// The schedule of a run. Parts of epochs are rounded to steps, at least one.
    pub fn over(&self, run: Span) -> Schedule {
        let steps = |epochs: f64| ((epochs * run.steps_per_epoch as f64).round() as u64).max(1);
        let ramp = if self.warmup > 0.0 { steps(self.warmup) } else { 0 };
        let all = (run.epochs as u64).saturating_mul(run.steps_per_epoch as u64);
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

impl std::fmt::Display for ScheduleSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.warmup > 0.0 {
            write!(f, "warmup:{}+", self.warmup)?;
        }
        match self.then {
            Then::Constant => f.write_str("constant"),
            Then::Step { epochs, factor } => write!(f, "step:{epochs}:{factor}"),
            Then::Cosine { least: 0.0 } => f.write_str("cosine"),
            Then::Cosine { least } => write!(f, "cosine:{least}"),
        }
    }
}

/// cos(π x) for x in [0, 1], from the pure-Rust library: the same everywhere.
fn cos_pi(x: f64) -> f64 {
    dahl_kernels::math::cos(std::f64::consts::PI * x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schedule: &Schedule, expected: &[(u64, f64)]) {
        for &(step, factor) in expected {
            let found = schedule.factor(step);
            assert!((found - factor).abs() < 1e-12, "step {step}: {factor}, found {found}");
        }
    }

    #[test]
    fn factors_are_pytorchs() {
        check(&Schedule::Constant, &[(0, 1.0), (100, 1.0)]);
        let step = Schedule::Step { every: 30, factor: 0.1 };
        check(&step, &[(0, 1.0), (29, 1.0), (30, 0.1), (60, 0.01)]);
        // CosineAnnealingLR(T_max=10): 0.5 (1 + cos(π t / 10)).
        let cosine = Schedule::Cosine { steps: 10, least: 0.0 };
        check(&cosine, &[(0, 1.0), (5, 0.5), (10, 0.0), (11, 0.0)]);
        let warm = Schedule::Warmup { steps: 4, then: Box::new(cosine) };
        check(&warm, &[(0, 0.25), (3, 1.0), (4, 1.0), (9, 0.5)]);
    }

    #[track_caller]
    fn reads(text: &str, expected: Schedule) {
        let run = Span { epochs: 20, steps_per_epoch: 10 };
        let spec = ScheduleSpec::parse(text).unwrap();
        assert_eq!(spec.over(run), expected);
        assert_eq!(ScheduleSpec::parse(&spec.to_string()), Ok(spec));
    }

    #[test]
    fn texts_become_schedules_in_steps() {
        reads("constant", Schedule::Constant);
        reads("step:5:0.1", Schedule::Step { every: 50, factor: 0.1 });
        reads("step:0.25:0.5", Schedule::Step { every: 3, factor: 0.5 });
        reads("step:1e-9:0.5", Schedule::Step { every: 1, factor: 0.5 });
        reads("cosine", Schedule::Cosine { steps: 200, least: 0.0 });
        let cosine = Schedule::Cosine { steps: 150, least: 0.01 };
        let then = Box::new(cosine);
        reads("warmup:5+cosine:0.01", Schedule::Warmup { steps: 50, then });
        let then = Box::new(Schedule::Cosine { steps: 1, least: 0.0 });
        reads("warmup:30+cosine", Schedule::Warmup { steps: 300, then });
    }

    /// `cosine:30`, meant as 30 epochs, raised the learning rate 30 times.
    #[test]
    fn a_cosine_raises_no_learning_rate() {
        for text in ["cosine:30", "warmup:5+cosine:1.01"] {
            let Expected(error) = ScheduleSpec::parse(text).unwrap_err();
            assert!(error.contains("from 0 to 1") && error.contains("all epochs"), "{error}");
        }
        reads("cosine:1", Schedule::Cosine { steps: 200, least: 1.0 });
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
            assert!(ScheduleSpec::parse(text).is_err(), "{text:?}");
        }
    }
}
