//! Shapes of up to five axes, plus one for blocks of partial sums.

use std::fmt;

/// Five axes of the user and one that partial sums are stacked along.
pub const MAX_AXES: usize = 6;

/// The lengths of a tensor's axes, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    rank: u8,
    dims: [usize; MAX_AXES],
}

impl Shape {
    /// A shape from its axes.
    ///
    /// # Panics
    /// With more than [`MAX_AXES`] axes.
    #[track_caller]
    pub fn new(axes: &[usize]) -> Self {
        assert!(axes.len() <= MAX_AXES, "expected at most {MAX_AXES} axes, found {axes:?}");
        let mut dims = [1; MAX_AXES];
        dims[..axes.len()].copy_from_slice(axes);
        Self { rank: axes.len() as u8, dims }
    }

    /// The shape of a scalar.
    pub fn scalar() -> Self {
        Self::new(&[])
    }

    /// How many axes there are.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The axes' lengths.
    #[inline]
    pub fn axes(&self) -> &[usize] {
        &self.dims[..self.rank as usize]
    }

    /// How many elements there are, or `None` where the product overflows.
    pub fn checked_elements(&self) -> Option<usize> {
        self.axes().iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    }

    /// How many elements there are.
    ///
    /// # Panics
    /// Where the product overflows; shapes of a checked graph do not.
    #[track_caller]
    pub fn elements(&self) -> usize {
        self.checked_elements().expect("shape's product overflows")
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> [usize; MAX_AXES] {
        let mut strides = [0; MAX_AXES];
        let mut step = 1;
        for axis in (0..self.rank()).rev() {
            strides[axis] = step;
            step *= self.dims[axis];
        }
        strides
    }

    /// The same shape with one more axis in front.
    #[track_caller]
    pub fn stacked(&self, count: usize) -> Self {
        let mut axes = vec![count];
        axes.extend_from_slice(self.axes());
        Self::new(&axes)
    }

    /// The same shape with another length of `axis`.
    pub fn with(&self, axis: usize, length: usize) -> Self {
        let mut axes = self.axes().to_vec();
        axes[axis] = length;
        Self::new(&axes)
    }

    /// The same shape without `axis`.
    #[track_caller]
    pub fn without(&self, axis: usize) -> Self {
        let mut axes = self.axes().to_vec();
        axes.remove(axis);
        Self::new(&axes)
    }
}

impl std::ops::Index<usize> for Shape {
    type Output = usize;
    #[inline]
    fn index(&self, axis: usize) -> &usize {
        &self.axes()[axis]
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.axes())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.axes())
    }
}

impl From<&[usize]> for Shape {
    fn from(axes: &[usize]) -> Self {
        Self::new(axes)
    }
}

impl<const R: usize> From<[usize; R]> for Shape {
    fn from(axes: [usize; R]) -> Self {
        Self::new(&axes)
    }
}
