//! What a collective takes, in closed form.
//!
//! An all-reduce goes round a ring: each member sends and receives 2 (r − 1) / r of
//! the bytes in 2 (r − 1) rounds (Patarasuk and Yuan 2009), each as long as its
//! slowest pair takes. It has the links to itself: what else is moved at the same
//! time does not slow it, nor it that.

use super::scenario::Job;
use crate::error::Result;
use crate::platform::{Expanded, MemoryId};
use crate::units::{Bytes, Joules, Nanos};

/// The sum of `bytes` over some memories, which all have it in the end.
pub fn all_reduce(on: &Expanded<'_>, members: &[MemoryId], bytes: Bytes) -> Result<Job> {
    let r = members.len();
    if r < 2 {
        return Ok(Job::Collective { time: Nanos(0), joules: Joules(0.0), bytes: Bytes(0) });
    }
    let part = bytes.0 as f64 / r as f64;
    let (mut slowest, mut joules_per_byte) = (0.0f64, 0.0);
    for (i, &from) in members.iter().enumerate() {
        let route = on.route(from, members[(i + 1) % r])?;
        // What shares an end shares its bandwidth in every round: members send and
        // receive at once, over one line as over two.
        let at_once = if route.capacities.len() == 1 { r as f64 } else { 1.0 };
        slowest = slowest.max(route.latency + at_once * part / route.bandwidth);
        joules_per_byte += route.joules_per_byte;
    }
    let rounds = 2.0 * (r - 1) as f64;
    Ok(Job::Collective {
        time: Nanos((1e9 * rounds * slowest).round() as u64),
        joules: Joules(rounds * part * joules_per_byte),
        bytes: Bytes((rounds * part * r as f64).round() as u64),
    })
}
