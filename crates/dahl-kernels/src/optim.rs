//! Updates of parameters, as `torch.optim` defines them.
//!
//! Every update has the inputs gradient, ok, the number of this update and,
//! where gradients are clipped, a factor; it does nothing where ok is 0.

use crate::element::float_dispatch;
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
    let (region, step) = (call.piece.out, *call.step);
    let (ins, mut outs, _) = call.split();
    if skipped(&ins) {
        return;
    }
    let grad: View<'_, T> = ins.get(0);
    let factor = factor::<T>(&ins, sgd.maximize);
    let minus_lr = T::from_f64(-step.lr);
    let decay = T::from_f64(sgd.weight_decay);
    let mut param = outs.take::<T>();
    if sgd.momentum == 0.0 {
        param.zip(&region, [&grad], |[g], p| {
            for (p, &g) in p.iter_mut().zip(g) {
                *p += minus_lr * (g * factor + decay * *p);
            }
        });
        return;
    }
    let mut momentum = outs.take::<T>();
    let keep = T::from_f64(sgd.momentum);
    let first = ins.get::<i64>(2).at([]) == 1;
    let take = T::from_f64(if first { 1.0 } else { 1.0 - sgd.dampening });
    param.zip_mut(&mut momentum, &region, [&grad], |[g], p, m| {
        for ((p, m), &g) in p.iter_mut().zip(m).zip(g) {
            let d = g * factor + decay * *p;
            *m = keep * *m + take * d;
            *p += minus_lr * if sgd.nesterov { d + keep * *m } else { *m };
        }
    });
}

/// d = factor · g (+ λ p); m += (1 − β₁)(d − m); v = β₂ v + (1 − β₂) d²;
/// p −= η / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε), where v is the largest so
/// far with amsgrad. Outputs p, m, v and, with amsgrad, the largest v.
pub fn adam(adam: &Adam, call: &mut Call<'_>) {
    float_dispatch!(call.dtype(0), adam_typed(adam, call));
}

fn adam_typed<T: Float>(adam: &Adam, call: &mut Call<'_>) {
    let (region, step) = (call.piece.out, *call.step);
    let (ins, mut outs, _) = call.split();
    if skipped(&ins) {
        return;
    }
    let grad: View<'_, T> = ins.get(0);
    let factor = factor::<T>(&ins, adam.maximize);
    let [b1, b2] = adam.betas;
    let t = ins.get::<i64>(2).at([]) as f64;
    let minus_step = T::from_f64(-step.lr / (1.0 - Float::pow(b1, t)));
    let root = T::from_f64((1.0 - Float::pow(b2, t)).sqrt());
    let (take1, keep2, take2) = (T::from_f64(1.0 - b1), T::from_f64(b2), T::from_f64(1.0 - b2));
    let eps = T::from_f64(adam.eps);
    let (decay, shrink) = match adam.decay {
        Decay::Gradient => (T::from_f64(adam.weight_decay), T::ONE),
        Decay::Parameter => (T::ZERO, T::from_f64(1.0 - step.lr * adam.weight_decay)),
    };
    let (mut param, mut mean) = (outs.take::<T>(), outs.take::<T>());
    let (mut square, mut largest) =
        (outs.take::<T>(), (!outs.is_empty()).then(|| outs.take::<T>()));
    // Three passes over pairs of rows: the mean, the square, the parameter.
    mean.zip_mut(&mut param, &region, [&grad], |[g], m, p| {
        for ((m, p), &g) in m.iter_mut().zip(p).zip(g) {
            let d = g * factor + decay * *p;
            *m += take1 * (d - *m);
        }
    });
    square.zip_mut(&mut param, &region, [&grad], |[g], v, p| {
        for ((v, p), &g) in v.iter_mut().zip(p).zip(g) {
            let d = g * factor + decay * *p;
            *v = keep2 * *v + take2 * d * d;
        }
    });
    if let Some(largest) = &mut largest {
        largest.zip_mut::<T, 0>(&mut square, &region, [], |[], top, v| {
            for (top, v) in top.iter_mut().zip(v) {
                if *v > *top || v.is_nan() {
                    *top = *v;
                }
            }
        });
    }
    let square = largest.unwrap_or(square);
    param.zip(&region, [&mean.as_view(), &square.as_view()], |[m, v], p| {
        for (p, (&m, &v)) in p.iter_mut().zip(m.iter().zip(v)) {
            *p = *p * shrink + minus_step * m / (v.sqrt() / root + eps);
        }
    });
}
