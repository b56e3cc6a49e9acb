use super::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::fs;
use std::path::PathBuf;

fn sample() -> TensorFile {
    let mut file = TensorFile::default();
    file.metadata.insert("op".to_owned(), "relu".to_owned());
    file.metadata.insert("quoted \"key\"".to_owned(), "[1, 2]\n".to_owned());
    let tensors = [
        ("weight", StoredTensor::new([2, 3], &[1.5f32, -0.0, f32::NAN, 1e-40, 5.0, f32::MAX])),
        ("output", StoredTensor::new([2], &[0.1f64, -1e300])),
        ("labels", StoredTensor::new([3], &[i64::MIN, 0, 7])),
        ("mask", StoredTensor::new([5], &[0u8, 1, 2, 254, 255])),
        ("scalar", StoredTensor::new([], &[2.5f64])),
        ("empty", StoredTensor::new([0, 4], &[] as &[f32])),
    ];
    file.tensors.extend(tensors.map(|(name, tensor)| (name.to_owned(), tensor)));
    file
}

fn bytes_of(file: &TensorFile) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.write_to(&mut bytes).unwrap();
    bytes
}

fn parse(bytes: &[u8]) -> Result<TensorFile> {
    read_from(bytes, bytes.len() as u64, Path::new("x.safetensors"))
}

fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

/// A directory that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("dahl-file-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_written_is_read_back() {
    let scratch = Scratch::new("round-trip");
    let path = scratch.0.join("a.safetensors");
    sample().write(&path).unwrap();
    // A second time: over the file that is there.
    sample().write(&path).unwrap();
    assert_eq!(TensorFile::read(&path).unwrap(), sample());
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn the_same_content_gives_the_same_bytes() {
    assert_eq!(bytes_of(&sample()), bytes_of(&sample()));
}

#[test]
fn other_readers_read_what_is_written() {
    let bytes = bytes_of(&sample());
    let other = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(other.len(), sample().tensors.len());
    for (name, tensor) in &sample().tensors {
        let view = other.tensor(name).unwrap();
        assert_eq!(view.shape(), tensor.shape().axes());
        assert_eq!(view.data().len(), tensor.as_bytes().len());
        // Aligned, for readers that map the file.
        let address = view.data().as_ptr() as usize - bytes.as_ptr() as usize;
        assert_eq!(address % tensor.dtype().size(), 0, "{name}");
    }
}

#[test]
fn what_others_write_is_read() {
    let data = [1.5f32, 2.5].map(f32::to_le_bytes).concat();
    let view = safetensors::tensor::TensorView::new(Dtype::F32, vec![2], &data).unwrap();
    let metadata = [("k".to_owned(), "v".to_owned())].into();
    let bytes = safetensors::serialize([("x", view)], Some(metadata)).unwrap();
    let file = parse(&bytes).unwrap();
    assert_eq!(file.metadata["k"], "v");
    assert_eq!(file.tensors["x"].to_vec::<f32>().unwrap(), [1.5, 2.5]);
}

#[test]
fn values_by_type() {
    let file = sample();
    assert_eq!(file.tensors["labels"].to_vec(), Some(vec![i64::MIN, 0, 7]));
    assert_eq!(file.tensors["labels"].to_vec::<f32>(), None);
    assert_eq!(file.tensors["labels"].to_f64_vec(), [-(2f64.powi(63)), 0.0, 7.0]);
    assert_eq!(file.tensors["mask"].to_f64_vec(), [0.0, 1.0, 2.0, 254.0, 255.0]);
    assert_eq!(file.tensors["weight"].to_f64_vec()[3], f64::from(1e-40f32));
    assert_eq!(file.tensors["scalar"].to_f64_vec(), [2.5]);
    assert!(file.tensors["empty"].to_f64_vec().is_empty());
}

#[test]
fn bad_files_say_what_is_wrong() {
    let huge =
        format!(r#"{{"a":{{"dtype":"U8","shape":[{n}],"data_offsets":[0,{n}]}}}}"#, n = 1u64 << 60);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "file: expected at least 8 bytes, found 0"),
        (vec![1; 7], "file: expected at least 8 bytes, found 7"),
        (vec![0xff; 20], "header's length: expected at most 12 bytes, found 18446744073709551615"),
        (with_header("not json", 0), "header: expected a description of tensors as JSON, found"),
        (with_header("[]", 0), "header: expected a description of tensors as JSON, found"),
        (with_header("", 0), "header: expected a description of tensors as JSON, found"),
        (with_header("{}", 3), "data: expected 0 bytes by the header, found 3"),
        (with_header(&huge, 4), "data: expected 1152921504606846976 bytes by the header, found 4"),
        (
            with_header(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 4),
            "data: expected 8 bytes by the header, found 4",
        ),
        (
            with_header(r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, 8),
            "invalid shape, data type, or offset",
        ),
        (
            with_header(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}"#, 12),
            "invalid offset for tensor `a`",
        ),
        (
            with_header(r#"{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}"#, 8),
            "header: expected a description of tensors as JSON, found",
        ),
        (
            with_header(r#"{"w.0":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}"#, 4),
            "tensor \"w.0\": expected F32, F64, I64 or U8, found BF16",
        ),
        (
            with_header(r#"{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}}"#, 1),
            "tensor \"a\": expected at most 6 axes whose product fits, found [1, 1, 1, 1, 1, 1, 1]",
        ),
        (
            with_header(
                r#"{"a":{"dtype":"U8","shape":[0,9223372036854775807,4],"data_offsets":[0,0]}}"#,
                0,
            ),
            "expected at most 6 axes whose product fits",
        ),
    ];
    for (bytes, expected) in cases {
        let error = parse(&bytes).unwrap_err();
        assert!(matches!(error, Error::Data { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("x.safetensors: ") && text.contains(expected), "{text}");
    }
}

/// Extents that wrap around: their sum is what a careless reader adds up.
#[test]
fn extents_that_overflow_are_refused() {
    let n = 1u64 << 60;
    let tensors: Vec<String> = (0..15)
        .map(|i| {
            let (from, to) = (i * n, (i + 1) * n);
            format!(r#""t{i}":{{"dtype":"U8","shape":[{n}],"data_offsets":[{from},{to}]}}"#)
        })
        .chain([format!(
            r#""u":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}"#,
            n - 1,
            15 * n,
            u64::MAX
        )])
        .collect();
    let header = format!("{{{}}}", tensors.join(","));
    let text = parse(&with_header(&header, 4)).unwrap_err().to_string();
    assert!(text.contains("expected 18446744073709551615 bytes by the header, found 4"), "{text}");
}

/// Of two tensors of one name the last was taken.
#[test]
fn a_name_that_is_there_twice_is_refused() {
    let tensor = |name: &str, at: usize| {
        let end = at + 4;
        format!(r#""{name}":{{"dtype":"F32","shape":[1],"data_offsets":[{at},{end}]}}"#)
    };
    let check = |entries: [String; 3], data: usize, expected: Option<&str>| {
        let found = parse(&with_header(&format!("{{{}}}", entries.join(",")), data));
        let found = found.map(drop).map_err(|error| error.to_string());
        let expected = expected.map(|name| {
            format!("x.safetensors: header: expected each name once, found {name:?} again")
        });
        assert_eq!(found.err(), expected);
    };
    let about = r#""__metadata__":{"a":"b"}"#.to_owned();
    check([about.clone(), tensor("a", 0), tensor("b", 4)], 8, None);
    check([about.clone(), tensor("a", 0), tensor("a", 0)], 4, Some("a"));
    check([tensor("b", 0), tensor("a", 4), tensor("b", 0)], 8, Some("b"));
    // The same name, written otherwise.
    check([about.clone(), tensor("a", 0), tensor("\\u0061", 0)], 4, Some("a"));
    check([about.clone(), about, tensor("a", 0)], 4, Some("__metadata__"));
}

#[test]
fn every_prefix_is_refused() {
    let bytes = bytes_of(&sample());
    for length in 0..bytes.len() {
        let error = parse(&bytes[..length]).unwrap_err();
        assert!(matches!(error, Error::Data { .. }), "{length}: {error:?}");
        // A file that shrinks while it is read.
        let error = read_from(&bytes[..length], bytes.len() as u64, Path::new("x")).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{length}: {error:?}");
    }
}

#[test]
fn flipped_bits_never_panic() {
    let bytes = bytes_of(&sample());
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..1000 {
        let mut flipped = bytes.clone();
        for _ in 0..1 + random.next_u32() % 3 {
            let at = random.next_u32() as usize % flipped.len();
            flipped[at] ^= 1 << (random.next_u32() % 8);
        }
        match parse(&flipped) {
            Ok(file) => {
                read += 1;
                for tensor in file.tensors.values() {
                    assert_eq!(tensor.to_f64_vec().len(), tensor.shape().elements());
                    tensor.shape().strides();
                }
            }
            Err(Error::Data { .. }) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    // Flips of the data are read, flips of the header mostly are not.
    assert!(read > 50 && refused > 300, "{read} read, {refused} refused");
}

#[test]
fn files_that_cannot_be_opened() {
    let scratch = Scratch::new("io");
    let missing = scratch.0.join("missing.safetensors");
    for path in [&missing, &scratch.0] {
        let error = TensorFile::read(path).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
    }
    let nowhere = scratch.0.join("no/such/directory.safetensors");
    assert!(matches!(sample().write(&nowhere).unwrap_err(), Error::Io { .. }));
    // The target is a directory: nothing is left beside it.
    let directory = scratch.0.join("taken");
    fs::create_dir(&directory).unwrap();
    assert!(matches!(sample().write(&directory).unwrap_err(), Error::Io { .. }));
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
}

#[test]
fn the_name_of_the_metadata_is_taken() {
    let mut file = sample();
    file.tensors.insert(METADATA.to_owned(), StoredTensor::new([1], &[1u8]));
    let text = file.write("never-written.safetensors").unwrap_err().to_string();
    assert!(text.contains("expected not __metadata__"), "{text}");
}

#[test]
fn the_hash_is_that_of_the_file_without_metadata() {
    let scratch = Scratch::new("hash");
    let path = scratch.0.join("a.safetensors");
    let bare = TensorFile { metadata: BTreeMap::new(), ..sample() };
    bare.write(&path).unwrap();
    assert_eq!(bare.sha256(), durable::sha256(&path).unwrap());
    assert_eq!(sample().sha256(), bare.sha256());
    sample().write(&path).unwrap();
    assert_ne!(sample().sha256(), durable::sha256(&path).unwrap());
}

#[test]
fn a_file_that_cannot_be_replaced_stays_as_it_was() {
    let scratch = Scratch::new("replace");
    let path = scratch.0.join("a.txt");
    replace(&path, |out| out.write_all(b"old")).unwrap();
    let half = |out: &mut dyn Write| {
        out.write_all(b"ne")?;
        Err(io::ErrorKind::StorageFull.into())
    };
    let error = replace(&path, half).unwrap_err();
    assert!(matches!(error, Error::Io { .. }) && error.to_string().contains("a.txt"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    // Nothing is left over by a failure; what a kill leaves is removed.
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    fs::write(scratch.0.join(".a.txt.1.0.tmp"), "ne").unwrap();
    remove_temporary(&scratch.0).unwrap();
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
}

#[test]
fn directories_are_made_with_those_above_them() {
    let scratch = Scratch::new("directories");
    let deep = scratch.0.join("a/b/c");
    create_directories(&deep).unwrap();
    create_directories(&deep).unwrap();
    assert!(deep.is_dir());
    let twice = create_directory(&deep).unwrap_err();
    assert_eq!(twice.kind(), std::io::ErrorKind::AlreadyExists);
    fs::write(scratch.0.join("file"), b"x").unwrap();
    let error = create_directories(scratch.0.join("file/below")).unwrap_err().to_string();
    assert!(error.contains("file"), "{error}");
}
