//! The file of a plan: JSON with stages.

use crate::error::{Error, Result};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Files with more stages are refused.
const MOST_STAGES: usize = 20_000;

/// A plan as its file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignPlan {
    /// The file.
    pub path: PathBuf,
    /// The planner, if the file names it.
    pub planner: Option<String>,
    /// `synchronous` or `stale`, if the file names it.
    pub semantics: Option<String>,
    /// Micro-batches per batch, if the file names them.
    pub micro_batches: Option<usize>,
    /// Stages or devices, in the order of the file.
    pub(super) stages: Vec<ForeignStage>,
}

/// A layer by its index, or by its name or id.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Key {
    Index(u64),
    Name(String),
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Name(name) => write!(f, "{name:?}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct ForeignStage {
    /// Layers of a pipeline's stage.
    pub(super) layers: Option<Vec<Key>>,
    /// Or the first and the last of them in the order of the profile.
    pub(super) first: Option<Key>,
    pub(super) last: Option<Key>,
    pub(super) unit: Option<String>,
    #[serde(default = "one")]
    pub(super) replicas: usize,
    pub(super) power: Option<String>,
    /// Samples of each unit, where stages share each batch.
    pub(super) samples: Option<Vec<usize>>,
    /// `accelerator` or `core`, for the cost model max-load.
    pub(super) device: Option<String>,
    /// Its nodes, by id.
    pub(super) nodes: Option<Vec<i64>>,
}

fn one() -> usize {
    1
}

const STAGE_KEYS: [&str; 9] =
    ["layers", "first", "last", "unit", "replicas", "power", "samples", "device", "nodes"];
const KEYS: [&str; 4] = ["planner", "semantics", "micro_batches", "stages"];

impl ForeignPlan {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is no plan: with the place of the fault.
    pub fn read(path: &Path) -> Result<Self> {
        let text = crate::os::disk::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file; the path is for errors.
    ///
    /// # Errors
    /// If it is no plan: with the place of the fault.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let fault = |place: &str, expected: &str, found: String| {
            Error::data(path, place, expected.to_owned(), found)
        };
        let file: Value = serde_json::from_str(text)
            .map_err(|error| fault("file", "a plan in JSON", error.to_string()))?;
        let Value::Object(file) = file else {
            return Err(fault("file", "an object with stages", "another value".to_owned()));
        };
        if file.contains_key("fpgas") || file.contains_key("cpus") {
            return Self::parse_split(&file, path);
        }
        // The output of `dahl plan --json` has more keys, which say what dahl computed.
        let own = file.contains_key("cost_model");
        let unknown = |of: &Map<String, Value>, keys: &[&str]| {
            of.keys().find(|key| !own && !keys.contains(&key.as_str())).cloned()
        };
        if let Some(key) = unknown(&file, &KEYS) {
            return Err(fault("file", &format!("the keys {}", KEYS.join(", ")), key));
        }
        let text = |key: &str| match file.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(fault(key, "a text", other.to_string())),
        };
        let micro_batches = match file.get("micro_batches") {
            None | Some(Value::Null) => None,
            Some(other) => match other.as_u64().and_then(|n| usize::try_from(n).ok()) {
                Some(n) if n > 0 => Some(n),
                _ => return Err(fault("micro_batches", "a number above 0", other.to_string())),
            },
        };
        let semantics = text("semantics")?;
        if let Some(other) =
            semantics.as_ref().filter(|s| !["synchronous", "stale"].contains(&&***s))
        {
            return Err(fault("semantics", "synchronous or stale", other.clone()));
        }
        let listed = match file.get("stages") {
            Some(Value::Array(stages)) if (1..=MOST_STAGES).contains(&stages.len()) => stages,
            Some(Value::Array(stages)) => {
                let expected = format!("1 to {MOST_STAGES}");
                return Err(fault("stages", &expected, stages.len().to_string()));
            }
            _ => return Err(fault("stages", "a list of stages", "none".to_owned())),
        };
        let mut stages = Vec::new();
        for (i, stage) in listed.iter().enumerate() {
            let place = format!("stage {i}");
            let Value::Object(keys) = stage else {
                return Err(fault(&place, "an object with layers and unit", stage.to_string()));
            };
            if let Some(key) = unknown(keys, &STAGE_KEYS) {
                return Err(fault(&place, &format!("the keys {}", STAGE_KEYS.join(", ")), key));
            }
            let stage = ForeignStage::deserialize(stage).map_err(|error| {
                fault(&place, "values such as in docs/planner.md", error.to_string())
            })?;
            stages.push(stage);
        }
        let planner = text("planner")?;
        Ok(Self { path: path.to_owned(), planner, semantics, micro_batches, stages })
    }

    /// A split of dnn-partitioning: lists of accelerators and of cores with their nodes.
    fn parse_split(file: &Map<String, Value>, path: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Split {
            nodes: Vec<i64>,
        }
        let mut stages = Vec::new();
        for (key, device) in [("fpgas", "accelerator"), ("cpus", "core")] {
            let list = file.get(key).cloned().unwrap_or(Value::Array(Vec::new()));
            let list: Vec<Split> = serde_json::from_value(list)
                .map_err(|error| Error::data(path, key, "a list of devices with nodes", error))?;
            stages.extend(list.into_iter().map(|split| ForeignStage {
                layers: None,
                first: None,
                last: None,
                unit: None,
                replicas: 1,
                power: None,
                samples: None,
                device: Some(device.to_owned()),
                nodes: Some(split.nodes),
            }));
        }
        if stages.len() > MOST_STAGES {
            let expected = format!("at most {MOST_STAGES} devices");
            return Err(Error::data(path, "file", expected, stages.len()));
        }
        let planner = Some("dnn-partitioning".to_owned());
        Ok(Self { path: path.to_owned(), planner, semantics: None, micro_batches: None, stages })
    }

    /// An error at a place of the file.
    pub(super) fn fault(
        &self,
        place: String,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Error {
        Error::data(&self.path, place, expected.into(), found.into())
    }
}
