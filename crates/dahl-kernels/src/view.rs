//! Views of operands in logical coordinates.
//!
//! An [`Operand`] describes where a region of a value is stored. A [`View`]
//! reads it, a [`ViewMut`] reads and writes it. Two tasks may hold views of
//! interleaved boxes of one buffer (the channels of a batch, say), so a view is
//! a pointer and strides, never a slice over the whole.
//!
//! # Invariants
//! - An `Operand`'s pointer and strides are valid for every coordinate of its
//!   region: whoever makes one by [`Operand::from_raw`] promises it.
//! - Every access through a view is checked to lie in the region, by element
//!   or by contiguous run.
//! - Exclusive access is promised by whoever makes the [`Call`](crate::Call):
//!   the boxes of tasks that run at the same time do not overlap where one of
//!   them writes.
#![expect(unsafe_code, reason = "the module that turns descriptors into disjoint views")]

use crate::element::{DType, Element};
use crate::region::{Region, for_each_outer};
use crate::shape::{MAX_AXES, Shape};
use std::marker::PhantomData;

/// Where a region of a value is stored.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// The element at the region's first coordinate.
    ptr: *mut u8,
    dtype: DType,
    shape: Shape,
    region: Region,
    strides: [usize; MAX_AXES],
}

// SAFETY: an operand is an address with bounds; what makes access to it sound
// is promised where a `Call` is made.
unsafe impl Send for Operand {}
// SAFETY: as above.
unsafe impl Sync for Operand {}

impl Operand {
    /// Describes `region` of a value of `shape`: `ptr` is the address of the
    /// region's first element, `strides` are in elements.
    ///
    /// # Safety
    /// For every coordinate of the region, the address that follows from `ptr`
    /// and `strides` is valid and aligned for `dtype` while views of it live.
    pub unsafe fn from_raw(
        ptr: *mut u8,
        dtype: DType,
        shape: Shape,
        region: Region,
        strides: [usize; MAX_AXES],
    ) -> Self {
        Self { ptr, dtype, shape, region, strides }
    }

    /// The whole of a slice, read only.
    ///
    /// The operand must not outlive the slice nor be used as an output; the
    /// callers in this workspace are the eager functions and tests.
    ///
    /// # Safety
    /// As said.
    #[track_caller]
    pub unsafe fn of_slice<T: Element>(data: &[T], shape: Shape) -> Self {
        assert_eq!(data.len(), shape.elements(), "slice for shape {shape}");
        Self {
            ptr: data.as_ptr().cast_mut().cast(),
            dtype: T::DTYPE,
            shape,
            region: Region::full(&shape),
            strides: shape.strides(),
        }
    }

    /// The whole of a slice, to be written.
    ///
    /// # Safety
    /// The operand must not outlive the slice's borrow.
    #[track_caller]
    pub unsafe fn of_slice_mut<T: Element>(data: &mut [T], shape: Shape) -> Self {
        let ptr = data.as_mut_ptr();
        // SAFETY: the same slice, whose borrow the caller keeps alive.
        let mut operand = unsafe { Self::of_slice(data, shape) };
        operand.ptr = ptr.cast();
        operand
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of the whole value.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The part that may be accessed.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The strides in elements.
    pub fn strides(&self) -> &[usize; MAX_AXES] {
        &self.strides
    }

    /// The address range of the region, as bytes from and to.
    pub fn extent(&self) -> (usize, usize) {
        let from = self.ptr as usize;
        if self.region.is_empty() {
            return (from, from);
        }
        let last: usize =
            (0..self.region.rank()).map(|a| (self.region.len(a) - 1) * self.strides[a]).sum();
        (from, from + (last + 1) * self.dtype.size())
    }

    /// Whether this operand's addresses lie within those of `wide`.
    pub fn is_within(&self, wide: &Operand) -> bool {
        let ((a, b), (c, d)) = (self.extent(), wide.extent());
        self.dtype == wide.dtype && (a == b || (c <= a && b <= d))
    }

    /// The operand restricted to a smaller region.
    #[must_use]
    #[track_caller]
    pub fn narrow(&self, region: Region) -> Self {
        assert!(self.region.contains(&region), "{region} is not within {}", self.region);
        let mut narrow = Self { region, ..*self };
        if !region.is_empty() {
            let (from, to) = (self.region.starts(), region.starts());
            let skip: usize = (0..region.rank()).map(|a| (to[a] - from[a]) * self.strides[a]).sum();
            narrow.ptr = self.ptr.wrapping_add(skip * self.dtype.size());
        }
        narrow
    }

    /// The operand in a range of an axis, counted from the range's start.
    #[must_use]
    #[track_caller]
    pub fn slice(&self, axis: usize, range: std::ops::Range<usize>) -> Self {
        let length = range.len();
        let at = self.narrow(self.region.with(axis, range));
        Self { shape: self.shape.with(axis, length), region: at.region.with(axis, 0..length), ..at }
    }

    /// The operand at one index of an axis, without that axis.
    #[must_use]
    #[track_caller]
    pub fn select(&self, axis: usize, index: usize) -> Self {
        let at = self.narrow(self.region.with(axis, index..index + 1));
        let mut strides = [0; MAX_AXES];
        let kept = (0..self.shape.rank()).filter(|a| *a != axis);
        for (to, from) in kept.enumerate() {
            strides[to] = self.strides[from];
        }
        Self {
            ptr: at.ptr,
            dtype: self.dtype,
            shape: self.shape.without(axis),
            region: at.region.without(axis),
            strides,
        }
    }

    /// How many elements, from the innermost axis on, lie behind each other:
    /// the number of axes that can be walked as one, and their product.
    fn run(&self) -> (usize, usize) {
        let (mut axes, mut length) = (0, 1);
        for a in (0..self.region.rank()).rev() {
            if self.region.len(a) != 1 && self.strides[a] != length {
                break;
            }
            length *= self.region.len(a);
            axes += 1;
        }
        (axes, length)
    }

    #[inline]
    fn offset<const R: usize>(&self, at: [usize; R]) -> usize {
        let (from, to) = (self.region.starts(), self.region.ends());
        let mut inside = R == self.region.rank();
        let mut offset = 0;
        for a in 0..R {
            inside &= at[a] >= from[a] && at[a] < to[a];
            offset += at[a].wrapping_sub(from[a]).wrapping_mul(self.strides[a]);
        }
        if !inside {
            self.outside(&at);
        }
        offset
    }

    #[inline]
    fn offset_at(&self, at: &[usize]) -> usize {
        let (from, to) = (self.region.starts(), self.region.ends());
        if at.len() != self.region.rank()
            || !at.iter().enumerate().all(|(a, &i)| i >= from[a] && i < to[a])
        {
            self.outside(at);
        }
        at.iter().enumerate().map(|(a, &i)| (i - from[a]) * self.strides[a]).sum()
    }

    #[cold]
    #[inline(never)]
    fn outside(&self, at: &[usize]) -> ! {
        panic!("{at:?} is outside of the region {} of a value of shape {}", self.region, self.shape)
    }

    #[track_caller]
    fn expect_dtype(&self, dtype: DType) {
        assert_eq!(self.dtype, dtype, "a view of another element type");
    }
}

/// Read access to an operand.
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    operand: &'a Operand,
    element: PhantomData<&'a T>,
}

/// Exclusive access to an operand.
pub struct ViewMut<'a, T> {
    operand: &'a Operand,
    element: PhantomData<&'a mut T>,
}

impl<'a, T: Element> View<'a, T> {
    #[track_caller]
    pub(crate) fn new(operand: &'a Operand) -> Self {
        operand.expect_dtype(T::DTYPE);
        Self { operand, element: PhantomData }
    }

    /// The shape of the whole value.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.operand.shape
    }

    /// The part that may be accessed.
    #[inline]
    pub fn region(&self) -> &'a Region {
        &self.operand.region
    }

    /// The element at a logical coordinate.
    #[inline]
    pub fn at<const R: usize>(&self, at: [usize; R]) -> T {
        let offset = self.operand.offset(at);
        // SAFETY: `offset` has checked that the coordinate is in the region.
        unsafe { *self.operand.ptr.cast::<T>().add(offset) }
    }

    /// The elements from a coordinate to the region's end along the last axis.
    ///
    /// # Panics
    /// If the last axis is not contiguous.
    #[inline]
    pub fn row<const R: usize>(&self, at: [usize; R]) -> &'a [T] {
        let (offset, length) = row(self.operand, at);
        // SAFETY: the row lies in the region, see `row`.
        unsafe { std::slice::from_raw_parts(self.operand.ptr.cast::<T>().add(offset), length) }
    }

    /// The address of the first element of `region`, and the strides, for
    /// kernels that walk the box by pointers.
    ///
    /// # Panics
    /// If the region is not within the operand's.
    #[track_caller]
    pub(crate) fn raw(&self, region: &Region) -> (*const T, [usize; MAX_AXES]) {
        let narrow = self.operand.narrow(*region);
        (narrow.ptr.cast_const().cast(), narrow.strides)
    }

    /// The element at a logical coordinate, for kernels of any rank.
    #[inline]
    pub fn at_axes(&self, at: &[usize]) -> T {
        let offset = self.operand.offset_at(at);
        // SAFETY: `offset_at` has checked that the coordinate is in the region.
        unsafe { *self.operand.ptr.cast::<T>().add(offset) }
    }

    /// The elements from a coordinate to the region's end along any axis; none
    /// where the region is empty along it.
    pub fn line(&self, at: &[usize], axis: usize) -> Line<'a, T> {
        let region = &self.operand.region;
        let stride = self.operand.strides[axis];
        if region.len(axis) == 0 {
            return Line {
                first: self.operand.ptr.cast(),
                stride,
                length: 0,
                element: PhantomData,
            };
        }
        let offset = self.operand.offset_at(at);
        Line {
            // SAFETY: `offset_at` has checked that the coordinate is in the
            // region; so is the rest of the line, up to the axis' end.
            first: unsafe { self.operand.ptr.cast::<T>().add(offset) },
            stride,
            length: region.ends()[axis] - at[axis],
            element: PhantomData,
        }
    }

    /// The whole of `region` as a slice in row-major order, where it lies in
    /// one piece.
    pub fn run(&self, region: &Region) -> Option<&'a [T]> {
        let narrow = self.operand.narrow(*region);
        let (axes, length) = narrow.run();
        if narrow.region.is_empty() {
            return Some(&[]);
        }
        (axes == region.rank()).then(|| {
            // SAFETY: the run lies in `narrow`'s region, which is inside ours.
            unsafe { std::slice::from_raw_parts(narrow.ptr.cast::<T>(), length) }
        })
    }

    /// Calls `body` with every contiguous run of `region`, in row-major order,
    /// together with the coordinate it starts at.
    pub fn runs(&self, region: &Region, mut body: impl FnMut([usize; MAX_AXES], &'a [T])) {
        let narrow = self.operand.narrow(*region);
        let (axes, length) = narrow.run();
        for_each_outer(region, axes, |at| {
            let offset = offset_from(&narrow, &at);
            // SAFETY: the run lies in `narrow`'s region, which is inside ours.
            body(at, unsafe {
                std::slice::from_raw_parts(narrow.ptr.cast::<T>().add(offset), length)
            });
        });
    }
}

impl<'a, T: Element> ViewMut<'a, T> {
    #[track_caller]
    pub(crate) fn new(operand: &'a Operand) -> Self {
        operand.expect_dtype(T::DTYPE);
        Self { operand, element: PhantomData }
    }

    /// The shape of the whole value.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.operand.shape
    }

    /// The part that may be accessed.
    #[inline]
    pub fn region(&self) -> &'a Region {
        &self.operand.region
    }

    /// The element at a logical coordinate.
    #[inline]
    pub fn at<const R: usize>(&self, at: [usize; R]) -> T {
        let offset = self.operand.offset(at);
        // SAFETY: `offset` has checked that the coordinate is in the region.
        unsafe { *self.operand.ptr.cast::<T>().add(offset) }
    }

    /// Writes the element at a logical coordinate.
    #[inline]
    pub fn set<const R: usize>(&mut self, at: [usize; R], x: T) {
        let offset = self.operand.offset(at);
        // SAFETY: `offset` has checked that the coordinate is in the region.
        unsafe { *self.operand.ptr.cast::<T>().add(offset) = x };
    }

    /// Writes the element at a logical coordinate, for kernels of any rank.
    #[inline]
    pub fn set_axes(&mut self, at: &[usize], x: T) {
        let offset = self.operand.offset_at(at);
        // SAFETY: `offset_at` has checked that the coordinate is in the region.
        unsafe { *self.operand.ptr.cast::<T>().add(offset) = x };
    }

    /// The address of the first element of `region`, and the strides, for
    /// kernels that walk the box by pointers.
    ///
    /// # Panics
    /// If the region is not within the operand's.
    #[track_caller]
    pub(crate) fn raw_mut(&mut self, region: &Region) -> (*mut T, [usize; MAX_AXES]) {
        let narrow = self.operand.narrow(*region);
        (narrow.ptr.cast(), narrow.strides)
    }

    /// The elements from a coordinate to the region's end along the last axis.
    ///
    /// # Panics
    /// If the last axis is not contiguous.
    #[inline]
    pub fn row_mut<const R: usize>(&mut self, at: [usize; R]) -> &mut [T] {
        let (offset, length) = row(self.operand, at);
        // SAFETY: the row lies in the region, see `row`; `&mut self` keeps it
        // the only one.
        unsafe { std::slice::from_raw_parts_mut(self.operand.ptr.cast::<T>().add(offset), length) }
    }

    /// Calls `body` with every contiguous run of `region`, in row-major order.
    pub fn runs_mut(&mut self, region: &Region, mut body: impl FnMut([usize; MAX_AXES], &mut [T])) {
        let narrow = self.operand.narrow(*region);
        let (axes, length) = narrow.run();
        for_each_outer(region, axes, |at| {
            let offset = offset_from(&narrow, &at);
            // SAFETY: the run lies in `narrow`'s region, which is inside ours;
            // runs do not overlap and `body` cannot keep one.
            body(at, unsafe {
                std::slice::from_raw_parts_mut(narrow.ptr.cast::<T>().add(offset), length)
            });
        });
    }

    /// Writes `f(x…)` to every element of `region`, run by run, reading the
    /// same elements of `inputs`.
    ///
    /// # Panics
    /// If an input has another rank or does not contain `region`.
    pub fn zip<U: Element, const N: usize>(
        &mut self,
        region: &Region,
        inputs: [&View<'_, U>; N],
        mut body: impl FnMut([&[U]; N], &mut [T]),
    ) {
        self.zip_at_most(MAX_AXES, region, inputs, |_, slices, out| body(slices, out));
    }

    /// As [`zip`](Self::zip), with the coordinate that each run starts at. A
    /// run may span several axes that lie behind each other in the *whole*
    /// value only where the region covers the inner ones.
    pub fn zip_at<U: Element, const N: usize>(
        &mut self,
        region: &Region,
        inputs: [&View<'_, U>; N],
        body: impl FnMut([usize; MAX_AXES], [&[U]; N], &mut [T]),
    ) {
        let mut most = 0;
        for axis in (0..region.rank()).rev() {
            most += 1;
            if region.len(axis) != self.operand.shape[axis] {
                break;
            }
        }
        self.zip_at_most(most, region, inputs, body);
    }
}

impl<'a, T: Element> ViewMut<'a, T> {
    /// The same operand, to be read while this view is borrowed.
    pub fn as_view(&self) -> View<'_, T> {
        View { operand: self.operand, element: PhantomData }
    }

    /// As [`zip`](Self::zip) with more outputs.
    pub fn zip_mut<U: Element, const N: usize, const M: usize>(
        &mut self,
        others: [&mut ViewMut<'_, T>; M],
        region: &Region,
        inputs: [&View<'_, U>; N],
        mut body: impl FnMut([&[U]; N], &mut [T], [&mut [T]; M]),
    ) {
        let others = others.map(|view| view.operand.narrow(*region));
        let axes = others.iter().map(|operand| operand.run().0).fold(MAX_AXES, usize::min);
        self.zip_at_most(axes, region, inputs, |at, slices, out| {
            let length = out.len();
            let more = others.each_ref().map(|operand| {
                let offset = offset_from(operand, &at);
                // SAFETY: a run of another output inside its region, borrowed
                // for as long; outputs do not overlap.
                unsafe {
                    std::slice::from_raw_parts_mut(operand.ptr.cast::<T>().add(offset), length)
                }
            });
            body(slices, out, more);
        });
    }

    fn zip_at_most<U: Element, const N: usize>(
        &mut self,
        most: usize,
        region: &Region,
        inputs: [&View<'_, U>; N],
        mut body: impl FnMut([usize; MAX_AXES], [&[U]; N], &mut [T]),
    ) {
        let out = self.operand.narrow(*region);
        let ins = inputs.map(|view| view.operand.narrow(*region));
        // The shortest common run: the fewest axes that can be walked as one.
        let axes =
            ins.iter().map(|operand| operand.run().0).fold(out.run().0.min(most), usize::min);
        let length = (region.rank() - axes..region.rank()).map(|a| region.len(a)).product();
        for_each_outer(region, axes, |at| {
            let slices = std::array::from_fn(|i| {
                let offset = offset_from(&ins[i], &at);
                // SAFETY: a run of an input inside its region; the call's maker
                // promises that no output overlaps an input.
                unsafe { std::slice::from_raw_parts(ins[i].ptr.cast::<U>().add(offset), length) }
            });
            let offset = offset_from(&out, &at);
            // SAFETY: as in `runs_mut`.
            body(at, slices, unsafe {
                std::slice::from_raw_parts_mut(out.ptr.cast::<T>().add(offset), length)
            });
        });
    }
}

/// Elements along one axis, whatever lies between them.
pub struct Line<'a, T> {
    first: *const T,
    stride: usize,
    length: usize,
    element: PhantomData<&'a T>,
}

impl<T: Copy> Line<'_, T> {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Element `i` of the line.
    #[inline(always)]
    pub fn get(&self, i: usize) -> T {
        assert!(i < self.length);
        // SAFETY: an element of the line, which lies in the operand's region.
        unsafe { *self.first.add(i * self.stride) }
    }
}

/// The same run of every block of a stacked operand.
pub struct BlockRuns<'a, T> {
    first: *const T,
    stride: usize,
    blocks: usize,
    length: usize,
    element: PhantomData<&'a T>,
}

impl<T> BlockRuns<'_, T> {
    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.blocks
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// The run of block `b`.
    #[inline]
    pub fn get(&self, b: usize) -> &[T] {
        assert!(b < self.blocks);
        // SAFETY: the run of every block lies in the stacked operand's region,
        // see `zip_blocks`.
        unsafe { std::slice::from_raw_parts(self.first.add(b * self.stride), self.length) }
    }
}

impl<T: Element> ViewMut<'_, T> {
    /// Calls `body` with every contiguous run of `region` and the same run of
    /// each block of `stacked`, whose first axis counts the blocks.
    ///
    /// # Panics
    /// If `stacked` does not contain the region in every block.
    pub fn zip_blocks<U: Element>(
        &mut self,
        region: &Region,
        stacked: &View<'_, U>,
        mut body: impl FnMut(&BlockRuns<'_, U>, &mut [T]),
    ) {
        let blocks = stacked.operand.region.range(0);
        assert!(!blocks.is_empty(), "at least one block");
        let out = self.operand.narrow(*region);
        let first = stacked.operand.select(0, blocks.start).narrow(*region);
        let (axes, length) = std::cmp::min(out.run(), first.run());
        for_each_outer(region, axes, |at| {
            let runs = BlockRuns {
                // SAFETY: an address in the first block's region.
                first: unsafe { first.ptr.cast::<U>().add(offset_from(&first, &at)) },
                stride: stacked.operand.strides[0],
                blocks: blocks.len(),
                length,
                element: PhantomData,
            };
            // SAFETY: as in `runs_mut`.
            body(&runs, unsafe {
                let offset = offset_from(&out, &at);
                std::slice::from_raw_parts_mut(out.ptr.cast::<T>().add(offset), length)
            });
        });
    }
}

#[inline]
fn row<const R: usize>(operand: &Operand, at: [usize; R]) -> (usize, usize) {
    let offset = operand.offset(at);
    assert!(R > 0 && (operand.strides[R - 1] == 1 || operand.region.len(R - 1) == 1));
    (offset, operand.region.ends()[R - 1] - at[R - 1])
}

#[inline]
fn offset_from(operand: &Operand, at: &[usize; MAX_AXES]) -> usize {
    let from = operand.region.starts();
    (0..operand.region.rank()).map(|a| (at[a] - from[a]) * operand.strides[a]).sum()
}
