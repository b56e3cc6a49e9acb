//! Model files that are cut off or damaged are read or refused, never a panic.

use dahl::model::{Model, Optimizer, TrainSpec};
use dahl::{DType, Error};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A block with everything that a file can say, short enough for every prefix.
const TEXT: &str = r#"name = "a"
input = [3, 8, 8]
layers = [
  { type = "conv2d", name = "stem", out = 8, kernel = [3, 1], stride = 2, padding = 1, groups = 1, bias = false },
  { type = "batch_norm2d", eps = 1e-5, momentum = 0.1 },
  { type = "leaky_relu", negative_slope = 0.2 },
  { type = "residual", body_name = "", body = [{ type = "conv2d", out = 8, kernel = 1 }, { type = "dropout", p = 0.5 }], shortcut = [], then = [{ type = "gelu" }] },
  { type = "sequential", layers = [{ type = "max_pool2d", kernel = 2, stride = 1, padding = 1 }, { type = "global_avg_pool2d" }] },
  { type = "flatten" },
  { type = "linear", out = 10 },
]
"#;

/// True where the text is a model that can be trained.
fn read(text: &str) -> bool {
    let spec = TrainSpec::new(2, DType::F32, Optimizer::sgd(0.1));
    let result = Model::parse(text).and_then(|model| {
        model.lower(&spec)?;
        match model.to_torch() {
            Ok(_) | Err(Error::Unsupported { .. }) => Ok(()),
            Err(e) => Err(e),
        }
    });
    match result {
        Ok(()) => true,
        Err(e @ (Error::Model(_) | Error::Config { .. })) => {
            assert!(e.to_string().contains("expected"), "{e}");
            false
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn every_prefix_of_a_model_is_refused() {
    assert!(read(TEXT));
    for length in (0..TEXT.len() - 1).filter(|&n| TEXT.is_char_boundary(n)) {
        // The last character but one closes the list.
        assert!(!read(&TEXT[..length]), "{}", &TEXT[..length]);
    }
}

#[test]
fn flipped_bits_of_a_model_never_panic() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let (mut taken, mut refused) = (0, 0);
    for i in 0..1000 {
        let mut bytes = TEXT.as_bytes().to_vec();
        for _ in 0..1 + i % 3 {
            let at = random.next_u64() as usize % bytes.len();
            bytes[at] ^= 1 << (random.next_u32() % 8);
        }
        let fine = read(&String::from_utf8_lossy(&bytes));
        *(if fine { &mut taken } else { &mut refused }) += 1;
    }
    // A few only change a name.
    assert!(taken > 0 && refused > 900, "{taken} taken, {refused} refused");
}

/// Numbers of any size in the place of any number: nothing overflows.
#[test]
fn numbers_of_a_model_that_lie_never_panic() {
    let digits: Vec<usize> =
        (0..TEXT.len()).filter(|&i| TEXT.as_bytes()[i].is_ascii_digit()).collect();
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let mut taken = 0;
    for i in 0..1000 {
        let at = digits[i % digits.len()];
        let lie = match i / digits.len() % 4 {
            0 => (random.next_u32() % 4).to_string(),
            1 => (1u64 << (random.next_u32() % 63)).to_string(),
            2 => i64::MAX.to_string(),
            _ => format!("{}.5e{}", random.next_u32() % 10, random.next_u32() % 400),
        };
        taken += usize::from(read(&format!("{}{lie}{}", &TEXT[..at], &TEXT[at + 1..])));
    }
    assert!(taken > 100, "{taken} taken");
}
