//! The element-wise functions: a table of those that are computed at once and recorded.

use super::{Binary, Dropout, InPlace, Unary};
use crate::ops::eager::{self, Accum, Arg};
use crate::ops::elementwise::DropoutInPlace;
use crate::ops::{Recorder, Var};
use crate::tensor::{Arena, AsView, Tensor};
use dahl_kernels::{Float, StepScalars};

/// The three modes of a function of one tensor and, for some, constants; and its recorder method.
macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $into:ident $in_place:ident ($($c:ident),*) = $f:expr;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<'a, E: Float, const R: usize>(
            arena: &'a Arena,
            x: &impl AsView<E, R>,
            $($c: f64,)*
        ) -> Tensor<'a, E, R> {
            eager::run(arena, &$f, &[Arg::new(x)])
        }

        #[doc = concat!("[`", stringify!($name), "`] into an existing tensor.")]
        #[track_caller]
        pub fn $into<E: Float, const R: usize>(
            x: &impl AsView<E, R>,
            $($c: f64,)*
            accum: Accum,
            out: &mut Tensor<'_, E, R>,
        ) {
            eager::run_into(&$f, &[Arg::new(x)], accum, out);
        }

        #[doc = concat!("[`", stringify!($name), "`] in place.")]
        pub fn $in_place<E: Float, const R: usize>(x: &mut Tensor<'_, E, R> $(, $c: f64)*) {
            eager::run_in_place(&InPlace::Unary($f), &[], x);
        }

        impl dyn Recorder + '_ {
            #[doc = concat!("Records [`", stringify!($name), "`](fn@", stringify!($name), ").")]
            pub fn $name(&mut self, x: Var $(, $c: f64)*) -> Var {
                self.one($f, &[x])
            }
        }
    )*};
}

/// The same of a function of two tensors of one shape.
macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $into:ident $in_place:ident = $f:expr;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<'a, E: Float, const R: usize>(
            arena: &'a Arena,
            x: &impl AsView<E, R>,
            y: &impl AsView<E, R>,
        ) -> Tensor<'a, E, R> {
            eager::run(arena, &$f, &[Arg::new(x), Arg::new(y)])
        }

        #[doc = concat!("[`", stringify!($name), "`] into an existing tensor.")]
        #[track_caller]
        pub fn $into<E: Float, const R: usize>(
            x: &impl AsView<E, R>,
            y: &impl AsView<E, R>,
            accum: Accum,
            out: &mut Tensor<'_, E, R>,
        ) {
            eager::run_into(&$f, &[Arg::new(x), Arg::new(y)], accum, out);
        }

        #[doc = concat!("[`", stringify!($name), "`] in place, in the first tensor.")]
        #[track_caller]
        pub fn $in_place<E: Float, const R: usize>(
            x: &mut Tensor<'_, E, R>,
            y: &impl AsView<E, R>,
        ) {
            let y = Arg::new(y);
            // The shape rule of the other modes.
            eager::infer_with(&$f, x, &[&y]);
            eager::run_in_place(&InPlace::Binary($f), &[y], x);
        }

        impl dyn Recorder + '_ {
            #[doc = concat!("Records [`", stringify!($name), "`](fn@", stringify!($name), ").")]
            pub fn $name(&mut self, x: Var, y: Var) -> Var {
                self.one($f, &[x, y])
            }
        }
    )*};
}

unary! {
    /// x, copied.
    ///
    /// ```
    /// use dahl::{ops::elementwise::copy, tensor::{Arena, Matrix}};
    /// let arena = Arena::new();
    /// let x = Matrix::from_slice(&arena, [1, 2], &[1.0f32, 2.0]).unwrap();
    /// assert_eq!(copy(&arena, &x.transpose()).as_slice(), [1.0, 2.0]);
    /// ```
    copy copy_into copy_in_place() = Unary::Copy;

    /// The constant in every element of a tensor of x's shape.
    ///
    /// ```
    /// use dahl::{ops::elementwise::fill_in_place, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// let mut x = Vector::<f32>::zeros(&arena, [2]);
    /// fill_in_place(&mut x, 3.0);
    /// assert_eq!(x.as_slice(), [3.0, 3.0]);
    /// ```
    fill fill_into fill_in_place(value) = Unary::Fill(value);

    /// −x.
    ///
    /// ```
    /// use dahl::{ops::elementwise::neg, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(neg(&arena, &Vector::full(&arena, [1], 2.0f32)).as_slice(), [-2.0]);
    /// ```
    neg neg_into neg_in_place() = Unary::Neg;

    /// eˣ.
    ///
    /// ```
    /// use dahl::{ops::elementwise::exp, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(exp(&arena, &Vector::full(&arena, [1], 0.0f32)).as_slice(), [1.0]);
    /// ```
    exp exp_into exp_in_place() = Unary::Exp;

    /// ln x.
    ///
    /// ```
    /// use dahl::{ops::elementwise::log, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(log(&arena, &Vector::full(&arena, [1], 1.0f32)).as_slice(), [0.0]);
    /// ```
    log log_into log_in_place() = Unary::Log;

    /// √x.
    ///
    /// ```
    /// use dahl::{ops::elementwise::sqrt, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(sqrt(&arena, &Vector::full(&arena, [1], 9.0f32)).as_slice(), [3.0]);
    /// ```
    sqrt sqrt_into sqrt_in_place() = Unary::Sqrt;

    /// The nearest integer, ties to even.
    ///
    /// ```
    /// use dahl::{ops::elementwise::round, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(round(&arena, &Vector::full(&arena, [1], 2.5f32)).as_slice(), [2.0]);
    /// ```
    round round_into round_in_place() = Unary::Round;

    /// x to the power of a constant.
    ///
    /// ```
    /// use dahl::{ops::elementwise::power, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(power(&arena, &Vector::full(&arena, [1], 3.0f32), 2.0).as_slice(), [9.0]);
    /// ```
    power power_into power_in_place(exponent) = Unary::Power(exponent);

    /// x, but not below `low` nor above `high`; NaN stays NaN.
    ///
    /// ```
    /// use dahl::{ops::elementwise::clip, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(clip(&arena, &Vector::full(&arena, [1], 3.0f32), 0.0, 1.0).as_slice(), [1.0]);
    /// ```
    clip clip_into clip_in_place(low, high) = Unary::Clip(low, high);

    /// x + a constant.
    ///
    /// ```
    /// use dahl::{ops::elementwise::add_scalar, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(add_scalar(&arena, &Vector::full(&arena, [1], 3.0f32), 1.0).as_slice(), [4.0]);
    /// ```
    add_scalar add_scalar_into add_scalar_in_place(value) = Unary::AddScalar(value);

    /// x − a constant.
    ///
    /// ```
    /// use dahl::{ops::elementwise::sub_scalar, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(sub_scalar(&arena, &Vector::full(&arena, [1], 3.0f32), 1.0).as_slice(), [2.0]);
    /// ```
    sub_scalar sub_scalar_into sub_scalar_in_place(value) = Unary::SubScalar(value);

    /// x · a constant.
    ///
    /// ```
    /// use dahl::{ops::elementwise::scale, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(scale(&arena, &Vector::full(&arena, [1], 3.0f32), 2.0).as_slice(), [6.0]);
    /// ```
    scale scale_into scale_in_place(value) = Unary::Scale(value);

    /// x / a constant.
    ///
    /// ```
    /// use dahl::{ops::elementwise::div_scalar, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(div_scalar(&arena, &Vector::full(&arena, [1], 3.0f32), 2.0).as_slice(), [1.5]);
    /// ```
    div_scalar div_scalar_into div_scalar_in_place(value) = Unary::DivScalar(value);

    /// max(0, x); NaN stays NaN.
    ///
    /// ```
    /// use dahl::{ops::elementwise::relu, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// let x = Vector::from_slice(&arena, [2], &[-1.0f32, 2.0]).unwrap();
    /// assert_eq!(relu(&arena, &x).as_slice(), [0.0, 2.0]);
    /// ```
    relu relu_into relu_in_place() = Unary::Relu;

    /// x where it is positive, else `slope` · x.
    ///
    /// ```
    /// use dahl::{ops::elementwise::leaky_relu, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// let x = Vector::from_slice(&arena, [2], &[-1.0f32, 2.0]).unwrap();
    /// assert_eq!(leaky_relu(&arena, &x, 0.5).as_slice(), [-0.5, 2.0]);
    /// ```
    leaky_relu leaky_relu_into leaky_relu_in_place(slope) = Unary::LeakyRelu(slope);

    /// 1 / (1 + e⁻ˣ).
    ///
    /// ```
    /// use dahl::{ops::elementwise::sigmoid, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(sigmoid(&arena, &Vector::full(&arena, [1], 0.0f32)).as_slice(), [0.5]);
    /// ```
    sigmoid sigmoid_into sigmoid_in_place() = Unary::Sigmoid;

    /// tanh x.
    ///
    /// ```
    /// use dahl::{ops::elementwise::tanh, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// assert_eq!(tanh(&arena, &Vector::full(&arena, [1], 0.0f32)).as_slice(), [0.0]);
    /// ```
    tanh tanh_into tanh_in_place() = Unary::Tanh;

    /// x/2 · (1 + erf(x/√2)).
    ///
    /// ```
    /// use dahl::{ops::elementwise::gelu, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// let y = gelu(&arena, &Vector::full(&arena, [1], 1.0f64));
    /// assert_eq!(format!("{y:.4}"), "[0.8413]");
    /// ```
    gelu gelu_into gelu_in_place() = Unary::Gelu;
}

binary! {
    /// x + y, element by element; the shapes are equal.
    ///
    /// ```
    /// use dahl::{ops::elementwise::add, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// let x = Vector::from_slice(&arena, [2], &[6.0f32, 2.0]).unwrap();
    /// assert_eq!(add(&arena, &x, &x).as_slice(), [12.0, 4.0]);
    /// ```
    add add_into add_in_place = Binary::Add;

    /// x − y, element by element; the shapes are equal.
    ///
    /// ```
    /// use dahl::{ops::elementwise::sub, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// let x = Vector::from_slice(&arena, [2], &[6.0f32, 2.0]).unwrap();
    /// assert_eq!(sub(&arena, &x, &x).as_slice(), [0.0, 0.0]);
    /// ```
    sub sub_into sub_in_place = Binary::Sub;

    /// x · y, element by element; the shapes are equal.
    ///
    /// ```
    /// use dahl::{ops::elementwise::mul, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// let x = Vector::from_slice(&arena, [2], &[6.0f32, 2.0]).unwrap();
    /// assert_eq!(mul(&arena, &x, &x).as_slice(), [36.0, 4.0]);
    /// ```
    mul mul_into mul_in_place = Binary::Mul;

    /// x / y, element by element; the shapes are equal.
    ///
    /// ```
    /// use dahl::{ops::elementwise::div, tensor::{Arena, Vector}};
    /// let arena = Arena::new();
    /// let x = Vector::from_slice(&arena, [2], &[6.0f32, 2.0]).unwrap();
    /// assert_eq!(div(&arena, &x, &x).as_slice(), [1.0, 1.0]);
    /// ```
    div div_into div_in_place = Binary::Div;
}

/// x / (1 − p) where an element's random number is at least p, else 0. The
/// numbers are those of seed, stream and index at step `counter`.
///
/// ```
/// use dahl::{ops::elementwise::{Dropout, dropout}, tensor::{Arena, Vector}};
/// let arena = Arena::new();
/// let y = dropout(&arena, &Vector::full(&arena, [100], 1.0f32), Dropout { p: 0.5, seed: 1, stream: 0, first: 0 }, 0);
/// assert!(y.as_slice().iter().all(|&y| y == 0.0 || y == 2.0));
/// ```
#[track_caller]
pub fn dropout<'a, E: Float, const R: usize>(
    arena: &'a Arena,
    x: &impl AsView<E, R>,
    dropout: Dropout,
    counter: u64,
) -> Tensor<'a, E, R> {
    let mut y = copy(arena, x);
    dropout_in_place(&mut y, dropout, counter);
    y
}

/// [`dropout`] into an existing tensor.
#[track_caller]
pub fn dropout_into<E: Float, const R: usize>(
    x: &impl AsView<E, R>,
    params: Dropout,
    counter: u64,
    accum: Accum,
    out: &mut Tensor<'_, E, R>,
) {
    let scratch = Arena::new();
    copy_into(&dropout(&scratch, x, params, counter), accum, out);
}

/// [`dropout`] in place.
#[track_caller]
pub fn dropout_in_place<E: Float, const R: usize>(
    x: &mut Tensor<'_, E, R>,
    dropout: Dropout,
    counter: u64,
) {
    eager::infer_with(&dropout, x, &[]);
    let step = StepScalars { counter, ..StepScalars::default() };
    eager::call(&DropoutInPlace(dropout), &[], &mut [eager::output(x)], &step);
}
