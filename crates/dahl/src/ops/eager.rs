//! Ops computed at once: what the functions with an op's name share.
//!
//! They build operands, run the op's fastest exact variant over the whole result,
//! and so use the same shape rule and the same kernels as the graph.
//!
//! # Invariants
//! - The operands of a call borrow from its arguments; outputs are borrowed
//!   exclusively, so no input overlaps one.
#![expect(unsafe_code, reason = "turns borrowed tensors into operands of a call")]

use super::{Access, Accuracy, Expansion, Meta, Metas, Mismatch, Op, Target};
use crate::error::Unexpected;
use crate::tensor::{Arena, AsView, Tensor, TensorView};
use dahl_kernels::{Call, Element, Float, Isa, Operand, Piece, Region, Shape, StepScalars};
use std::any::Any;
use std::marker::PhantomData;

/// What becomes of an output's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accum {
    /// They are overwritten.
    Replace,
    /// The result is added to them.
    Add,
}

/// An input of an op: a tensor of any element and rank, borrowed. Elements that
/// do not lie behind each other are copied.
pub struct Arg<'t> {
    operand: Operand,
    /// Where the operand's elements are if they are a copy.
    _copy: Option<Box<dyn Any>>,
    borrow: PhantomData<&'t ()>,
}

impl<'t> Arg<'t> {
    /// A tensor or a view as an input.
    pub fn new<E: Element, const R: usize>(x: &'t impl AsView<E, R>) -> Self {
        Self::of(x.as_view())
    }

    fn of<E: Element, const R: usize>(view: TensorView<'t, E, R>) -> Self {
        let shape = Shape::new(&view.shape());
        let copy = view.as_slice().is_none().then(|| Box::new(view.to_vec()));
        let data: &[E] = match &copy {
            Some(copy) => copy,
            None => view.as_slice().unwrap_or(&[]),
        };
        // SAFETY: the slice is borrowed for 't or owned by `copy`, whose heap
        // memory does not move with it; inputs are only read.
        let operand = unsafe { Operand::of_slice(data, shape) };
        Self { operand, _copy: copy.map(|c| c as Box<dyn Any>), borrow: PhantomData }
    }

    fn meta(&self) -> Meta {
        Meta { shape: self.operand.shape(), dtype: self.operand.dtype() }
    }
}

/// Computes an op with one output into a new tensor.
///
/// # Panics
/// If the op does not take these inputs, or its result has another element or
/// rank.
///
/// ```
/// use dahl::ops::{eager, elementwise::Unary};
/// use dahl::tensor::{Arena, Vector};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [2], &[-1.0f32, 2.0]).unwrap();
/// let y: Vector<f32> = eager::run(&arena, &Unary::Relu, &[eager::Arg::new(&x)]);
/// assert_eq!(y.as_slice(), [0.0, 2.0]);
/// ```
#[track_caller]
pub fn run<'a, E: Element, const R: usize>(
    arena: &'a Arena,
    op: &dyn Op,
    inputs: &[Arg<'_>],
) -> Tensor<'a, E, R> {
    let metas = infer(op, inputs);
    let mut out = Tensor::zeros(arena, axes::<E, R>(op, metas[0]));
    call(op, inputs, &mut [output(&mut out)], &StepScalars::default());
    out
}

/// Computes an op with two outputs into new tensors.
///
/// # Panics
/// As [`run`].
#[track_caller]
pub fn run_two<'a, E: Element, F: Element, const R: usize>(
    arena: &'a Arena,
    op: &dyn Op,
    inputs: &[Arg<'_>],
) -> (Tensor<'a, E, R>, Tensor<'a, F, R>) {
    let metas = infer(op, inputs);
    let mut first = Tensor::zeros(arena, axes::<E, R>(op, metas[0]));
    let mut second = Tensor::zeros(arena, axes::<F, R>(op, metas[1]));
    let outputs = &mut [output(&mut first), output(&mut second)];
    call(op, inputs, outputs, &StepScalars::default());
    (first, second)
}

/// Computes an op with one output into an existing tensor.
///
/// # Panics
/// If the op does not take these inputs, or its result has another shape.
#[track_caller]
pub fn run_into<E: Float, const R: usize>(
    op: &dyn Op,
    inputs: &[Arg<'_>],
    accum: Accum,
    out: &mut Tensor<'_, E, R>,
) {
    let metas = infer(op, inputs);
    let expected: [usize; R] = axes::<E, R>(op, metas[0]);
    if expected != out.shape() {
        let found = format!("shape {:?}", out.shape());
        wrong(op, &Unexpected::new("out", format!("shape {expected:?}"), found));
    }
    let step = StepScalars::default();
    match accum {
        Accum::Replace => call(op, inputs, &mut [output(out)], &step),
        Accum::Add => {
            let scratch = Arena::new();
            let mut result: Tensor<'_, E, R> = Tensor::zeros(&scratch, expected);
            call(op, inputs, &mut [output(&mut result)], &step);
            let add = super::elementwise::InPlace::Binary(super::elementwise::Binary::Add);
            run_in_place(&add, &[Arg::new(&result)], out);
        }
    }
}

/// Runs an op that updates its only output.
///
/// # Panics
/// If the op does not take these operands.
#[track_caller]
pub fn run_in_place<E: Element, const R: usize>(
    op: &dyn Op,
    inputs: &[Arg<'_>],
    x: &mut Tensor<'_, E, R>,
) {
    debug_assert_eq!(op.access(0), Access::Update);
    call(op, inputs, &mut [output(x)], &StepScalars::default());
}

/// The shapes of the results, or a panic that says what does not fit.
#[track_caller]
pub(crate) fn infer(op: &dyn Op, inputs: &[Arg<'_>]) -> Vec<Meta> {
    let metas: Vec<Meta> = inputs.iter().map(Arg::meta).collect();
    match op.infer(&metas) {
        Ok(metas) => metas,
        Err(Mismatch { fault, .. }) => wrong(op, &fault),
    }
}

/// Checks an op's inputs where the first of them is the tensor to be changed.
#[track_caller]
pub(crate) fn infer_with<E: Element, const R: usize>(
    op: &dyn Op,
    x: &Tensor<'_, E, R>,
    rest: &[&Arg<'_>],
) {
    let mut metas = vec![Meta::new(x.shape(), E::DTYPE)];
    metas.extend(rest.iter().map(|arg| arg.meta()));
    if let Err(Mismatch { fault, .. }) = op.infer(&metas) {
        wrong(op, &fault);
    }
}

/// A result's axes as a typed tensor has them.
#[track_caller]
fn axes<E: Element, const R: usize>(op: &dyn Op, meta: Meta) -> [usize; R] {
    match meta.shape.axes().try_into() {
        Ok(axes) if meta.dtype == E::DTYPE => axes,
        _ => wrong(op, &Unexpected::new("result", format!("{} with {R} axes", E::DTYPE), meta)),
    }
}

#[track_caller]
#[cold]
pub(crate) fn wrong(op: &dyn Op, fault: &Unexpected) -> ! {
    panic!("{}: {fault}", op.name())
}

/// An output of a call: an operand that keeps the tensor borrowed.
pub(crate) struct Out<'t> {
    operand: Operand,
    borrow: PhantomData<&'t mut ()>,
}

/// A tensor as an output.
pub(crate) fn output<'t, E: Element, const R: usize>(out: &'t mut Tensor<'_, E, R>) -> Out<'t> {
    let shape = Shape::new(&out.shape());
    // SAFETY: `Out` keeps the tensor exclusively borrowed.
    let operand = unsafe { Operand::of_slice_mut(out.as_mut_slice(), shape) };
    Out { operand, borrow: PhantomData }
}

/// Runs the variant that is fastest here over the whole result.
pub(crate) fn call(op: &dyn Op, inputs: &[Arg<'_>], outputs: &mut [Out<'_>], step: &StepScalars) {
    let mut reads: Vec<Operand> = inputs.iter().map(|i| i.operand).collect();
    let writes: Vec<Operand> = outputs.iter().map(|o| o.operand).collect();
    let [ins, outs] = [&reads, &writes].map(|operands| operands.iter().map(meta).collect());
    let (ins, outs): (Vec<Meta>, Vec<Meta>) = (ins, outs);
    let metas = Metas { inputs: &ins, outputs: &outs };
    let target = Target { isa: Isa::detect(), accuracy: Some(Accuracy::Exact) };
    let variant = op.choose(metas, &target);
    // SAFETY: inputs are borrowed, outputs exclusively, for as long as the call.
    let run = |op: &dyn Op, variant, reads: &[Operand], writes: &[Operand]| unsafe {
        run_whole(op, variant, (reads, writes), step);
    };
    let Some(Expansion { input, prepare, op }) = op.expand(variant, metas) else {
        return run(op, variant, &reads, &writes);
    };
    let made = prepare.infer(&ins[input..=input]).expect("an input of the op")[0];
    let mut buffer = vec![0u64; made.bytes().div_ceil(size_of::<u64>())];
    let full = Region::full(&made.shape);
    let (to, strides) = (buffer.as_mut_ptr().cast(), made.shape.strides());
    // SAFETY: the buffer has all elements, aligned, and lives until the end.
    let prepared = unsafe { Operand::from_raw(to, made.dtype, made.shape, full, strides) };
    run(&*prepare, 0, &reads[input..=input], &[prepared]);
    reads[input] = prepared;
    run(&*op, 0, &reads, &writes);
}

fn meta(operand: &Operand) -> Meta {
    Meta { shape: operand.shape(), dtype: operand.dtype() }
}

/// Runs a variant over the whole result.
///
/// # Safety
/// The operands that are read can be, and nobody else uses those that are written.
unsafe fn run_whole(
    op: &dyn Op,
    variant: usize,
    (reads, writes): (&[Operand], &[Operand]),
    step: &StepScalars,
) {
    let operands = [reads, writes].concat();
    let metas: Vec<Meta> = operands.iter().map(meta).collect();
    let (inputs, outputs) = metas.split_at(reads.len());
    let metas = Metas { inputs, outputs };
    let piece = Piece { out: Region::full(&metas.out()), sum: 0..op.summed(metas).unwrap_or(0) };
    let mut scratch = vec![0; op.scratch(variant, metas, &piece)];
    // SAFETY: as the caller promises.
    let call = unsafe { Call::new(&operands, reads.len(), &piece, step, &mut scratch) };
    op.run(variant, &mut call.on(Isa::detect()));
}
