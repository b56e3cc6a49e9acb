use super::*;
use crate::data::decode::tests::{encoded, gradient};
use crate::data::npy::tests as npy;
use crate::data::tests::Scratch;
use image::ImageFormat;

const ALL: [Part; 3] = [Part::Train, Part::Validation, Part::Test];

fn with_validation() -> Options {
    Options {
        fractions: Fractions { validation: 0.1, test: 0.2 },
        samples: 100,
        images: ImageOptions { height: 4, width: 4, ..Default::default() },
        ..Default::default()
    }
}

fn sizes(source: &str, options: &Options) -> [usize; 3] {
    let parts = open_parts(source, &ALL, options).unwrap();
    [parts[0].len(), parts[1].len(), parts[2].len()]
}

#[test]
fn sets_that_need_no_files() {
    assert_eq!(sizes("digits", &with_validation()), [1294, 144, 359]);
    assert_eq!(sizes("synthetic:1x4x4:3", &with_validation()), [70, 10, 20]);
    let options = Options { limit: Some(15), ..with_validation() };
    assert_eq!(sizes("synthetic:1x4x4:3", &options), [15, 10, 15]);
    let digits = open("digits", Part::Train, &Options::default()).unwrap();
    assert_eq!(digits.name(), "digits, train");
}

#[test]
fn a_part_that_was_not_set_aside_is_refused() {
    let error = open("digits", Part::Validation, &Options::default()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "validation: expected a fraction above 0 where this part is requested, found 0"
    );
}

#[test]
fn a_name_that_nobody_knows_is_refused() {
    let error = open("fashon", Part::Train, &Options::default()).err().unwrap();
    assert_eq!(
        error.to_string(),
        "data: expected digits, mnist, fashion-mnist, cifar10, synthetic:CxHxW:CLASSES, \
         a directory, a .csv or a .npy file, found \"fashon\", no such file or directory"
    );
}

#[test]
fn sets_without_files_say_where_they_were_looked_for() {
    for name in ["mnist", "fashion-mnist", "cifar10"] {
        let options = Options { roots: vec!["nowhere".into()], ..Default::default() };
        let error = open(name, Part::Train, &options).err().unwrap();
        assert!(matches!(error, Error::Missing { .. }), "{error}");
        assert!(error.to_string().contains(&format!("in nowhere/{name}")), "{error}");
    }
}

#[test]
fn directories_are_recognised() {
    let scratch = Scratch::new("open");
    let png = encoded(&gradient(5, 5), ImageFormat::Png);
    for class in ["a", "b"] {
        for i in 0..10 {
            scratch.write(&format!("flat/{class}/{i}.png"), &png);
            scratch.write(&format!("apart/train/{class}/{i}.png"), &png);
        }
    }
    scratch.write("apart/test/c/0.png", &png);
    let path = |name: &str| scratch.path(name).to_string_lossy().into_owned();
    assert_eq!(sizes(&path("flat"), &with_validation()), [14, 2, 4]);
    assert_eq!(sizes(&path("apart"), &with_validation()), [18, 2, 1]);
    // Train and test agree on the classes.
    for set in open_parts(&path("apart"), &ALL, &with_validation()).unwrap() {
        assert_eq!(set.classes(), ["a", "b", "c"]);
    }
    // A limit takes samples of all classes, whatever is set aside.
    let mut rows = "id,masterCategory\n".to_owned();
    for (class, i) in ["a", "b"].into_iter().flat_map(|class| (0..10).map(move |i| (class, i))) {
        rows += &format!("{class}/{i}.png,{class}\n");
    }
    scratch.write("ordered/styles.csv", rows.as_bytes());
    std::fs::rename(scratch.path("flat"), scratch.path("ordered/images")).unwrap();
    for source in ["ordered", "ordered/images", "apart"] {
        for fractions in [with_validation().fractions, Fractions { validation: 0.0, test: 0.0 }] {
            let options = Options { limit: Some(8), fractions, ..with_validation() };
            let train = open(&path(source), Part::Train, &options).unwrap();
            let labels: BTreeSet<usize> = (0..8).map(|i| train.label(i).unwrap()).collect();
            assert_eq!(labels.len(), 2, "{source}");
        }
    }

    scratch.write("arrays/images.npy", &npy::file("|u1", "(10, 2)", &[7; 20]));
    scratch.write("arrays/labels.npy", &npy::file("|u1", "(10,)", &[1; 10]));
    assert_eq!(sizes(&path("arrays"), &with_validation()), [7, 1, 2]);
    assert_eq!(sizes(&path("arrays/images.npy"), &with_validation()), [7, 1, 2]);

    // Train and test agree on the classes of arrays too.
    scratch.write("both/x_train.npy", &npy::file("|u1", "(3, 2)", &[7; 6]));
    scratch.write("both/y_train.npy", &npy::file("|u1", "(3,)", &[0, 1, 1]));
    scratch.write("both/x_test.npy", &npy::file("|u1", "(2, 2)", &[7; 4]));
    scratch.write("both/y_test.npy", &npy::file("|u1", "(2,)", &[0, 3]));
    let both = open_parts(&path("both"), &[Part::Train, Part::Test], &Options::default()).unwrap();
    assert!(both.iter().all(|set| set.classes() == ["0", "1", "2", "3"]));
    let threads = std::num::NonZeroUsize::MIN;
    let found = crate::data::check_against(&*both[0], &*both[1], threads, &mut |_| ()).to_string();
    let wrong = "x_test.npy, sample 1: label: expected a class that a training sample has, found 3";
    assert!(found.starts_with("2 samples, 1 wrong\n") && found.ends_with(wrong), "{found}");

    scratch.write("table/images/1.jpg", &encoded(&gradient(5, 5), ImageFormat::Jpeg));
    scratch.write("table/styles.csv", b"id,masterCategory\n1,a\n");
    let whole =
        Options { fractions: Fractions { validation: 0.0, test: 0.0 }, ..with_validation() };
    for source in ["table", "table/styles.csv"] {
        assert_eq!(open(&path(source), Part::Train, &whole).unwrap().len(), 1);
    }
}
