//! Datasets of a user's own: tables, changed data, data that is not finite.

use crate::predict::array;
use crate::runs::Place;
use crate::support::png;
use dahl::file::TensorFile;
use std::fs;

impl Place {
    fn write(&self, file: &str, bytes: &[u8]) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, bytes).expect("a file");
    }

    /// Trains for two epochs, stopped after the first step.
    #[track_caller]
    fn begin(&self, data: &[&str]) {
        let train = ["train", "--model", "small.toml", "--batch", "3", "--epochs", "2"];
        let stopped = ["--max-steps", "1", "--run", "a", "--data"];
        let (code, _, stderr) = self.dahl(&[&train[..], &stopped, data].concat());
        assert_eq!(code, 0, "{stderr}");
    }
}

/// Twelve pictures whose files have lengths of their own.
fn pictures(place: &Place, folder: &str) {
    for (class, shade) in [("dark", 20u8), ("light", 200)] {
        for i in 0..6u8 {
            let pixels: Vec<u8> =
                (0..64u8).map(|at| if at < 5 * i { at } else { shade + i }).collect();
            place.write(&format!("{folder}/{class}/{class}-{i}.png"), &png(8, 8, &pixels));
        }
    }
}

const OTHER: &str = "training set: expected the training set of the run";

#[test]
fn a_run_goes_on_with_a_folder_that_was_moved_but_not_with_another() {
    let place = Place::new("other-folder");
    pictures(&place, "pictures");
    place.begin(&["pictures"]);
    let at = |name: &str| place.0.join(name);
    let rename = |from: &str, to: &str| fs::rename(at(from), at(to)).expect("a new name");
    let swap = || {
        rename("pictures/dark", "third");
        rename("pictures/light", "pictures/dark");
        rename("third", "pictures/light");
    };
    swap();
    place.check(&["train", "--resume", "a"], 4, OTHER);
    swap();
    // Two of the twelve are for the test.
    let files = ["dark/dark-3.png", "light/light-0.png", "light/light-1.png"];
    let files = files.map(|file| format!("pictures/{file}"));
    let old = files.each_ref().map(|file| fs::read(at(file)).expect("a picture"));
    for (file, old) in files.iter().zip(&old) {
        place.write(file, &[&old[..], b"more"].concat());
    }
    place.check(&["train", "--resume", "a"], 4, OTHER);
    files.iter().zip(&old).for_each(|(file, old)| place.write(file, old));
    let config = place.run("a").join("config.toml");
    let text = fs::read_to_string(&config).expect("a configuration");
    rename("pictures", "moved");
    fs::write(&config, text.replace("/pictures", "/moved")).expect("a configuration");
    place.check(&["train", "--resume", "a"], 0, "");
}

#[test]
fn a_run_does_not_go_on_with_other_labels() {
    let place = Place::new("other-labels");
    let pixels: Vec<u8> = (0..12 * 64).map(|i| (i % 251) as u8).collect();
    place.write("set/images.npy", &array("|u1", "(12, 8, 8)", &pixels));
    let labels = array("|u1", "(12,)", &[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
    place.write("set/labels.npy", &labels);
    place.begin(&["set"]);
    place.write("set/labels.npy", &array("|u1", "(12,)", &[1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]));
    place.check(&["train", "--resume", "a"], 4, OTHER);
    place.check(&["train", "--resume", "a"], 4, "restore the old data, or start a new run");
    place.write("set/labels.npy", &labels);
    place.check(&["train", "--resume", "a"], 0, "");
}

#[test]
fn data_that_is_not_finite_is_named_not_the_learning_rate() {
    let place = Place::new("not-finite");
    let mut numbers = vec![0.5f32; 12 * 64];
    numbers[7 * 64 + 3] = f32::NAN;
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    place.write("set/images.npy", &array("<f4", "(12, 8, 8)", &bytes));
    place.write("set/labels.npy", &array("|u1", "(12,)", &[0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]));
    let train = ["train", "--model", "small.toml", "--data", "set", "--batch", "3", "--no-run"];
    // Whether it is measured, trained on or judged, the sample is named.
    for seed in ["0", "1", "2", "3", "4"] {
        let named = "images.npy, sample 7: element 3: expected a finite number, found NaN";
        place.check(&[&train[..], &["--seed", seed]].concat(), 4, named);
    }
}

/// Floats of 64 to a sample, and labels, for both parts.
fn arrays(place: &Place, folder: &str, train: (&[f64], &[u8]), test: (&[f64], &[u8])) {
    for (part, (numbers, labels)) in [("train", train), ("test", test)] {
        let samples = labels.len();
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let shape = format!("({samples}, 8, 8)");
        place.write(&format!("{folder}/{part}-images.npy"), &array("<f8", &shape, &bytes));
        let shape = format!("({samples},)");
        place.write(&format!("{folder}/{part}-labels.npy"), &array("|u1", &shape, labels));
    }
}

#[test]
fn labels_of_the_test_set_are_checked_before_the_first_epoch() {
    let place = Place::new("test-labels");
    let numbers = vec![0.5; 4 * 64];
    arrays(&place, "set", (&numbers, &[0, 1, 8, 9]), (&numbers, &[0, 1, 9, 11]));
    let train = ["train", "--model", "small.toml", "--data", "set", "--no-run"];
    let (code, stdout, stderr) = place.dahl(&train);
    assert_eq!((code, stdout.as_str()), (4, ""), "{stderr}");
    let expected = "test-images.npy, sample 3: label: expected a class below 10, the number of \
                    outputs of small, found 11";
    assert!(stderr.contains(expected), "{stderr}");
    let (code, stdout, _) = place.dahl(&["data", "set", "--check"]);
    let wrong = "test-images.npy, sample 3: label: expected a class that a training sample has";
    assert!(code == 4 && stdout.contains("train-images.npy: 4 samples, none wrong"), "{stdout}");
    assert!(stdout.contains("4 samples, 1 wrong\n") && stdout.contains(wrong), "{stdout}");
}

#[test]
fn a_test_loss_that_is_not_finite_is_not_blamed_on_a_training_step() {
    let place = Place::new("test-loss");
    let mut test = vec![0.5; 4 * 64];
    test[2 * 64..3 * 64].fill(3e38);
    let train: Vec<f64> = (0..256).map(|i| 1e-3 * f64::from(i % 7)).collect();
    arrays(&place, "set", (&train, &[0, 1, 0, 1]), (&test, &[0, 1, 0, 1]));
    let train = ["train", "--model", "small.toml", "--data", "set", "--no-run", "--epochs", "1"];
    let expected = "the loss of evaluating set/test-images.npy, sample 2 to \
                    set/test-images.npy, sample 3 is ";
    place.check(&[&train[..], &["--batch", "2"]].concat(), 5, expected);
}

/// `f32` holds no hundredths beside 1e8.
#[test]
fn f64_keeps_the_digits_of_arrays() {
    let place = Place::new("digits-of-f64");
    let labels: Vec<u8> = (0..32).map(|i| i % 2).collect();
    let numbers = (0..32 * 64).map(|i| {
        let (label, noise) = (i / 64 % 2, (i * 7 + 3) % 13);
        1e8 + 0.01 * (f64::from(2 * label - 1) + 0.1 * f64::from(noise))
    });
    let numbers: Vec<f64> = numbers.collect();
    arrays(&place, "set", (&numbers, &labels), (&numbers, &labels));
    let train = ["train", "--model", "small.toml", "--data", "set", "--no-run", "--epochs", "8"];
    let (code, stdout, stderr) =
        place.dahl(&[&train[..], &["--dtype", "f64", "--json", "--quiet"]].concat());
    assert_eq!(code, 0, "{stderr}");
    let last: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(last["test_accuracy"].as_f64(), Some(1.0), "{last}");
}

#[test]
fn weights_say_how_samples_are_normalised_wherever_they_go() {
    let place = Place::new("normalize");
    let train = ["train", "--model", "small.toml", "--limit", "32", "--epochs", "1", "--quiet"];
    let card = |file: &str| {
        let file = TensorFile::read(place.0.join(file)).expect("weights");
        ["dahl.mean", "dahl.std"].map(|key| file.metadata.get(key).cloned().unwrap_or_default())
    };
    let saved = |more: &[&str]| {
        let file = ["--no-run", "--save", "weights"];
        place.check(&[&train[..], more, &file].concat(), 0, "");
        card("weights")
    };
    assert_eq!(saved(&["--normalize", "-0.5,2"]), ["[-0.5]", "[2.0]"]);
    fs::rename(place.0.join("weights"), place.0.join("given")).expect("a new name");
    // Weights to start from have seen such samples; another scale would undo them.
    let (code, _, stderr) =
        place.dahl(&[&train[..7], &["--init", "given", "--no-run", "--save", "weights"]].concat());
    assert!(
        code == 0
            && stderr.contains(
                "samples are normalised with the mean and standard deviation stored in given"
            ),
        "{stderr}"
    );
    assert_eq!(card("weights"), ["[-0.5]", "[2.0]"]);
    let own = saved(&["--init", "given", "--normalize", "dataset"]);
    assert!(own[0].starts_with("[0.305") && own[1].starts_with("[0.376"), "{own:?}");
    let wrong = "mean: expected 1 number, found 2";
    place.check(&[&train[..], &["--normalize", "0:0,1", "--no-run"]].concat(), 2, wrong);
    // It belongs to the run.
    let stopped = ["--normalize", "none", "--max-steps", "1", "--batch", "16", "--run", "a"];
    place.check(&[&train[..], &stopped].concat(), 0, "");
    let other = ["train", "--resume", "a", "--normalize", "dataset"];
    place.check(&other, 2, "normalize: expected none as in the run");
    place.check(&["train", "--resume", "a"], 0, "");
    assert_eq!(card("runs/a/weights.safetensors"), ["", ""]);
    let (code, stdout, stderr) = place.dahl(&["export", "--run", "a", "--module", "net.py"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    let source = fs::read_to_string(place.0.join("net.py")).expect("a module");
    assert!(source.contains("MEAN = STD = None") && source.contains("def load_image"), "{source}");
}

#[test]
fn what_is_cut_or_means_something_else_is_noted() {
    let place = Place::new("noted");
    pictures(&place, "pictures");
    pictures(&place, "others");
    for (old, new) in [("dark", "dusk"), ("light", "dawn")] {
        let at = |name: &str| place.0.join("others").join(name);
        fs::rename(at(old), at(new)).expect("a new name");
    }
    let train = ["train", "--model", "small.toml", "--epochs", "1", "--no-run", "--data"];
    let said = |more: &[&str]| {
        let (code, _, stderr) = place.dahl(&[&train[..], more].concat());
        assert_eq!(code, 0, "{stderr}");
        stderr
    };
    let stderr = said(&["pictures", "--batch", "1000", "--save", "w.safetensors"]);
    let cut = "note: --batch 1000 is more than the 10 training samples: each step uses all of them";
    assert!(stderr.contains(cut), "{stderr}");
    // Nobody asked for the batch that is the default.
    let stderr = said(&["pictures", "--init", "w.safetensors"]);
    assert!(!stderr.contains("--batch") && !stderr.contains("classes"), "{stderr}");
    let stderr = said(&["others", "--init", "w.safetensors"]);
    let other = "note: w.safetensors was trained on the classes dark, light; the outputs of the \
                 model now stand for dawn, dusk";
    assert!(stderr.contains(other), "{stderr}");
}

#[test]
fn a_table_of_ones_own_is_read_by_flags() {
    let place = Place::new("table");
    pictures(&place, "photos");
    let mut rows = "file,species\n".to_owned();
    for class in ["dark", "light"] {
        (0..6).for_each(|i| rows += &format!("{class}/{class}-{i},a {class} one\n"));
    }
    place.write("birds.csv", rows.as_bytes());
    let hint = "expected a column id, found file, species; --image-column and --class-column";
    place.check(&["data", "birds.csv"], 4, hint);
    // An array has a header too, but no columns.
    place.write("big.npy", &array(">f4", "(1, 2)", &[0; 8]));
    place.write("labels.npy", &array("|u1", "(1,)", &[0]));
    place.check(&["data", "big.npy"], 4, "'<i4', '<i8', found >f4\n");
    let columns = ["--image-column", "file", "--class-column", "species"];
    let hint = "found none; --image-dir and --image-extension name the files";
    place.check(&[&["data", "birds.csv"], &columns[..]].concat(), 4, hint);
    let flags = [&columns[..], &["--image-dir", "photos", "--image-extension", "png"]].concat();
    let (code, stdout, stderr) = place.dahl(&[&["data", "birds.csv"], &flags[..]].concat());
    assert!(code == 0 && stdout.contains("a light one"), "{stdout}{stderr}");
    // A run knows its columns, and so do its weights.
    place.begin(&[&["birds.csv"], &flags[..]].concat());
    place.check(&["train", "--resume", "a", "--class-column", "file"], 2, "class-column: expected");
    place.check(&["train", "--resume", "a"], 0, "");
    let (code, stdout, stderr) = place.dahl(&["eval", "--run", "a"]);
    assert!(code == 0 && stdout.contains("(2 samples)"), "{stdout}{stderr}");
}
