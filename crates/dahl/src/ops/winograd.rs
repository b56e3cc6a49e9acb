//! Convolution with fewer products: what the variants of
//! [`conv2d`](super::conv2d) expand to.

use super::cut::{window, window_back};
use super::{Cut, Expansion, Meta, Metas, Mismatch, Op};
use crate::units::Flops;
use dahl_kernels::conv2d::{self as kernels, ALIGN, Conv2d, Direction, Form, Rectify};
use dahl_kernels::{Call, Piece, Region, Shape};
use std::sync::Arc;

/// Whether the transforms are of this convolution.
pub(super) fn fits(conv: &Conv2d, weight: &Shape) -> bool {
    weight.axes()[2..] == [3, 3]
        && conv.stride == [1, 1]
        && conv.dilation == [1, 1]
        && conv.groups == 1
}

/// What a convolution, or the gradient of its input, expands to.
pub(super) fn expansion(
    form: Form,
    direction: Direction,
    conv: &Conv2d,
    rectify: Rectify,
    result: Shape,
) -> Expansion {
    let prepare = Conv2dWinogradWeight { form, direction };
    let op = Conv2dWinograd { form, direction, conv: *conv, rectify, result };
    Expansion { input: 1, prepare: Arc::new(prepare), op: Arc::new(op) }
}

/// The weights of a convolution at the points of a form, in the order in which
/// products read them. Input w \[O, C, 3, 3\].
#[derive(Clone, Copy, Debug)]
pub struct Conv2dWinogradWeight {
    /// The size of tiles.
    pub form: Form,
    /// For outputs or for the gradient of inputs.
    pub direction: Direction,
}

impl Op for Conv2dWinogradWeight {
    fn name(&self) -> &'static str {
        "conv2d_winograd_weight"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let w = inputs[0];
        let shape = kernels::conv2d_winograd_weight_shape(self.form, self.direction, &w.shape);
        Ok(vec![Meta { shape, ..w }])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        vec![Cut { axis: 1, align: ALIGN }]
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![Region::full(&metas.inputs[0].shape), piece.out]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(4 * piece.out.elements() as u64)
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::conv2d_winograd_weight(self.form, self.direction, call);
    }
}

/// A convolution, or the gradient of its input, from weights at points. Inputs x
/// or g', points of w, and maybe b.
#[derive(Clone, Copy, Debug)]
pub struct Conv2dWinograd {
    /// The size of tiles.
    pub form: Form,
    /// Outputs, or the gradient of inputs.
    pub direction: Direction,
    /// The convolution.
    pub conv: Conv2d,
    /// What is done to the sum.
    pub rectify: Rectify,
    /// The shape of the result.
    pub result: Shape,
}

impl Op for Conv2dWinograd {
    fn name(&self) -> &'static str {
        match (self.direction, self.rectify) {
            (Direction::Forward, Rectify::No) => "conv2d_winograd",
            (Direction::Forward, Rectify::Relu) => "conv2d_winograd_relu",
            (Direction::Backward, _) => "conv2d_winograd_backward_input",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: self.result, ..inputs[0] }])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        let tile = self.form.outputs();
        [1, ALIGN, tile, tile]
            .into_iter()
            .enumerate()
            .map(|(axis, align)| Cut { axis, align })
            .collect()
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let (x, u) = (metas.inputs[0].shape, metas.inputs[1].shape);
        let out = &piece.out;
        let slide = |a: usize| match self.direction {
            Direction::Forward => window(out.range(2 + a), x[2 + a], 3, self.conv.axis(a)),
            Direction::Backward => window_back(out.range(2 + a), x[2 + a], 3, self.conv.axis(a)),
        };
        let channels = out.range(1);
        let panels = channels.start..channels.end.next_multiple_of(ALIGN);
        let mut regions = vec![
            Region::new(&[out.range(0), 0..x[1], slide(0), slide(1)]),
            Region::full(&u).with(1, panels),
        ];
        if metas.inputs.len() > 2 {
            regions.push(Region::new(&[channels]));
        }
        regions.push(*out);
        regions
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        // As many as the convolution stands for, not those that are done.
        Flops(2 * (piece.out.elements() * metas.inputs[0].shape[1] * 9) as u64)
    }

    fn scratch(&self, _: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let x = metas.inputs[0];
        kernels::conv2d_winograd_scratch(self.form, x.shape[1], piece, x.dtype)
    }

    fn variants(&self) -> &'static [&'static str] {
        &["winograd"]
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        let padding = self.conv.padding.map(|p| match self.direction {
            Direction::Forward => p as isize,
            Direction::Backward => 2 - p as isize,
        });
        kernels::conv2d_winograd(self.form, padding, self.rectify, call);
    }
}
