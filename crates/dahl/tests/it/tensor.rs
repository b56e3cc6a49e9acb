//! Tensors, views and arenas.

use dahl::tensor::{Arena, Block, Matrix, Scalar, Tensor, Vector};
use proptest::prelude::*;

fn counted(arena: &Arena) -> Matrix<'_, f32> {
    Matrix::from_fn(arena, [2, 3], |[i, j]| (10 * i + j) as f32)
}

#[test]
fn views_look_at_the_same_elements() {
    let arena = Arena::new();
    let mut m = counted(&arena);
    assert_eq!(m.row(1).to_vec(), [10.0, 11.0, 12.0]);
    assert_eq!(m.column(1).to_vec(), [1.0, 11.0]);
    assert_eq!(m.transpose().to_vec(), [0.0, 10.0, 1.0, 11.0, 2.0, 12.0]);
    assert_eq!(m.transpose().row(2).to_vec(), [2.0, 12.0]);
    assert_eq!(m.slice(1, 1..3).to_vec(), [1.0, 2.0, 11.0, 12.0]);
    assert_eq!(m.slice(1, 1..3).slice(0, 1..2).to_vec(), [11.0, 12.0]);
    assert_eq!(m.reshape([3, 2])[[2, 0]], 11.0);
    m.column_mut(0)[[1]] = -1.0;
    m.row_mut(0)[[2]] = -2.0;
    m.slice_mut(0, 1..2)[[0, 1]] = -3.0;
    assert_eq!(m.to_vec(), [0.0, 1.0, -2.0, -1.0, -3.0, 12.0]);
    let (a, b) = (m.row(0), m.row(1));
    assert_eq!(a[[2]] + b[[2]], 10.0, "two readers at once");
}

#[test]
fn writing_a_part_leaves_the_rest() {
    let arena = Arena::new();
    let (mut m, from) = (Matrix::zeros(&arena, [2, 3]), counted(&arena));
    m.slice_mut(1, 0..2).assign(&from.slice(1, 1..3));
    assert_eq!(m.to_vec(), [1.0, 2.0, 0.0, 11.0, 12.0, 0.0]);
}

#[test]
fn only_contiguous_views_are_reshaped() {
    let arena = Arena::new();
    let m = counted(&arena);
    assert_eq!(m.row(1).reshape([3, 1]).unwrap().to_vec(), [10.0, 11.0, 12.0]);
    let error = m.transpose().reshape([6]).unwrap_err().to_string();
    assert!(error.contains("expected contiguous elements"), "{error}");
    let error = m.as_view().reshape([5]).unwrap_err().to_string();
    assert_eq!(error, "reshape: expected a shape of 6 elements, found [5]");
}

#[test]
fn too_few_and_too_many_elements() {
    let arena = Arena::new();
    let mut v = Vector::<i64>::zeros(&arena, [3]);
    v.fill(1..4).unwrap();
    assert_eq!(v.as_slice(), [1, 2, 3]);
    assert_eq!(v.fill(1..3).unwrap_err().to_string(), "elements: expected 3, found 2");
    assert_eq!(v.fill(1..9).unwrap_err().to_string(), "elements: expected 3, found more than 3");
    let error = Vector::from_slice(&arena, [2], &[1u8]).unwrap_err().to_string();
    assert_eq!(error, "elements: expected 2, found 1");
}

#[test]
fn coordinates_are_checked_axis_by_axis() {
    let arena = Arena::new();
    let mut m = counted(&arena);
    assert_eq!(m.get([1, 2]), Some(&12.0));
    // Inside of the memory, outside of the row.
    assert_eq!(m.get([0, 3]), None);
    assert_eq!(m.get([usize::MAX, 1]), None);
    assert_eq!(m.get_mut([2, 0]), None);
    assert_eq!(m.transpose().get([0, 2]), None);
    let s = Scalar::full(&arena, [], 5u8);
    assert_eq!((s.item(), s[[]]), (5, 5));
}

#[test]
#[should_panic(expected = "index: expected a coordinate of a tensor of shape [2, 3], found [0, 3]")]
fn an_index_outside_panics() {
    let arena = Arena::new();
    let _ = counted(&arena)[[0, 3]];
}

#[test]
#[should_panic(expected = "slice: expected a range along an axis of [2, 3], found 1..3 along 0")]
fn a_slice_outside_panics() {
    let arena = Arena::new();
    counted(&arena).slice(0, 1..3);
}

#[test]
fn digits_stand_under_digits() {
    let arena = Arena::new();
    let m = Matrix::from_slice(&arena, [2, 2], &[1.5f32, -10.0, 100.25, 2.125]).unwrap();
    assert_eq!(m.to_string(), "[[  1.5 , -10    ],\n [100.25,   2.125]]");
    assert_eq!(format!("{m:.1}"), "[[  1.5, -10.0],\n [100.2,   2.1]]");
    assert_eq!(format!("{:?}", m.row(0)), "f32 [2] [1.5, -10]");
    let b = Block::from_fn(&arena, [2, 1, 2], |[i, _, k]| (9 * i + k) as i64);
    assert_eq!(b.to_string(), "[[[0,  1]],\n\n [[9, 10]]]");
    let nan = Vector::from_slice(&arena, [2], &[f64::NAN, f64::NEG_INFINITY]).unwrap();
    assert_eq!(format!("{nan:.2}"), "[NaN, -inf]");
    assert_eq!(Scalar::full(&arena, [], 0.5f32).to_string(), "0.5");
    assert_eq!(Matrix::<f32>::zeros(&arena, [0, 3]).to_string(), "[] of shape [0, 3]");
}

#[test]
fn arenas_align_limit_and_reset() {
    let mut arena = Arena::with_limit(256);
    {
        let a = Vector::<u8>::zeros(&arena, [3]);
        let b = Vector::<f64>::zeros(&arena, [3]);
        assert_eq!(a.as_slice().as_ptr() as usize % 64, 0);
        assert_eq!(b.as_slice().as_ptr() as usize % 64, 0);
        assert_eq!(arena.used().0, 128);
        let error = Vector::<f32>::try_zeros(&arena, [33]).unwrap_err().to_string();
        assert_eq!(
            error,
            "arena: expected at most 256 B in use, found 33 more f32 on top of 128 B"
        );
        Vector::<f32>::try_zeros(&arena, [32]).unwrap();
    }
    arena.reset();
    let all = Vector::<f32>::zeros(&arena, [64]);
    assert!(all.as_slice().iter().all(|&x| x == 0.0));
    let huge = Tensor::<f64, 3>::try_zeros(&arena, [usize::MAX, 2, 2]);
    assert!(huge.is_err());
}

#[test]
fn memory_is_used_again_after_a_reset() {
    let mut arena = Arena::new();
    for step in 0..100 {
        let mut x = Matrix::full(&arena, [100, 100], step as f32);
        assert_eq!(x[[99, 99]], step as f32);
        x[[0, 0]] = -1.0;
        arena.reset();
        assert_eq!(arena.used().0, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Chains of views agree with the coordinates they stand for.
    #[test]
    fn views_compose(
        shape in [1..5usize, 1..5usize, 1..5usize],
        axis in 0..3usize,
        cut in (0..5usize, 0..5usize),
        order in prop::sample::select(vec![[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]]),
    ) {
        let arena = Arena::new();
        let x = Block::from_fn(&arena, shape, |[i, j, k]| (100 * i + 10 * j + k) as i64);
        let (from, to) = (cut.0.min(cut.1).min(shape[axis]), cut.0.max(cut.1).min(shape[axis]));
        let view = x.slice(axis, from..to).permute(order);
        let copy = view.to_tensor(&arena);
        prop_assert_eq!(copy.to_vec(), view.to_vec());
        for i in 0..view.shape()[0] {
            for j in 0..view.shape()[1] {
                for k in 0..view.shape()[2] {
                    let mut at = [0; 3];
                    for (index, &a) in [i, j, k].iter().zip(&order) {
                        at[a] = *index;
                    }
                    at[axis] += from;
                    prop_assert_eq!(view[[i, j, k]], x[at]);
                    prop_assert_eq!(view.select::<2>(1, j)[[i, k]], x[at]);
                }
            }
        }
    }
}
