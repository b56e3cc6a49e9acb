//! The elementary ops: functions of elements, reductions, products.

use super::Case;
use crate::error::{Error, Result};
use crate::graph::Builder;
use crate::ops::Var;

/// Records an elementary op of a case; `other` is its second input.
pub(super) fn record(
    case: &Case<'_>,
    op: &str,
    b: &mut Builder<'_>,
    x: Var,
    var: &dyn Fn(&str) -> Result<Var>,
) -> Result<Var> {
    let value = || case.json::<f64>("value");
    let axes = || case.json::<Vec<usize>>("axes");
    Ok(match op {
        "neg" => b.ops().neg(x),
        "exp" => b.ops().exp(x),
        "log" => b.ops().log(x),
        "sqrt" => b.ops().sqrt(x),
        "copy" => b.ops().copy(x),
        "round" => b.ops().round(x),
        "power" => b.ops().power(x, case.json("exponent")?),
        "clip" => b.ops().clip(x, case.json("low")?, case.json("high")?),
        "add_scalar" => b.ops().add_scalar(x, value()?),
        "sub_scalar" => b.ops().sub_scalar(x, value()?),
        "scale" => b.ops().scale(x, value()?),
        "div_scalar" => b.ops().div_scalar(x, value()?),
        "add" => b.ops().add(x, var("other")?),
        "sub" => b.ops().sub(x, var("other")?),
        "mul" => b.ops().mul(x, var("other")?),
        "div" => b.ops().div(x, var("other")?),
        "sum" => b.ops().sum(x, &axes()?),
        "mean" => b.ops().mean(x, &axes()?),
        "min" => b.ops().min(x, &axes()?),
        "max" => b.ops().max(x, &axes()?),
        "argmax" => b.ops().argmax(x, &axes()?),
        "dot" => b.ops().dot(x, var("other")?),
        "matvec" => b.ops().matvec(x, var("other")?),
        "outer" => b.ops().outer(x, var("other")?),
        "matmul" => b.ops().matmul(x, var("other")?),
        "bmm" => b.ops().bmm(x, var("other")?),
        "transpose" => b.ops().transpose(x),
        "permute" => b.ops().permute(x, &axes()?),
        "norm" => b.ops().norm(x),
        other => return Err(Error::Unsupported { what: format!("golden cases of op {other:?}") }),
    })
}
