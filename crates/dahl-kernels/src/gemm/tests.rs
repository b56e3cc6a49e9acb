//! Products against sums in the order that is promised, bit for bit, on every
//! instruction set that is here.

use super::{BLOCK, Finish, Lengths, Matrix, run, scratch_bytes};
use crate::simd::{Isa, Lane};

/// The sum of an element: blocks from zero, added in order.
fn expected<T: Lane + Fused>(isa: Isa, terms: usize, product: impl Fn(usize) -> [T; 2]) -> T {
    let mut sum = T::ZERO;
    for block in (0..terms).step_by(BLOCK) {
        let mut part = T::ZERO;
        for t in block..(block + BLOCK).min(terms) {
            let [x, y] = product(t);
            part = match isa {
                Isa::Portable => x * y + part,
                _ => x.fused(y, part),
            };
        }
        sum = if block == 0 { part } else { sum + part };
    }
    sum
}

/// A product and a sum, rounded once.
trait Fused {
    fn fused(self, factor: Self, summand: Self) -> Self;
}

impl Fused for f32 {
    fn fused(self, factor: Self, summand: Self) -> Self {
        self.mul_add(factor, summand)
    }
}

impl Fused for f64 {
    fn fused(self, factor: Self, summand: Self) -> Self {
        self.mul_add(factor, summand)
    }
}

fn check<T: Lane + Fused>(isa: Isa, lengths: Lengths, transposed: [bool; 2]) {
    let Lengths { rows, columns, terms } = lengths;
    let noise = |i: usize| T::from_f64(((i * 7919 + 13) % 2003) as f64 / 1001.0 - 1.0);
    let mut a: Vec<T> = (0..rows * terms).map(noise).collect();
    let mut b: Vec<T> = (0..columns * terms).map(|i| noise(i + 5)).collect();
    let mut c = vec![T::from_f64(f64::NAN); rows * columns];
    let mut scratch = vec![0xff; scratch_bytes(lengths, T::DTYPE)];
    // The distances of lanes and of terms.
    let of_a = if transposed[0] { [1, rows] } else { [terms, 1] };
    let of_b = if transposed[1] { [terms, 1] } else { [1, columns] };
    // SAFETY: the matrices have these elements.
    unsafe {
        let left = Matrix::new(a.as_mut_ptr(), of_a[0], of_a[1]);
        let right = Matrix::new(b.as_mut_ptr(), of_b[0], of_b[1]);
        let result = Matrix::new(c.as_mut_ptr(), columns, 1);
        run(isa, lengths, &left, &right, &result, Finish::NOTHING, &mut scratch);
    }
    for i in 0..rows {
        for j in 0..columns {
            let product = |t| [a[i * of_a[0] + t * of_a[1]], b[j * of_b[0] + t * of_b[1]]];
            let expected = expected(isa, terms, product);
            let found = c[i * columns + j];
            assert_eq!(found, expected, "{isa} {lengths:?} {transposed:?} at {i}, {j}");
        }
    }
}

/// Around a tile, a square of vectors, and the blocks of rows, columns and terms.
#[test]
fn products_have_the_order_that_is_promised() {
    let all = |isa, lengths| {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            check::<f32>(isa, lengths, transposed);
            check::<f64>(isa, lengths, transposed);
        }
    };
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for rows in [0, 1, 5, 6, 7, 8, 13, 14, 17, 23] {
            for columns in [0, 1, 7, 15, 16, 17, 33] {
                for terms in [0, 1, 3, 15, 17] {
                    all(isa, Lengths { rows, columns, terms });
                }
            }
        }
        for [rows, columns, terms] in
            [[95, 17, 9], [96, 5, 33], [97, 16, 7], [103, 31, 255], [7, 1023, 5], [8, 1025, 9]]
        {
            all(isa, Lengths { rows, columns, terms });
        }
        for terms in [255, 256, 257, 511, 513] {
            all(isa, Lengths { rows: 15, columns: 19, terms });
        }
    }
}
