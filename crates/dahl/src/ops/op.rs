//! What an op says about itself.

use super::{Backprop, Cut, Recorder, SumBlocks, Var, ViewMap};
use crate::error::{Fact, Unexpected};
use crate::names::named;
use crate::units::Flops;
use dahl_kernels::{Call, DType, Isa, Piece, Region, Shape};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What is known of a tensor before it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Meta {
    /// The lengths of its axes.
    pub shape: Shape,
    /// The type of its elements.
    pub dtype: DType,
}

impl Meta {
    /// A tensor of `shape` and `dtype`.
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Self {
        Self { shape: shape.into(), dtype }
    }

    /// The size in bytes, or `None` where the product overflows.
    pub fn checked_bytes(&self) -> Option<usize> {
        let bytes = self.shape.checked_elements()?.checked_mul(self.dtype.size())?;
        (bytes <= isize::MAX as usize).then_some(bytes)
    }

    /// The size in bytes of a checked tensor.
    pub fn bytes(&self) -> usize {
        self.checked_bytes().expect("a checked shape")
    }
}

impl fmt::Display for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)
    }
}

impl From<Meta> for Fact {
    fn from(Meta { dtype, shape }: Meta) -> Self {
        Fact::Tensor(dtype, shape.into())
    }
}

impl From<&Meta> for Fact {
    fn from(meta: &Meta) -> Self {
        (*meta).into()
    }
}

/// The operands of a node, by what is known of them.
#[derive(Clone, Copy, Debug)]
pub struct Metas<'a> {
    /// What is read.
    pub inputs: &'a [Meta],
    /// What is written.
    pub outputs: &'a [Meta],
}

impl Metas<'_> {
    /// The shape of the first output.
    pub fn out(&self) -> Shape {
        self.outputs[0].shape
    }
}

/// Why an op does not fit its inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// What is wrong about its input, kernel or weight.
    pub fault: Unexpected,
    /// The most likely result, to go on checking the rest of the model with.
    pub guess: Option<Box<Meta>>,
}

impl Mismatch {
    /// A mismatch without a guess at the result.
    pub fn new(what: &'static str, expected: impl Into<Fact>, found: impl Into<Fact>) -> Self {
        Self { fault: Unexpected::new(what, expected, found), guess: None }
    }

    /// With the most likely result.
    #[must_use]
    pub fn guess(self, meta: Meta) -> Self {
        Self { guess: Some(Box::new(meta)), ..self }
    }
}

/// What variants are chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The instruction set that they may use.
    pub isa: Isa,
    /// How exact convolutions are; by default it depends on the element type.
    pub accuracy: Option<Accuracy>,
}

impl Target {
    /// This machine, with the accuracy that is the default.
    pub fn here() -> Self {
        Isa::detect().into()
    }

    /// How exact convolutions of an element type are: f32 may take fewer
    /// products, f64 is requested where digits count.
    pub fn accuracy(&self, dtype: DType) -> Accuracy {
        let default = if dtype == DType::F32 { Accuracy::Auto } else { Accuracy::Exact };
        self.accuracy.unwrap_or(default)
    }
}

impl From<Isa> for Target {
    fn from(isa: Isa) -> Self {
        Self { isa, accuracy: None }
    }
}

/// How exact convolutions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Accuracy {
    /// Every product is taken.
    Exact,
    /// Tiles of 2x2 outputs may take fewer: errors stay near those of rounding.
    Auto,
    /// Tiles of 4x4 outputs too: errors about twenty times as large.
    Fast,
}

named! {
    Accuracy {
        Exact = "exact": "No Winograd transforms: all multiplications are computed",
        Auto = "auto": "Also Winograd F(2x2, 3x3) for 3x3 kernels: 2.25 times fewer \
            multiplications; error in f32 about 1e-6, relative to the largest output",
        Fast = "fast": "All of auto, and Winograd F(4x4, 3x3): 4 times fewer multiplications; \
            error in f32 about 2e-5, relative to the largest output",
    }
}

/// An op that prepares an input, and one that takes it in place of the input.
#[derive(Clone, Debug)]
pub struct Expansion {
    /// Which input is prepared.
    pub input: usize,
    /// What prepares it.
    pub prepare: Arc<dyn Op>,
    /// What takes it.
    pub op: Arc<dyn Op>,
}

/// How an op accesses an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Every element of the piece is written, none is read.
    Write,
    /// The piece is read and written, in place.
    Update,
}

/// An operation on tensors.
///
/// The iteration space of an op is the box of its first output, plus at most
/// one axis that is summed over. A *piece* is a box of that space.
pub trait Op: Any + fmt::Debug + Send + Sync {
    /// The name, as PyTorch has it where it has one.
    fn name(&self) -> &str;

    /// The attributes, for printing and hashing.
    fn attributes(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// How many outputs there are.
    fn outputs(&self) -> usize {
        1
    }

    /// The shape rule.
    fn infer(&self, inputs: &[Meta]) -> Result<Vec<Meta>, Mismatch>;

    /// How an output is accessed. Inputs are read.
    fn access(&self, _output: usize) -> Access {
        Access::Write
    }

    /// For an op that only looks at its input in another way: how. Such an op
    /// is never run.
    fn view(&self) -> Option<ViewMap> {
        None
    }

    /// Along which axes of the first output the op can be cut: by default all, anywhere.
    fn cuts(&self, metas: Metas<'_>) -> Vec<Cut> {
        Cut::everywhere(metas)
    }

    /// Whether the axis that is summed over is that of samples, which shards divide.
    fn sums_samples(&self) -> bool {
        true
    }

    /// The length of the axis that is summed over, where partial sums of it
    /// can be taken.
    fn summed(&self, _metas: Metas<'_>) -> Option<usize> {
        None
    }

    /// The op that merges the partial results of blocks of the summed axis,
    /// stacked along a new first axis.
    fn merge(&self, _metas: Metas<'_>, _blocks: &[Range<usize>]) -> Arc<dyn Op> {
        Arc::new(SumBlocks)
    }

    /// The box of each operand, inputs first, that a piece touches: by default its own.
    fn regions(&self, metas: Metas<'_>, piece: &Piece) -> Vec<Region> {
        vec![piece.out; metas.inputs.len() + metas.outputs.len()]
    }

    /// The floating-point operations of a piece: by default one per element of its first output.
    fn flops(&self, _metas: Metas<'_>, piece: &Piece) -> Flops {
        Flops(piece.out.elements() as u64)
    }

    /// The bytes of scratch that a variant needs for a piece.
    fn scratch(&self, _variant: usize, _metas: Metas<'_>, _piece: &Piece) -> usize {
        0
    }

    /// The backward rule: records ops that give the gradient of each input,
    /// `None` for inputs that have none. An op without a rule returns `None`.
    fn backward(&self, _g: &mut dyn Recorder, _at: &Backprop<'_>) -> Option<Vec<Option<Var>>> {
        None
    }

    /// The op that does what this one and then `next` do, where there is one:
    /// `next` has this op's first output as its first input.
    fn fuse(&self, _metas: Metas<'_>, _next: &dyn Op) -> Option<Arc<dyn Op>> {
        None
    }

    /// Whether this op updates each element of its outputs, all of the first
    /// input's shape, by the same element of the first input and by scalars: then
    /// it can follow what makes that input piece by piece.
    fn updates_each(&self) -> bool {
        false
    }

    /// Whether each element of the result depends on its own place in the inputs alone, so
    /// that what follows can take the result in chunks of any size.
    fn each_alone(&self) -> bool {
        false
    }

    /// Whether the first two inputs may change places without another result: a
    /// rewrite may then look at either as the first.
    fn commutes(&self) -> bool {
        false
    }

    /// The names of the CPU variants; the first is the plain one, the oracle.
    fn variants(&self) -> &'static [&'static str] {
        &["plain"]
    }

    /// The variant that is fastest on an instruction set, as shipped: the same
    /// for everyone, so that the same command gives the same bits.
    fn choose(&self, _metas: Metas<'_>, _on: &Target) -> usize {
        0
    }

    /// The variants that may be chosen from, by measurement say.
    fn allowed(&self, _metas: Metas<'_>, _on: &Target) -> Vec<usize> {
        (0..self.variants().len()).collect()
    }

    /// The two ops that a variant is put into practice by, where it is not by
    /// [`run`](Self::run): one that prepares an input, once for all pieces, and
    /// one that takes what it returned.
    fn expand(&self, _variant: usize, _metas: Metas<'_>) -> Option<Expansion> {
        None
    }

    /// Computes a piece with a variant.
    fn run(&self, variant: usize, call: &mut Call<'_>);
}

/// The op and its attributes, as in `conv2d(stride=[1, 1], groups=1)`.
pub(crate) fn describe(op: &dyn Op) -> String {
    let attributes: Vec<String> =
        op.attributes().into_iter().map(|(k, v)| format!("{k}={v}")).collect();
    if attributes.is_empty() {
        op.name().to_owned()
    } else {
        format!("{}({})", op.name(), attributes.join(", "))
    }
}
