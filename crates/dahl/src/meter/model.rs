//! The energy of a run as the watts of a platform say.
//!
//! Base watts of the node and idle watts of all its units for the whole time, what units
//! take more while they compute or look for work for as long as workers did so.
//!
//! The model ignores that watts depend on what is computed, clock frequencies and heat,
//! memory, other programs, and units of other nodes. Its interval is that of the watts.

use crate::platform::{Figure, Origin, Platform, Unit};
use crate::trace::{Activity, WorkerTime};
use crate::units::Joules;
use serde::{Deserialize, Serialize};

/// A modelled amount of energy and what it lies in, in joules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The most likely value.
    pub value: f64,
    /// The least that it may be.
    pub low: f64,
    /// The most that it may be.
    pub high: f64,
}

impl Part {
    fn add(&mut self, watts: [f64; 3], seconds: f64) {
        self.value += watts[0] * seconds;
        self.low += watts[1] * seconds;
        self.high += watts[2] * seconds;
    }
}

impl std::ops::Add for Part {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            low: self.low + other.low,
            high: self.high + other.high,
        }
    }
}

impl std::iter::Sum for Part {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::default(), |a, b| a + b)
    }
}

/// The energy of a run by cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Modelled {
    /// The platform.
    pub platform: String,
    /// The least sure of its watts: `measured`, `data sheet` or `guess`.
    pub watts: String,
    /// The time, in seconds.
    pub seconds: f64,
    /// The node without its units.
    pub base: Part,
    /// All units, as if they did nothing.
    pub idle: Part,
    /// Energy above idle of spinning units.
    pub spinning: Part,
    /// Energy above idle of computing units, by worker.
    pub busy: Vec<Part>,
}

impl Modelled {
    /// The sum.
    pub fn total(&self) -> Part {
        self.base + self.idle + self.spinning + self.busy.iter().copied().sum()
    }

    /// The most likely value of the sum.
    pub fn joules(&self) -> Joules {
        Joules(self.total().value)
    }
}

fn span(figure: Figure) -> [f64; 3] {
    [figure.value, figure.low, figure.high]
}

/// Watts above idle, at least 0.
fn beyond(figure: Figure, idle: Figure) -> [f64; 3] {
    let watts = [figure.value - idle.value, figure.low - idle.high, figure.high - idle.low];
    watts.map(|watts| watts.max(0.0))
}

/// The watts of this platform's first node, which workers run on: the unit of each
/// worker, in the order of the file; more workers than units share the last.
pub fn unit(platform: &Platform, worker: usize) -> Option<&Unit> {
    let units = &platform.nodes.first()?.units;
    let mut before = 0;
    for unit in units {
        before += unit.count;
        if worker < before {
            return Some(unit);
        }
    }
    units.last()
}

/// The energy of a run on the first node of a platform; `None` if there is no node.
pub fn model(platform: &Platform, activity: &Activity) -> Option<Modelled> {
    model_of(platform, activity, &[])
}

/// The same with units off that are not used; those that nothing is said of are on.
pub fn model_of(platform: &Platform, activity: &Activity, used: &[bool]) -> Option<Modelled> {
    let node = platform.nodes.first()?;
    let seconds = activity.elapsed as f64 * 1e-9;
    let mut result = Modelled {
        platform: platform.name.clone(),
        watts: String::new(),
        seconds,
        base: Part::default(),
        idle: Part::default(),
        spinning: Part::default(),
        busy: Vec::new(),
    };
    let mut least = node.base_watts.from;
    let mut seen = |from: Origin| {
        let sure = |from| Origin::ALL.iter().position(|o| *o == from);
        if sure(from) > sure(least) {
            least = from;
        }
    };
    result.base.add(span(node.base_watts), seconds);
    let mut before = 0;
    for unit in &node.units {
        let units = before..before + unit.count;
        before += unit.count;
        let on = units.filter(|i| used.get(*i).copied().unwrap_or(true)).count();
        result.idle.add(span(unit.idle_watts), seconds * on as f64);
        seen(unit.idle_watts.from);
    }
    for (worker, time) in activity.workers.iter().enumerate() {
        if used.get(worker) == Some(&false) {
            result.busy.push(Part::default());
            continue;
        }
        let WorkerTime { busy, spinning, .. } = *time;
        let unit = unit(platform, worker)?;
        seen(unit.busy_watts.from);
        result.spinning.add(beyond(unit.spinning_watts, unit.idle_watts), spinning as f64 * 1e-9);
        let mut own = Part::default();
        own.add(beyond(unit.busy_watts, unit.idle_watts), busy as f64 * 1e-9);
        result.busy.push(own);
    }
    result.watts = least.name().to_owned();
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::Node;

    fn watts(value: f64, from: Origin) -> Figure {
        Figure { value, low: value - 1.0, high: value + 1.0, from }
    }

    #[test]
    fn base_idle_and_busy_are_apart() {
        let unit = |name: &str, count, busy| Unit {
            name: name.to_owned(),
            kind: "cpu-avx2".to_owned(),
            count,
            memory: 0,
            speed: Figure::exact(1.0, Origin::Guess),
            flops: None,
            busy_watts: watts(busy, Origin::Measured),
            spinning_watts: watts(5.0, Origin::Measured),
            idle_watts: watts(2.0, Origin::DataSheet),
            price_per_hour: 0.0,
            states: Vec::new(),
        };
        let node = Node {
            name: "node".to_owned(),
            count: 1,
            base_watts: watts(30.0, Origin::Measured),
            price_per_hour: 0.0,
            price_per_kwh: None,
            sleep: None,
            memories: Vec::new(),
            units: vec![unit("fast", 1, 12.0), unit("slow", 3, 7.0)],
            links: Vec::new(),
        };
        let platform = Platform { name: "p".to_owned(), nodes: vec![node], ..Platform::default() };
        let time = |busy, spinning| WorkerTime { busy, spinning, parked: 0 };
        let second = 1_000_000_000;
        let workers = vec![time(8 * second, second), time(4 * second, 0)];
        let activity = Activity { elapsed: 10 * second, workers };
        let found = model(&platform, &activity).unwrap();
        // 30 W for 10 s; four units of 2 W; 10 W more for 8 s, 5 W more for 4 s; 3 W more
        // for 1 s.
        assert_eq!(found.base, Part { value: 300.0, low: 290.0, high: 310.0 });
        assert_eq!(found.idle.value, 80.0);
        assert_eq!(found.busy[0], Part { value: 80.0, low: 64.0, high: 96.0 });
        assert_eq!(found.busy[1].value, 20.0);
        assert_eq!(found.spinning.value, 3.0);
        assert_eq!(found.joules(), Joules(483.0));
        assert_eq!(found.watts, "data sheet", "the least sure");
        let used = [true, true, false, true];
        let found = model_of(&platform, &activity, &used);
        assert_eq!(found.unwrap().idle.value, 60.0, "one of four units is off");
        assert!(model(&Platform::default(), &Activity::default()).is_none());
    }
}
