//! `dahl models`: what models there are, and what one looks like.

use crate::output::{Colour, fail, failed, print};
use clap::Args as ClapArgs;
use dahl::graph::Class;
use dahl::model::{Lowered, Model, NAMES};
use std::fmt::Write as _;
use std::process::ExitCode;

/// List the models that come with dahl, or show one layer by layer
///
/// A model is one of the names below or a TOML file. With `--toml` its text is
/// printed, to be changed and used as a file.
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

pub(crate) fn run(args: &Args) -> ExitCode {
    let names: Vec<&str> = match &args.model {
        Some(name) => vec![name],
        None => NAMES.to_vec(),
    };
    let mut text = String::new();
    let colour = Colour::of_stdout();
    if args.toml && args.model.is_none() {
        return fail("--toml: expected a model's name", crate::output::USAGE);
    }
    if !args.json && !args.toml {
        let head = format!("{:12} {:14} {:>12}\n", "model", "input", "parameters");
        text += &colour.paint("1", &head);
    }
    for name in names {
        let model = match Model::open(name) {
            Ok(model) => model,
            Err(error) => return failed(&error),
        };
        if args.toml {
            match model.to_toml() {
                Ok(toml) => text += &toml,
                Err(error) => return failed(&error),
            }
            continue;
        }
        let lowered = match model.lower_one() {
            Ok(lowered) => lowered,
            Err(error) => return failed(&error),
        };
        let count = parameters(&lowered);
        if args.json {
            let value = serde_json::json!({
                "model": model.name, "input": model.input, "parameters": count,
            });
            let _ = writeln!(text, "{value}");
        } else {
            let input = format!("{:?}", model.input);
            let _ = writeln!(text, "{:12} {input:14} {:>12}", model.name, grouped(count));
        }
        if args.model.is_some() && !args.json {
            text += &layers(&lowered, colour);
        }
    }
    match print(&text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error, crate::output::DIFFERENT),
    }
}

/// A line per layer: what comes out of it, and its parameters.
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
    let width = rows.iter().map(|r| r.0.len()).max().unwrap_or(0).max(5);
    let head = format!("{:width$} {:18} {:>14} {:>12}", "layer", "op", "output", "parameters");
    let mut text = format!("\n{}\n", colour.paint("1", &head));
    for (path, op, sample, own) in rows {
        let own = if own == 0 { String::new() } else { grouped(own) };
        let line = format!("{path:width$} {op:18} {sample:>14} {own:>12}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
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
