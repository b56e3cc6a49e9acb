//! The grains to choose from: the space is small and documented (docs/grain.md).

use super::{Grain, PIECES_A_WORKER};

/// The grains that are tried for up to so many workers.
pub fn candidates(workers: usize, samples: usize, base: &Grain) -> Vec<Grain> {
    let mut all = Vec::new();
    let mut counts: Vec<usize> =
        (0..).map(|i| 1 << i).take_while(|w| *w < workers).chain([workers]).collect();
    counts.dedup();
    for &workers in &counts {
        let shares = Vec::new();
        let one =
            Grain { sample: 1, channel: 1, row: 1, column: 1, layer: 1, shares, ..base.clone() };
        let one = || Grain { workers, ..one.clone() };
        let mut sample = workers;
        while sample <= samples.min(PIECES_A_WORKER * workers) {
            all.push(Grain { sample, ..one() });
            sample *= 2;
        }
        if workers == 1 {
            continue;
        }
        all.push(Grain { channel: workers, ..one() });
        all.push(Grain { row: workers, ..one() });
        if samples > 1 {
            let sample = workers.min(samples);
            all.push(Grain { sample, channel: 2, ..one() });
            all.push(Grain { sample: (2 * sample).min(samples), layer: 2, ..one() });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_pieces_than_samples() {
        for (workers, samples) in [(2, 2), (2, 3), (4, 5), (4, 64)] {
            let all = candidates(workers, samples, &Grain::for_workers(workers));
            assert!(all.iter().all(|grain| grain.sample <= samples), "{workers} {samples}");
        }
    }
}
