//! Convolution of 3x3 taps with fewer products (Winograd 1980; Lavin and Gray
//! 2016): tiles of pixels and weights are transformed to points, where a product
//! a point does what 3x3 products did before.
//!
//! A tile's result depends on its pixels and weights alone, and tiles lie on a
//! grid from the first output on, so cuts at bounds of tiles change no bit. The
//! sums over channels (over tiles, for the gradient of weights) are those of
//! [`gemm`](crate::gemm).
//!
//! Inside, channels lie together: a vector holds the same pixel of several
//! channels. Images are turned where they are read and written.
#![expect(unsafe_code, reason = "tiles are read and written through pointers")]

mod form;
mod outputs;
mod weight;
mod weight_gradient;

pub use form::Form;
pub use outputs::{conv2d_winograd, conv2d_winograd_scratch};
pub use weight::conv2d_winograd_weight;
pub use weight_gradient::{
    conv2d_winograd_backward_weight, conv2d_winograd_backward_weight_scratch,
};

use super::{ALIGN, Direction};
use crate::Shape;
use crate::gemm::VECTORS;
use crate::simd::{Lane, Simd, Vector};

/// Columns of a panel of transformed weights.
#[inline(always)]
fn panel_columns<S: Simd, T: Lane>() -> usize {
    VECTORS * T::Vector::<S>::LANES
}

/// The shape of transformed weights.
pub fn conv2d_winograd_weight_shape(form: Form, direction: Direction, weight: &Shape) -> Shape {
    let [results, sums] = direction.channels([weight[0], weight[1]]);
    Shape::new(&[results.next_multiple_of(ALIGN), form.products(), sums])
}
