//! Values that are known, special numbers as PyTorch treats them, and panics
//! that say what was expected.

use super::interpret::{Buffer, run};
use dahl::graph::{Builder, Store};
use dahl::ops::batch_norm2d::BatchNorm2dStats;
use dahl::ops::conv2d::{Conv2d, Conv2dBackwardWeight, Conv2dForward, Rectify, conv2d};
use dahl::ops::cross_entropy::{accuracy, correct, cross_entropy};
use dahl::ops::elementwise::*;
use dahl::ops::matmul::matmul;
use dahl::ops::norm::{clip_factor, norm};
use dahl::ops::one_hot::one_hot;
use dahl::ops::pool::{AvgPool2d, MaxPool2d, Pool2d, max_pool2d};
use dahl::ops::reduce::{Average, SumAll};
use dahl::ops::reduce_axes::{argmax, max, max_all, min, sum};
use dahl::ops::softmax::{log_softmax, softmax};
use dahl::ops::{Blocked, Meta, Metas, Op, Piece, Target, split};
use dahl::tensor::{Arena, Block, Matrix, Tensor, Vector};
use dahl::{DType, Region, Shape};
use dahl_kernels::math;
use std::sync::Arc;

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

#[track_caller]
fn same(found: &[f64], expected: &[f64]) {
    let equal = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
    let all = found.len() == expected.len() && found.iter().zip(expected).all(equal);
    assert!(all, "expected {expected:?}, found {found:?}");
}

fn vector<'a>(arena: &'a Arena, x: &[f64]) -> Vector<'a, f64> {
    Vector::from_slice(arena, [x.len()], x).unwrap()
}

/// What `torch.relu`, `clamp(-1, 1)`, `leaky_relu(0.5)`, `sqrt`, `log`, `exp`
/// and `round` give.
#[test]
fn special_numbers_element_by_element() {
    let arena = &Arena::new();
    let x = vector(arena, &[NAN, INF, -INF, -0.5, 2.5]);
    same(relu(arena, &x).as_slice(), &[NAN, INF, 0.0, 0.0, 2.5]);
    same(clip(arena, &x, -1.0, 1.0).as_slice(), &[NAN, 1.0, -1.0, -0.5, 1.0]);
    same(leaky_relu(arena, &x, 0.5).as_slice(), &[NAN, INF, -INF, -0.25, 2.5]);
    same(sigmoid(arena, &x).as_slice()[..3].as_ref(), &[NAN, 1.0, 0.0]);
    same(tanh(arena, &x).as_slice()[..3].as_ref(), &[NAN, 1.0, -1.0]);
    same(sqrt(arena, &x).as_slice()[..4].as_ref(), &[NAN, INF, NAN, NAN]);
    same(exp(arena, &x).as_slice()[..3].as_ref(), &[NAN, INF, 0.0]);
    same(round(arena, &x).as_slice(), &[NAN, INF, -INF, -0.0, 2.0]);
    let zero = vector(arena, &[0.0, 1.0, -1.0]);
    same(div(arena, &vector(arena, &[0.0, INF, 1.0]), &zero).as_slice(), &[NAN, INF, -1.0]);
}

/// NaN wins in a window and keeps the index of the last NaN, as PyTorch's CPU
/// kernel does; a window of −∞ has the first index.
#[test]
fn max_pool2d_lets_nan_win() {
    let arena = &Arena::new();
    let x = Tensor::from_slice(arena, [1, 1, 1, 6], &[1.0, NAN, 3.0, -INF, -INF, -INF]).unwrap();
    let (y, index) = max_pool2d(arena, &x, Pool2d::tiles([1, 3]));
    same(y.as_slice(), &[NAN, -INF]);
    assert_eq!(index.as_slice(), [1, 3]);
}

/// `torch.max` and `argmax` take the first NaN, else the first of equal ones.
#[test]
fn first_winner_and_nan_in_reductions() {
    let arena = &Arena::new();
    let x = [1.0, 3.0, 3.0, 2.0, NAN, NAN, -INF, -INF, -INF];
    let x = Matrix::from_slice(arena, [3, 3], &x).unwrap();
    let (y, index): (Vector<'_, f64>, Vector<'_, i64>) = max(arena, &x, [1]);
    same(y.as_slice(), &[3.0, NAN, -INF]);
    assert_eq!(index.as_slice(), [1, 1, 0]);
    let (y, index): (Vector<'_, f64>, Vector<'_, i64>) = min(arena, &x, [1]);
    same(y.as_slice(), &[1.0, NAN, -INF]);
    assert_eq!(index.as_slice(), [0, 1, 0]);
    let best: Vector<'_, i64> = argmax(arena, &x, [1]);
    assert_eq!(best.as_slice(), [1, 1, 0]);
    assert_eq!(max_all(arena, &x).1.item(), 4);
}

/// Counted before as the class before it: NaN was never larger.
#[test]
fn correct_takes_nan_for_the_largest_logit() {
    let arena = &Arena::new();
    let x = Matrix::from_slice(arena, [2, 3], &[5.0, NAN, 1.0, 1.0, 5.0, 2.0]).unwrap();
    let labels = Vector::from_slice(arena, [2], &[0i64, 1]).unwrap();
    same(correct(arena, &x, &labels).as_slice(), &[0.0, 1.0]);
    assert_eq!(accuracy(arena, &x, &labels).item(), 0.5);
}

/// p xᵖ⁻¹ is 0 · ∞ at x = 0 and p = 0; PyTorch gives 0.
#[test]
fn power_zero_has_no_gradient_at_zero() {
    let gradient = Unary::Power(0.0).gradient(0.0f64, 3.0);
    assert_eq!(gradient, 0.0);
}

/// A strided input was once summed run by run, in another order.
#[test]
fn sum_all_does_not_depend_on_storage() {
    // 3 x 200 elements, of which a box of 3 x 150 in the middle is summed, as a
    // whole value and as one that lies in a wider buffer.
    let data: Vec<f32> = (0..450).map(|i| math::uniform(1, 0, 0, i) as f32 - 0.3).collect();
    let expected = math::sum_slice(&data);
    let arena = &Arena::new();
    let wide = Matrix::from_fn(arena, [3, 200], |[i, j]| {
        if (20..170).contains(&j) { data[i * 150 + j - 20] } else { 9.0 }
    });
    let narrow = wide.slice(1, 20..170);
    let total = dahl::ops::reduce::sum_all(arena, &narrow);
    assert_eq!(total.item().to_bits(), expected.to_bits());
    let both: dahl::tensor::Scalar<'_, f32> = sum(arena, &narrow, [0, 1]);
    assert_eq!(both.item().to_bits(), expected.to_bits());
    // And with the operand itself strided, as a planned buffer may be.
    assert_eq!(strided_sum(&wide).to_bits(), expected.to_bits());
}

#[expect(unsafe_code, reason = "an operand with strides of its own")]
fn strided_sum(wide: &Matrix<'_, f32>) -> f32 {
    use dahl::{Shape, StepScalars};
    use dahl_kernels::Operand;
    let (shape, mut out) = (Shape::new(&[3, 150]), [0f32]);
    let mut strides = shape.strides();
    strides[0] = 200;
    let first = wide.as_slice()[20..].as_ptr().cast_mut().cast();
    // SAFETY: 3 rows of 150 elements, 200 apart, lie in the matrix of 3 x 200;
    // inputs are only read, and nothing else uses `out`.
    unsafe {
        let operands = [
            Operand::from_raw(first, DType::F32, shape, Region::full(&shape), strides),
            Operand::of_slice_mut(&mut out, Shape::scalar()),
        ];
        let piece = Piece { out: Region::full(&Shape::scalar()), sum: 0..0 };
        let step = StepScalars::default();
        let mut call = dahl::ops::Call::new(&operands, 1, &piece, &step, &mut []);
        SumAll { average: Average::No }.run(0, &mut call);
    }
    out[0]
}

/// Blocks are added in the binary tree whose left side is the largest power of
/// two below their number.
#[test]
fn sum_blocks_adds_in_its_tree() {
    fn tree(x: &[f64]) -> f64 {
        match x {
            [x] => *x,
            _ => {
                let (left, right) = x.split_at(x.len().next_power_of_two() / 2);
                tree(left) + tree(right)
            }
        }
    }
    for blocks in 1..70 {
        let data: Vec<f64> = (0..blocks).map(|i| math::uniform(3, 0, 0, i) - 0.4).collect();
        let x = Buffer::from_f64(Meta::new([blocks as usize], DType::F64), &data);
        let mut y = [Buffer::poisoned(Meta::new([], DType::F64), 0)];
        let piece = Piece { out: Region::new(&[]), sum: 0..0 };
        run(&dahl::ops::SumBlocks, 0, &[x], &mut y, &piece);
        assert_eq!(y[0].get(0).to_bits(), tree(&data).to_bits(), "{blocks} blocks");
    }
}

/// The eager function and the recorded op drop the same elements.
#[test]
fn dropout_is_the_same_at_both_levels() {
    let arena = &Arena::new();
    let data: Vec<f64> = (1..13).map(f64::from).collect();
    let params = Dropout { p: 0.5, seed: 11, stream: 4, first: 0 };
    let meta = Meta::new([3, 4], DType::F64);
    let mut y = [Buffer::poisoned(meta, 0)];
    let piece = Piece { out: Region::full(&meta.shape), sum: 0..0 };
    run(&params, 0, &[Buffer::from_f64(meta, &data)], &mut y, &piece);
    let x = Matrix::from_slice(arena, [3, 4], &data).unwrap();
    // The counter of the interpreter's step.
    let eager = dropout(arena, &x, params, 5);
    same(eager.as_slice(), &y[0].to_f64());
    assert!(eager.as_slice().contains(&0.0) && eager.as_slice().iter().any(|&y| y != 0.0));
}

/// Small integers: exact in any order. Groups of one filter and of several, of one
/// channel and of several, and more filters than the direct kernels are for.
#[test]
fn conv2d_against_seven_loops() {
    for [channels, filters, groups] in
        [[4, 2, 2], [4, 6, 2], [4, 4, 4], [3, 6, 3], [3, 20, 1], [2, 3, 1], [20, 20, 1]]
    {
        check_conv2d(channels, filters, groups);
    }
}

fn check_conv2d(channels: usize, filters: usize, groups: usize) {
    let arena = &Arena::new();
    let conv = Conv2d { stride: [2, 1], padding: [1, 2], dilation: [1, 2], groups };
    let x = Tensor::from_fn(arena, [2, channels, 5, 6], |[n, c, i, j]| {
        ((n * 3 + c * 5 + i * 7 + j) % 11) as f64 - 5.0
    });
    let each = channels / groups;
    let w = Tensor::from_fn(arena, [filters, each, 3, 2], |[o, c, k, l]| {
        ((o * 2 + c * 3 + k + l * 5) % 7) as f64 - 3.0
    });
    let y = conv2d(arena, &x, &w, None, conv);
    // (5 + 2 − 3) / 2 + 1 and (6 + 4 − 3) / 1 + 1.
    assert_eq!(y.shape(), [2, filters, 3, 8]);
    for n in 0..2 {
        for o in 0..filters {
            let first = o / (filters / groups) * each;
            for i in 0..3 {
                for j in 0..8 {
                    let mut expected = 0.0;
                    for c in 0..each {
                        for k in 0..3usize {
                            for l in 0..2 {
                                let row = (i * 2 + k).wrapping_sub(1);
                                let column = (j + l * 2usize).wrapping_sub(2);
                                let tap = x.get([n, first + c, row, column]);
                                expected += tap.unwrap_or(&0.0) * w[[o, c, k, l]];
                            }
                        }
                    }
                    assert_eq!(y[[n, o, i, j]], expected, "{n}, {o}, {i}, {j} of {groups}");
                }
            }
        }
    }
}

#[test]
fn softmax_of_large_and_infinite_logits() {
    let arena = &Arena::new();
    let x = Matrix::from_slice(arena, [3, 2], &[1000.0, 1000.0, -INF, 0.0, INF, 0.0]).unwrap();
    same(softmax(arena, &x).as_slice(), &[0.5, 0.5, 0.0, 1.0, NAN, NAN]);
    let half = 0.5f64.ln();
    same(log_softmax(arena, &x).as_slice(), &[half, half, -INF, 0.0, NAN, NAN]);
}

#[test]
fn labels_that_are_no_class_give_nan() {
    let arena = &Arena::new();
    let labels = Vector::from_slice(arena, [3], &[0i64, 2, -1]).unwrap();
    let x = Matrix::full(arena, [3, 2], 1.0f64);
    let losses = cross_entropy(arena, &x, &labels);
    assert!(losses[[0]].is_finite() && losses[[1]].is_nan() && losses[[2]].is_nan());
    let rows: Matrix<'_, f64> = one_hot(arena, &labels, 2);
    same(rows.as_slice(), &[1.0, 0.0, NAN, NAN, NAN, NAN]);
}

#[test]
fn matmul_against_three_loops() {
    let arena = &Arena::new();
    let a = Matrix::from_fn(arena, [3, 4], |[i, j]| (i * 7 + j * 3) as f64 - 5.0);
    let b = Matrix::from_fn(arena, [4, 2], |[i, j]| (i * 2 + j * 5) as f64 - 3.0);
    let c = matmul(arena, &a, &b);
    for i in 0..3 {
        for j in 0..2 {
            // Small integers: exact in any order.
            let expected: f64 = (0..4).map(|k| a[[i, k]] * b[[k, j]]).sum();
            assert_eq!(c[[i, j]], expected, "{i}, {j}");
        }
    }
}

#[test]
fn sum_over_middle_axis() {
    let arena = &Arena::new();
    let x = Block::from_fn(arena, [2, 3, 2], |[i, j, k]| (100 * i + 10 * j + k) as f64);
    // 0 + 10 + 20, and so on.
    let y: Matrix<'_, f64> = sum(arena, &x, [1]);
    assert_eq!(y.as_slice(), [30.0, 33.0, 330.0, 333.0]);
}

/// `clip_grad_norm_([3, 4], [12])` at 6.5: the norm is √(5² + 12²) = 13.
#[test]
fn clip_factor_as_torch() {
    let arena = &Arena::new();
    let a = norm(arena, &vector(arena, &[3.0, -4.0]));
    let b = norm(arena, &vector(arena, &[12.0]));
    let factor = |norms: &[&_], max| clip_factor(arena, norms, max).item();
    assert_eq!(factor(&[&a, &b], 6.5), 6.5 / (13.0 + 1e-6));
    assert_eq!(factor(&[&a, &b], 100.0), 1.0);
    assert_eq!(factor(&[&vector(arena, &[INF]).into_reshaped([])], 1.0), 0.0);
    assert!(factor(&[&vector(arena, &[NAN]).into_reshaped([])], 1.0).is_nan());
}

/// The gradient of equal elements goes to the first of them.
#[test]
fn max_gradient_goes_to_the_first_winner() {
    let mut store = Store::default();
    let mut b = Builder::new(&mut store);
    let x = b.input("x", Meta::new([4], DType::F64));
    let y = b.ops().max(x, &[0]);
    let seed = b.input("seed", Meta::new([], DType::F64));
    let grad = b.backward(&[(y, seed)], &[x])[0].unwrap();
    let graph = b.finish().unwrap();
    let x = Buffer::from_f64(Meta::new([4], DType::F64), &[1.0, 5.0, 5.0, 2.0]);
    let seed = Buffer::from_f64(Meta::new([], DType::F64), &[3.0]);
    let values = super::interpret::interpret(&graph, &[x, seed]);
    same(&values[grad.index()].to_f64(), &[0.0, 3.0, 0.0, 0.0]);
}

/// Pooling nothing and losses over no classes are refused, not run.
#[test]
fn inputs_without_rows_or_classes_are_refused() {
    let x = Meta::new([1, 1, 0, 3], DType::F32);
    let pool = Pool2d { kernel: [2, 2], stride: [1, 1], padding: [1, 1] };
    for op in [&MaxPool2d(pool) as &dyn Op, &AvgPool2d(pool)] {
        let expected = "at least one row and column".into();
        assert_eq!(op.infer(&[x]).unwrap_err().fault.expected, expected);
    }
    let inputs = [Meta::new([2, 0], DType::F32), Meta::new([2], DType::I64)];
    let error = dahl::ops::cross_entropy::CrossEntropy.infer(&inputs).unwrap_err();
    assert_eq!(error.fault.expected, "at least one class".into());
}

/// A view panics outside of its region: the cut tests rely on it.
#[test]
#[should_panic(expected = "is outside of the region")]
fn reading_outside_of_the_declared_region_panics() {
    #[derive(Debug)]
    struct Greedy;
    impl Op for Greedy {
        fn name(&self) -> &'static str {
            "greedy"
        }
        fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, dahl::ops::Mismatch> {
            Ok(inputs.to_vec())
        }
        fn cuts(&self, metas: dahl::ops::Metas<'_>) -> Vec<dahl::ops::Cut> {
            dahl::ops::Cut::everywhere(metas)
        }
        fn regions(&self, _: dahl::ops::Metas<'_>, piece: &Piece) -> Vec<Region> {
            vec![piece.out, piece.out]
        }
        fn flops(&self, _: dahl::ops::Metas<'_>, _: &Piece) -> dahl::units::Flops {
            dahl::units::Flops(0)
        }
        fn run(&self, _: usize, call: &mut dahl::ops::Call<'_>) {
            let (ins, _, _) = call.split();
            ins.get::<f64>(0).at([2]);
        }
    }
    let x = Buffer::from_f64(Meta::new([3], DType::F64), &[1.0, 2.0, 3.0]);
    let piece = Piece { out: Region::new(std::slice::from_ref(&(0..2))), sum: 0..0 };
    run(&Greedy, 0, std::slice::from_ref(&x), &mut [x.clone()], &piece);
}

#[test]
#[should_panic(expected = "matmul: right: expected 3 rows as the left [2, 3] has columns")]
fn shapes_that_do_not_fit_panic() {
    let arena = Arena::new();
    let a = Matrix::full(&arena, [2, 3], 1.0f32);
    matmul(&arena, &a, &a);
}

#[test]
#[should_panic(expected = "add: inputs: expected two tensors of one shape")]
fn in_place_checks_shapes_too() {
    let arena = Arena::new();
    let mut a = Vector::full(&arena, [2], 1.0f32);
    add_in_place(&mut a, &Vector::full(&arena, [1], 1.0f32));
}

#[test]
#[should_panic(expected = "relu: out: expected shape [2], found shape [3]")]
fn outputs_of_another_shape_panic() {
    let arena = Arena::new();
    let x = Vector::full(&arena, [2], 1.0f32);
    relu_into(&x, dahl::ops::Accum::Replace, &mut Vector::zeros(&arena, [3]));
}

/// What lies behind the last window is multiplied by nothing, not by zero.
#[test]
fn a_pixel_that_no_window_sees_is_in_no_gradient() {
    for (kernel, stride) in [(2, 4), (4, 3)] {
        let conv = Conv2d { stride: [stride; 2], groups: 3, ..Conv2d::default() };
        let (x, weight) = (Shape::new(&[1, 3, 9, 9]), Shape::new(&[3, 1, kernel, kernel]));
        let metas = [x, weight].map(|shape| Meta::new(shape, DType::F64));
        let gy = Conv2dForward { conv, rectify: Rectify::No }.infer(&metas).unwrap()[0];
        let seen = (gy.shape[3] - 1) * stride + kernel;
        let pixels: Vec<f64> = (0..3 * 81).map(|i| if i % 9 < seen { 1.0 } else { INF }).collect();
        let inputs = [
            Buffer::from_f64(metas[0], &pixels),
            Buffer::from_f64(gy, &vec![1.0; gy.shape.elements()]),
        ];
        let op = Conv2dBackwardWeight { conv, weight };
        let piece = Piece { out: Region::full(&weight), sum: 0..1 };
        let read = [metas[0], gy];
        let of = Metas { inputs: &read, outputs: &metas[1..] };
        for variant in op.allowed(of, &Target::here()) {
            let mut out = [Buffer::poisoned(metas[1], 0)];
            run(&op, variant, &inputs, &mut out, &piece);
            let places = gy.shape.elements() as f64 / 3.0;
            assert!(out[0].to_f64().iter().all(|g| *g == places), "{}", op.variants()[variant]);
        }
    }
}

/// Where the mean was 10,000 deviations, the variance of `f32` was off by 4.6e-6 of itself,
/// for means of chunks and blocks were rounded; PyTorch's was by 1.5e-8.
#[test]
fn the_variance_is_exact_far_from_zero() {
    let meta = Meta::new([8, 1, 40, 33], DType::F32);
    let count = meta.shape.elements();
    // Uniform in ±0.5, which deviates by 0.29.
    let around = |i: u64| math::uniform(7, 0, 1, i) - 0.5;
    let values: Vec<f64> =
        (0..count as u64).map(|i| f64::from((2887.0 + around(i)) as f32)).collect();
    let mean = values.iter().sum::<f64>() / count as f64;
    let moment: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    let x = Buffer::from_f64(meta, &values);
    let (op, stats) = (Arc::new(BatchNorm2dStats), Meta::new([2, 1], DType::F64));
    let metas = Metas { inputs: &[meta], outputs: &[stats] };
    for variant in 0..op.variants().len() {
        for blocks in [1, 3, 8].map(|count| split(8, count, 1)) {
            let merge = op.merge(metas, &blocks);
            let blocked = Blocked { inner: op.clone(), blocks };
            let partial = blocked.infer(&[meta]).unwrap()[0];
            let mut partials = [Buffer::poisoned(partial, 0)];
            let whole = |shape: &Shape, sum| Piece { out: Region::full(shape), sum: 0..sum };
            run(
                &blocked,
                variant,
                std::slice::from_ref(&x),
                &mut partials,
                &whole(&partial.shape, 8),
            );
            let mut merged = [Buffer::poisoned(stats, 0)];
            run(&*merge, 0, &partials, &mut merged, &whole(&stats.shape, 0));
            let found = merged[0].to_f64();
            let off = |found: f64, expected: f64| ((found - expected) / expected).abs();
            assert!(off(found[0], mean) < 1e-11, "mean {} of {mean}", found[0]);
            assert!(off(found[1], moment) < 1e-9, "moment {} of {moment}", found[1]);
        }
    }
}
