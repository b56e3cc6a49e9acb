//! Mistakes of a newcomer: each is told before it costs anything.

use crate::runs::{Place, SMALL};
use crate::support::png;
use std::fs;

/// A folder of two classes of grey pictures, so many of each.
fn pictures(place: &Place, name: &str, samples: u8) {
    for (class, shade) in [("dark", 40u8), ("light", 200)] {
        let folder = place.0.join(name).join(class);
        fs::create_dir_all(&folder).expect("a folder");
        for i in 0..samples {
            fs::write(folder.join(format!("{i}.png")), png(8, 8, &[shade + i; 64]))
                .expect("a file");
        }
    }
}

const ON_PICTURES: [&str; 7] = ["train", "--model", "small.toml", "--batch", "8", "--workers", "1"];

#[test]
fn a_run_is_not_made_shorter_than_it_is() {
    let place = Place::new("shorter");
    assert_eq!(place.train(&["--epochs", "5", "--max-steps", "12", "--run", "a"]).0, 0);
    let on = ["train", "--resume", "a", "--epochs"];
    let shorter = "epochs: expected at least 2, which the run is in, found 1";
    place.check(&[&on[..], &["1"]].concat(), 2, shorter);
    place.check(&[&on[..], &["2"]].concat(), 0, "continues after step 12");
    let done = "epochs: expected at least 2, which the run has done, found 1";
    place.check(&[&on[..], &["1"]].concat(), 2, done);
    assert_eq!(place.gave("a").1.len(), 2);
    // Weights that are not those of the result are not used.
    let weights = place.run("a").join("weights.safetensors");
    let mut bytes = fs::read(&weights).expect("weights");
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    fs::write(&weights, bytes).expect("weights");
    let damaged = format!("expected {}… as result.json says, found ", &place.gave("a").0[..16]);
    for command in [&["eval"][..], &["predict"], &["export", "--to", "w.safetensors"]] {
        place.check(&[command, &["--run", "a"]].concat(), 4, &damaged);
    }
    // A run without its checkpoints does not silently begin anew.
    let checkpoints = place.run("a").join("checkpoints");
    fs::remove_dir_all(&checkpoints).expect("checkpoints");
    let ended = "runs/a has ended and has no checkpoint to resume from; train it again with: dahl train --config runs/a/";
    place.check(&["train", "--resume", "a"], 2, ended);
    fs::remove_file(place.run("a").join("result.json")).expect("a result");
    fs::remove_dir_all(&checkpoints).expect("checkpoints");
    let anew = "warning: no checkpoint in runs/a/checkpoints: the run starts from the beginning";
    place.check(&["train", "--resume", "a", "--max-steps", "1"], 0, anew);
    // Nor does it go on with another model.
    let model = place.0.join("small.toml");
    let text = fs::read_to_string(&model).expect("a model");
    fs::write(&model, text.replace("out = 12", "out = 13")).expect("a model");
    let other = "runs/a: the model differs from that of this run (runs/a/model.toml)";
    place.check(&["train", "--resume", "a"], 4, other);
}

#[test]
fn what_cannot_be_saved_is_told_before_training() {
    let place = Place::new("save");
    fs::write(place.0.join("file"), "").expect("a file");
    for (path, expected) in [
        ("nowhere/w", "found nowhere/w, but nowhere is not there; make it so, or choose another"),
        ("file/w", "found file/w, but file is no directory; "),
        (".", "found ., which is a directory; "),
    ] {
        let args = [&SMALL[..], &["--no-run", "--save", path]].concat();
        place.check(&args, 2, expected);
    }
    for (flag, value) in
        [("--keep", Some("3")), ("--checkpoint-every", Some("3")), ("--tensorboard", None)]
    {
        let args: Vec<&str> = ["train", "--no-run", flag].into_iter().chain(value).collect();
        place.check(&args, 2, "cannot be used with");
    }
    // What to do next is with the file, and can be copied.
    let args = ["--epochs", "1", "--no-run", "--save", "my w.safetensors", "--batch", "100"];
    let (code, stdout, stderr) = place.dahl(&[&SMALL[..5], &args].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("next: dahl eval --weights 'my w.safetensors'"), "{stdout}");
    let (code, _, stderr) = place.train(&["--max-steps", "1", "--run", "my run", "--quiet"]);
    let stopped = "warning: stopped by --max-steps after step 1, saved; resume with: \
                   dahl train --resume 'runs/my run'\n";
    assert_eq!((code, stderr.as_str()), (0, stopped));
    let same = ["export", "--run", "my run", "--to", "w", "--module", "./w"];
    place.check(&same, 2, "module: expected a file other than that of --to, found ./w");
}

#[test]
fn slips_of_the_command_line_are_explained() {
    let place = Place::new("slips");
    for (args, expected) in [
        (&["train", "--lr", "-1"][..], "expected a number from 0 on"),
        (&["train", "--model", "lenett"], "did you mean lenet?"),
        (&["train", "--data", "/nope"], "found \"/nope\", no such file or directory"),
        (&["data", "/nope"], "found \"/nope\", no such file or directory"),
        (&["train", "--save", "--json"], "a value is required for '--save <FILE>'"),
        (&["train", "--run", ""], "expected a path"),
        (&["train", "--workers", "1000000"], "16 per processor"),
        (&["eval", "--workers", "1000000"], "16 per processor"),
        (&["bench", "--threads", "1000000"], "16 per processor"),
    ] {
        place.check(args, 2, expected);
    }
    fs::write(place.0.join("runs"), "").expect("a file");
    let elsewhere = "; keep the run elsewhere by --run DIR, or nowhere by --no-run";
    place.check(&SMALL, 1, elsewhere);
    let large = ["--batch", "1000", "--validation", "8", "--no-run", "--epochs", "1"];
    let args = [&SMALL[..5], &large, &["--workers", "1"]].concat();
    place.check(
        &args,
        0,
        ": 40 training samples, 8 validation, 48 test samples; batch 40, 1 worker, f32",
    );
}

#[test]
fn a_dataset_may_be_moved_and_is_judged_as_it_says() {
    let place = Place::new("moved");
    pictures(&place, "pets", 30);
    pictures(&place, "other", 10);
    let one = place.0.join("one/a");
    fs::create_dir_all(&one).expect("a folder");
    fs::write(one.join("0.png"), png(8, 8, &[7; 64])).expect("a picture");
    let on = |data| [&ON_PICTURES[..], &["--data", data]].concat();
    let none = "one: samples: expected at least 1 test sample: add some, found none of 1";
    place.check(&on("one"), 4, none);

    let part = ["--epochs", "2", "--max-steps", "3", "--run", "a"];
    assert_eq!(place.dahl(&[&on("pets")[..], &part].concat()).0, 0);
    let judged = |more: &[&str], expected: &str| {
        let (code, stdout, stderr) = place.dahl(&[&["eval", "--run", "a"], more].concat());
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.contains(expected), "{stdout}");
    };
    judged(&[], "evaluated on 12 of 60 samples, the test part of ");
    judged(&["--data", "pets"], "evaluated on 12 of 60 samples, the test part of pets\n");
    judged(&["--data", "other"], "evaluated on 20 samples, all parts of other\n");
    judged(
        &["--data", "other", "--part", "train"],
        "evaluated on 16 of 20 samples, the training part",
    );
    judged(&["--part", "all", "--limit", "5"], "evaluated on 5 of 60 samples, all parts of ");

    fs::rename(place.0.join("pets"), place.0.join("dogs")).expect("another name");
    let gone = ": no such file or directory; name its new place with --data";
    for command in ["eval", "predict"] {
        place.check(&[command, "--run", "a"], 4, gone);
    }
    place.check(
        &["train", "--resume", "a"],
        4,
        "the dataset of the run a: no such file or directory; name its new place with --data",
    );
    judged(&["--data", "dogs"], "evaluated on 12 of 60 samples, the test part of dogs\n");
    place.check(&["train", "--resume", "a", "--data", "dogs"], 0, "continues after step 3");
    // Its place is known from now on, from any directory.
    judged(&[], "evaluated on 12 of 60 samples, the test part of ");
    let mut elsewhere = place.command(&["eval", "--run", "../runs/a"]);
    let output = elsewhere.current_dir(place.0.join("dogs")).output().expect("dahl runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
