//! Pieces: an op run piece by piece gives the bits of the whole.

use super::cases::{
    Case, avg_pool2d_case, cases, conv2d_case, conv2d_max_pool2d_case, linear_case, max_pool2d_case,
};
use super::gradients::check_gradients;
use super::interpret::{Buffer, interpret, metas, run};
use dahl::ops::conv2d::{Conv2d, Rectify};
use dahl::ops::conv2d_max_pool2d::Conv2dMaxPool2d;
use dahl::ops::pool::Pool2d;
use dahl::ops::{
    Access, Accuracy, Blocked, Cut, Expansion, MergeShards, Meta, Metas, Op, Piece, Target, split,
};
use dahl::{DType, Region};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One way to run an op in pieces: the cuts and how many ranges each makes.
type Way = Vec<(Cut, usize)>;

/// The elements of results beyond which fewer ways are tried.
const LARGE: usize = 1000;

fn ways(cuts: &[Cut], out: &Region) -> Vec<Way> {
    let mut ways: Vec<Way> = Vec::new();
    if out.elements() > LARGE {
        return cuts.iter().flat_map(|&cut| [vec![(cut, 2)], vec![(cut, 3)]]).collect();
    }
    for &cut in cuts {
        for count in [2, 3, out.len(cut.axis)] {
            ways.push(vec![(cut, count)]);
        }
    }
    for (i, &a) in cuts.iter().enumerate() {
        for &b in &cuts[i + 1..] {
            ways.push(vec![(a, 2), (b, 3)]);
            ways.push(vec![(a, out.len(a.axis)), (b, out.len(b.axis))]);
        }
    }
    ways
}

fn pieces(whole: &Piece, way: &Way) -> Vec<Piece> {
    let mut pieces = vec![whole.clone()];
    for &(cut, count) in way {
        let ranges = split(whole.out.len(cut.axis), count, cut.align);
        pieces = pieces
            .iter()
            .flat_map(|piece| {
                ranges.iter().map(|range| Piece {
                    out: piece.out.with(cut.axis, range.clone()),
                    sum: piece.sum.clone(),
                })
            })
            .collect();
    }
    pieces
}

/// Runs an op whole and in every way it offers; the whole's outputs.
fn check(name: &str, op: &dyn Op, inputs: &[Buffer], outputs: &[Buffer]) -> Vec<Buffer> {
    let (ins, outs) = (metas(inputs), metas(outputs));
    let metas = Metas { inputs: &ins, outputs: &outs };
    let out = Region::full(&metas.out());
    let whole = Piece { out, sum: 0..op.summed(metas).unwrap_or(0) };
    let start = |poison: u8| -> Vec<Buffer> {
        let fresh = |(i, b): (usize, &Buffer)| match op.access(i) {
            Access::Write => Buffer::poisoned(b.meta, poison),
            Access::Update => b.clone(),
        };
        outputs.iter().enumerate().map(fresh).collect()
    };
    let mut plain = start(0xAA);
    run(op, 0, inputs, &mut plain, &whole);
    for variant in op.allowed(metas, &any_target()) {
        if let Some(Expansion { input, prepare, op: then }) = op.expand(variant, metas) {
            let prepared = prepare.infer(&ins[input..=input]).unwrap()[0];
            let prepared = [Buffer::poisoned(prepared, 0)];
            let prepared = check(name, &*prepare, &inputs[input..=input], &prepared);
            let mut inputs = inputs.to_vec();
            inputs[input] = prepared.into_iter().next().unwrap();
            let found = check(name, &*then, &inputs, outputs);
            near(name, (op, variant, &ins), &plain, &found);
            continue;
        }
        let mut expected = start(0xAA);
        run(op, variant, inputs, &mut expected, &whole);
        near(name, (op, variant, &ins), &plain, &expected);
        for way in ways(&op.cuts(metas), &out) {
            let mut found = start(0x55);
            let pieces = pieces(&whole, &way);
            disjoint(name, op, metas, &pieces);
            // Last piece first: the order must not matter.
            for piece in pieces.iter().rev() {
                run(op, variant, inputs, &mut found, piece);
            }
            for (e, f) in expected.iter().zip(&found) {
                assert!(
                    e.bytes() == f.bytes(),
                    "{name}: {} in {way:?}: {e:?}, not {f:?}",
                    op.name()
                );
            }
        }
    }
    plain
}

/// Every variant, whatever its accuracy.
fn any_target() -> Target {
    Target { accuracy: Some(Accuracy::Fast), ..Target::here() }
}

/// What results are exact to: statistics of `f32` are `f64`, but no better.
fn exact_to(inputs: &[Meta], result: DType) -> DType {
    let narrow = inputs.iter().any(|meta| meta.dtype == DType::F32);
    if narrow && result == DType::F64 { DType::F32 } else { result }
}

/// A tuned variant gives what the plain one gives, but for rounding.
fn near(
    name: &str,
    (op, variant, ins): (&dyn Op, usize, &[Meta]),
    plain: &[Buffer],
    tuned: &[Buffer],
) {
    for (plain, tuned) in plain.iter().zip(tuned) {
        let factor = if op.variants()[variant] == "winograd4" { 20.0 } else { 1.0 };
        let tolerance = match exact_to(ins, plain.meta.dtype) {
            DType::F64 => 1e-13 * factor,
            DType::F32 => 1e-5 * factor,
            _ => 0.0,
        };
        let (plain, tuned) = (plain.to_f64(), tuned.to_f64());
        let largest = plain.iter().fold(1.0f64, |m, x| m.max(x.abs()));
        for (i, (p, t)) in plain.iter().zip(&tuned).enumerate() {
            let near = (p - t).abs() <= tolerance * largest || (p.is_nan() && t.is_nan()) || p == t;
            let variant = op.variants()[variant];
            assert!(near, "{name}: {} {variant} gives {t} at {i}, plain {p}", op.name());
        }
    }
}

/// Every element of every output is in the box of just one piece: no two have one in common,
/// and together they have as many as the output.
fn disjoint(name: &str, op: &dyn Op, metas: Metas<'_>, pieces: &[Piece]) {
    let regions: Vec<_> = pieces.iter().map(|piece| op.regions(metas, piece)).collect();
    for (o, meta) in metas.outputs.iter().enumerate() {
        let of: Vec<Region> = regions.iter().map(|all| all[metas.inputs.len() + o]).collect();
        for (i, region) in of.iter().enumerate() {
            assert!(Region::full(&meta.shape).contains(region), "{name}: {region}");
            let twice = of[..i].iter().find(|other| other.overlaps(region));
            assert!(twice.is_none(), "{name}: {} output {o}: {region} and {twice:?}", op.name());
        }
        let written: usize = of.iter().map(Region::elements).sum();
        assert_eq!(written, meta.shape.elements(), "{name}: {} output {o}: {of:?}", op.name());
    }
}

/// Partial sums over blocks, in every grouping, and merged.
fn check_blocks(name: &str, op: &Arc<dyn Op>, inputs: &[Buffer], whole: &Buffer) {
    let (ins, outs) = (metas(inputs), [whole.meta]);
    let metas = Metas { inputs: &ins, outputs: &outs };
    let Some(length) = op.summed(metas) else { return };
    for count in [2, 3, length] {
        let blocks = split(length, count, 1);
        if blocks.len() < 2 {
            continue;
        }
        let merge = op.merge(metas, &blocks);
        let blocked = Blocked { inner: op.clone(), blocks };
        let partial = blocked.infer(&ins).unwrap()[0];
        let name = format!("{name}: {count} blocks");
        let partials = check(&name, &blocked, inputs, &[Buffer::poisoned(partial, 0)]);
        let merged = check(&name, &*merge, &partials, std::slice::from_ref(whole));
        assert_near(&name, &**op, &ins, &merged[0], whole);
    }
}

/// Partial sums over the blocks of two shards, merged within each and then together.
fn check_shards(name: &str, op: &Arc<dyn Op>, inputs: &[Buffer], whole: &Buffer) {
    let (ins, outs) = (metas(inputs), [whole.meta]);
    let metas = Metas { inputs: &ins, outputs: &outs };
    let Some(length) = op.summed(metas).filter(|&n| n > 2 && op.sums_samples()) else { return };
    let shards = [0..length - 1, length - 1..length];
    let first = split(length - 1, 2, 1);
    let blocks = [&first[..], &shards[1..]].concat();
    let within = [&first[..], &shards[1..]].map(|blocks| (op.merge(metas, blocks), blocks.len()));
    let merge = MergeShards::new(within.to_vec());
    let blocked = Blocked { inner: op.clone(), blocks };
    let name = format!("{name}: shards");
    let partial = blocked.infer(&ins).unwrap()[0];
    let partials = check(&name, &blocked, inputs, &[Buffer::poisoned(partial, 0)]);
    let by_shard = merge.infer(&[partial]).unwrap()[0];
    let sums = check(&name, &merge, &partials, &[Buffer::poisoned(by_shard, 0)]);
    let last = op.merge(metas, &shards);
    let merged = check(&name, &*last, &sums, std::slice::from_ref(whole));
    assert_near(&name, &**op, &ins, &merged[0], whole);
}

#[track_caller]
fn assert_near(name: &str, op: &dyn Op, ins: &[Meta], merged: &Buffer, whole: &Buffer) {
    let exact = exact_to(ins, whole.meta.dtype) == DType::F64;
    let tolerance = if exact { 1e-12 } else { 1e-4 };
    for (a, b) in merged.to_f64().iter().zip(whole.to_f64()) {
        let near = (a - b).abs() <= tolerance * (1.0 + b.abs()) || (a.is_nan() && b.is_nan());
        assert!(near, "{name}: {} merged {a}, whole {b}", op.name());
    }
}

/// Each node of a case, forward and backward, on the values that reach it;
/// `seen` gets the ops.
pub(crate) fn check_case(case: &Case, dtype: DType, seen: &mut BTreeSet<String>) {
    let program = case.program(dtype);
    let values = interpret(&program.graph, &program.inputs);
    for node in program.graph.nodes.iter().filter(|n| n.op.view().is_none()) {
        let debug = format!("{:?}", node.op);
        seen.insert(debug.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned());
        let take = |ids: &[dahl::units::ValueId]| -> Vec<Buffer> {
            ids.iter().map(|v| values[v.index()].clone()).collect()
        };
        let (inputs, outputs) = (take(&node.inputs), take(&node.outputs));
        let whole = check(&case.name, &*node.op, &inputs, &outputs);
        check_blocks(&case.name, &node.op, &inputs, &whole[0]);
        check_shards(&case.name, &node.op, &inputs, &whole[0]);
    }
}

fn check_all(dtype: DType) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    cases().iter().for_each(|case| check_case(case, dtype, &mut seen));
    seen
}

#[test]
fn pieces_have_the_bits_of_the_whole_in_f32() {
    check_all(DType::F32);
}

/// More features than a block of a dot product has.
#[test]
fn a_long_linear_has_the_bits_of_the_whole() {
    check_case(&linear_case([2, 4097, 3]), DType::F32, &mut BTreeSet::new());
}

/// A new op without a case is noticed here.
#[test]
fn pieces_have_the_bits_of_the_whole_in_f64_and_every_op_has_a_case() {
    let seen = check_all(DType::F64);
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops");
    let mut sources = Vec::new();
    let mut paths = vec![std::path::PathBuf::from(directory)];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()));
        } else {
            sources.push(std::fs::read_to_string(path).unwrap());
        }
    }
    // Views are never run; modes in place are compared with the others; a
    // blocked op stands around another; some are what variants expand to; these enums print their functions.
    let elsewhere = [
        "Reshape",
        "Select",
        "Slice",
        "InPlace",
        "DropoutInPlace",
        "Blocked",
        "Conv2dPackWeight",
        "Conv2dPacked",
    ];
    let functions = [("Unary", "Relu"), ("Binary", "Add"), ("Softmax", "Plain")];
    for line in sources.iter().flat_map(|s| s.lines()) {
        let Some(op) = line.strip_prefix("impl Op for ").and_then(|l| l.split(' ').next()) else {
            continue;
        };
        let shown = functions.iter().find(|(n, _)| *n == op).map_or(op, |(_, f)| f);
        let merged = ["SumBlocks", "MergeMoments", "MergeShards"].contains(&op);
        assert!(
            merged || elsewhere.contains(&op) || seen.contains(shown),
            "{op} is in no case of tests/it/ops/cases.rs"
        );
    }
    for op in ["Matmul", "Bmm"] {
        assert!(seen.contains(op), "{op}");
    }
}

prop_compose! {
    fn convolution()(
        stride in [1..4usize, 1..4usize],
        padding in [0..3usize, 0..3usize],
        dilation in [1..4usize, 1..4usize],
        groups in 1..4usize,
        kernel in [1..4usize, 1..4usize],
        [n, c, o] in [1..3usize, 1..3usize, 1..3usize],
        extra in [0..6usize, 0..6usize],
    ) -> ([usize; 4], [usize; 4], Conv2d) {
        // Large enough that a window fits.
        let length = |a: usize| {
            let reach = (kernel[a] - 1) * dilation[a] + 1;
            (reach.saturating_sub(2 * padding[a]) + extra[a]).max(1)
        };
        let x = [n, c * groups, length(0), length(1)];
        let w = [o * groups, c, kernel[0], kernel[1]];
        (x, w, Conv2d { stride, padding, dilation, groups })
    }
}

prop_compose! {
    fn depthwise()(
        stride in [1..4usize, 1..4usize],
        padding in [0..4usize, 0..4usize],
        dilation in [1..3usize, 1..3usize],
        kernel in [1..6usize, 1..6usize],
        [n, groups, filters] in [0..3usize, 2..4usize, 1..3usize],
        extra in [0..6usize, 0..36usize],
    ) -> ([usize; 4], [usize; 4], Conv2d) {
        let length = |a: usize| {
            let reach = (kernel[a] - 1) * dilation[a] + 1;
            (reach.saturating_sub(2 * padding[a]) + extra[a]).max(1)
        };
        let x = [n, groups, length(0), length(1)];
        let w = [groups * filters, 1, kernel[0], kernel[1]];
        (x, w, Conv2d { stride, padding, dilation, groups })
    }
}

prop_compose! {
    /// Filters, channels and widths around those of panels and vectors.
    fn pooled_convolution()(
        stride in [1..3usize, 1..3usize],
        padding in [0..3usize, 0..3usize],
        kernel in [1..6usize, 1..6usize],
        window in [1..4usize, 1..4usize],
        step in [1..4usize, 1..4usize],
        [n, c, o] in [1..3usize, 1..6usize, 1..15usize],
        windows in [1..5usize, 1..20usize],
        relu in any::<bool>(),
    ) -> ([usize; 4], [usize; 4], Conv2dMaxPool2d) {
        let length = |a: usize| {
            let places = (windows[a] - 1) * step[a] + window[a];
            ((places - 1) * stride[a] + kernel[a]).saturating_sub(2 * padding[a]).max(1)
        };
        let conv = Conv2d { stride, padding, ..Conv2d::default() };
        let pool = Pool2d { kernel: window, stride: step, padding: [0, 0] };
        let rectify = if relu { Rectify::Relu } else { Rectify::No };
        let x = [n, c, length(0), length(1)];
        (x, [o, c, kernel[0], kernel[1]], Conv2dMaxPool2d { conv, rectify, pool })
    }
}

prop_compose! {
    fn pooling()(
        kernel in [1..5usize, 1..5usize],
        stride in [1..5usize, 1..5usize],
        padding in [0..3usize, 0..3usize],
        [n, c] in [1..3usize, 1..3usize],
        extra in [0..6usize, 0..6usize],
    ) -> ([usize; 4], Pool2d) {
        let padding = [padding[0].min(kernel[0] / 2), padding[1].min(kernel[1] / 2)];
        let length = |a: usize| (kernel[a].saturating_sub(2 * padding[a]) + extra[a]).max(1);
        ([n, c, length(0), length(1)], Pool2d { kernel, stride, padding })
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 60,
        ..ProptestConfig::default()
    })]

    /// Windows of all kinds: pieces and gradients.
    #[test]
    fn any_convolution((x, w, conv) in convolution()) {
        let case = conv2d_case(x, w, conv);
        check_case(&case, DType::F32, &mut BTreeSet::new());
        check_gradients(&case);
    }

    /// Groups of one channel: filters of its own, images around vectors.
    #[test]
    fn any_depthwise_convolution((x, w, conv) in depthwise()) {
        let case = conv2d_case(x, w, conv);
        check_case(&case, DType::F32, &mut BTreeSet::new());
        check_case(&case, DType::F64, &mut BTreeSet::new());
    }

    /// Samples, outputs and features around those of tiles and vectors.
    #[test]
    fn any_linear(m in 1..9usize, k in 1..36usize, n in 1..20usize, wide in any::<bool>()) {
        let dtype = if wide { DType::F64 } else { DType::F32 };
        check_case(&linear_case([m, k, n]), dtype, &mut BTreeSet::new());
    }

    #[test]
    fn any_pooled_convolution((x, w, op) in pooled_convolution()) {
        let case = conv2d_max_pool2d_case(x, w, op);
        check_case(&case, DType::F32, &mut BTreeSet::new());
        check_case(&case, DType::F64, &mut BTreeSet::new());
    }

    #[test]
    fn any_pooling((x, pool) in pooling()) {
        for case in [max_pool2d_case(x, pool), avg_pool2d_case(x, pool)] {
            check_case(&case, DType::F32, &mut BTreeSet::new());
            check_gradients(&case);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 8,
        ..ProptestConfig::default()
    })]

    /// 3x3 taps in tiles: images of whole tiles and others, channels that fill
    /// vectors and others.
    #[test]
    fn any_3x3_convolution(
        [n, h, w] in [1..3usize, 1..10usize, 1..10usize],
        [c, o] in [1..20usize, 1..36usize],
        padding in [0..4usize, 0..4usize],
    ) {
        let (h, w) = (h.max(3usize.saturating_sub(2 * padding[0])), w.max(3usize.saturating_sub(2 * padding[1])));
        let case = conv2d_case([n, c, h, w], [o, c, 3, 3], Conv2d { padding, ..Conv2d::default() });
        check_case(&case, DType::F32, &mut BTreeSet::new());
        check_case(&case, DType::F64, &mut BTreeSet::new());
    }
}
