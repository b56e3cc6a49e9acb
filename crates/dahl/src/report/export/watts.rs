//! Power and traffic over time.

use super::super::calls::Calls;
use super::Watts;
use crate::meter::unit;
use crate::trace::Event;

/// Into how many parts the time of a trace is cut.
const BINS: usize = 1000;

/// Something over time: the ends of intervals and the mean in each.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What it is.
    pub name: String,
    /// The start of each interval in nanoseconds, with its value.
    pub points: Vec<(u64, f64)>,
}

/// Sums weights of spans by interval.
struct Bins {
    begin: u64,
    width: u64,
    sums: Vec<f64>,
}

impl Bins {
    fn new((begin, end): (u64, u64)) -> Self {
        let width = (end - begin).div_ceil(BINS as u64).max(1);
        let count = ((end - begin).div_ceil(width)).max(1) as usize;
        Self { begin, width, sums: vec![0.0; count] }
    }

    /// Adds a weight a nanosecond over a span.
    fn add(&mut self, from: u64, to: u64, weight: f64) {
        let mut at = from.max(self.begin);
        while at < to {
            let bin = ((at - self.begin) / self.width) as usize;
            let end = (self.begin + (bin as u64 + 1) * self.width).min(to);
            let Some(sum) = self.sums.get_mut(bin) else { return };
            *sum += (end - at) as f64 * weight;
            at = end;
        }
    }

    fn curve(&self, name: impl Into<String>, base: f64) -> Curve {
        let point = |(i, sum): (usize, &f64)| {
            (self.begin + i as u64 * self.width, base + sum / self.width as f64)
        };
        Curve { name: name.into(), points: self.sums.iter().enumerate().map(point).collect() }
    }
}

/// How many workers ran codelets.
pub fn busy_curve(calls: &Calls<'_>) -> Curve {
    let mut bins = Bins::new(calls.window);
    calls.all.iter().for_each(|call| bins.add(call.from, call.to, 1.0));
    bins.curve("busy workers", 0.0)
}

/// Bytes a second that calls read and wrote, and those that were moved between memories.
pub fn byte_curve(calls: &Calls<'_>) -> Vec<Curve> {
    let mut touched = Bins::new(calls.window);
    for call in &calls.all {
        let bytes = calls.cells[call.cell as usize].bytes as f64;
        touched.add(call.from, call.to, 1e9 * bytes / call.nanos().max(1) as f64);
    }
    let mut curves = vec![touched.curve("bytes/s read and written", 0.0)];
    let mut moved = Bins::new(calls.window);
    let mut any = false;
    for event in &calls.trace.events {
        if let Event::Move { bytes, from, to, .. } = *event {
            moved.add(from, to, 1e9 * bytes as f64 / (to - from).max(1) as f64);
            any = true;
        }
    }
    curves.extend(any.then(|| moved.curve("bytes/s moved", 0.0)));
    curves
}

/// Watts: modelled from a platform, and measured.
pub fn watt_curves(calls: &Calls<'_>, watts: Watts<'_>) -> Vec<Curve> {
    let mut curves = Vec::new();
    if let Some((platform, node)) = watts.platform.and_then(|p| Some((p, p.nodes.first()?))) {
        let mut bins = Bins::new(calls.window);
        for call in &calls.all {
            if let Some(unit) = unit(platform, call.worker as usize) {
                let more = unit.busy_watts.value - unit.idle_watts.value;
                bins.add(call.from, call.to, more.max(0.0));
            }
        }
        for event in &calls.trace.events {
            if let Event::Wait { worker, from, to, parked: false } = *event
                && let Some(unit) = unit(platform, worker as usize)
            {
                let more = unit.spinning_watts.value - unit.idle_watts.value;
                bins.add(from, to, more.max(0.0));
            }
        }
        let idle: f64 = node.units.iter().map(|u| u.count as f64 * u.idle_watts.value).sum();
        curves.push(bins.curve("watts, modelled", node.base_watts.value + idle));
    }
    if let Some((power, begin)) = watts.measured {
        for (d, name) in power.names.iter().enumerate() {
            let points = power.samples.iter().filter_map(|(at, watts)| {
                let at = u64::try_from(*at as i64 + begin).ok()?;
                Some((at, (*watts.get(d)?)?))
            });
            let points: Vec<(u64, f64)> = points.collect();
            if !points.is_empty() {
                curves.push(Curve { name: format!("watts, measured: {name}"), points });
            }
        }
    }
    curves
}
