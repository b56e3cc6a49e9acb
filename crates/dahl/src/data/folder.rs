//! Folders of images: listed at once, decoded when a sample is read.

use super::decode::{ImageOptions, decode_file};
use super::{Access, Dataset, MAX_CLASSES, SampleFile, check_read};
use crate::error::{Error, Result};
use dahl_kernels::Shape;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const EXTENSIONS: [&str; 3] = ["jpg", "jpeg", "png"];

/// Images in files, with a class each.
///
/// Opening lists directories and opens no image, so a set of any size starts at
/// once; in memory is a name an image. Names are ordered, so that sample `i` is
/// the same file on every machine.
#[derive(Clone, Debug)]
pub struct Folder {
    directory: PathBuf,
    classes: Vec<String>,
    options: ImageOptions,
    /// Paths below the directory, one after the other: an allocation each
    /// would take more than the names.
    names: String,
    /// Where each name ends.
    ends: Vec<u64>,
    labels: Vec<u32>,
    notes: Vec<String>,
}

impl Folder {
    /// The images of `directory`, a class a subfolder.
    ///
    /// # Errors
    /// [`Error::Io`] where a directory cannot be listed, [`Error::Data`] where
    /// there are no images in subfolders.
    pub fn open(directory: &Path, options: ImageOptions) -> Result<Self> {
        let classes = subfolders(directory)?;
        Self::with_classes(directory, classes, options)
    }

    /// The same with classes that are given, so that train and test agree even
    /// where one has no image of some class.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn with_classes(
        directory: &Path,
        classes: Vec<String>,
        options: ImageOptions,
    ) -> Result<Self> {
        let mut folder = Self::empty(directory, classes.clone(), options)?;
        let (mut others, mut hidden, mut below) = (0, 0, 0);
        for (label, class) in classes.iter().enumerate() {
            let subfolder = directory.join(class);
            let listed = match list(&subfolder) {
                Ok(listed) => listed,
                // A class of another part.
                Err(e) if e.kind() == io::ErrorKind::NotFound => Default::default(),
                Err(source) => return Err(Error::Io { path: subfolder, source }),
            };
            if listed.images.is_empty() {
                let empty = subfolder.display();
                folder.note(format!("no image in {empty}, which is a class all the same"));
            }
            others += listed.others;
            hidden += listed.hidden;
            below += listed.folders;
            for image in listed.images {
                folder.push(&format!("{class}/{image}"), label as u32);
            }
        }
        let (path, directory) = (directory, directory.display());
        if others > 0 {
            folder.note(format!("{others} files in {directory} are neither JPEG nor PNG by name"));
        }
        if hidden > 0 {
            let what = "images whose names begin with a dot are left out";
            folder.note(format!("{what} in {directory}: {hidden}"));
        }
        if below > 0 {
            let what = "folders within those of classes are left out";
            folder.note(format!("{what} in {directory}: {below}"));
        }
        folder.finish().ok_or_else(|| {
            let expected = "a subfolder of .jpg, .jpeg or .png files for each class";
            Error::data(path, "images", expected, "none")
        })
    }

    pub(super) fn empty(
        directory: &Path,
        classes: Vec<String>,
        options: ImageOptions,
    ) -> Result<Self> {
        options.check()?;
        if classes.len() > MAX_CLASSES {
            let expected = format!("at most {MAX_CLASSES}");
            return Err(Error::data(directory, "classes", expected, classes.len()));
        }
        Ok(Self {
            directory: directory.to_owned(),
            classes,
            options,
            names: String::new(),
            ends: Vec::new(),
            labels: Vec::new(),
            notes: Vec::new(),
        })
    }

    pub(super) fn push(&mut self, name: &str, label: u32) {
        self.names.push_str(name);
        self.ends.push(self.names.len() as u64);
        self.labels.push(label);
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// The set, unless it has no image.
    pub(super) fn finish(self) -> Option<Self> {
        (!self.labels.is_empty()).then_some(self)
    }

    /// The file of sample `index`.
    pub fn path(&self, index: usize) -> PathBuf {
        self.directory.join(self.below(index))
    }

    /// The same from the directory on.
    fn below(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.names[start..self.ends[index] as usize]
    }
}

impl Dataset for Folder {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn shape(&self) -> Shape {
        self.options.shape()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        check_read(self, index, out);
        decode_file(&self.path(index), &self.options, out)?;
        self.label(index)
    }

    fn label(&self, index: usize) -> Result<usize> {
        Ok(self.labels[index] as usize)
    }

    fn name(&self) -> String {
        self.directory.display().to_string()
    }

    fn place(&self, index: usize) -> String {
        self.path(index).display().to_string()
    }

    fn file(&self, index: usize) -> Option<SampleFile> {
        Some(SampleFile { path: self.path(index), name: self.below(index).to_owned() })
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn access(&self) -> Access {
        Access::File
    }
}

/// The names of the subfolders of a directory, in order; hidden ones are left
/// out.
pub(super) fn subfolders(directory: &Path) -> Result<Vec<String>> {
    let io = |source| Error::Io { path: directory.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(io)? {
        let entry = entry.map_err(io)?;
        // Follows links, which a class may be.
        if !fs::metadata(entry.path()).is_ok_and(|about| about.is_dir()) {
            continue;
        }
        match entry.file_name().into_string() {
            Ok(name) if !name.starts_with('.') => names.push(name),
            Ok(_) => {}
            Err(name) => {
                return Err(Error::data(
                    directory,
                    "subfolder",
                    "a name in UTF-8",
                    Path::new(&name),
                ));
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The content of a class folder.
#[derive(Default)]
pub(super) struct Listed {
    /// Images by name, in order.
    pub(super) images: Vec<String>,
    /// Files that are no images by name.
    others: usize,
    /// Images whose names begin with a dot, such as those that other systems put beside each.
    hidden: usize,
    /// Folders whose names do not begin with a dot.
    folders: usize,
}

/// Looks at names, and at no file.
pub(super) fn list(directory: &Path) -> io::Result<Listed> {
    let mut listed = Listed::default();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (name, is_folder) = (entry.file_name().into_string(), entry.file_type()?.is_dir());
        let is_hidden = name.as_ref().is_ok_and(|name| name.starts_with('.'));
        match name {
            _ if is_folder => listed.folders += usize::from(!is_hidden),
            Ok(name) if is_hidden => listed.hidden += usize::from(is_image(&name)),
            Ok(name) if is_image(&name) => listed.images.push(name),
            _ => listed.others += 1,
        }
    }
    listed.images.sort_unstable();
    Ok(listed)
}

/// True for the names of JPEG and PNG files.
pub(super) fn is_image(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(|e| e.to_str());
    extension.is_some_and(|e| EXTENSIONS.iter().any(|known| e.eq_ignore_ascii_case(known)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::decode::tests::{encoded, gradient};
    use crate::data::tests::Scratch;
    use image::ImageFormat;

    fn small() -> ImageOptions {
        ImageOptions { height: 4, width: 4, ..Default::default() }
    }

    #[test]
    fn a_class_a_subfolder() {
        let scratch = Scratch::new("folder");
        let png = encoded(&gradient(5, 5), ImageFormat::Png);
        scratch.write("pets/dog/b.PNG", &png);
        scratch.write("pets/dog/a.jpg", &encoded(&gradient(9, 7), ImageFormat::Jpeg));
        scratch.write("pets/cat/1.png", b"not an image");
        scratch.write("pets/cat/.hidden.png", &png);
        scratch.write("pets/cat/readme.txt", b"text");
        scratch.write("pets/.git/x.png", &png);
        let set = Folder::open(&scratch.path("pets"), small()).unwrap();
        assert_eq!(set.classes(), ["cat", "dog"]);
        assert_eq!(set.len(), 3);
        let ends = ["pets/cat/1.png", "pets/dog/a.jpg", "pets/dog/b.PNG"];
        for (i, end) in ends.into_iter().enumerate() {
            assert_eq!(set.path(i), scratch.path(end));
        }
        assert_eq!(set.notes().len(), 2);
        let mut out = vec![f32::NAN; 48];
        // A broken image is an error of its sample alone.
        let error = set.read(0, &mut out).unwrap_err().to_string();
        assert!(error.ends_with("1.png: image: expected a JPEG or PNG file, found neither"));
        assert_eq!(set.read(1, &mut out).unwrap(), 1);
        assert!(out.iter().all(|x| (0.0..=1.0).contains(x)));
    }

    #[test]
    fn what_is_left_out_of_classes_is_noted() {
        let scratch = Scratch::new("left-out");
        let png = encoded(&gradient(5, 5), ImageFormat::Png);
        for file in ["a/1.png", "a/._1.png", "a/deep/2.png", "a/.cache/3.png", "b/.keep"] {
            scratch.write(&format!("pets/{file}"), &png);
        }
        let set = Folder::open(&scratch.path("pets"), small()).unwrap();
        let pets = scratch.path("pets");
        let (pets, empty) = (pets.display(), pets.join("b"));
        assert_eq!(
            set.notes(),
            [
                format!("no image in {}, which is a class all the same", empty.display()),
                format!("images whose names begin with a dot are left out in {pets}: 1"),
                format!("folders within those of classes are left out in {pets}: 1"),
            ]
        );
    }

    #[test]
    fn a_folder_without_images_is_refused() {
        let scratch = Scratch::new("empty-folder");
        scratch.write("pets/readme.txt", b"text");
        let error = Folder::open(&scratch.path("pets"), small()).unwrap_err().to_string();
        assert!(
            error.ends_with(
                "pets: images: expected a subfolder of .jpg, .jpeg or .png files for each \
                 class, found none"
            ),
            "{error}"
        );
    }
}
