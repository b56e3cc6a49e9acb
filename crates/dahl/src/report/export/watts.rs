//! Power and traffic over time.

use super::super::calls::Calls;
use super::Watts;
use crate::meter::{Power, unit};
use crate::trace::Event;

/// Into how many parts the time of a trace is cut.
const BINS: usize = 1000;

/// Something over time: the starts of intervals and the mean in each.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// The start of each interval in nanoseconds, with its value, which holds until the next;
    /// `None` where there is none.
    pub points: Vec<(u64, Option<f64>)>,
}

/// Sums weights of spans by interval; the last may be shorter.
struct Bins {
    begin: u64,
    end: u64,
    width: u64,
    sums: Vec<f64>,
}

impl Bins {
    fn new((begin, end): (u64, u64)) -> Self {
        let width = (end - begin).div_ceil(BINS as u64).max(1);
        let count = ((end - begin).div_ceil(width)).max(1) as usize;
        Self { begin, end, width, sums: vec![0.0; count] }
    }

    /// Adds a weight a nanosecond over a span.
    fn add(&mut self, from: u64, to: u64, weight: f64) {
        let mut at = from.max(self.begin);
        while at < to {
            let bin = ((at - self.begin) / self.width) as usize;
            // The last bin may reach beyond the last nanosecond that there is.
            let end =
                (bin as u64 + 1).saturating_mul(self.width).saturating_add(self.begin).min(to);
            let Some(sum) = self.sums.get_mut(bin) else { return };
            *sum += (end - at) as f64 * weight;
            at = end;
        }
    }

    fn curve(&self, name: impl Into<String>, base: f64) -> Curve {
        let point = |(i, sum): (usize, &f64)| {
            let from = self.begin + i as u64 * self.width;
            let width = self.width.min(self.end - from).max(1);
            (from, Some(base + sum / width as f64))
        };
        Curve { name: name.into(), points: self.sums.iter().enumerate().map(point).collect() }
    }
}

/// Number of workers that ran codelets.
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
        let name = format!("watts, modelled from {:?}", platform.name);
        curves.push(bins.curve(name, node.base_watts.value + idle));
    }
    if let Some((power, begin)) = watts.measured {
        for (d, name) in power.names.iter().enumerate() {
            let points = measured(power, d, begin);
            if points.iter().any(|(_, watts)| watts.is_some()) {
                curves.push(Curve { name: format!("watts, measured: {name}"), points });
            }
        }
    }
    curves
}

/// The watts of a domain on the trace's clock, which shows `begin` when meters were read
/// first.
fn measured(power: &Power, domain: usize, begin: i64) -> Vec<(u64, Option<f64>)> {
    let mut points = Vec::new();
    let mut end = None;
    for sample in &power.samples {
        let at = |nanos: u64| nanos.saturating_add_signed(begin);
        // What was before the trace's clock began is of no interest.
        if at(sample.to) == 0 {
            continue;
        }
        points.push((at(sample.from), sample.watts.get(domain).copied().flatten()));
        end = Some(at(sample.to));
    }
    points.extend(end.map(|end| (end, None)));
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Sample;

    #[test]
    fn bins_reach_to_the_last_nanosecond() {
        let mut bins = Bins::new((5, u64::MAX));
        bins.add(5, u64::MAX, 2.0);
        let curve = bins.curve("busy", 1.0);
        assert_eq!((curve.points.len(), curve.points[0].0), (BINS, 5));
        assert!(curve.points.iter().all(|(_, mean)| mean.is_some_and(|x| (x - 3.0).abs() < 1e-9)));
    }

    #[test]
    fn measured_watts_stand_where_they_were_taken() {
        let sample = |from: u64, watts| Sample { from, to: from + 100, watts: vec![watts] };
        let samples = vec![
            sample(0, Some(9.0)),
            sample(100, Some(10.0)),
            sample(200, None),
            sample(300, Some(30.0)),
        ];
        let power = Power { names: vec!["package-0".to_owned()], samples };
        // The trace's clock began 150 ns after the meters': the interval from 100 to 200 is
        // that up to 50.
        let found = measured(&power, 0, -150);
        let expected = [(0, Some(10.0)), (50, None), (150, Some(30.0)), (250, None)];
        assert_eq!(found, expected);
    }

    #[test]
    fn measured_watts_of_a_late_clock_stand_at_its_end() {
        let sample = Sample { from: i64::MAX as u64, to: u64::MAX, watts: vec![Some(9.0)] };
        let power = Power { names: vec!["package-0".to_owned()], samples: vec![sample] };
        let expected = [(i64::MAX as u64 + 1000, Some(9.0)), (u64::MAX, None)];
        assert_eq!(measured(&power, 0, 1000), expected);
    }
}
