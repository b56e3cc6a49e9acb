//! `dahl models`: what models there are, and what one looks like.

use crate::output::{Colour, show};
use crate::table::table;
use clap::Args as ClapArgs;
use dahl::graph::Class;
use dahl::model::{Lowered, Model, NAMES};
use dahl::{Error, Result};
use serde_json::json;

/// List the models that come with dahl, or show one layer by layer
///
/// A model is one of the listed names or a TOML file. `--toml` prints a named model as a file to
/// start from.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl models
  dahl models resnet18
  dahl models lenet --toml > my-lenet.toml

Exit codes: 0 ok, 2 usage, 4 bad model.")]
pub(crate) struct Args {
    /// Model name or TOML file
    model: Option<String>,
    /// Print the model as a TOML file
    #[arg(long)]
    toml: bool,
    /// Print one JSON object per model
    #[arg(long)]
    json: bool,
}

fn parameters(lowered: &Lowered) -> usize {
    let all = lowered.programs.store.of_class(Class::Parameter);
    all.map(|(_, p)| p.meta.shape.elements()).sum()
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let names: Vec<&str> = match &args.model {
        Some(name) => vec![name],
        None if args.toml => return Err(Error::config("toml", "a model's name", "none")),
        None => NAMES.to_vec(),
    };
    let (mut text, mut rows, colour) = (String::new(), Vec::new(), Colour::of_stdout());
    for name in names {
        let model = Model::open(name)?;
        if args.toml {
            text += &model.to_toml()?;
            continue;
        }
        let lowered = model.lower_one()?;
        let count = parameters(&lowered);
        if args.json {
            let (model, input) = (&model.name, &model.input);
            let value = json!({ "model": model, "input": input, "parameters": count });
            text += &format!("{value}\n");
            continue;
        }
        let input = format!("{:?}", model.input);
        rows.push(vec![model.name.clone(), input, grouped(count)]);
        if args.model.is_some() {
            text += &layers(&lowered, colour);
        }
    }
    if !rows.is_empty() {
        text = table(&["model", "input", ">parameters"], &rows, colour) + &text;
    }
    show(&text)
}

/// One line per layer: shape of the output, and number of parameters.
fn layers(lowered: &Lowered, colour: Colour) -> String {
    let graph = &lowered.programs.programs[0].graph;
    let forward = graph.nodes.iter().filter(|n| n.phase == dahl::graph::Phase::Forward);
    // The nodes of one layer follow each other; the last gives its result.
    let mut rows: Vec<(&str, &str, String, usize)> = Vec::new();
    for node in forward.filter(|n| n.path != "loss") {
        let shape = graph.value(node.outputs[0]).meta.shape;
        let sample = format!("{:?}", &shape.axes()[1.min(shape.rank())..]);
        let own: usize = node
            .inputs
            .iter()
            .filter(|v| matches!(graph.value(**v).kind, dahl::graph::Kind::Persistent(_)))
            .map(|v| graph.value(*v).meta.shape.elements())
            .sum();
        let op = if node.op.name() == "reshape" { "flatten" } else { node.op.name() };
        match rows.last_mut() {
            Some(row) if row.0 == node.path => *row = (&node.path, op, sample, row.3 + own),
            _ => rows.push((&node.path, op, sample, own)),
        }
    }
    let row = |(path, op, sample, own): (&str, &str, String, usize)| {
        let own = if own == 0 { String::new() } else { grouped(own) };
        vec![path.to_owned(), op.to_owned(), sample, own]
    };
    let rows: Vec<_> = rows.into_iter().map(row).collect();
    format!("\n{}", table(&["layer", "op", ">output", ">parameters"], &rows, colour))
}

/// 11173962 as 11,173,962.
pub(crate) fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
