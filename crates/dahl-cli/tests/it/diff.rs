//! `dahl diff`.

use dahl::file::{StoredTensor, TensorFile};
use std::path::PathBuf;
use std::process::Command;

/// Files of one test, removed at its end.
struct Files(PathBuf);

impl Files {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dahl-diff-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    fn write(&self, name: &str, tensors: &[(&str, StoredTensor)]) {
        let mut file = TensorFile::default();
        file.tensors.extend(tensors.iter().map(|(k, v)| ((*k).to_owned(), v.clone())));
        file.write(self.0.join(name)).expect("a file");
    }

    /// Runs `dahl diff` in the directory: code, standard output, standard error.
    fn diff(&self, args: &[&str]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_dahl"))
            .arg("diff")
            .args(args)
            .current_dir(&self.0)
            .output()
            .expect("dahl runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn check(&self, args: &[&str], code: i32, expected: &str) {
        let (found, stdout, stderr) = self.diff(args);
        assert_eq!(stdout, expected, "{stderr}");
        assert_eq!((found, stderr.as_str()), (code, ""));
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn two_files(test: &str) -> Files {
    let files = Files::new(test);
    files.write(
        "a",
        &[
            ("10.bias", StoredTensor::new([2], &[0.5f32, 0.25])),
            ("9.weight", StoredTensor::new([2, 3], &[12.001f32, 1.5, -0.25, 0.0, 7.0, 1e-9])),
            ("labels", StoredTensor::new([2], &[3i64, 12])),
            ("old", StoredTensor::new([1], &[1u8])),
            ("shaped", StoredTensor::new([2], &[1f64, 2.0])),
            ("typed", StoredTensor::new([2], &[1f64, 2.0])),
        ],
    );
    files.write(
        "b",
        &[
            ("10.bias", StoredTensor::new([2], &[0.5f32, 0.25])),
            ("9.weight", StoredTensor::new([2, 3], &[1.001f32, 1.5, -0.2501, 0.0, 7.0, 2.5e-9])),
            ("labels", StoredTensor::new([2], &[3i64, 7])),
            ("new", StoredTensor::new([1], &[1u8])),
            ("shaped", StoredTensor::new([2, 1], &[1f64, 2.0])),
            ("typed", StoredTensor::new([2], &[1f32, 2.0])),
        ],
    );
    files
}

#[test]
fn differences_are_shown_digit_by_digit() {
    two_files("digits").check(
        &["a", "b", "--limit", "2"],
        1,
        "   tensor    shape   type  values                ulp  relative
≠  9.weight  [2, 3]  f32   3 of 6 differ    29352788   9.17e-1
=  10.bias   [2]     f32
≠  labels    [2]     i64   1 of 2 differ           5   4.17e-1
≠  new       [1]     u8    missing in A
≠  old       [1]     u8    missing in B
≠  shaped    [2]     f64   in B f64 [2, 1]
≠  typed     [2]     f64   in B f32 [2]

9.weight: the worst 2 of 3
  [0, 0]  A  12.001
          B   1.001
             ^^^^^^  29352788 ulp
  [0, 2]  A  -0.25
          B  -0.2501
                   ^  3355 ulp

labels
  [1]  A  12
       B   7
          ^^  5 ulp

different: 6 of 7 tensors not equal exactly
",
    );
}

#[test]
fn a_file_equals_itself() {
    let files = two_files("itself");
    files.check(
        &["a", "a", "--tensor", "labels", "--tensor", "10.bias"],
        0,
        "   tensor   shape  type  values  ulp  relative
=  10.bias  [2]    f32
=  labels   [2]    i64

equal exactly: 2 tensors
",
    );
}

#[test]
fn tolerances() {
    let files = Files::new("tolerances");
    files.write("a", &[("x", StoredTensor::new([2], &[1f32, 100.0]))]);
    files.write("b", &[("x", StoredTensor::new([2], &[1f32 + f32::EPSILON, 100.0]))]);
    let cases =
        [("exact", 1), ("0", 1), ("0ulp", 1), ("1ulp", 0), ("1e-10", 1), ("1e-8", 0), ("1", 0)];
    for (tolerance, expected) in cases {
        let (code, stdout, _) = files.diff(&["a", "b", "--tolerance", tolerance]);
        assert_eq!(code, expected, "{tolerance}: {stdout}");
    }
    files.check(
        &["a", "b", "--tolerance", "1e-8"],
        0,
        "   tensor  shape  type  values        ulp  relative
=  x       [2]    f32   1 of 2 close    1   1.19e-9

equal within 1e-8 of the largest magnitude: 1 tensor
",
    );
}

#[test]
fn not_a_number_on_one_side_is_always_different() {
    let files = Files::new("nan");
    files.write("a", &[("x", StoredTensor::new([2], &[f64::NAN, f64::NAN]))]);
    files.write("b", &[("x", StoredTensor::new([2], &[f64::NAN, 1.5]))]);
    assert_eq!(files.diff(&["a", "a"]).0, 0);
    let (code, stdout, _) = files.diff(&["a", "b", "--tolerance", "1e9"]);
    assert_eq!(code, 1);
    assert!(stdout.contains("1 of 2 differ    ∞         ∞\n"), "{stdout}");
    let (_, stdout, _) = files.diff(&["a", "b", "--json"]);
    assert!(stdout.contains("\"NaN\""), "{stdout}");
}

/// Names of tensors come from files that others made.
#[test]
fn names_of_tensors_reach_no_terminal_raw() {
    let files = Files::new("escapes");
    let name = "x\x1b]52;c;cHduZWQ=\x07\u{9b}2J\u{202e}y";
    files.write("a", &[(name, StoredTensor::new([1], &[1f32]))]);
    files.write("b", &[(name, StoredTensor::new([1], &[2f32]))]);
    let (_, text, _) = files.diff(&["a", "b"]);
    assert!(text.contains(r"x\u001b]52;c;cHduZWQ=\u0007\u009b2J\u202ey"), "{text:?}");
    let (_, json, _) = files.diff(&["a", "b", "--json"]);
    assert!([text, json.clone()].iter().all(|text| !text.contains(['\x1b', '\u{9b}', '\u{202e}'])));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["tensors"][0]["name"], name);
    // What clap says of arguments too.
    let (code, _, stderr) = files.diff(&["a", "b", "--tolerance", "\x1b[2J\u{9b}\u{202e}"]);
    assert_eq!(code, 2);
    assert!(stderr.contains(r"'\u009b\u202e'") && !stderr.contains('\x1b'), "{stderr:?}");
}

#[test]
fn json() {
    let (code, stdout, stderr) = two_files("json").diff(&["a", "b", "--json", "--limit", "1"]);
    assert_eq!((code, stderr.as_str()), (1, ""));
    assert_eq!(stdout.lines().count(), 1, "one object per line: {stdout}");
    let value: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(value["equal"], false);
    assert_eq!(value["tolerance"], "exact");
    let tensors = value["tensors"].as_array().unwrap();
    let status: Vec<_> = tensors.iter().map(|t| t["status"].as_str().unwrap()).collect();
    assert_eq!(
        status,
        ["different", "equal", "different", "missing in a", "missing in b", "mismatch", "mismatch"]
    );
    let worst = &tensors[0]["worst"];
    assert_eq!(worst.as_array().unwrap().len(), 1);
    assert_eq!(worst[0]["index"], serde_json::json!([0, 0]));
    assert_eq!(worst[0]["a"], 12.001);
}

#[test]
fn wrong_usage_ends_with_2() {
    let files = two_files("usage");
    let cases: &[(&[&str], &str)] = &[
        (&["a"], "<B>"),
        (&["a", "b", "--tolerance", "near"], "expected `exact`"),
        (&["a", "b", "--limit", "-1"], "'-1'"),
        (&["a", "b", "--tensor", "none"], "--tensor none: expected a tensor of A or B"),
    ];
    for (args, expected) in cases {
        let (code, stdout, stderr) = files.diff(args);
        assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}

#[test]
fn bad_files_end_with_4() {
    let files = two_files("bad");
    std::fs::write(files.0.join("text"), "this is no safetensors file").unwrap();
    let whole = std::fs::read(files.0.join("a")).unwrap();
    std::fs::write(files.0.join("cut"), &whole[..whole.len() - 1]).unwrap();
    for (name, expected) in [
        ("missing", "error: missing: "),
        ("text", "error: text: header's length: expected"),
        ("cut", "error: cut: data: expected"),
        (".", "error: .: "),
    ] {
        for args in [[name, "a"], ["a", name]] {
            let (code, stdout, stderr) = files.diff(&args);
            assert_eq!((code, stdout.as_str()), (4, ""), "{args:?}");
            assert!(stderr.starts_with(expected), "{args:?}: {stderr}");
        }
    }
}

/// The example of the help is what the command prints.
#[test]
fn help_teaches_with_an_example() {
    let files = Files::new("help");
    let at = 3 * 676 + 71;
    let mut before = vec![0.03f32; 6760];
    (before[0], before[at]) = (0.0668, -0.01839041);
    let mut after = before.clone();
    after[1..40].iter_mut().for_each(|x| *x = x.next_up());
    after[at] = -0.01839076;
    for (name, values) in [("before.safetensors", before), ("after.safetensors", after)] {
        let bias = StoredTensor::new([4], &[0f32; 4]);
        files.write(name, &[("0.bias", bias), ("4.weight", StoredTensor::new([10, 676], &values))]);
    }
    let (code, help, _) = files.diff(&["--help"]);
    assert_eq!(code, 0);
    let command = "before.safetensors after.safetensors --tolerance 1e-6 --limit 1";
    assert!(help.contains(&format!("dahl diff {command}\n")), "{help}");
    let (code, stdout, _) = files.diff(&command.split(' ').collect::<Vec<_>>());
    assert_eq!(code, 1);
    for line in stdout.lines().filter(|line| !line.is_empty()) {
        assert!(help.contains(&format!("\n    {line}\n")), "missing in the help: {line}");
    }
}
