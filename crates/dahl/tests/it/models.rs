//! Models: names, numbers of parameters, initial values, and what is said of a
//! model that does not fit together.

use dahl::graph::Class;
use dahl::model::{LayerKind, Lowered, Model, NAMES, Optimizer, Sequence, TrainSpec};
use dahl::ops::conv2d::Conv2d;
use dahl::train::Trainer;
use dahl::{DType, Error};

/// The layers that a file can name.
const LAYERS: &str = "conv2d, linear, relu, leaky_relu, sigmoid, tanh, gelu, max_pool2d, \
    avg_pool2d, global_avg_pool2d, batch_norm2d, dropout, flatten, softmax, log_softmax, \
    sequential, residual";

fn lower(model: &Model) -> dahl::Result<Lowered> {
    model.lower(&TrainSpec::new(2, DType::F32, Optimizer::sgd(0.1)))
}

/// All that is wrong with a model, a line each.
#[track_caller]
fn errors(model: dahl::Result<Model>) -> Vec<String> {
    let error = match model.and_then(|model| lower(&model).map(drop)) {
        Ok(()) => panic!("expected an error"),
        Err(error) => error,
    };
    assert!(matches!(error, Error::Model(_)), "{error:?}");
    error.to_string().lines().map(str::to_owned).collect()
}

/// A model of these layers, as a file has them, is refused with these lines.
#[track_caller]
fn check_toml(layers: &str, expected: &[&str]) {
    let text = format!("name = \"wrong\"\ninput = [1, 28, 28]\nlayers = [{layers}]");
    assert_eq!(errors(Model::parse(&text)), expected);
}

/// The same, built in Rust.
#[track_caller]
fn check_built(build: impl FnOnce(Sequence) -> Sequence, expected: &[&str]) {
    assert_eq!(errors(Ok(Model::sequential("wrong", &[1, 28, 28], build))), expected);
}

#[test]
fn a_wrong_shape_names_the_layer_expected_and_found() {
    let expected = [r#"conv2d "1": input: expected 4 axes [N, C, H, W], found [2, 784]"#];
    check_toml(r#"{type = "flatten"}, {type = "conv2d", out = 4, kernel = 3}"#, &expected);
    check_built(|s| s.flatten().conv2d(4, 3), &expected);
    let expected =
        [r#"linear "1": input: expected 2 axes [N, I], as after a flatten, found [2, 4, 26, 26]"#];
    check_toml(r#"{type = "conv2d", out = 4, kernel = 3}, {type = "linear", out = 10}"#, &expected);
    check_built(|s| s.conv2d(4, 3).linear(10), &expected);
    let expected = [
        r#"add "1": inputs: expected two tensors of one shape, the first is f32 [2, 2, 26, 26], found f32 [2, 4, 26, 26]"#,
    ];
    check_toml(
        r#"{type = "conv2d", out = 4, kernel = 3},
           {type = "residual", body = [{type = "conv2d", out = 2, kernel = 3, padding = 1}]},
           {type = "flatten"}, {type = "linear", out = 2}"#,
        &expected,
    );
    let body = |s: Sequence| s.conv2d_padded(2, 3, 1);
    check_built(|s| s.conv2d(4, 3).residual(body, |s| s).flatten().linear(2), &expected);
}

#[test]
fn an_unknown_layer_is_named() {
    check_toml(
        r#"{type = "flatten"}, {type = "sequential", layers = [{type = "atention"}]}"#,
        &[&format!("layer \"1.0\": type: expected one of {LAYERS}, found \"atention\"")],
    );
}

#[test]
fn a_kernel_larger_than_its_input_is_named() {
    let expected =
        [r#"conv2d "0": kernel: expected at most the padded input [28, 28], found [31, 31]"#];
    check_toml(
        r#"{type = "conv2d", out = 4, kernel = 31}, {type = "flatten"},
           {type = "linear", out = 10}"#,
        &expected,
    );
    check_built(|s| s.conv2d(4, 31).flatten().linear(10), &expected);
    let expected =
        [r#"max_pool2d "1": kernel: expected at most the padded input [26, 26], found [30, 30]"#];
    check_toml(
        r#"{type = "conv2d", out = 4, kernel = 3, name = "stem"},
           {type = "max_pool2d", kernel = 30}, {type = "flatten"}, {type = "linear", out = 10}"#,
        &expected,
    );
    let stem = |s: Sequence| s.conv2d(4, 3).named("stem");
    check_built(|s| stem(s).max_pool2d(30).flatten().linear(10), &expected);
}

#[test]
fn sizes_whose_product_overflows_are_named() {
    let expected = [
        r#"1.weight "1": size: expected a tensor that can be addressed, found f32 [1000000000000000000, 784], whose product overflows"#,
    ];
    check_toml(r#"{type = "flatten"}, {type = "linear", out = 1000000000000000000}"#, &expected);
    check_built(|s| s.flatten().linear(1_000_000_000_000_000_000), &expected);
    let found = errors(Ok(Model::sequential("wrong", &[1, 28, 28], |s| {
        s.conv2d(usize::MAX / 2, 3).relu().flatten().linear(2)
    })));
    assert!(found[0].starts_with("0.weight \"0\": size: expected"), "{found:?}");
    assert!(found.iter().all(|line| line.ends_with("whose product overflows")), "{found:?}");
    let model = Model::sequential("huge", &[1 << 40, 1 << 40], |s| s.flatten().linear(2));
    let found = errors(Ok(model));
    assert!(found[0].contains("[2, 1099511627776, 1099511627776], whose product"), "{found:?}");
    let far = Conv2d { padding: [usize::MAX; 2], ..Conv2d::default() };
    check_built(
        |s| s.conv2d_with(2, 3, far, true).flatten().linear(2),
        &[
            r#"conv2d "0": padding: expected a padded input that can be addressed, found [18446744073709551615, 18446744073709551615]"#,
        ],
    );
    let dilated = Conv2d { dilation: [usize::MAX; 2], ..Conv2d::default() };
    check_built(
        |s| s.conv2d_with(2, 3, dilated, true).flatten().linear(2),
        &[r#"conv2d "0": kernel: expected at most the padded input [28, 28], found [3, 3]"#],
    );
}

#[test]
fn numbers_that_cannot_be_are_named() {
    let check = |layers: &dyn Fn(Sequence) -> Sequence, expected: &str| {
        check_built(|s| layers(s).flatten().linear(2), &[expected]);
    };
    let stride = Conv2d { stride: [0; 2], ..Conv2d::default() };
    check(
        &|s| s.conv2d_with(4, 3, stride, true),
        r#"conv2d "0": stride, dilation and groups: expected at least 1, found Conv2d { stride: [0, 0], padding: [0, 0], dilation: [1, 1], groups: 1 }"#,
    );
    let groups = Conv2d { groups: 3, ..Conv2d::default() };
    check(
        &|s| s.conv2d_with(4, 3, groups, true),
        r#"conv2d "0": groups: expected input and output channels in 3 equal groups, found input [2, 1, 28, 28] and weight [4, 0, 3, 3]"#,
    );
    let groups = Conv2d { groups: 0, ..Conv2d::default() };
    check(
        &|s| s.conv2d_with(4, 3, groups, true),
        r#"conv2d "0": stride, dilation and groups: expected at least 1, found Conv2d { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 0 }"#,
    );
    check(&|s| s.conv2d(0, 3), r#"conv2d "0": out: expected at least 1 channel, found 0"#);
    check(&|s| s.conv2d(4, 0), r#"conv2d "0": kernel: expected at least 1, found [0, 0]"#);
    check(
        &|s| s.max_pool2d(0),
        r#"max_pool2d "0": kernel and stride: expected at least 1, found kernel [0, 0], stride [0, 0]"#,
    );
    check(&|s| s.flatten().dropout(1.5), r#"dropout "1": p: expected a probability, found 1.5"#);
    check(&|s| s.flatten().linear(0), r#"linear "1": out: expected at least 1 feature, found 0"#);
}

#[test]
fn wrong_keys_are_named() {
    let text = r#"
        inputs = [1, 8, 8]
        layers = [
            { type = "conv2d", out = "four", kernel = [3, 3, 3], strid = 2 },
            { type = "flatten", bias = true },
            { type = "residual", body = [{ type = "linear" }] },
            { out = 3 },
            7,
        ]
    "#;
    let unknown =
        |path: usize| format!("layer \"{path}\": type: expected one of {LAYERS}, found \"\"");
    let keys = "type, name, out, kernel, stride, padding, dilation, groups, bias";
    let expected = [
        r#"model "": input: expected a list of whole numbers, found nothing"#,
        r#"conv2d "0": out: expected a whole number, found "four""#,
        r#"conv2d "0": kernel: expected a whole number or [rows, columns], found [3,3,3]"#,
        &format!("conv2d \"0\": strid: expected one of the keys {keys}, found 2"),
        r#"flatten "1": bias: expected one of the keys type, name, found true"#,
        r#"linear "2.body.0": out: expected a whole number, found nothing"#,
        &unknown(3),
        r#"layer "4": value: expected a table, found 7"#,
        &unknown(4),
        r#"model "": inputs: expected one of the keys name, input, layers, found [1,8,8]"#,
    ];
    assert_eq!(errors(Model::parse(text)), expected);
    let error = Model::parse("layers = [").unwrap_err().to_string();
    assert!(error.starts_with("model: expected a TOML file"), "{error}");
}

#[test]
fn all_errors_of_a_model_are_reported_at_once() {
    let build = |s: Sequence| {
        let s = s.conv2d(4, 40).relu().linear(7).flatten();
        s.residual(|s| s.linear(3).linear(4), |s| s.conv2d(2, 2)).linear(10)
    };
    check_built(
        build,
        &[
            r#"conv2d "0": kernel: expected at most the padded input [28, 28], found [40, 40]"#,
            r#"linear "2": input: expected 2 axes [N, I], as after a flatten, found [2, 4, 28, 28]"#,
            r#"conv2d "4.shortcut.0": input: expected 4 axes [N, C, H, W], found [2, 7]"#,
            r#"add "4": inputs: expected two tensors of one shape, the first is f32 [2, 4], found f32 [2, 7]"#,
        ],
    );
}

#[test]
fn what_is_read_wrong_and_what_does_not_fit_are_reported_together() {
    let layers = r#"{type = "convv"}, {type = "conv2d", out = 2, kernel = 30},
        {type = "dropout", p = 2}, {type = "flatten", bias = 1}, {type = "linear", out = 0}"#;
    let text = format!("name = \"wrong\"\ninput = [1, 28, 28]\nlayers = [{layers}]");
    let found = errors(Model::parse(&text));
    let starts = [
        "layer \"0\": type",
        "flatten \"3\": bias",
        "conv2d \"1\": kernel",
        "dropout \"2\": p",
        "linear \"4\": out",
    ];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    assert!(found[0].ends_with("found \"convv\"; did you mean conv2d?"), "{}", found[0]);
    for (line, start) in found.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
}

#[test]
fn two_layers_of_one_name_are_refused() {
    let expected = [r#"layer "fc": name: expected a unique name in the model, found fc again"#];
    check_toml(
        r#"{type = "flatten"}, {type = "linear", out = 784, name = "fc"},
           {type = "linear", out = 784, name = "fc"}"#,
        &expected,
    );
    check_built(|s| s.flatten().linear(784).named("fc").linear(784).named("fc"), &expected);
    // Without parameters there was no error.
    let expected = [r#"layer "act": name: expected a unique name in the model, found act again"#];
    check_toml(
        r#"{type = "flatten"}, {type = "relu", name = "act"}, {type = "tanh", name = "act"}"#,
        &expected,
    );
    check_built(|s| s.flatten().relu().named("act").relu().named("act"), &expected);
    // A layer without a name is called by its number.
    let expected = [r#"layer "2": name: expected a unique name in the model, found 2 again"#];
    check_toml(r#"{type = "flatten"}, {type = "relu", name = "2"}, {type = "tanh"}"#, &expected);
}

#[test]
fn batch_norm_has_numbers_that_normalise() {
    let check = |keys: &str, what: &str| {
        let layers = format!(r#"{{type = "batch_norm2d", {keys}}}, {{type = "flatten"}}"#);
        check_toml(&layers, &[&format!("batch_norm2d \"0\": {what}")]);
    };
    check("eps = -1", "eps: expected a number from 0 on, found -1");
    check("momentum = 1.5", "momentum: expected a number from 0 to 1, found 1.5");
    // They were said to be missing.
    check("eps = nan", "eps: expected a number, found nan or inf");
    check("momentum = inf", "momentum: expected a number, found nan or inf");
    check_built(
        |s| s.layer(LayerKind::BatchNorm2d { eps: f64::NAN, momentum: 0.1 }).flatten(),
        &["batch_norm2d \"0\": eps: expected a number from 0 on, found NaN"],
    );
}

#[test]
fn an_unknown_model_names_those_there_are() {
    let error = Model::named("alexnet").unwrap_err().to_string();
    for name in NAMES {
        assert!(error.contains(name), "{error}");
    }
    assert!(error.ends_with("found \"alexnet\""), "{error}");
}

#[test]
fn a_batch_of_nothing_is_refused() {
    let model = Model::named("mlp").unwrap();
    let error = model.lower(&TrainSpec::new(0, DType::F32, Optimizer::sgd(0.1))).unwrap_err();
    assert_eq!(error.to_string(), "batch: expected at least 1 sample, found 0");
    let error = model.lower(&TrainSpec::new(1, DType::I64, Optimizer::sgd(0.1))).unwrap_err();
    assert_eq!(error.to_string(), "dtype: expected f32 or f64, found i64");
}

fn parameters(lowered: &Lowered) -> usize {
    let store = &lowered.programs.store;
    store.of_class(Class::Parameter).map(|(_, p)| p.meta.shape.elements()).sum()
}

#[test]
fn named_models_have_pytorchs_numbers_of_parameters() {
    let expected = [
        ("seed-cnn", 4 * 10 + 676 * 10 + 10),
        ("digits-cnn", 16 * 10 + 32 * 145 + 128 * 10 + 10),
        ("lenet", 61_706),
        ("vgg-small", 1_186_378),
        ("resnet18", 11_173_962),
        ("mlp", 784 * 1024 + 1024 + 1024 * 1024 + 1024 + 10_250),
    ];
    assert_eq!(expected.map(|(name, _)| name), NAMES);
    for (name, count) in expected {
        let model = Model::named(name).unwrap();
        for dtype in [DType::F32, DType::F64] {
            let spec = TrainSpec::new(2, dtype, Optimizer::sgd(0.1));
            let spec = TrainSpec { eval: vec![1], ..spec };
            let lowered = model.lower(&spec).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(parameters(&lowered), count, "{name}");
            let output = lowered.programs.programs[0].graph.fetch("output").unwrap();
            let meta = lowered.programs.programs[0].graph.value(output).meta;
            assert_eq!(meta, dahl::ops::Meta::new([2, 10], dtype), "{name}");
        }
    }
}

fn names(model: &Model) -> Vec<String> {
    state_dict(&lower(model).unwrap()).map(|v| v.name.clone()).collect()
}

#[test]
fn resnet18_has_torchvisions_names() {
    let names = names(&Model::named("resnet18").unwrap());
    let mut expected: Vec<String> = Vec::new();
    let norm = |path: &str| {
        let parts = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"];
        parts.map(|part| format!("{path}.{part}"))
    };
    expected.push("conv1.weight".into());
    expected.extend(norm("bn1"));
    for layer in 1..=4 {
        for block in 0..2 {
            let at = format!("layer{layer}.{block}");
            for i in 1..=2 {
                expected.push(format!("{at}.conv{i}.weight"));
                expected.extend(norm(&format!("{at}.bn{i}")));
            }
            if layer > 1 && block == 0 {
                expected.push(format!("{at}.downsample.0.weight"));
                expected.extend(norm(&format!("{at}.downsample.1")));
            }
        }
    }
    expected.extend(["fc.weight".into(), "fc.bias".into()]);
    assert_eq!(expected.len(), 122, "as torchvision's state dict");
    assert_eq!(names, expected);
}

#[test]
fn layers_without_names_are_numbered() {
    let model = Model::sequential("names", &[3, 8, 8], |s| {
        let s = s.conv2d(4, 3).relu().max_pool2d(2);
        let body = |s: Sequence| s.conv2d_padded(4, 3, 1).batch_norm2d();
        s.residual(body, |s| s.conv2d(4, 1)).flatten().linear(10)
    });
    let found = names(&model);
    for name in [
        "0.weight",
        "0.bias",
        "3.body.0.weight",
        "3.body.1.running_mean",
        "3.shortcut.0.bias",
        "5.weight",
    ] {
        assert!(found.iter().any(|n| n == name), "no {name} in {found:?}");
    }
}

/// The initial values of a model's parameters under a seed.
/// What outlives the training: parameters and buffers.
fn state_dict(lowered: &Lowered) -> impl Iterator<Item = &dahl::graph::Persistent> {
    let all = lowered.programs.store.values.iter();
    all.filter(|v| v.class != dahl::graph::Class::Optimizer)
}

fn initial(model: &Model, seed: u64) -> Vec<(String, Vec<f64>)> {
    let spec = TrainSpec { seed, ..TrainSpec::new(2, DType::F64, Optimizer::sgd(0.1)) };
    let grain = dahl::planner::Grain::for_workers(1);
    let mut trainer = Trainer::new(model, &spec, grain, &dahl::native::Native::default()).unwrap();
    let names: Vec<String> = state_dict(trainer.lowered()).map(|v| v.name.clone()).collect();
    names.into_iter().map(|name| (name.clone(), trainer.read(&name).unwrap())).collect()
}

#[test]
fn parameters_start_uniform_within_one_over_the_root_of_the_fan_in() {
    let lenet = initial(&Model::named("lenet").unwrap(), 1);
    let fans = [("0", 25.0), ("3", 150.0), ("7", 400.0), ("9", 120.0), ("11", 84.0)];
    for (layer, fan) in fans {
        let bound = 1.0 / f64::sqrt(fan);
        for part in ["weight", "bias"] {
            let name = format!("{layer}.{part}");
            let (_, values) = lenet.iter().find(|(n, _)| *n == name).unwrap();
            assert!(values.iter().all(|x| x.abs() <= bound), "{name} within {bound}");
            let n = values.len() as f64;
            let (mean, square) =
                values.iter().fold((0.0, 0.0), |(m, s), x| (m + x / n, s + x * x / n));
            // Five standard errors: a uniform's variance is bound²/3, its
            // square's is bound⁴·4/45.
            assert!(mean.abs() < 5.0 * bound / (3.0 * n).sqrt(), "{name}: mean {mean}");
            let off = (square - bound * bound / 3.0).abs();
            assert!(off < 5.0 * bound * bound * (4.0 / 45.0 / n).sqrt(), "{name}: {square}");
        }
    }
}

#[test]
fn batch_norm_starts_from_the_identity() {
    let model = Model::sequential("norm", &[3, 2, 2], |s| s.batch_norm2d().flatten().linear(2));
    let values = initial(&model, 5);
    let expected = [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)];
    for (part, x) in expected {
        assert_eq!(values.iter().find(|(n, _)| *n == format!("0.{part}")).unwrap().1, [x; 3]);
    }
}

#[test]
fn a_seed_gives_the_same_values_and_another_gives_others() {
    let model = Model::named("seed-cnn").unwrap();
    assert_eq!(initial(&model, 1), initial(&model, 1));
    for ((name, a), (_, b)) in initial(&model, 1).iter().zip(&initial(&model, 2)) {
        assert!(a.iter().zip(b).all(|(a, b)| a != b), "{name}");
    }
    // Equal shapes do not start from equal values.
    let twins = Model::sequential("twins", &[8], |s| s.linear(8).linear(8));
    let values = initial(&twins, 1);
    assert_ne!(values[0].1, values[2].1, "{} and {}", values[0].0, values[2].0);
}
