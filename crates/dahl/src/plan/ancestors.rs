//! Which edges follow from others.

use crate::units::TaskId;
use std::collections::VecDeque;

/// For how many of the last tasks it is known what comes before them. An edge from further back is
/// kept though it may follow from others, which costs a look at a counter; what would be known of
/// all tasks grows with their square.
const WINDOW: usize = 1 << 14;

/// Drops predecessors that come before another predecessor; predecessors come before their task.
pub(super) fn drop_implied(preds: &mut [Vec<TaskId>]) {
    let mut known: VecDeque<Ancestors> = VecDeque::new();
    for (task, preds) in preds.iter_mut().enumerate() {
        let oldest = task - known.len();
        let mut set = Ancestors::of(task);
        // An ancestor comes before its descendants, so the last are looked at first.
        preds.sort_unstable_by(|a, b| b.cmp(a));
        preds.dedup();
        preds.retain(|pred| {
            let new = !set.contains(pred.index());
            if new {
                set.insert(pred.index());
                let before = pred.index().checked_sub(oldest).and_then(|at| known.get(at));
                before.into_iter().for_each(|before| set.add_all(before));
            }
            new
        });
        preds.reverse();
        if known.len() == WINDOW {
            known.pop_front();
        }
        known.push_back(set);
    }
}

/// The tasks of a window that come before a task, one bit each.
struct Ancestors {
    /// The index of the first word.
    from: usize,
    words: Vec<u64>,
}

impl Ancestors {
    /// None yet of those before `task`.
    fn of(task: usize) -> Self {
        let from = task.saturating_sub(WINDOW) / 64;
        Self { from, words: vec![0; task / 64 + 1 - from] }
    }

    fn insert(&mut self, task: usize) {
        if let Some(word) = (task / 64).checked_sub(self.from) {
            self.words[word] |= 1 << (task % 64);
        }
    }

    fn contains(&self, task: usize) -> bool {
        let word = (task / 64).checked_sub(self.from).and_then(|word| self.words.get(word));
        word.is_some_and(|word| word >> (task % 64) & 1 == 1)
    }

    /// Adds those of an earlier task.
    fn add_all(&mut self, earlier: &Self) {
        let skipped = self.from - earlier.from;
        for (word, more) in self.words.iter_mut().zip(earlier.words.iter().skip(skipped)) {
            *word |= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{WINDOW, drop_implied};
    use crate::units::TaskId;

    fn left(preds: &[&[usize]]) -> Vec<Vec<usize>> {
        let ids = |preds: &&[usize]| preds.iter().map(|&p| TaskId::new(p)).collect();
        let mut preds: Vec<Vec<TaskId>> = preds.iter().map(ids).collect();
        drop_implied(&mut preds);
        preds.iter().map(|p| p.iter().map(|p| p.index()).collect()).collect()
    }

    #[test]
    fn what_follows_from_other_edges_is_dropped() {
        let all: [&[usize]; 5] = [&[], &[0], &[0, 1, 1], &[0], &[0, 1, 2, 3]];
        assert_eq!(left(&all), [vec![], vec![0], vec![1], vec![0], vec![2, 3]]);
    }

    #[test]
    fn beyond_the_window_an_edge_stays() {
        // A chain, whose last task also waits for the first and the one before the last.
        let mut chain: Vec<Vec<TaskId>> = (0..WINDOW + 200)
            .map(|i| i.checked_sub(1).map(TaskId::new).into_iter().collect())
            .collect();
        let last = chain.len() - 1;
        chain[last].extend([
            TaskId::new(0),
            TaskId::new(last - 2),
            TaskId::new(last - WINDOW + 64),
        ]);
        drop_implied(&mut chain);
        assert_eq!(chain[last], [TaskId::new(0), TaskId::new(last - 1)]);
    }
}
