//! Tensors that own their elements.
//!
//! # Invariant
//! A tensor has as many elements as the product of its shape, so a coordinate
//! that is inside along every axis needs no second check.
#![expect(unsafe_code, reason = "an element access checks its coordinates only")]

use super::Arena;
use super::view::{AsView, TensorView, TensorViewMut, offset};
use crate::error::{Error, Result};
use dahl_kernels::{Element, Shape};
use std::ops::{Index, IndexMut, Range};

/// A tensor of elements `E` with `R` axes, in row-major order, in an arena.
///
/// Tensors of different ranks do not mix:
/// ```compile_fail,E0277
/// use dahl::{ops::elementwise::add, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let (x, y) = (Matrix::full(&arena, [1, 3], 1.0f32), Vector::full(&arena, [3], 1.0f32));
/// add(&arena, &x, &y);
/// ```
///
/// Nor do those of different elements:
/// ```compile_fail,E0277
/// use dahl::{ops::elementwise::add, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let (x, y) = (Vector::full(&arena, [3], 1.0f32), Vector::full(&arena, [3], 1.0f64));
/// add(&arena, &x, &y);
/// ```
pub struct Tensor<'a, E, const R: usize> {
    shape: [usize; R],
    /// As many as the shape has elements.
    data: &'a mut [E],
}

/// One element, no axis.
pub type Scalar<'a, E> = Tensor<'a, E, 0>;
/// One axis.
pub type Vector<'a, E> = Tensor<'a, E, 1>;
/// Rows and columns.
pub type Matrix<'a, E> = Tensor<'a, E, 2>;
/// Three axes.
pub type Block<'a, E> = Tensor<'a, E, 3>;

impl<'a, E: Element, const R: usize> Tensor<'a, E, R> {
    const RANK: () = assert!(R <= 5, "tensors have at most five axes");

    /// Zeros.
    ///
    /// # Panics
    /// Where the arena's limit is passed; [`try_zeros`](Self::try_zeros) says
    /// it in an error.
    #[track_caller]
    pub fn zeros(arena: &'a Arena, shape: [usize; R]) -> Self {
        Self::try_zeros(arena, shape).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Zeros, or an error where the arena's limit is passed.
    pub fn try_zeros(arena: &'a Arena, shape: [usize; R]) -> Result<Self> {
        let () = Self::RANK;
        let elements = Shape::new(&shape).checked_elements().ok_or_else(|| {
            let expected = "a shape whose product does not overflow";
            Error::shape("tensor", expected, format!("{shape:?}"))
        })?;
        Ok(Self { shape, data: arena.try_zeros(elements)? })
    }

    /// The same value everywhere.
    #[track_caller]
    pub fn full(arena: &'a Arena, shape: [usize; R], value: E) -> Self {
        let tensor = Self::zeros(arena, shape);
        tensor.data.fill(value);
        tensor
    }

    /// A copy of a slice in row-major order; its length must be the shape's
    /// product.
    pub fn from_slice(arena: &'a Arena, shape: [usize; R], data: &[E]) -> Result<Self> {
        let tensor = Self::try_zeros(arena, shape)?;
        if data.len() != tensor.len() {
            return Err(elements(tensor.len(), data.len().to_string()));
        }
        tensor.data.copy_from_slice(data);
        Ok(tensor)
    }

    /// The value of a function at every coordinate.
    ///
    /// ```
    /// use dahl::tensor::{Arena, Matrix};
    /// let arena = Arena::new();
    /// let identity = Matrix::from_fn(&arena, [3, 3], |[i, j]| if i == j { 1.0f32 } else { 0.0 });
    /// assert_eq!(identity[[2, 2]], 1.0);
    /// ```
    #[track_caller]
    pub fn from_fn(
        arena: &'a Arena,
        shape: [usize; R],
        mut f: impl FnMut([usize; R]) -> E,
    ) -> Self {
        let tensor = Self::zeros(arena, shape);
        let mut at = [0; R];
        for element in tensor.data.iter_mut() {
            *element = f(at);
            for a in (0..R).rev() {
                at[a] += 1;
                if at[a] < shape[a] {
                    break;
                }
                at[a] = 0;
            }
        }
        tensor
    }

    /// Overwrites all elements, in row-major order, from an iterator that has
    /// just as many. On an error the elements that came are written.
    pub fn fill(&mut self, items: impl IntoIterator<Item = E>) -> Result<()> {
        let expected = self.len();
        let mut items = items.into_iter();
        for (found, element) in self.data.iter_mut().enumerate() {
            *element = items.next().ok_or_else(|| elements(expected, found.to_string()))?;
        }
        match items.next() {
            None => Ok(()),
            Some(_) => Err(elements(expected, format!("more than {expected}"))),
        }
    }

    /// The lengths of the axes.
    #[inline]
    pub fn shape(&self) -> [usize; R] {
        self.shape
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The element at a coordinate, if it is inside.
    #[inline]
    pub fn get(&self, at: [usize; R]) -> Option<&E> {
        // A vector is its slice.
        if let [i] = at[..] {
            return self.data.get(i);
        }
        let i = offset(&self.shape, &strides(&self.shape), at)?;
        if cfg!(any(feature = "checked", debug_assertions)) {
            return Some(&self.data[i]);
        }
        // SAFETY: the coordinate is inside along every axis, so its row-major
        // offset is below the product of the shape, the number of elements.
        Some(unsafe { self.data.get_unchecked(i) })
    }

    /// The element at a coordinate, if it is inside, to be changed.
    #[inline]
    pub fn get_mut(&mut self, at: [usize; R]) -> Option<&mut E> {
        if let [i] = at[..] {
            return self.data.get_mut(i);
        }
        let i = offset(&self.shape, &strides(&self.shape), at)?;
        if cfg!(any(feature = "checked", debug_assertions)) {
            return Some(&mut self.data[i]);
        }
        // SAFETY: as in `get`.
        Some(unsafe { self.data.get_unchecked_mut(i) })
    }

    /// The elements in row-major order.
    #[inline]
    pub fn as_slice(&self) -> &[E] {
        self.data
    }

    /// The elements in row-major order, to be changed.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [E] {
        self.data
    }

    /// The elements' memory, without a copy.
    pub fn into_slice(self) -> &'a mut [E] {
        self.data
    }

    /// A copy of the elements in row-major order.
    pub fn to_vec(&self) -> Vec<E> {
        self.data.to_vec()
    }

    /// A copy in an arena.
    #[track_caller]
    pub fn to_tensor<'b>(&self, arena: &'b Arena) -> Tensor<'b, E, R> {
        self.as_view().to_tensor(arena)
    }

    /// The same elements under another shape, without a copy.
    ///
    /// # Panics
    /// If the shapes differ in their number of elements.
    #[track_caller]
    pub fn into_reshaped<const S: usize>(self, shape: [usize; S]) -> Tensor<'a, E, S> {
        let () = Tensor::<E, S>::RANK;
        assert_eq!(
            Shape::new(&shape).checked_elements(),
            Some(self.data.len()),
            "reshape: expected a shape of {} elements, found {shape:?}",
            self.data.len()
        );
        Tensor { shape, data: self.data }
    }

    /// The whole tensor, for reading.
    pub fn as_view(&self) -> TensorView<'_, E, R> {
        TensorView::new(self.shape, strides(&self.shape), self.data)
    }

    /// The whole tensor, for reading and writing.
    pub fn as_view_mut(&mut self) -> TensorViewMut<'_, E, R> {
        TensorViewMut::new(self.shape, strides(&self.shape), self.data)
    }

    /// A range along one axis.
    ///
    /// # Panics
    /// If the range is not inside.
    #[track_caller]
    pub fn slice(&self, axis: usize, range: Range<usize>) -> TensorView<'_, E, R> {
        self.as_view().slice(axis, range)
    }

    /// A range along one axis, to be written.
    ///
    /// # Panics
    /// If the range is not inside.
    #[track_caller]
    pub fn slice_mut(&mut self, axis: usize, range: Range<usize>) -> TensorViewMut<'_, E, R> {
        self.as_view_mut().into_slice(axis, range)
    }

    /// The same elements under another shape.
    ///
    /// # Panics
    /// If the shapes differ in their number of elements.
    #[track_caller]
    pub fn reshape<const S: usize>(&self, shape: [usize; S]) -> TensorView<'_, E, S> {
        self.as_view().reshape(shape).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The axes in another order: axis k of the view is axis `axes[k]`.
    ///
    /// # Panics
    /// If `axes` is no order of all axes.
    #[track_caller]
    pub fn permute(&self, axes: [usize; R]) -> TensorView<'_, E, R> {
        self.as_view().permute(axes)
    }
}

impl<E: Element> Tensor<'_, E, 0> {
    /// The one element.
    pub fn item(&self) -> E {
        self.data[0]
    }
}

impl<E: Element> Tensor<'_, E, 2> {
    /// Row `i`.
    ///
    /// # Panics
    /// If there is no such row.
    #[track_caller]
    pub fn row(&self, i: usize) -> TensorView<'_, E, 1> {
        self.as_view().row(i)
    }

    /// Column `j`.
    ///
    /// # Panics
    /// If there is no such column.
    #[track_caller]
    pub fn column(&self, j: usize) -> TensorView<'_, E, 1> {
        self.as_view().column(j)
    }

    /// Row `i`, to be written.
    ///
    /// # Panics
    /// If there is no such row.
    #[track_caller]
    pub fn row_mut(&mut self, i: usize) -> TensorViewMut<'_, E, 1> {
        self.as_view_mut().into_row(i)
    }

    /// Column `j`, to be written.
    ///
    /// # Panics
    /// If there is no such column.
    #[track_caller]
    pub fn column_mut(&mut self, j: usize) -> TensorViewMut<'_, E, 1> {
        self.as_view_mut().into_column(j)
    }

    /// Rows as columns.
    pub fn transpose(&self) -> TensorView<'_, E, 2> {
        self.as_view().transpose()
    }
}

impl<E: Element, const R: usize> AsView<E, R> for Tensor<'_, E, R> {
    fn as_view(&self) -> TensorView<'_, E, R> {
        Tensor::as_view(self)
    }
}

impl<E: Element, const R: usize> Index<[usize; R]> for Tensor<'_, E, R> {
    type Output = E;
    #[inline]
    #[track_caller]
    fn index(&self, at: [usize; R]) -> &E {
        match self.get(at) {
            Some(element) => element,
            None => super::view::outside(&at, &self.shape),
        }
    }
}

impl<E: Element, const R: usize> IndexMut<[usize; R]> for Tensor<'_, E, R> {
    #[inline]
    #[track_caller]
    fn index_mut(&mut self, at: [usize; R]) -> &mut E {
        let shape = self.shape;
        match self.get_mut(at) {
            Some(element) => element,
            None => super::view::outside(&at, &shape),
        }
    }
}

impl<E: Element, const R: usize> PartialEq for Tensor<'_, E, R> {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape && self.data == other.data
    }
}

/// Row-major strides in elements.
#[inline]
pub(super) fn strides<const R: usize>(shape: &[usize; R]) -> [usize; R] {
    let mut strides = [1usize; R];
    for a in (1..R).rev() {
        strides[a - 1] = strides[a].wrapping_mul(shape[a]);
    }
    strides
}

fn elements(expected: usize, found: String) -> Error {
    Error::shape("elements", expected, found)
}
