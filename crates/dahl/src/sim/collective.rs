//! What a collective takes, in closed form.
//!
//! An all-reduce goes round a ring: each member sends and receives 2 (r − 1) / r of
//! the bytes in 2 (r − 1) rounds (Patarasuk and Yuan 2009), each as long as its
//! slowest pair takes. It has the links to itself: what else is moved at the same
//! time does not slow it, nor it that.

use super::scenario::Job;
use crate::error::Result;
use crate::platform::{CapacityId, Expanded, MemoryId, Route};
use crate::units::{Bytes, Joules, Nanos};
use std::collections::BTreeMap;

/// The sum of `bytes` over some memories, which all have it in the end.
pub fn all_reduce(on: &Expanded<'_>, members: &[MemoryId], bytes: Bytes) -> Result<Job> {
    let r = members.len();
    if r < 2 {
        return Ok(Job::Collective { time: Nanos(0), joules: Joules(0.0), bytes: Bytes(0) });
    }
    let part = bytes.0 as f64 / r as f64;
    let routes: Vec<Route> =
        (0..r).map(|i| on.route(members[i], members[(i + 1) % r])).collect::<Result<_>>()?;
    // All members send and receive at once: who shares a capacity shares it in every round.
    let mut uses: BTreeMap<CapacityId, usize> = BTreeMap::new();
    for capacity in routes.iter().flat_map(|route| &route.capacities) {
        *uses.entry(*capacity).or_default() += 1;
    }
    let round = routes.iter().map(|route| {
        let shared = route.capacities.iter().map(|c| on.capacities[c.0 as usize] / uses[c] as f64);
        route.latency + part / shared.fold(route.bandwidth, f64::min)
    });
    let slowest = round.fold(0.0, f64::max);
    let joules_per_byte: f64 = routes.iter().map(|route| route.joules_per_byte).sum();
    let rounds = 2.0 * (r - 1) as f64;
    Ok(Job::Collective {
        time: Nanos((1e9 * rounds * slowest).round() as u64),
        joules: Joules(rounds * part * joules_per_byte),
        bytes: Bytes((rounds * part * r as f64).round() as u64),
    })
}
