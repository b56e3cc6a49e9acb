//! How ops can be divided.

use super::Metas;
use std::ops::Range;

/// One way to divide an op: along an axis of its first output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The axis.
    pub axis: usize,
    /// Pieces start at multiples of this.
    pub align: usize,
}

impl Cut {
    /// A cut anywhere along each of the first output's axes.
    pub fn everywhere(metas: Metas<'_>) -> Vec<Cut> {
        (0..metas.out().rank()).map(|axis| Cut { axis, align: 1 }).collect()
    }

    /// A cut anywhere along the given axes.
    pub fn along(axes: impl IntoIterator<Item = usize>) -> Vec<Cut> {
        axes.into_iter().map(|axis| Cut { axis, align: 1 }).collect()
    }
}

/// The bounds of `count` nearly equal ranges of `length`, each but the last a
/// multiple of `align`. Fewer where there is not enough to share.
pub fn split(length: usize, count: usize, align: usize) -> Vec<Range<usize>> {
    let units = length.div_ceil(align).max(1);
    let count = parts(length, count, align);
    (0..count)
        .map(|i| {
            let from = i * units / count * align;
            let to = ((i + 1) * units / count * align).min(length);
            from..to
        })
        .collect()
}

/// How many ranges [`split`] gives.
pub fn parts(length: usize, count: usize, align: usize) -> usize {
    count.clamp(1, length.div_ceil(align).max(1))
}

/// The range of inputs that a range of outputs of a sliding window touches.
pub(crate) fn window(
    out: Range<usize>,
    input: usize,
    kernel: usize,
    (stride, padding, dilation): (usize, usize, usize),
) -> Range<usize> {
    if out.is_empty() {
        return 0..0;
    }
    let reach = (kernel - 1) * dilation + 1;
    let from = (out.start * stride).saturating_sub(padding).min(input);
    let to = ((out.end - 1) * stride + reach).saturating_sub(padding).min(input);
    from..to.max(from)
}

/// The range of outputs whose windows touch a range of inputs.
pub(crate) fn window_back(
    input: Range<usize>,
    out: usize,
    kernel: usize,
    (stride, padding, dilation): (usize, usize, usize),
) -> Range<usize> {
    if input.is_empty() {
        return 0..0;
    }
    let reach = (kernel - 1) * dilation;
    let from = (input.start + padding).saturating_sub(reach).div_ceil(stride).min(out);
    let to = ((input.end - 1 + padding) / stride + 1).min(out);
    from..to.max(from)
}
