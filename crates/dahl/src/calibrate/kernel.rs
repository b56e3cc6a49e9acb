//! The time of one variant of one op, on operands that nothing else uses.
//!
//! # Invariants
//! - The operands of a call are buffers of their own that outlive it.
#![expect(unsafe_code, reason = "turns buffers into operands of a call")]

use crate::ops::{Expansion, Meta, Metas, Op};
use dahl_kernels::{Call, DType, Isa, Operand, Piece, Region, StepScalars};
use std::time::{Duration, Instant};

/// How long a variant is repeated, at least once more.
const LONG_ENOUGH: Duration = Duration::from_millis(20);
/// The most repetitions.
const REPETITIONS: usize = 50;

/// The shortest time of some that a variant of an op took over the whole result,
/// with what it prepares.
///
/// # Panics
/// If the machine does not have the instruction set, or the op not this variant.
pub fn time(op: &dyn Op, variant: usize, metas: Metas<'_>, isa: Isa) -> Duration {
    match op.expand(variant, metas) {
        None => time_run(op, variant, metas, isa),
        Some(Expansion { input, prepare, op }) => {
            let given = &metas.inputs[input..=input];
            let prepared = prepare.infer(given).expect("an input of the op");
            let mut inputs = metas.inputs.to_vec();
            inputs[input] = prepared[0];
            let first = Metas { inputs: given, outputs: &prepared };
            let then = Metas { inputs: &inputs, ..metas };
            time_run(&*prepare, 0, first, isa) + time_run(&*op, 0, then, isa)
        }
    }
}

fn time_run(op: &dyn Op, variant: usize, metas: Metas<'_>, isa: Isa) -> Duration {
    let all = metas.inputs.iter().chain(metas.outputs);
    let mut buffers: Vec<Vec<u64>> = all.clone().map(filled).collect();
    let operands: Vec<Operand> = buffers
        .iter_mut()
        .zip(all)
        .map(|(buffer, meta)| {
            let (shape, full) = (meta.shape, Region::full(&meta.shape));
            let ptr = buffer.as_mut_ptr().cast();
            // SAFETY: the buffer has all elements of the shape, aligned, and
            // lives until the end of this function.
            unsafe { Operand::from_raw(ptr, meta.dtype, shape, full, shape.strides()) }
        })
        .collect();
    let piece = Piece { out: Region::full(&metas.out()), sum: 0..op.summed(metas).unwrap_or(0) };
    let step = StepScalars::default();
    let mut scratch = vec![0; op.scratch(variant, metas, &piece)];
    let (begin, mut best) = (Instant::now(), Duration::MAX);
    for repetition in 0..REPETITIONS {
        let from = Instant::now();
        // SAFETY: nothing else uses the buffers.
        let call = unsafe { Call::new(&operands, metas.inputs.len(), &piece, &step, &mut scratch) };
        op.run(variant, &mut call.on(isa));
        best = best.min(from.elapsed());
        if repetition > 0 && begin.elapsed() > LONG_ENOUGH {
            break;
        }
    }
    best
}

/// Bytes of a tensor: small numbers of both signs, zeros where they are indices,
/// and one where it is a count or says whether there is something to do.
fn filled(meta: &Meta) -> Vec<u64> {
    let mut words = vec![0u64; meta.bytes().div_ceil(8).max(1)];
    let noise = |i: usize| ((i * 7919) % 2003) as f64 / 1001.0 - 1.0;
    match meta.dtype {
        DType::F64 => words.iter_mut().enumerate().for_each(|(i, w)| *w = noise(i).to_bits()),
        DType::F32 => words.iter_mut().enumerate().for_each(|(i, w)| {
            let [low, high] = [2 * i, 2 * i + 1].map(|i| u64::from((noise(i) as f32).to_bits()));
            *w = low | high << 32;
        }),
        DType::I64 | DType::U8 if meta.shape.rank() == 0 => words[0] = 1,
        DType::I64 | DType::U8 => {}
    }
    words
}
