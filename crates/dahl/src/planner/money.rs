//! Plans for the least money: rent of machines and units, energy by the price where it is used, and
//! transfers.
//!
//! Money has the form of energy: what a plan costs per second while its units and machines are in use,
//! and what computing and moving bytes cost beyond that. So the platform with prices in the place of
//! watts is a platform, and the plan with the least 'energy' on it is the one with the least money.
//! The planner, its bounds and its certificates need no other formula.

use crate::platform::{Figure, Node, Platform};

/// The parts of a bill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bill {
    /// All parts.
    Whole,
    /// Machines and units by the hour.
    Rent,
    /// Energy.
    Energy,
    /// Bytes over links that have a price.
    Transfers,
}

/// Joules of a platform in money are millionths of the currency, so that numbers are of the size of
/// watts.
pub const PARTS: f64 = 1e6;

/// Whether a platform has a price of its own.
pub fn has_prices(platform: &Platform) -> bool {
    let of_node = |node: &Node| {
        node.price_per_hour > 0.0
            || node.price_per_kwh.is_some()
            || node.units.iter().any(|unit| unit.price_per_hour > 0.0)
            || node.links.iter().any(|link| link.price_per_byte > 0.0)
    };
    platform.nodes.iter().any(of_node)
        || platform.links.iter().any(|link| link.price_per_byte > 0.0)
}

/// The platform with money, in [`PARTS`], in the place of joules. A kilowatt-hour has the price of the
/// node, else `per_kwh`, as on links between nodes.
pub fn in_money(platform: &Platform, per_kwh: f64, bill: Bill) -> Platform {
    let has = |part: Bill| bill == Bill::Whole || bill == part;
    let energy = |per_kwh: f64| if has(Bill::Energy) { PARTS * per_kwh / 3.6e6 } else { 0.0 };
    let hour = |price: f64| if has(Bill::Rent) { PARTS * price / 3600.0 } else { 0.0 };
    let byte = |price: f64| if has(Bill::Transfers) { PARTS * price } else { 0.0 };
    let scaled = |figure: &mut Figure, times: f64, plus: f64| {
        for x in [&mut figure.value, &mut figure.low, &mut figure.high] {
            *x = *x * times + plus;
        }
    };
    let mut priced = platform.clone();
    for node in &mut priced.nodes {
        let joule = energy(node.price_per_kwh.unwrap_or(per_kwh));
        scaled(&mut node.base_watts, joule, hour(node.price_per_hour));
        for unit in &mut node.units {
            // Rent is paid whether a unit computes or waits.
            let rent = hour(unit.price_per_hour);
            let watts = [&mut unit.busy_watts, &mut unit.spinning_watts, &mut unit.idle_watts];
            watts.into_iter().for_each(|watts| scaled(watts, joule, rent));
            unit.states.iter_mut().for_each(|state| scaled(&mut state.busy_watts, joule, rent));
        }
        for link in &mut node.links {
            scaled(&mut link.joules_per_byte, joule, byte(link.price_per_byte));
        }
    }
    for link in &mut priced.links {
        scaled(&mut link.joules_per_byte, energy(per_kwh), byte(link.price_per_byte));
    }
    priced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::baselines::tests::profile;
    use crate::planner::pipeline::{
        Limits, Objective, Problem, Semantics, Watts, cost_of, machinery, solve,
    };
    use std::path::Path;

    /// Two zones: the machines of one are fast and dear, those of the other slow and cheap.
    fn zones(dear: f64, per_byte: f64) -> Platform {
        let node = |name: &str, speed: f64, price: f64, kwh: f64| {
            format!(
                "[[node]]\nname = {name:?}\ncount = 2\nbase_watts = 50\nprice_per_hour = {price:?}\n\
                 price_per_kwh = {kwh:?}\nmemory = [{{ name = \"ram\", bytes = \"1 TiB\", bandwidth = 1e12 }}]\n\
                 [[node.unit]]\nname = \"gpu\"\nkind = {name:?}\nspeed = {speed:?}\nbusy_watts = 300\n\
                 spinning_watts = 300\nidle_watts = 30\nprice_per_hour = 0.1\n"
            )
        };
        let text = format!(
            "dahl_platform = 1\nname = \"zones\"\nlink = [{{ name = \"wan\", connects = [\"east\", \"west\"], \
             bandwidth = 1e9, latency = 0, joules_per_byte = 1e-8, price_per_byte = {per_byte:?}, shared = \"ends\" }}]\n{}{}",
            node("east", 1.0, dear, 0.3),
            node("west", 0.4, 0.5, 0.1)
        );
        Platform::parse(Path::new("zones.toml"), &text).unwrap()
    }

    fn problem(platform: &Platform) -> Problem {
        let machines = machinery(platform, Watts::Likely).unwrap();
        Problem {
            layers: profile("alexnet.graph.txt").layers(&machines.slowdowns),
            units: machines.units,
            nodes: machines.nodes,
            scopes: machines.scopes,
            semantics: Semantics::Stale,
            objective: Objective::Energy,
            period_cap: None,
            power_cap: None,
            samples: None,
        }
    }

    fn best(platform: &Platform) -> (Problem, crate::planner::pipeline::Assignment) {
        let problem = problem(&in_money(platform, 0.25, Bill::Whole));
        let found = solve(&problem, &Limits::default()).unwrap();
        assert_eq!(found.gap(&problem), Some(0.0));
        (problem, found.best.unwrap())
    }

    #[test]
    fn the_parts_of_a_bill_are_the_whole() {
        let platform = zones(2.0, 8e-11);
        let (whole, plan) = best(&platform);
        let part = |bill| cost_of(&problem(&in_money(&platform, 0.25, bill)), &plan)[1];
        let parts = [Bill::Rent, Bill::Energy, Bill::Transfers].map(part);
        assert!((parts.iter().sum::<f64>() / cost_of(&whole, &plan)[1] - 1.0).abs() < 1e-12);
        // One stage on one machine: its rent and its watts by hand.
        let [stage] = &plan.stages[..] else { panic!("{plan:?}") };
        let [hour, kwh] = [[2.1, 0.3], [0.6, 0.1]][stage.unit];
        assert!((parts[0] / (PARTS * hour / 3600.0 * plan.period_s) - 1.0).abs() < 1e-12);
        let joules = (300.0 + 50.0) * plan.period_s;
        assert!((parts[1] / (PARTS * kwh / 3.6e6 * joules) - 1.0).abs() < 1e-9, "{parts:?}");
        assert_eq!(parts[2], 0.0);
    }

    #[test]
    fn prices_decide_where_a_plan_runs() {
        let unit = |platform: &Platform| {
            let (problem, plan) = best(platform);
            problem.units[plan.stages[0].unit].name.clone()
        };
        // East is 2.5 times as fast.
        assert_eq!(unit(&zones(1.0, 0.0)), "east/gpu");
        assert_eq!(unit(&zones(5.0, 0.0)), "west/gpu");
        assert!(has_prices(&zones(1.0, 0.0)));
    }
}
