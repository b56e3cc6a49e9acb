//! Who has the bytes of a memory.

use super::storage::StorageId;
use std::collections::BTreeMap;
use std::ops::Range;

/// The storage that has each byte.
#[derive(Clone, Default)]
pub(super) struct Occupants {
    /// By their first byte: the end of the bytes, and whose they are.
    ranges: BTreeMap<usize, (usize, StorageId)>,
}

impl Occupants {
    /// The storages that have some of these bytes.
    pub(super) fn of(&self, bytes: &Range<usize>) -> Vec<StorageId> {
        self.overlapping(bytes).map(|(_, _, id)| id).collect()
    }

    /// All bytes that somebody has.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<usize>, StorageId)> {
        self.ranges.iter().map(|(&start, &(end, id))| (start..end, id))
    }

    /// Gives bytes to a storage; those that had them lose them.
    pub(super) fn take(&mut self, bytes: Range<usize>, id: StorageId) {
        let lost: Vec<_> = self.overlapping(&bytes).collect();
        for (start, end, before) in lost {
            self.ranges.remove(&start);
            if start < bytes.start {
                self.ranges.insert(start, (bytes.start, before));
            }
            if bytes.end < end {
                self.ranges.insert(bytes.end, (end, before));
            }
        }
        if !bytes.is_empty() {
            self.ranges.insert(bytes.start, (bytes.end, id));
        }
    }

    /// Takes bytes from a storage that has all of them.
    pub(super) fn free(&mut self, bytes: &Range<usize>) {
        self.ranges.remove(&bytes.start);
    }

    fn overlapping(
        &self,
        bytes: &Range<usize>,
    ) -> impl Iterator<Item = (usize, usize, StorageId)> + use<'_> {
        let (start, end) = (bytes.start, bytes.end.max(bytes.start));
        let before = self.ranges.range(..end).rev();
        let found = before.map(|(&from, &(to, id))| (from, to, id));
        found.take_while(move |&(_, to, _)| to > start)
    }
}

#[cfg(test)]
mod tests {
    use super::Occupants;

    #[test]
    fn bytes_belong_to_the_last_who_took_them() {
        let mut all = Occupants::default();
        all.take(0..10, 0);
        all.take(4..6, 1);
        all.take(5..12, 2);
        let found: Vec<_> = all.iter().collect();
        assert_eq!(found, [(0..4, 0), (4..5, 1), (5..12, 2)]);
        assert_eq!(all.of(&(3..5)), [1, 0]);
        assert!(all.of(&(12..20)).is_empty() && all.of(&(4..4)).is_empty());
    }
}
