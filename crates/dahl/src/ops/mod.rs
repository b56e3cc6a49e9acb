//! The ops: one file an op, with its shape rule, access, cuts, cost, backward
//! rule and variants.
//!
//! Nothing else in the crate matches on an op's name. An op outside of the
//! crate implements [`Op`] in the same way (`examples/own_op.rs`).

mod backward;
mod blocked;
mod costs;
mod cut;
mod op;
mod recorder;

pub mod batch_norm2d;
pub mod conv2d;
pub mod conv2d_max_pool2d;
pub mod conv2d_packed;
pub mod copy;
pub mod cross_entropy;
pub mod eager;
pub mod elementwise;
pub mod linear;
pub mod matmul;
pub mod mse;
pub mod norm;
pub mod one_hot;
pub mod optim;
pub mod permute;
pub mod pool;
pub mod reduce;
pub mod reduce_axes;
pub mod softmax;
pub mod updated;
pub mod view;

pub use backward::Backprop;
pub use blocked::{Blocked, MergeShards, SumBlocks};
pub use cut::{Cut, parts, split};
pub use dahl_kernels::{Call, Piece};
pub use eager::Accum;
pub(crate) use op::describe;
pub use op::{Access, Accuracy, Expansion, Meta, Metas, Mismatch, Op, Target};
pub use recorder::{Recorder, Var};
pub use view::{Mapped, ViewMap};

/// Refuses inputs that are not floating point, or not all of one type.
fn expect_floats(inputs: &[Meta]) -> Result<(), Mismatch> {
    let first = inputs[0].dtype;
    match inputs.iter().find(|m| !m.dtype.is_float() || m.dtype != first) {
        None => Ok(()),
        Some(m) => Err(Mismatch::new("element type", "one of f32 and f64 for all", m.dtype)),
    }
}
