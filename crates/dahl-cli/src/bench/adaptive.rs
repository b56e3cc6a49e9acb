//! `dahl bench adaptive`: the reaction to a worker that becomes slow during a run.

use super::measure::{Bench, Racer, least};
use super::workloads::{Workload, WorkloadArgs};
use crate::args::{Kernels, Settings};
use crate::files::{calibrations, grain_request};
use crate::output::{show, show_json};
use clap::Args as ClapArgs;
use dahl::choose::{GrainCandidate, ThisMachine};
use dahl::model::{Lowered, Optimizer, TrainSpec};
use dahl::native::{Native, Throttle};
use dahl::plan::PlannedPrograms;
use dahl::planner::{Grain, Patience, shared};
use dahl::run::config::{at_least_one, throttle_speed};
use dahl::{DType, Error, Result};
use serde_json::json;

/// Slow down one of two workers during a run and measure how --grain adaptive reacts
///
/// The same network is trained with the placement that --grain auto chooses, with and without the
/// slow worker; with --grain adaptive, which detects the slow worker during the run; and with every
/// placement planned for the known speeds, of which the best counts. All take turns. The slow worker
/// waits after each of its calls.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  dahl bench adaptive lenet-b64
  dahl bench adaptive seed-28-b64 vgg-small-b32 --speed 0.25 --rounds 15")]
pub(crate) struct Args {
    #[command(flatten)]
    workloads: WorkloadArgs,
    /// Speed of the second worker, as a fraction of full speed
    #[arg(long, default_value_t = 0.5, value_parser = throttle_speed)]
    speed: f64,
    /// Element type
    #[arg(long, default_value = "f32", value_parser = super::floats)]
    dtype: DType,
    #[command(flatten)]
    kernels: Settings<Kernels>,
    /// Number of repetitions of each configuration; the configurations alternate
    #[arg(long, default_value_t = 9, value_parser = at_least_one)]
    rounds: usize,
    /// Approximate seconds per repetition
    #[arg(long, default_value_t = 0.2, value_parser = super::seconds)]
    seconds: f64,
    /// Print one JSON object per workload
    #[arg(long)]
    json: bool,
}

/// Maximum number of repetitions in which the adaptive run may adapt.
const WAITING: usize = 20;

/// A way to train: its name and grain.
type Way = Racer<(&'static str, String)>;

pub(super) fn run(args: &Args) -> Result<()> {
    args.workloads.all()?.iter().try_for_each(|workload| throttled(args, workload))
}

/// Leaves the candidates of two workers: a run of one has nobody to be slowed down.
fn keep_pairs(candidates: &mut Vec<GrainCandidate>) -> Result<()> {
    candidates.retain(|candidate| candidate.grain.workers == 2);
    if candidates.is_empty() {
        let expected = "two, one of which is slowed down";
        return Err(Error::config("workers", expected, "no placement on two cores here"));
    }
    Ok(())
}

fn throttled(args: &Args, workload: &Workload) -> Result<()> {
    let Workload { model, batch, name } = workload;
    let base = Grain { target: args.kernels.target(), ..Grain::for_workers(2) };
    let lowered = model.lower(&TrainSpec::new(*batch, args.dtype, Optimizer::sgd(0.01)))?;
    let programs = &lowered.programs;
    let request = grain_request(programs, base, *batch, None);
    let mut chosen = request.choose(calibrations(&[])?, Some(&mut ThisMachine))?;
    keep_pairs(&mut chosen.candidates)?;
    let (auto, plan) = (chosen.best().grain.clone(), chosen.best().plan.clone());
    let bench = |plan: &PlannedPrograms, throttle: Option<u64>| {
        let slow = |from_step| Throttle { worker: 1, speed: args.speed, from_step };
        let throttles = throttle.map(slow).into_iter().collect();
        let engine = Native { throttles, ..Native::default() };
        Bench::on(model, (*batch, args.dtype), |_: &Lowered| Ok(plan.clone()), &engine)
    };
    let way = |name, grain: String, bench| Way::new((name, grain), bench, args.seconds);
    let mut all = vec![
        way("before", auto.to_string(), bench(&plan, None)?)?,
        way("slow worker, same placement", auto.to_string(), bench(&plan, Some(0))?)?,
    ];
    // Full speed for about two repetitions, then slow.
    let mut adaptive = bench(&plan, Some(4 * all[0].steps))?;
    let (_, adapter) = chosen.adapting(&request, Patience::default())?;
    adaptive.trainer().adapt(adapter);
    let before = adaptive.run(2 * all[0].steps)?.wall;
    let spurious = adaptive.trainer().changes();
    for _ in 0..WAITING {
        adaptive.run(2 * all[1].steps)?;
        if adaptive.trainer().changes() > spurious {
            break;
        }
    }
    let placement = format!("{} changes", adaptive.trainer().changes());
    all.push(way("slow worker, adaptive", placement, adaptive)?);
    for grain in shared(&[1.0, args.speed], *batch, &auto) {
        let plan = grain.plan_with(programs, plan.numerics.clone())?;
        all.push(way("fresh plan", grain.to_string(), bench(&plan, Some(0))?)?);
    }
    for _ in 0..args.rounds {
        all.iter_mut().try_for_each(|way| way.run().map(drop))?;
    }
    let over = all[2].best() / least(all[3..].iter().map(Way::best)) - 1.0;
    if args.json {
        let way = |way: &Way| {
            let ((name, grain), ms) = (&way.of, 1e3 * way.best());
            json!({ "way": name, "grain": grain, "ms": ms, "spread": way.timings.spread() })
        };
        return show_json(&json!({
            "workload": name, "speed": args.speed, "over_fresh": over,
            "ways": all.iter().map(way).collect::<Vec<_>>(), "spurious_changes": spurious,
        }));
    }
    let mut text = format!("{name}, worker 1 at {} of its speed\n", args.speed);
    text += &format!("  {:28} {:24} {:>9} {:>7}\n", "", "grain", "ms per step", "spread");
    for way in &all {
        let ((name, grain), ms) = (&way.of, 1e3 * way.best());
        let spread = 100.0 * way.timings.spread();
        text += &format!("  {name:28} {grain:24} {ms:>9.3} {spread:>5.1} %\n");
    }
    text += &format!(
        "  adaptive is {:.1} % above the best fresh plan; {:.3} ms in the same run before\n\n",
        100.0 * over,
        1e3 * before
    );
    show(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On one core there is no candidate of two workers, and the first was asked for.
    #[test]
    fn a_machine_of_one_core_is_refused() {
        assert!(matches!(keep_pairs(&mut Vec::new()), Err(Error::Config { .. })));
    }
}
