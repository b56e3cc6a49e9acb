//! Image files without a class, to be predicted.

use super::decode::{ImageOptions, decode_file};
use super::folder::is_image;
use super::{Access, Dataset, check_read};
use crate::error::{Error, Result};
use dahl_kernels::Shape;
use std::fs;
use std::path::{Path, PathBuf};

/// Image files in the order in which they were named.
///
/// Opening lists directories and opens no image. All samples have the label 0,
/// whose class is called `unknown`.
#[derive(Clone, Debug)]
pub struct Images {
    paths: Vec<PathBuf>,
    options: ImageOptions,
    classes: [String; 1],
}

impl Images {
    /// The files that are named, whatever their names, and the JPEG and PNG files
    /// below the directories that are named, ordered by name. Hidden files and
    /// links to directories are left out.
    ///
    /// # Errors
    /// [`Error::Io`] where a directory cannot be listed, [`Error::Data`] where it
    /// has no image. A file is only looked at when it is read.
    pub fn open(paths: &[PathBuf], options: ImageOptions) -> Result<Self> {
        options.check()?;
        let mut found = Vec::new();
        for path in paths {
            if !path.is_dir() {
                found.push(path.clone());
                continue;
            }
            let below = images_below(path)?;
            if below.is_empty() {
                return Err(Error::data(path, "images", ".jpg, .jpeg or .png files", "none"));
            }
            found.extend(below);
        }
        Ok(Self { paths: found, options, classes: ["unknown".to_owned()] })
    }
}

fn images_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let (mut images, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        let io = |source| Error::Io { path: directory.clone(), source };
        for entry in fs::read_dir(&directory).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            if entry.file_type().map_err(io)?.is_dir() {
                directories.push(entry.path());
            } else if is_image(&name) {
                images.push(entry.path());
            }
        }
    }
    images.sort_unstable();
    Ok(images)
}

impl Dataset for Images {
    fn len(&self) -> usize {
        self.paths.len()
    }

    fn shape(&self) -> Shape {
        self.options.shape()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn read(&self, index: usize, out: &mut [f32]) -> Result<usize> {
        check_read(self, index, out);
        decode_file(&self.paths[index], &self.options, out)?;
        Ok(0)
    }

    fn label(&self, _: usize) -> Result<usize> {
        Ok(0)
    }

    fn name(&self) -> String {
        "images".to_owned()
    }

    fn place(&self, index: usize) -> String {
        self.paths[index].display().to_string()
    }

    fn access(&self) -> Access {
        Access::File
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::decode::tests::{encoded, gradient};
    use crate::data::tests::Scratch;
    use image::ImageFormat;

    #[test]
    fn files_and_directories_in_order() {
        let scratch = Scratch::new("images");
        let png = encoded(&gradient(5, 5), ImageFormat::Png);
        for file in ["all/b/2.png", "all/a.PNG", "all/.hidden.png", "all/text.txt", "one"] {
            scratch.write(file, &png);
        }
        let options = ImageOptions { height: 4, width: 4, ..Default::default() };
        let paths = ["one", "all", "nowhere.png"].map(|name| scratch.path(name));
        let set = Images::open(&paths, options).unwrap();
        let places: Vec<PathBuf> = (0..set.len()).map(|i| set.place(i).into()).collect();
        assert_eq!(
            places,
            ["one", "all/a.PNG", "all/b/2.png", "nowhere.png"].map(|name| scratch.path(name))
        );
        let mut out = vec![f32::NAN; 48];
        assert_eq!(set.read(0, &mut out).unwrap(), 0);
        assert!(out.iter().all(|x| (0.0..=1.0).contains(x)));
        let error = set.read(3, &mut out).unwrap_err().to_string();
        assert!(error.contains("nowhere.png: "), "{error}");
    }

    #[test]
    fn a_directory_without_images_is_refused() {
        let scratch = Scratch::new("no-images");
        scratch.write("all/text.txt", b"text");
        let error = Images::open(&[scratch.path("all")], ImageOptions::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.ends_with("all: images: expected .jpg, .jpeg or .png files, found none"));
    }
}
