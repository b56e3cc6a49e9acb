//! Images whose classes are in a CSV file.

use super::decode::ImageOptions;
use super::folder::{Folder, is_image, list};
use super::input::open_file;
use crate::error::{Error, Result, Unexpected};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Which columns of a CSV file name image and class.
///
/// The default reads the 'fashion product images' set: `styles.csv` with an
/// `id` and a `masterCategory`, and `images/<id>.jpg` beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableOptions {
    /// The column with the image's name.
    pub name: String,
    /// The column with the class.
    pub class: String,
    /// The directory of the images, beside the CSV file.
    pub images: String,
    /// The extension that is appended to names without an image extension.
    pub extension: String,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            name: "id".to_owned(),
            class: "masterCategory".to_owned(),
            images: "images".to_owned(),
            extension: "jpg".to_owned(),
        }
    }
}

impl Folder {
    /// The images that the CSV file `table` names.
    ///
    /// Rows without a class or whose image is not there are left out, and
    /// counted in [`notes`](super::Dataset::notes). Rows may have more cells
    /// than the header, as the set above has.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read, [`Error::Data`] where a
    /// column is missing or there twice, or no image is there.
    pub fn from_table(table: &Path, columns: &TableOptions, options: ImageOptions) -> Result<Self> {
        let rows = read_rows(table, columns)?;
        let classes: BTreeSet<&str> = rows.iter().map(|row| row.class.as_str()).collect();
        let classes: Vec<String> =
            classes.into_iter().filter(|c| !c.is_empty()).map(str::to_owned).collect();
        let directory = table.parent().unwrap_or(Path::new("")).join(&columns.images);
        let mut folder = Folder::empty(&directory, classes, options)?;
        let mut listed = Listed { directory, by_parent: BTreeMap::new() };
        let (mut unnamed, mut absent) = (0usize, 0usize);
        for row in &rows {
            let Ok(label) = folder.class_index(&row.class) else {
                unnamed += 1;
                continue;
            };
            if listed.has(&row.name)? {
                folder.push(&row.name, label);
            } else {
                absent += 1;
            }
        }
        let file = table.display();
        if unnamed > 0 {
            folder.note(format!("{unnamed} rows of {file} have no class"));
        }
        if absent > 0 {
            folder.note(format!("{absent} rows of {file} name an image that is not there"));
        }
        let expected = format!("the files that {file} names");
        folder.finish().ok_or_else(|| Error::Images {
            path: listed.directory,
            fault: Unexpected::new("images", expected, "none"),
        })
    }

    fn class_index(&self, class: &str) -> std::result::Result<u32, usize> {
        use super::Dataset;
        self.classes().binary_search_by(|c| c.as_str().cmp(class)).map(|i| i as u32)
    }
}

struct Row {
    name: String,
    class: String,
}

fn read_rows(table: &Path, columns: &TableOptions) -> Result<Vec<Row>> {
    let failed = |e: csv::Error| {
        let place = e.position().map(|p| format!("line {}", p.line()));
        match e.into_kind() {
            csv::ErrorKind::Io(source) => Error::Io { path: table.to_owned(), source },
            kind => {
                let what = place.unwrap_or_else(|| "table".to_owned());
                Error::data(table, what, "comma-separated text in UTF-8", format_args!("{kind:?}"))
            }
        }
    };
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(open_file(table)?.0);
    let header = reader.headers().map_err(failed)?.clone();
    let column = |name: &str| {
        let is_it = |h: &str| h.trim_start_matches('\u{feff}') == name;
        let mut places = header.iter().enumerate().filter(|(_, h)| is_it(h)).map(|(i, _)| i);
        match (places.next(), places.count()) {
            (Some(place), 0) => Ok(place),
            (_, more) => {
                let expected = if more == 0 { "a column" } else { "one column" };
                let found = header.iter().collect::<Vec<_>>().join(", ");
                let fault = Unexpected::new("header", format!("{expected} {name}"), found);
                Err(Error::Columns { path: table.to_owned(), fault })
            }
        }
    };
    let (name_column, class_column) = (column(&columns.name)?, column(&columns.class)?);
    let mut rows = Vec::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(failed)? {
        let line = record.position().map_or(0, csv::Position::line);
        let what = || format!("line {line}");
        let Some(name) = record.get(name_column).map(str::trim).filter(|n| !n.is_empty()) else {
            let expected = format!("a name in column {}", columns.name);
            return Err(Error::data(table, what(), expected, "none"));
        };
        let inside = |c| matches!(c, Component::Normal(_));
        if !Path::new(name).components().all(inside) {
            let expected = "a file below the directory of the images";
            return Err(Error::data(table, what(), expected, name));
        }
        let class = record.get(class_column).unwrap_or("").trim().to_owned();
        let name = match is_image(name) {
            true => name.to_owned(),
            false => format!("{name}.{}", columns.extension),
        };
        rows.push(Row { name, class });
    }
    Ok(rows)
}

/// Which images there are, by one listing a directory instead of a look at
/// every file.
struct Listed {
    directory: PathBuf,
    by_parent: BTreeMap<PathBuf, Vec<String>>,
}

impl Listed {
    fn has(&mut self, name: &str) -> Result<bool> {
        let path = Path::new(name);
        let parent = path.parent().unwrap_or(Path::new(""));
        let Some(file) = path.file_name().and_then(|f| f.to_str()) else {
            return Ok(false);
        };
        if !self.by_parent.contains_key(parent) {
            let directory = self.directory.join(parent);
            let images = match list(&directory) {
                Ok(listed) => listed.images,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                Err(source) => return Err(Error::Io { path: directory, source }),
            };
            self.by_parent.insert(parent.to_owned(), images);
        }
        let images = &self.by_parent[parent];
        Ok(images.binary_search_by(|image| image.as_str().cmp(file)).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use crate::data::decode::tests::{encoded, gradient};
    use crate::data::tests::Scratch;
    use image::ImageFormat;

    fn open(scratch: &Scratch) -> Result<Folder> {
        let options = ImageOptions { height: 4, width: 4, ..Default::default() };
        Folder::from_table(&scratch.path("styles.csv"), &TableOptions::default(), options)
    }

    #[test]
    fn a_table_names_file_and_class() {
        let scratch = Scratch::new("table");
        let image = encoded(&gradient(6, 8), ImageFormat::Jpeg);
        scratch.write("images/15970.jpg", &image);
        scratch.write("images/more/39386.jpeg", &image);
        // More cells than the header, a quoted comma, a missing image, a
        // missing class.
        scratch.write(
            "styles.csv",
            b"id,gender,masterCategory,productDisplayName\n\
              15970,Men,Apparel,Shirt, blue, large\n\
              more/39386.jpeg,Men,\"Shoes, all\",Shoe\n\
              1,Men,Apparel,Missing\n\
              15970,Men,,Nothing\n",
        );
        let set = open(&scratch).unwrap();
        assert_eq!(set.classes(), ["Apparel", "Shoes, all"]);
        assert_eq!(set.len(), 2);
        let mut out = vec![0.0; 48];
        assert_eq!(set.read(1, &mut out).unwrap(), 1);
        assert_eq!(set.path(0), scratch.path("images/15970.jpg"));
        assert!(set.notes()[0].starts_with("1 rows") && set.notes()[0].ends_with("no class"));
        assert!(set.notes()[1].ends_with("name an image that is not there"));
    }

    #[test]
    fn wrong_tables_are_named_with_line_and_column() {
        let scratch = Scratch::new("wrong-table");
        let check = |text: &[u8], expected: &str| {
            scratch.write("styles.csv", text);
            let error = open(&scratch).unwrap_err().to_string();
            assert!(error.ends_with(expected), "{error}");
        };
        check(b"", "styles.csv: header: expected a column id, found ");
        check(
            b"id,class\n1,a\n",
            "styles.csv: header: expected a column masterCategory, found id, class",
        );
        // Which of two columns is meant nobody knows; others may be there twice.
        check(
            b"id,masterCategory,masterCategory\n1,a,b\n",
            "styles.csv: header: expected one column masterCategory, \
             found id, masterCategory, masterCategory",
        );
        check(b"id,x,x,masterCategory\n,,,a\n", "line 2: expected a name in column id, found none");
        check(
            b"id,masterCategory\n1,a\n../../secret,a\n",
            "line 3: expected a file below the directory of the images, found ../../secret",
        );
        check(b"id,masterCategory\n,a\n", "line 2: expected a name in column id, found none");
        check(b"id,masterCategory\n1,a\n", "styles.csv names, found none");
    }
}
