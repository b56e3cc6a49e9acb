//! The columns of a CSV file that names images and classes.

use clap::Args;
use dahl::Error;
use dahl::data::TableOptions;

/// The columns of a CSV file
#[derive(Args)]
pub(crate) struct TableArgs {
    /// The column of a CSV file with the images' names [default: id]
    #[arg(long, value_name = "COLUMN")]
    image_column: Option<String>,
    /// The column of a CSV file with the classes [default: masterCategory]
    #[arg(long, value_name = "COLUMN")]
    class_column: Option<String>,
    /// The directory of a CSV file's images, from where the file is [default: images]
    #[arg(long, value_name = "DIR")]
    image_dir: Option<String>,
    /// The extension of a CSV file's images where it names none [default: jpg]
    #[arg(long, value_name = "EXTENSION")]
    image_extension: Option<String>,
}

impl TableArgs {
    /// What is given; the rest is as in `known`, or as in the set that dahl knows.
    pub(crate) fn options(&self, known: Option<&TableOptions>) -> TableOptions {
        let known = known.cloned().unwrap_or_default();
        let or = |given: &Option<String>, known| given.clone().unwrap_or(known);
        TableOptions {
            name: or(&self.image_column, known.name),
            class: or(&self.class_column, known.class),
            images: or(&self.image_dir, known.images),
            extension: or(&self.image_extension, known.extension),
        }
    }
}

/// Says by which flags a table is read that has other columns or files.
pub(crate) fn explained(error: Error) -> Error {
    let Error::Data { path, what, expected, found } = error else { return error };
    let flags = match what.as_str() {
        "header" if path.extension() == Some("csv".as_ref()) => {
            "; --image-column and --class-column name others"
        }
        "images" if expected.starts_with("the files that ") => {
            "; --image-dir and --image-extension say where they are"
        }
        _ => "",
    };
    Error::Data { path, what, expected, found: found + flags }
}
