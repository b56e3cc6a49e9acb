//! A sequential interpreter of graphs: whole nodes, one after the other.
#![expect(unsafe_code, reason = "makes operands of test buffers")]

use dahl::graph::Graph;
use dahl::ops::{Call, Meta, Metas, Op, Piece, ViewMap};
use dahl::{DType, Region, StepScalars};
use dahl_kernels::Operand;

/// The bytes of a tensor, aligned for every element type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Buffer {
    pub(crate) meta: Meta,
    words: Vec<u64>,
}

impl Buffer {
    /// Bytes that no kernel writes, so that what was left out is seen.
    pub(crate) fn poisoned(meta: Meta, poison: u8) -> Self {
        let words = meta.bytes().div_ceil(8).max(1);
        Self { meta, words: vec![u64::from_ne_bytes([poison; 8]); words] }
    }

    pub(crate) fn from_f64(meta: Meta, data: &[f64]) -> Self {
        assert_eq!(data.len(), meta.shape.elements());
        let mut buffer = Self::poisoned(meta, 0);
        data.iter().enumerate().for_each(|(i, &x)| buffer.set(i, x));
        buffer
    }

    pub(crate) fn len(&self) -> usize {
        self.meta.shape.elements()
    }

    /// The bytes of its elements, to compare bit by bit.
    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.meta.bytes()]
    }

    pub(crate) fn get(&self, i: usize) -> f64 {
        match self.meta.dtype {
            DType::F32 => bytemuck::cast_slice::<_, f32>(&self.words)[i].into(),
            DType::F64 => bytemuck::cast_slice::<_, f64>(&self.words)[i],
            DType::I64 => bytemuck::cast_slice::<_, i64>(&self.words)[i] as f64,
            DType::U8 => bytemuck::cast_slice::<_, u8>(&self.words)[i].into(),
        }
    }

    pub(crate) fn to_f64(&self) -> Vec<f64> {
        (0..self.len()).map(|i| self.get(i)).collect()
    }

    pub(crate) fn set(&mut self, i: usize, x: f64) {
        match self.meta.dtype {
            DType::F32 => bytemuck::cast_slice_mut(&mut self.words)[i] = x as f32,
            DType::F64 => bytemuck::cast_slice_mut(&mut self.words)[i] = x,
            DType::I64 => bytemuck::cast_slice_mut(&mut self.words)[i] = x as i64,
            DType::U8 => bytemuck::cast_slice_mut(&mut self.words)[i] = x as u8,
        }
    }

    fn operand(&mut self) -> Operand {
        let shape = self.meta.shape;
        // SAFETY: the buffer has all elements of the shape and outlives the
        // call that the operand is made for, see `run`.
        unsafe {
            Operand::from_raw(
                self.words.as_mut_ptr().cast(),
                self.meta.dtype,
                shape,
                Region::full(&shape),
                shape.strides(),
            )
        }
    }
}

/// Runs a piece of an op on operands narrowed to what the op declares.
pub(crate) fn run(
    op: &dyn Op,
    variant: usize,
    inputs: &[Buffer],
    outputs: &mut [Buffer],
    piece: &Piece,
) {
    let mut inputs = inputs.to_vec();
    let count = inputs.len();
    let (ins, outs) = (metas(&inputs), metas(outputs));
    let metas = Metas { inputs: &ins, outputs: &outs };
    let regions = op.regions(metas, piece);
    assert_eq!(regions.len(), count + outputs.len(), "{}: a region an operand", op.name());
    let operands: Vec<Operand> = inputs
        .iter_mut()
        .chain(outputs)
        .zip(&regions)
        .map(|(buffer, region)| buffer.operand().narrow(*region))
        .collect();
    let step = StepScalars { lr: 0.1, counter: 5 };
    // Whatever was there before must not matter: NaN, and no index of anything.
    let mut scratch = vec![0xff; op.scratch(variant, metas, piece)];
    // SAFETY: nothing else uses the buffers meanwhile.
    let mut call =
        unsafe { Call::new(&operands, count, piece, &step, &mut scratch) }.on(dahl::Isa::detect());
    op.run(variant, &mut call);
}

pub(crate) fn metas(buffers: &[Buffer]) -> Vec<Meta> {
    buffers.iter().map(|b| b.meta).collect()
}

/// The values of a graph after all its nodes have run. `inputs` fill the
/// graph's inputs in order.
pub(crate) fn interpret(graph: &Graph, inputs: &[Buffer]) -> Vec<Buffer> {
    let mut values: Vec<Buffer> =
        graph.values.iter().map(|v| Buffer::poisoned(v.meta, 0xAA)).collect();
    for ((id, value), buffer) in graph.inputs().zip(inputs) {
        assert_eq!(value.meta, buffer.meta, "input {:?}", value.name);
        values[id.index()] = buffer.clone();
    }
    for node in &graph.nodes {
        let inputs: Vec<Buffer> = node.inputs.iter().map(|v| values[v.index()].clone()).collect();
        let mut outputs: Vec<Buffer> =
            node.outputs.iter().map(|v| values[v.index()].clone()).collect();
        match node.op.view() {
            Some(view) => outputs[0] = look(view, &inputs[0], outputs[0].meta),
            None => run(&*node.op, 0, &inputs, &mut outputs, &graph.whole(node)),
        }
        for (v, buffer) in node.outputs.iter().zip(outputs) {
            values[v.index()] = buffer;
        }
    }
    values
}

/// A view as a copy.
fn look(view: ViewMap, base: &Buffer, meta: Meta) -> Buffer {
    match view {
        ViewMap::Reshape => Buffer { meta, words: base.words.clone() },
        ViewMap::Slice { start } => {
            let first = start * meta.shape.axes()[1..].iter().product::<usize>();
            let data: Vec<f64> = (0..meta.shape.elements()).map(|i| base.get(first + i)).collect();
            Buffer::from_f64(meta, &data)
        }
        ViewMap::Select { axis, index } => {
            let shape = base.meta.shape;
            let inner: usize = shape.axes()[axis + 1..].iter().product();
            let at = |i: usize| (i / inner * shape[axis] + index) * inner + i % inner;
            let data: Vec<f64> = (0..meta.shape.elements()).map(|i| base.get(at(i))).collect();
            Buffer::from_f64(meta, &data)
        }
    }
}
