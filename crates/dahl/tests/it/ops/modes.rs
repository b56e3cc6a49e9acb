//! The modes of an op agree bit for bit.

use dahl::Float;
use dahl::ops::Accum;
use dahl::ops::batch_norm2d::*;
use dahl::ops::conv2d::*;
use dahl::ops::cross_entropy::*;
use dahl::ops::elementwise::*;
use dahl::ops::linear::*;
use dahl::ops::matmul::*;
use dahl::ops::mse::*;
use dahl::ops::norm::*;
use dahl::ops::one_hot::*;
use dahl::ops::permute::*;
use dahl::ops::pool::*;
use dahl::ops::reduce::*;
use dahl::ops::reduce_axes::{mean, mean_into, sum, sum_into};
use dahl::ops::softmax::*;
use dahl::tensor::{Arena, Matrix, Scalar, Tensor, Vector};
use dahl_kernels::math::uniform;
use proptest::prelude::*;

/// Bits, so that NaN equals NaN and 0 differs from −0.
fn bits<E: Float, const R: usize>(x: &Tensor<'_, E, R>) -> (Vec<usize>, Vec<u64>) {
    (x.shape().to_vec(), x.as_slice().iter().map(|x| x.to_f64().to_bits()).collect())
}

/// `into` replaces by and adds what the allocating mode gave.
#[track_caller]
fn check<E: Float, const R: usize>(
    allocated: &Tensor<'_, E, R>,
    into: impl Fn(Accum, &mut Tensor<'_, E, R>),
) {
    let arena = Arena::new();
    let mut out = Tensor::full(&arena, allocated.shape(), E::from_f64(7.25));
    into(Accum::Replace, &mut out);
    assert_eq!(bits(allocated), bits(&out), "replace");
    let before = filled(&arena, allocated.shape(), 50);
    let mut out = before.to_tensor(&arena);
    into(Accum::Add, &mut out);
    let sum = Tensor::from_fn(&arena, out.shape(), |at| before[at] + allocated[at]);
    assert_eq!(bits(&sum), bits(&out), "add");
}

/// As [`check`], and in place.
#[track_caller]
fn check_in_place<E: Float, const R: usize>(
    x: &Tensor<'_, E, R>,
    allocated: &Tensor<'_, E, R>,
    into: impl Fn(Accum, &mut Tensor<'_, E, R>),
    in_place: impl Fn(&mut Tensor<'_, E, R>),
) {
    check(allocated, into);
    let arena = Arena::new();
    let mut y = x.to_tensor(&arena);
    in_place(&mut y);
    assert_eq!(bits(allocated), bits(&y), "in place");
}

fn filled<'a, E: Float, const R: usize>(
    arena: &'a Arena,
    shape: [usize; R],
    stream: u32,
) -> Tensor<'a, E, R> {
    let mut i = 0;
    Tensor::from_fn(arena, shape, |_| {
        i += 1;
        E::from_f64(4.0 * uniform(1, stream, 0, i) - 2.0)
    })
}

fn unary_modes<E: Float, const R: usize>(x: &Tensor<'_, E, R>) {
    let arena = &Arena::new();
    macro_rules! each {
        ($($f:ident $into:ident $in_place:ident ($($c:expr),*);)*) => {$(
            check_in_place(
                x,
                &$f(arena, x $(, $c)*),
                |accum, out| $into(x $(, $c)*, accum, out),
                |x| $in_place(x $(, $c)*),
            );
        )*};
    }
    each! {
        copy copy_into copy_in_place();
        fill fill_into fill_in_place(0.1);
        neg neg_into neg_in_place();
        exp exp_into exp_in_place();
        log log_into log_in_place();
        sqrt sqrt_into sqrt_in_place();
        round round_into round_in_place();
        power power_into power_in_place(1.5);
        clip clip_into clip_in_place(-0.5, 0.5);
        add_scalar add_scalar_into add_scalar_in_place(0.1);
        sub_scalar sub_scalar_into sub_scalar_in_place(0.1);
        scale scale_into scale_in_place(0.1);
        div_scalar div_scalar_into div_scalar_in_place(0.3);
        relu relu_into relu_in_place();
        leaky_relu leaky_relu_into leaky_relu_in_place(0.1);
        sigmoid sigmoid_into sigmoid_in_place();
        tanh tanh_into tanh_in_place();
        gelu gelu_into gelu_in_place();
    }
    let params = Dropout { p: 0.3, seed: 5, stream: 1, first: 0 };
    check_in_place(
        x,
        &dropout(arena, x, params, 9),
        |accum, out| dropout_into(x, params, 9, accum, out),
        |x| dropout_in_place(x, params, 9),
    );
}

fn binary_modes<E: Float, const R: usize>(x: &Tensor<'_, E, R>, y: &Tensor<'_, E, R>) {
    let arena = &Arena::new();
    macro_rules! each {
        ($($f:ident $into:ident $in_place:ident;)*) => {$(
            check_in_place(
                x,
                &$f(arena, x, y),
                |accum, out| $into(x, y, accum, out),
                |x| $in_place(x, y),
            );
        )*};
    }
    each! {
        add add_into add_in_place;
        sub sub_into sub_in_place;
        mul mul_into mul_in_place;
        div div_into div_in_place;
    }
}

/// Any number, special ones often.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -10.0..10.0f64,
        1 => prop::sample::select(vec![0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-40]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn modes_of_elementwise_functions_agree(
        data in prop::collection::vec((number(), number()), 0..40),
    ) {
        let arena = Arena::new();
        let n = data.len();
        let x = Vector::from_fn(&arena, [n], |[i]| data[i].0);
        let y = Vector::from_fn(&arena, [n], |[i]| data[i].1);
        unary_modes(&x);
        binary_modes(&x, &y);
        let x = Vector::from_fn(&arena, [n], |[i]| data[i].0 as f32);
        let y = Vector::from_fn(&arena, [n], |[i]| data[i].1 as f32);
        unary_modes(&x);
        binary_modes(&x, &y);
    }
}

fn other_modes<E: Float>() {
    let arena = &Arena::new();
    unary_modes(&filled::<E, 4>(arena, [2, 3, 1, 2], 0));
    for [m, k, n] in [[3, 4, 2], [1, 1, 1], [0, 3, 2], [2, 0, 3]] {
        let a: Matrix<'_, E> = filled(arena, [m, k], 1);
        let b: Matrix<'_, E> = filled(arena, [k, n], 2);
        check(&matmul(arena, &a, &b), |accum, out| matmul_into(&a, &b, accum, out));
        // A transposed view is the same as its copy.
        let copied = transpose(arena, &b);
        let twice = matmul(arena, &a, &copied.transpose());
        assert_eq!(bits(&matmul(arena, &a, &b)), bits(&twice));
        check(&transpose(arena, &a), |accum, out| transpose_into(&a, accum, out));
        let (a3, b3) = (filled::<E, 3>(arena, [2, m, k], 3), filled::<E, 3>(arena, [2, k, n], 4));
        check(&bmm(arena, &a3, &b3), |accum, out| bmm_into(&a3, &b3, accum, out));
        check(&permute(arena, &a3, [1, 2, 0]), |accum, out| {
            permute_into(&a3, [1, 2, 0], accum, out)
        });
        let (x, y) = (filled::<E, 1>(arena, [k], 5), filled::<E, 1>(arena, [n], 6));
        check(&matvec(arena, &a, &x), |accum, out| matvec_into(&a, &x, accum, out));
        check(&outer(arena, &x, &y), |accum, out| outer_into(&x, &y, accum, out));
        check(&dot(arena, &x, &x), |accum, out| dot_into(&x, &x, accum, out));
        let w: Matrix<'_, E> = filled(arena, [n, k], 7);
        for bias in [None, Some(y.as_view())] {
            let whole = linear(arena, &a, &w, bias);
            check(&whole, |accum, out| linear_into(&a, &w, bias, accum, out));
        }
        check_in_place(
            &a,
            &softmax(arena, &a),
            |accum, out| softmax_into(&a, accum, out),
            softmax_in_place,
        );
        check_in_place(
            &a,
            &log_softmax(arena, &a),
            |accum, out| log_softmax_into(&a, accum, out),
            log_softmax_in_place,
        );
        check(&sum_all(arena, &a), |accum, out| sum_all_into(&a, accum, out));
        check(&mean_all(arena, &a), |accum, out| mean_all_into(&a, accum, out));
        check(&norm(arena, &a), |accum, out| norm_into(&a, accum, out));
        check(&mse(arena, &a, &a), |accum, out| mse_into(&a, &a, accum, out));
        let rows: Vector<'_, E> = sum(arena, &a, [1]);
        check(&rows, |accum, out| sum_into(&a, [1], accum, out));
        let columns: Vector<'_, E> = mean(arena, &a, [0]);
        check(&columns, |accum, out| mean_into(&a, [0], accum, out));
        let s: Scalar<'_, E> = filled(arena, [], 8);
        check_in_place(
            &a,
            &scale_by(arena, &a, &s),
            |accum, out| scale_by_into(&a, &s, accum, out),
            |a| scale_by_in_place(a, &s),
        );
        let labels = Vector::from_fn(arena, [m], |[i]| (i % 3) as i64);
        check(&one_hot::<E>(arena, &labels, 3), |accum, out| one_hot_into(&labels, 3, accum, out));
        if k > 0 {
            check(&cross_entropy(arena, &a, &labels), |accum, out| {
                cross_entropy_into(&a, &labels, accum, out)
            });
            check(&correct(arena, &a, &labels), |accum, out| correct_into(&a, &labels, accum, out));
        }
    }
    let x: Tensor<'_, E, 4> = filled(arena, [2, 3, 5, 4], 9);
    let w: Tensor<'_, E, 4> = filled(arena, [2, 3, 3, 3], 10);
    let conv = Conv2d { padding: [1, 1], stride: [2, 1], ..Conv2d::default() };
    check(&conv2d(arena, &x, &w, None, conv), |accum, out| {
        conv2d_into(&x, &w, None, conv, accum, out)
    });
    let pool = Pool2d { kernel: [2, 2], stride: [1, 2], padding: [1, 0] };
    check(&avg_pool2d(arena, &x, pool), |accum, out| avg_pool2d_into(&x, pool, accum, out));
    check(&global_avg_pool2d(arena, &x), |accum, out| global_avg_pool2d_into(&x, accum, out));
    let (weight, bias) = (filled::<E, 1>(arena, [3], 11), filled::<E, 1>(arena, [3], 12));
    let variance = Vector::full(arena, [3], E::from_f64(0.7));
    let affine = Affine { weight: weight.as_view(), bias: bias.as_view(), eps: 1e-5 };
    check(&batch_norm2d(arena, &x, &affine).0, |accum, out| {
        batch_norm2d_into(&x, &affine, accum, out)
    });
    let tracked = [&bias, &variance];
    check_in_place(
        &x,
        &batch_norm2d_eval(arena, &x, tracked, &affine),
        |accum, out| batch_norm2d_eval_into(&x, tracked, &affine, accum, out),
        |x| batch_norm2d_eval_in_place(x, tracked, &affine),
    );
}

#[test]
fn modes_of_other_ops_agree() {
    other_modes::<f32>();
    other_modes::<f64>();
}
