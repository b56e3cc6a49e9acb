//! The mean squared error, composed of other ops.

use super::eager::Accum;
use super::elementwise::{Unary, power_in_place, sub};
use super::reduce::{mean_all, mean_all_into};
use super::{Recorder, Var};
use crate::tensor::{Arena, AsView, Scalar};
use dahl_kernels::Float;

/// mean((x − y)²) over all elements.
///
/// ```
/// use dahl::{ops::mse::mse, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [2], &[1.0f32, 5.0]).unwrap();
/// let y = Vector::from_slice(&arena, [2], &[1.0f32, 2.0]).unwrap();
/// assert_eq!(mse(&arena, &x, &y).item(), 4.5);
/// ```
#[track_caller]
pub fn mse<'a, E: Float, const R: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
    y: &impl AsView<E, R>,
) -> Scalar<'a, E> {
    let scratch = Arena::new();
    let mut error = sub(&scratch, x, y);
    power_in_place(&mut error, 2.0);
    mean_all(arena, &error)
}

/// [`mse`] into an existing scalar.
#[track_caller]
pub fn mse_into<E: Float, const R: usize>(
    x: &impl AsView<E, R>,
    y: &impl AsView<E, R>,
    accum: Accum,
    out: &mut Scalar<'_, E>,
) {
    let scratch = Arena::new();
    let mut error = sub(&scratch, x, y);
    power_in_place(&mut error, 2.0);
    mean_all_into(&error, accum, out);
}

impl dyn Recorder + '_ {
    /// Records the mean squared error of all elements.
    pub fn mse(&mut self, x: Var, y: Var) -> Var {
        let error = self.sub(x, y);
        let squares = self.unary(Unary::Power(2.0), error);
        self.mean_all(squares)
    }
}
