//! What a disk holds after a loss of power, from the operations before it.
//!
//! A file's bytes are sure to be there when the file was synced, an entry of a directory when
//! the directory was. Everything later may be there, or not, or in part.

use crate::campaign::Op;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Id = usize;

#[derive(Clone, Debug)]
enum Node {
    File { bytes: Vec<u8>, synced: Vec<u8> },
    Directory { entries: BTreeMap<String, Id>, synced: BTreeMap<String, Id> },
}

/// A disk with what is on it and what is on its way to it.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Vec<Node>);

/// What becomes of entries that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entries {
    Kept,
    Lost,
    /// Lost in one directory, kept in all others.
    LostIn(Id),
}

/// What becomes of bytes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsynced {
    Kept,
    Dropped,
    /// The first half of them is there.
    Torn,
    /// The file has its length, but not its bytes.
    Zeros,
}

/// What is found afterwards: files with their bytes, directories without.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State(BTreeMap<String, Option<Vec<u8>>>);

const ROOT: Id = 0;

impl Disk {
    /// A disk with files that are safe.
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        let entries: BTreeMap<String, Id> =
            files.iter().enumerate().map(|(i, (name, _))| ((*name).to_owned(), i + 1)).collect();
        let mut nodes = vec![Node::Directory { entries: entries.clone(), synced: entries }];
        nodes.extend(
            files
                .iter()
                .map(|(_, bytes)| Node::File { bytes: bytes.to_vec(), synced: bytes.to_vec() }),
        );
        Self(nodes)
    }

    fn entries(&mut self, directory: Id) -> &mut BTreeMap<String, Id> {
        match &mut self.0[directory] {
            Node::Directory { entries, .. } => entries,
            Node::File { .. } => panic!("a file is no directory"),
        }
    }

    /// The directory that a path is in, and its name there.
    fn place(&mut self, path: &str) -> (Id, String) {
        let mut names: Vec<&str> = path.split('/').filter(|name| *name != ".").collect();
        let name = names.pop().unwrap_or_default();
        let found = names.iter().fold(ROOT, |at, name| self.entries(at)[*name]);
        (found, name.to_owned())
    }

    fn find(&mut self, path: &str) -> Id {
        let (directory, name) = self.place(path);
        if name.is_empty() { directory } else { self.entries(directory)[&name] }
    }

    fn add(&mut self, path: &str, node: Node) {
        let (directory, name) = self.place(path);
        self.0.push(node);
        let id = self.0.len() - 1;
        self.entries(directory).insert(name, id);
    }

    fn file(&mut self, path: &str) -> (&mut Vec<u8>, &mut Vec<u8>) {
        let id = self.find(path);
        match &mut self.0[id] {
            Node::File { bytes, synced } => (bytes, synced),
            Node::Directory { .. } => panic!("{path} is a directory"),
        }
    }

    fn is_there(&mut self, path: &str) -> bool {
        let (directory, name) = self.place(path);
        self.entries(directory).contains_key(&name)
    }

    /// Does an operation.
    pub(crate) fn apply(&mut self, op: &Op) {
        let path = op.path.as_str();
        let empty = || Node::File { bytes: Vec::new(), synced: Vec::new() };
        match op.kind.as_str() {
            "create" if self.is_there(path) => self.file(path).0.clear(),
            "append" if self.is_there(path) => {}
            "create" | "append" => self.add(path, empty()),
            "write" => self.file(path).0.extend_from_slice(&op.bytes),
            "cut" => self.file(path).0.truncate(op.more.parse().expect("a length")),
            "sync" => {
                let (bytes, synced) = self.file(path);
                synced.clone_from(bytes);
            }
            "mkdir" => {
                let (entries, synced) = (BTreeMap::new(), BTreeMap::new());
                self.add(path, Node::Directory { entries, synced });
            }
            "rename" => {
                let (directory, name) = self.place(path);
                let id = self.entries(directory).remove(&name).expect("it is there");
                let (directory, name) = self.place(&op.more);
                self.entries(directory).insert(name, id);
            }
            "remove" | "remove-tree" => {
                let (directory, name) = self.place(path);
                self.entries(directory).remove(&name);
            }
            "sync-directory" => {
                let id = self.find(path);
                if let Node::Directory { entries, synced } = &mut self.0[id] {
                    synced.clone_from(entries);
                }
            }
            "open" | "read" | "list" | "lock" | "spawn" => {}
            kind => panic!("{kind} is no operation"),
        }
    }

    /// The disk in the middle of an operation that takes several steps.
    pub(crate) fn interrupted(&self, op: &Op) -> Vec<Self> {
        if op.kind != "remove-tree" {
            return Vec::new();
        }
        let mut disk = self.clone();
        let id = disk.find(&op.path);
        let names: Vec<String> = disk.entries(id).keys().cloned().collect();
        let removed = names.iter().map(|name| {
            disk.entries(id).remove(name);
            disk.clone()
        });
        removed.collect()
    }

    /// Everything that may be found if the power fails now.
    pub(crate) fn states(&self) -> BTreeSet<State> {
        let pending = self.0.iter().enumerate().filter(|(_, node)| match node {
            Node::Directory { entries, synced } => entries != synced,
            Node::File { .. } => false,
        });
        let lost = pending.map(|(id, _)| Entries::LostIn(id));
        let entries: Vec<Entries> =
            [Entries::Kept, Entries::Lost].into_iter().chain(lost).collect();
        let bytes = [Unsynced::Kept, Unsynced::Dropped, Unsynced::Torn, Unsynced::Zeros];
        let all = entries.iter().flat_map(|entries| bytes.map(|bytes| (*entries, bytes)));
        all.map(|(entries, bytes)| self.state(entries, bytes)).collect()
    }

    /// What is found if the power fails now, in one of the ways.
    pub(crate) fn state(&self, entries: Entries, bytes: Unsynced) -> State {
        let mut state = BTreeMap::new();
        self.walk(ROOT, "", (entries, bytes), &mut state);
        State(state)
    }

    fn walk(
        &self,
        id: Id,
        path: &str,
        how: (Entries, Unsynced),
        into: &mut BTreeMap<String, Option<Vec<u8>>>,
    ) {
        match &self.0[id] {
            Node::File { bytes, synced } => {
                let sure = common(bytes, synced);
                let found = match how.1 {
                    Unsynced::Kept => bytes.clone(),
                    Unsynced::Dropped => synced.clone(),
                    Unsynced::Torn => bytes[..sure + (bytes.len() - sure) / 2].to_vec(),
                    Unsynced::Zeros => {
                        let mut found = bytes.clone();
                        found[sure..].fill(0);
                        found
                    }
                };
                into.insert(path.to_owned(), Some(found));
            }
            Node::Directory { entries, synced } => {
                let lost = match how.0 {
                    Entries::Kept => false,
                    Entries::Lost => true,
                    Entries::LostIn(directory) => directory == id,
                };
                if id != ROOT {
                    into.insert(path.to_owned(), None);
                }
                for (name, inside) in if lost { synced } else { entries } {
                    let path =
                        if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    self.walk(*inside, &path, how, into);
                }
            }
        }
    }
}

/// How many bytes were synced: those in front of the first that differs.
fn common(bytes: &[u8], synced: &[u8]) -> usize {
    if bytes.starts_with(synced) {
        return synced.len();
    }
    bytes.iter().zip(synced).take_while(|(a, b)| a == b).count()
}

impl State {
    /// Makes it be so in a directory.
    pub(crate) fn write(&self, place: &Path) {
        for (path, bytes) in &self.0 {
            let path = place.join(path);
            match bytes {
                // It may be there already.
                None => fs::create_dir_all(path).expect("a directory"),
                Some(bytes) => fs::write(path, bytes).expect("a file"),
            }
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (path, bytes) in &self.0 {
            match bytes {
                None => writeln!(f, "{path}/")?,
                Some(bytes) => writeln!(f, "{path}: {} bytes", bytes.len())?,
            }
        }
        Ok(())
    }
}
