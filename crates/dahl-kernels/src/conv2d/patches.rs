//! The patches of images that a window sees, as an operand of a product.
#![expect(unsafe_code, reason = "rows of images are copied through pointers")]

use crate::gemm::Panels;
use crate::{Element, Float, Region, View};
use std::marker::PhantomData;
use std::ops::Range;

/// How the taps of a window lie along one axis: tap `k` of place `o` is at
/// `o * place + k * tap + first`, and is 0 outside of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// How many taps there are.
    pub(super) taps: usize,
    /// The distance between places.
    pub(super) place: usize,
    /// The distance between taps, backwards where it is negative.
    pub(super) tap: isize,
    /// Where the first tap of place 0 is.
    pub(super) first: isize,
}

impl Axis {
    #[inline(always)]
    fn at(&self, place: usize, tap: usize) -> isize {
        (place * self.place) as isize + tap as isize * self.tap + self.first
    }

    /// The part of `places` whose tap is inside of an image of `length`.
    #[inline(always)]
    fn inside(&self, places: Range<usize>, tap: usize, length: usize) -> Range<usize> {
        let offset = tap as isize * self.tap + self.first;
        let low = (-offset).max(0) as usize;
        let from = low.div_ceil(self.place).clamp(places.start, places.end);
        let to = match length as isize - offset {
            room if room <= 0 => 0,
            room => (room as usize).div_ceil(self.place),
        };
        from..to.clamp(from, places.end)
    }
}

impl Axis {
    /// The smallest range of an image of `length` that has all that is read.
    fn reach(&self, places: Range<usize>, length: usize) -> Range<usize> {
        let ends = (0..self.taps).filter_map(|tap| {
            let inside = self.inside(places.clone(), tap, length);
            (!inside.is_empty())
                .then(|| [inside.start, inside.end - 1].map(|p| self.at(p, tap) as usize))
        });
        let [low, high] =
            ends.fold([usize::MAX, 0], |[low, high], [from, to]| [low.min(from), high.max(to + 1)]);
        low.min(high)..high
    }
}

/// A matrix of (channel, tap) by (sample, row, column): what a window sees.
///
/// It is an operand in two ways: [`ByPlace`] has places as lanes and sums over
/// channels and taps, [`ByTap`] the other way round.
#[derive(Clone)]
pub(super) struct Patches<'a, T> {
    /// The element at sample 0 of the places, channel 0, row 0, column 0.
    first: *const T,
    /// Distance of samples, channels, rows; columns lie behind each other.
    strides: [usize; 3],
    /// Rows and columns of the image.
    image: [usize; 2],
    rows: Axis,
    columns: Axis,
    /// Rows and columns of places.
    places: [Range<usize>; 2],
    element: PhantomData<&'a T>,
}

/// The same row of places, or a part of it.
#[derive(Clone, Copy, Default)]
struct Segment {
    lane: usize,
    sample: usize,
    row: usize,
    column: usize,
    length: usize,
}

impl<'a, T: Element> Patches<'a, T> {
    /// The patches of the samples and channels of `region`, at `places`.
    ///
    /// # Panics
    /// If `image` has not the whole rows and columns that the taps reach.
    pub(super) fn new(
        image: &View<'a, T>,
        (samples, channels): (Range<usize>, Range<usize>),
        axes: [Axis; 2],
        places: [Range<usize>; 2],
    ) -> Self {
        let shape = image.shape();
        let reached: [Range<usize>; 2] =
            std::array::from_fn(|a| axes[a].reach(places[a].clone(), shape[2 + a]));
        let reached = if reached.iter().any(|r| r.is_empty()) { [0..0, 0..0] } else { reached };
        let region = Region::new(&[samples, channels, reached[0].clone(), reached[1].clone()]);
        let (ptr, strides) = image.raw(&region);
        assert!(strides[3] == 1 || shape[3] <= 1, "columns lie behind each other");
        // Where row 0 and column 0 would be; only what is inside is read.
        let first = ptr.wrapping_sub(reached[0].start * strides[2] + reached[1].start);
        Self {
            first,
            strides: [strides[0], strides[1], strides[2]],
            image: [shape[2], shape[3]],
            rows: axes[0],
            columns: axes[1],
            places,
            element: PhantomData,
        }
    }

    fn taps(&self) -> usize {
        self.rows.taps * self.columns.taps
    }

    /// The place with a number, as sample, row and column.
    fn place(&self, number: usize) -> (usize, usize, usize) {
        let [rows, columns] = [self.places[0].len(), self.places[1].len()];
        let (line, column) = (number / columns, number % columns);
        (line / rows, self.places[0].start + line % rows, self.places[1].start + column)
    }

    /// The rows that the places of `lanes` lie in; at most one a lane.
    fn segments<const N: usize>(&self, lanes: Range<usize>) -> ([Segment; N], usize) {
        let mut segments = [Segment::default(); N];
        let (mut count, mut lane) = (0, lanes.start);
        while lane < lanes.end {
            let (sample, row, column) = self.place(lane);
            let length = (self.places[1].end - column).min(lanes.end - lane);
            segments[count] = Segment { lane: lane - lanes.start, sample, row, column, length };
            count += 1;
            lane += length;
        }
        (segments, count)
    }
}

/// Places are lanes: `pack` copies rows of the image.
pub(super) struct ByPlace<'a, T>(pub(super) Patches<'a, T>);

impl<T: Float> Panels<T> for ByPlace<'_, T> {
    #[inline(always)]
    fn pack(&self, lanes: Range<usize>, terms: Range<usize>, width: usize, to: &mut [T]) {
        let p = &self.0;
        let depth = terms.len();
        assert!(lanes.len() <= width && to.len() >= depth * width);
        let (segments, count) = p.segments::<{ crate::gemm::MAX_COLUMNS }>(lanes.clone());
        let segments = &segments[..count];
        let taps = p.taps();
        let whole_row = count == 1 && lanes.len() == width && p.columns.place == 1;
        let to = to.as_mut_ptr();
        for t in 0..depth {
            let term = terms.start + t;
            let (channel, tap) = (term / taps, term % taps);
            let (k, l) = (tap / p.columns.taps, tap % p.columns.taps);
            // SAFETY: `to` has room for `depth` × `width` elements, as was
            // asserted. Rows and columns that are read are inside of the image
            // and within the reach that `new` has checked.
            unsafe {
                let to = to.add(t * width);
                let plane = p.first.wrapping_add(channel * p.strides[1]);
                if whole_row {
                    let s = &segments[0];
                    let y = p.rows.at(s.row, k);
                    let x = p.columns.at(s.column, l);
                    if y >= 0
                        && (y as usize) < p.image[0]
                        && x >= 0
                        && x as usize + width <= p.image[1]
                    {
                        let from = plane
                            .add(s.sample * p.strides[0] + y as usize * p.strides[2] + x as usize);
                        std::ptr::copy_nonoverlapping(from, to, width);
                        continue;
                    }
                }
                for lane in 0..width {
                    *to.add(lane) = T::ZERO;
                }
                for s in segments {
                    let y = p.rows.at(s.row, k);
                    if y < 0 || y as usize >= p.image[0] {
                        continue;
                    }
                    let inside = p.columns.inside(s.column..s.column + s.length, l, p.image[1]);
                    if inside.is_empty() {
                        continue;
                    }
                    let x = p.columns.at(inside.start, l) as usize;
                    let from = plane.add(s.sample * p.strides[0] + y as usize * p.strides[2] + x);
                    let to = to.add(s.lane + inside.start - s.column);
                    for i in 0..inside.len() {
                        *to.add(i) = *from.add(i * p.columns.place);
                    }
                }
            }
        }
    }
}

/// Channels and taps are lanes, places are summed over.
pub(super) struct ByTap<'a, T>(pub(super) Patches<'a, T>);

impl<T: Float> Panels<T> for ByTap<'_, T> {
    #[inline(always)]
    fn pack(&self, lanes: Range<usize>, terms: Range<usize>, width: usize, to: &mut [T]) {
        let p = &self.0;
        let depth = terms.len();
        assert!(lanes.len() <= width && to.len() >= depth * width);
        let taps = p.taps();
        let to = to.as_mut_ptr();
        let mut t = 0;
        while t < depth {
            let (sample, row, column) = p.place(terms.start + t);
            let length = (p.places[1].end - column).min(depth - t);
            for lane in 0..width {
                // SAFETY: as in `ByPlace`.
                unsafe {
                    let to = to.add(t * width + lane);
                    // Lanes that are missing are 0.
                    let (channel, tap) = ((lanes.start + lane) / taps, (lanes.start + lane) % taps);
                    let (k, l) = (tap / p.columns.taps, tap % p.columns.taps);
                    let y = p.rows.at(row, k);
                    let inside = if lane < lanes.len() && y >= 0 && (y as usize) < p.image[0] {
                        p.columns.inside(column..column + length, l, p.image[1])
                    } else {
                        column..column
                    };
                    for i in column..inside.start {
                        *to.add((i - column) * width) = T::ZERO;
                    }
                    if !inside.is_empty() {
                        let x = p.columns.at(inside.start, l) as usize;
                        let from = p
                            .first
                            .wrapping_add(channel * p.strides[1])
                            .add(sample * p.strides[0] + y as usize * p.strides[2] + x);
                        let to = to.add((inside.start - column) * width);
                        for i in 0..inside.len() {
                            *to.add(i * width) = *from.add(i * p.columns.place);
                        }
                    }
                    for i in inside.end..column + length {
                        *to.add((i - column) * width) = T::ZERO;
                    }
                }
            }
            t += length;
        }
    }
}
