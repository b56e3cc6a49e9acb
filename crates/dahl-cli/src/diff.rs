//! `dahl diff`: two files of tensors, compared.

use crate::output::{self, Colour, show};
use crate::table::lines;
use dahl::compare::{self, Comparison, Emphasis, Tolerance, Ulp, align};
use dahl::file::{Stored, StoredTensor, TensorFile};
use dahl::{DType, Result};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLE: &str = "\
Example:
  dahl diff before.safetensors after.safetensors --tolerance 1e-6 --limit 1

  One line per tensor and, for tensors beyond the tolerance, the worst values with
  their digits aligned:

       tensor    shape      type  values             ulp  relative
    =  0.bias    [4]        f32
    ≠  4.weight  [10, 676]  f32   40 of 6760 differ  188   5.24e-6

    4.weight: the worst 1 of 40
      [3, 71]  A  -0.01839041
               B  -0.01839076
                           ^^  188 ulp

    different: 1 of 2 tensors not equal within 1e-6 of the largest magnitude

Exit codes: 0 equal within the tolerance, 1 different or the result cannot be
written, 2 usage, 4 a file that cannot be read.";

/// Compare two safetensors files, value by value
///
/// A is the reference. Distances are in ULPs (units in the last place) and relative: the largest
/// error over the largest magnitude of the tensor in A. Tensors must agree in name, shape and type;
/// metadata are not compared.
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Reference file
    a: PathBuf,
    /// File to compare with it
    b: PathBuf,
    /// Compare only this tensor; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    tensor: Vec<String>,
    /// Maximum number of values to show per tensor that differs
    #[arg(long, value_name = "N", default_value_t = 5)]
    limit: usize,
    /// Tolerance: `exact`, a distance in ULPs such as `4ulp`, or a fraction of the tensor's largest
    /// magnitude such as `1e-6`
    #[arg(long, value_name = "X", default_value = "exact")]
    tolerance: Tolerance,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Compares and prints.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let (a, b) = (TensorFile::read(&args.a)?, TensorFile::read(&args.b)?);
    let mut names: BTreeSet<&str> =
        a.tensors.keys().chain(b.tensors.keys()).map(String::as_str).collect();
    if let Some(unknown) = args.tensor.iter().find(|name| !names.contains(name.as_str())) {
        let error = format!("--tensor {unknown}: expected a tensor of A or B, found in neither");
        return Ok(output::fail(error, output::USAGE));
    }
    if !args.tensor.is_empty() {
        names.retain(|name| args.tensor.iter().any(|wanted| wanted == name));
    }
    let mut rows: Vec<Row> = names
        .into_iter()
        .map(|name| Row::new(name, a.tensors.get(name), b.tensors.get(name), args))
        .collect();
    rows.sort_by(|x, y| natural(&x.name).cmp(&natural(&y.name)));
    let colour = Colour::of_stdout();
    show(&if args.json { as_json(&rows, args) } else { as_text(&rows, args, colour) })?;
    let equal = rows.iter().all(|row| row.equal(args.tolerance));
    Ok(ExitCode::from(if equal { 0 } else { output::DIFFERENT }))
}

/// A tensor of A, of B, or of both.
struct Row {
    name: String,
    /// Type and shape in A and in B.
    a: Option<(DType, Vec<usize>)>,
    b: Option<(DType, Vec<usize>)>,
    /// Where types and shapes are the same.
    compared: Option<(Comparison, Vec<Pair>)>,
}

/// Two values at one place.
struct Pair {
    index: Vec<usize>,
    ulps: u64,
    json: [Value; 2],
    /// Lines without and with colour.
    lines: [compare::Aligned; 2],
}

impl Row {
    fn new(name: &str, a: Option<&StoredTensor>, b: Option<&StoredTensor>, args: &Args) -> Self {
        let described = |t: &StoredTensor| (t.dtype(), t.shape().axes().to_vec());
        let both = a.zip(b).filter(|(a, b)| described(a) == described(b));
        let compared = both.map(|(a, b)| match a.dtype() {
            DType::F32 => compared::<f32>(a, b, args),
            DType::F64 => compared::<f64>(a, b, args),
            DType::I64 => compared::<i64>(a, b, args),
            DType::U8 => compared::<u8>(a, b, args),
        });
        Self { name: name.to_owned(), a: a.map(described), b: b.map(described), compared }
    }

    fn equal(&self, tolerance: Tolerance) -> bool {
        self.compared.as_ref().is_some_and(|(comparison, _)| tolerance.accepts(comparison))
    }
}

fn compared<T: Ulp + Stored>(
    a: &StoredTensor,
    b: &StoredTensor,
    args: &Args,
) -> (Comparison, Vec<Pair>) {
    let shape = a.shape();
    let [a, b] = [a, b].map(|t| t.to_vec::<T>().expect("the type was looked at"));
    let comparison = compare::compare(&a, &b);
    let worst = match args.tolerance.accepts(&comparison) {
        true => Vec::new(),
        false => compare::worst(&a, &b, args.limit, args.tolerance),
    };
    let pairs = worst
        .into_iter()
        .map(|at| Pair {
            index: coordinates(at, shape.axes()),
            ulps: a[at].ulps(b[at]),
            json: [a[at], b[at]].map(number),
            lines: [Emphasis::Carets, Emphasis::Ansi].map(|e| align(a[at], b[at], e)),
        })
        .collect();
    (comparison, pairs)
}

/// Where the element at `at` lies, axis by axis.
fn coordinates(mut at: usize, axes: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = axes
        .iter()
        .rev()
        .map(|&length| {
            let here = at % length;
            at /= length;
            here
        })
        .collect();
    index.reverse();
    index
}

/// The value with the digits of its type; JSON has no NaN and no infinity, and
/// they become text.
fn number<T: Ulp>(x: T) -> Value {
    let text = x.to_string();
    match serde_json::from_str(&text) {
        Ok(Value::Number(n)) => Value::Number(n),
        _ => Value::String(text),
    }
}

/// `layer.10` comes after `layer.9`.
fn natural(name: &str) -> Vec<(u64, &str)> {
    name.split('.').map(|part| (part.parse().unwrap_or(u64::MAX), part)).collect()
}

/// The distance, unless it is one to NaN or infinity.
fn countable(ulps: u64) -> Option<u64> {
    (ulps != u64::MAX).then_some(ulps)
}

fn ulps(n: u64) -> String {
    countable(n).map_or("∞".to_owned(), |n| n.to_string())
}

fn relative(c: &Comparison) -> String {
    match c.relative() {
        0.0 => "0".to_owned(),
        x if x.is_infinite() => "∞".to_owned(),
        x => format!("{x:.2e}"),
    }
}

fn as_text(rows: &[Row], args: &Args, colour: Colour) -> String {
    let table: Vec<Vec<String>> = rows.iter().map(|row| cells(row, args.tolerance)).collect();
    let table = lines(&["tensor", "shape", "type", "values", ">ulp", ">relative"], &table);
    let mut text = format!("   {}\n", colour.paint("2", &table[0]));
    for (row, line) in rows.iter().zip(&table[1..]) {
        let (sign, style) = if row.equal(args.tolerance) { ("=", "32") } else { ("≠", "1;31") };
        text += &format!("{}  {line}\n", colour.paint(style, sign));
    }
    for row in rows {
        text += &details(row, colour);
    }
    let different = rows.iter().filter(|row| !row.equal(args.tolerance)).count();
    let tolerance = match args.tolerance {
        Tolerance::Exact => "exactly".to_owned(),
        Tolerance::Ulps(n) => format!("within {n} ulp"),
        Tolerance::Relative(x) => format!("within {x:e} of the largest magnitude"),
    };
    let total = match rows.len() {
        1 => "1 tensor".to_owned(),
        n => format!("{n} tensors"),
    };
    let verdict = match different {
        0 => format!("equal {tolerance}: {total}"),
        n => format!("different: {n} of {total} not equal {tolerance}"),
    };
    text += &format!("\n{}\n", colour.paint("1", &verdict));
    text
}

fn cells(row: &Row, tolerance: Tolerance) -> Vec<String> {
    let [mut values, mut ulp, mut rel] = [(); 3].map(|()| String::new());
    match (&row.a, &row.b, &row.compared) {
        (.., Some((c, _))) if c.differing > 0 => {
            let verb = if tolerance.accepts(c) { "close" } else { "differ" };
            values = format!("{} of {} {verb}", c.differing, c.elements);
            (ulp, rel) = (ulps(c.ulps), relative(c));
        }
        (_, None, _) => values += "missing in B",
        (None, ..) => values += "missing in A",
        (_, Some((dtype, axes)), None) => values = format!("in B {dtype} {axes:?}"),
        _ => {}
    }
    let shape = row.a.as_ref().or(row.b.as_ref());
    let (dtype, axes) = shape
        .map_or_else(Default::default, |(dtype, axes)| (dtype.to_string(), format!("{axes:?}")));
    vec![row.name.clone(), axes, dtype, values, ulp, rel]
}

/// The worst values of a tensor that differs.
fn details(row: &Row, colour: Colour) -> String {
    let Some((comparison, worst)) = row.compared.as_ref().filter(|(_, worst)| !worst.is_empty())
    else {
        return String::new();
    };
    let title = match comparison.differing {
        n if n > worst.len() => format!("{}: the worst {} of {n}", row.name, worst.len()),
        _ => row.name.clone(),
    };
    let mut text = format!("\n{}\n", colour.paint("1", &title));
    let places: Vec<String> = worst.iter().map(|pair| format!("{:?}", pair.index)).collect();
    let width = places.iter().map(String::len).max().unwrap_or(0);
    for (pair, place) in worst.iter().zip(places) {
        let distance = format!("{} ulp", ulps(pair.ulps));
        let lines = match colour {
            Colour::Never => &pair.lines[0],
            Colour::Ansi => &pair.lines[1],
        };
        text += format!("  {place:<width$}  A  {}", lines.reference).trim_end();
        text.push('\n');
        match &lines.marks {
            Some(marks) => {
                text += format!("  {:width$}  B  {}", "", lines.found).trim_end();
                text += &format!("\n  {:width$}     {marks}  {distance}\n", "");
            }
            None => {
                let distance = colour.paint("2", &distance);
                text += &format!("  {:width$}  B  {}  {distance}\n", "", lines.found);
            }
        }
    }
    text
}

fn as_json(rows: &[Row], args: &Args) -> String {
    let described = |d: &(DType, Vec<usize>)| json!({ "dtype": d.0.name(), "shape": d.1 });
    let pair = |pair: &Pair| {
        let ([a, b], ulps) = (&pair.json, countable(pair.ulps));
        json!({ "index": pair.index, "a": a, "b": b, "ulps": ulps })
    };
    let tensor = |row: &Row| {
        let mut object = json!({ "name": row.name });
        for (key, described) in
            [("a", row.a.as_ref().map(described)), ("b", row.b.as_ref().map(described))]
        {
            if let Some(described) = described {
                object[key] = described;
            }
        }
        let status = match (&row.a, &row.b, &row.compared) {
            (_, None, _) => "missing in b",
            (None, ..) => "missing in a",
            (.., None) => "mismatch",
            _ if row.equal(args.tolerance) => "equal",
            _ => "different",
        };
        object["status"] = json!(status);
        if let Some((c, worst)) = &row.compared {
            object["elements"] = json!(c.elements);
            object["differing"] = json!(c.differing);
            object["max_ulps"] = json!(countable(c.ulps));
            object["max_absolute"] = number(c.absolute);
            object["max_relative"] = number(c.relative());
            object["worst"] = worst.iter().map(pair).collect();
        }
        object
    };
    let tensors: Vec<Value> = rows.iter().map(tensor).collect();
    let object = json!({
        "equal": rows.iter().all(|row| row.equal(args.tolerance)),
        "tolerance": args.tolerance.to_string(),
        "tensors": tensors,
    });
    format!("{object}\n")
}
