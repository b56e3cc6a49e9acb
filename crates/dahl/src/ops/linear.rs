//! The fully connected layer.

use super::eager::{self, Accum, Arg};
use super::{Backprop, Meta, Metas, Mismatch, Op, Recorder, Target, Var, expect_floats};
use crate::tensor::{Arena, AsView, Matrix, TensorView};
use crate::units::Flops;
use dahl_kernels::linear as kernels;
use dahl_kernels::{Call, Float, Piece, Region, Shape};

const VARIANTS: [&str; 2] = ["plain", "gemm"];
const PLAIN: usize = 0;
const GEMM: usize = 1;
const DOT: usize = 2;

/// The most outputs that are dot products of rows: beyond, a product in tiles is
/// faster.
const DOTS: usize = 16;

/// y\[n,o\] = b\[o\] + Σ_i w\[o,i\] x\[n,i\]: x is \[N, I\], w \[O, I\], b \[O\].
#[derive(Clone, Copy, Debug)]
pub struct Linear;

impl Op for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let (x, w) = (inputs[0], inputs[1]);
        if w.shape.rank() != 2 {
            return Err(Mismatch::new("weight", "2 axes [O, I]", w.shape));
        }
        let samples = x.shape.axes().first().copied().unwrap_or(1);
        let out = Meta { shape: Shape::new(&[samples, w.shape[0]]), ..x };
        if x.shape.rank() != 2 {
            return Err(
                Mismatch::new("input", "2 axes [N, I], as after a flatten", x.shape).guess(out)
            );
        }
        expect_floats(inputs)?;
        if x.shape[1] != w.shape[1] {
            let expected = format!("{} features", w.shape[1]);
            return Err(Mismatch::new("input", expected, x.shape).guess(out));
        }
        if let Some(b) = inputs.get(2)
            && b.shape.axes() != [w.shape[0]]
        {
            return Err(Mismatch::new("bias", format!("[{}]", w.shape[0]), b.shape).guess(out));
        }
        Ok(vec![out])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let features = 0..metas.inputs[0].shape[1];
        let (samples, outputs) = (piece.out.range(0), piece.out.range(1));
        let mut regions = vec![
            Region::new(&[samples, features.clone()]),
            Region::new(&[outputs.clone(), features]),
        ];
        if metas.inputs.len() > 2 {
            regions.push(Region::new(&[outputs]));
        }
        regions.push(piece.out);
        regions
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        Flops(2 * (piece.out.elements() * metas.inputs[0].shape[1]) as u64)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let (x, w, grad) = (at.inputs[0], at.inputs[1], at.grad());
        let input = at.when(0, || g.one(LinearBackwardInput, &[grad, w]));
        let weight = at.when(1, || g.one(LinearBackwardWeight, &[x, grad]));
        let bias = at.when(2, || g.sum_channels(grad));
        Some([input, weight, bias].into_iter().take(at.inputs.len()).collect())
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let terms = metas.inputs[0].shape[1];
        match variant {
            PLAIN => 0,
            DOT => kernels::linear_dot_scratch(piece, metas.inputs[0].dtype),
            _ => kernels::linear_gemm_scratch(piece, terms, metas.inputs[0].dtype),
        }
    }

    fn variants(&self) -> &'static [&'static str] {
        &["plain", "gemm", "dot"]
    }

    fn choose(&self, metas: Metas<'_>, _: &Target) -> usize {
        if metas.inputs[1].shape[0] <= DOTS { DOT } else { GEMM }
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        match variant {
            PLAIN => kernels::linear(call),
            DOT => kernels::linear_dot(call),
            _ => kernels::linear_gemm(call),
        }
    }
}

/// g\[n,i\] = Σ_o g'\[n,o\] w\[o,i\]. Inputs g', w.
#[derive(Clone, Copy, Debug)]
pub struct LinearBackwardInput;

impl Op for LinearBackwardInput {
    fn name(&self) -> &'static str {
        "linear_backward_input"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let (gy, w) = (inputs[0], inputs[1]);
        Ok(vec![Meta { shape: Shape::new(&[gy.shape[0], w.shape[1]]), ..gy }])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let outputs = 0..metas.inputs[1].shape[0];
        vec![
            Region::new(&[piece.out.range(0), outputs.clone()]),
            Region::new(&[outputs, piece.out.range(1)]),
            piece.out,
        ]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        Flops(2 * (piece.out.elements() * metas.inputs[1].shape[0]) as u64)
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let terms = metas.inputs[1].shape[0];
        match variant {
            PLAIN => 0,
            _ => kernels::linear_gemm_scratch(piece, terms, metas.inputs[0].dtype),
        }
    }

    fn variants(&self) -> &'static [&'static str] {
        &VARIANTS
    }

    fn choose(&self, _: Metas<'_>, _: &Target) -> usize {
        GEMM
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        match variant {
            PLAIN => kernels::linear_backward_input(call),
            _ => kernels::linear_backward_input_gemm(call),
        }
    }
}

/// g\[o,i\] = Σ_n g'\[n,o\] x\[n,i\]. Inputs x, g'; summed over samples.
#[derive(Clone, Copy, Debug)]
pub struct LinearBackwardWeight;

impl Op for LinearBackwardWeight {
    fn name(&self) -> &'static str {
        "linear_backward_weight"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let (x, gy) = (inputs[0], inputs[1]);
        Ok(vec![Meta { shape: Shape::new(&[gy.shape[1], x.shape[1]]), ..x }])
    }

    fn summed(&self, metas: Metas<'_>) -> Option<usize> {
        Some(metas.inputs[0].shape[0])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![
            Region::new(&[piece.sum.clone(), piece.out.range(1)]),
            Region::new(&[piece.sum.clone(), piece.out.range(0)]),
            piece.out,
        ]
    }

    fn flops(&self, _: Metas<'_>, piece: &Piece) -> Flops {
        Flops(2 * (piece.out.elements() * piece.sum.len()) as u64)
    }

    fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
        let terms = piece.sum.len();
        match variant {
            PLAIN => 0,
            _ => kernels::linear_gemm_scratch(piece, terms, metas.inputs[0].dtype),
        }
    }

    fn variants(&self) -> &'static [&'static str] {
        &VARIANTS
    }

    fn choose(&self, _: Metas<'_>, _: &Target) -> usize {
        GEMM
    }

    fn run(&self, variant: usize, call: &mut Call<'_>) {
        match variant {
            PLAIN => kernels::linear_backward_weight(call),
            _ => kernels::linear_backward_weight_gemm(call),
        }
    }
}

/// y\[n,o\] = b\[o\] + Σ_i w\[o,i\] x\[n,i\]: x is \[N, I\], w \[O, I\], b \[O\].
///
/// ```
/// use dahl::{ops::linear::linear, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let x = Matrix::from_slice(&arena, [1, 2], &[1.0f32, 2.0]).unwrap();
/// let w = Matrix::from_slice(&arena, [1, 2], &[3.0f32, 4.0]).unwrap();
/// let b = Vector::full(&arena, [1], 0.5f32);
/// assert_eq!(linear(&arena, &x, &w, Some(b.as_view())).as_slice(), [11.5]);
/// ```
#[track_caller]
pub fn linear<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 2>,
    weight: &impl AsView<E, 2>,
    bias: Option<TensorView<'_, E, 1>>,
) -> Matrix<'a, E> {
    let mut inputs = vec![Arg::new(x), Arg::new(weight)];
    inputs.extend(bias.as_ref().map(Arg::new));
    eager::run(arena, &Linear, &inputs)
}

/// [`linear`] into an existing matrix.
#[track_caller]
pub fn linear_into<E: Float>(
    x: &impl AsView<E, 2>,
    weight: &impl AsView<E, 2>,
    bias: Option<TensorView<'_, E, 1>>,
    accum: Accum,
    out: &mut Matrix<'_, E>,
) {
    let mut inputs = vec![Arg::new(x), Arg::new(weight)];
    inputs.extend(bias.as_ref().map(Arg::new));
    eager::run_into(&Linear, &inputs, accum, out);
}

impl dyn Recorder + '_ {
    /// Records a fully connected layer.
    pub fn linear(&mut self, x: Var, weight: Var, bias: Option<Var>) -> Var {
        let inputs: Vec<Var> = [x, weight].into_iter().chain(bias).collect();
        self.one(Linear, &inputs)
    }
}
