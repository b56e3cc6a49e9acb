//! `dahl import`: measurements of other projects as dahl's files.

use crate::files::{check_outputs, write};
use crate::output::{say, show};
use clap::{Args as ClapArgs, Subcommand};
use dahl::planner::baselines::SailorRequest;
use dahl::platform::{ZeusRequest, ZeusTable};
use dahl::run::config::Value;
use dahl::units::Bytes;
use dahl::{Error, Result};
use std::path::PathBuf;
use std::str::FromStr;

/// Convert measurements of other projects into profiles and platform files
///
/// The output is a profile for `dahl plan --profile`, or a platform for `dahl plan --platform`
/// (docs/planner.md).
#[derive(ClapArgs)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:
  dahl import sailor gpu-a100=OPT-350_A100-40.json gpu-v100=OPT-350_V100-16.json
    --sizes llm_info.json --model OPT-350 --batch 64 --output opt-350.json
  dahl import zeus a40=summary_power_a40.csv v100=summary_power_v100.csv --memory 48GiB,32GiB
    --network imagenet/resnet50 --batch 128 --output gpus.toml

Exit codes: 0 ok, 1 the result cannot be written, 2 usage, 4 a file that cannot be read or is wrong."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    of: Of,
}

#[derive(Subcommand)]
enum Of {
    /// Write a profile of a network from measurements of the project Sailor: time per layer,
    /// micro-batch and degree of tensor parallelism
    #[command(after_help = "Examples:
  dahl import sailor gpu-v100=OPT-350_V100-16.json --model OPT-350 --batch 64 > opt-350.json
  dahl plan --profile opt-350.json --platform cloud.toml")]
    Sailor {
        /// Unit type and its file of times: the `kind` or the `machine/unit` name that the platform
        /// file has
        #[arg(value_name = "KIND=FILE", required = true)]
        times: Vec<Named>,
        /// File with the bytes of parameters and outputs (Sailor's llm_info.json) [default: all
        /// bytes are 0]
        #[arg(long, value_name = "FILE")]
        sizes: Option<PathBuf>,
        /// Name of the model, as in --sizes
        #[arg(long, value_name = "NAME")]
        model: String,
        /// Number of samples per batch
        #[arg(long, value_name = "N")]
        batch: usize,
        /// Number of GPUs that compute a layer together (tensor parallelism). Each unit of the platform then
        /// stands for this number of GPUs
        #[arg(long, value_name = "N", default_value_t = 1)]
        tensor_parallel: usize,
        /// Write to this file instead of standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write a platform file from measurements of the project Zeus: time and power per power limit
    ///
    /// Each GPU becomes a machine with a power state per power limit. Speed and busy power
    /// are measured values. Idle power, power of machines, bandwidths and links are estimates and
    /// marked as such: replace them by values of your own machines.
    #[command(after_help = "Examples:
  dahl import zeus v100=summary_power_v100.csv --memory 32GiB --network resnet50 > v100.toml")]
    Zeus {
        /// Name of a GPU and its table (summary_power_*.csv)
        #[arg(value_name = "NAME=FILE", required = true)]
        tables: Vec<Named>,
        /// Name of the measured network in the tables; DATASET/NETWORK if several datasets have a network
        /// of this name
        #[arg(long, value_name = "NETWORK")]
        network: String,
        /// Batch size of the measurements [default: the largest batch size in all tables]
        #[arg(long, value_name = "N")]
        batch: Option<usize>,
        /// Memory of all GPUs, or of each GPU in the order of the tables
        #[arg(long, value_name = "BYTES", required = true, value_delimiter = ',', value_parser = <Bytes as Value>::parse)]
        memory: Vec<Bytes>,
        /// Write to this file instead of standard output
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// A file with a name.
#[derive(Clone, Debug)]
struct Named {
    name: String,
    file: PathBuf,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, file)) if !name.is_empty() && !file.is_empty() => {
                Ok(Self { name: name.to_owned(), file: file.into() })
            }
            _ => Err("expected a name and a file, such as gpu-v100=times.json".to_owned()),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (text, output) = match &args.of {
        Of::Sailor { times, sizes, model, batch, tensor_parallel, output } => {
            check_outputs(&[("output", output.as_ref())])?;
            if *batch == 0 || *tensor_parallel == 0 {
                let flag = if *batch == 0 { "batch" } else { "tensor-parallel" };
                return Err(Error::config(flag, "at least 1", 0));
            }
            let times: Vec<_> = times.iter().map(|t| (t.name.clone(), t.file.clone())).collect();
            let profile = SailorRequest {
                times: &times,
                sizes: sizes.as_deref(),
                model,
                batch: *batch,
                tensor_parallel: *tensor_parallel,
            };
            if sizes.is_none() {
                say("note: without --sizes all bytes are 0: transfers and memory cost nothing");
            }
            (profile.read()?.to_json(), output)
        }
        Of::Zeus { tables, network, batch, memory, output } => {
            check_outputs(&[("output", output.as_ref())])?;
            if memory.len() != 1 && memory.len() != tables.len() {
                let expected = format!("one size, or {} for the tables", tables.len());
                return Err(Error::config("memory", expected, memory.len()));
            }
            let table = |(i, table): (usize, &Named)| ZeusTable {
                name: table.name.clone(),
                path: table.file.clone(),
                memory: memory[i.min(memory.len() - 1)].0,
            };
            let tables: Vec<ZeusTable> = tables.iter().enumerate().map(table).collect();
            let request = ZeusRequest { tables: &tables, network, batch: *batch };
            (request.read()?.to_toml(), output)
        }
    };
    match output {
        Some(path) => write(path, &text),
        None => show(&text),
    }
}
