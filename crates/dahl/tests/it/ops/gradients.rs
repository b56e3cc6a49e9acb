//! Gradients against finite differences, in f64.

use super::cases::{Case, Fill, cases};
use super::interpret::{Buffer, interpret};
use dahl::DType;

/// Central differences with h = 1e-5 err by h² f‴/6 and ε |f| / h, about 1e-10
/// each for values of order one; the sums here have up to some hundred terms.
const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 2e-7;

#[test]
fn backward_rules_agree_with_finite_differences() {
    cases().iter().for_each(check_gradients);
}

/// The gradients of a case against central differences.
pub(crate) fn check_gradients(case: &Case) {
    let program = case.program(DType::F64);
    let Some((out, seed, gradients)) = &program.gradients else { return };
    let weights = program.inputs[*seed].to_f64();
    let loss = |inputs: &[Buffer]| -> f64 {
        let values = interpret(&program.graph, inputs);
        values[out.index()].to_f64().iter().zip(&weights).map(|(y, w)| y * w).sum()
    };
    let values = interpret(&program.graph, &program.inputs);
    for (i, input) in case.inputs.iter().enumerate() {
        let Some(gradient) = gradients[i] else {
            // Tracked statistics are the only differentiable-looking
            // inputs without a gradient.
            let tracked = case.name.starts_with("batch_norm2d_eval") && i >= 3;
            let other = !matches!(input.fill, Fill::Signed | Fill::Positive);
            assert!(tracked || other, "{}: no gradient of input {i}", case.name);
            continue;
        };
        let gradient = values[gradient.index()].to_f64();
        let count = program.inputs[i].len();
        assert_eq!(gradient.len(), count, "{}: gradient of input {i}", case.name);
        // Enough elements of large inputs, spread over them.
        for k in (0..count).step_by((count / 40).max(1)) {
            let at = |shift: f64| {
                let mut inputs = program.inputs.clone();
                let x = inputs[i].get(k);
                inputs[i].set(k, x + shift);
                loss(&inputs)
            };
            let expected = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            let found = gradient[k];
            assert!(
                (found - expected).abs() <= TOLERANCE * (1.0 + expected.abs()),
                "{}: input {i} element {k}: difference {expected}, gradient {found}",
                case.name
            );
        }
    }
}
