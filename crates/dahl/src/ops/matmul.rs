//! Products of vectors and matrices: `dot`, `matvec`, `outer`, `matmul`, `bmm`.

use super::eager::{self, Accum, Arg};
use super::{
    Access, Backprop, Cut, Meta, Metas, Mismatch, Op, Recorder, Target, Var, expect_floats,
};
use crate::tensor::{Arena, AsView, Block, Matrix, Scalar, Tensor, Vector};
use crate::units::Flops;
use dahl_kernels::matmul as kernels;
pub use dahl_kernels::matmul::Side;
use dahl_kernels::{Call, Float, Piece, Region, Shape};
use std::ops::Range;

fn expect_rank(what: &'static str, meta: &Meta, rank: usize, axes: &str) -> Result<(), Mismatch> {
    if meta.shape.rank() == rank {
        return Ok(());
    }
    Err(Mismatch::new(what, format!("{rank} axes {axes}"), meta.shape))
}

/// The last two axes of a matrix as it enters a product.
fn matrix(side: Side, shape: &Shape) -> [usize; 2] {
    let rank = shape.rank();
    side.order([shape[rank - 2], shape[rank - 1]])
}

/// The name of a product with its sides, for printing.
fn attributes(sides: &[Side]) -> Vec<(&'static str, String)> {
    let names = ["left", "right"];
    let transposed = names.into_iter().zip(sides).filter(|(_, s)| **s == Side::Transposed);
    transposed.map(|(name, _)| (name, "transposed".to_owned())).collect()
}

/// c\[m,n\] = Σ_k a\[m,k\] b\[k,n\], each side plain or transposed: a is \[M, K\],
/// b \[K, N\], c \[M, N\].
#[derive(Clone, Copy, Debug)]
pub struct Matmul(pub [Side; 2]);

/// [`Matmul`] of each pair of a batch: a is \[B, M, K\], b \[B, K, N\],
/// c \[B, M, N\].
#[derive(Clone, Copy, Debug)]
pub struct Bmm(pub [Side; 2]);

/// The shape rule of a product of matrices with `batch` axes before them.
fn infer(sides: [Side; 2], batch: usize, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
    let axes = if batch == 0 { "[rows, columns]" } else { "[batch, rows, columns]" };
    expect_rank("left", &inputs[0], batch + 2, axes)?;
    expect_rank("right", &inputs[1], batch + 2, axes)?;
    expect_floats(inputs)?;
    let (a, b) = (inputs[0].shape, inputs[1].shape);
    let ([m, k], [k2, n]) = (matrix(sides[0], &a), matrix(sides[1], &b));
    let mut shape = a.axes()[..batch].to_vec();
    shape.extend([m, n]);
    let out = Meta { shape: Shape::new(&shape), ..inputs[0] };
    if k != k2 || a.axes()[..batch] != b.axes()[..batch] {
        let expected = format!("{k} rows as the left {a} has columns, and batches alike");
        return Err(Mismatch::new("right", expected, b).guess(out));
    }
    Ok(vec![out])
}

fn regions(sides: [Side; 2], batch: usize, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
    let [_, k] = matrix(sides[0], &metas.inputs[0].shape);
    let of = |side: Side, pair: [Range<usize>; 2]| {
        let mut ranges: Vec<Range<usize>> = (0..batch).map(|a| piece.out.range(a)).collect();
        ranges.extend(side.order(pair));
        Region::new(&ranges)
    };
    vec![
        of(sides[0], [piece.out.range(batch), 0..k]),
        of(sides[1], [0..k, piece.out.range(batch + 1)]),
        piece.out,
    ]
}

fn flops(side: Side, metas: Metas<'_>, piece: &Piece) -> Flops {
    let [_, k] = matrix(side, &metas.inputs[0].shape);
    Flops(2 * (piece.out.elements() * k) as u64)
}

/// The products that give the gradients: of the left G·Bᵀ, or its transpose
/// B·Gᵀ where it entered transposed; of the right Aᵀ·G, or Gᵀ·A.
fn backward([left, right]: [Side; 2], at: &Backprop<'_>) -> [([Side; 2], [Var; 2]); 2] {
    let (a, b, g) = (at.inputs[0], at.inputs[1], at.grad());
    let of_left = match left {
        Side::Plain => ([Side::Plain, right.flipped()], [g, b]),
        Side::Transposed => ([right, Side::Transposed], [b, g]),
    };
    let of_right = match right {
        Side::Plain => ([left.flipped(), Side::Plain], [a, g]),
        Side::Transposed => ([Side::Transposed, left], [g, a]),
    };
    [of_left, of_right]
}

const PLAIN: usize = 0;
const GEMM: usize = 1;

macro_rules! product {
    ($op:ident, $name:literal, $batch:literal) => {
        impl Op for $op {
            fn name(&self) -> &'static str {
                $name
            }

            fn attributes(&self) -> Vec<(&'static str, String)> {
                attributes(&self.0)
            }

            fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
                infer(self.0, $batch, inputs)
            }

            fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
                regions(self.0, $batch, metas, piece)
            }

            fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
                flops(self.0[0], metas, piece)
            }

            fn backward(
                &self,
                g: &mut dyn Recorder,
                at: &Backprop<'_>,
            ) -> Option<Vec<Option<Var>>> {
                let [left, right] = backward(self.0, at);
                Some(vec![
                    at.when(0, || g.one($op(left.0), &left.1)),
                    at.when(1, || g.one($op(right.0), &right.1)),
                ])
            }

            fn scratch(&self, variant: usize, metas: Metas<'_>, piece: &Piece) -> usize {
                let [_, terms] = matrix(self.0[0], &metas.inputs[0].shape);
                match variant {
                    PLAIN => 0,
                    _ => kernels::matmul_gemm_scratch(&piece.out, terms, metas.inputs[0].dtype),
                }
            }

            fn variants(&self) -> &'static [&'static str] {
                &["plain", "gemm"]
            }

            fn choose(&self, _: Metas<'_>, _: &Target) -> usize {
                GEMM
            }

            fn run(&self, variant: usize, call: &mut Call<'_>) {
                match variant {
                    PLAIN => kernels::matmul(self.0, call),
                    _ => kernels::matmul_gemm(self.0, call),
                }
            }
        }
    };
}
product!(Matmul, "matmul", 0);
product!(Bmm, "bmm", 1);

/// y\[m\] = Σ_k a\[m,k\] x\[k\], the matrix plain or transposed: a is \[M, K\],
/// x \[K\], y \[M\].
#[derive(Clone, Copy, Debug)]
pub struct Matvec(pub Side);

impl Op for Matvec {
    fn name(&self) -> &'static str {
        "matvec"
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        attributes(&[self.0])
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_rank("matrix", &inputs[0], 2, "[rows, columns]")?;
        expect_rank("vector", &inputs[1], 1, "[columns]")?;
        expect_floats(inputs)?;
        let [m, k] = matrix(self.0, &inputs[0].shape);
        let out = Meta { shape: Shape::new(&[m]), ..inputs[0] };
        if inputs[1].shape[0] != k {
            return Err(Mismatch::new("vector", format!("[{k}]"), inputs[1].shape).guess(out));
        }
        Ok(vec![out])
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let columns = 0..metas.inputs[1].shape[0];
        let matrix = self.0.order([piece.out.range(0), columns.clone()]);
        vec![Region::new(&matrix), Region::new(&[columns]), piece.out]
    }

    fn flops(&self, metas: Metas<'_>, piece: &Piece) -> Flops {
        flops(self.0, metas, piece)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let (a, x, grad) = (at.inputs[0], at.inputs[1], at.grad());
        let [rows, columns] = self.0.order([grad, x]);
        Some(vec![
            at.when(0, || g.outer(rows, columns)),
            at.when(1, || g.one(Matvec(self.0.flipped()), &[a, grad])),
        ])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::matvec(self.0, call);
    }
}

/// Σ_k x\[k\] y\[k\], a scalar.
#[derive(Clone, Copy, Debug)]
pub struct Dot;

impl Op for Dot {
    fn name(&self) -> &'static str {
        "dot"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        let out = Meta { shape: Shape::scalar(), ..inputs[0] };
        expect_rank("left", &inputs[0], 1, "[K]")?;
        expect_floats(inputs)?;
        if inputs[0].shape != inputs[1].shape {
            return Err(Mismatch::new("right", inputs[0].shape, inputs[1].shape).guess(out));
        }
        Ok(vec![out])
    }

    fn cuts(&self, _: Metas<'_>) -> Vec<Cut> {
        Vec::new()
    }

    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let whole = Region::full(&metas.inputs[0].shape);
        vec![whole, whole, piece.out]
    }

    fn flops(&self, metas: Metas<'_>, _: &Piece) -> Flops {
        Flops(2 * metas.inputs[0].shape.elements() as u64)
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let (x, y, grad) = (at.inputs[0], at.inputs[1], at.grad());
        Some(vec![at.when(0, || g.scale_by(y, grad)), at.when(1, || g.scale_by(x, grad))])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::dot(call);
    }
}

/// z\[m,n\] = x\[m\] y\[n\].
#[derive(Clone, Copy, Debug)]
pub struct Outer;

impl Op for Outer {
    fn name(&self) -> &'static str {
        "outer"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_rank("left", &inputs[0], 1, "[M]")?;
        expect_rank("right", &inputs[1], 1, "[N]")?;
        expect_floats(inputs)?;
        let shape = Shape::new(&[inputs[0].shape[0], inputs[1].shape[0]]);
        Ok(vec![Meta { shape, ..inputs[0] }])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        let of = |a| Region::new(&[piece.out.range(a)]);
        vec![of(0), of(1), piece.out]
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let (x, y, grad) = (at.inputs[0], at.inputs[1], at.grad());
        Some(vec![
            at.when(0, || g.one(Matvec(Side::Plain), &[grad, y])),
            at.when(1, || g.one(Matvec(Side::Transposed), &[grad, x])),
        ])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::outer(call);
    }
}

/// y = x · s, for a tensor x and a scalar s that is computed too.
#[derive(Clone, Copy, Debug)]
pub struct ScaleBy;

impl Op for ScaleBy {
    fn name(&self) -> &'static str {
        "scale_by"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        expect_rank("factor", &inputs[1], 0, "[]").map_err(|e| e.guess(inputs[0]))?;
        expect_floats(inputs)?;
        Ok(vec![inputs[0]])
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out, Region::full(&Shape::scalar()), piece.out]
    }

    fn backward(&self, g: &mut dyn Recorder, at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        let (x, s, grad) = (at.inputs[0], at.inputs[1], at.grad());
        let factor = at.when(1, || {
            let product = g.mul(grad, x);
            g.sum_all(product)
        });
        Some(vec![at.when(0, || g.scale_by(grad, s)), factor])
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::scale_by(call);
    }
}

/// [`ScaleBy`] in place.
#[derive(Clone, Copy, Debug)]
struct InPlace;

impl Op for InPlace {
    fn name(&self) -> &'static str {
        "scale_by"
    }

    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch> {
        ScaleBy.infer(inputs)
    }

    fn access(&self, _: usize) -> Access {
        Access::Update
    }

    fn regions(&self, _: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![Region::full(&Shape::scalar()), piece.out]
    }

    fn run(&self, _: usize, call: &mut Call<'_>) {
        kernels::scale_by_in_place(call);
    }
}

/// c\[m,n\] = Σ_k a\[m,k\] b\[k,n\].
///
/// ```
/// use dahl::{ops::matmul::matmul, tensor::{Arena, Matrix}};
/// let arena = Arena::new();
/// let a = Matrix::from_slice(&arena, [2, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
/// assert_eq!(matmul(&arena, &a, &a.transpose()).as_slice(), [5.0, 11.0, 11.0, 25.0]);
/// ```
#[track_caller]
pub fn matmul<'a, E: Float>(
    arena: &'a Arena,
    a: &impl AsView<E, 2>,
    b: &impl AsView<E, 2>,
) -> Matrix<'a, E> {
    eager::run(arena, &Matmul([Side::Plain; 2]), &[Arg::new(a), Arg::new(b)])
}

/// [`matmul`] into an existing matrix.
#[track_caller]
pub fn matmul_into<E: Float>(
    a: &impl AsView<E, 2>,
    b: &impl AsView<E, 2>,
    accum: Accum,
    out: &mut Matrix<'_, E>,
) {
    eager::run_into(&Matmul([Side::Plain; 2]), &[Arg::new(a), Arg::new(b)], accum, out);
}

/// c\[i,m,n\] = Σ_k a\[i,m,k\] b\[i,k,n\]: one [`matmul`] for each i.
///
/// ```
/// use dahl::{ops::matmul::bmm, tensor::{Arena, Block}};
/// let arena = Arena::new();
/// let a = Block::from_slice(&arena, [2, 1, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
/// let b = Block::from_slice(&arena, [2, 2, 1], &[1.0f32, 1.0, 2.0, 2.0]).unwrap();
/// assert_eq!(bmm(&arena, &a, &b).as_slice(), [3.0, 14.0]);
/// ```
#[track_caller]
pub fn bmm<'a, E: Float>(
    arena: &'a Arena,
    a: &impl AsView<E, 3>,
    b: &impl AsView<E, 3>,
) -> Block<'a, E> {
    eager::run(arena, &Bmm([Side::Plain; 2]), &[Arg::new(a), Arg::new(b)])
}

/// [`bmm`] into an existing block.
#[track_caller]
pub fn bmm_into<E: Float>(
    a: &impl AsView<E, 3>,
    b: &impl AsView<E, 3>,
    accum: Accum,
    out: &mut Block<'_, E>,
) {
    eager::run_into(&Bmm([Side::Plain; 2]), &[Arg::new(a), Arg::new(b)], accum, out);
}

/// y\[m\] = Σ_k a\[m,k\] x\[k\].
///
/// ```
/// use dahl::{ops::matmul::matvec, tensor::{Arena, Matrix, Vector}};
/// let arena = Arena::new();
/// let a = Matrix::from_slice(&arena, [2, 2], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
/// let x = Vector::full(&arena, [2], 1.0f32);
/// assert_eq!(matvec(&arena, &a, &x).as_slice(), [3.0, 7.0]);
/// ```
#[track_caller]
pub fn matvec<'a, E: Float>(
    arena: &'a Arena,
    a: &impl AsView<E, 2>,
    x: &impl AsView<E, 1>,
) -> Vector<'a, E> {
    eager::run(arena, &Matvec(Side::Plain), &[Arg::new(a), Arg::new(x)])
}

/// [`matvec`] into an existing vector.
#[track_caller]
pub fn matvec_into<E: Float>(
    a: &impl AsView<E, 2>,
    x: &impl AsView<E, 1>,
    accum: Accum,
    out: &mut Vector<'_, E>,
) {
    eager::run_into(&Matvec(Side::Plain), &[Arg::new(a), Arg::new(x)], accum, out);
}

/// Σ_k x\[k\] y\[k\].
///
/// ```
/// use dahl::{ops::matmul::dot, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [2], &[3.0f32, 4.0]).unwrap();
/// assert_eq!(dot(&arena, &x, &x).item(), 25.0);
/// ```
#[track_caller]
pub fn dot<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 1>,
    y: &impl AsView<E, 1>,
) -> Scalar<'a, E> {
    eager::run(arena, &Dot, &[Arg::new(x), Arg::new(y)])
}

/// [`dot`] into an existing scalar.
#[track_caller]
pub fn dot_into<E: Float>(
    x: &impl AsView<E, 1>,
    y: &impl AsView<E, 1>,
    accum: Accum,
    out: &mut Scalar<'_, E>,
) {
    eager::run_into(&Dot, &[Arg::new(x), Arg::new(y)], accum, out);
}

/// z\[m,n\] = x\[m\] y\[n\].
///
/// ```
/// use dahl::{ops::matmul::outer, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [2], &[3.0f32, 4.0]).unwrap();
/// assert_eq!(outer(&arena, &x, &x).as_slice(), [9.0, 12.0, 12.0, 16.0]);
/// ```
#[track_caller]
pub fn outer<'a, E: Float>(
    arena: &'a Arena,
    x: &impl AsView<E, 1>,
    y: &impl AsView<E, 1>,
) -> Matrix<'a, E> {
    eager::run(arena, &Outer, &[Arg::new(x), Arg::new(y)])
}

/// [`outer`] into an existing matrix.
#[track_caller]
pub fn outer_into<E: Float>(
    x: &impl AsView<E, 1>,
    y: &impl AsView<E, 1>,
    accum: Accum,
    out: &mut Matrix<'_, E>,
) {
    eager::run_into(&Outer, &[Arg::new(x), Arg::new(y)], accum, out);
}

/// y = x · s, for a tensor x and a scalar s.
///
/// ```
/// use dahl::{ops::matmul::{dot, scale_by}, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let x = Vector::from_slice(&arena, [2], &[3.0f32, 4.0]).unwrap();
/// assert_eq!(scale_by(&arena, &x, &dot(&arena, &x, &x)).as_slice(), [75.0, 100.0]);
/// ```
#[track_caller]
pub fn scale_by<'a, E: Float, const R: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
    s: &impl AsView<E, 0>,
) -> Tensor<'a, E, R> {
    eager::run(arena, &ScaleBy, &[Arg::new(x), Arg::new(s)])
}

/// [`scale_by`] into an existing tensor.
#[track_caller]
pub fn scale_by_into<E: Float, const R: usize>(
    x: &impl AsView<E, R>,
    s: &impl AsView<E, 0>,
    accum: Accum,
    out: &mut Tensor<'_, E, R>,
) {
    eager::run_into(&ScaleBy, &[Arg::new(x), Arg::new(s)], accum, out);
}

/// [`scale_by`] in place.
#[track_caller]
pub fn scale_by_in_place<E: Float, const R: usize>(
    x: &mut Tensor<'_, E, R>,
    s: &impl AsView<E, 0>,
) {
    eager::run_in_place(&InPlace, &[Arg::new(s)], x);
}

impl dyn Recorder + '_ {
    /// Records the product of two matrices.
    pub fn matmul(&mut self, a: Var, b: Var) -> Var {
        self.one(Matmul([Side::Plain; 2]), &[a, b])
    }

    /// Records the products of two batches of matrices.
    pub fn bmm(&mut self, a: Var, b: Var) -> Var {
        self.one(Bmm([Side::Plain; 2]), &[a, b])
    }

    /// Records the product of a matrix and a vector.
    pub fn matvec(&mut self, a: Var, x: Var) -> Var {
        self.one(Matvec(Side::Plain), &[a, x])
    }

    /// Records the inner product of two vectors.
    pub fn dot(&mut self, x: Var, y: Var) -> Var {
        self.one(Dot, &[x, y])
    }

    /// Records the products of all pairs of two vectors' elements.
    pub fn outer(&mut self, x: Var, y: Var) -> Var {
        self.one(Outer, &[x, y])
    }

    /// Records the product of a tensor and a scalar value.
    pub fn scale_by(&mut self, x: Var, s: Var) -> Var {
        self.one(ScaleBy, &[x, s])
    }
}
