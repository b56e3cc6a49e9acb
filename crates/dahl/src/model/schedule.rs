//! Learning-rate schedules: a factor a step.

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
}
