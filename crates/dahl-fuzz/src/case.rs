//! What a target reads: one file, or the few that belong together.

use std::fmt;
use std::fs;
use std::path::Path;

/// Files by name. A name may have directories: `checkpoints/epoch-1-batch-0/state.json`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Case {
    /// What the case is called in the corpus.
    pub name: String,
    /// In the order of their names.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Case {
    /// The cases below a directory, in the order of their names: a file is a case of its
    /// own, called `input` with the file's extension, a directory is one of all its files.
    ///
    /// # Panics
    /// Where the directory cannot be read: the corpus is part of the sources.
    pub fn all(directory: &Path) -> Vec<Self> {
        let cases = entries(directory).into_iter().map(|name| {
            let path = directory.join(&name);
            let mut files = Vec::new();
            if path.is_dir() {
                collect(&path, "", &mut files);
            } else {
                let extension = name.split_once('.').map_or("", |(_, extension)| extension);
                files.push((format!("input.{extension}"), read(&path)));
            }
            Self { name, files }
        });
        cases.collect()
    }

    /// The content of a file; empty where there is none.
    pub fn bytes(&self, name: &str) -> &[u8] {
        let found = self.files.iter().find(|(file, _)| file == name);
        found.map_or(&[], |(_, bytes)| bytes)
    }

    /// The content of the only file.
    pub fn only(&self) -> &[u8] {
        self.files.first().map_or(&[], |(_, bytes)| bytes)
    }

    /// The content of the only file as text, as tools that replace wrong bytes read it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.only()).into_owned()
    }

    /// How many bytes all files have.
    pub fn len(&self) -> usize {
        self.files.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// True where no file has any content.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes all files below a directory.
    ///
    /// # Panics
    /// Where the disk does not take them.
    pub fn write(&self, directory: &Path) {
        for (name, bytes) in &self.files {
            let path = directory.join(name);
            let parent = path.parent().unwrap_or(directory);
            fs::create_dir_all(parent).and_then(|()| fs::write(&path, bytes)).expect("a file");
        }
    }
}

/// Names and lengths: the bytes are in the directory of the failure.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.files.iter().map(|(name, bytes)| format!("{name}: {} B", bytes.len()));
        write!(f, "{} ({})", self.name, lengths.collect::<Vec<_>>().join(", "))
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn entries(directory: &Path) -> Vec<String> {
    let listed = fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().into_string().expect("a name of text")
    };
    let mut names: Vec<String> = listed.map(name).collect();
    names.sort();
    names
}

fn collect(directory: &Path, prefix: &str, files: &mut Vec<(String, Vec<u8>)>) {
    for name in entries(directory) {
        let (path, full) = (directory.join(&name), format!("{prefix}{name}"));
        if path.is_dir() {
            collect(&path, &format!("{full}/"), files);
        } else {
            files.push((full, read(&path)));
        }
    }
}
