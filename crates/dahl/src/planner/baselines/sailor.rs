//! Profiles that the project Sailor published (Strati et al. 2025): seconds by micro-batch, degree of
//! tensor parallelism and layer; in another file, bytes by degree and layer.

use super::measured::{MeasuredLayer, MeasuredProfile};
use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// By samples of a micro-batch, degree of tensor parallelism and layer: seconds of the forward pass, of
/// the backward pass, and of the update.
type Times = BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<f64>>>>;

/// By model, degree of tensor parallelism and layer.
type Sizes = BTreeMap<String, BTreeMap<String, BTreeMap<String, Size>>>;

#[derive(Clone, Copy, Deserialize)]
struct Size {
    params_bytes: f64,
    /// Per sample.
    act_output_bytes: f64,
}

/// What is imported.
#[derive(Clone, Debug)]
pub struct SailorRequest<'a> {
    /// Times by unit type, with their files.
    pub times: &'a [(String, PathBuf)],
    /// The file of bytes (`llm_info.json`); without it, all bytes are 0.
    pub sizes: Option<&'a Path>,
    /// The model in the file of bytes.
    pub model: &'a str,
    /// Samples per batch.
    pub batch: usize,
    /// GPUs that compute a layer together: a unit is a group of so many.
    pub tensor_parallel: usize,
}

impl SailorRequest<'_> {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file cannot be read, has other content, or lacks the degree, the model or a layer.
    pub fn read(&self) -> Result<MeasuredProfile> {
        let text = |path: &Path| {
            crate::os::disk::read_to_string(path)
                .map_err(|source| Error::Io { path: path.to_owned(), source })
        };
        let mut texts = Vec::new();
        for (kind, path) in self.times {
            texts.push((kind.as_str(), text(path)?, path.as_path()));
        }
        let sizes = self.sizes.map(|path| Ok::<_, Error>((text(path)?, path))).transpose()?;
        let times: Vec<(&str, &str, &Path)> =
            texts.iter().map(|(kind, text, path)| (*kind, &**text, *path)).collect();
        self.parse(&times, sizes.as_ref().map(|(text, path)| (&**text, *path)))
    }

    /// The same from the texts of the files.
    ///
    /// # Errors
    /// As [`SailorRequest::read`].
    pub fn parse(
        &self,
        times: &[(&str, &str, &Path)],
        sizes: Option<(&str, &Path)>,
    ) -> Result<MeasuredProfile> {
        let mut layers: BTreeMap<u64, MeasuredLayer> = BTreeMap::new();
        for (i, &(kind, text, path)) in times.iter().enumerate() {
            if times[..i].iter().any(|(other, ..)| *other == kind) {
                return Err(Error::config("times", "each unit type once", format!("{kind} again")));
            }
            self.add_times(&mut layers, kind, (text, path))?;
        }
        if let Some((text, path)) = sizes {
            self.add_sizes(&mut layers, (text, path))?;
        }
        let mut layers: Vec<MeasuredLayer> = layers.into_values().collect();
        for (i, layer) in layers.iter_mut().enumerate() {
            layer.inputs = i.checked_sub(1).into_iter().collect();
        }
        let name =
            |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let files: Vec<String> = times.iter().map(|(.., path)| name(path)).collect();
        let profile = MeasuredProfile {
            name: self.model.to_owned(),
            origin: format!(
                "profiles of Sailor, {} GPUs per unit: {}",
                self.tensor_parallel,
                files.join(", ")
            ),
            batch: self.batch,
            layers,
        };
        // What is written can be read.
        MeasuredProfile::parse(&profile.to_json(), Path::new("profile"))
    }

    fn add_times(
        &self,
        layers: &mut BTreeMap<u64, MeasuredLayer>,
        kind: &str,
        (text, path): (&str, &Path),
    ) -> Result<()> {
        let file: Times = serde_json::from_str(text).map_err(|error| {
            let expected = "seconds by micro-batch, degree of tensor parallelism and layer";
            Error::data(path, "file", expected, error)
        })?;
        let degree = self.tensor_parallel.to_string();
        let mut any = false;
        for (samples, degrees) in &file {
            let place = |more: String| format!("micro-batch {samples}{more}");
            let Some(samples) = samples.parse::<usize>().ok().filter(|n| *n > 0) else {
                let expected = "a number of samples above 0";
                return Err(Error::data(path, place(String::new()), expected, "another key"));
            };
            // Larger micro-batches often did not fit into memory.
            let Some(times) = degrees.get(&degree) else { continue };
            any = true;
            for (layer, seconds) in times {
                let number = layer_number(path, layer)?;
                let [forward, backward, ..] = seconds[..] else {
                    let expected = "seconds of the forward and of the backward pass";
                    let found = format!("{} numbers", seconds.len());
                    return Err(Error::data(
                        path,
                        place(format!(", layer {layer}")),
                        expected,
                        found,
                    ));
                };
                let own = layers.entry(number).or_insert_with(|| MeasuredLayer {
                    name: format!("layer{number}"),
                    parameter_bytes: 0.0,
                    output_bytes: 0.0,
                    inputs: Vec::new(),
                    seconds: BTreeMap::new(),
                });
                let known = own.seconds.entry(kind.to_owned()).or_default();
                known.push((samples, forward + backward));
                known.sort_unstable_by_key(|(samples, _)| *samples);
            }
        }
        if any {
            return Ok(());
        }
        let mut degrees: Vec<&str> =
            file.values().flat_map(|degrees| degrees.keys().map(String::as_str)).collect();
        degrees.sort_unstable();
        degrees.dedup();
        let expected = format!("times of {degree} GPUs per unit (tensor parallelism)");
        Err(Error::data(path, "file", expected, format!("those of {}", degrees.join(", "))))
    }

    fn add_sizes(
        &self,
        layers: &mut BTreeMap<u64, MeasuredLayer>,
        (text, path): (&str, &Path),
    ) -> Result<()> {
        let file: Sizes = serde_json::from_str(text).map_err(|error| {
            let expected = "bytes by model, degree of tensor parallelism and layer";
            Error::data(path, "file", expected, error)
        })?;
        let Some(degrees) = file.get(self.model) else {
            let models: Vec<&str> = file.keys().map(String::as_str).collect();
            let expected = format!("the model {:?}", self.model);
            return Err(Error::data(path, "file", expected, models.join(", ")));
        };
        let degree = self.tensor_parallel.to_string();
        let Some(sizes) = degrees.get(&degree) else {
            let expected = format!("bytes of {degree} GPUs per unit (tensor parallelism)");
            let found: Vec<&str> = degrees.keys().map(String::as_str).collect();
            return Err(Error::data(path, self.model, expected, found.join(", ")));
        };
        for (number, layer) in layers {
            let Some(size) = sizes.get(&number.to_string()) else {
                let expected = format!("bytes of layer {number}");
                return Err(Error::data(path, self.model, expected, "none"));
            };
            // Each GPU of the group has a part of the parameters.
            layer.parameter_bytes = size.params_bytes * self.tensor_parallel as f64;
            layer.output_bytes = size.act_output_bytes;
        }
        Ok(())
    }
}

fn layer_number(path: &Path, layer: &str) -> Result<u64> {
    let number = layer.parse().ok().filter(|n| *n < 1_000_000);
    number.ok_or_else(|| Error::data(path, "layers", "numbers as names", format!("{layer:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::baselines::tests::file;

    fn files() -> Vec<(String, PathBuf)> {
        let named = |kind: &str, name: &str| (kind.to_owned(), file(&format!("sailor/{name}")));
        vec![named("gpu-a100", "excerpt_A100-40.json"), named("gpu-v100", "excerpt_V100-16.json")]
    }

    #[test]
    fn published_profiles_are_read() {
        let (times, sizes) = (files(), file("sailor/sizes.json"));
        let request = SailorRequest {
            times: &times,
            sizes: Some(&sizes),
            model: "OPT-350",
            batch: 16,
            tensor_parallel: 1,
        };
        let profile = request.read().unwrap();
        assert_eq!((profile.layers.len(), profile.batch), (4, 16));
        let layer = &profile.layers[1];
        assert_eq!((&*layer.name, &layer.inputs[..]), ("layer1", &[0][..]));
        assert_eq!((layer.parameter_bytes, layer.output_bytes), (50_384_896.0, 8_388_608.0));
        // Forward and backward pass of one and of four samples.
        assert_eq!(layer.seconds["gpu-a100"], [(1, 0.002786 + 0.005906), (4, 0.008593 + 0.022721)]);
        assert_eq!(layer.seconds["gpu-v100"][0], (1, 0.00779 + 0.017197));
        // Two GPUs per unit have the parameters together.
        let two = SailorRequest { tensor_parallel: 2, ..request.clone() }.read().unwrap();
        assert_eq!(two.layers[1].parameter_bytes, layer.parameter_bytes);
        assert!(two.layers[1].seconds["gpu-a100"][0].1 < layer.seconds["gpu-a100"][0].1);
        let plain = SailorRequest { sizes: None, ..request }.read().unwrap();
        assert_eq!(plain.layers[1].parameter_bytes, 0.0);
    }

    #[test]
    fn what_a_file_lacks_is_named() {
        let (times, sizes) = (files(), file("sailor/sizes.json"));
        let request = SailorRequest {
            times: &times,
            sizes: Some(&sizes),
            model: "OPT-350",
            batch: 16,
            tensor_parallel: 1,
        };
        let refused = |request: SailorRequest<'_>, expected: &str| {
            let error = request.read().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let eight = SailorRequest { tensor_parallel: 8, ..request.clone() };
        refused(
            eight,
            "expected times of 8 GPUs per unit (tensor parallelism), found those of 1, 2",
        );
        refused(
            SailorRequest { model: "OPT-30", ..request.clone() },
            "the model \"OPT-30\", found OPT-350",
        );
        let other = [("gpu".to_owned(), sizes.clone())];
        refused(
            SailorRequest { times: &other, ..request.clone() },
            "expected seconds by micro-batch",
        );
        let twice = [times[0].clone(), times[0].clone()];
        refused(SailorRequest { times: &twice, ..request.clone() }, "expected each unit type once");
        let parse = |text: &str| {
            request.parse(&[("gpu", text, Path::new("t"))], None).unwrap_err().to_string()
        };
        assert!(parse(r#"{"0": {"1": {"0": [1, 2]}}}"#).contains("a number of samples above 0"));
        assert!(
            parse(r#"{"1": {"1": {"x": [1, 2]}}}"#).contains("layers: expected numbers as names")
        );
        assert!(
            parse(r#"{"1": {"1": {"0": [1]}}}"#)
                .contains("micro-batch 1, layer 0: expected seconds")
        );
    }
}
