//! The order ideals of a graph of groups: sets that contain the inputs of all their groups. Each set
//! is linked to the sets with one group more, so that all larger sets are reached along the links.

use std::collections::BTreeMap;

/// The largest lattice that is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Sets.
    pub(super) sets: usize,
    /// Bytes of sets and links.
    pub(super) bytes: usize,
}

/// Sets in ascending size; the first is empty, the last has all groups.
pub(super) struct Lattice {
    words: usize,
    bits: Vec<u64>,
    /// Where the links of each set begin.
    first: Vec<usize>,
    /// A group and the set that it leads to.
    links: Vec<(u32, u32)>,
}

impl Lattice {
    /// All ideals of a graph, given the inputs of each group; `None` if the lattice would be too large.
    pub(super) fn new(inputs: &[Vec<usize>], most: Size) -> Option<Self> {
        let words = inputs.len().div_ceil(64).max(1);
        let mut users: Vec<Vec<usize>> = vec![Vec::new(); inputs.len()];
        for (to, from) in inputs.iter().enumerate() {
            from.iter().for_each(|&from| users[from].push(to));
        }
        let mut of = Self { words, bits: vec![0; words], first: Vec::new(), links: Vec::new() };
        // The groups that can be added to each set of the current size.
        let mut ready: Vec<Vec<u32>> =
            vec![(0..inputs.len() as u32).filter(|&i| inputs[i as usize].is_empty()).collect()];
        let mut begin = 0;
        while !ready.is_empty() {
            let mut ids: BTreeMap<Vec<u64>, u32> = BTreeMap::new();
            let mut next: Vec<Vec<u32>> = Vec::new();
            for (i, own) in ready.iter().enumerate() {
                of.first.push(of.links.len());
                for &group in own {
                    let mut larger = of.set(begin + i).to_vec();
                    larger[group as usize / 64] |= 1 << (group % 64);
                    let fresh = begin + ready.len() + next.len();
                    let id = *ids.entry(larger).or_insert_with_key(|larger| {
                        let has = |&i: &usize| larger[i / 64] >> (i % 64) & 1 == 1;
                        let others = own.iter().copied().filter(|&other| other != group);
                        let freed = users[group as usize].iter().copied();
                        let freed = freed.filter(|&user| inputs[user].iter().all(has));
                        next.push(others.chain(freed.map(|user| user as u32)).collect());
                        of.bits.extend(larger);
                        fresh as u32
                    });
                    of.links.push((group, id));
                }
                if of.len() > most.sets || of.bytes() > most.bytes {
                    return None;
                }
            }
            begin += ready.len();
            ready = next;
        }
        of.first.push(of.links.len());
        Some(of)
    }

    pub(super) fn len(&self) -> usize {
        self.bits.len() / self.words
    }

    fn bytes(&self) -> usize {
        8 * (self.bits.len() + self.first.len() + self.links.len())
    }

    fn set(&self, set: usize) -> &[u64] {
        &self.bits[set * self.words..][..self.words]
    }

    /// Where the links of a set begin and end.
    pub(super) fn range(&self, set: usize) -> std::ops::Range<usize> {
        self.first[set]..self.first[set + 1]
    }

    /// A group that a set lacks, and the set with it.
    pub(super) fn link(&self, link: usize) -> (usize, usize) {
        let (group, set) = self.links[link];
        (group as usize, set as usize)
    }

    /// The groups of a set that a smaller one lacks, ascending.
    pub(super) fn between(&self, before: usize, set: usize) -> Vec<usize> {
        let new = self.set(set).iter().zip(self.set(before)).map(|(l, s)| l & !s);
        let groups = new.enumerate().flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        });
        groups.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ideals_are_linked_to_all_that_have_one_group_more() {
        let most = Size { sets: 100, bytes: 1 << 20 };
        // A diamond: 0 before 1 and 2, both before 3.
        let diamond = vec![vec![], vec![0], vec![0], vec![1, 2]];
        let of = Lattice::new(&diamond, most).unwrap();
        let sets: Vec<Vec<usize>> = (0..of.len()).map(|set| of.between(0, set)).collect();
        let expected: [&[usize]; 6] = [&[], &[0], &[0, 1], &[0, 2], &[0, 1, 2], &[0, 1, 2, 3]];
        assert_eq!(sets, expected);
        let links = |set: usize| -> Vec<_> { of.range(set).map(|link| of.link(link)).collect() };
        assert_eq!(links(1), [(1, 2), (2, 3)]);
        assert_eq!([links(2), links(3)], [[(2, 4)], [(1, 4)]]);
        // Ten groups without edges have 1,024 ideals.
        let apart = vec![vec![]; 10];
        assert!(Lattice::new(&apart, most).is_none());
        assert_eq!(Lattice::new(&apart, Size { sets: 1024, ..most }).unwrap().len(), 1024);
        assert!(Lattice::new(&apart, Size { sets: 1024, bytes: 1000 }).is_none());
    }
}
