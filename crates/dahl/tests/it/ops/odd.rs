//! Tuned kernels at sizes around vectors, chunks of sums and rows of windows.

use super::cases::{batch_norm2d_cases, max_pool2d_case, sum_channels_case};
use super::cuts::check_case;
use dahl::DType;
use dahl::ops::pool::{Pool2d, max_pool2d};
use dahl::tensor::{Arena, Tensor};
use dahl_kernels::math::uniform;
use std::collections::BTreeSet;

const DTYPES: [DType; 2] = [DType::F32, DType::F64];

#[test]
fn planes_around_vectors_and_chunks() {
    for plane in [[1, 15], [4, 4], [1, 17], [3, 11], [31, 33], [32, 32], [25, 41], [43, 50]] {
        let x = [2, 3, plane[0], plane[1]];
        for case in batch_norm2d_cases(x).into_iter().chain([sum_channels_case(&x)]) {
            for dtype in DTYPES {
                check_case(&case, dtype, &mut BTreeSet::new());
            }
        }
    }
}

#[test]
fn columns_around_vectors() {
    for columns in [0, 1, 3, 7, 8, 9, 16, 17, 33] {
        let case = sum_channels_case(&[3, columns]);
        DTYPES.iter().for_each(|&dtype| check_case(&case, dtype, &mut BTreeSet::new()));
    }
}

#[test]
fn windows_in_long_rows() {
    for (kernel, stride, padding) in POOLS {
        let pool = Pool2d { kernel, stride, padding };
        let case = max_pool2d_case([1, 2, 5, 65 * stride[1] + 1], pool);
        DTYPES.iter().for_each(|&dtype| check_case(&case, dtype, &mut BTreeSet::new()));
    }
}

const POOLS: [([usize; 2], [usize; 2], [usize; 2]); 7] = [
    ([2, 2], [2, 2], [0, 0]),
    ([3, 3], [2, 2], [0, 0]),
    ([3, 3], [2, 2], [1, 1]),
    ([3, 3], [3, 3], [0, 0]),
    ([3, 2], [1, 2], [1, 1]),
    ([2, 5], [2, 3], [1, 2]),
    ([1, 3], [4, 2], [0, 1]),
];

/// Values with many ties, NaN and −∞ among them, against a search of each window.
#[test]
fn max_pool2d_against_loops() {
    for (kernel, stride, padding) in POOLS {
        for width in [5, 7, 15, 16, 17, 31, 33, 127, 128, 129, 131] {
            let arena = Arena::new();
            let shape = [2, 1, 5, width];
            let x = Tensor::from_fn(&arena, shape, |[n, _, i, j]| {
                let r = uniform(3, 1, 0, ((n * 5 + i) * width + j) as u64);
                match (r * 20.0) as usize {
                    0 => f32::NAN,
                    1..4 => f32::NEG_INFINITY,
                    k => (k % 5) as f32 - 2.0,
                }
            });
            let pool = Pool2d { kernel, stride, padding };
            let (y, index) = max_pool2d(&arena, &x, pool);
            let [_, _, rows, columns] = y.shape();
            for (at, (value, winner)) in y.as_slice().iter().zip(index.as_slice()).enumerate() {
                let (j, i, n) = (at % columns, at / columns % rows, at / columns / rows);
                let plane = &x.as_slice()[n * 5 * width..][..5 * width];
                let range = |o: usize, a: usize, length: usize| {
                    let from = (o * stride[a]).saturating_sub(padding[a]);
                    from..(o * stride[a] + kernel[a] - padding[a]).min(length)
                };
                let places = range(i, 0, 5)
                    .flat_map(|y| range(j, 1, width).map(move |x| y * width + x))
                    .collect::<Vec<_>>();
                // The last NaN, else the first of the largest.
                let nan = places.iter().rev().find(|p| plane[**p].is_nan());
                let largest = places
                    .iter()
                    .fold(places[0], |best, &p| if plane[p] > plane[best] { p } else { best });
                let expected = *nan.unwrap_or(&largest);
                assert_eq!(*winner, expected as i64, "{pool:?} width {width} at {at}");
                assert!(value.to_bits() == plane[expected].to_bits(), "{pool:?} width {width}");
            }
        }
    }
}
