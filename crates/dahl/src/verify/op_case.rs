//! One op with its gradients.

use super::{Case, Compared, Settings, elementary};
use crate::compare::Tolerance;
use crate::error::Result;
use crate::graph::{Builder, Class, Program, Programs, Store};
use crate::ops::batch_norm2d::BatchNorm2dTrack;
use crate::ops::conv2d::Conv2d;
use crate::ops::elementwise::Unary;
use crate::ops::pool::Pool2d;
use crate::ops::{Meta, Recorder, Var};
use crate::units::ProgramId;
use dahl_kernels::{DType, Shape, StepScalars};
use std::sync::Arc;

/// What dahl does in one op may differ from PyTorch by so much, relative to
/// the largest magnitude: a few hundred roundings.
fn tolerance(dtype: DType) -> Tolerance {
    Tolerance::Relative(if dtype == DType::F64 { 1e-12 } else { 1e-5 })
}

/// The tensors that are inputs, in the order that ops take them.
const INPUTS: [&str; 5] = ["input", "weight", "bias", "target", "other"];

/// The running statistics that batch norm updates.
const TRACKED: [&str; 2] = ["running_mean", "running_var"];

pub(super) fn run(case: &Case<'_>, op: &str, settings: &Settings<'_>) -> Result<Vec<Compared>> {
    let dtype = case.dtype()?;
    if op != "conv2d" {
        case.refuse(&[("dilation", "[1, 1]")])?;
    }
    case.refuse(&[
        ("ceil_mode", "false"),
        ("count_include_pad", "true"),
        ("divisor_override", "null"),
        ("label_smoothing", "0.0"),
        ("ignore_index", "-100"),
        ("approximate", "none"),
        ("padding_mode", "zeros"),
    ])?;
    let mut store = Store::default();
    let mut b = Builder::new(&mut store);
    let mut vars: Vec<(&str, Var)> = Vec::new();
    for name in INPUTS {
        if let Some(tensor) = case.file.tensors.get(name) {
            let meta = Meta { shape: tensor.shape(), dtype: tensor.dtype() };
            vars.push((name, b.input(name, meta)));
        }
    }
    let var = |name: &str| -> Result<Var> {
        let found = vars.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
        found.ok_or_else(|| case.wrong(name, "a tensor", "none"))
    };
    let x = var("input")?;
    let output = record(case, op, &mut b, x, &var)?;
    b.fetch("output", output);
    let mut compared_names = vec!["output".to_owned()];
    if let Some(grad) = case.file.tensors.get("grad_output") {
        let grad = b.input("grad_output", Meta { shape: grad.shape(), dtype: grad.dtype() });
        let wanted: Vec<(&str, Var)> = vars
            .iter()
            .copied()
            .filter(|(name, _)| case.file.tensors.contains_key(&format!("grad_{name}")))
            .collect();
        let wrt: Vec<Var> = wanted.iter().map(|(_, v)| *v).collect();
        let grads = b.backward(&[(output, grad)], &wrt);
        if !b.errors().is_empty() {
            return Err(b.finish().map(drop).expect_err("errors were noted"));
        }
        for ((name, _), grad) in wanted.iter().zip(grads) {
            let name = format!("grad_{name}");
            let grad = grad.ok_or_else(|| case.wrong(&name, "a gradient", "none"))?;
            b.fetch(&name, grad);
            compared_names.push(name);
        }
    }
    let graph = b.finish()?;
    let programs = Programs {
        store,
        programs: vec![Program { name: op.to_owned(), graph, output_slots: 2, turn: 0 }],
        ..Programs::default()
    };
    let plan = settings.grain.plan(&programs)?;
    let mut session = settings.engine.prepare(&plan)?;
    for name in TRACKED {
        if let Some(id) = programs.store.find(name) {
            let values = case.tensor(name)?.to_f64_vec();
            session.write(id, &mut |mut to| to.write_f64(values.iter().copied()))?;
        }
    }
    let mut slot = session.slot(ProgramId(0))?;
    let names: Vec<String> = slot.inputs().map(|(name, _)| name.to_owned()).collect();
    for name in &names {
        slot.input(name)?.write_f64(case.tensor(name)?.to_f64_vec())?;
    }
    let step = session.step(ProgramId(0), slot, StepScalars::default())?;
    let mut compared = Vec::new();
    for name in compared_names {
        let (mut shape, mut values) = (Shape::scalar(), Vec::new());
        session.output(step, &name, &mut |tensor| {
            (shape, values) = (tensor.meta.shape, tensor.to_f64());
        })?;
        compared.push(case.compare(&name, (shape, &values), tolerance(dtype))?);
    }
    for name in TRACKED {
        let after = format!("{name}_after");
        if let Some(id) = programs.store.find(name)
            && case.file.tensors.contains_key(&after)
        {
            let mut values = Vec::new();
            session.read(id, &mut |tensor| values = tensor.to_f64())?;
            let shape = programs.store.get(id).meta.shape;
            compared.push(case.compare(&after, (shape, &values), tolerance(dtype))?);
        }
    }
    Ok(compared)
}

fn record(
    case: &Case<'_>,
    op: &str,
    b: &mut Builder<'_>,
    x: Var,
    var: &dyn Fn(&str) -> Result<Var>,
) -> Result<Var> {
    let pool = || -> Result<Pool2d> {
        let kernel = pair(case, "kernel", None)?;
        let stride = pair(case, "stride", Some(kernel))?;
        Ok(Pool2d { kernel, stride, padding: pair(case, "padding", Some([0, 0]))? })
    };
    Ok(match op {
        "conv2d" => {
            let conv = Conv2d {
                stride: pair(case, "stride", Some([1, 1]))?,
                padding: pair(case, "padding", Some([0, 0]))?,
                dilation: pair(case, "dilation", Some([1, 1]))?,
                groups: case.json_or("groups", 1)?,
            };
            b.ops().conv2d(x, var("weight")?, var("bias").ok(), conv)
        }
        "linear" => linear(b, x, var("weight")?, var("bias").ok()),
        "relu" => b.ops().unary(Unary::Relu, x),
        "leaky_relu" => b.ops().unary(Unary::LeakyRelu(case.json_or("negative_slope", 0.01)?), x),
        "sigmoid" => b.ops().unary(Unary::Sigmoid, x),
        "tanh" => b.ops().unary(Unary::Tanh, x),
        "gelu" => b.ops().unary(Unary::Gelu, x),
        "softmax" => b.ops().softmax(x),
        "log_softmax" => b.ops().log_softmax(x),
        "max_pool2d" => b.ops().max_pool2d(x, pool()?),
        "avg_pool2d" => b.ops().avg_pool2d(x, pool()?),
        "global_avg_pool2d" => b.ops().global_avg_pool2d(x),
        "cross_entropy" => {
            let losses = b.ops().cross_entropy(x, var("target")?);
            reduce(case, b, losses)?
        }
        "mse" => {
            let d = b.ops().sub(x, var("target")?);
            let losses = b.ops().mul(d, d);
            reduce(case, b, losses)?
        }
        "batch_norm2d" => batch_norm2d(case, b, x, [var("weight")?, var("bias")?])?,
        other => return elementary::record(case, other, b, x, var),
    })
}

/// PyTorch takes any number of axes before the features.
fn linear(b: &mut Builder<'_>, x: Var, weight: Var, bias: Option<Var>) -> Var {
    let axes = b.meta(x).shape.axes().to_vec();
    let Some((&features, outer)) = axes.split_last().filter(|_| axes.len() != 2) else {
        return b.ops().linear(x, weight, bias);
    };
    let rows = b.ops().reshape(x, Shape::new(&[outer.iter().product(), features]));
    let y = b.ops().linear(rows, weight, bias);
    let out = b.meta(y).shape.axes().last().copied().unwrap_or(1);
    let shape: Vec<usize> = outer.iter().copied().chain([out]).collect();
    b.ops().reshape(y, Shape::new(&shape))
}

fn reduce(case: &Case<'_>, b: &mut Builder<'_>, losses: Var) -> Result<Var> {
    let reduction = case.file.metadata.get("reduction").map_or("mean", String::as_str);
    Ok(match reduction {
        "mean" => b.ops().mean_all(losses),
        "sum" => b.ops().sum_all(losses),
        "none" => losses,
        other => return Err(case.wrong("reduction", "mean, sum or none", other)),
    })
}

fn batch_norm2d(case: &Case<'_>, b: &mut Builder<'_>, x: Var, affine: [Var; 2]) -> Result<Var> {
    let (eps, momentum) = (case.json_or("eps", 1e-5)?, case.json_or("momentum", 0.1)?);
    let meta = b.meta(affine[0]);
    let [mean, variance] = TRACKED.map(|name| b.persistent(name, meta, Class::Buffer));
    if !case.json::<bool>("training")? {
        return Ok(b.ops().batch_norm2d_eval(x, [mean, variance], affine, eps));
    }
    let norm = b.ops().batch_norm2d(x, affine[0], affine[1], eps);
    let ok = b.ops().constant(Meta::new([], DType::U8), 1.0);
    let batches = b.persistent("num_batches_tracked", Meta::new([], DType::I64), Class::Buffer);
    let track = Arc::new(BatchNorm2dTrack { count: norm.count, momentum, dtype: meta.dtype });
    b.update(track, &[norm.stats, ok], &[mean, variance, batches]);
    Ok(norm.output)
}

/// One number for rows and columns, or one for each.
fn pair(case: &Case<'_>, key: &str, default: Option<[usize; 2]>) -> Result<[usize; 2]> {
    match default {
        Some(default) if !case.file.metadata.contains_key(key) => Ok(default),
        _ => match case.json::<serde_json::Value>(key)? {
            serde_json::Value::Array(_) => case.json(key),
            _ => Ok([case.json(key)?; 2]),
        },
    }
}
