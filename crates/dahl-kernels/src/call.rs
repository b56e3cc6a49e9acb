//! What a kernel is handed.

use crate::element::{DType, Element};
use crate::gemm::LINE;
use crate::region::Region;
use crate::shape::MAX_AXES;
use crate::simd::Isa;
use crate::view::{Operand, View, ViewMut};
use std::ops::Range;

/// The most operands of a kernel that runs through scratch.
const MAX_OPERANDS: usize = 12;

/// The part of an op that one call computes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The box of the op's first output.
    pub out: Region,
    /// The part of the summed axis (the samples, for a gradient of a weight).
    /// The whole axis unless the op is run as one block of a partial sum;
    /// `0..0` for ops without such an axis.
    pub sum: Range<usize>,
}

/// What changes from step to step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepScalars {
    /// The learning rate of this step.
    pub lr: f64,
    /// The counter of random numbers (dropout's masks).
    pub counter: u64,
}

/// A kernel's arguments: operands, piece, scratch and scalars.
pub struct Call<'a> {
    operands: &'a [Operand],
    inputs: usize,
    scratch: &'a mut [u8],
    /// The part to compute.
    pub piece: &'a Piece,
    /// The step's scalars.
    pub step: &'a StepScalars,
    /// The instruction set that tuned kernels use.
    pub isa: Isa,
}

impl<'a> Call<'a> {
    /// A call on `operands`, of which the first `inputs` are read and the
    /// others written.
    ///
    /// # Safety
    /// While the call runs, nothing else may write to the inputs' regions, and
    /// nothing else may read or write the outputs' regions.
    #[expect(unsafe_code, reason = "the caller promises exclusive access to the outputs")]
    pub unsafe fn new(
        operands: &'a [Operand],
        inputs: usize,
        piece: &'a Piece,
        step: &'a StepScalars,
        scratch: &'a mut [u8],
    ) -> Self {
        Self { operands, inputs, scratch, piece, step, isa: Isa::Portable }
    }

    /// The same call for kernels of an instruction set.
    #[must_use]
    pub fn on(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// The element type of operand `i`, inputs first.
    pub fn dtype(&self, i: usize) -> DType {
        self.operands[i].dtype()
    }

    /// The descriptors of all operands, inputs first.
    pub fn operands(&self) -> &'a [Operand] {
        self.operands
    }

    /// How many of the operands are inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The inputs, the outputs and the scratch, borrowed apart.
    pub fn split(&mut self) -> (Inputs<'_>, Outputs<'_>, &mut [u8]) {
        let (inputs, outputs) = self.operands.split_at(self.inputs);
        (Inputs { operands: inputs }, Outputs { rest: outputs }, self.scratch)
    }

    /// Runs `body` on the same call with other operands and another piece:
    /// narrowed views of these ones, say one block of a partial sum.
    ///
    /// # Panics
    /// If an operand is not a narrowing of the one it stands for.
    pub fn with(&mut self, operands: &[Operand], piece: &Piece, body: impl FnOnce(&mut Call<'_>)) {
        assert_eq!(operands.len(), self.operands.len(), "one operand for each");
        for (narrow, wide) in operands.iter().zip(self.operands) {
            assert!(narrow.is_within(wide), "an operand outside of the one it stands for");
        }
        body(&mut Call {
            operands,
            inputs: self.inputs,
            scratch: self.scratch,
            piece,
            step: self.step,
            isa: self.isa,
        });
    }

    /// Runs `make` on the first `reads` inputs into scratch, and then `then` on
    /// what it gave: that is its first input, the inputs that are left follow, its
    /// outputs are those of this call. What is made is the part `made.out` of a
    /// value like the first output.
    ///
    /// # Panics
    /// If there is less scratch than [`through_scratch`](Self::through_scratch).
    #[expect(unsafe_code, reason = "makes an operand of scratch that is borrowed for the call")]
    pub fn through(
        &mut self,
        reads: usize,
        made: &Piece,
        make: impl FnOnce(&mut Call<'_>),
        then: impl FnOnce(&mut Call<'_>),
    ) {
        let like = self.operands[self.inputs];
        let bytes = made.out.elements() * like.dtype().size();
        let skipped = self.scratch.as_ptr().align_offset(LINE);
        let (own, scratch) = self.scratch[skipped..].split_at_mut(bytes.next_multiple_of(LINE));
        let mut strides = [1; MAX_AXES];
        for axis in (1..made.out.rank()).rev() {
            strides[axis - 1] = strides[axis] * made.out.len(axis);
        }
        // SAFETY: `own` has the elements of the box, aligned, and is borrowed
        // until both calls have ended; nothing else refers to it.
        let between = unsafe {
            Operand::from_raw(own.as_mut_ptr(), like.dtype(), like.shape(), made.out, strides)
        };
        let (step, isa) = (self.step, self.isa);
        let mut operands = [between; MAX_OPERANDS];
        operands[..reads].copy_from_slice(&self.operands[..reads]);
        let first = &operands[..=reads];
        make(&mut Call { operands: first, inputs: reads, scratch, piece: made, step, isa });
        let rest = &self.operands[reads..];
        operands[0] = between;
        operands[1..=rest.len()].copy_from_slice(rest);
        let (operands, inputs) = (&operands[..=rest.len()], 1 + self.inputs - reads);
        let piece = &Piece { out: made.out, sum: 0..0 };
        then(&mut Call { operands, inputs, scratch, piece, step, isa });
    }

    /// The bytes of scratch that [`through`](Self::through) takes for what it
    /// makes, beside those of the kernels.
    pub fn through_scratch(made: &Region, dtype: DType) -> usize {
        (made.elements() * dtype.size()).next_multiple_of(LINE) + LINE
    }
}

/// The operands that a call reads.
pub struct Inputs<'a> {
    operands: &'a [Operand],
}

impl<'a> Inputs<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.operands.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.operands.is_empty()
    }

    /// A view of input `i`.
    #[track_caller]
    pub fn get<T: Element>(&self, i: usize) -> View<'a, T> {
        View::new(&self.operands[i])
    }
}

/// The operands that a call writes, each handed out once.
pub struct Outputs<'a> {
    rest: &'a [Operand],
}

impl<'a> Outputs<'a> {
    /// How many are left.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next output.
    #[track_caller]
    pub fn take<T: Element>(&mut self) -> ViewMut<'a, T> {
        let (first, rest) = self.rest.split_first().expect("an output for each `take`");
        self.rest = rest;
        ViewMut::new(first)
    }
}
