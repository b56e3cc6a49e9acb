//! Which flags may help with an error of the library, which knows no flags.

use crate::output::quoted;
use dahl::Error;
use dahl::error::MemoryLimit;
use dahl::run::RunConfig;

/// An error, with the flags that may help.
pub(crate) fn advised(error: &Error) -> String {
    let text = match error {
        Error::Exclusive { setting, other } => {
            format!("{} cannot be combined with {}", flagged(setting), flagged(other))
        }
        Error::Requires { setting, other } => {
            format!("{} requires {}", flagged(setting), flagged(other))
        }
        error => error.to_string(),
    };
    match flags(error) {
        Some(advice) => format!("{text}; {advice}"),
        None => text,
    }
}

/// A text that begins with a setting, with its flag instead.
fn flagged(text: &str) -> String {
    let name = text.split([' ', ',', ':']).next().unwrap_or_default();
    let is_flag = RunConfig::setting(name).is_some() || name == "explain";
    format!("{}{text}", if is_flag { "--" } else { "" })
}

fn flags(error: &Error) -> Option<String> {
    match error {
        Error::Memory { limit: limit @ MemoryLimit::Available { .. }, .. } => {
            let help = "recomputes activations to fit, if that is enough";
            Some(match limit.bytes().0 {
                0 => "no memory is left for a plan: end other processes or raise the limit".into(),
                room if room < 1 << 20 => format!("--memory-limit {room} {help}"),
                room => format!("--memory-limit {}MiB {help}", room >> 20),
            })
        }
        Error::RunExists { path } => {
            Some(format!("resume it with --resume {}, or choose another name", quoted(path)))
        }
        Error::SaveOutside { path, .. } => {
            Some(format!("to write there, add --save {}", quoted(path)))
        }
        Error::NoCheckpoint { run } => {
            let config = run.join(dahl::run::files::CONFIG);
            Some(format!("train it again with: dahl train --config {}", quoted(&config)))
        }
        Error::Columns { .. } => {
            Some("--image-column and --class-column name other columns".to_owned())
        }
        Error::Images { .. } => Some("--image-dir and --image-extension name the files".to_owned()),
        Error::Moved { .. } => Some("name its new place with --data".to_owned()),
        Error::OtherPrograms { .. } => Some(
            "dahl plan MODEL --show plan takes --batch, --dtype, --optimizer, --micro-batches as \
             dahl train does"
                .to_owned(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dahl::units::{Bytes, Headroom, MemoryBound};

    #[test]
    fn a_plan_that_does_not_fit_comes_with_the_flag_that_may_help() {
        let advice = |left: u64| {
            let (limit, used) = (Bytes(left + 900), Bytes(900));
            let room = Headroom { bound: MemoryBound::ControlGroup, limit, used };
            let limit = MemoryLimit::Available { room, besides: Bytes(0) };
            let largest = Vec::new();
            let error =
                Error::Memory { space: None, needed: Bytes(1 << 30), limit, least: None, largest };
            let (_, advice) = advised(&error)
                .rsplit_once("; ")
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .expect("advice");
            advice
        };
        let help = "recomputes activations to fit, if that is enough";
        assert_eq!(advice(64 << 20), format!("--memory-limit 64MiB {help}"));
        assert_eq!(advice(512 << 10), format!("--memory-limit 524288 {help}"));
        let nothing = "no memory is left for a plan: end other processes or raise the limit";
        assert_eq!(advice(0), nothing);
    }
}
