//! Element-wise ops: one scalar body each, and the loops they share.

use crate::element::float_dispatch;
use crate::simd::{Simd, Work};
use crate::{Call, Float, math};

/// A function of one element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unary {
    /// x.
    Copy,
    /// The constant.
    Fill(f64),
    /// −x.
    Neg,
    /// eˣ.
    Exp,
    /// ln x.
    Log,
    /// √x.
    Sqrt,
    /// The nearest integer, ties to even.
    Round,
    /// x to the power of the constant.
    Power(f64),
    /// x, but not below the first constant nor above the second.
    Clip(f64, f64),
    /// x + the constant.
    AddScalar(f64),
    /// x − the constant.
    SubScalar(f64),
    /// x · the constant.
    Scale(f64),
    /// x / the constant.
    DivScalar(f64),
    /// max(0, x).
    Relu,
    /// x where it is positive, else the constant times x.
    LeakyRelu(f64),
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// tanh x.
    Tanh,
    /// x/2 · (1 + erf(x/√2)).
    Gelu,
}

/// A function of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// x + y.
    Add,
    /// x − y.
    Sub,
    /// x · y.
    Mul,
    /// x / y.
    Div,
}

/// max(0, x); NaN stays NaN.
#[inline(always)]
pub fn relu<T: Float>(x: T) -> T {
    if x < T::ZERO { T::ZERO } else { x }
}

impl Unary {
    /// f(x): the one body that every mode and every loop runs.
    #[inline(always)]
    pub fn apply<T: Float>(self, x: T) -> T {
        let c = T::from_f64;
        match self {
            Unary::Copy => x,
            Unary::Fill(a) => c(a),
            Unary::Neg => -x,
            Unary::Exp => x.exp(),
            Unary::Log => x.ln(),
            Unary::Sqrt => x.sqrt(),
            Unary::Round => x.round_ties_even(),
            Unary::Power(p) => power(x, p),
            Unary::Clip(low, high) if x < c(low) => {
                if low > high {
                    c(high)
                } else {
                    c(low)
                }
            }
            Unary::Clip(_, high) if x > c(high) => c(high),
            Unary::Clip(..) => x,
            Unary::AddScalar(a) => x + c(a),
            Unary::SubScalar(a) => x - c(a),
            Unary::Scale(a) => x * c(a),
            Unary::DivScalar(a) => x / c(a),
            Unary::Relu => relu(x),
            Unary::LeakyRelu(slope) => {
                if x > T::ZERO {
                    x
                } else {
                    x * c(slope)
                }
            }
            Unary::Sigmoid => T::ONE / (T::ONE + (-x).exp()),
            Unary::Tanh => x.tanh(),
            Unary::Gelu => c(0.5) * x * (T::ONE + (x * c(std::f64::consts::FRAC_1_SQRT_2)).erf()),
        }
    }

    /// Whether the gradient is taken from the result; else from the input.
    pub fn keeps_output(self) -> bool {
        matches!(self, Unary::Exp | Unary::Sqrt | Unary::Relu | Unary::Sigmoid | Unary::Tanh)
    }

    /// f'(x) · g, from the input or the output as [`keeps_output`] says.
    ///
    /// [`keeps_output`]: Self::keeps_output
    #[inline(always)]
    pub fn gradient<T: Float>(self, kept: T, g: T) -> T {
        let c = T::from_f64;
        match self {
            Unary::Copy | Unary::AddScalar(_) | Unary::SubScalar(_) => g,
            Unary::Fill(_) | Unary::Round => T::ZERO,
            Unary::Neg => -g,
            Unary::Exp => g * kept,
            Unary::Log => g / kept,
            Unary::Sqrt => g / (c(2.0) * kept),
            Unary::Power(0.0) => T::ZERO,
            Unary::Power(p) => g * c(p) * power(kept, p - 1.0),
            Unary::Clip(low, high) if kept < c(low) || kept > c(high) => T::ZERO,
            Unary::Clip(..) => g,
            Unary::Scale(a) => g * c(a),
            Unary::DivScalar(a) => g / c(a),
            Unary::Relu if kept <= T::ZERO => T::ZERO,
            Unary::Relu => g,
            Unary::LeakyRelu(_) if kept > T::ZERO => g,
            Unary::LeakyRelu(slope) => g * c(slope),
            Unary::Sigmoid => g * (T::ONE - kept) * kept,
            Unary::Tanh => g * (T::ONE - kept * kept),
            Unary::Gelu => {
                let below = c(0.5) * (T::ONE + (kept * c(std::f64::consts::FRAC_1_SQRT_2)).erf());
                let density = c(0.398_942_280_401_432_7) * (c(-0.5) * kept * kept).exp();
                g * (below + kept * density)
            }
        }
    }
}

/// Small integer powers by multiplication, as PyTorch takes 2 and 3.
#[inline(always)]
fn power<T: Float>(x: T, p: f64) -> T {
    if p == 0.0 {
        T::ONE
    } else if p == 1.0 {
        x
    } else if p == 2.0 {
        x * x
    } else if p == 3.0 {
        x * x * x
    } else {
        x.pow(T::from_f64(p))
    }
}

impl Binary {
    /// f(x, y).
    #[inline(always)]
    pub fn apply<T: Float>(self, x: T, y: T) -> T {
        match self {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
        }
    }
}

/// Runs `$body` with `$f` a function of one constant variant, so that the
/// match is outside of the loop.
macro_rules! each_unary {
    ($op:expr, $f:ident => $body:expr) => {
        each_unary!(@ $op, $f => $body;
            Copy Neg Exp Log Sqrt Round Relu Sigmoid Tanh Gelu;
            Fill Power AddScalar SubScalar Scale DivScalar LeakyRelu)
    };
    (@ $op:expr, $f:ident => $body:expr; $($plain:ident)*; $($constant:ident)*) => {
        match $op {
            $(Unary::$plain => {
                let $f = Unary::$plain;
                $body
            })*
            $(Unary::$constant(c) => {
                let $f = Unary::$constant(c);
                $body
            })*
            Unary::Clip(low, high) => {
                let $f = Unary::Clip(low, high);
                $body
            }
        }
    };
}

/// y = f(x…) for every element, in a loop that is compiled for an instruction
/// set. `f` must be of a type of its own, so that it is inlined.
struct Each<'a, T, F, const N: usize> {
    f: F,
    x: [&'a [T]; N],
    y: &'a mut [T],
}

impl<T: Float, F: Fn(T) -> T> Work for Each<'_, T, F, 1> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        for (y, &x) in self.y.iter_mut().zip(self.x[0]) {
            *y = (self.f)(x);
        }
    }
}

impl<T: Float, F: Fn(T, T) -> T> Work for Each<'_, T, F, 2> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        for (y, (&a, &b)) in self.y.iter_mut().zip(self.x[0].iter().zip(self.x[1])) {
            *y = (self.f)(a, b);
        }
    }
}

/// y = f(x). Input x.
pub fn unary(op: Unary, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), unary_typed(op, call));
}

fn unary_typed<T: Float>(op: Unary, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let (ins, mut outs, _) = call.split();
    let (x, mut y) = (ins.get::<T>(0), outs.take::<T>());
    y.zip(&region, [&x], |x, y| {
        if op == Unary::Relu {
            return isa.run(Each { f: relu, x, y });
        }
        let [x] = x;
        each_unary!(op, f => for (y, &x) in y.iter_mut().zip(x) {
            *y = f.apply(x);
        });
    });
}

/// x = f(x). Output x, updated.
pub fn unary_in_place(op: Unary, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), unary_in_place_typed(op, call));
}

fn unary_in_place_typed<T: Float>(op: Unary, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (_, mut outs, _) = call.split();
    outs.take::<T>().runs_mut(&region, |_, x| {
        each_unary!(op, f => for x in x.iter_mut() {
            *x = f.apply(*x);
        });
    });
}

/// The gradient of f. Inputs what was kept and g'.
pub fn unary_backward(op: Unary, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), unary_backward_typed(op, call));
}

fn unary_backward_typed<T: Float>(op: Unary, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let (ins, mut outs, _) = call.split();
    let (kept, g) = (ins.get::<T>(0), ins.get::<T>(1));
    outs.take::<T>().zip(&region, [&kept, &g], |x, out| {
        if op == Unary::Relu {
            let f = |kept, g| Unary::Relu.gradient(kept, g);
            return isa.run(Each { f, x, y: out });
        }
        let [kept, g] = x;
        each_unary!(op, f => for (out, (&kept, &g)) in out.iter_mut().zip(kept.iter().zip(g)) {
            *out = f.gradient(kept, g);
        });
    });
}

/// z = f(x, y). Inputs x and y.
pub fn binary(op: Binary, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), binary_typed(op, call));
}

fn binary_typed<T: Float>(op: Binary, call: &mut Call<'_>) {
    let (region, isa) = (call.piece.out, call.isa);
    let (ins, mut outs, _) = call.split();
    let (x, y) = (ins.get::<T>(0), ins.get::<T>(1));
    outs.take::<T>().zip(&region, [&x, &y], |x, y| match op {
        Binary::Add => isa.run(Each { f: |a, b| Binary::Add.apply(a, b), x, y }),
        Binary::Sub => isa.run(Each { f: |a, b| Binary::Sub.apply(a, b), x, y }),
        Binary::Mul => isa.run(Each { f: |a, b| Binary::Mul.apply(a, b), x, y }),
        Binary::Div => isa.run(Each { f: |a, b| Binary::Div.apply(a, b), x, y }),
    });
}

/// x = f(x, y). Input y, output x, updated.
pub fn binary_in_place(op: Binary, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), binary_in_place_typed(op, call));
}

fn binary_in_place_typed<T: Float>(op: Binary, call: &mut Call<'_>) {
    let region = call.piece.out;
    let (ins, mut outs, _) = call.split();
    let y = ins.get::<T>(0);
    outs.take::<T>().zip(&region, [&y], |[y], x| {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = op.apply(*x, y);
        }
    });
}

/// A random mask: which elements are dropped depends on the seed, the stream,
/// the step and the element's index, never on the grain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability that an element is dropped.
    pub p: f64,
    /// The run's seed.
    pub seed: u64,
    /// The place in the model: masks of two layers differ.
    pub stream: u32,
    /// How many elements came before, where a batch is taken in parts.
    pub first: usize,
}

impl Dropout {
    /// What becomes of element `index` at a step.
    #[inline(always)]
    fn apply<T: Float>(&self, counter: u64, index: usize, x: T) -> T {
        let r = math::uniform(self.seed, self.stream, counter, (self.first + index) as u64);
        let scale = if self.p < 1.0 { 1.0 / (1.0 - self.p) } else { 0.0 };
        if r < self.p { T::ZERO } else { x * T::from_f64(scale) }
    }
}

/// y = x / (1 − p) where the element's random number is at least p, else 0.
/// The same for a gradient. Input x.
pub fn dropout(dropout: &Dropout, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), dropout_typed(dropout, call));
}

fn dropout_typed<T: Float>(dropout: &Dropout, call: &mut Call<'_>) {
    let (region, counter) = (call.piece.out, call.step.counter);
    let (ins, mut outs, _) = call.split();
    let x = ins.get::<T>(0);
    let strides = x.shape().strides();
    outs.take::<T>().zip_at(&region, [&x], |at, [x], y| {
        let first: usize = (0..region.rank()).map(|a| at[a] * strides[a]).sum();
        for (i, (y, &x)) in y.iter_mut().zip(x).enumerate() {
            *y = dropout.apply(counter, first + i, x);
        }
    });
}

/// x = [`dropout`] of x. Output x, updated.
pub fn dropout_in_place(dropout: &Dropout, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), dropout_in_place_typed(dropout, call));
}

fn dropout_in_place_typed<T: Float>(dropout: &Dropout, call: &mut Call<'_>) {
    let (region, counter) = (call.piece.out, call.step.counter);
    let (_, mut outs, _) = call.split();
    let mut x = outs.take::<T>();
    let strides = x.shape().strides();
    x.zip_at::<T, 0>(&region, [], |at, [], x| {
        let first: usize = (0..region.rank()).map(|a| at[a] * strides[a]).sum();
        for (i, x) in x.iter_mut().enumerate() {
            *x = dropout.apply(counter, first + i, *x);
        }
    });
}
