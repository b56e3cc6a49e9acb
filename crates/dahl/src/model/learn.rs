//! The loss, its gradients, and what follows from them.

use super::lower::{Kept, Loss, TrainSpec};
use crate::graph::{Builder, Class, Phase};
use crate::ops::copy::Assign;
use crate::ops::optim::CountUpdate;
use crate::ops::{Meta, Recorder, Var};
use dahl_kernels::DType;
use std::ops::Range;
use std::sync::Arc;

/// What the loss gives: the losses that are averaged, by part of the batch, and the mean of
/// all.
pub(super) struct Losses {
    terms: Vec<Var>,
    mean: Var,
}

/// Records the loss of the outputs of each part of the batch.
pub(super) fn loss(
    b: &mut Builder<'_>,
    spec: &TrainSpec,
    (batch, parts): (usize, &[Range<usize>]),
    outputs: &[Var],
) -> Losses {
    b.scope("loss", |b| {
        let meta = b.meta(outputs[0]);
        let target = match spec.loss {
            Loss::CrossEntropy => Meta::new([batch], DType::I64),
            Loss::Mse if meta.shape.rank() == 0 => meta,
            Loss::Mse => Meta { shape: meta.shape.with(0, batch), ..meta },
        };
        let target = b.input("target", target);
        let (mut terms, mut correct) = (Vec::new(), Vec::new());
        for (part, (samples, &y)) in parts.iter().zip(outputs).enumerate() {
            b.set_part(part);
            let whole = parts.len() == 1;
            let target = if whole { target } else { b.ops().slice(target, samples.clone()) };
            match spec.loss {
                Loss::CrossEntropy => {
                    let hits = b.ops().correct(y, target);
                    correct.push(b.ops().sum_all(hits));
                    terms.push(b.ops().cross_entropy(y, target));
                }
                Loss::Mse => {
                    let d = b.ops().sub(y, target);
                    terms.push(b.ops().mul(d, d));
                }
            }
        }
        if let Some(correct) = sum(b, &correct) {
            b.fetch("correct", correct);
        }
        let mean = match terms[..] {
            [terms] => b.ops().mean_all(terms),
            _ => {
                let sums: Vec<Var> = terms.iter().map(|&terms| b.ops().sum_all(terms)).collect();
                let all = sum(b, &sums).expect("a part");
                let count = elements(b, &terms);
                b.ops().scale(all, 1.0 / count)
            }
        };
        b.fetch("loss", mean);
        if let [output] = outputs {
            b.fetch("output", *output);
        }
        Losses { terms, mean }
    })
}

/// The sum of values, added in order.
fn sum(b: &mut Builder<'_>, values: &[Var]) -> Option<Var> {
    values.iter().copied().reduce(|sum, value| b.ops().add(sum, value))
}

/// How many elements values have together, at least one.
fn elements(b: &Builder<'_>, values: &[Var]) -> f64 {
    let of = |&var: &Var| b.meta(var).shape.checked_elements().unwrap_or(1);
    values.iter().map(of).sum::<usize>().max(1) as f64
}

/// Records gradients and updates.
pub(super) fn learn(b: &mut Builder<'_>, spec: &TrainSpec, losses: &Losses, kept: Kept) {
    b.set_phase(Phase::Backward);
    // The mean's gradient: 1/n for each of n terms.
    let share = 1.0 / elements(b, &losses.terms);
    let ok = b.scope("loss", |b| b.ops().is_finite(losses.mean));
    let params: Vec<(Var, String)> = b
        .persistents()
        .into_iter()
        .filter(|(_, _, class)| *class == Class::Parameter)
        .map(|(var, name, _)| (var, name))
        .collect();
    let read = |param: &Var| {
        let version = kept.versions.iter().find(|v| v.parameter == *param);
        version.map_or(*param, |v| v.read)
    };
    let wrt: Vec<Var> = params.iter().map(|(var, _)| read(var)).collect();
    // How many updates were made, not how many steps were taken: a step whose
    // loss is not finite leaves no trace. Counted first, so that an update can
    // follow its gradient at once.
    b.set_phase(Phase::Update);
    let t = b.persistent_named("updates", Meta::new([], DType::I64), Class::Optimizer);
    b.update(Arc::new(CountUpdate), &[ok], &[t]);
    let mut scalars = vec![ok, t];
    let mut grads: Vec<Option<Var>> = vec![None; params.len()];
    for (part, &terms) in losses.terms.iter().enumerate() {
        b.set_part(part);
        b.set_phase(Phase::Backward);
        let meta = b.meta(terms);
        let seed = b.scope("loss", |b| b.ops().constant(meta, share));
        let found = b.backward(&[(terms, seed)], &wrt);
        for ((grad, found), (_, name)) in grads.iter_mut().zip(found).zip(&params) {
            *grad = match (*grad, found) {
                (Some(before), Some(found)) => Some(b.scope(name, |b| b.ops().add(before, found))),
                (before, found) => before.or(found),
            };
        }
    }
    b.set_phase(Phase::Update);
    let found: Vec<Var> = grads.iter().flatten().copied().collect();
    if let Some(max_norm) = spec.clip_grad_norm.filter(|_| !found.is_empty()) {
        let factor = b.scope("clip", |b| {
            let norms: Vec<Var> = found.iter().map(|&g| b.ops().norm(g)).collect();
            b.ops().clip_factor(&norms, max_norm)
        });
        scalars.push(factor);
    }
    for (op, stats, outputs, path) in kept.after {
        b.scope(&path, |b| b.update(op, &[stats, ok], &outputs));
    }
    for ((param, name), grad) in params.iter().zip(grads) {
        let Some(grad) = grad else { continue };
        b.scope(name, |b| {
            spec.optimizer.record(b, (*param, name), grad, &scalars);
            if let Some(version) = kept.versions.iter().find(|v| v.parameter == *param) {
                b.update(Arc::new(Assign), &[*param], &[version.next]);
            }
        });
    }
}
