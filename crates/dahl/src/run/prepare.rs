//! From a configuration to what will run, with the reasons.

use super::config::{
    GrainChoice, PlacementSettings, PlanChoice, RunConfig, available, processors, threads,
};
use super::directory;
use super::forecast::predict;
use super::pipelines::Pipelined;
use super::record::Predicted;
use crate::choose::{GrainRequest, Measurer, PlanRequest, in_words};
use crate::error::{Error, Expected, Result};
use crate::graph::Programs;
use crate::model::{Fusion, Lowered, Model, TrainSpec};
use crate::native::{Native, Scheduling, headroom};
use crate::ops::Target;
use crate::os::disk;
use crate::perf::PerfModel;
use crate::plan::{MemoryLimits, Numerics, Outline, Plan, PlannedPrograms};
use crate::planner::pipeline::Objective;
use crate::planner::{Adapter, Fitted, Flow, Grain, Patience, Ran, fit};
use crate::platform::Platform;
use crate::units::{Bytes, Joules, Nanos};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time limit of the search for plans over units before a run.
const SEARCH: Duration = Duration::from_secs(20);

/// Numbers of samples of a run.
#[derive(Clone, Debug, Default)]
pub struct SampleCounts {
    /// The training samples.
    pub train: usize,
    /// The samples of each set that is evaluated.
    pub eval: Vec<usize>,
}

/// The arguments of [`prepare`], beside the configuration.
pub struct Prepare<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its samples.
    pub samples: SampleCounts,
    /// Whether ops are fused.
    pub fusion: Fusion,
    /// The platform that time and energy are predicted on.
    pub platform: Option<&'a Platform>,
    /// The times of calls, and where they come from; a run whose calibration is not set is not
    /// predicted.
    pub known: PerfModel,
    /// The directory of a run that goes on: it keeps its kernels.
    pub resumed: Option<&'a Path>,
    /// Measures costs and runs plans in turns; without a measurer they are only predicted.
    pub measurer: Option<&'a mut dyn Measurer>,
}

/// A run that is ready to start.
pub struct Prepared {
    /// The configuration, completed by what the planner chose of the run's identity.
    pub config: RunConfig,
    /// The training.
    pub spec: TrainSpec,
    /// The programs.
    pub lowered: Lowered,
    /// Their plan.
    pub plan: PlannedPrograms,
    /// Changes the placement during the run, with `--grain adaptive`.
    pub adapter: Option<Adapter>,
    /// The scheduling of the tasks if no policy is set.
    pub scheduling: Scheduling,
    /// The pipeline in words, if there is one.
    pub pipeline: Option<String>,
    /// The predicted step, if one could be predicted.
    pub predicted: Option<Predicted>,
    /// The reasons for the choices.
    pub why: Vec<Reason>,
}

impl Prepared {
    /// Number of workers that run tasks: a plan may leave some without any.
    pub fn active_workers(&self) -> usize {
        let placement = &self.plan.placement;
        if self.config.placement.rule().is_some() {
            return placement.workers;
        }
        let groups = placement.programs.iter().flat_map(|program| &program.groups);
        groups.flat_map(|group| &group.workers).collect::<BTreeSet<_>>().len()
    }
}

/// A reason for the choice of a plan.
#[derive(Clone, Debug)]
pub enum Reason {
    /// Kernels were chosen by measuring them.
    Tuned {
        /// Number of measured ops.
        ops: usize,
        /// Duration of the measurements.
        seconds: f64,
        /// Number of kernels that differ from the default.
        changed: usize,
    },
    /// A grain was chosen.
    Grain {
        /// The grain.
        grain: Grain,
        /// From how many.
        of: usize,
        /// Its predicted step.
        predicted: Nanos,
        /// Its step in a race.
        ran: Option<Nanos>,
    },
    /// A plan over processing units was chosen.
    Units {
        /// The plan in words.
        plan: String,
        /// Number of plans that were measured.
        raced: usize,
        /// Its step in the race.
        ran: Option<Ran>,
    },
    /// Activations are recomputed to save memory.
    Recomputed {
        /// Which.
        what: String,
        /// The memory of the plan.
        peak: Bytes,
        /// Its memory without that.
        plain: Bytes,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Tuned { ops, seconds, changed } => {
                let s = if *ops == 1 { "" } else { "s" };
                write!(
                    f,
                    "tuned: {ops} op{s} measured in {seconds:.1} s, {changed} of the plan's \
                     kernels differ from the default"
                )
            }
            Reason::Grain { grain, of, predicted, ran } => {
                write!(
                    f,
                    "grain: {grain} on {} workers, the best of {of}: {predicted} per step predicted",
                    grain.workers
                )?;
                ran.map_or(Ok(()), |ran| write!(f, ", {ran} measured"))
            }
            Reason::Units { plan, raced, ran } => {
                write!(f, "plan: {plan}")?;
                let Some(Ran { seconds, joules, .. }) = ran else { return Ok(()) };
                let joules = Joules(*joules).rounded(2);
                write!(
                    f,
                    "; the best of {raced} measured plans: {:.3} ms, about {joules} modelled per step",
                    1e3 * seconds
                )
            }
            Reason::Recomputed { what, peak, plain } => {
                write!(f, "recomputed: {what}; {peak} of memory instead of {plain}")
            }
        }
    }
}

/// Chooses what will run, and predicts it.
///
/// # Errors
/// Where settings do not fit together or to the model, a file is wrong, or no plan fits.
pub fn prepare(config: &RunConfig, with: Prepare<'_>) -> Result<Prepared> {
    config.check()?;
    Preparing { config: config.clone(), with, why: Vec::new() }.prepare()
}

struct Preparing<'a> {
    config: RunConfig,
    with: Prepare<'a>,
    why: Vec<Reason>,
}

impl Preparing<'_> {
    fn prepare(mut self) -> Result<Prepared> {
        let identity = &self.config.identity;
        let sizes = self.with.samples.eval.iter().flat_map(|&n| identity.batch_sizes(n));
        let spec = TrainSpec {
            train: identity.batch_sizes(self.with.samples.train),
            eval: sizes.collect(),
            fusion: self.with.fusion,
            ..identity.train_spec()?
        };
        let file = match &self.config.session.plan {
            Some(PlanChoice::Auto) => return self.over_units(spec),
            Some(PlanChoice::File(path)) => Some(PlanFile::read(path)?),
            None => None,
        };
        let (workers, target) = match &file {
            Some(file) => {
                let isa = file.outline.isa;
                let workers = file.workers(self.config.placement.workers)?;
                (workers, Target { isa, ..identity.target() })
            }
            None => {
                let workers = self.config.placement.workers.unwrap_or_else(processors);
                (workers, identity.target())
            }
        };
        let mut base = Grain { target, ..Grain::for_workers(workers) };
        if identity.pipeline.is_some() {
            base = self.config.placement.workers_of_stages(base)?;
        }
        let pipelined = identity.pipelined(self.with.model, spec, &base, &self.with.known)?;
        let lowered = self.with.model.lower(&pipelined.spec)?;
        let (plan, adapter) = match &file {
            Some(file) => (self.of_file(file, &lowered, (base, &pipelined))?, None),
            None => self.planned(&lowered, (base, &pipelined))?,
        };
        let known = self.config.session.calibration.is_some();
        self.finish((pipelined, lowered), (plan, adapter), known)
    }

    /// The best plan over the units of the platform.
    fn over_units(mut self, spec: TrainSpec) -> Result<Prepared> {
        let RunConfig { identity, placement, session } = &self.config;
        if self.with.resumed.is_some() {
            let other = "resume: a run that goes on keeps its micro-batches";
            return Err(Error::exclusive("plan auto", other));
        }
        if identity.pipeline.is_some() {
            return Err(Error::exclusive("pipeline", "plan auto, which chooses stages"));
        }
        if placement.rule().is_some() {
            let other = "plan auto, whose plans place every task";
            return Err(Error::exclusive("scheduling", other));
        }
        let platform = self.with.platform.ok_or_else(|| Error::Unsupported {
            what: "planning for a machine that cannot be detected".to_owned(),
        })?;
        // Workers that are slowed down later are not slow yet.
        let throttles = session.throttle.iter().filter(|t| t.from_step == 0).cloned().collect();
        let engine = Native { throttles, ..Native::default() };
        let steps = self.config.steps(self.with.samples.train);
        let request = PlanRequest {
            model: self.with.model,
            spec: &spec,
            target: identity.target(),
            platform,
            objective: session.objective.unwrap_or(Objective::Energy),
            period: None,
            power_cap: None,
            allow_stale: identity.allow_stale.0,
            micro_batches: identity.micro_batches,
            limits: placement.limits(),
            engine: Some(&engine),
            steps,
            time: SEARCH,
        };
        request.deployment(&PerfModel::default()).check_runs()?;
        let units = platform.expand().units.len();
        if let Some(workers) = placement.workers.filter(|workers| *workers != units) {
            let expected = format!("{units} with plan auto, the units of the platform");
            return Err(Error::config("workers", expected, workers));
        }
        self.check_throttles(units)?;
        let known = self.with.known.clone();
        // A dynamic measurer is lent anew.
        let measurer = self.with.measurer.take();
        let planned = request.plan(known, measurer)?;
        let raced = planned.deployed.iter().filter(|run| run.ran.is_some()).count();
        let Some(run) = planned.deployed.into_iter().next() else {
            return Err(Error::platform("units", "a plan that runs here", "none"));
        };
        let plan = in_words(&planned.problem, &run);
        self.why.push(Reason::Units { plan, raced, ran: run.ran });
        self.with.known = planned.known;
        self.config.keep(&run.spec, run.flow.as_ref())?;
        let pipelined = Pipelined::of(run.spec, run.flow);
        self.finish((pipelined, run.lowered), (run.plan, None), true)
    }

    /// Checks, predicts, and puts everything together.
    fn finish(
        self,
        (pipelined, lowered): (Pipelined, Lowered),
        (plan, adapter): (PlannedPrograms, Option<Adapter>),
        is_predicted: bool,
    ) -> Result<Prepared> {
        self.check_scheduling(plan.placement.workers, &pipelined)?;
        plan.check_limited(&self.config.placement.limits())?;
        let scheduling = pipelined.scheduling();
        // The prediction is of one step at a time.
        let platform = self.with.platform.filter(|_| is_predicted);
        let predicted = match platform.filter(|_| scheduling != Scheduling::Staged) {
            Some(platform) => {
                let from = self.config.session.calibration.as_deref().map(Path::display);
                let from = from.map_or("steps of this machine".to_owned(), |from| from.to_string());
                let known = (&self.with.known, from.as_str());
                Some(predict(known, &plan, Some(platform))?)
            }
            None => None,
        };
        let (pipeline, why) = (pipelined.text(), self.why);
        let (config, spec) = (self.config, pipelined.spec);
        Ok(Prepared { config, spec, lowered, plan, adapter, scheduling, pipeline, predicted, why })
    }

    /// The plan of the grain or of the pipeline. A run that goes on keeps its kernels, whether
    /// they were measured or chosen by another version or on another machine.
    fn planned(
        &mut self,
        lowered: &Lowered,
        (base, pipelined): (Grain, &Pipelined),
    ) -> Result<(PlannedPrograms, Option<Adapter>)> {
        let programs = &lowered.programs;
        let numerics = match self.with.resumed.map(|run| directory::numerics(run, programs)) {
            Some(Ok(numerics)) => {
                available(numerics.isa).map_err(|found| {
                    let expected = format!("{}, which the run began with", numerics.isa);
                    Error::config("isa", expected, found)
                })?;
                numerics
            }
            Some(Err(error)) if self.config.identity.tune.0 => return Err(error),
            // Without measurements the kernels follow from the settings; checkpoints have their
            // hash.
            _ => self.numerics(&base, programs)?,
        };
        let limits = self.config.placement.limits();
        match pipelined.plan(&base, lowered, &numerics, &limits) {
            Some(fitted) => Ok((self.fitted(fitted?), None)),
            None => self.of_grain(base, programs, numerics),
        }
    }

    /// The numerics for a target, measured where that is set.
    fn numerics(&mut self, grain: &Grain, programs: &Programs) -> Result<Numerics> {
        let (Some(measurer), true) = (&mut self.with.measurer, self.config.identity.tune.0) else {
            return Ok(Numerics::default_for(programs, grain.target));
        };
        let (numerics, why) = tuned(grain, programs, &mut **measurer)?;
        self.why.push(why);
        Ok(numerics)
    }

    /// The plan of the grain that is set.
    fn of_grain(
        &mut self,
        base: Grain,
        programs: &Programs,
        numerics: Numerics,
    ) -> Result<(PlannedPrograms, Option<Adapter>)> {
        let placement = &self.config.placement;
        let limits = placement.limits();
        let adaptive = match &placement.grain {
            Some(GrainChoice::Auto) => false,
            Some(GrainChoice::Adaptive) => true,
            given => {
                let grain = match given {
                    Some(GrainChoice::Given(text)) => base.with(text)?,
                    _ => base,
                };
                let fitted = fit(&grain, programs, &numerics, limits)?;
                return Ok((self.fitted(fitted), None));
            }
        };
        let samples = self.config.identity.batch;
        let steps = self.config.steps(self.with.samples.train);
        let limit = limits.of_host();
        let request = GrainRequest { programs, numerics, base, samples, limit, steps };
        let measurer: Option<&mut dyn Measurer> = match &mut self.with.measurer {
            Some(measurer) => Some(&mut **measurer),
            None => None,
        };
        let choice = request.choose(self.with.known.clone(), measurer)?;
        let best = choice.best();
        self.why.push(Reason::Grain {
            grain: best.grain.clone(),
            of: choice.candidates.len(),
            predicted: best.step.step,
            ran: best.took(),
        });
        self.why.extend(recomputed(&best.plan, best.plain));
        if adaptive {
            let (plan, adapter) = choice.adapting(&request, Patience::default())?;
            return Ok((plan, Some(adapter)));
        }
        Ok((best.plan.clone(), None))
    }

    /// The plan of a file; programs that it lacks are planned as usual.
    fn of_file(
        &self,
        file: &PlanFile,
        lowered: &Lowered,
        (base, pipelined): (Grain, &Pipelined),
    ) -> Result<PlannedPrograms> {
        let programs = &lowered.programs;
        let numerics = Numerics::default_for(programs, base.target);
        let others = match pipelined.plan(&base, lowered, &numerics, &MemoryLimits::default()) {
            Some(fitted) => fitted?.plan,
            None => base.plan_with(programs, numerics)?,
        };
        let plan = file.plan(programs, &others)?;
        plan.check_limits(&self.config.placement.limits())?;
        Ok(plan)
    }

    /// A plan that fits, with what it recomputes as a reason.
    fn fitted(&mut self, Fitted { plan, plain }: Fitted) -> PlannedPrograms {
        self.why.extend(recomputed(&plan, plain));
        plan
    }

    /// Refuses policies where something else places tasks, and throttles of workers that there
    /// are not.
    fn check_scheduling(&self, workers: usize, pipelined: &Pipelined) -> Result<()> {
        let placement = &self.config.placement;
        let placed_by = match placement.rule() {
            Some(_) if pipelined.scheduling() == Scheduling::Staged => Some("pipeline"),
            Some(_) if placement.grain == Some(GrainChoice::Adaptive) => Some("grain adaptive"),
            _ => None,
        };
        if let Some(other) = placed_by {
            let other = format!("{other}, which places every task");
            return Err(Error::exclusive("scheduling", other));
        }
        self.check_throttles(workers)
    }

    fn check_throttles(&self, workers: usize) -> Result<()> {
        let mut throttles = self.config.session.throttle.iter();
        match throttles.find(|t| t.worker >= workers) {
            Some(t) => {
                Err(Error::config("throttle", format!("a worker below {workers}"), t.worker))
            }
            None => Ok(()),
        }
    }
}

impl PlacementSettings {
    /// The maximum memory of the plan and of its spaces.
    pub fn limits(&self) -> MemoryLimits {
        self.memory_limit.clone().unwrap_or_default()
    }
}

impl RunConfig {
    /// Keeps what a planner chose of the identity, so that the run can go on by another placement.
    fn keep(&mut self, spec: &TrainSpec, flow: Option<&Flow>) -> Result<()> {
        if spec.micro_batches > 1 {
            self.identity.micro_batches = Some(spec.micro_batches);
        }
        if let Some(Flow { stages, delays: Some(_), .. }) = flow {
            let first = |s| stages.layers(s).next().unwrap_or_default().to_owned();
            let starts: Vec<String> = (0..stages.count()).map(first).collect();
            self.set("pipeline", &["pipedream"])?;
            self.set("stages", &[&starts.join(",")])?;
            self.set("allow-stale", &["true"])?;
        }
        Ok(())
    }
}

/// The numerics of a grain's target with kernels chosen by measuring them, and how it went.
///
/// # Errors
/// Where measuring does not fit into memory: it takes about that of the largest ops.
pub fn tuned(
    grain: &Grain,
    programs: &Programs,
    measurer: &mut dyn Measurer,
) -> Result<(Numerics, Reason)> {
    let shipped = grain.plan(programs)?;
    if let Some(room) = headroom() {
        shipped.check_memory(room)?;
    }
    let begin = Instant::now();
    let (numerics, ops) = measurer.tune(programs, &grain.target);
    let pairs = numerics.programs.iter().zip(&shipped.numerics.programs);
    let nodes = pairs.flat_map(|(a, b)| a.variants.iter().zip(&b.variants));
    let changed = nodes.filter(|(a, b)| a != b).count();
    Ok((numerics, Reason::Tuned { ops, seconds: begin.elapsed().as_secs_f64(), changed }))
}

/// The recomputation of a plan, as a reason; none if it recomputes nothing.
fn recomputed(plan: &PlannedPrograms, plain: Bytes) -> Option<Reason> {
    let what = recomputed_in_words(plan)?;
    Some(Reason::Recomputed { what, peak: plan.memory.peak(), plain })
}

/// The recomputation of a plan in words; none if it recomputes nothing.
pub fn recomputed_in_words(plan: &PlannedPrograms) -> Option<String> {
    let of = |(i, program): (usize, &crate::graph::Program)| {
        let repeated = plan.recompute.repeated(plan.programs(), i);
        let mut ops: Vec<(&str, usize)> = Vec::new();
        for &id in &plan.recompute.programs[i] {
            let name = program.graph.node(id).op.name();
            match ops.iter_mut().find(|(op, _)| *op == name) {
                Some((_, count)) => *count += 1,
                None => ops.push((name, 1)),
            }
        }
        let ops: Vec<String> = ops.iter().map(|(op, count)| format!("{count} {op}")).collect();
        (repeated.nodes > 0).then(|| {
            let (ops, percent) = (ops.join(", "), repeated.percent());
            format!("{ops} run again in {}, {percent:.1} % more flops", program.name)
        })
    };
    let parts: Vec<String> = plan.programs().programs.iter().enumerate().filter_map(of).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The text of a plan, before its programs are known.
pub struct PlanFile {
    path: PathBuf,
    text: String,
    /// Workers and instruction set.
    pub outline: Outline,
}

impl PlanFile {
    /// Reads a plan as [`PlannedPrograms::to_text`] writes it.
    ///
    /// # Errors
    /// Where it is no plan, or one that this machine cannot run.
    pub fn read(path: &Path) -> Result<Self> {
        let text = disk::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let outline = Plan::outline(&text)
            .map_err(|error| Error::data(path, "plan", "the text of a plan", error))?;
        available(outline.isa).map_err(|found| {
            Error::data(path, "isa", "an instruction set of this machine", found)
        })?;
        threads(&outline.workers.to_string()).map_err(|Expected(expected)| {
            Error::data(path, "workers", expected, outline.workers)
        })?;
        Ok(Self { path: path.to_owned(), text, outline })
    }

    /// The number of workers that it is for; no other can be set.
    fn workers(&self, set: Option<usize>) -> Result<usize> {
        let own = self.outline.workers;
        match set.filter(|set| *set != own) {
            None => Ok(own),
            Some(set) => Err(Error::config("workers", format!("{own}, as the plan has"), set)),
        }
    }

    /// The plan; programs that it lacks are as in `others`.
    ///
    /// # Errors
    /// Where it is of other programs.
    pub fn plan(&self, programs: &Programs, others: &Plan) -> Result<PlannedPrograms> {
        PlannedPrograms::parse_some(&self.text, programs, others)
            .map_err(|error| in_file(&self.path, error))
    }
}

/// An error of a plan that was read from a file.
pub fn in_file(path: &Path, error: Error) -> Error {
    match error {
        Error::OtherPrograms { path: None, fault } => {
            Error::OtherPrograms { path: Some(path.to_owned()), fault }
        }
        Error::Plan(fault) => Error::Data { path: path.to_owned(), fault },
        error => error,
    }
}
