//! What variants cost, as shipped: one table an instruction set.
//!
//! The figures decide which variant a plan has by default, and so are part of
//! the numerics: two machines with the same instruction set choose alike. They
//! need to rank variants, not to predict times.

use dahl_kernels::conv2d::Form;
use dahl_kernels::{Isa, Shape};

/// Cycles of the parts of kernels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Of a product and sum, in a product of large matrices.
    product: f64,
    /// Of a point in a transform of pixels, outputs or gradients.
    point: f64,
    /// Of a point in a transform of weights: they are written far away.
    weight: f64,
    /// The most channels of a result for which nothing is copied.
    few: usize,
}

impl Costs {
    /// Those of an instruction set.
    pub(super) fn of(isa: Isa) -> Self {
        match isa {
            Isa::Portable => Self { product: 0.5, point: 1.0, weight: 2.0, few: 16 },
            Isa::Neon => Self { product: 0.15, point: 0.5, weight: 1.5, few: 16 },
            Isa::Avx2 => Self { product: 0.075, point: 0.25, weight: 1.0, few: 16 },
            Isa::Avx512 => Self { product: 0.04, point: 0.15, weight: 1.0, few: 16 },
        }
    }

    /// A convolution that takes every product.
    pub(super) fn product(&self, image: &Shape, weight: &Shape) -> f64 {
        let outputs = image[0] * image[2] * image[3];
        (outputs * weight.elements()) as f64 * self.product
    }

    /// A convolution that copies no patches, of so many channels of the result.
    pub(super) fn direct(&self, image: &Shape, weight: &Shape, results: usize) -> f64 {
        let products = self.product(image, weight);
        if results <= self.few { products / 2.0 } else { products * 2.0 }
    }

    /// A convolution of 3x3 taps in tiles.
    pub(super) fn winograd(&self, form: Form, image: &Shape, weight: &Shape) -> f64 {
        let tiles = |a: usize| image[a].div_ceil(form.outputs());
        let tiles = (image[0] * tiles(2) * tiles(3)) as f64;
        let (filters, channels) = (weight[0] as f64, weight[1] as f64);
        let points = form.products() as f64;
        points
            * (tiles * filters * channels * self.product
                + tiles * (filters + channels) * self.point
                + filters * channels * self.weight)
    }
}
