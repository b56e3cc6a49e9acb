//! Running the binary, and files to run it on.

use image::{GrayImage, ImageFormat};
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;
use std::process::Command;

/// Runs `dahl`: code, standard output, standard error.
pub(crate) fn dahl(args: &[&str]) -> (i32, String, String) {
    // A run directory that is not switched off is made here.
    let place = env!("CARGO_TARGET_TMPDIR");
    let output = Command::new(env!("CARGO_BIN_EXE_dahl")).current_dir(place).args(args).output();
    let output = output.expect("dahl runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
}

/// Runs `dahl` and looks for a part of what it says; it says nothing on standard
/// error where nothing is looked for.
#[track_caller]
pub(crate) fn check(args: &[&str], code: i32, out: &str, err: &str) {
    let (found, stdout, stderr) = dahl(args);
    assert_eq!(found, code, "{stdout}{stderr}");
    assert!(stdout.contains(out), "{stdout}");
    assert!(stderr.contains(err), "{stderr}");
    assert!(err.is_empty() == stderr.is_empty(), "{stderr}");
}

/// A directory that is removed at the end of the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dahl-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    /// The path of a file in it.
    pub(crate) fn path(&self, file: &str) -> String {
        self.0.join(file).to_str().expect("a path of text").to_owned()
    }

    /// Writes a file, and the directories above it; its path.
    pub(crate) fn write(&self, file: &str, bytes: &[u8]) -> String {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(&path, bytes).expect("a file");
        self.path(file)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A grey picture as a file.
pub(crate) fn picture(format: ImageFormat, size: [u32; 2], bytes: &[u8]) -> Vec<u8> {
    let image = GrayImage::from_raw(size[0], size[1], bytes.to_vec()).expect("enough bytes");
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, format).expect("an image");
    file.into_inner()
}

pub(crate) fn png(width: u32, height: u32, bytes: &[u8]) -> Vec<u8> {
    picture(ImageFormat::Png, [width, height], bytes)
}

/// A tool that a test needs is not there: the test is skipped, unless `REQUIRE_TOOLS` is set, as
/// `.ci/run` does.
pub(crate) fn skipped(tool: &str) {
    assert!(std::env::var_os("REQUIRE_TOOLS").is_none(), "{tool} is not there");
    eprintln!("skipped: {tool} is not there");
}
