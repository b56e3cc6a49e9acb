use super::*;

fn body(text: &str) -> &str {
    &text[text.find("def model").expect("a function")..]
}

#[test]
fn a_plain_network() {
    let text = Model::named("lenet").unwrap().to_torch().unwrap();
    assert_eq!(
        text,
        r#"from collections import OrderedDict

from torch import nn

INPUT = [1, 28, 28]  # the shape of one sample


def model():
    return nn.Sequential(OrderedDict([
        ("0", nn.Conv2d(1, 6, 5, padding=2)),
        ("1", nn.ReLU()),
        ("2", nn.MaxPool2d(2)),
        ("3", nn.Conv2d(6, 16, 5)),
        ("4", nn.ReLU()),
        ("5", nn.MaxPool2d(2)),
        ("6", nn.Flatten()),
        ("7", nn.Linear(400, 120)),
        ("8", nn.ReLU()),
        ("9", nn.Linear(120, 84)),
        ("10", nn.ReLU()),
        ("11", nn.Linear(84, 10)),
    ]))
"#
    );
}

#[test]
fn directions_of_writing_are_spelled_out() {
    assert_eq!(quoted("a\u{202e}b\u{2066}\"\n"), r#""a\u202eb\u2066\"\n""#);
}

#[test]
fn blocks_without_a_name_and_with_one() {
    let model = Model::parse(
        r#"input = [4, 6, 6]
           layers = [
             { type = "residual", name = "a", body_name = "", shortcut_name = "down", body = [
                 { type = "conv2d", out = 8, kernel = [3, 1], padding = [1, 0], groups = 2, bias = false },
                 { type = "relu" },
                 { type = "batch_norm2d" },
               ], shortcut = [{ type = "conv2d", out = 8, kernel = 1 }], then = [{ type = "gelu" }] },
             { type = "residual", body = [{ type = "tanh", name = "f" }, { type = "dropout", p = 0.25, name = "g" }] },
             { type = "sequential", name = "head", layers = [
                 { type = "avg_pool2d", kernel = 3, stride = 1, padding = 1 }, { type = "flatten" } ] },
             { type = "linear", out = 3, name = "\"fc\"" },
           ]"#,
    );
    let text = model.unwrap().to_torch().unwrap();
    assert!(text.contains("class Residual(nn.Module):"));
    // The second `0` has no weights, so its name is free.
    assert_eq!(
        body(&text),
        r#"def model():
    return nn.Sequential(OrderedDict([
        ("a", Residual(
            ("", [
                ("0", nn.Conv2d(4, 8, (3, 1), padding=(1, 0), groups=2, bias=False)),
                ("1", nn.ReLU()),
                ("2", nn.BatchNorm2d(8, eps=1e-5, momentum=0.1)),
            ]),
            ("down", [
                ("0", nn.Conv2d(4, 8, 1)),
            ]),
            [
                ("0_", nn.GELU()),
            ],
        )),
        ("1", Residual(
            ("body", [
                ("f", nn.Tanh()),
                ("g", nn.Dropout(0.25)),
            ]),
            ("shortcut", []),
            [],
        )),
        ("head", nn.Sequential(OrderedDict([
            ("0", nn.AvgPool2d(3, stride=1, padding=1)),
            ("1", nn.Flatten()),
        ]))),
        ("\"fc\"", nn.Linear(288, 3)),
    ]))
"#
    );
}

#[test]
fn names_that_pytorch_does_not_take_are_refused() {
    let check = |layers: &str, expected: &str| {
        let text = format!("input = [2]\nlayers = [{layers}]");
        let error = Model::parse(&text).unwrap().to_torch().unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(
        r#"{ type = "linear", out = 2, name = "features.0" }"#,
        "not supported: a PyTorch module called \"features.0\"",
    );
    check(
        r#"{ type = "sequential", name = "a", layers = [{ type = "linear", name = "b", out = 2 }] },
           { type = "sequential", name = "a", layers = [{ type = "linear", name = "c", out = 2 }] }"#,
        "layer \"a\": name: expected a unique name in the model, found a again",
    );
}
