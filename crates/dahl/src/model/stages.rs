//! Layers in stages, and steps that compute with older parameters.

/// Which stage each layer belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// By the layer's path, in the order of the forward pass.
    layers: Vec<(String, usize)>,
    count: usize,
}

impl Stages {
    /// Layers, by path in the order of the forward pass, with their stages.
    pub fn new<'a>(layers: impl IntoIterator<Item = (&'a str, usize)>) -> Self {
        let layers: Vec<(String, usize)> =
            layers.into_iter().map(|(path, stage)| (path.to_owned(), stage)).collect();
        let count = layers.iter().map(|(_, stage)| stage + 1).max().unwrap_or(1);
        Self { layers, count }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The stage of a layer, or of something below one, such as its weight. What has
    /// no layer, such as the loss, is of the last.
    pub fn of(&self, path: &str) -> usize {
        let mut at = path;
        loop {
            if let Some((_, stage)) = self.layers.iter().find(|(path, _)| path == at) {
                return *stage;
            }
            match at.rsplit_once('.') {
                Some((above, _)) => at = above,
                None => return self.count.saturating_sub(1),
            }
        }
    }

    /// The layers of a stage.
    pub fn layers(&self, stage: usize) -> impl Iterator<Item = &str> {
        self.layers.iter().filter(move |(_, s)| *s == stage).map(|(path, _)| path.as_str())
    }
}

/// How old the parameters are that steps compute with: a stage of delay d computes step k
/// with the parameters as they were d updates before, forward and backward alike; the
/// update is made to the newest. The first steps compute with the first ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Which layers.
    pub stages: Stages,
    /// How many updates are missing, by stage.
    pub by_stage: Vec<usize>,
}

impl Delays {
    /// PipeDream with weight stashing: a stage computes with what it has when the step
    /// comes by, which the later stages' updates are missing in.
    pub fn stashed(stages: Stages) -> Self {
        let count = stages.count();
        Self { by_stage: (0..count).map(|stage| count - 1 - stage).collect(), stages }
    }

    /// The same with vertical sync: all stages with those of the first.
    pub fn synced(stages: Stages) -> Self {
        let count = stages.count();
        Self { by_stage: vec![count - 1; count], stages }
    }

    /// PipeDream-2BW: all stages one update behind.
    pub fn double_buffered(stages: Stages) -> Self {
        Self { by_stage: vec![1; stages.count()], stages }
    }

    /// How many versions a stage keeps besides the newest: none where it needs no older
    /// one. Powers of two, so that few programs take turns.
    pub fn kept(&self, stage: usize) -> usize {
        match self.by_stage[stage] {
            0 => 0,
            delay => (delay + 1).next_power_of_two(),
        }
    }

    /// How many programs take turns.
    pub fn turns(&self) -> usize {
        (0..self.by_stage.len()).map(|stage| self.kept(stage)).max().unwrap_or(0).max(1)
    }

    /// The version that a layer of this path reads in a step of this turn, and the one
    /// that its update writes; `None` where it takes the newest.
    pub(super) fn versions(&self, path: &str, turn: usize) -> Option<[usize; 2]> {
        let stage = self.stages.of(path);
        let (delay, kept) = (self.by_stage[stage], self.kept(stage));
        (kept > 0).then(|| [(turn + kept - delay) % kept, (turn + 1) % kept])
    }
}

/// Names of kept versions.
pub(crate) mod version {
    /// Between the parameter's name and the version's number.
    pub(crate) const MARK: char = '@';

    /// The name of a version.
    pub(crate) fn name(parameter: &str, slot: usize) -> String {
        format!("{parameter}{MARK}{slot}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_of_its_layers_stage_and_the_loss_of_the_last() {
        let stages = Stages::new([("conv1", 0), ("layer1.0.conv1", 1), ("fc", 2)]);
        let of = ["conv1.weight", "layer1.0.conv1.weight", "fc", "loss", "conv10"];
        assert_eq!(of.map(|path| stages.of(path)), [0, 1, 2, 2, 2]);
    }

    #[test]
    fn a_version_is_read_until_its_step_writes_over_it() {
        for count in 1..9 {
            let stages =
                Stages::new((0..count).map(|_| ("x", 0)).take(1).chain([("y", count - 1)]));
            for delays in [
                Delays::stashed(stages.clone()),
                Delays::synced(stages.clone()),
                Delays::double_buffered(stages.clone()),
            ] {
                // Version k is the parameter after k updates; the first are all version 0.
                let mut slots = vec![0usize; delays.kept(0)];
                for step in 0..40usize {
                    let turn = step % delays.turns();
                    let Some([read, next]) = delays.versions("x", turn) else { continue };
                    assert_eq!(slots[read], step.saturating_sub(delays.by_stage[0]));
                    slots[next] = step + 1;
                }
            }
        }
    }
}
