//! The planes of a box of images as slices, for kernels that walk every one.
//!
//! Where rows lie behind each other, a plane is one slice. Coordinates count from
//! the box's first.
#![expect(unsafe_code, reason = "planes are found by pointers, checked once for the box")]

use crate::{Element, Region, View, ViewMut};
use std::marker::PhantomData;

/// How many terms of a plane a sum takes at once: few enough that a second look
/// at them finds them in the nearest cache.
pub(crate) const CHUNK: usize = 1024;

/// How the planes of a box \[N, C, H, W\] lie.
#[derive(Clone, Copy)]
struct Layout {
    lengths: [usize; 4],
    strides: [usize; 3],
}

impl Layout {
    #[track_caller]
    fn new(region: &Region, strides: &[usize]) -> Self {
        assert_eq!(region.rank(), 4, "images");
        let lengths = [0, 1, 2, 3].map(|a| region.len(a));
        assert!(strides[3] == 1 || lengths[3] <= 1, "a last axis that is contiguous");
        Self { lengths, strides: [strides[0], strides[1], strides[2]] }
    }

    fn is_joined(&self) -> bool {
        self.lengths[2] <= 1 || self.strides[2] == self.lengths[3]
    }

    #[must_use]
    fn joined(self) -> Self {
        let [n, c, h, w] = self.lengths;
        Self { lengths: [n, c, 1, h * w], ..self }
    }

    #[inline(always)]
    fn offset(&self, at: [usize; 3]) -> usize {
        assert!((0..3).all(|a| at[a] < self.lengths[a]), "a row inside of the box");
        at[0] * self.strides[0] + at[1] * self.strides[1] + at[2] * self.strides[2]
    }
}

/// Rows that are read.
#[derive(Clone, Copy)]
pub(crate) struct Planes<'a, T> {
    first: *const T,
    layout: Layout,
    borrowed: PhantomData<&'a T>,
}

impl<'a, T: Element> Planes<'a, T> {
    /// # Panics
    /// If the region is not within the view's, has not four axes, or its last
    /// one is not contiguous.
    #[track_caller]
    pub(crate) fn new(view: &View<'a, T>, region: &Region) -> Self {
        let (first, strides) = view.raw(region);
        Self { first, layout: Layout::new(region, &strides), borrowed: PhantomData }
    }

    /// Whether the rows of a plane lie behind each other.
    pub(crate) fn is_joined(&self) -> bool {
        self.layout.is_joined()
    }

    /// The same with each plane as one row, where they lie behind each other.
    pub(crate) fn joined(self) -> Self {
        assert!(self.is_joined(), "rows behind each other");
        Self { layout: self.layout.joined(), ..self }
    }

    /// The elements of a plane.
    pub(crate) fn elements(&self) -> usize {
        self.layout.lengths[2] * self.layout.lengths[3]
    }

    /// Row `h` of channel `c` of sample `n`.
    #[inline(always)]
    pub(crate) fn row(&self, at: [usize; 3]) -> &'a [T] {
        let offset = self.layout.offset(at);
        // SAFETY: the row lies in the region that `View::raw` has checked.
        unsafe { std::slice::from_raw_parts(self.first.add(offset), self.layout.lengths[3]) }
    }

    /// Up to [`CHUNK`] elements of a plane in row order, from `from` on; copied
    /// to `buffer` where they do not lie behind each other.
    #[inline(always)]
    pub(crate) fn chunk<'b>(
        &self,
        [n, c]: [usize; 2],
        from: usize,
        buffer: &'b mut [T; CHUNK],
    ) -> &'b [T]
    where
        'a: 'b,
    {
        let length = CHUNK.min(self.elements() - from);
        if self.is_joined() {
            return &self.joined().row([n, c, 0])[from..from + length];
        }
        let width = self.layout.lengths[3];
        for (i, to) in (from..).zip(&mut buffer[..length]) {
            *to = self.row([n, c, i / width])[i % width];
        }
        &buffer[..length]
    }
}

/// Rows that are written.
pub(crate) struct PlanesMut<'a, T> {
    first: *mut T,
    layout: Layout,
    borrowed: PhantomData<&'a mut T>,
}

impl<'a, T: Element> PlanesMut<'a, T> {
    /// As [`Planes::new`].
    #[track_caller]
    pub(crate) fn new(view: &'a mut ViewMut<'_, T>, region: &Region) -> Self {
        let (first, strides) = view.raw_mut(region);
        Self { first, layout: Layout::new(region, &strides), borrowed: PhantomData }
    }

    /// As [`Planes::is_joined`].
    pub(crate) fn is_joined(&self) -> bool {
        self.layout.is_joined()
    }

    /// As [`Planes::joined`].
    pub(crate) fn joined(self) -> Self {
        assert!(self.is_joined(), "rows behind each other");
        Self { layout: self.layout.joined(), ..self }
    }

    /// Samples, channels and rows.
    pub(crate) fn lengths(&self) -> [usize; 3] {
        [0, 1, 2].map(|a| self.layout.lengths[a])
    }

    /// Row `h` of channel `c` of sample `n`.
    #[inline(always)]
    pub(crate) fn row(&mut self, at: [usize; 3]) -> &mut [T] {
        let offset = self.layout.offset(at);
        // SAFETY: the row lies in the region that `ViewMut::raw_mut` has checked;
        // `&mut self` keeps it the only one.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(offset), self.layout.lengths[3]) }
    }
}
