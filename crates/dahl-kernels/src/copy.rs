//! Copies and constants of any element type.

use crate::{Call, Element};

/// Calls a function with the element type that a dtype names.
macro_rules! any_dispatch {
    ($dtype:expr, $f:ident($($argument:expr),*)) => {
        match $dtype {
            $crate::DType::F32 => $f::<f32>($($argument),*),
            $crate::DType::F64 => $f::<f64>($($argument),*),
            $crate::DType::U8 => $f::<u8>($($argument),*),
            $crate::DType::I64 => $f::<i64>($($argument),*),
        }
    };
}

pub(crate) use any_dispatch;

/// y = x. Input x.
pub fn clone(call: &mut Call<'_>) {
    any_dispatch!(call.dtype(0), clone_typed(call));
}

fn clone_typed<T: Element>(call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    outs.take::<T>().zip(&region, [&ins.get::<T>(0)], |[x], y| y.copy_from_slice(x));
}

/// y = the value in every element. No input.
pub fn constant(value: f64, call: &mut Call<'_>) {
    any_dispatch!(call.dtype(0), constant_typed(value, call));
}

fn constant_typed<T: Element>(value: f64, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (_, mut outs, _) = call.split();
    outs.take::<T>().runs_mut(&region, |_, run| run.fill(T::from_f64(value)));
}
