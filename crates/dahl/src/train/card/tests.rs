use super::*;
use crate::data::{Part, digits};

fn card() -> Card {
    let data = digits(Part::Train).unwrap();
    // Numbers that need all their digits.
    let normalise = Normalise { mean: vec![0.1 + 0.2], std: vec![1.0 / 3.0] };
    let transform = Transform { normalise: Some(normalise), augment: None };
    let table = TableOptions { class: "species".to_owned(), ..TableOptions::default() };
    let origin = Some(Origin { data: "a \"b\"\n".to_owned(), seed: u64::MAX, table });
    let model = Model::named("digits-cnn").unwrap();
    Card { fit: Fit::Crop, origin, ..Card::new(&model, &data, &transform) }
}

fn file(card: &Card) -> TensorFile {
    let mut file = TensorFile::default();
    card.put(&mut file).unwrap();
    file
}

#[test]
fn what_is_put_is_read_back() {
    let path = Path::new("w.safetensors");
    let again = Card::of(&file(&card()), path).unwrap().unwrap();
    assert_eq!(format!("{again:?}"), format!("{:?}", card()));
    assert_eq!(file(&card()).metadata["format"], "pt");
    let bare = Card { normalise: None, origin: None, ..card() };
    let again = Card::of(&file(&bare), path).unwrap().unwrap();
    assert_eq!(format!("{again:?}"), format!("{bare:?}"));
    assert!(Card::of(&TensorFile::default(), path).unwrap().is_none());
}

/// Means were rounded to `f32`, rows had one for all features, and the filter had no name.
#[test]
fn older_cards_mean_what_they_meant() {
    let mut old = file(&card());
    let means = [("dahl.mean", "[0.30038264]"), ("dahl.std", "[0.37577152]")];
    for (key, value) in means {
        old.metadata.insert(key.to_owned(), value.to_owned());
    }
    old.metadata.insert(SHAPE.to_owned(), "[64]".to_owned());
    old.metadata.remove(FILTER);
    let normalise = Card::of(&old, Path::new("w")).unwrap().unwrap().normalise.unwrap();
    assert_eq!((normalise.mean[0] as f32, normalise.std[0] as f32), (0.30038264, 0.37577152));
    let mut row = [0.5f32; 64];
    normalise.apply(&mut row);
    assert_eq!(row, [(0.5f32 - 0.30038264) / 0.37577152; 64]);
}

#[test]
fn a_card_that_is_not_whole_is_refused() {
    let check = |key: &str, value: Option<&str>, found: &str| {
        let mut file = file(&card());
        match value {
            Some(value) => file.metadata.insert(key.to_owned(), value.to_owned()),
            None => file.metadata.remove(key),
        };
        let error = Card::of(&file, Path::new("w.safetensors")).unwrap_err();
        assert!(matches!(error, Error::Data { .. }));
        let text = error.to_string();
        assert!(text.starts_with("w.safetensors: metadata dahl."), "{text}");
        assert!(text.contains("expected what dahl writes") && text.contains(found), "{text}");
    };
    check(MODEL, Some("layers = ["), "expected a TOML file");
    check(MODEL, Some("input = [1]\nlayers = [{ type = \"conv\" }]"), "found \"conv\"");
    check(MODEL, Some("input = [1, 8, 8]\nlayers = [{ type = \"softmax\" }]"), "softmax \"0\"");
    check(SHAPE, Some("[1, 8, 9]"), "[1, 8, 9] for [1, 8, 8]");
    check(SHAPE, Some("[64, 1, 1, 1, 1, 1, 1, 1, 1]"), "for [1, 8, 8]");
    check(SHAPE, Some("[9223372036854775807, 9]"), "for [1, 8, 8]");
    check(SHAPE, Some("[-1]"), "[-1]");
    check(SHAPE, None, "found nothing");
    check(FIT, Some("squeeze"), "squeeze");
    check(FILTER, Some("nearest"), "nearest");
    check(MEAN, Some("[0.5, 0.5]"), "expected 1 number");
    check(MEAN, None, "found nothing");
    check(STD, Some("[0]"), "expected positive numbers");
    check(CLASSES, Some("{}"), "{}");
    check(SEED, Some("-1"), "-1");
}

#[test]
fn images_are_brought_to_what_was_trained_on() {
    let images = card().images().unwrap();
    assert_eq!(images, ImageOptions { height: 8, width: 8, channels: 1, fit: Fit::Crop });
    let rows = Card { shape: Shape::new(&[64]), ..card() };
    let error = rows.images().unwrap_err().to_string();
    assert_eq!(error, "not supported: image files for a model of samples of [64]");
}

#[test]
fn flipped_bits_of_a_card_never_panic() {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};
    let whole = file(&card());
    let keys: Vec<&String> = whole.metadata.keys().collect();
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut refused = 0;
    for i in 0..1000 {
        let mut file = whole.clone();
        let key = keys[i % keys.len()];
        let mut bytes = whole.metadata[key].clone().into_bytes();
        let at = random.next_u64() as usize % bytes.len();
        bytes[at] ^= 1 << (random.next_u32() % 8);
        file.metadata.insert(key.clone(), String::from_utf8_lossy(&bytes).into_owned());
        match Card::of(&file, Path::new("w.safetensors")) {
            Ok(_) => {}
            Err(Error::Data { .. }) => refused += 1,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(refused > 300, "{refused}");
}
