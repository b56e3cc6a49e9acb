//! The measurements of a calibration: models in several batches, pieces and variants.

use crate::args::{Kernels, Settings};
use dahl::calibrate;
use dahl::graph::Programs;
use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::native::headroom;
use dahl::perf::{PerfModel, cpu_kind};
use dahl::plan::Numerics;
use dahl::planner::Grain;
use dahl::units::ProgramId;
use dahl::{DType, Result};
use std::time::Duration;

/// Batch sizes of models that come with dahl, as long as a step has at most [`MUCH`] operations.
const BATCHES: [usize; 4] = [4, 16, 64, 256];
/// Operations of a step that are too much.
const MUCH: f64 = 2e10;
/// Operations of a step in which slow variants have their turn.
const LITTLE: f64 = 1e9;
/// Pieces of the batch.
const PIECES: [usize; 4] = [1, 2, 4, 8];

/// The extent of a calibration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    All,
    /// Two batches, in one piece and in two, without variants other than the default.
    Quick,
}

/// One training step in one grain.
pub(super) struct Cell {
    model: Model,
    dtype: DType,
    batch: usize,
    optimizer: Optimizer,
    pieces: usize,
    /// Which of the numerics of [`calibrate::variants`].
    numerics: usize,
    /// The first go first: others may be left out.
    rank: usize,
    /// Operations of a step.
    flops: f64,
}

/// The models and what they are measured in.
pub(super) struct Wanted<'a> {
    pub(super) models: Vec<Model>,
    /// The batch, where it is given.
    pub(super) batch: Option<usize>,
    pub(super) dtypes: &'a [DType],
    pub(super) kernels: &'a Settings<Kernels>,
    pub(super) extent: Extent,
}

impl Wanted<'_> {
    /// The cells, the most important first.
    pub(super) fn cells(&self) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for model in &self.models {
            for &dtype in self.dtypes {
                self.of_model(model, dtype, &mut cells)?;
            }
        }
        cells.sort_by_key(|cell| cell.rank);
        Ok(cells)
    }

    fn of_model(&self, model: &Model, dtype: DType, cells: &mut Vec<Cell>) -> Result<()> {
        let cell = |batch: usize, rank: usize| Cell {
            model: model.clone(),
            dtype,
            batch,
            optimizer: Optimizer::sgd(0.01),
            pieces: 1,
            numerics: 0,
            rank,
            flops: 0.0,
        };
        let one = cell(1, 0).programs()?.programs[0].graph.flops().0 as f64;
        let cell =
            |batch: usize, rank: usize| Cell { flops: batch as f64 * one, ..cell(batch, rank) };
        let batches: Vec<usize> = match (self.batch, self.extent) {
            (Some(batch), _) => vec![batch],
            (None, extent) => {
                let fits = |batch: &usize| *batch as f64 * one <= MUCH || *batch == BATCHES[0];
                let all: Vec<usize> = BATCHES.into_iter().filter(fits).collect();
                match extent {
                    Extent::All => all,
                    Extent::Quick => all[all.len().saturating_sub(2)..].to_vec(),
                }
            }
        };
        for &batch in &batches {
            for (i, &pieces) in PIECES.iter().enumerate().filter(|(_, p)| **p <= batch) {
                if self.extent == Extent::All || i < 2 {
                    cells.push(Cell { pieces, ..cell(batch, i) });
                }
            }
        }
        let last = batches.last().copied().unwrap_or(1);
        cells.push(Cell { optimizer: Optimizer::adam(0.01), ..cell(last, PIECES.len()) });
        if self.extent == Extent::Quick {
            return Ok(());
        }
        let few = ((LITTLE / one.max(1.0)) as usize).clamp(1, last);
        let programs = cell(few, 0).programs()?;
        for numerics in 1..calibrate::variants(&programs, &self.kernels.target()).len() {
            cells.push(Cell { numerics, ..cell(few, PIECES.len() + 1) });
        }
        Ok(())
    }
}

impl Cell {
    fn programs(&self) -> Result<Programs> {
        let spec = TrainSpec::new(self.batch, self.dtype, self.optimizer);
        Ok(self.model.lower(&spec)?.programs)
    }

    /// Whether a few of its steps take negligible time.
    pub(super) fn is_small(&self) -> bool {
        self.flops <= LITTLE / 10.0
    }

    /// Its description for progress lines.
    pub(super) fn name(&self) -> String {
        let mut name = format!("{} {}, batch {}", self.model.name, self.dtype, self.batch);
        if self.pieces > 1 {
            name += &format!(" in {} pieces", self.pieces);
        }
        if self.rank == PIECES.len() {
            name += &format!(", {}", self.optimizer.name());
        }
        if self.numerics > 0 {
            name += &format!(", other kernels {}", self.numerics);
        }
        name
    }

    /// Measures the step's calls for about a time.
    pub(super) fn measure(
        &self,
        kernels: &Settings<Kernels>,
        budget: Duration,
        into: &mut PerfModel,
    ) -> Result<calibrate::Measured> {
        let programs = self.programs()?;
        let target = kernels.target();
        let numerics = match self.numerics {
            0 => Numerics::default_for(&programs, target),
            n => calibrate::variants(&programs, &target).swap_remove(n),
        };
        let grain = Grain { target, sample: self.pieces, ..Grain::for_workers(1) };
        let plan = grain.plan_with(&programs, numerics)?;
        if let Some(room) = headroom() {
            plan.check_memory(room)?;
        }
        let kind = cpu_kind(target.isa);
        calibrate::steps(&plan, ProgramId(0), budget, &kind, into)
    }
}
