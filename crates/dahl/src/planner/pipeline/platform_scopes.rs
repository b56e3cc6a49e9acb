//! The ways of a platform: what transfers between its units cost, by the units that a plan uses.
//!
//! A plan pays for each input the narrowest way between any two units that it uses, and for a sum of
//! gradients the narrowest way between units of the type. So that this does not depend on units that
//! stay off, there is a *scope* for each set of units that are near to each other: one machine, or
//! machines whose ways are no narrower than some pair's. A plan is in all scopes that have its
//! units, and pays the ways of the best.

use crate::error::Result;
use crate::platform::{Expanded, MemoryId, NodeId, Route, Sharing};
use dahl_certify::{Medium, Reach, Scope, UnitType, Way};

/// With more scopes, bandwidths alone tell them apart; then those with the fewest units are left out.
const MOST_SCOPES: usize = 256;
/// Of more sets of units that are near to each other, some are left out.
const MOST_CLIQUES: usize = 500;
/// With more different figures of ways, only their bandwidths tell scopes apart.
const MOST_LIMITS: usize = 10_000;

/// What a transfer between two units costs, each figure by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Price {
    seconds_per_byte: f64,
    joules_per_byte: f64,
    latency_s: f64,
    sharing: Shared,
    /// Bytes per second in one direction.
    bandwidth: f64,
}

/// What transfers share, from nothing to everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shared {
    Nothing,
    Ends,
    Bus,
}

impl Price {
    const FREE: Self = Self {
        seconds_per_byte: 0.0,
        joules_per_byte: 0.0,
        latency_s: 0.0,
        sharing: Shared::Nothing,
        bandwidth: f64::INFINITY,
    };

    fn of(route: &Route) -> Self {
        Self {
            seconds_per_byte: route.round_trip_per_byte / 2.0,
            joules_per_byte: route.joules_per_byte,
            latency_s: route.latency,
            sharing: match route.narrowest {
                Sharing::Nobody => Shared::Nothing,
                Sharing::Ends => Shared::Ends,
                Sharing::All => Shared::Bus,
            },
            bandwidth: route.bandwidth,
        }
    }

    /// The worst of both in each figure.
    fn and(self, other: Self) -> Self {
        Self {
            seconds_per_byte: self.seconds_per_byte.max(other.seconds_per_byte),
            joules_per_byte: self.joules_per_byte.max(other.joules_per_byte),
            latency_s: self.latency_s.max(other.latency_s),
            sharing: self.sharing.max(other.sharing),
            bandwidth: self.bandwidth.min(other.bandwidth),
        }
    }

    /// Whether it is no worse in any figure.
    fn within(self, limit: Self) -> bool {
        self.seconds_per_byte <= limit.seconds_per_byte
            && self.joules_per_byte <= limit.joules_per_byte
            && self.latency_s <= limit.latency_s
            && self.sharing <= limit.sharing
    }

    /// The way of units of which so many share an end.
    fn way(self, units_per_end: usize) -> Way {
        Way {
            seconds_per_byte: self.seconds_per_byte,
            joules_per_byte: self.joules_per_byte,
            latency_s: self.latency_s,
            medium: if self.sharing == Shared::Bus { Medium::Bus } else { Medium::Lines },
            units_per_end: if self.sharing == Shared::Nothing { 1 } else { units_per_end },
        }
    }
}

/// How many units of a type may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    /// One.
    Unit,
    /// Those of one machine.
    Machine,
    All,
}

/// Units of a type.
type Group = (usize, Span);

/// What transfers cost between units of any two types.
pub(super) struct Ways {
    units: Vec<UnitType>,
    /// In one machine, for types of one kind; of one type, if a machine has several of it.
    inside: Vec<Vec<Option<Price>>>,
    /// Between two machines.
    across: Vec<Vec<Option<Price>>>,
}

impl Ways {
    /// Those of a platform, for types with these declarations.
    ///
    /// # Errors
    /// Where no link connects units.
    pub(super) fn of(
        all: &Expanded<'_>,
        declared: &[Vec<(usize, usize)>],
        units: &[UnitType],
    ) -> Result<Self> {
        let types = declared.len();
        let mut result = Self {
            units: units.to_vec(),
            inside: vec![vec![None; types]; types],
            across: vec![vec![None; types]; types],
        };
        // The memories of a type in one of its machines, once for each of its units, at most twice.
        let machines = |unit: usize| -> Vec<usize> {
            let own = |kind: &usize| declared[unit].iter().any(|(other, _)| other == kind);
            let nodes = all.nodes.iter().enumerate().filter(|(_, kind)| own(kind));
            nodes.map(|(node, _)| node).collect()
        };
        let memories = |unit: usize, node: usize| -> Vec<MemoryId> {
            let kind = all.nodes[node];
            let first = all.memories_of(NodeId(node as u32)).start;
            let own = declared[unit].iter().filter(|(other, _)| *other == kind);
            let units = own.map(|&(_, unit)| &all.platform.nodes[kind].units[unit]);
            let twice =
                units.flat_map(|of| vec![MemoryId(first + of.memory as u32); of.count.min(2)]);
            twice.collect()
        };
        let price = |a: MemoryId, b: MemoryId| -> Result<Price> {
            if a == b { Ok(Price::FREE) } else { Ok(Price::of(&all.route(a, b)?)) }
        };
        let machines: Vec<Vec<usize>> = (0..types).map(machines).collect();
        for a in 0..types {
            for b in 0..types {
                let Some(&here) = machines[a].first() else { continue };
                let mut inside: Option<Price> = None;
                if units[a].node == units[b].node {
                    let (from, to) = (memories(a, here), memories(b, here));
                    for (i, &from) in from.iter().enumerate() {
                        for (j, &to) in to.iter().enumerate() {
                            if a != b || i != j {
                                let other = price(from, to)?;
                                inside = Some(inside.map_or(other, |known| known.and(other)));
                            }
                        }
                    }
                }
                result.inside[a][b] = inside;
                let Some(&there) = machines[b].iter().find(|there| **there != here) else {
                    continue;
                };
                let mut across: Option<Price> = None;
                for &from in &memories(a, here) {
                    for &to in &memories(b, there) {
                        let other = price(from, to)?;
                        across = Some(across.map_or(other, |known| known.and(other)));
                    }
                }
                result.across[a][b] = across;
            }
        }
        Ok(result)
    }

    /// Bytes per second, in one direction, of the narrowest way between two units of each type.
    pub(super) fn bandwidths(&self) -> Vec<f64> {
        let of = |unit: usize| {
            let ways = [self.inside[unit][unit], self.across[unit][unit]];
            ways.into_iter().flatten().fold(Price::FREE, Price::and).bandwidth
        };
        (0..self.units.len()).map(of).collect()
    }

    /// What transfers between units of two groups cost; nothing if no plan has both, and free where
    /// there is only one unit.
    fn between(&self, (a, x): Group, (b, y): Group) -> Option<Price> {
        let [of, other] = [&self.units[a], &self.units[b]];
        let across = self.across[a][b].unwrap_or(Price::FREE);
        if of.node != other.node {
            return Some(across);
        }
        let inside = self.inside[a][b].unwrap_or(Price::FREE);
        match (x, y) {
            (Span::Unit, Span::Unit) if a == b => Some(Price::FREE),
            _ if a == b && x != y => None,
            // Types of one kind are in as many machines.
            (Span::All, Span::Machine) | (Span::Machine, Span::All) => None,
            (Span::All, _) | (_, Span::All) => Some(inside.and(across)),
            _ => Some(inside),
        }
    }

    /// The worst price between units of some groups.
    fn worst(&self, groups: &[Group]) -> Price {
        let pairs = groups.iter().flat_map(|&a| groups.iter().map(move |&b| (a, b)));
        pairs.filter_map(|(a, b)| self.between(a, b)).fold(Price::FREE, Price::and)
    }

    /// How many units a group has.
    fn count(&self, (unit, span): Group) -> usize {
        let of = &self.units[unit];
        match span {
            Span::Unit => of.count.min(1),
            Span::Machine => of.count.min(of.per_node),
            Span::All => of.count,
        }
    }

    /// What a type has in a scope of these groups, at a price of inputs.
    fn reach(&self, unit: usize, groups: &[Group], price: Price) -> Reach {
        let of = &self.units[unit];
        let Some(&group) = groups.iter().find(|group| group.0 == unit) else {
            return Reach { count: 0, input: Way::FREE, reduce: Way::FREE, within: None };
        };
        let (inside, across) = (self.inside[unit][unit], self.across[unit][unit]);
        let near = inside.map(|price| price.way(of.sharing));
        // In one machine each memory is an end, else each machine is.
        let one =
            groups.iter().all(|other| other.1 != Span::All && self.units[other.0].node == of.node);
        let (reduce, within) = match (group.1, across) {
            (Span::Unit, _) => (Way::FREE, None),
            (Span::All, Some(across)) => {
                let far = across.and(inside.unwrap_or(Price::FREE)).way(of.per_node);
                (far, near.filter(|near| *near != far))
            }
            _ => (near.unwrap_or(Way::FREE), None),
        };
        let input = price.way(if one { of.sharing } else { of.per_node });
        Reach { count: self.count(group), input, reduce, within }
    }

    /// Sets the ways of all units together, and returns the scopes that are better, those with the
    /// fewest units first.
    pub(super) fn scopes(&self, units: &mut [UnitType]) -> Vec<Scope> {
        let used: Vec<usize> = (0..units.len()).filter(|&u| units[u].count > 0).collect();
        let span = |unit: usize| match &self.units[unit] {
            of if of.count > of.per_node => Span::All,
            of if of.count > 1 => Span::Machine,
            _ => Span::Unit,
        };
        let all: Vec<Group> = used.iter().map(|&unit| (unit, span(unit))).collect();
        let worst = self.worst(&all);
        for &unit in &used {
            let Reach { input, reduce, within, .. } = self.reach(unit, &all, worst);
            let of = &mut units[unit];
            (of.input, of.reduce, of.within) = (input, reduce, within);
        }
        let mut groups = all.clone();
        for smaller in [Span::Machine, Span::Unit] {
            let fewer = |&&unit: &&usize| {
                self.count((unit, smaller)) < self.count((unit, span(unit)))
                    && (smaller == Span::Unit || self.units[unit].per_node > 1)
            };
            groups.extend(used.iter().filter(fewer).map(|&unit| (unit, smaller)));
        }
        let mut kept = self.near(&all, &self.limits(&groups), &groups);
        if kept.len() > MOST_SCOPES + 1 {
            let limits = self.limits(&groups).into_iter().map(|limit| Price {
                joules_per_byte: f64::INFINITY,
                latency_s: f64::INFINITY,
                ..limit
            });
            let mut limits: Vec<Price> = limits.collect();
            limits.dedup();
            kept = self.near(&all, &limits, &groups);
        }
        kept.truncate(MOST_SCOPES + 1);
        // The first are all units.
        let scope = |(groups, price): (Vec<Group>, Price)| {
            let names = groups.iter().map(|&(unit, span)| match span {
                Span::Unit => format!("one {}", self.units[unit].name),
                Span::Machine => format!("one machine's {}", self.units[unit].name),
                Span::All => self.units[unit].name.clone(),
            });
            let name = names.collect::<Vec<_>>().join(", ");
            let reach = |unit: usize| self.reach(unit, &groups, price);
            Scope { name, types: (0..self.units.len()).map(reach).collect() }
        };
        let narrower = kept.into_iter().filter(|(groups, _)| *groups != all);
        let mut scopes: Vec<Scope> = narrower.map(scope).collect();
        scopes.reverse();
        scopes
    }

    /// Sets of groups that are near to each other by some limit, with their prices: all units first,
    /// and none whose units pay as much in another.
    fn near(&self, all: &[Group], limits: &[Price], groups: &[Group]) -> Vec<(Vec<Group>, Price)> {
        let mut found = vec![(all.to_vec(), self.worst(all))];
        for &limit in limits {
            let near =
                |a: Group, b: Group| self.between(a, b).is_some_and(|price| price.within(limit));
            let possible: Vec<Group> = groups.iter().copied().filter(|&g| near(g, g)).collect();
            cliques(&possible, &near, &mut |clique| {
                let price = self.worst(clique);
                found.push((clique.to_vec(), price));
            });
        }
        let total = |groups: &[Group]| groups.iter().map(|&group| self.count(group)).sum::<usize>();
        // A single unit communicates with none.
        found.retain(|(groups, _)| total(groups) > 1);
        let covers = |(large, price): &(Vec<Group>, Price), small: &(Vec<Group>, Price)| {
            let own = |group: &Group| large.iter().find(|other| other.0 == group.0);
            let wide =
                |group: &Group| own(group).is_some_and(|o| self.count(*o) >= self.count(*group));
            let ways = |group: &Group| {
                let [a, b] = [(large, *price), (&small.0, small.1)]
                    .map(|(groups, price)| self.reach(group.0, groups, price));
                // One unit sums no gradients.
                let sums = self.count(*group) > 1;
                a.input == b.input && (!sums || (a.reduce, a.within) == (b.reduce, b.within))
            };
            small.0.iter().all(|group| wide(group) && ways(group))
        };
        found.sort_by_key(|(groups, _)| std::cmp::Reverse((total(groups), groups.len())));
        let mut kept: Vec<(Vec<Group>, Price)> = Vec::new();
        for scope in found {
            if !kept.iter().any(|other| covers(other, &scope)) {
                kept.push(scope);
            }
        }
        kept
    }

    /// All limits of prices that may tell scopes apart, each once.
    fn limits(&self, groups: &[Group]) -> Vec<Price> {
        let pairs = groups.iter().flat_map(|&a| groups.iter().map(move |&b| (a, b)));
        let prices: Vec<Price> = pairs.filter_map(|(a, b)| self.between(a, b)).collect();
        let distinct = |of: fn(&Price) -> f64| -> Vec<f64> {
            let mut values: Vec<f64> = prices.iter().map(of).collect();
            // From large to small, so that of values that rounding tells apart the largest stays.
            values.sort_by(|a, b| b.total_cmp(a));
            values.dedup_by(|small, large| *small >= *large * (1.0 - 1e-9));
            values.reverse();
            values
        };
        let seconds = distinct(|price| price.seconds_per_byte);
        let mut joules = distinct(|price| price.joules_per_byte);
        let mut latencies = distinct(|price| price.latency_s);
        let mut shared = vec![Shared::Nothing, Shared::Ends, Shared::Bus];
        shared.retain(|shared| prices.iter().any(|price| price.sharing == *shared));
        if seconds.len() * joules.len() * latencies.len() * shared.len() > MOST_LIMITS {
            joules = joules.split_off(joules.len() - 1);
            latencies = latencies.split_off(latencies.len() - 1);
            shared = shared.split_off(shared.len() - 1);
        }
        let mut limits = Vec::new();
        for &seconds_per_byte in &seconds {
            for &joules_per_byte in &joules {
                for &latency_s in &latencies {
                    for &sharing in &shared {
                        let bandwidth = 0.0;
                        limits.push(Price {
                            seconds_per_byte,
                            joules_per_byte,
                            latency_s,
                            sharing,
                            bandwidth,
                        });
                    }
                }
            }
        }
        limits
    }
}

/// Calls with the sets of groups of which any two are near and that no other group is near to all of
/// (Bron and Kerbosch 1973), at most so many.
fn cliques(groups: &[Group], near: &dyn Fn(Group, Group) -> bool, call: &mut dyn FnMut(&[Group])) {
    let neighbours = |a: usize| -> u128 {
        let bit = |b: usize| u128::from(a != b && near(groups[a], groups[b])) << b;
        (0..groups.len()).map(bit).fold(0, |all, bit| all | bit)
    };
    let near: Vec<u128> = (0..groups.len()).map(neighbours).collect();
    let mut left = MOST_CLIQUES;
    let mut found = |clique: u128| {
        let own = (0..groups.len()).filter(|group| clique >> group & 1 == 1);
        call(&own.map(|group| groups[group]).collect::<Vec<Group>>());
    };
    let all = near.iter().enumerate().fold(0, |all, (group, _)| all | 1u128 << group);
    grow(&near, [0, all, 0], &mut left, &mut found);
}

/// Cliques with all groups of the first set, any of the second and none of the third.
fn grow(
    near: &[u128],
    [clique, open, closed]: [u128; 3],
    left: &mut usize,
    found: &mut dyn FnMut(u128),
) {
    if open | closed == 0 && clique != 0 && *left > 0 {
        *left -= 1;
        found(clique);
    }
    // Of a group and its neighbours one is in each.
    let pivot = (0..near.len()).filter(|group| (open | closed) >> group & 1 == 1);
    let pivot = pivot.max_by_key(|&group| (near[group] & open).count_ones());
    let (mut open, mut closed) = (open, closed);
    for group in 0..near.len() {
        let branch = open & !pivot.map_or(0, |pivot| near[pivot]);
        if branch >> group & 1 == 0 || *left == 0 {
            continue;
        }
        grow(near, [clique | 1 << group, open & near[group], closed & near[group]], left, found);
        open &= !(1 << group);
        closed |= 1 << group;
    }
}
