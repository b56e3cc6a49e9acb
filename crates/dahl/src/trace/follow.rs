//! One header for a run that changes its placement.

use super::{CodeletShape, Header, PlacementHeader, ProgramHeader};
use std::collections::BTreeMap;

impl Header {
    /// The header of a run that goes on by another placement, whose own is `next`: the
    /// numbers of all that was before stay as they are, and what is new comes behind. The
    /// programs of the new placement come again, with its number.
    pub(crate) fn followed_by(&self, next: Header, name: &str, why: &str) -> Header {
        let mut all = self.clone();
        let mut programs = all.join(next);
        let (number, first) = (all.placements.len() + 1, all.programs.len() as u32);
        for program in &mut programs {
            program.name = format!("{} ({number})", program.name);
            program.across.iter_mut().for_each(|across| across.program += first);
        }
        all.programs.append(&mut programs);
        let (name, why) = (name.to_owned(), why.to_owned());
        all.placements.push(PlacementHeader { name, why, program: first });
        all
    }

    /// The same where no event is recorded: codelets and cells keep their numbers, and of the
    /// programs there are those of the new placement alone.
    pub(crate) fn replaced_by(&self, next: Header) -> Header {
        let mut all = self.clone();
        all.programs = all.join(next);
        all
    }

    /// Takes over what another header numbers, and gives its programs in these numbers.
    fn join(&mut self, next: Header) -> Vec<ProgramHeader> {
        let codelets = numbers(&mut self.codelets, next.codelets);
        let layers = numbers(&mut self.layers, next.layers);
        let known = self.cells.iter().enumerate();
        let mut known: BTreeMap<(u32, String), u32> =
            known.map(|(i, cell)| ((cell.codelet, cell.shape.clone()), i as u32)).collect();
        let mut cells = Vec::with_capacity(next.cells.len());
        for cell in next.cells {
            let codelet = codelets[cell.codelet as usize];
            let number = *known.entry((codelet, cell.shape.clone())).or_insert_with(|| {
                self.cells.push(CodeletShape { codelet, ..cell });
                self.cells.len() as u32 - 1
            });
            cells.push(number);
        }
        self.workers = self.workers.max(next.workers);
        let mut programs = next.programs;
        let work = programs.iter_mut().flat_map(|program| &mut program.work);
        for (cell, layer) in work.flat_map(|work| &mut work.calls) {
            (*cell, *layer) = (cells[*cell as usize], layers[*layer as usize]);
        }
        programs
    }
}

/// The numbers of names in a list that grows by those that it does not have.
fn numbers(all: &mut Vec<String>, names: Vec<String>) -> Vec<u32> {
    let known = all.iter().enumerate().map(|(i, name)| (name.clone(), i as u32));
    let mut known: BTreeMap<String, u32> = known.collect();
    let mut number = |name: String| {
        *known.entry(name).or_insert_with_key(|name| {
            all.push(name.clone());
            all.len() as u32 - 1
        })
    };
    names.into_iter().map(&mut number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Across, TaskWork};

    fn header(codelets: &[&str], workers: usize) -> Header {
        let cell =
            |codelet| CodeletShape { codelet, shape: "f32[2]".to_owned(), flops: 4, bytes: 8 };
        let count = codelets.len() as u32;
        let calls = (0..count).map(|c| (c, 0)).collect();
        Header {
            workers,
            codelets: codelets.iter().map(|name| (*name).to_owned()).collect(),
            cells: (0..count).map(cell).collect(),
            layers: vec!["fc".to_owned()],
            programs: vec![ProgramHeader {
                name: "train 2".to_owned(),
                tasks: vec!["t0".to_owned()],
                work: vec![TaskWork { calls, after: vec![] }],
                across: vec![Across { program: 0, waits: vec![(0, 0)] }],
            }],
            ..Header::default()
        }
    }

    #[test]
    fn numbers_stay_and_new_ones_come_behind() {
        let both = header(&["a", "b"], 1).followed_by(header(&["c", "a"], 2), "sample=2", "why");
        assert_eq!(both.codelets, ["a", "b", "c"]);
        assert_eq!(both.cells.iter().map(|c| c.codelet).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(both.programs[0].work[0].calls, [(0, 0), (1, 0)]);
        assert_eq!(both.programs[1].work[0].calls, [(2, 0), (0, 0)]);
        assert_eq!(both.programs[1].name, "train 2 (1)");
        assert_eq!(
            (both.programs[0].across[0].program, both.programs[1].across[0].program),
            (0, 1)
        );
        assert_eq!((both.workers, both.layers.len()), (2, 1));
        assert_eq!((both.placements[0].name.as_str(), both.placements[0].program), ("sample=2", 1));
    }

    #[test]
    fn programs_are_replaced_where_nothing_is_recorded() {
        let first = header(&["a", "b"], 2);
        let next = first.replaced_by(header(&["c", "a"], 1));
        assert_eq!(next.codelets, ["a", "b", "c"]);
        assert_eq!((next.programs.len(), next.placements.len(), next.workers), (1, 0, 2));
        assert_eq!(next.programs[0].work[0].calls, [(2, 0), (0, 0)]);
        assert_eq!(next.programs[0].name, "train 2");
    }
}
