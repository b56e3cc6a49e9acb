//! `dahl certify`: checks the proof of a plan.

use crate::files::read_json;
use crate::output::{Colour, DIFFERENT, fail, show, show_json};
use crate::table::facts;
use dahl::Result;
use dahl::planner::pipeline::in_short;
use dahl_certify::{Certificate, certify};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check the proof of a lower bound on all plans
///
/// The checker shares no code with the planner: from the problem, the plan, the intervals and the
/// multipliers of the file it computes the bounds itself, with every rounding against the claim
/// (docs/planner.md). It prints the plan and the space of plans that the claim is about, then the
/// claim.
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

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let proof: Certificate = read_json(&args.file, "a certificate of dahl plan")?;
    let (objective, value) = (proof.problem.objective.name(), proof.plan_value());
    let gap = (value - proof.value) / value.max(f64::MIN_POSITIVE);
    let (plan, space) = (in_short(&proof.problem, &proof.plan), space(&proof));
    let [period, energy] = [proof.plan.period_s, proof.plan.energy_j];
    let result = certify(&proof);
    match (&result, args.json) {
        (Ok(checked), true) => {
            let mut object = json!({
                "holds": true, "plan": plan, "period_s": period, "energy_j": energy,
                "refers_to": space, "objective": objective, "value": value,
                "no_plan_below": proof.value, "gap": gap, "inequalities": checked,
            });
            if let Some(plan) = &proof.not_about {
                object["not_about"] = plan.as_str().into();
            }
            show_json(&object)?;
        }
        (Err(flaw), true) => show_json(&json!({ "holds": false, "flaw": flaw.to_string() }))?,
        (Ok(checked), false) => {
            let mut about = vec![("plan", format!("{plan}: {period} s and {energy} J per batch"))];
            about.extend(proof.not_about.iter().map(|plan| {
                let text = "the plan with uneven shares that `dahl plan` printed";
                ("not about", format!("{text}: {plan}"))
            }));
            about.push(("space", space));
            show(&format!(
                "{}holds: no plan of this space has {objective} below {}; the plan has {value}, a gap \
                 of {:.6} %; {checked} inequalities checked\n",
                facts(&about, Colour::of_stdout()),
                proof.value,
                100.0 * gap,
            ))?;
        }
        (Err(_), false) => {}
    }
    Ok(match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(flaw) => fail(format_args!("{}: {flaw}", args.file.display()), DIFFERENT),
    })
}
