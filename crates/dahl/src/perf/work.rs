//! What decides how long a call takes.

use crate::graph::{Graph, Node};
use crate::ops::{Access, Metas};
use crate::units::NodeId;
use dahl_kernels::{DType, Isa, Piece, Region};
use std::collections::BTreeSet;

/// What times are kept by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The op.
    pub codelet: String,
    /// Its variant.
    pub variant: String,
    /// The kind of unit that runs it, such as `cpu-avx2`.
    pub kind: String,
    /// The boxes that are read and written, with their element types, and the op's
    /// attributes.
    pub shape: String,
}

/// What a call does, as far as numbers tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes of the boxes that are read and written; twice where both.
    pub bytes: u64,
}

/// A piece of an op, whoever runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The op.
    pub codelet: String,
    /// Its variant.
    pub variant: String,
    /// As in [`Key`].
    pub shape: String,
    /// What it does.
    pub features: Features,
}

impl Work {
    /// A piece of a node whose operands are `metas`.
    pub fn new(node: &Node, metas: Metas<'_>, piece: &Piece) -> Self {
        let op = &*node.op;
        let regions = op.regions(metas, piece);
        let types = metas.inputs.iter().chain(metas.outputs).map(|meta| meta.dtype);
        let operands: Vec<(DType, Region)> = types.zip(regions).collect();
        let (inputs, outputs) = operands.split_at(metas.inputs.len());
        let read: usize = inputs.iter().map(bytes).sum();
        let written = outputs.iter().enumerate().map(|(i, operand)| match op.access(i) {
            Access::Write => bytes(operand),
            Access::Update => 2 * bytes(operand),
        });
        let features = Features {
            flops: op.flops(metas, piece).0,
            bytes: (read + written.sum::<usize>()) as u64,
        };
        let mut shape = format!("{} -> {}", boxes(inputs), boxes(outputs));
        for (name, value) in op.attributes() {
            shape += &format!(" {name}={value}");
        }
        let variant = op.variants()[node.variant].to_owned();
        Self { codelet: op.name().to_owned(), variant, shape, features }
    }

    /// A piece of a node of an expanded graph: what a task calls.
    pub fn of_node(graph: &Graph, id: NodeId, piece: &Piece) -> Self {
        let node = graph.node(id);
        let (inputs, outputs) = graph.metas(node);
        Self::new(node, Metas { inputs: &inputs, outputs: &outputs }, piece)
    }

    /// What its times on a kind of unit are kept by.
    pub fn key(&self, kind: &str) -> Key {
        Key {
            codelet: self.codelet.clone(),
            variant: self.variant.clone(),
            kind: kind.to_owned(),
            shape: self.shape.clone(),
        }
    }
}

/// The kind of unit that this crate's kernels make of a processor.
pub fn cpu_kind(isa: Isa) -> String {
    format!("cpu-{isa}")
}

fn bytes((dtype, region): &(DType, Region)) -> usize {
    dtype.size() * region.elements()
}

/// Boxes by their lengths: where they lie does not matter.
fn boxes(operands: &[(DType, Region)]) -> String {
    let text = |(dtype, region): &(DType, Region)| {
        let axes = region.shape();
        let axes: Vec<String> = axes.axes().iter().map(usize::to_string).collect();
        format!("{dtype}[{}]", axes.join(","))
    };
    operands.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// A shape's text taken apart, so that two can be compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Form {
    /// The element types that occur.
    elements: BTreeSet<String>,
    /// The text with `#` for every number.
    skeleton: String,
    /// The numbers, as logarithms.
    sizes: Vec<f64>,
}

/// How far apart shapes of different forms are at least.
const OTHER_FORM: f64 = 4.0;

impl Form {
    pub(super) fn of(shape: &str) -> Self {
        let is_box = |word: &&str| word.contains('[') && !word.contains('=');
        let element = |word: &str| word.split('[').next().unwrap_or_default().to_owned();
        let elements = shape.split(' ').filter(is_box).map(element).collect();
        let (mut skeleton, mut sizes) = (String::new(), Vec::new());
        let mut rest = shape;
        while let Some(first) = rest.chars().next() {
            // The digits of a name, such as f32, are no number.
            let is_word = first.is_alphabetic();
            let ends = |c: char| {
                if is_word { !c.is_alphanumeric() } else { !c.is_ascii_digit() }
            };
            let (token, after) = match (is_word, first.is_ascii_digit()) {
                (false, false) => rest.split_at(first.len_utf8()),
                _ => rest.split_at(rest.find(ends).unwrap_or(rest.len())),
            };
            match token.parse::<u64>() {
                Ok(number) => {
                    skeleton.push('#');
                    sizes.push((1.0 + number as f64).ln());
                }
                Err(_) => skeleton += token,
            }
            rest = after;
        }
        Self { elements, skeleton, sizes }
    }

    /// The bytes of its widest floating-point element, in those of `f32`.
    pub(super) fn widest(&self) -> u64 {
        if self.elements.contains("f64") { 2 } else { 1 }
    }

    /// The same form, to be compared with those of other element types.
    pub(super) fn of_any_elements(&self) -> Self {
        let skeleton = self.elements.iter().fold(self.skeleton.clone(), |text, element| {
            let any = if element.starts_with('f') { "f" } else { "i" };
            text.replace(element, any)
        });
        Self { elements: BTreeSet::new(), skeleton, sizes: self.sizes.clone() }
    }

    /// How unlike two pieces are: the sum of the logarithms of their lengths'
    /// ratios. `None` where the elements are others.
    pub(super) fn distance(&self, other: &Self, work: [Features; 2]) -> Option<f64> {
        if self.elements != other.elements {
            return None;
        }
        let apart = |(a, b): (&f64, &f64)| (a - b).abs();
        if self.skeleton == other.skeleton {
            return Some(self.sizes.iter().zip(&other.sizes).map(apart).sum());
        }
        let [a, b] = work.map(|w| [w.flops, w.bytes].map(|n| (1.0 + n as f64).ln()));
        Some(OTHER_FORM + a.iter().zip(&b).map(apart).sum::<f64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Builder, Store};
    use crate::ops::Meta;

    #[test]
    fn a_piece_is_known_by_the_lengths_of_its_boxes() {
        let mut store = Store::default();
        let mut builder = Builder::new(&mut store);
        let x = builder.input("x", Meta::new([8, 3], DType::F32));
        let w = builder.input("w", Meta::new([5, 3], DType::F32));
        let y = builder.ops().linear(x, w, None);
        builder.fetch("y", y);
        let graph = builder.finish().unwrap();
        let piece = |samples| Piece { out: Region::new(&[samples, 0..5]), sum: 0..0 };
        let first = Work::of_node(&graph, NodeId(0), &piece(0..2));
        assert_eq!(first.codelet, "linear");
        assert_eq!(first.variant, "plain");
        assert_eq!(first.shape, "f32[2,3] f32[5,3] -> f32[2,5]");
        assert_eq!(first.features, Features { flops: 60, bytes: 4 * (6 + 15 + 10) });
        assert_eq!(Work::of_node(&graph, NodeId(0), &piece(6..8)), first);
        let key = first.key("cpu-avx2");
        assert_eq!((key.kind.as_str(), key.shape), ("cpu-avx2", first.shape));
    }

    #[test]
    fn numbers_are_compared_and_names_are_not() {
        let form = Form::of("f32[16,3] i64[16] -> f32[16] stride=[2, 2] shape=[4]");
        assert_eq!(form.skeleton, "f32[#,#] i64[#] -> f32[#] stride=[#, #] shape=[#]");
        assert_eq!(form.elements.iter().collect::<Vec<_>>(), ["f32", "i64"]);
        assert_eq!(form.sizes.len(), 7);
        let of = |text: &str| Form::of(text);
        let none = [Features::default(); 2];
        let apart = |a: &str, b: &str| of(a).distance(&of(b), none);
        assert_eq!(apart("f32[8] -> f32[8]", "f32[8] -> f32[8]"), Some(0.0));
        let twice = apart("f32[7] -> f32[7]", "f32[15] -> f32[15]").unwrap();
        assert!((twice - 2.0 * 2f64.ln()).abs() < 1e-12, "{twice}");
        assert_eq!(apart("f32[8] -> f32[8]", "f64[8] -> f64[8]"), None);
        assert_eq!(apart("f32[8] -> f32[8]", "f32[8] -> f32[2,4]"), Some(OTHER_FORM));
    }
}
