//! CPU kernels of dahl.
//!
//! A kernel is a function of its parameters and a [`Call`]: the piece of the
//! result to compute, views of the operands, and the step's scalars. It
//! indexes every operand by *logical* coordinates, so the same code computes a
//! whole tensor or any piece of it, wherever that piece is stored.
//!
//! Rules that every kernel keeps:
//! - it writes only the elements of its piece and reads only what the op
//!   declares;
//! - the order in which the terms of an element are added depends on nothing
//!   but the op's parameters and the length of the sum, so the bits of an
//!   element do not depend on how the op was cut;
//! - it never allocates; scratch is handed in;
//! - entry points are not generic: they dispatch on [`DType`] inside this
//!   crate, which is compiled with optimisation even in tests.

mod call;
mod element;
mod gemm;
mod lanes;
mod linear_small;
mod planes;
mod region;
mod shape;
mod simd;
mod view;

pub mod batch_norm2d;
pub mod conv2d;
pub mod copy;
pub mod cross_entropy;
pub mod elementwise;
pub mod linear;
pub mod math;
pub mod matmul;
pub mod norm;
pub mod one_hot;
pub mod optim;
pub mod peak;
pub mod permute;
pub mod pool;
pub mod reduce;
pub mod reduce_axes;
pub mod softmax;

pub use call::{Call, Inputs, Outputs, Piece, StepScalars};
pub use element::{DType, Element, Float};
pub use region::Region;
pub use shape::{MAX_AXES, Shape};
pub use simd::Isa;
pub use view::{BlockRuns, Line, Operand, View, ViewMut};
