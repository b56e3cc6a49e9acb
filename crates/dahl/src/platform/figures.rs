//! All figures of a platform, for sums over where they come from.

use super::{Figure, Link, Node, Platform, Unit};

impl Platform {
    /// All its figures.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.nodes.iter().flat_map(Node::figures).chain(self.links.iter().flat_map(Link::figures))
    }
}

impl Node {
    fn figures(&self) -> impl Iterator<Item = &Figure> {
        let sleep = self.sleep.iter().flat_map(|s| [&s.watts, &s.wake_seconds, &s.wake_joules]);
        let memories = self.memories.iter().map(|memory| &memory.bandwidth);
        let units = self.units.iter().flat_map(Unit::figures);
        let links = self.links.iter().flat_map(Link::figures);
        std::iter::once(&self.base_watts).chain(sleep).chain(memories).chain(units).chain(links)
    }
}

impl Unit {
    fn figures(&self) -> impl Iterator<Item = &Figure> {
        let own = [&self.speed, &self.busy_watts, &self.spinning_watts, &self.idle_watts];
        let states = self.states.iter().flat_map(|state| [&state.speed, &state.busy_watts]);
        own.into_iter().chain(&self.flops).chain(states)
    }
}

impl<P> Link<P> {
    fn figures(&self) -> [&Figure; 3] {
        [&self.bandwidth, &self.latency, &self.joules_per_byte]
    }
}
