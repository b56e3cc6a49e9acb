//! Views: elements of a tensor with strides, borrowed.

use super::array::strides;
use super::{Arena, Tensor};
use crate::error::{Error, Result};
use dahl_kernels::{Element, Shape};
use std::ops::{Index, IndexMut, Range};

/// Something that can be looked at as a tensor of `R` axes.
pub trait AsView<E, const R: usize> {
    /// The whole tensor, for reading.
    fn as_view(&self) -> TensorView<'_, E, R>;
}

/// Elements of a tensor, to be read.
///
/// Cheap to copy; borrows from the tensor.
pub struct TensorView<'t, E, const R: usize> {
    shape: [usize; R],
    strides: [usize; R],
    /// From the first element to the last.
    data: &'t [E],
}

/// Elements of a tensor, to be read and written.
pub struct TensorViewMut<'t, E, const R: usize> {
    shape: [usize; R],
    strides: [usize; R],
    /// From the first element to the last.
    data: &'t mut [E],
}

impl<E, const R: usize> Clone for TensorView<'_, E, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, const R: usize> Copy for TensorView<'_, E, R> {}

impl<'t, E: Element, const R: usize> TensorView<'t, E, R> {
    pub(super) fn new(shape: [usize; R], strides: [usize; R], data: &'t [E]) -> Self {
        Self { shape, strides, data }
    }

    /// The lengths of the axes.
    #[inline]
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at a coordinate, if it is inside.
    #[inline]
    pub fn get(&self, at: [usize; R]) -> Option<&'t E> {
        offset(&self.shape, &self.strides, at).map(|i| &self.data[i])
    }

    /// The elements as a slice, where they lie behind each other in row-major
    /// order.
    pub fn as_slice(&self) -> Option<&'t [E]> {
        let mut length = 1;
        for a in (0..R).rev() {
            if self.shape[a] != 1 && self.strides[a] != length && !self.is_empty() {
                return None;
            }
            length *= self.shape[a];
        }
        Some(&self.data[..length])
    }

    /// The elements in row-major order.
    pub fn iter(&self) -> impl Iterator<Item = E> + use<'t, E, R> {
        let view = *self;
        let mut next = (!view.is_empty()).then_some([0; R]);
        std::iter::from_fn(move || {
            let at = next?;
            next = following(at, &view.shape);
            Some(view[at])
        })
    }

    /// A copy of the elements in row-major order.
    pub fn to_vec(&self) -> Vec<E> {
        self.as_slice().map_or_else(|| self.iter().collect(), <[E]>::to_vec)
    }

    /// A copy in an arena.
    #[track_caller]
    pub fn to_tensor<'a>(&self, arena: &'a Arena) -> Tensor<'a, E, R> {
        let view = *self;
        Tensor::from_fn(arena, self.shape, move |at| view[at])
    }

    /// A range along one axis.
    ///
    /// # Panics
    /// If the range is not inside.
    #[track_caller]
    pub fn slice(&self, axis: usize, range: Range<usize>) -> TensorView<'t, E, R> {
        let (shape, skip, length) = narrowed(&self.shape, &self.strides, axis, range);
        TensorView { shape, strides: self.strides, data: &self.data[skip..skip + length] }
    }

    /// The elements at one index of an axis, without that axis: `S` is one less
    /// than the rank.
    ///
    /// # Panics
    /// If the index is not inside.
    #[track_caller]
    pub fn select<const S: usize>(&self, axis: usize, index: usize) -> TensorView<'t, E, S> {
        const { assert!(S + 1 == R, "the view has one axis less") };
        let at = self.slice(axis, index..index.saturating_add(1));
        let keep = |from: &[usize; R]| std::array::from_fn(|a| from[a + usize::from(a >= axis)]);
        TensorView { shape: keep(&at.shape), strides: keep(&at.strides), data: at.data }
    }

    /// The axes in another order: axis k of the result is axis `axes[k]`.
    ///
    /// # Panics
    /// If `axes` is no order of all axes.
    #[track_caller]
    pub fn permute(&self, axes: [usize; R]) -> TensorView<'t, E, R> {
        assert!((0..R).all(|a| axes.contains(&a)), "expected an order of {R} axes, found {axes:?}");
        TensorView {
            shape: axes.map(|a| self.shape[a]),
            strides: axes.map(|a| self.strides[a]),
            data: self.data,
        }
    }

    /// The same elements under another shape; an error where they do not lie
    /// behind each other or are not as many.
    pub fn reshape<const S: usize>(&self, shape: [usize; S]) -> Result<TensorView<'t, E, S>> {
        let wrong = |expected: String, found: String| Error::shape("reshape", expected, found);
        if Shape::new(&shape).checked_elements() != Some(self.len()) {
            return Err(wrong(format!("a shape of {} elements", self.len()), format!("{shape:?}")));
        }
        let Some(data) = self.as_slice() else {
            let found = format!("shape {:?} with strides {:?}", self.shape, self.strides);
            return Err(wrong("contiguous elements; copy with `to_tensor`".into(), found));
        };
        Ok(TensorView { shape, strides: strides(&shape), data })
    }
}

impl<'t, E: Element> TensorView<'t, E, 2> {
    /// Row `i`.
    ///
    /// # Panics
    /// If there is no such row.
    #[track_caller]
    pub fn row(&self, i: usize) -> TensorView<'t, E, 1> {
        self.select(0, i)
    }

    /// Column `j`.
    ///
    /// # Panics
    /// If there is no such column.
    #[track_caller]
    pub fn column(&self, j: usize) -> TensorView<'t, E, 1> {
        self.select(1, j)
    }

    /// Rows as columns.
    pub fn transpose(&self) -> TensorView<'t, E, 2> {
        self.permute([1, 0])
    }
}

impl<'t, E: Element, const R: usize> TensorViewMut<'t, E, R> {
    pub(super) fn new(shape: [usize; R], strides: [usize; R], data: &'t mut [E]) -> Self {
        Self { shape, strides, data }
    }

    /// The lengths of the axes.
    #[inline]
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }

    /// The element at a coordinate, if it is inside.
    #[inline]
    pub fn get(&self, at: [usize; R]) -> Option<&E> {
        offset(&self.shape, &self.strides, at).map(|i| &self.data[i])
    }

    /// The element at a coordinate, if it is inside, to be changed.
    #[inline]
    pub fn get_mut(&mut self, at: [usize; R]) -> Option<&mut E> {
        offset(&self.shape, &self.strides, at).map(|i| &mut self.data[i])
    }

    /// A range along one axis.
    ///
    /// # Panics
    /// If the range is not inside.
    #[track_caller]
    pub fn into_slice(self, axis: usize, range: Range<usize>) -> Self {
        let (shape, skip, length) = narrowed(&self.shape, &self.strides, axis, range);
        Self { shape, strides: self.strides, data: &mut self.data[skip..skip + length] }
    }

    /// Overwrites the elements with those of a tensor of the same shape.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn assign(&mut self, from: &impl AsView<E, R>) {
        let from = from.as_view();
        assert_eq!(self.shape, from.shape, "assign: expected shape {:?}", self.shape);
        let mut next = (!from.is_empty()).then_some([0; R]);
        while let Some(at) = next {
            self[at] = from[at];
            next = following(at, &self.shape);
        }
    }
}

impl<'t, E: Element> TensorViewMut<'t, E, 2> {
    #[track_caller]
    pub(super) fn into_row(self, i: usize) -> TensorViewMut<'t, E, 1> {
        let Self { shape, strides, data } = self.into_slice(0, i..i.saturating_add(1));
        TensorViewMut { shape: [shape[1]], strides: [strides[1]], data }
    }

    #[track_caller]
    pub(super) fn into_column(self, j: usize) -> TensorViewMut<'t, E, 1> {
        let Self { shape, strides, data } = self.into_slice(1, j..j.saturating_add(1));
        TensorViewMut { shape: [shape[0]], strides: [strides[0]], data }
    }
}

impl<E: Element, const R: usize> AsView<E, R> for TensorView<'_, E, R> {
    fn as_view(&self) -> TensorView<'_, E, R> {
        *self
    }
}

impl<E: Element, const R: usize> AsView<E, R> for TensorViewMut<'_, E, R> {
    fn as_view(&self) -> TensorView<'_, E, R> {
        TensorView { shape: self.shape, strides: self.strides, data: self.data }
    }
}

impl<E: Element, const R: usize> Index<[usize; R]> for TensorView<'_, E, R> {
    type Output = E;
    #[inline]
    #[track_caller]
    fn index(&self, at: [usize; R]) -> &E {
        match self.get(at) {
            Some(element) => element,
            None => outside(&at, &self.shape),
        }
    }
}

impl<E: Element, const R: usize> Index<[usize; R]> for TensorViewMut<'_, E, R> {
    type Output = E;
    #[inline]
    #[track_caller]
    fn index(&self, at: [usize; R]) -> &E {
        match self.get(at) {
            Some(element) => element,
            None => outside(&at, &self.shape),
        }
    }
}

impl<E: Element, const R: usize> IndexMut<[usize; R]> for TensorViewMut<'_, E, R> {
    #[inline]
    #[track_caller]
    fn index_mut(&mut self, at: [usize; R]) -> &mut E {
        let shape = self.shape;
        match self.get_mut(at) {
            Some(element) => element,
            None => outside(&at, &shape),
        }
    }
}

/// Where an element lies, if its coordinate is inside.
#[inline(always)]
pub(super) fn offset<const R: usize>(
    shape: &[usize; R],
    strides: &[usize; R],
    at: [usize; R],
) -> Option<usize> {
    let (mut offset, mut inside) = (0usize, true);
    for a in 0..R {
        inside &= at[a] < shape[a];
        offset = offset.wrapping_add(at[a].wrapping_mul(strides[a]));
    }
    inside.then_some(offset)
}

#[cold]
#[inline(never)]
#[track_caller]
pub(super) fn outside(at: &[usize], shape: &[usize]) -> ! {
    panic!("index: expected a coordinate of a tensor of shape {shape:?}, found {at:?}")
}

/// The next coordinate in row-major order.
pub(super) fn following<const R: usize>(
    mut at: [usize; R],
    shape: &[usize; R],
) -> Option<[usize; R]> {
    for a in (0..R).rev() {
        at[a] += 1;
        if at[a] < shape[a] {
            return Some(at);
        }
        at[a] = 0;
    }
    None
}

/// The shape of a range along an axis, where it starts and how far it reaches.
#[track_caller]
fn narrowed<const R: usize>(
    shape: &[usize; R],
    strides: &[usize; R],
    axis: usize,
    range: Range<usize>,
) -> ([usize; R], usize, usize) {
    assert!(
        axis < R && range.start <= range.end && range.end <= shape[axis],
        "slice: expected a range along an axis of {shape:?}, found {range:?} along {axis}"
    );
    let mut narrow = *shape;
    narrow[axis] = range.len();
    if narrow.contains(&0) {
        return (narrow, 0, 0);
    }
    let last: usize = (0..R).map(|a| (narrow[a] - 1) * strides[a]).sum();
    (narrow, range.start * strides[axis], last + 1)
}
