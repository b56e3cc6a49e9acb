//! Time and energy of the plans of a front, drawn.

use crate::error::one_line;
use crate::planner::pipeline::{Assignment, Problem, Solution, in_short, semantics_of};
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 60.0;

/// Numbers about as far apart as five or six of them fit.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|x| x * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(power);
    let first = (low / step).ceil() as i64;
    (first..).map(|i| i as f64 * step).take_while(|x| *x <= high + step * 1e-9).take(20).collect()
}

fn label(x: f64) -> String {
    let text = format!("{x:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A text in XML, which has no control characters.
fn escape(text: &str) -> String {
    one_line(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Where a plan is in the picture.
struct Axes {
    period: (f64, f64),
    energy: (f64, f64),
}

impl Axes {
    fn of(plans: &[Assignment]) -> Self {
        let range = |of: fn(&Assignment) -> f64| {
            let low = plans.iter().map(of).fold(f64::INFINITY, f64::min);
            let high = plans.iter().map(of).fold(0.0, f64::max);
            let margin = (0.06 * (high - low)).max(0.02 * high).max(1e-12);
            ((low - margin).max(0.0), high + margin)
        };
        Self { period: range(|plan| plan.period_s), energy: range(|plan| plan.energy_j) }
    }

    fn x(&self, seconds: f64) -> f64 {
        let (low, high) = self.period;
        LEFT + (seconds - low) / (high - low) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, joules: f64) -> f64 {
        let (low, high) = self.energy;
        HEIGHT - BOTTOM - (joules - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    }

    /// The grid with its numbers, and the names of the axes.
    fn draw(&self, svg: &mut String) {
        for t in ticks(self.period.0, self.period.1) {
            let (at, bottom) = (self.x(t), HEIGHT - BOTTOM);
            line(svg, [at, TOP, at, bottom], "stroke=\"#e4e4e4\"");
            text(svg, [at, bottom + 18.0], "text-anchor=\"middle\" fill=\"#444444\"", &label(t));
        }
        for e in ticks(self.energy.0, self.energy.1) {
            let at = self.y(e);
            line(svg, [LEFT, at, WIDTH - RIGHT, at], "stroke=\"#e4e4e4\"");
            text(svg, [LEFT - 8.0, at + 4.0], "text-anchor=\"end\" fill=\"#444444\"", &label(e));
        }
        let middle = [(LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 16.0];
        text(svg, middle, "text-anchor=\"middle\" fill=\"#222222\"", "seconds per batch");
        let half = (TOP + HEIGHT - BOTTOM) / 2.0;
        let turned = format!(
            "transform=\"translate(20 {half}) rotate(-90)\" text-anchor=\"middle\" fill=\"#222222\""
        );
        text(svg, [0.0, 0.0], &turned, "joules per batch");
    }
}

fn text(svg: &mut String, [x, y]: [f64; 2], style: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>", escape(text));
}

fn line(svg: &mut String, [x1, y1, x2, y2]: [f64; 4], style: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"
    );
}

/// The Pareto front as a step curve in SVG. The best plan is marked; hovering shows the stages.
pub fn front_svg(problem: &Problem, found: &Solution) -> String {
    let plans = found.front.plans();
    let axes = Axes::of(plans);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <desc>Plans: {}</desc>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n",
        escape(&found.space())
    );
    let whole = if found.whole { "" } else { ", incomplete" };
    // Some points may have weights of another age than the pipelines.
    let first = plans.first().map(|plan| semantics_of(problem, plan));
    let mixed = plans.iter().any(|plan| Some(semantics_of(problem, plan)) != first);
    let of = match (first, mixed) {
        (_, true) => "synchronous and stale",
        (one, false) => one.unwrap_or(problem.semantics.name()),
    };
    let title = format!("Time and energy per batch ({of} weights{whole})");
    text(&mut svg, [LEFT, 26.0], "font-size=\"15\" fill=\"#222222\"", &title);
    let green = if mixed { "; green: synchronous" } else { "" };
    let count = format!("Pareto front of {} plans{green}", plans.len());
    text(&mut svg, [LEFT, 44.0], "fill=\"#666666\"", &count);
    axes.draw(&mut svg);
    if let Some(cap) =
        problem.period_cap.filter(|cap| (axes.period.0..=axes.period.1).contains(cap))
    {
        let at = axes.x(cap);
        let dashed = "stroke=\"#888888\" stroke-dasharray=\"4 3\"";
        line(&mut svg, [at, TOP, at, HEIGHT - BOTTOM], dashed);
        let most = format!("at most {} s", label(cap));
        text(&mut svg, [at + 6.0, TOP + 12.0], "fill=\"#666666\"", &most);
    }
    if let Some(first) = plans.first() {
        let mut path =
            format!("M{:.1} {TOP} V{:.1}", axes.x(first.period_s), axes.y(first.energy_j));
        plans[1..].iter().for_each(|plan| {
            let _ = write!(path, " H{:.1} V{:.1}", axes.x(plan.period_s), axes.y(plan.energy_j));
        });
        let right = WIDTH - RIGHT;
        let style = "fill=\"none\" stroke=\"#8fb3d9\" stroke-width=\"1.5\"";
        let _ = writeln!(svg, "<path d=\"{path} H{right}\" {style}/>");
    }
    for plan in plans {
        let other = mixed && semantics_of(problem, plan) != problem.semantics.name();
        point(&mut svg, (problem, found), plan, (&axes, if other { "#6b9e3f" } else { "#2b6cb0" }));
    }
    svg + "</svg>\n"
}

/// A plan of the front.
fn point(
    svg: &mut String,
    (problem, found): (&Problem, &Solution),
    plan: &Assignment,
    (axes, fill): (&Axes, &str),
) {
    let best = found.best.as_ref() == Some(plan);
    let [x, y] = [axes.x(plan.period_s), axes.y(plan.energy_j)];
    let (radius, fill) = if best { (6, "#c8441b") } else { (3, fill) };
    let (semantics, stages) = (semantics_of(problem, plan), in_short(problem, plan));
    let title = format!("{:.6} s, {:.4} J, {semantics}: {stages}", plan.period_s, plan.energy_j);
    let _ = writeln!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\"><title>{}</title></circle>",
        escape(&title)
    );
    if best {
        let right = x > WIDTH * 0.6;
        let (anchor, shift) = if right { ("end", -10.0) } else { ("start", 10.0) };
        let status = if found.gap(problem) == Some(0.0) { "optimal" } else { "best found" };
        let [period, energy] = [plan.period_s, plan.energy_j].map(label);
        let caption = format!("{status} for {}: {period} s, {energy} J", problem.objective.name());
        let style = format!("text-anchor=\"{anchor}\" fill=\"#c8441b\"");
        text(svg, [x + shift, y - 10.0], &style, &caption);
    }
}
