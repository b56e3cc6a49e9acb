//! The transforms of one axis, after Lavin and Gray (2016) and Winograd (1980).

use crate::Element;
use crate::simd::Vector;
use std::marker::PhantomData;

/// How many outputs a tile has: the more, the fewer products, the more rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Tiles of 2x2 outputs: 16 products instead of 36.
    F2,
    /// Tiles of 4x4 outputs: 36 products instead of 144.
    F4,
}

impl Form {
    /// Outputs of a tile along an axis.
    pub fn outputs(self) -> usize {
        match self {
            Form::F2 => F2::OUTPUTS,
            Form::F4 => F4::OUTPUTS,
        }
    }

    /// Products of a tile.
    pub fn products(self) -> usize {
        (self.outputs() + 2).pow(2)
    }
}

/// The most outputs along an axis, and the most points.
pub(super) const OUTPUTS: usize = 4;
pub(super) const POINTS: usize = OUTPUTS + 2;
/// Taps along an axis.
pub(super) const TAPS: usize = 3;

/// A form as a type. Only the first elements of arrays are used where it has
/// fewer outputs.
pub(super) trait Axis: Copy {
    const OUTPUTS: usize;
    const POINTS: usize = Self::OUTPUTS + 2;
    /// Bᵀ d: pixels to points.
    fn pixels<V: Vector>(d: [V; POINTS]) -> [V; POINTS];
    /// Aᵀ m: points to outputs.
    fn outputs<V: Vector>(m: [V; POINTS]) -> [V; OUTPUTS];
    /// A y: gradients of outputs to points.
    fn gradients<V: Vector>(y: [V; OUTPUTS]) -> [V; POINTS];
    /// G w: taps to points.
    fn taps<V: Vector>(w: [V; TAPS]) -> [V; POINTS];
    /// Gᵀ u: points to gradients of taps.
    fn tap_gradients<V: Vector>(u: [V; POINTS]) -> [V; TAPS];
}

#[derive(Clone, Copy)]
pub(super) struct F2;

#[derive(Clone, Copy)]
pub(super) struct F4;

#[inline(always)]
fn number<V: Vector>(x: f64) -> V {
    V::splat(V::Elem::from_f64(x))
}

impl Axis for F2 {
    const OUTPUTS: usize = 2;

    #[inline(always)]
    fn pixels<V: Vector>([a, b, c, d, ..]: [V; POINTS]) -> [V; POINTS] {
        [a.sub(c), b.add(c), c.sub(b), b.sub(d), V::zero(), V::zero()]
    }

    #[inline(always)]
    fn outputs<V: Vector>([a, b, c, d, ..]: [V; POINTS]) -> [V; OUTPUTS] {
        [a.add(b.add(c)), b.sub(c).sub(d), V::zero(), V::zero()]
    }

    #[inline(always)]
    fn gradients<V: Vector>([a, b, ..]: [V; OUTPUTS]) -> [V; POINTS] {
        [a, a.add(b), a.sub(b), V::zero().sub(b), V::zero(), V::zero()]
    }

    #[inline(always)]
    fn taps<V: Vector>([a, b, c]: [V; TAPS]) -> [V; POINTS] {
        let half = number::<V>(0.5);
        let (outer, inner) = (a.add(c).mul(half), b.mul(half));
        [a, outer.add(inner), outer.sub(inner), c, V::zero(), V::zero()]
    }

    #[inline(always)]
    fn tap_gradients<V: Vector>([a, b, c, d, ..]: [V; POINTS]) -> [V; TAPS] {
        let half = number::<V>(0.5);
        let (sum, difference) = (b.add(c).mul(half), b.sub(c).mul(half));
        [a.add(sum), difference, sum.add(d)]
    }
}

impl Axis for F4 {
    const OUTPUTS: usize = 4;

    #[inline(always)]
    fn pixels<V: Vector>([a, b, c, d, e, f]: [V; POINTS]) -> [V; POINTS] {
        let (four, less4) = (number::<V>(4.0), number::<V>(-4.0));
        let (less5, two) = (number::<V>(-5.0), number::<V>(2.0));
        let (s, t) = (c.mul_add(less4, e), b.mul_add(less4, d));
        let (u, v) = (e.sub(c), two.mul(d.sub(b)));
        let first = four.mul_add(a, less5.mul_add(c, e));
        let last = four.mul_add(b, less5.mul_add(d, f));
        [first, s.add(t), s.sub(t), u.add(v), u.sub(v), last]
    }

    #[inline(always)]
    fn outputs<V: Vector>([a, b, c, d, e, f]: [V; POINTS]) -> [V; OUTPUTS] {
        let (two, four, eight) = (number::<V>(2.0), number::<V>(4.0), number::<V>(8.0));
        let (s, t, u, v) = (b.add(c), b.sub(c), d.add(e), d.sub(e));
        let last = eight.mul_add(v, t).add(f);
        [a.add(s.add(u)), two.mul_add(v, t), four.mul_add(u, s), last]
    }

    #[inline(always)]
    fn gradients<V: Vector>([a, b, c, d]: [V; OUTPUTS]) -> [V; POINTS] {
        let (two, four, eight) = (number::<V>(2.0), number::<V>(4.0), number::<V>(8.0));
        let (even, odd) = (a.add(c), b.add(d));
        let (far, out) = (four.mul_add(c, a), eight.mul_add(d, two.mul(b)));
        [a, even.add(odd), even.sub(odd), far.add(out), far.sub(out), d]
    }

    #[inline(always)]
    fn taps<V: Vector>([a, b, c]: [V; TAPS]) -> [V; POINTS] {
        let (quarter, sixth) = (number::<V>(0.25), number::<V>(-1.0 / 6.0));
        let (twelfth, small) = (number::<V>(1.0 / 12.0), number::<V>(1.0 / 24.0));
        let (outer, inner) = (a.add(c).mul(sixth), b.mul(sixth));
        let far = a.mul_add(small, number::<V>(1.0 / 6.0).mul(c));
        let near = b.mul(twelfth);
        [a.mul(quarter), outer.add(inner), outer.sub(inner), far.add(near), far.sub(near), c]
    }

    #[inline(always)]
    fn tap_gradients<V: Vector>([a, b, c, d, e, f]: [V; POINTS]) -> [V; TAPS] {
        let (quarter, sixth) = (number::<V>(0.25), number::<V>(-1.0 / 6.0));
        let (twelfth, small) = (number::<V>(1.0 / 12.0), number::<V>(1.0 / 24.0));
        let (s, t, u, v) = (b.add(c), b.sub(c), d.add(e), d.sub(e));
        let first = a.mul_add(quarter, s.mul_add(sixth, u.mul(small)));
        let middle = t.mul_add(sixth, v.mul(twelfth));
        let last = s.mul_add(sixth, u.mul_add(number::<V>(1.0 / 6.0), f));
        [first, middle, last]
    }
}

/// A transform of one axis as a type: a function that is passed on as a value is not
/// always inlined, and vectors outside of their instruction set are slow.
pub(super) trait Transform<const I: usize, const O: usize> {
    fn apply<V: Vector>(from: [V; I]) -> [V; O];
}

macro_rules! transforms {
    ($($name:ident: $of:ident($from:ident) -> $to:ident),*) => {$(
        pub(super) struct $name<F>(PhantomData<F>);

        impl<F: Axis> Transform<$from, $to> for $name<F> {
            #[inline(always)]
            fn apply<V: Vector>(from: [V; $from]) -> [V; $to] {
                F::$of(from)
            }
        }
    )*};
}

transforms!(
    Pixels: pixels(POINTS) -> POINTS,
    Results: outputs(POINTS) -> OUTPUTS,
    Gradients: gradients(OUTPUTS) -> POINTS,
    Taps: taps(TAPS) -> POINTS,
    TapGradients: tap_gradients(POINTS) -> TAPS
);

/// A transform of both axes: columns, then rows.
#[inline(always)]
pub(super) fn both<T: Transform<I, O>, V: Vector, const I: usize, const O: usize>(
    [inputs, outputs]: [usize; 2],
    square: [[V; I]; I],
) -> [[V; O]; O] {
    let mut columns = [[V::zero(); I]; O];
    for j in 0..inputs {
        let mut column = [V::zero(); I];
        for (x, row) in column.iter_mut().zip(&square) {
            *x = row[j];
        }
        let column = T::apply(column);
        for i in 0..outputs {
            columns[i][j] = column[i];
        }
    }
    let mut result = [[V::zero(); O]; O];
    for (row, column) in result.iter_mut().zip(columns).take(outputs) {
        *row = T::apply(column);
    }
    result
}

/// Loads a square of vectors, `side` long.
///
/// # Safety
/// The addresses can be read.
#[inline(always)]
pub(super) unsafe fn load<V: Vector, const N: usize>(
    side: usize,
    at: impl Fn(usize, usize) -> *const V::Elem,
) -> [[V; N]; N] {
    let mut square = [[V::zero(); N]; N];
    for (i, row) in square.iter_mut().enumerate().take(side) {
        for (j, x) in row.iter_mut().enumerate().take(side) {
            // SAFETY: promised by the caller.
            *x = unsafe { V::load(at(i, j)) };
        }
    }
    square
}

/// Stores a square of vectors, `side` long.
///
/// # Safety
/// The addresses can be written.
#[inline(always)]
pub(super) unsafe fn store<V: Vector, const N: usize>(
    side: usize,
    square: [[V; N]; N],
    at: impl Fn(usize, usize) -> *mut V::Elem,
) {
    for (i, row) in square.into_iter().enumerate().take(side) {
        for (j, x) in row.into_iter().enumerate().take(side) {
            // SAFETY: promised by the caller.
            unsafe { x.store(at(i, j)) };
        }
    }
}
