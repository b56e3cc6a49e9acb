//! Copies with the axes in another order.

use crate::copy::any_dispatch;
use crate::region::for_each;
use crate::shape::MAX_AXES;
use crate::{Call, Element};

/// y\[i_0, i_1, …\] = x with i_k at axis `axes[k]`. Input x.
pub fn permute(axes: &[usize], call: &mut Call<'_>) {
    any_dispatch!(call.dtype(0), permute_typed(axes, call));
}

fn permute_typed<T: Element>(axes: &[usize], call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let (x, mut y) = (ins.get::<T>(0), outs.take::<T>());
    for_each(&region, |at| {
        let mut from = [0; MAX_AXES];
        for (k, &axis) in axes.iter().enumerate() {
            from[axis] = at[k];
        }
        y.set_axes(&at[..axes.len()], x.at_axes(&from[..axes.len()]));
    });
}
