//! `dahl certify`: checks the proof of a plan.

use crate::output::{DIFFERENT, fail, failed, print};
use crate::plan::in_short;
use dahl::Error;
use dahl_certify::{Certificate, certify};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check the proof that no plan is better than one
///
/// The checker shares no code with the planner: it takes the problem, the plan, the intervals
/// and multipliers of the file, and computes what plans take at least itself, with every
/// rounding against the claim (docs/planner.md). It prints the plan and the space of plans that
/// the claim is about first.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  dahl plan --profile vgg16.graph.txt --platform lab.toml --certificate proof.json
  dahl certify proof.json

Exit codes: 0 the claim holds, 1 it does not, 4 a file that cannot be read.")]
pub(crate) struct Args {
    /// Certificate file of `dahl plan --certificate`
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The plans that a claim is about.
fn space(proof: &Certificate) -> String {
    let (sets, layers) = (proof.sets.len(), proof.problem.layers.len());
    let semantics = proof.problem.semantics.name();
    format!(
        "cost model dahl, {semantics} weights; stages of one unit type each, between any two of the {sets} listed sets of {layers} layers; no uneven shares"
    )
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let read = dahl::os::disk::read_to_string(&args.file)
        .map_err(|source| Error::Io { path: args.file.clone(), source })
        .and_then(|text| {
            serde_json::from_str::<Certificate>(&text).map_err(|error| {
                Error::data(&args.file, "file", "a certificate of dahl plan", error)
            })
        });
    let proof = match read {
        Ok(proof) => proof,
        Err(error) => return failed(&error),
    };
    let objective = proof.problem.objective;
    let value = proof.plan_value();
    let gap = (value - proof.value) / value.max(f64::MIN_POSITIVE);
    let result = certify(&proof);
    let text = match (&result, args.json) {
        (Ok(checked), true) => {
            let mut object = json!({
                "holds": true, "plan": in_short(&proof.problem, &proof.plan),
                "period_s": proof.plan.period_s, "energy_j": proof.plan.energy_j,
                "refers_to": space(&proof),
                "objective": objective.name(), "value": value,
                "no_plan_below": proof.value, "gap": gap, "inequalities": checked,
            });
            if let Some(plan) = &proof.not_about {
                object["not_about"] = plan.as_str().into();
            }
            object.to_string()
        }
        (Err(flaw), true) => json!({ "holds": false, "flaw": flaw.to_string() }).to_string(),
        (Ok(checked), false) => {
            let other = match &proof.not_about {
                Some(plan) => format!(
                    "not about      the plan with uneven shares that `dahl plan` printed: {plan}\n"
                ),
                None => String::new(),
            };
            format!(
                "plan           {}: {} s and {} J per batch\n{other}space          {}\n\
                 holds: no plan of this space has {} below {}; the plan has {value}, a gap of {:.6} % of it; {checked} inequalities",
                in_short(&proof.problem, &proof.plan),
                proof.plan.period_s,
                proof.plan.energy_j,
                space(&proof),
                objective.name(),
                proof.value,
                100.0 * gap,
            )
        }
        (Err(_), false) => String::new(),
    };
    if !text.is_empty()
        && let Err(error) = print(&format!("{text}\n"))
    {
        return fail(error, DIFFERENT);
    }
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(flaw) => fail(format_args!("{}: {flaw}", args.file.display()), DIFFERENT),
    }
}
