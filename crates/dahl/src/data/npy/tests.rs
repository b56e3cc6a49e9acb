use super::*;
use crate::data::tests::Scratch;

pub(in crate::data) fn file(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(elements);
    bytes
}

fn open(scratch: &Scratch, samples: &[u8], labels: &[u8]) -> Result<Npy> {
    scratch.write("images.npy", samples);
    scratch.write("labels.npy", labels);
    Npy::open(&scratch.path("images.npy"), &scratch.path("labels.npy"))
}

#[test]
fn all_elements_are_read() {
    let scratch = Scratch::new("npy");
    let values = [0i64, 51, 102, 255, 1, 2];
    let bytes =
        |f: &dyn Fn(i64) -> Vec<u8>| -> Vec<u8> { values.iter().flat_map(|&x| f(x)).collect() };
    let cases = [
        ("<f4", bytes(&|x| (x as f32).to_le_bytes().to_vec()), 1.0),
        ("<f8", bytes(&|x| (x as f64).to_le_bytes().to_vec()), 1.0),
        ("<i4", bytes(&|x| (x as i32).to_le_bytes().to_vec()), 1.0),
        ("<i8", bytes(&|x| x.to_le_bytes().to_vec()), 1.0),
        ("|u1", bytes(&|x| vec![x as u8]), 255.0),
    ];
    let labels = file("<i8", "(2,)", &[3i64.to_le_bytes(), 1i64.to_le_bytes()].concat());
    for (descr, elements, scale) in cases {
        let set = open(&scratch, &file(descr, "(2, 1, 3)", &elements), &labels).unwrap();
        assert_eq!((set.len(), set.shape()), (2, Shape::new(&[1, 1, 3])));
        assert_eq!(set.classes(), ["0", "1", "2", "3"]);
        let mut out = [0.0; 3];
        assert_eq!(set.read(0, &mut out).unwrap(), 3, "{descr}");
        assert_eq!(out, [0.0, 51.0, 102.0].map(|x: f32| x / scale), "{descr}");
        assert_eq!(set.read(1, &mut out).unwrap(), 1, "{descr}");
        assert_eq!(out, [255.0, 1.0, 2.0].map(|x: f32| x / scale), "{descr}");
    }
}

#[test]
fn a_network_of_f64_gets_all_digits() {
    let scratch = Scratch::new("npy-f64");
    let values = [1e8 + 0.125, 0.1f64];
    let whole = [(1i64 << 53) - 1, -3];
    let labels = file("|u1", "(1,)", &[0]);
    let check = |descr: &str, elements: Vec<u8>, expected: [f64; 2]| {
        let set = open(&scratch, &file(descr, "(1, 2)", &elements), &labels).unwrap();
        let mut out = [0.0f64; 2];
        set.read_f64(0, &mut out).unwrap();
        assert_eq!(out, expected, "{descr}");
        let part = crate::data::Subset::new(std::sync::Arc::new(set), vec![0], "all");
        part.read_f64(0, &mut out).unwrap();
        assert_eq!(out, expected, "a part of {descr}");
    };
    check("<f8", values.iter().flat_map(|x| x.to_le_bytes()).collect(), values);
    check("<i8", whole.iter().flat_map(|x| x.to_le_bytes()).collect(), whole.map(|x| x as f64));
    // As an image file of the same byte.
    check("|u1", vec![51, 77], [51.0f32 / 255.0, 77.0 / 255.0].map(f64::from));
}

#[test]
fn samples_larger_than_the_buffer_are_read_whole() {
    let scratch = Scratch::new("npy-large");
    let elements: Vec<u8> = (0..2 * CHUNK).flat_map(|i| (i as f64).to_le_bytes()).collect();
    let shape = format!("(2, {CHUNK})");
    let set = open(&scratch, &file("<f8", &shape, &elements), &file("|u1", "(2,)", &[0, 1]));
    let set = set.unwrap();
    let mut out = vec![0.0; CHUNK];
    assert_eq!(set.read(1, &mut out).unwrap(), 1);
    assert!(out.iter().enumerate().all(|(i, &x)| x == (CHUNK + i) as f32));
}

#[test]
fn wrong_files_are_named_with_what_was_expected() {
    let scratch = Scratch::new("npy-wrong");
    let good = file("|u1", "(2, 1)", &[1, 2]);
    let labels = file("|u1", "(2,)", &[0, 1]);
    let check = |samples: &[u8], labels: &[u8], expected: &str| {
        let error = open(&scratch, samples, labels).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    };
    check(b"PK", &labels, "images.npy: start: expected a NumPy array (.npy), found something else");
    check(
        &file(">f4", "(2, 1)", &[0; 8]),
        &labels,
        "header: expected one of '<f4', '<f8', '|u1', '<i4', '<i8', found >f4",
    );
    let mut fortran = good.clone();
    let at = fortran.windows(5).position(|w| w == b"False").unwrap();
    fortran[at..at + 5].copy_from_slice(b"True ");
    check(&fortran, &labels, "header: expected an array in C order, found one in Fortran order");
    check(
        &file("|u1", "(2, x)", &[1, 2]),
        &labels,
        "header: expected a shape, as (100, 28, 28), found 2, x",
    );
    check(
        &file("<f8", "(2, 1152921504606846976)", &[1, 2]),
        &labels,
        "elements: expected as many bytes as F64 [2, 1152921504606846976] takes, found 2",
    );
    check(&file("|u1", "(2,)", &[1, 2]), &labels, "expected 2 to 5 axes, samples first, found [2]");
    check(&file("|u1", "(0, 1)", &[]), &labels, "expected no axis of length 0, found [0, 1]");
    check(
        &good,
        &file("|u1", "(3,)", &[0, 1, 2]),
        "labels.npy: shape: expected (2,), as many as there are samples, found [3]",
    );
    check(
        &good,
        &file("<f4", "(2,)", &[0; 8]),
        "labels.npy: labels: expected whole numbers (u1, i4, i8), found F32",
    );
    check(
        &good,
        &file("<i4", "(2,)", &[0, 0, 0, 0, 255, 255, 255, 255]),
        "labels.npy: label 1: expected 0 to 999, found -1",
    );
}
