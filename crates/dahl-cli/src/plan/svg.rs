//! Time and energy of the plans of a front, drawn.

use super::compare::{in_short, semantics};
use dahl::planner::pipeline::{Problem, Solution};
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
    crate::output::escaped(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The front as a step curve; the best plan is marked, hovering tells the stages.
pub(super) fn draw(problem: &Problem, found: &Solution) -> String {
    let plans = found.front.plans();
    let range = |of: fn(&dahl::planner::pipeline::Assignment) -> f64| {
        let low = plans.iter().map(of).fold(f64::INFINITY, f64::min);
        let high = plans.iter().map(of).fold(0.0, f64::max);
        let margin = (0.06 * (high - low)).max(0.02 * high).max(1e-12);
        ((low - margin).max(0.0), high + margin)
    };
    let ((t0, t1), (e0, e1)) = (range(|plan| plan.period_s), range(|plan| plan.energy_j));
    let x = |t: f64| LEFT + (t - t0) / (t1 - t0) * (WIDTH - LEFT - RIGHT);
    let y = |e: f64| HEIGHT - BOTTOM - (e - e0) / (e1 - e0) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <desc>Plans: {}</desc>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n",
        escape(&found.space())
    );
    let whole = if found.whole { "" } else { ", as far as found" };
    // Some points may have weights of another age than the pipelines.
    let first = plans.first().map(|plan| semantics(problem, plan));
    let mixed = plans.iter().any(|plan| Some(semantics(problem, plan)) != first);
    let of = match (first, mixed) {
        (_, true) => "synchronous and stale",
        (one, false) => one.unwrap_or(problem.semantics.name()),
    };
    let title = format!("Time and energy of a batch ({of} weights{whole})");
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"26\" font-size=\"15\" fill=\"#222222\">{}</text>",
        escape(&title)
    );
    let mut count = format!("{} plans: none is both faster and cheaper than another", plans.len());
    if mixed {
        count += "; green: synchronous";
    }
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"44\" fill=\"#666666\">{}</text>", escape(&count));
    for t in ticks(t0, t1) {
        let at = x(t);
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{top}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#e4e4e4\"/>"
        );
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#444444\">{}</text>",
            bottom + 18.0,
            label(t)
        );
    }
    for e in ticks(e0, e1) {
        let at = y(e);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#e4e4e4\"/>",
            WIDTH - RIGHT
        );
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444444\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            label(e)
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" fill=\"#222222\">seconds a batch</text>",
        HEIGHT - 16.0
    );
    let half = (TOP + HEIGHT - BOTTOM) / 2.0;
    let _ = writeln!(
        svg,
        "<text transform=\"translate(20 {half}) rotate(-90)\" text-anchor=\"middle\" fill=\"#222222\">joules per batch</text>"
    );
    if let Some(cap) = problem.period_cap.filter(|cap| (t0..=t1).contains(cap)) {
        let at = x(cap);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{}\" stroke=\"#888888\" stroke-dasharray=\"4 3\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#666666\">at most {} s</text>",
            HEIGHT - BOTTOM,
            at + 6.0,
            TOP + 12.0,
            label(cap)
        );
    }
    if let Some(first) = plans.first() {
        let mut path = format!("M{:.1} {TOP} V{:.1}", x(first.period_s), y(first.energy_j));
        plans[1..].iter().for_each(|plan| {
            let _ = write!(path, " H{:.1} V{:.1}", x(plan.period_s), y(plan.energy_j));
        });
        let _ = writeln!(
            svg,
            "<path d=\"{path} H{}\" fill=\"none\" stroke=\"#8fb3d9\" stroke-width=\"1.5\"/>",
            WIDTH - RIGHT
        );
    }
    for plan in plans {
        let best = found.best.as_ref() == Some(plan);
        let other = mixed && semantics(problem, plan) != problem.semantics.name();
        let fill = if other { "#6b9e3f" } else { "#2b6cb0" };
        let (radius, fill) = if best { (6, "#c8441b") } else { (3, fill) };
        let told = format!(
            "{:.6} s, {:.4} J, {}: {}",
            plan.period_s,
            plan.energy_j,
            semantics(problem, plan),
            in_short(problem, plan)
        );
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{fill}\"><title>{}</title></circle>",
            x(plan.period_s),
            y(plan.energy_j),
            escape(&told)
        );
        if best {
            let right = x(plan.period_s) > WIDTH * 0.6;
            let (anchor, shift) = if right { ("end", -10.0) } else { ("start", 10.0) };
            let optimal = found.gap(problem) == Some(0.0);
            let said = format!(
                "{} for {}: {} s, {} J",
                if optimal { "optimal" } else { "best found" },
                problem.objective.name(),
                label(plan.period_s),
                label(plan.energy_j)
            );
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"#c8441b\">{}</text>",
                x(plan.period_s) + shift,
                y(plan.energy_j) - 10.0,
                escape(&said)
            );
        }
    }
    svg + "</svg>\n"
}
