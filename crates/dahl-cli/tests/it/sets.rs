//! Datasets of a user's own: tables, changed data, data that is not finite.

use crate::predict::array;
use crate::runs::Place;
use crate::support::png;
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

const OTHER: &str = "training set: expected the one that the run began with";

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
    place.check(&["train", "--resume", "a"], 4, "bring the old data back, or begin a new run");
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
    let columns = ["--image-column", "file", "--class-column", "species"];
    let hint = "found none; --image-dir and --image-extension say where they are";
    place.check(&[&["data", "birds.csv"], &columns[..]].concat(), 4, hint);
    let flags = [&columns[..], &["--image-dir", "photos", "--image-extension", "png"]].concat();
    let (code, stdout, stderr) = place.dahl(&[&["data", "birds.csv"], &flags[..]].concat());
    assert!(code == 0 && stdout.contains("a light one"), "{stdout}{stderr}");
    // A run knows its columns, and so do its weights.
    place.begin(&[&["birds.csv"], &flags[..]].concat());
    place.check(&["train", "--resume", "a", "--class-column", "file"], 2, "class-column: expected");
    place.check(&["train", "--resume", "a"], 0, "");
    let (code, stdout, stderr) = place.dahl(&["eval", "--run", "a"]);
    assert!(code == 0 && stdout.contains("of 2 samples right"), "{stdout}{stderr}");
}
