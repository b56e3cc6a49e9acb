//! How a model is trained: optimiser, schedule, augmentation, held-out samples.

use crate::grain::at_least_one;
use crate::schedule::{ScheduleText, Span};
use clap::{Args, ValueEnum};
use dahl::Error;
use dahl::data::{self, Augment, Dataset, Fractions, Part, Subset};
use dahl::model::{Optimizer, Schedule, TrainSpec};
use dahl::train::Visits;
use std::sync::Arc;

/// How the model is trained
#[derive(Args)]
pub(crate) struct RecipeArgs {
    /// How parameters follow their gradients
    #[arg(long, value_enum, default_value_t)]
    optimizer: OptimizerName,
    /// Learning rate
    #[arg(long, default_value_t = 0.003, value_parser = not_negative, allow_negative_numbers = true)]
    lr: f64,
    #[command(flatten)]
    update: UpdateArgs,
    /// Schedule of the learning rate: constant, step:EPOCHS:FACTOR, cosine,
    /// cosine:LEAST (from 0 to 1); each after warmup:EPOCHS+
    #[arg(long, default_value = "constant", value_parser = ScheduleText::parse)]
    schedule: ScheduleText,
    /// Move training images by up to this many pixels at random
    #[arg(long, value_name = "PIXELS", value_parser = at_least_one)]
    crop: Option<usize>,
    /// Mirror half of the training images, left to right
    #[arg(long)]
    flip: bool,
    /// Visit training samples in the dataset's order
    #[arg(long)]
    no_shuffle: bool,
    /// Hold out training samples and judge each epoch by them: a fraction such
    /// as 0.1, or a number of samples
    #[arg(long, value_name = "PART", value_parser = Held::parse)]
    validation: Option<Held>,
}

/// What an optimiser does with gradients: a part of the programs
#[derive(Args)]
pub(crate) struct UpdateArgs {
    /// How much of the last direction stays, with sgd [default: 0]
    #[arg(long, value_name = "PART", value_parser = below_one, allow_negative_numbers = true)]
    momentum: Option<f64>,
    /// Look ahead along the momentum, with sgd
    #[arg(long)]
    nesterov: bool,
    /// How strongly parameters are drawn to 0 [default: 0.01 with adamw, 0 with others]
    #[arg(long, value_name = "PART", value_parser = not_negative, allow_negative_numbers = true)]
    weight_decay: Option<f64>,
    /// How much of the mean gradient and of its square stays, with adam and adamw
    /// [default: 0.9,0.999]
    #[arg(long, value_name = "PART,PART", value_parser = two_parts)]
    betas: Option<Pair>,
    /// What is added to Adam's divisor [default: 1e-8]
    #[arg(long, value_name = "NUMBER", value_parser = positive, allow_negative_numbers = true)]
    eps: Option<f64>,
    /// Scale gradients down to at most this norm, all together
    #[arg(long, value_name = "NORM", value_parser = positive, allow_negative_numbers = true)]
    clip: Option<f64>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OptimizerName {
    /// Stochastic gradient descent
    Sgd,
    #[default]
    Adam,
    Adamw,
}

impl OptimizerName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            OptimizerName::Sgd => "sgd",
            OptimizerName::Adam => "adam",
            OptimizerName::Adamw => "adamw",
        }
    }
}

/// Two numbers of one flag.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair([f64; 2]);

/// How many training samples are held out.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    Fraction(f64),
    Samples(usize),
}

/// The training samples of a set.
pub(crate) struct Learning {
    /// Those to learn from.
    pub(crate) train: Arc<dyn Dataset>,
    /// Those that are held out.
    pub(crate) validation: Option<Arc<dyn Dataset>>,
}

impl UpdateArgs {
    /// What training is made of, but for sizes, element and seed.
    ///
    /// # Errors
    /// Names a flag that means nothing to the optimiser that was chosen.
    pub(crate) fn spec(
        &self,
        (batch, dtype): (usize, dahl::DType),
        (name, lr): (OptimizerName, f64),
    ) -> dahl::Result<TrainSpec> {
        let spec = TrainSpec::new(batch, dtype, self.optimizer(name, lr)?);
        Ok(TrainSpec { clip_grad_norm: self.clip, ..spec })
    }

    fn optimizer(&self, name: OptimizerName, lr: f64) -> dahl::Result<Optimizer> {
        let sgd_only = [("momentum", self.momentum.is_some()), ("nesterov", self.nesterov)];
        let adam_only = [("betas", self.betas.is_some()), ("eps", self.eps.is_some())];
        let (chosen, wrong, others) = match name {
            OptimizerName::Sgd => ("sgd", adam_only, "adam or adamw"),
            OptimizerName::Adam => ("adam", sgd_only, "sgd"),
            OptimizerName::Adamw => ("adamw", sgd_only, "sgd"),
        };
        if let Some((key, _)) = wrong.iter().find(|(_, given)| *given) {
            let expected = format!("it with the optimizer {others} only");
            return Err(Error::config(key, expected, format!("the optimizer {chosen}")));
        }
        let mut optimizer = match name {
            OptimizerName::Sgd => Optimizer::sgd(lr),
            OptimizerName::Adam => Optimizer::adam(lr),
            OptimizerName::Adamw => Optimizer::adamw(lr),
        };
        match &mut optimizer {
            Optimizer::Sgd { sgd, .. } => {
                sgd.momentum = self.momentum.unwrap_or(sgd.momentum);
                sgd.nesterov = self.nesterov;
                sgd.weight_decay = self.weight_decay.unwrap_or(sgd.weight_decay);
                if sgd.nesterov && sgd.momentum == 0.0 {
                    return Err(Error::config("nesterov", "a momentum above 0", "none"));
                }
            }
            Optimizer::Adam { adam, .. } => {
                adam.betas = self.betas.map_or(adam.betas, |Pair(betas)| betas);
                adam.eps = self.eps.unwrap_or(adam.eps);
                adam.weight_decay = self.weight_decay.unwrap_or(adam.weight_decay);
            }
        }
        Ok(optimizer)
    }
}

impl RecipeArgs {
    /// What training is made of, but for sizes, element and seed.
    ///
    /// # Errors
    /// As [`UpdateArgs::spec`].
    pub(crate) fn spec(&self, batch: usize, dtype: dahl::DType) -> dahl::Result<TrainSpec> {
        self.update.spec((batch, dtype), (self.optimizer, self.lr))
    }

    /// The learning rate of each step of a run.
    pub(crate) fn schedule(&self, run: Span) -> Schedule {
        self.schedule.over(run)
    }

    /// Whether all steps have one learning rate.
    pub(crate) fn is_constant(&self) -> bool {
        self.schedule.is_constant()
    }

    /// In which order training samples are visited.
    pub(crate) fn visits(&self) -> Visits {
        if self.no_shuffle { Visits::InOrder } else { Visits::Shuffled }
    }

    /// The random changes of training images.
    ///
    /// # Errors
    /// Where the samples are no images, or nothing would be left of them.
    pub(crate) fn augment(&self, data: &dyn Dataset, seed: u64) -> dahl::Result<Option<Augment>> {
        let key = match (self.crop, self.flip) {
            (None, false) => return Ok(None),
            (Some(_), _) => "crop",
            (None, true) => "flip",
        };
        if data.shape().rank() < 2 {
            let found = format!("samples of {} in {}", data.shape(), data.name());
            return Err(Error::config(key, "images", found));
        }
        let side = data.shape().axes().iter().rev().take(2).copied().min().unwrap_or(0);
        if let Some(crop) = self.crop.filter(|&crop| crop >= side) {
            let expected = format!(
                "fewer than the {side} pixels of the shorter side of images of {}",
                data.name()
            );
            return Err(Error::config("crop", expected, crop));
        }
        Ok(Some(Augment { seed, padding: self.crop.unwrap_or(0), flip: self.flip }))
    }

    /// The samples to learn from, and those that are held out.
    ///
    /// # Errors
    /// Where nothing would be left.
    pub(crate) fn hold_out(&self, train: Arc<dyn Dataset>, seed: u64) -> dahl::Result<Learning> {
        let samples = train.len();
        let validation = match self.validation {
            None => return Ok(Learning { train, validation: None }),
            Some(Held::Fraction(fraction)) => fraction,
            Some(Held::Samples(held)) => held as f64 / samples.max(1) as f64,
        };
        let held = (validation * samples as f64).round();
        if held < 1.0 || held >= samples as f64 {
            let expected = format!("1 to {} of the training samples", samples.saturating_sub(1));
            return Err(Error::config("validation", expected, held));
        }
        let parts = data::split(samples, seed, Fractions { validation, test: 0.0 })?;
        let subset = |part: Part| -> Arc<dyn Dataset> {
            let indices = parts.part(part).to_vec();
            Arc::new(Subset::new(train.clone(), indices, part.to_string()))
        };
        Ok(Learning { train: subset(Part::Train), validation: Some(subset(Part::Validation)) })
    }
}

impl Held {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(samples) = text.parse() {
            return if samples > 0 { Ok(Held::Samples(samples)) } else { Err(Self::expected()) };
        }
        match text.parse() {
            Ok(fraction) if 0.0 < fraction && fraction < 1.0 => Ok(Held::Fraction(fraction)),
            _ => Err(Self::expected()),
        }
    }

    fn expected() -> String {
        "expected a fraction between 0 and 1, or a number of samples".to_owned()
    }
}

fn number(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|x: &f64| x.is_finite());
    value.ok_or_else(|| "expected a number".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    let x = number(text)?;
    if x >= 0.0 { Ok(x) } else { Err("expected a number from 0 on".to_owned()) }
}

fn positive(text: &str) -> Result<f64, String> {
    let x = number(text)?;
    if x > 0.0 { Ok(x) } else { Err("expected a number above 0".to_owned()) }
}

fn below_one(text: &str) -> Result<f64, String> {
    let x = number(text)?;
    if (0.0..1.0).contains(&x) { Ok(x) } else { Err("expected 0 to below 1".to_owned()) }
}

fn two_parts(text: &str) -> Result<Pair, String> {
    let wrong = || "expected two numbers from 0 to below 1, such as 0.9,0.999".to_owned();
    let (first, second) = text.split_once(',').ok_or_else(wrong)?;
    let part = |text: &str| below_one(text.trim()).map_err(|_| wrong());
    Ok(Pair([part(first)?, part(second)?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use dahl::data::digits;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        recipe: RecipeArgs,
    }

    fn optimizer(line: &str) -> dahl::Result<Optimizer> {
        Ok(recipe(line).spec(4, dahl::DType::F32)?.optimizer)
    }

    fn recipe(line: &str) -> RecipeArgs {
        Line::try_parse_from(line.split(' ')).unwrap_or_else(|e| panic!("{e}")).recipe
    }

    #[test]
    fn flags_become_an_optimizer() {
        assert_eq!(optimizer("x").unwrap(), Optimizer::adam(0.003));
        assert_eq!(optimizer("x --optimizer adamw --lr 0.1").unwrap(), Optimizer::adamw(0.1));
        let line = "x --optimizer sgd --lr 1 --momentum 0.9 --nesterov --weight-decay 5e-4";
        let Optimizer::Sgd { lr, sgd } = optimizer(line).unwrap() else { panic!("no sgd") };
        assert_eq!((lr, sgd.momentum, sgd.weight_decay, sgd.nesterov), (1.0, 0.9, 5e-4, true));
        let line = "x --betas 0.8,0.9 --eps 1e-6 --weight-decay 0.1";
        let Optimizer::Adam { adam, .. } = optimizer(line).unwrap() else { panic!("no adam") };
        assert_eq!((adam.betas, adam.eps, adam.weight_decay), ([0.8, 0.9], 1e-6, 0.1));
        let spec = recipe("x --clip 5").spec(4, dahl::DType::F32).unwrap();
        assert_eq!(spec.clip_grad_norm, Some(5.0));
    }

    #[test]
    fn flags_that_mean_nothing_together_are_refused() {
        let check = |line: &str, expected: &str| {
            assert_eq!(optimizer(line).unwrap_err().to_string(), expected);
        };
        let only = "expected it with the optimizer";
        check("x --momentum 0.9", &format!("momentum: {only} sgd only, found the optimizer adam"));
        check(
            "x --optimizer adamw --nesterov",
            &format!("nesterov: {only} sgd only, found the optimizer adamw"),
        );
        check(
            "x --optimizer sgd --eps 1",
            &format!("eps: {only} adam or adamw only, found the optimizer sgd"),
        );
        check("x --optimizer sgd --nesterov", "nesterov: expected a momentum above 0, found none");
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for (line, expected) in [
            ("x --lr=-1", "expected a number from 0 on"),
            ("x --lr nan", "expected a number"),
            ("x --momentum 1", "expected 0 to below 1"),
            ("x --betas 0.9", "expected two numbers from 0 to below 1"),
            ("x --betas 0.9,1", "expected two numbers from 0 to below 1"),
            ("x --clip 0", "expected a number above 0"),
            ("x --crop 0", "expected at least 1"),
            ("x --validation 0", "expected a fraction between 0 and 1"),
            ("x --validation 1.0", "expected a fraction between 0 and 1"),
            ("x --schedule cosin", "expected constant, step:EPOCHS:FACTOR"),
        ] {
            let error = Line::try_parse_from(line.split(' ')).err().expect(line).to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn images_are_moved_and_mirrored() {
        let set = digits(Part::Train).unwrap();
        let augment = |line: &str| recipe(line).augment(&set, 3).unwrap();
        assert_eq!(augment("x"), None);
        assert_eq!(augment("x --crop 2"), Some(Augment { seed: 3, padding: 2, flip: false }));
        assert_eq!(augment("x --flip"), Some(Augment { seed: 3, padding: 0, flip: true }));
        augment("x --crop 7");
        for crop in ["8", "1000000000"] {
            let error = recipe(&format!("x --crop {crop}")).augment(&set, 3).unwrap_err();
            let expected = "crop: expected fewer than the 8 pixels of the shorter side of \
                            images of digits, train";
            assert_eq!(error.to_string(), format!("{expected}, found {crop}"));
        }
        let thin = data::Synthetic::new(dahl::Shape::new(&[1, 2, 28]), 2, 10, 0).unwrap();
        let error = recipe("x --crop 2").augment(&thin, 3).unwrap_err().to_string();
        assert!(error.starts_with("crop: expected fewer than the 2 pixels"), "{error}");
        let rows = data::Synthetic::new(dahl::Shape::new(&[5]), 2, 10, 0).unwrap();
        let error = recipe("x --flip").augment(&rows, 0).unwrap_err().to_string();
        assert!(error.starts_with("flip: expected images, found samples of [5]"), "{error}");
    }

    #[test]
    fn samples_are_held_out() {
        let set: Arc<dyn Dataset> = Arc::new(digits(Part::Test).unwrap());
        let sizes = |line: &str| {
            let Learning { train, validation } = recipe(line).hold_out(set.clone(), 1)?;
            Ok::<_, Error>((train.len(), validation.map(|held| held.len())))
        };
        assert_eq!(sizes("x").unwrap(), (359, None));
        assert_eq!(sizes("x --validation 0.1").unwrap(), (323, Some(36)));
        assert_eq!(sizes("x --validation 100").unwrap(), (259, Some(100)));
        let expected = "validation: expected 1 to 358 of the training samples, found";
        for (line, found) in [("x --validation 359", 359), ("x --validation 0.0001", 0)] {
            assert_eq!(sizes(line).unwrap_err().to_string(), format!("{expected} {found}"));
        }
    }
}
