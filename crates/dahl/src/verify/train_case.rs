//! A whole training run.

use super::{Case, Compared, Settings};
use crate::compare::Tolerance;
use crate::error::Result;
use crate::model::{Loss, Model, Optimizer, TrainSpec};
use crate::train::Trainer;
use dahl_kernels::{DType, Shape};

/// Losses and final parameters may differ from PyTorch's by so much, relative
/// to the largest magnitude of the tensor. PyTorch in another memory format
/// differs from itself by 5e-16 and 2e-13 in f64, 2e-7 and 3e-4 in f32.
fn tolerances(dtype: DType) -> (Tolerance, Tolerance) {
    let (losses, parameters) = if dtype == DType::F64 { (1e-12, 1e-10) } else { (1e-5, 1e-3) };
    (Tolerance::Relative(losses), Tolerance::Relative(parameters))
}

pub(super) fn run(case: &Case<'_>, settings: &Settings<'_>) -> Result<Vec<Compared>> {
    let dtype = case.dtype()?;
    let batch: usize = case.json("batch")?;
    let steps: usize = case.json("steps")?;
    let input: Vec<usize> = case.json("input_shape")?;
    let name = case.path.file_stem().map_or("model".into(), |s| s.to_string_lossy());
    let model = Model::from_json(&name, &input, case.text("model")?)?;
    let (optimizer, clip_grad_norm) = Optimizer::from_json(case.text("optimizer")?)?;
    let loss = match case.file.metadata.get("loss").map_or("cross_entropy", String::as_str) {
        "cross_entropy" => Loss::CrossEntropy,
        "mse" => Loss::Mse,
        other => return Err(case.wrong("loss", "cross_entropy or mse", other)),
    };
    let spec = TrainSpec {
        loss,
        clip_grad_norm,
        fusion: settings.fusion,
        ..TrainSpec::new(batch, dtype, optimizer)
    };
    let mut trainer = Trainer::new(&model, &spec, settings.grain.clone(), settings.engine)?;
    for (name, tensor) in &case.file.tensors {
        if let Some(name) = name.strip_prefix("init.") {
            trainer.write(name, &tensor.to_f64_vec())?;
        }
    }
    let (inputs, targets) = (case.tensor("inputs")?, case.tensor("targets")?);
    let samples = inputs.shape().axes().first().copied().unwrap_or(0);
    if samples == 0 || targets.shape().axes().first() != Some(&samples) {
        return Err(case.wrong("targets", format!("{samples} samples"), targets.shape()));
    }
    if inputs.shape().axes()[1..] != input {
        return Err(case.wrong("inputs", format!("samples of {input:?}"), inputs.shape()));
    }
    let (inputs, targets) = (inputs.to_f64_vec(), targets.to_f64_vec());
    let batch_of = |all: &[f64], step: usize| -> Vec<f64> {
        let size = all.len() / samples;
        let first = step * batch % samples;
        let rows = (0..batch).map(|i| (first + i) % samples);
        rows.flat_map(|row| all[row * size..(row + 1) * size].iter().copied()).collect()
    };
    let mut losses = Vec::with_capacity(steps);
    let mut last = None;
    for step in 0..steps {
        let mut slot = trainer.slot(batch)?;
        slot.input("input")?.write_f64(batch_of(&inputs, step))?;
        slot.input("target")?.write_f64(batch_of(&targets, step))?;
        // The loss is read one step late, so that steps overlap.
        let id = trainer.step(slot)?;
        if let Some(before) = last.replace(id) {
            losses.push(trainer.loss(before)?);
        }
    }
    let (for_losses, for_parameters) = tolerances(dtype);
    let mut compared = Vec::new();
    if let Some(last) = last {
        losses.push(trainer.loss(last)?);
        let logits = trainer.output(last, "output")?;
        let shape = Shape::new(&[steps]);
        compared.push(case.compare("loss", (shape, &losses), for_losses)?);
        if case.file.tensors.contains_key("last_logits") {
            let graph = &trainer.lowered().programs.programs[0].graph;
            let output = graph.fetch("output").expect("every program gives its output");
            let shape = graph.value(output).meta.shape;
            compared.push(case.compare("last_logits", (shape, &logits), for_parameters)?);
        }
    }
    for (full, tensor) in &case.file.tensors {
        if let Some(name) = full.strip_prefix("final.") {
            let tolerance =
                if tensor.dtype().is_float() { for_parameters } else { Tolerance::Exact };
            let values = trainer.read(name)?;
            let store = &trainer.lowered().programs.store;
            let shape = store.find(name).map_or(tensor.shape(), |id| store.get(id).meta.shape);
            compared.push(case.compare(full, (shape, &values), tolerance)?);
        }
    }
    Ok(compared)
}
