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
mod layout;
mod outputs;
mod weight;
mod weight_gradient;

pub use form::Form;
pub use outputs::{conv2d_winograd, conv2d_winograd_scratch};
pub use weight::conv2d_winograd_weight;
pub use weight_gradient::{
    conv2d_winograd_backward_weight, conv2d_winograd_backward_weight_scratch,
};

use crate::Shape;
use crate::gemm::{MAX_COLUMNS, VECTORS};
use crate::simd::{Lane, Simd, Vector};

/// Whether outputs are computed, or the gradient of inputs: the same with
/// filters and channels exchanged and the taps turned round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Outputs.
    Forward,
    /// The gradient of inputs.
    Backward,
}

impl Direction {
    /// The channels of the result and those that are summed over, from filters
    /// and channels.
    fn channels(self, [filters, channels]: [usize; 2]) -> [usize; 2] {
        match self {
            Direction::Forward => [filters, channels],
            Direction::Backward => [channels, filters],
        }
    }
}

/// Columns of a panel of transformed weights.
#[inline(always)]
fn panel_columns<S: Simd, T: Lane>() -> usize {
    VECTORS * T::Vector::<S>::LANES
}

/// Pieces of the result's channels start at a multiple of this.
pub const ALIGN: usize = MAX_COLUMNS;

/// The shape of transformed weights.
pub fn conv2d_winograd_weight_shape(form: Form, direction: Direction, weight: &Shape) -> Shape {
    let [results, sums] = direction.channels([weight[0], weight[1]]);
    Shape::new(&[form.products(), results.next_multiple_of(ALIGN), sums])
}
