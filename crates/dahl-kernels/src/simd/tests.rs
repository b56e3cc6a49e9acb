//! Vectors against single elements, on every instruction set that is here.

use super::{Isa, Lane, MAX_LANES, Simd, Vector, Work};

struct Check<T>([T; MAX_LANES], [T; MAX_LANES]);

impl<T: Lane> Work for Check<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let (x, y) = (self.0, self.1);
        let lanes = <T::Vector<S>>::LANES;
        // SAFETY: no vector has more than `MAX_LANES` elements.
        let (a, b) = unsafe { (load::<S, T>(&x), load::<S, T>(&y)) };
        let same = |name: &str, found: T::Vector<S>, expected: &dyn Fn(usize) -> T| {
            let mut elements = [T::ZERO; MAX_LANES];
            // SAFETY: as above.
            unsafe { found.store(elements.as_mut_ptr()) };
            for (i, found) in elements.iter().enumerate().take(lanes) {
                let expected = expected(i);
                let equal = *found == expected || (found.is_nan() && expected.is_nan());
                assert!(equal, "{name} {i}: {found} is not {expected}");
            }
        };
        same("sub", a.sub(b), &|i| x[i] - y[i]);
        same("gate", a.gate(b), &|i| if y[i] <= T::ZERO { T::ZERO } else { x[i] });
        let equal = |i: usize| if x[i] == y[i] { x[i] } else { T::ZERO };
        same("where_equal", a.where_equal(a, b), &equal);
        let (evens, odds) = a.unzip(b);
        let joined = |i: usize| if i < lanes { x[i] } else { y[i - lanes] };
        same("unzip", evens, &|i| joined(2 * i));
        same("unzip", odds, &|i| joined(2 * i + 1));
        let (low, high) = a.zip(b);
        let turns = |i: usize| if i.is_multiple_of(2) { x[i / 2] } else { y[i / 2] };
        same("zip", low, &turns);
        same("zip", high, &|i| turns(lanes + i));
        same("relu", a.relu(), &|i| if x[i] < T::ZERO { T::ZERO } else { x[i] });
        // What is larger stays with what stands for it.
        let (best, at) = Vector::better((a, b), (b, a));
        let kept = |i: usize| x[i].is_nan() || (x[i] >= y[i] && !y[i].is_nan());
        same("better", best, &|i| if kept(i) { x[i] } else { y[i] });
        same("better", at, &|i| if kept(i) { y[i] } else { x[i] });
        turn::<S, T>(lanes + 3, 6.min(lanes));
        turn::<S, T>(lanes, lanes + 1);
    }
}

/// Turns a square between rows at these distances; those that are written may be
/// closer than they are long.
fn turn<S: Simd, T: Lane>(line: usize, out: usize) {
    let lanes = <T::Vector<S>>::LANES;
    let from: Vec<T> = (0..lanes * line).map(|i| T::from_f64(i as f64)).collect();
    let mut to = vec![T::ZERO; lanes * (out + lanes)];
    // SAFETY: the rows are that far apart, and the last one is whole.
    unsafe { <T::Vector<S>>::transpose(from.as_ptr(), to.as_mut_ptr(), [line, out]) };
    for row in 0..lanes {
        // What the next row does not begin in.
        let whole = if row + 1 < lanes { out.min(lanes) } else { lanes };
        for i in 0..whole {
            assert_eq!(to[row * out + i], from[i * line + row], "{lanes} {line} {out}: {row} {i}");
        }
    }
}

/// # Safety
/// A vector has at most `MAX_LANES` elements.
#[inline(always)]
unsafe fn load<S: Simd, T: Lane>(from: &[T; MAX_LANES]) -> T::Vector<S> {
    // SAFETY: as the caller promises.
    unsafe { <T::Vector<S>>::load(from.as_ptr()) }
}

fn check<T: Lane>() {
    let x = std::array::from_fn(|i| T::from_f64(i as f64 - 5.5));
    let special = [f64::NAN, 0.0, -0.0, -4.5, f64::INFINITY, f64::NEG_INFINITY, 0.5];
    let y = std::array::from_fn(|i| T::from_f64(special[i % special.len()]));
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        isa.run(Check(x, y));
        isa.run(Check(y, x));
    }
}

#[test]
fn vectors_do_what_elements_do() {
    check::<f32>();
    check::<f64>();
}
