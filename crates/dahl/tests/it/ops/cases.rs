//! The table of cases: small programs of one op each, at odd shapes.

use super::interpret::Buffer;
use dahl::graph::{Builder, Graph, Store};
use dahl::ops::batch_norm2d::{
    BatchNorm2dApply, BatchNorm2dFinish, BatchNorm2dStats, BatchNorm2dTrack, BatchNorm2dTracked,
    Residual, Statistics,
};
use dahl::ops::conv2d::{Conv2d, Conv2dBackwardWeight, Conv2dForward, Rectify};
use dahl::ops::conv2d_max_pool2d::Conv2dMaxPool2d;
use dahl::ops::copy::Assign;
use dahl::ops::elementwise::{Dropout, Unary};
use dahl::ops::linear::LinearBackwardWeight;
use dahl::ops::matmul::{Bmm, Matmul, Matvec, Side};
use dahl::ops::optim::{Adam, CountUpdate, Decay, Sgd};
use dahl::ops::pool::Pool2d;
use dahl::ops::updated::Updated;
use dahl::ops::{Meta, Metas, Op, Recorder, Var};
use dahl::{DType, Shape};
use dahl_kernels::math::uniform;
use std::sync::Arc;

/// What an input is filled with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    /// Different values in (−2, 2).
    Signed,
    /// Different values in (0.2, 2.2).
    Positive,
    /// Labels below a number of classes.
    Labels(usize),
    /// The flag 1.
    Ok,
    /// A count.
    Count,
    /// As `Positive`, in `f64` whatever the others are.
    Statistics,
}

pub(crate) struct Input {
    pub(crate) fill: Fill,
    pub(crate) shape: Vec<usize>,
}

pub(crate) fn signed(shape: &[usize]) -> Input {
    Input { fill: Fill::Signed, shape: shape.to_vec() }
}

pub(crate) fn positive(shape: &[usize]) -> Input {
    Input { fill: Fill::Positive, shape: shape.to_vec() }
}

pub(crate) fn labels(n: usize, classes: usize) -> Input {
    Input { fill: Fill::Labels(classes), shape: vec![n] }
}

type Build = Box<dyn Fn(&mut dyn Recorder, &[Var]) -> Option<Var>>;

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) inputs: Vec<Input>,
    /// Records the op; the result, if it has a gradient.
    pub(crate) build: Build,
}

/// A case as a program with its gradients, and values for its inputs.
pub(crate) struct Program {
    pub(crate) graph: Graph,
    pub(crate) inputs: Vec<Buffer>,
    /// The result, the seed of its gradient, and the gradient of each input.
    pub(crate) gradients: Option<(Var, usize, Vec<Option<Var>>)>,
}

impl Case {
    pub(crate) fn program(&self, dtype: DType) -> Program {
        let mut store = Store::default();
        let mut b = Builder::new(&mut store);
        let mut inputs = Vec::new();
        let vars: Vec<Var> = self
            .inputs
            .iter()
            .enumerate()
            .map(|(i, input)| {
                let buffer = filled(input.fill, &input.shape, dtype, i as u32);
                let var = b.input(&format!("x{i}"), buffer.meta);
                inputs.push(buffer);
                var
            })
            .collect();
        let out = (self.build)(b.ops(), &vars);
        let gradients = out.map(|out| {
            let meta = b.ops().meta(out);
            let seed = b.input("seed", meta);
            inputs.push(filled(Fill::Signed, meta.shape.axes(), dtype, 99));
            let wrt: Vec<Var> = vars
                .iter()
                .zip(&self.inputs)
                .filter(|(_, i)| matches!(i.fill, Fill::Signed | Fill::Positive))
                .map(|(&v, _)| v)
                .collect();
            let grads = b.backward(&[(out, seed)], &wrt);
            let mut grads = grads.into_iter();
            let per_input = self
                .inputs
                .iter()
                .map(|i| match i.fill {
                    Fill::Signed | Fill::Positive => grads.next().flatten(),
                    _ => None,
                })
                .collect();
            (out, inputs.len() - 1, per_input)
        });
        let graph = b.finish().unwrap_or_else(|e| panic!("{}: {e}", self.name));
        Program { graph, inputs, gradients }
    }
}

pub(crate) fn filled(fill: Fill, shape: &[usize], dtype: DType, stream: u32) -> Buffer {
    let dtype = match fill {
        Fill::Signed | Fill::Positive => dtype,
        Fill::Labels(_) | Fill::Count => DType::I64,
        Fill::Ok => DType::U8,
        Fill::Statistics => DType::F64,
    };
    let meta = Meta::new(shape, dtype);
    let data: Vec<f64> = (0..meta.shape.elements())
        .map(|i| {
            let r = uniform(7, stream, 1, i as u64);
            match fill {
                Fill::Signed => 4.0 * r - 2.0,
                Fill::Positive | Fill::Statistics => 2.0 * r + 0.2,
                Fill::Labels(classes) => (r * classes as f64).floor(),
                Fill::Ok => 1.0,
                Fill::Count => 4.0,
            }
        })
        .collect();
    Buffer::from_f64(meta, &data)
}

fn case(
    name: impl Into<String>,
    inputs: Vec<Input>,
    build: impl Fn(&mut dyn Recorder, &[Var]) -> Var + 'static,
) -> Case {
    let build: Build = Box::new(move |g, v| Some(build(g, v)));
    Case { name: name.into(), inputs, build }
}

fn without_gradient(
    name: impl Into<String>,
    inputs: Vec<Input>,
    build: impl Fn(&mut dyn Recorder, &[Var]) + 'static,
) -> Case {
    let build: Build = Box::new(move |g, v| {
        build(g, v);
        None
    });
    Case { name: name.into(), inputs, build }
}

/// A convolution with a bias.
pub(crate) fn conv2d_case(x: [usize; 4], w: [usize; 4], conv: Conv2d) -> Case {
    let inputs = vec![signed(&x), signed(&w), signed(&[w[0]])];
    case(format!("conv2d {x:?} {w:?} {conv:?}"), inputs, move |g, v| {
        g.conv2d(v[0], v[1], Some(v[2]), conv)
    })
}

/// A fully connected layer: samples, features, outputs.
pub(crate) fn linear_case([m, k, n]: [usize; 3]) -> Case {
    let inputs = vec![signed(&[m, k]), signed(&[n, k]), signed(&[n])];
    case(format!("linear {m} {k} {n}"), inputs, |g, v| g.linear(v[0], v[1], Some(v[2])))
}

/// A convolution, a relu and the largest values of windows as one op.
pub(crate) fn conv2d_max_pool2d_case(x: [usize; 4], w: [usize; 4], op: Conv2dMaxPool2d) -> Case {
    let inputs = vec![signed(&x), signed(&w), signed(&w[..1])];
    case(format!("{x:?} {w:?} {op:?}"), inputs, move |g, v| g.one(op, &[v[0], v[1], v[2]]))
}

/// The largest values of windows.
pub(crate) fn max_pool2d_case(x: [usize; 4], pool: Pool2d) -> Case {
    let name = format!("max_pool2d {x:?} {pool:?}");
    case(name, vec![signed(&x)], move |g, v| g.max_pool2d(v[0], pool))
}

/// The means of windows.
pub(crate) fn avg_pool2d_case(x: [usize; 4], pool: Pool2d) -> Case {
    let name = format!("avg_pool2d {x:?} {pool:?}");
    case(name, vec![signed(&x)], move |g, v| g.avg_pool2d(v[0], pool))
}

/// Sums of everything but the second axis.
pub(crate) fn sum_channels_case(x: &[usize]) -> Case {
    without_gradient(format!("sum_channels {x:?}"), vec![signed(x)], |g, v| {
        g.sum_channels(v[0]);
    })
}

/// Normalisations by batch and by tracked statistics, and what they are fused with.
pub(crate) fn batch_norm2d_cases(x: [usize; 4]) -> Vec<Case> {
    let c = [x[1]];
    let affine = || vec![signed(&x), signed(&c), signed(&c)];
    // Tracked statistics have no gradient: they are made from labels.
    let tracked = || affine().into_iter().chain([positive(&c), positive(&c)]).collect();
    let mut cases = vec![
        case(format!("batch_norm2d {x:?}"), affine(), |g, v| {
            g.batch_norm2d(v[0], v[1], v[2], 1e-3).output
        }),
        case(format!("batch_norm2d_eval {x:?}"), tracked(), |g, v| {
            g.batch_norm2d_eval(v[0], [v[3], v[4]], [v[1], v[2]], 1e-3)
        }),
    ];
    for (residual, rectify) in [
        (Residual::No, Rectify::Relu),
        (Residual::Add, Rectify::No),
        (Residual::Add, Rectify::Relu),
    ] {
        let added = move || (residual == Residual::Add).then(|| signed(&x));
        let of = move |g: &mut dyn Recorder, norm: Var, v: &[Var], statistics| {
            let op = BatchNorm2dApply { statistics, residual, rectify };
            let inputs = [v[0], norm, v[1], v[2]].into_iter().chain(v.get(3).copied());
            g.apply(Arc::new(op), &inputs.collect::<Vec<_>>())[0]
        };
        let inputs = affine().into_iter().chain(added()).collect();
        let name = format!("batch_norm2d {residual:?} {rectify:?} {x:?}");
        cases.push(case(name, inputs, move |g, v| {
            let stats = g.one(BatchNorm2dStats, &[v[0]]);
            let count = x[0] * x[2] * x[3];
            let dtype = g.meta(v[0]).dtype;
            let norm = g.one(BatchNorm2dFinish { count, eps: 1e-3, dtype }, &[stats]);
            of(g, norm, v, Statistics::Batch)
        }));
        let inputs: Vec<Input> = tracked();
        let name = format!("batch_norm2d_eval {residual:?} {rectify:?} {x:?}");
        cases.push(case(name, inputs.into_iter().chain(added()).collect(), move |g, v| {
            let norm = g.one(BatchNorm2dTracked { eps: 1e-3 }, &[v[3], v[4]]);
            let v: Vec<Var> = [v[0], v[1], v[2]].into_iter().chain(v.get(5).copied()).collect();
            of(g, norm, &v, Statistics::Tracked)
        }));
    }
    cases
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = elementwise();
    cases.extend(images());
    cases.extend(matrices());
    cases.extend(reductions());
    cases.extend(updates());
    cases.extend(fused_updates());
    cases
}

fn elementwise() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in [&[][..], &[1], &[0, 3], &[3, 1, 2], &[2, 3, 5, 3]] {
        for f in [
            Unary::Copy,
            Unary::Fill(3.0),
            Unary::Neg,
            Unary::Exp,
            Unary::Round,
            Unary::Power(2.0),
            Unary::Power(3.0),
            Unary::Power(0.0),
            Unary::Power(1.0),
            Unary::Clip(-0.5, 0.7),
            Unary::AddScalar(0.3),
            Unary::SubScalar(0.3),
            Unary::Scale(-1.7),
            Unary::DivScalar(3.0),
            Unary::Relu,
            Unary::LeakyRelu(0.1),
            Unary::Sigmoid,
            Unary::Tanh,
            Unary::Gelu,
        ] {
            cases.push(case(format!("{f:?} {shape:?}"), vec![signed(shape)], move |g, v| {
                g.unary(f, v[0])
            }));
        }
        for f in [Unary::Log, Unary::Sqrt, Unary::Power(0.5), Unary::Power(-1.5)] {
            cases.push(case(format!("{f:?} {shape:?}"), vec![positive(shape)], move |g, v| {
                g.unary(f, v[0])
            }));
        }
        let two = || vec![signed(shape), positive(shape)];
        cases.push(case(format!("add {shape:?}"), two(), |g, v| g.add(v[0], v[1])));
        cases.push(case(format!("sub {shape:?}"), two(), |g, v| g.sub(v[0], v[1])));
        cases.push(case(format!("mul {shape:?}"), two(), |g, v| g.mul(v[0], v[1])));
        cases.push(case(format!("div {shape:?}"), two(), |g, v| g.div(v[0], v[1])));
        cases.push(case(format!("mse {shape:?}"), two(), |g, v| g.mse(v[0], v[1])));
        let scaled = vec![signed(shape), signed(&[])];
        cases.push(case(format!("scale_by {shape:?}"), scaled, |g, v| g.scale_by(v[0], v[1])));
        let dropout = Dropout { p: 0.4, seed: 3, stream: 2, first: 0 };
        cases.push(case(format!("dropout {shape:?}"), vec![signed(shape)], move |g, v| {
            g.dropout(v[0], dropout)
        }));
    }
    cases
}

fn images() -> Vec<Case> {
    let mut cases = Vec::new();
    let plain = Conv2d::default();
    for (x, w, conv) in [
        ([2, 3, 5, 4], [4, 3, 3, 2], plain),
        ([1, 1, 1, 1], [1, 1, 1, 1], plain),
        ([0, 2, 3, 3], [3, 2, 2, 2], plain),
        ([2, 0, 3, 3], [3, 0, 2, 2], plain),
        ([2, 2, 3, 3], [0, 2, 2, 2], plain),
        ([3, 2, 7, 6], [3, 2, 3, 3], Conv2d { stride: [2, 3], padding: [1, 2], ..plain }),
        ([2, 2, 7, 9], [2, 2, 2, 3], Conv2d { dilation: [2, 3], padding: [1, 3], ..plain }),
        ([2, 4, 5, 5], [6, 2, 3, 3], Conv2d { groups: 2, padding: [1, 1], ..plain }),
        (
            [3, 3, 4, 4],
            [3, 1, 3, 3],
            Conv2d { groups: 3, padding: [1, 1], stride: [2, 1], ..plain },
        ),
        ([1, 1, 2, 3], [2, 1, 1, 1], Conv2d { stride: [3, 2], padding: [2, 2], ..plain }),
    ] {
        let name = |op: &str| format!("{op} {x:?} {w:?} {conv:?}");
        let inputs = || vec![signed(&x), signed(&w), signed(&[w[0]])];
        cases.push(conv2d_case(x, w, conv));
        cases.push(case(name("conv2d without bias"), vec![signed(&x), signed(&w)], move |g, v| {
            g.conv2d(v[0], v[1], None, conv)
        }));
        cases.push(case(name("conv2d_relu"), inputs(), move |g, v| {
            g.one(Conv2dForward { conv, rectify: Rectify::Relu }, &[v[0], v[1], v[2]])
        }));
    }
    for (x, w, conv, pool) in [
        ([2, 1, 9, 9], [4, 1, 3, 3], Conv2d::default(), Pool2d::tiles([2, 2])),
        (
            [1, 3, 8, 11],
            [7, 3, 3, 2],
            Conv2d { padding: [1, 1], ..Conv2d::default() },
            Pool2d::tiles([3, 2]),
        ),
        (
            [3, 2, 7, 21],
            [13, 2, 1, 9],
            Conv2d { padding: [0, 4], ..Conv2d::default() },
            Pool2d { kernel: [2, 3], stride: [1, 2], padding: [0, 0] },
        ),
        (
            [2, 3, 12, 10],
            [5, 3, 3, 3],
            Conv2d { stride: [2, 1], padding: [2, 1], ..Conv2d::default() },
            Pool2d::tiles([2, 2]),
        ),
        ([1, 1, 1, 1], [1, 1, 1, 1], Conv2d::default(), Pool2d::tiles([1, 1])),
        ([0, 1, 4, 4], [2, 1, 3, 3], Conv2d::default(), Pool2d::tiles([2, 2])),
    ] {
        for rectify in [Rectify::No, Rectify::Relu] {
            cases.push(conv2d_max_pool2d_case(x, w, Conv2dMaxPool2d { conv, rectify, pool }));
        }
    }
    for (x, pool) in [
        ([2, 3, 4, 6], Pool2d::tiles([2, 3])),
        ([1, 1, 1, 1], Pool2d::tiles([1, 1])),
        ([0, 3, 4, 4], Pool2d::tiles([2, 2])),
        ([2, 1, 7, 5], Pool2d { kernel: [3, 3], stride: [2, 1], padding: [1, 1] }),
        ([1, 3, 5, 7], Pool2d { kernel: [2, 1], stride: [3, 3], padding: [1, 0] }),
        ([1, 2, 3, 3], Pool2d { kernel: [3, 2], stride: [1, 2], padding: [1, 1] }),
    ] {
        let name = |op: &str| format!("{op} {x:?} {pool:?}");
        cases.push(max_pool2d_case(x, pool));
        cases.push(avg_pool2d_case(x, pool));
        cases.push(case(name("global_avg_pool2d"), vec![signed(&x)], |g, v| {
            g.global_avg_pool2d(v[0])
        }));
    }
    for x in [[2, 3, 4, 3], [3, 1, 1, 1], [1, 2, 3, 1], [5, 0, 2, 2], [7, 3, 1, 5]] {
        cases.extend(batch_norm2d_cases(x));
    }
    cases
}

fn matrices() -> Vec<Case> {
    let mut cases = Vec::new();
    let sides = [Side::Plain, Side::Transposed];
    for [m, k, n] in [[3, 4, 2], [1, 1, 1], [0, 3, 2], [2, 0, 3], [3, 130, 2]] {
        for left in sides {
            for right in sides {
                let (a, b) = (left.order([m, k]), right.order([k, n]));
                let name = format!("{left:?} {right:?} {m} {k} {n}");
                let inputs = vec![signed(&a), signed(&b)];
                cases.push(case(format!("matmul {name}"), inputs, move |g, v| {
                    g.one(Matmul([left, right]), &[v[0], v[1]])
                }));
                let inputs = vec![signed(&[3, a[0], a[1]]), signed(&[3, b[0], b[1]])];
                cases.push(case(format!("bmm {name}"), inputs, move |g, v| {
                    g.one(Bmm([left, right]), &[v[0], v[1]])
                }));
            }
            let inputs = vec![signed(&left.order([m, k])), signed(&[k])];
            cases.push(case(format!("matvec {left:?} {m} {k}"), inputs, move |g, v| {
                g.one(Matvec(left), &[v[0], v[1]])
            }));
        }
        let two = vec![signed(&[m]), signed(&[n])];
        cases.push(case(format!("outer {m} {n}"), two, |g, v| g.outer(v[0], v[1])));
        let two = vec![signed(&[k]), signed(&[k])];
        cases.push(case(format!("dot {k}"), two, |g, v| g.dot(v[0], v[1])));
        cases.push(linear_case([m, k, n]));
        let x = || vec![signed(&[m, k])];
        cases.push(case(format!("softmax {m} {k}"), x(), |g, v| g.softmax(v[0])));
        cases.push(case(format!("log_softmax {m} {k}"), x(), |g, v| g.log_softmax(v[0])));
        if k > 0 {
            let inputs = || vec![signed(&[m, k]), labels(m, k)];
            cases.push(case(format!("cross_entropy {m} {k}"), inputs(), |g, v| {
                g.cross_entropy(v[0], v[1])
            }));
            cases.push(without_gradient(format!("correct {m} {k}"), inputs(), |g, v| {
                g.correct(v[0], v[1]);
            }));
        }
        for dtype in [DType::F32, DType::F64] {
            let name = format!("one_hot {dtype} {m} {n}");
            cases.push(without_gradient(name, vec![labels(m, n)], move |g, v| {
                g.one_hot(v[0], n, dtype);
            }));
        }
    }
    for (shape, axes) in [
        (&[3, 2][..], &[1, 0][..]),
        (&[2, 3, 4], &[2, 0, 1]),
        (&[2, 0, 4], &[1, 2, 0]),
        (&[2, 3, 1, 2, 3], &[4, 2, 0, 3, 1]),
        (&[], &[]),
    ] {
        cases.push(case(format!("permute {shape:?} {axes:?}"), vec![signed(shape)], |g, v| {
            g.permute(v[0], axes)
        }));
    }
    cases
}

fn reductions() -> Vec<Case> {
    let mut cases = Vec::new();
    for (shape, axes) in [
        (&[3][..], &[0][..]),
        (&[3, 4], &[1]),
        (&[3, 4], &[0]),
        (&[3, 4], &[1, 0]),
        (&[2, 3, 4, 3], &[0, 2, 3]),
        (&[2, 3, 4, 3], &[1, 3]),
        (&[2, 3, 4, 3], &[2, 3]),
        (&[2, 3], &[]),
        (&[0, 3], &[1]),
        (&[1, 1, 1], &[0, 2]),
        (&[2, 300], &[1]),
    ] {
        let name = |op: &str| format!("{op} {shape:?} over {axes:?}");
        let x = || vec![signed(shape)];
        cases.push(case(name("sum"), x(), |g, v| g.sum(v[0], axes)));
        cases.push(case(name("mean"), x(), |g, v| g.mean(v[0], axes)));
        cases.push(case(name("min"), x(), |g, v| g.min(v[0], axes)));
        cases.push(case(name("max"), x(), |g, v| g.max(v[0], axes)));
        cases.push(without_gradient(name("argmax"), x(), |g, v| {
            g.argmax(v[0], axes);
        }));
    }
    cases.push(case("sum of nothing", vec![signed(&[3, 0])], |g, v| g.sum(v[0], &[1])));
    for shape in [&[][..], &[1], &[3, 0], &[3, 5, 2], &[200, 3]] {
        let x = || vec![signed(shape)];
        cases.push(case(format!("sum_all {shape:?}"), x(), |g, v| g.sum_all(v[0])));
        cases.push(case(format!("mean_all {shape:?}"), x(), |g, v| g.mean_all(v[0])));
        cases.push(case(format!("norm {shape:?}"), x(), |g, v| g.norm(v[0])));
        cases.push(case(format!("flatten {shape:?}"), x(), |g, v| g.flatten(v[0])));
    }
    for shape in [&[3, 2][..], &[0, 2], &[5, 3, 2, 4], &[1, 1, 1, 1], &[2, 3, 0, 2]] {
        cases.push(sum_channels_case(shape));
    }
    let norms = vec![positive(&[]), positive(&[]), positive(&[])];
    cases.push(without_gradient("clip_factor", norms, |g, v| {
        g.clip_factor(v, 1.5);
    }));
    for fill in [Fill::Signed, Fill::Labels(3), Fill::Ok] {
        let x = vec![Input { fill, shape: vec![3, 2] }];
        cases.push(without_gradient(format!("clone {fill:?}"), x, |g, v| {
            g.clone_of(v[0]);
        }));
    }
    cases.push(without_gradient("assign", vec![signed(&[5, 2]), signed(&[5, 2])], |g, v| {
        g.update(Arc::new(Assign), &v[..1], &v[1..]);
    }));
    cases.push(without_gradient("slice", vec![signed(&[5, 2])], |g, v| {
        let part = g.slice(v[0], 1..4);
        g.relu(part);
    }));
    cases.push(without_gradient("constant", vec![], |g, _| {
        g.constant(Meta::new([3, 1, 2], DType::F32), 1.5);
        g.constant(Meta::new([], DType::I64), 4.0);
    }));
    cases.push(without_gradient("is_finite", vec![signed(&[])], |g, v| {
        g.is_finite(v[0]);
    }));
    cases
}

fn updates() -> Vec<Case> {
    let ok = || Input { fill: Fill::Ok, shape: vec![] };
    let mut cases = Vec::new();
    for shape in [&[][..], &[3], &[0, 2], &[3, 2, 1, 5]] {
        for momentum in [0.0, 0.9] {
            for nesterov in [false, true] {
                let sgd =
                    Sgd { momentum, dampening: 0.1, weight_decay: 0.01, nesterov, maximize: false };
                let count = Input { fill: Fill::Count, shape: vec![] };
                let mut inputs = vec![signed(shape), ok(), count, signed(&[])];
                inputs.extend([signed(shape), signed(shape)]);
                cases.push(without_gradient(format!("{sgd:?} {shape:?}"), inputs, move |g, v| {
                    let outputs = if momentum == 0.0 { &v[4..5] } else { &v[4..6] };
                    g.update(Arc::new(sgd), &v[..4], outputs);
                }));
            }
        }
        for (decay, amsgrad) in [(Decay::Gradient, false), (Decay::Parameter, true)] {
            let adam = Adam {
                betas: [0.9, 0.99],
                eps: 1e-8,
                weight_decay: 0.01,
                decay,
                amsgrad,
                maximize: true,
            };
            let count = Input { fill: Fill::Count, shape: vec![] };
            let mut inputs = vec![signed(shape), ok(), count, signed(shape), signed(shape)];
            inputs.extend([positive(shape), positive(shape)]);
            cases.push(without_gradient(format!("{adam:?} {shape:?}"), inputs, move |g, v| {
                let outputs = if amsgrad { &v[3..7] } else { &v[3..6] };
                g.update(Arc::new(adam), &v[..3], outputs);
            }));
        }
    }
    let inputs = vec![ok(), Input { fill: Fill::Count, shape: vec![] }];
    cases.push(without_gradient("count_update", inputs, |g, v| {
        g.update(Arc::new(CountUpdate), &v[..1], &v[1..2]);
    }));
    let inputs = vec![
        Input { fill: Fill::Statistics, shape: vec![2, 3] },
        ok(),
        signed(&[3]),
        positive(&[3]),
        Input { fill: Fill::Count, shape: vec![] },
    ];
    cases.push(without_gradient("batch_norm2d_track", inputs, |g, v| {
        let dtype = g.meta(v[2]).dtype;
        let track = BatchNorm2dTrack { count: 10, momentum: 0.1, dtype };
        g.update(Arc::new(track), &v[..2], &v[2..5]);
    }));
    cases
}

/// A gradient of two inputs and the update that follows it as one op.
pub(crate) fn updated_case(
    gradient: impl Op,
    update: impl Op,
    [a, b]: [&[usize]; 2],
    weight: &[usize],
) -> Case {
    let (gradient, update): (Arc<dyn Op>, Arc<dyn Op>) = (Arc::new(gradient), Arc::new(update));
    let name = format!("{gradient:?} {a:?} {b:?} {update:?}");
    let ok = Input { fill: Fill::Ok, shape: vec![] };
    let count = Input { fill: Fill::Count, shape: vec![] };
    let states = (0..update.outputs()).map(|_| positive(weight));
    let inputs = [signed(a), signed(b), ok, count].into_iter().chain(states).collect();
    without_gradient(name, inputs, move |g, v| {
        let metas = [g.meta(v[0]), g.meta(v[1])];
        let outputs = gradient.infer(&metas).unwrap();
        let metas = Metas { inputs: &metas, outputs: &outputs };
        let op = Updated::fused(&gradient, metas, &update).unwrap();
        g.update(Arc::new(op), &v[..4], &v[4..]);
    })
}

fn fused_updates() -> Vec<Case> {
    let mut cases = Vec::new();
    let sgd = |momentum| Sgd {
        momentum,
        dampening: 0.1,
        weight_decay: 0.01,
        nesterov: false,
        maximize: false,
    };
    let adam = Adam {
        betas: [0.9, 0.99],
        eps: 1e-8,
        weight_decay: 0.01,
        decay: Decay::Parameter,
        amsgrad: false,
        maximize: false,
    };
    for [n, i, o] in [[5, 7, 4], [1, 1, 1], [0, 3, 2], [3, 0, 2], [2, 40, 101]] {
        let (inputs, weight) = ([&[n, i][..], &[n, o]], [o, i]);
        cases.push(updated_case(LinearBackwardWeight, sgd(0.0), inputs, &weight));
        cases.push(updated_case(LinearBackwardWeight, sgd(0.9), inputs, &weight));
        cases.push(updated_case(LinearBackwardWeight, adam, inputs, &weight));
    }
    let conv = Conv2d { padding: [1, 1], ..Conv2d::default() };
    let weight = [4, 3, 3, 3];
    let gradient = Conv2dBackwardWeight { conv, weight: Shape::new(&weight) };
    let inputs = [&[2, 3, 5, 6][..], &[2, 4, 5, 6]];
    cases.push(updated_case(gradient, sgd(0.9), inputs, &weight));
    cases.push(updated_case(gradient, adam, inputs, &weight));
    // Whatever is made may be followed by an update, also where a variant is two ops.
    let forward = Conv2dForward { conv, rectify: Rectify::No };
    let inputs = [&[2, 3, 5, 6][..], &[4, 3, 3, 3]];
    cases.push(updated_case(forward, sgd(0.0), inputs, &[2, 4, 5, 6]));
    cases
}
