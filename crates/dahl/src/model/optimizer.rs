//! Optimizers, as `torch.optim` defines them.

use crate::graph::{Builder, Class};
use crate::names::named;
use crate::ops::optim::{Adam, Decay, Sgd};
use crate::ops::{Op, Recorder, Var};
use std::sync::Arc;

/// An optimizer with its hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd {
        /// The learning rate.
        lr: f64,
        /// Momentum, dampening, weight decay.
        sgd: Sgd,
    },
    /// Adam or AdamW.
    Adam {
        /// The learning rate.
        lr: f64,
        /// Betas, eps, weight decay.
        adam: Adam,
    },
}

/// The optimizers by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptimizerName {
    /// Stochastic gradient descent.
    Sgd,
    /// Adam.
    #[default]
    Adam,
    /// Adam with decoupled weight decay.
    Adamw,
}

named! {
    OptimizerName {
        Sgd = "sgd": "Stochastic gradient descent",
        Adam = "adam": "Adam",
        Adamw = "adamw": "Adam with decoupled weight decay",
    }
}

impl Optimizer {
    /// SGD without momentum or decay.
    pub fn sgd(lr: f64) -> Self {
        let sgd = Sgd {
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        };
        Optimizer::Sgd { lr, sgd }
    }

    /// Adam with PyTorch's defaults.
    pub fn adam(lr: f64) -> Self {
        Self::with_decay(lr, Decay::Gradient, 0.0)
    }

    /// AdamW with PyTorch's defaults.
    pub fn adamw(lr: f64) -> Self {
        Self::with_decay(lr, Decay::Parameter, 0.01)
    }

    fn with_decay(lr: f64, decay: Decay, weight_decay: f64) -> Self {
        let betas = [0.9, 0.999];
        let adam = Adam { betas, eps: 1e-8, weight_decay, decay, amsgrad: false, maximize: false };
        Optimizer::Adam { lr, adam }
    }

    /// The learning rate before any schedule.
    pub fn lr(&self) -> f64 {
        match self {
            Optimizer::Sgd { lr, .. } | Optimizer::Adam { lr, .. } => *lr,
        }
    }

    /// The name in configurations.
    pub fn name(&self) -> &'static str {
        match self {
            Optimizer::Sgd { .. } => "sgd",
            Optimizer::Adam { adam, .. } => match adam.decay {
                Decay::Gradient => "adam",
                Decay::Parameter => "adamw",
            },
        }
    }

    /// The op and the names of its states.
    fn op(&self) -> (Arc<dyn Op>, &'static [&'static str]) {
        match self {
            Optimizer::Sgd { sgd, .. } if sgd.momentum == 0.0 => (Arc::new(*sgd), &[]),
            Optimizer::Sgd { sgd, .. } => (Arc::new(*sgd), &["momentum_buffer"]),
            Optimizer::Adam { adam, .. } if adam.amsgrad => {
                (Arc::new(*adam), &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"])
            }
            Optimizer::Adam { adam, .. } => (Arc::new(*adam), &["exp_avg", "exp_avg_sq"]),
        }
    }

    /// Records the update of one parameter; `scalars` are ok, the number of this
    /// update and, where gradients are clipped, the factor.
    pub(super) fn record(
        &self,
        b: &mut Builder<'_>,
        param: (Var, &str),
        grad: Var,
        scalars: &[Var],
    ) {
        let (op, states) = self.op();
        let meta = b.meta(param.0);
        let mut outputs = vec![param.0];
        for state in states {
            let name = format!("{}.{state}", param.1);
            outputs.push(b.persistent_named(&name, meta, Class::Optimizer));
        }
        let inputs: Vec<Var> = std::iter::once(grad).chain(scalars.iter().copied()).collect();
        b.update(op, &inputs, &outputs);
    }
}
