//! `dahl certify`: checks the proof of a plan.

use crate::files::read_json;
use crate::output::{Colour, DIFFERENT, fail, show, show_json};
use crate::table::facts;
use dahl::planner::baselines::Imported;
use dahl::planner::pipeline::{Watts, in_short, machinery};
use dahl::platform::Platform;
use dahl::run::config::at_least_one;
use dahl::{Error, Result};
use dahl_certify::{Certificate, Layer, NodeType, Problem, Scope, Semantics, UnitType, certify};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check the proof of a lower bound on all plans
///
/// The checker shares the data types and the check of their figures with the planner, but no cost
/// formula: from the problem, the plan, the intervals and the multipliers of the file it computes the
/// bounds itself, with every rounding against the claim (docs/planner.md). It prints the plan and the
/// space of plans that the claim is about, then the claim. With --profile and --platform it also
/// checks that the problem is the one of these files.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  dahl plan --profile vgg16.graph.txt --platform lab.toml --certificate proof.json
  dahl certify proof.json --profile vgg16.graph.txt --platform lab.toml

Exit codes: 0 the claim holds, 1 it does not or is about other files, 4 a file that cannot be read.")]
pub(crate) struct Args {
    /// Certificate file of `dahl plan --certificate`
    file: PathBuf,
    /// Profile that the proof must be about
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Platform file that the proof must be about
    #[arg(long, value_name = "FILE")]
    platform: Option<PathBuf>,
    /// Number of copies of each machine in the platform, as for `dahl plan`
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one, requires = "platform")]
    machines: usize,
    /// Ignore power states, as for `dahl plan`
    #[arg(long, requires = "platform")]
    full_power: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The plans that a claim is about.
fn space(proof: &Certificate) -> String {
    let (sets, p) = (proof.sets.len(), &proof.problem);
    let (layers, semantics) = (p.layers.len(), p.semantics.name());
    let shares = match p.samples {
        Some(samples) => {
            format!("or one stage on several unit types with uneven shares of {samples} samples")
        }
        None => "no uneven shares".to_owned(),
    };
    let period = p.period_cap.map(|cap| format!("; period at most {cap} s"));
    let power = p.power_cap.map(|cap| format!("; {cap} W on average at most"));
    let caps: String = period.into_iter().chain(power).collect();
    format!(
        "cost model dahl, {semantics} weights; stages of one unit type each, between any two of the {sets} listed sets of {layers} layers; {shares}{caps}"
    )
}

fn near(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

/// What of a problem is not that of the files, if they are given.
fn other_files(args: &Args, p: &Problem) -> Result<Option<String>> {
    let platform = args.platform.as_deref().map(|path| platform(args, path)).transpose()?;
    let machines = platform.as_ref().map(|of| machinery(of, Watts::Likely)).transpose()?;
    let mut machines = machines;
    let network = args.profile.as_deref().map(Imported::read).transpose()?;
    // Times that were measured by unit type say which unit types can be compared.
    let measured = match (&network, &platform, &mut machines) {
        (Some(Imported::Measured(measured)), Some(platform), Some(machines)) => {
            let parts = match p.semantics {
                Semantics::Synchronous { micro_batches } => micro_batches,
                Semantics::Stale => 1,
            };
            Some(measured.layers(platform, machines, parts)?)
        }
        (Some(Imported::Measured(_)), ..) => {
            let [setting, other] = ["profile", "platform"].map(str::to_owned);
            return Err(Error::Requires { setting, other });
        }
        _ => None,
    };
    if let (Some(machines), Some(path)) = (&machines, &args.platform) {
        // A memory limit of the command is not in the file.
        let unlimited = |units: &[UnitType]| -> Vec<UnitType> {
            units.iter().map(|unit| UnitType { memory_bytes: 0.0, ..unit.clone() }).collect()
        };
        let less = |(own, there): (&UnitType, &UnitType)| own.memory_bytes <= there.memory_bytes;
        let text = |units: &[UnitType], nodes: &[NodeType], scopes: &[Scope]| {
            json!([unlimited(units), nodes, scopes])
        };
        let same = text(&p.units, &p.nodes, &p.scopes)
            == text(&machines.units, &machines.nodes, &machines.scopes);
        if !same || !p.units.iter().zip(&machines.units).all(less) {
            return Ok(Some(format!("units that are not those of {}", path.display())));
        }
    }
    let (Some(path), Some(network)) = (&args.profile, &network) else { return Ok(None) };
    // Without a platform seconds are those of the file but for a factor per unit type.
    let slowdowns = machines.map(|machines| machines.slowdowns);
    let ones = vec![1.0; p.units.len()];
    let factors = slowdowns.as_deref().unwrap_or(&ones);
    let layers = match (network, measured) {
        (Imported::Profile(profile), _) => profile.layers(factors),
        (Imported::Operators(operators), _) => operators.layers(factors),
        (Imported::Measured(_), layers) => layers.unwrap_or_default(),
    };
    let factor = |unit: usize| {
        let sum = |of: &[Layer]| of.iter().map(|layer| layer.seconds[unit]).sum::<f64>();
        if slowdowns.is_some() { 1.0 } else { sum(&p.layers) / sum(&layers) }
    };
    let factors: Vec<f64> = (0..p.units.len()).map(factor).collect();
    let same = |(own, there): (&Layer, &Layer)| {
        let seconds = own.seconds.iter().zip(&there.seconds).zip(&factors);
        let margin = if slowdowns.is_some() { 1e-12 } else { 1e-9 };
        let close = |((a, b), f): ((&f64, &f64), &f64)| (a - b * f).abs() <= margin * a.abs();
        own.inputs == there.inputs
            && own.name == there.name
            && near(own.output_bytes, there.output_bytes)
            && near(own.parameter_bytes, there.parameter_bytes)
            && seconds.into_iter().all(close)
    };
    let same = layers.len() == p.layers.len() && p.layers.iter().zip(&layers).all(same);
    Ok((!same).then(|| format!("layers that are not those of {}", path.display())))
}

fn platform(args: &Args, path: &Path) -> Result<Platform> {
    let mut platform = Platform::read(path)?;
    for node in &mut platform.nodes {
        node.count = node.count.saturating_mul(args.machines).min(100_000);
        if args.full_power {
            node.units.iter_mut().for_each(|unit| unit.states.clear());
        }
    }
    Ok(platform)
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let proof: Certificate = read_json(&args.file, "a certificate of dahl plan")?;
    let (objective, value) = (proof.problem.objective.name(), proof.plan_value());
    let gap = (value - proof.value) / value.max(f64::MIN_POSITIVE);
    let (plan, space) = (in_short(&proof.problem, &proof.plan), space(&proof));
    let [period, energy] = [proof.plan.period_s, proof.plan.energy_j];
    let result = certify(&proof);
    if let (Ok(_), Some(other)) = (&result, other_files(args, &proof.problem)?) {
        if args.json {
            show_json(&json!({ "holds": true, "same_files": false, "flaw": other }))?;
        }
        return Ok(fail(
            format_args!(
                "{}: expected a proof about these files, found {other}",
                args.file.display()
            ),
            DIFFERENT,
        ));
    }
    let compared = [("profile", &args.profile), ("platform", &args.platform)];
    let compared = compared
        .into_iter()
        .filter_map(|(kind, file)| file.as_ref().map(|file| format!("{kind} {}", file.display())));
    let compared: Vec<String> = compared.collect();
    match (&result, args.json) {
        (Ok(checked), true) => {
            let mut object = json!({
                "holds": true, "plan": plan, "period_s": period, "energy_j": energy,
                "refers_to": space, "objective": objective, "value": value,
                "no_plan_below": proof.value, "gap": gap, "inequalities": checked,
                "files": proof.files, "compared_with": compared,
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
            let files = match (&compared[..], &proof.files[..]) {
                ([], []) => String::new(),
                ([], named) => format!(
                    "made from {}, which were not compared: --profile and --platform do\n",
                    named.join(" and ")
                ),
                (files, _) => format!("the problem is that of {}\n", files.join(" and ")),
            };
            show(&format!(
                "{}holds: no plan of this space has {objective} below {}; the plan has {value}, a gap \
                 of {:.6} %; {checked} inequalities checked\n{files}",
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
