//! Two-dimensional convolution.

use super::conv2d_max_pool2d::Conv2dMaxPool2d;
use super::conv2d_packed::{Method, Packed};
use super::costs::Costs;
use super::cut::{window, window_back};
use super::eager::{self, Accum, Arg};
use super::elementwise::Unary;
use super::pool::MaxPool2d;
use super::{
    Accuracy, Backprop, Expansion, Meta, Metas, Mismatch, Op, Recorder, Target, Var, expect_floats,
};
use crate::tensor::{Arena, AsView, Tensor, TensorView};
use crate::units::Flops;
use dahl_kernels::conv2d::{self as kernels, Direction, Form};
pub use dahl_kernels::conv2d::{Conv2d, Rectify};
use dahl_kernels::{Call, Float, Piece, Region, Shape};
use std::any::Any;
use std::sync::Arc;

/// The length of an axis after a window has slid along it.
pub(crate) fn slid(
    length: usize,
    kernel: usize,
    (stride, padding, dilation): (usize, usize, usize),
) -> Option<usize> {
    let reach = kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
    let padded = length.checked_add(padding.checked_mul(2)?)?;
    Some(padded.checked_sub(reach)? / stride + 1)
}

/// Rows and columns of an image with its padding.
pub(super) fn padded(image: &Shape, padding: [usize; 2]) -> [usize; 2] {
    [0, 1].map(|a| image[2 + a].saturating_add(padding[a].saturating_mul(2)))
}

const VARIANTS: [&str; 6] = ["plain", "direct", "gemm", "winograd2", "winograd4", "depthwise"];
const PLAIN: usize = 0;
const DIRECT: usize = 1;
const GEMM: usize = 2;
const WINOGRAD2: usize = 3;
const WINOGRAD4: usize = 4;
const DEPTHWISE: usize = 5;

/// How a variant takes products of packed weights.
fn method(variant: usize) -> Option<Method> {
    match variant {
        GEMM => Some(Method::Gemm),
        WINOGRAD2 => Some(Method::Winograd(Form::F2)),
        WINOGRAD4 => Some(Method::Winograd(Form::F4)),
        _ => None,
    }
}

/// Whether a variant fits a convolution and is exact enough; `direct` is considered
/// where it is known.
fn is_allowed(variant: usize, conv: &Conv2d, weight: Meta, on: &Target) -> bool {
    let least = match variant {
        WINOGRAD2 => Accuracy::Auto,
        WINOGRAD4 => Accuracy::Fast,
        _ => Accuracy::Exact,
    };
    let fits = match variant {
        DEPTHWISE => kernels::conv2d_is_depthwise(conv, &weight.shape),
        _ => method(variant).is_none_or(|method| method.fits(conv, &weight.shape)),
    };
    fits && least <= on.accuracy(weight.dtype)
}

/// The variant of `allowed` that is fastest by the shipped costs; `image` is the
/// result, or what is summed for the gradient of the weight.
fn choose(
    conv: &Conv2d,
    weight: Meta,
    (image, results): (&Shape, usize),
    allowed: &[usize],
    on: &Target,
) -> usize {
    if allowed.contains(&DEPTHWISE) {
        return DEPTHWISE;
    }
    if conv.groups > 1 && weight.shape[0] == conv.groups {
        return PLAIN;
    }
    let costs = Costs::of(on.isa);
    let cycles = |&variant: &usize| match (variant, method(variant)) {
        (_, Some(Method::Gemm)) => costs.product(image, &weight.shape),
        (_, Some(Method::Winograd(form))) => costs.winograd(form, image, &weight.shape),
        (DIRECT, _) => costs.direct(image, &weight.shape, results),
        _ => f64::MAX,
    };
    let fastest = allowed.iter().min_by(|a, b| cycles(a).total_cmp(&cycles(b)));
    fastest.copied().unwrap_or(PLAIN)
}

pub(super) fn attributes(conv: &Conv2d) -> Vec<(&'static str, String)> {
    let mut attributes = Vec::new();
    for (name, value, default) in [
        ("stride", conv.stride, [1, 1]),
        ("padding", conv.padding, [0, 0]),
        ("dilation", conv.dilation, [1, 1]),
    ] {
        if value != default {
            attributes.push((name, format!("{value:?}")));
        }
    }
    if conv.groups != 1 {
        attributes.push(("groups", conv.groups.to_string()));
    }
    attributes
}

/// Multiply-adds: each output element sums over a window of the group's channels.
fn flops(outputs: usize, weight: &Shape) -> Flops {
    Flops(2 * (outputs * weight[1] * weight[2] * weight[3]) as u64)
}

/// The input channels that output channels `out` see.
fn group_channels(
    out: std::ops::Range<usize>,
    per_group: usize,
    out_per_group: usize,
) -> std::ops::Range<usize> {
    if out.is_empty() {
        return 0..0;
    }
    out.start / out_per_group * per_group..((out.end - 1) / out_per_group + 1) * per_group
}

/// y\[n,o,i,j\] = b\[o\] + Σ_{c,k,l} w\[o,c,k,l\] x\[n, c, i s + k d − p, j s + l d − p\],
/// and max(0, y) where it is fused with a relu.
///
/// x is \[N, C, H, W\], w \[O, C/groups, kh, kw\], b \[O\], y \[N, O, H', W'\].
#[derive(Clone, Copy, Debug)]
pub struct Conv2dForward {
    /// Stride, padding, dilation, groups.
    pub conv: Conv2d,
    /// What is done to the sum.
    pub rectify: Rectify,
}

impl Op for Conv2dForward {
    fn name(&self) -> &'static str {
        match self.rectify {
            Rectify::No => "conv2d",
            Rectify::Relu => "conv2d_relu",
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.conv)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let (x, w) = (inputs[0], inputs[1]);
        if x.shape.rank() != 4 {
            return Err(Mismatch::new("input", "4 axes [N, C, H, W]", x.shape));
        }
        if w.shape.rank() != 4 {
            return Err(Mismatch::new("weight", "4 axes [O, C/groups, kh, kw]", w.shape));
        }
        expect_floats(inputs)?;
        let conv = &self.conv;
        let positive =
            [conv.stride[0], conv.stride[1], conv.dilation[0], conv.dilation[1], conv.groups];
        if positive.contains(&0) {
            return Err(Mismatch::new(
                "stride, dilation and groups",
                "at least 1",
                format!("{conv:?}"),
            ));
        }
        let mut out =
            Meta { shape: Shape::new(&[x.shape[0], w.shape[0], x.shape[2], x.shape[3]]), ..x };
        if w.shape[0] % conv.groups != 0 || w.shape[1].checked_mul(conv.groups) != Some(x.shape[1])
        {
            let expected = format!("input and output channels in {} equal groups", conv.groups);
            let found = format!("input {} and weight {}", x.shape, w.shape);
            return Err(Mismatch::new("groups", expected, found).guess(out));
        }
        let kernel = [w.shape[2], w.shape[3]];
        if kernel.contains(&0) {
            let found = format!("{kernel:?}");
            return Err(Mismatch::new("kernel", "at least 1", found).guess(out));
        }
        let mut axes = [x.shape[0], w.shape[0], 0, 0];
        if padded(&x.shape, conv.padding).contains(&usize::MAX) {
            let expected = "a padded input that can be addressed";
            let found = format!("{:?}", conv.padding);
            return Err(Mismatch::new("padding", expected, found).guess(out));
        }
        for a in 0..2 {
            let Some(length) = slid(x.shape[2 + a], kernel[a], conv.axis(a)) else {
                let expected =
                    format!("at most the padded input {:?}", padded(&x.shape, conv.padding));
                return Err(Mismatch::new("kernel", expected, format!("{kernel:?}")).guess(out));
            };
            axes[2 + a] = length;
        }
        out.shape = Shape::new(&axes);
        if let Some(b) = inputs.get(2)
            && b.shape.axes() != [w.shape[0]]
        {
            let expected = format!("[{}]", w.shape[0]);
            return Err(Mismatch::new("bias", expected, b.shape).guess(out));
        }
        Ok(vec![out])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let (x, w) = (metas.inputs[0].shape, metas.inputs[1].shape);
        let out = &piece.out;
        let slide = |a| window(out.range(2 + a), x[2 + a], w[2 + a], self.conv.axis(a));
        let channels = group_channels(out.range(1), w[1], w[0] / self.conv.groups);
        let mut regions = vec![
            Region::new(&[out.range(0), channels, slide(0), slide(1)]),
            Region::full(&w).with(0, out.range(1)),
        ];
        if metas.inputs.len() > 2 {
            regions.push(Region::new(&[out.range(1)]));
        }
        regions.push(*out);
        regions
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        flops(piece.out.elements(), &metas.inputs[1].shape)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let (x, w) = (at.inputs[0], at.inputs[1]);
        let grad = match self.rectify {
            Rectify::No => at.grad(),
            Rectify::Relu => g.relu_backward(at.outputs[0], at.grad()),
        };
        let input = at.when(0, || {
            let op = Conv2dBackwardInput { conv: self.conv, input: g.meta(x).shape };
            g.one(op, &[grad, w])
        });
        let weight = at.when(1, || {
            let op = Conv2dBackwardWeight { conv: self.conv, weight: g.meta(w).shape };
            g.one(op, &[x, grad])
        });
        let bias = at.when(2, || g.sum_channels(grad));
        Some([input, weight, bias].into_iter().take(at.inputs.len()).collect())
    }

    fn fuse(&self, metas: Metas<'_>, next: &dyn Op) -> Option<Arc<dyn Op>> {
        if let Some(MaxPool2d(pool)) = (next as &dyn Any).downcast_ref() {
            let fused = Conv2dMaxPool2d::fused(self, pool, &metas.inputs[1].shape)?;
            return Some(Arc::new(fused));
        }
        let relu = (next as &dyn Any).downcast_ref() == Some(&Unary::Relu);
        let fused = Self { rectify: Rectify::Relu, ..*self };
        (self.rectify == Rectify::No && relu).then(|| Arc::new(fused) as _)
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let (x, w) = (metas.inputs[0], metas.inputs[1].shape);
        match variant {
            PLAIN => 0,
            DEPTHWISE => kernels::conv2d_depthwise_scratch(&self.conv, &w, piece, x.dtype),
            DIRECT => kernels::conv2d_direct_scratch(&self.conv, &w, piece, x.dtype),
            // Of the two ops that it expands into.
            _ => 0,
        }
    }

    fn variants(&self) -> &'static [&'static str] {
        &VARIANTS
    }

    fn choose(&self, metas: Metas<'_>, on: &Target) -> usize {
        let (weight, out) = (metas.inputs[1], metas.out());
        choose(&self.conv, weight, (&out, out[1]), &self.allowed(metas, on), on)
    }

    fn allowed(&self, metas: Metas<'_>, on: &Target) -> Vec<usize> {
        let fits = |&v: &usize| {
            is_allowed(v, &self.conv, metas.inputs[1], on) && (v != DIRECT || self.conv.groups == 1)
        };
        (0..VARIANTS.len()).filter(fits).collect()
    }

    fn expand(&self, variant: usize, metas: Metas<'_>) -> Option<Expansion> {
        let w = metas.inputs[1].shape;
        let packed = Packed {
            method: method(variant)?,
            direction: Direction::Forward,
            conv: self.conv,
            kernel: [w[2], w[3]],
            rectify: self.rectify,
            result: metas.out(),
        };
        Some(packed.expansion())
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        match variant {
            PLAIN => kernels::conv2d(&self.conv, self.rectify, call),
            DEPTHWISE => kernels::conv2d_depthwise(&self.conv, self.rectify, call),
            DIRECT => kernels::conv2d_direct(&self.conv, self.rectify, call),
            _ => unreachable!("{} is two ops", VARIANTS[variant]),
        }
    }
}

/// The gradient of a convolution's input: g\[n,c,y,x\] = Σ w\[o,c,k,l\] g'\[n,o,i,j\]
/// over the outputs whose tap (k, l) is (y, x). Inputs g', w.
#[derive(Clone, Copy, Debug)]
pub struct Conv2dBackwardInput {
    /// The convolution.
    pub conv: Conv2d,
    /// The shape of its input.
    pub input: Shape,
}

impl Op for Conv2dBackwardInput {
    fn name(&self) -> &'static str {
        "conv2d_backward_input"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.conv)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: self.input, ..inputs[0] }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let (gy, w) = (metas.inputs[0].shape, metas.inputs[1].shape);
        let out = &piece.out;
        let slide = |a| window_back(out.range(2 + a), gy[2 + a], w[2 + a], self.conv.axis(a));
        let outputs = group_channels(out.range(1), w[0] / self.conv.groups, w[1]);
        vec![
            Region::new(&[out.range(0), outputs.clone(), slide(0), slide(1)]),
            Region::full(&w).with(0, outputs),
            *out,
        ]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let (gy, w) = (metas.inputs[0].shape, metas.inputs[1].shape);
        let whole = flops(gy.elements(), &w).0 as f64;
        Flops((whole * piece.out.elements() as f64 / self.input.elements().max(1) as f64) as u64)
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let (gy, w) = (metas.inputs[0], metas.inputs[1].shape);
        match variant {
            PLAIN => 0,
            DEPTHWISE => kernels::conv2d_backward_input_depthwise_scratch(
                &self.conv, &w, &gy.shape, piece, gy.dtype,
            ),
            DIRECT => {
                kernels::conv2d_backward_input_direct_scratch(&self.conv, &w, piece, gy.dtype)
            }
            // Of the two ops that it expands into.
            _ => 0,
        }
    }

    fn variants(&self) -> &'static [&'static str] {
        &VARIANTS
    }

    fn choose(&self, metas: Metas<'_>, on: &Target) -> usize {
        // As many products as the outputs have.
        let (gy, weight) = (metas.inputs[0].shape, metas.inputs[1]);
        choose(&self.conv, weight, (&gy, self.input[1]), &self.allowed(metas, on), on)
    }

    fn allowed(&self, metas: Metas<'_>, on: &Target) -> Vec<usize> {
        let weight = metas.inputs[1];
        let direct = kernels::conv2d_backward_input_is_direct(&self.conv, &weight.shape);
        let fits = |&v: &usize| is_allowed(v, &self.conv, weight, on) && (v != DIRECT || direct);
        (0..VARIANTS.len()).filter(fits).collect()
    }

    fn expand(&self, variant: usize, metas: Metas<'_>) -> Option<Expansion> {
        let w = metas.inputs[1].shape;
        let packed = Packed {
            method: method(variant)?,
            direction: Direction::Backward,
            conv: self.conv,
            kernel: [w[2], w[3]],
            rectify: Rectify::No,
            result: self.input,
        };
        Some(packed.expansion())
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        match variant {
            PLAIN => kernels::conv2d_backward_input(&self.conv, call),
            DEPTHWISE => kernels::conv2d_backward_input_depthwise(&self.conv, call),
            DIRECT => kernels::conv2d_backward_input_direct(&self.conv, call),
            _ => unreachable!("{} is two ops", VARIANTS[variant]),
        }
    }
}

/// The gradient of a convolution's weight: g\[o,c,k,l\] = Σ_{n,i,j} g'\[n,o,i,j\]
/// x\[n, c, i s + k d − p, j s + l d − p\]. Inputs x, g'; summed over samples.
#[derive(Clone, Copy, Debug)]
pub struct Conv2dBackwardWeight {
    /// The convolution.
    pub conv: Conv2d,
    /// The shape of its weight.
    pub weight: Shape,
}

impl Op for Conv2dBackwardWeight {
    fn name(&self) -> &'static str {
        "conv2d_backward_weight"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&self.conv)
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        Ok(vec![Meta { shape: self.weight, ..inputs[0] }])
    }

    fn summed(&self, metas: Metas<'_>) -> Option<usize> {
        Some(metas.inputs[0].shape[0])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let (x, gy) = (metas.inputs[0].shape, metas.inputs[1].shape);
        let out = &piece.out;
        let per_group = self.weight[1];
        let channels = group_channels(out.range(0), per_group, self.weight[0] / self.conv.groups);
        // Within one group, a range of weights' channels is a range of inputs'.
        let channels = if channels.len() == per_group {
            channels.start + out.range(1).start..channels.start + out.range(1).end
        } else {
            channels
        };
        vec![
            Region::full(&x).with(0, piece.sum.clone()).with(1, channels),
            Region::full(&gy).with(0, piece.sum.clone()).with(1, out.range(0)),
            *out,
        ]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        let gy = metas.inputs[1].shape;
        Flops(2 * (piece.out.elements() * piece.sum.len() * gy[2] * gy[3]) as u64)
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let Meta { shape: gy, dtype } = metas.inputs[1];
        let shapes = [&metas.inputs[0].shape, &gy, &self.weight];
        match method(variant) {
            None if variant == DEPTHWISE => {
                kernels::conv2d_backward_weight_depthwise_scratch(&self.conv, shapes, piece, dtype)
            }
            None => 0,
            Some(Method::Gemm) => {
                kernels::conv2d_backward_weight_gemm_scratch(&self.conv, &gy, piece, dtype)
            }
            Some(Method::Winograd(form)) => {
                kernels::conv2d_winograd_backward_weight_scratch(form, &gy, piece, dtype)
            }
        }
    }

    fn variants(&self) -> &'static [&'static str] {
        &VARIANTS
    }

    fn choose(&self, metas: Metas<'_>, on: &Target) -> usize {
        let weight = Meta { shape: self.weight, ..metas.inputs[0] };
        let gy = metas.inputs[1].shape;
        choose(&self.conv, weight, (&gy, self.weight[0]), &self.allowed(metas, on), on)
    }

    fn allowed(&self, metas: Metas<'_>, on: &Target) -> Vec<usize> {
        let weight = Meta { shape: self.weight, ..metas.inputs[0] };
        let fits = |&v: &usize| is_allowed(v, &self.conv, weight, on) && v != DIRECT;
        (0..VARIANTS.len()).filter(fits).collect()
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        match method(variant) {
            None if variant == DEPTHWISE => {
                kernels::conv2d_backward_weight_depthwise(&self.conv, call);
            }
            None => kernels::conv2d_backward_weight(&self.conv, call),
            Some(Method::Gemm) => kernels::conv2d_backward_weight_gemm(&self.conv, call),
            Some(Method::Winograd(form)) => {
                kernels::conv2d_winograd_backward_weight(form, &self.conv, call);
            }
        }
    }
}

/// The convolution of x \[N, C, H, W\] with weight \[O, C/groups, kh, kw\] and,
/// where there is one, bias \[O\]: y\[n,o,i,j\] = b\[o\] +
/// Σ_{c,k,l} w\[o,c,k,l\] x\[n, c, i s + k d − p, j s + l d − p\].
///
/// ```
/// use dahl::{ops::conv2d::{Conv2d, conv2d}, tensor::{Arena, Tensor}};
/// let arena = Arena::new();
/// let x = Tensor::from_fn(&arena, [1, 1, 1, 3], |[_, _, _, j]| j as f32);
/// let w = Tensor::full(&arena, [1, 1, 1, 2], 1.0f32);
/// assert_eq!(conv2d(&arena, &x, &w, None, Conv2d::default()).as_slice(), [1.0, 3.0]);
/// ```
#[track_caller]
pub fn conv2d<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 4>,
    weight: &impl AsView<E, 4>,
    bias: Option<TensorView<'_, E, 1>>,
    conv: Conv2d,
) -> Tensor<'a, E, 4> {
    let mut inputs = vec![Arg::new(x), Arg::new(weight)];
    inputs.extend(bias.as_ref().map(Arg::new));
    eager::run(arena, &Conv2dForward { conv, rectify: Rectify::No }, &inputs)
}

/// [`conv2d`] into an existing tensor.
#[track_caller]
pub fn conv2d_into<E: Float>(
    x: &impl AsView<E, 4>,
    weight: &impl AsView<E, 4>,
    bias: Option<TensorView<'_, E, 1>>,
    conv: Conv2d,
    accum: Accum,
    out: &mut Tensor<'_, E, 4>,
) {
    let mut inputs = vec![Arg::new(x), Arg::new(weight)];
    inputs.extend(bias.as_ref().map(Arg::new));
    eager::run_into(&Conv2dForward { conv, rectify: Rectify::No }, &inputs, accum, out);
}

impl dyn Recorder + '_ {
    /// Records a convolution of `x` with `weight` and, where there is one, `bias`.
    pub fn conv2d(&mut self, x: Var, weight: Var, bias: Option<Var>, conv: Conv2d) -> Var {
        let inputs: Vec<Var> = [x, weight].into_iter().chain(bias).collect();
        self.one(Conv2dForward { conv, rectify: Rectify::No }, &inputs)
    }
}
