//! Updates of parameters, as `torch.optim` defines them.
//!
//! Every update has the inputs gradient, ok, the number of this update and,
//! where gradients are clipped, a factor; it does nothing where ok is 0.

use crate::element::float_dispatch;
use crate::simd::{Simd, Work};
use crate::{Call, Float, Inputs, View};

/// Stochastic gradient descent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// What is kept of the last step's direction.
    pub momentum: f64,
    /// What is left out of the new gradient in the direction.
    pub dampening: f64,
    /// Multiplied with the parameter and added to the gradient.
    pub weight_decay: f64,
    /// Whether the gradient looks one momentum step ahead.
    pub nesterov: bool,
    /// Whether to go up instead of down.
    pub maximize: bool,
}

/// Adam and AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// What is kept of the mean and of the square.
    pub betas: [f64; 2],
    /// Added to the root of the square.
    pub eps: f64,
    /// Decay of the parameters.
    pub weight_decay: f64,
    /// How the decay enters.
    pub decay: Decay,
    /// Whether the largest square so far is used.
    pub amsgrad: bool,
    /// Whether to go up instead of down.
    pub maximize: bool,
}

/// How weight decay enters an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decay {
    /// Added to the gradient (Adam).
    Gradient,
    /// Taken off the parameter (AdamW).
    Parameter,
}

/// The gradient's factor: the clipping and the sign.
fn factor<T: Float>(ins: &Inputs<'_>, maximize: bool) -> T {
    let clip = if ins.len() > 3 { ins.get::<T>(3).at([]) } else { T::ONE };
    if maximize { -clip } else { clip }
}

/// t += 1 where ok is not 0. Input ok, output t.
pub fn count_update(call: &mut Call<'_>) {
    let (ins, mut outs, _) = call.split();
    let mut t = outs.take::<i64>();
    t.set([], t.at([]) + i64::from(ins.get::<u8>(0).at([]) != 0));
}

fn skipped(ins: &Inputs<'_>) -> bool {
    ins.get::<u8>(1).at([]) == 0
}

/// d = factor · g + λ p; m = μ m + (1 − τ) d (m = d at first);
/// p −= η (d + μ m) with Nesterov, η m without. Outputs p and, with momentum, m.
pub fn sgd(sgd: &Sgd, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), sgd_typed(sgd, call));
}

fn sgd_typed<T: Float>(sgd: &Sgd, call: &mut Call<'_>) {
    let (region, step, isa) = (call.piece.out, *call.step, call.isa);
    let (ins, mut outs, _) = call.split();
    if skipped(&ins) {
        return;
    }
    let grad: View<'_, T> = ins.get(0);
    let first = ins.get::<i64>(2).at([]) == 1;
    let rule = Descent {
        factor: factor::<T>(&ins, sgd.maximize),
        minus_lr: T::from_f64(-step.lr),
        decay: T::from_f64(sgd.weight_decay),
        keep: T::from_f64(sgd.momentum),
        take: T::from_f64(if first { 1.0 } else { 1.0 - sgd.dampening }),
        nesterov: sgd.nesterov,
    };
    let mut param = outs.take::<T>();
    if sgd.momentum == 0.0 {
        param.zip(&region, [&grad], |[g], p| isa.run(Run { rule, g, p, state: [] }));
        return;
    }
    let mut momentum = outs.take::<T>();
    param.zip_mut([&mut momentum], &region, [&grad], |[g], p, state| {
        isa.run(Run { rule, g, p, state });
    });
}

/// A rule of `M` states on a run of elements, compiled for an instruction set.
struct Run<'a, T, R, const M: usize> {
    rule: R,
    g: &'a [T],
    p: &'a mut [T],
    state: [&'a mut [T]; M],
}

/// The constants of [`sgd`].
#[derive(Clone, Copy)]
struct Descent<T> {
    factor: T,
    minus_lr: T,
    decay: T,
    keep: T,
    take: T,
    nesterov: bool,
}

impl<T: Float> Work for Run<'_, T, Descent<T>, 0> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let Descent { factor, minus_lr, decay, .. } = self.rule;
        for (p, &g) in self.p.iter_mut().zip(self.g) {
            *p += minus_lr * (g * factor + decay * *p);
        }
    }
}

impl<T: Float> Work for Run<'_, T, Descent<T>, 1> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let Descent { factor, minus_lr, decay, keep, take, nesterov } = self.rule;
        let [m] = self.state;
        for ((p, m), &g) in self.p.iter_mut().zip(m).zip(self.g) {
            let d = g * factor + decay * *p;
            *m = keep * *m + take * d;
            *p += minus_lr * if nesterov { d + keep * *m } else { *m };
        }
    }
}

/// d = factor · g (+ λ p); m += (1 − β₁)(d − m); v = β₂ v + (1 − β₂) d²;
/// p −= η / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε), where v is the largest so
/// far with amsgrad. Outputs p, m, v and, with amsgrad, the largest v.
pub fn adam(adam: &Adam, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), adam_typed(adam, call));
}

fn adam_typed<T: Float>(adam: &Adam, call: &mut Call<'_>) {
    let (region, step, isa) = (call.piece.out, *call.step, call.isa);
    let (ins, mut outs, _) = call.split();
    if skipped(&ins) {
        return;
    }
    let grad: View<'_, T> = ins.get(0);
    let [b1, b2] = adam.betas;
    let t = ins.get::<i64>(2).at([]) as f64;
    let (decay, shrink) = match adam.decay {
        Decay::Gradient => (T::from_f64(adam.weight_decay), T::ONE),
        Decay::Parameter => (T::ZERO, T::from_f64(1.0 - step.lr * adam.weight_decay)),
    };
    let rule = Moments {
        factor: factor::<T>(&ins, adam.maximize),
        minus_step: T::from_f64(-step.lr / (1.0 - Float::pow(b1, t))),
        root: T::from_f64((1.0 - Float::pow(b2, t)).sqrt()),
        take1: T::from_f64(1.0 - b1),
        keep2: T::from_f64(b2),
        take2: T::from_f64(1.0 - b2),
        eps: T::from_f64(adam.eps),
        decay,
        shrink,
    };
    let mut param = outs.take::<T>();
    let (mut m, mut v) = (outs.take::<T>(), outs.take::<T>());
    if outs.is_empty() {
        param.zip_mut([&mut m, &mut v], &region, [&grad], |[g], p, state| {
            isa.run(Run { rule, g, p, state });
        });
        return;
    }
    let mut top = outs.take::<T>();
    param.zip_mut([&mut m, &mut v, &mut top], &region, [&grad], |[g], p, state| {
        isa.run(Run { rule, g, p, state });
    });
}

/// The constants of [`adam`].
#[derive(Clone, Copy)]
struct Moments<T> {
    factor: T,
    minus_step: T,
    root: T,
    take1: T,
    keep2: T,
    take2: T,
    eps: T,
    decay: T,
    shrink: T,
}

impl<T: Float> Moments<T> {
    /// Moves the mean and the square.
    #[inline(always)]
    fn moments(&self, g: T, p: T, m: &mut T, v: &mut T) {
        let d = g * self.factor + self.decay * p;
        *m += self.take1 * (d - *m);
        *v = self.keep2 * *v + self.take2 * d * d;
    }

    /// The parameter that follows `p`.
    #[inline(always)]
    fn step(&self, p: T, m: T, v: T) -> T {
        p * self.shrink + self.minus_step * m / (v.sqrt() / self.root + self.eps)
    }
}

impl<T: Float> Work for Run<'_, T, Moments<T>, 2> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let (rule, [m, v]) = (self.rule, self.state);
        for (((p, m), v), &g) in self.p.iter_mut().zip(m).zip(v).zip(self.g) {
            rule.moments(g, *p, m, v);
            *p = rule.step(*p, *m, *v);
        }
    }
}

impl<T: Float> Work for Run<'_, T, Moments<T>, 3> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self) {
        let (rule, [m, v, top]) = (self.rule, self.state);
        for ((((p, m), v), top), &g) in self.p.iter_mut().zip(m).zip(v).zip(top).zip(self.g) {
            rule.moments(g, *p, m, v);
            if *v > *top || v.is_nan() {
                *top = *v;
            }
            *p = rule.step(*p, *m, *top);
        }
    }
}
