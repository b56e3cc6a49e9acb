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

/// What is said of one tensor.
struct Row {
    name: String,
    kind: Kind,
}

enum Kind {
    OnlyInA(Described),
    OnlyInB(Described),
    Mismatch(Described, Described),
    Compared { what: Described, comparison: Comparison, worst: Vec<Pair> },
}

/// Type and shape.
struct Described {
    dtype: DType,
    axes: Vec<usize>,
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
        let describe =
            |t: &StoredTensor| Described { dtype: t.dtype(), axes: t.shape().axes().to_vec() };
        let kind = match (a, b) {
            (Some(a), Some(b)) if a.shape() != b.shape() || a.dtype() != b.dtype() => {
                Kind::Mismatch(describe(a), describe(b))
            }
            (Some(a), Some(b)) => {
                let (comparison, worst) = match a.dtype() {
                    DType::F32 => compared::<f32>(a, b, args),
                    DType::F64 => compared::<f64>(a, b, args),
                    DType::I64 => compared::<i64>(a, b, args),
                    DType::U8 => compared::<u8>(a, b, args),
                };
                Kind::Compared { what: describe(a), comparison, worst }
            }
            (Some(a), None) => Kind::OnlyInA(describe(a)),
            (None, Some(b)) => Kind::OnlyInB(describe(b)),
            (None, None) => unreachable!("a name comes from one of the files"),
        };
        Self { name: name.to_owned(), kind }
    }

    fn equal(&self, tolerance: Tolerance) -> bool {
        matches!(&self.kind, Kind::Compared { comparison, .. } if tolerance.accepts(comparison))
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
    let name = row.name.clone();
    let shape = |d: &Described| format!("{:?}", d.axes);
    let told = |d: &Described, what: &str| {
        let (name, dtype) = (name.clone(), d.dtype.to_string());
        vec![name, shape(d), dtype, what.to_owned(), String::new(), String::new()]
    };
    match &row.kind {
        Kind::OnlyInA(d) => told(d, "missing in B"),
        Kind::OnlyInB(d) => told(d, "missing in A"),
        Kind::Mismatch(a, b) => told(a, &format!("in B {} {}", b.dtype, shape(b))),
        Kind::Compared { what, comparison: c, .. } => {
            let verb = if tolerance.accepts(c) { "close" } else { "differ" };
            let [count, ulps, relative] = match c.differing {
                0 => [(); 3].map(|()| String::new()),
                n => [format!("{n} of {} {verb}", c.elements), ulps(c.ulps), relative(c)],
            };
            vec![name, shape(what), what.dtype.to_string(), count, ulps, relative]
        }
    }
}

/// The worst values of a tensor that differs.
fn details(row: &Row, colour: Colour) -> String {
    let Kind::Compared { comparison, worst, .. } = &row.kind else { return String::new() };
    if worst.is_empty() {
        return String::new();
    }
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
    let described = |d: &Described| json!({ "dtype": d.dtype.name(), "shape": d.axes });
    let tensors: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut object = match &row.kind {
                Kind::OnlyInA(a) => json!({ "status": "missing in b", "a": described(a) }),
                Kind::OnlyInB(b) => json!({ "status": "missing in a", "b": described(b) }),
                Kind::Mismatch(a, b) => {
                    json!({ "status": "mismatch", "a": described(a), "b": described(b) })
                }
                Kind::Compared { what, comparison: c, worst } => json!({
                    "status": if row.equal(args.tolerance) { "equal" } else { "different" },
                    "a": described(what),
                    "b": described(what),
                    "elements": c.elements,
                    "differing": c.differing,
                    "max_ulps": countable(c.ulps),
                    "max_absolute": number(c.absolute),
                    "max_relative": number(c.relative()),
                    "worst": worst
                        .iter()
                        .map(|pair| json!({
                            "index": pair.index,
                            "a": pair.json[0],
                            "b": pair.json[1],
                            "ulps": countable(pair.ulps),
                        }))
                        .collect::<Vec<_>>(),
                }),
            };
            object["name"] = json!(row.name);
            object
        })
        .collect();
    let object = json!({
        "equal": rows.iter().all(|row| row.equal(args.tolerance)),
        "tolerance": args.tolerance.to_string(),
        "tensors": tensors,
    });
    format!("{object}\n")
}
