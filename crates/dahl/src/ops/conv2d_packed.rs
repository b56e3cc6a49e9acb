//! Convolution from packed weights: what the variants of
//! [`conv2d`](super::conv2d) expand to.

use super::cut::{window, window_back};
use super::{Cut, Expansion, Meta, Metas, Mismatch, Op};
use crate::units::Flops;
use dahl_kernels::conv2d::{self as kernels, ALIGN, Conv2d, Direction, Form, Rectify};
use dahl_kernels::{Call, DType, Piece, Region, Shape};
use std::sync::Arc;

/// How products are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Every product, tap by tap.
    Gemm,
    /// Fewer, in tiles.
    Winograd(Form),
}

impl Method {
    /// Whether it can be used.
    pub(super) fn fits(self, conv: &Conv2d, weight: &Shape) -> bool {
        let plain = conv.stride == [1, 1] && conv.dilation == [1, 1] && conv.groups == 1;
        self == Method::Gemm || (weight.axes()[2..] == [3, 3] && plain)
    }
}

/// A convolution, or the gradient of its input, whose weights are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// How products are taken.
    pub method: Method,
    /// Outputs, or the gradient of inputs.
    pub direction: Direction,
    /// The convolution.
    pub conv: Conv2d,
    /// Rows and columns of its kernel.
    pub kernel: [usize; 2],
    /// What is done to the sum.
    pub rectify: Rectify,
    /// The shape of the result.
    pub result: Shape,
}

impl Packed {
    /// The op that packs the weights and the one that takes them.
    pub(super) fn expansion(self) -> Expansion {
        let prepare = Arc::new(Conv2dPackWeight(self));
        Expansion { input: 1, prepare, op: Arc::new(Conv2dPacked(self)) }
    }
}

/// The weights of a convolution in the order in which products read them. Input
/// w \[O, C/groups, kh, kw\].
#[derive(Clone, Copy, Debug)]
pub struct Conv2dPackWeight(pub Packed);

/// The axis of packed weights that has the channels of the result, in
/// \[results, taps, sums\] as in \[results, points, sums\].
const RESULTS: usize = 0;

impl Op for Conv2dPackWeight {
    fn name(&self) -> &'static str {
        match self.0.method {
            Method::Gemm => "conv2d_pack_weight",
            Method::Winograd(_) => "conv2d_winograd_weight",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let Packed { method, direction, conv, .. } = &self.0;
        let w = inputs[0];
        let shape = match method {
            Method::Gemm => kernels::conv2d_packed_shape(conv, *direction, &w.shape),
            Method::Winograd(form) => {
                kernels::conv2d_winograd_weight_shape(*form, *direction, &w.shape)
            }
        };
        Ok(vec![Meta { shape, ..w }])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        vec![Cut { axis: RESULTS, align: ALIGN }]
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![Region::full(&metas.inputs[0].shape), piece.out]
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        let Packed { method, direction, conv, .. } = &self.0;
        match method {
            Method::Gemm => kernels::conv2d_pack_weight(conv, *direction, call),
            Method::Winograd(form) => kernels::conv2d_winograd_weight(*form, *direction, call),
        }
    }
}

/// A convolution, or the gradient of its input. Inputs x or g', packed weights,
/// and maybe b.
#[derive(Clone, Copy, Debug)]
pub struct Conv2dPacked(pub Packed);

impl Op for Conv2dPacked {
    fn name(&self) -> &'static str {
        match (self.0.direction, self.0.rectify) {
            (Direction::Forward, Rectify::No) => "conv2d",
            (Direction::Forward, Rectify::Relu) => "conv2d_relu",
            (Direction::Backward, _) => "conv2d_backward_input",
        }
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: self.0.result, ..inputs[0] }])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        let tile = match self.0.method {
            Method::Gemm => 1,
            Method::Winograd(form) => form.outputs(),
        };
        let aligns = [1, ALIGN, tile, tile].into_iter().enumerate();
        // Panels begin anew with every group.
        let whole = |axis: usize| axis == 1 && self.0.conv.groups > 1;
        aligns.filter(|(a, _)| !whole(*a)).map(|(axis, align)| Cut { axis, align }).collect()
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let (x, packed) = (metas.inputs[0].shape, metas.inputs[1].shape);
        let Packed { direction, conv, kernel, .. } = &self.0;
        let out = &piece.out;
        let slide = |a: usize| {
            let (range, length) = (out.range(2 + a), x[2 + a]);
            match direction {
                Direction::Forward => window(range, length, kernel[a], conv.axis(a)),
                Direction::Backward => window_back(range, length, kernel[a], conv.axis(a)),
            }
        };
        let channels = out.range(1);
        let panels = match conv.groups {
            1 => channels.start..channels.end.next_multiple_of(ALIGN),
            _ => 0..packed[RESULTS],
        };
        let mut regions = vec![
            Region::new(&[out.range(0), 0..x[1], slide(0), slide(1)]),
            Region::full(&packed).with(RESULTS, panels),
        ];
        if metas.inputs.len() > 2 {
            regions.push(Region::new(&[channels]));
        }
        regions.push(*out);
        regions
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        // As many as the convolution has, not those that are done.
        let Packed { direction, conv, kernel, .. } = &self.0;
        let x = metas.inputs[0].shape;
        let outputs = match direction {
            Direction::Forward => piece.out.elements(),
            Direction::Backward => {
                let whole = self.0.result.elements().max(1);
                x[2] * x[3] * x[0] * (self.0.result[1] * piece.out.elements()) / whole
            }
        };
        Flops(2 * (outputs * x[1] / conv.groups * kernel[0] * kernel[1]) as u64)
    }

    fn scratch(&self, _: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let (x, packed) = (metas.inputs[0], metas.inputs[1].shape);
        let Packed { method, direction, conv, kernel, .. } = &self.0;
        let dtype: DType = x.dtype;
        match method {
            Method::Gemm => {
                kernels::conv2d_gemm_scratch(conv, *direction, *kernel, &packed, piece, dtype)
            }
            Method::Winograd(form) => {
                kernels::conv2d_winograd_scratch(*form, x.shape[1], piece, dtype)
            }
        }
    }

    fn variants(&self) -> &'static [&'static str] {
        match self.0.method {
            Method::Gemm => &["gemm"],
            Method::Winograd(Form::F2) => &["winograd2"],
            Method::Winograd(Form::F4) => &["winograd4"],
        }
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        let Packed { method, direction, conv, kernel, rectify, .. } = &self.0;
        let padding = conv.padding.map(|p| match direction {
            Direction::Forward => p as isize,
            Direction::Backward => 2 - p as isize,
        });
        match method {
            Method::Gemm => kernels::conv2d_gemm(conv, *direction, *kernel, *rectify, call),
            Method::Winograd(form) => kernels::conv2d_winograd(*form, padding, *rectify, call),
        }
    }
}
