//! Platforms as TOML, which [`Platform::parse`] reads back.

use super::limits::{BYTE_UNITS, number};
use super::parse::VERSION;
use super::{Fairness, Figure, Link, Message, Node, Origin, Place, Platform, Sharing, Unit};
use std::fmt::Write as _;

impl Platform {
    /// The platform as a TOML file.
    pub fn to_toml(&self) -> String {
        let mut figures = [0usize; Origin::ALL.len()];
        for figure in self.figures() {
            figures[figure.from as usize] += 1;
        }
        // Most figures are bare numbers then.
        let most = (0..figures.len()).rev().max_by_key(|&i| figures[i]).unwrap_or(0);
        let mut out = Printer { text: String::new(), from: Origin::ALL[most] };
        out.platform(self);
        out.text
    }
}

struct Printer {
    text: String,
    /// Where figures come from that do not say it.
    from: Origin,
}

impl Printer {
    fn line(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{key} = {value}");
    }

    fn figure(&mut self, key: &str, figure: &Figure) {
        let text = self.value(figure);
        self.line(key, text);
    }

    fn value(&self, figure: &Figure) -> String {
        let Figure { value, low, high, from } = *figure;
        let mut more = String::new();
        for (key, bound) in [("low", low), ("high", high)] {
            if bound != value {
                let _ = write!(more, ", {key} = {}", number(bound));
            }
        }
        if from != self.from {
            let _ = write!(more, ", from = {:?}", from.name());
        }
        let value = number(value);
        if more.is_empty() { value } else { format!("{{ value = {value}{more} }}") }
    }

    fn platform(&mut self, platform: &Platform) {
        self.line("dahl_platform", VERSION);
        self.line("name", quoted(&platform.name));
        self.line("from", quoted(self.from.name()));
        if platform.fairness != Fairness::default() {
            self.line("fairness", quoted(platform.fairness.name()));
        }
        if !platform.switches.is_empty() {
            self.line("switches", list(&platform.switches));
        }
        for node in &platform.nodes {
            self.text.push_str("\n[[node]]\n");
            self.node(node);
        }
        for link in &platform.links {
            let end = |place: &Place| match *place {
                Place::Nodes(kind) => &platform.nodes[kind].name,
                Place::Switch(switch) => &platform.switches[switch],
            };
            self.text.push_str("\n[[link]]\n");
            self.link(link, end);
        }
    }

    fn node(&mut self, node: &Node) {
        self.line("name", quoted(&node.name));
        self.line("count", node.count);
        self.figure("base_watts", &node.base_watts);
        self.price("price_per_hour", node.price_per_hour);
        if let Some(price) = node.price_per_kwh {
            self.line("price_per_kwh", number(price));
        }
        if let Some(sleep) = &node.sleep {
            let [watts, seconds, joules] =
                [sleep.watts, sleep.wake_seconds, sleep.wake_joules].map(|f| self.value(&f));
            let figures =
                format!("{{ watts = {watts}, wake_seconds = {seconds}, wake_joules = {joules} }}");
            self.line("sleep", figures);
        }
        for memory in &node.memories {
            self.text.push_str("\n[[node.memory]]\n");
            self.line("name", quoted(&memory.name));
            self.line("bytes", bytes(memory.bytes));
            self.figure("bandwidth", &memory.bandwidth);
        }
        for unit in &node.units {
            self.text.push_str("\n[[node.unit]]\n");
            self.unit(unit, &node.memories[unit.memory].name);
        }
        for link in &node.links {
            self.text.push_str("\n[[node.link]]\n");
            self.link(link, |memory| &node.memories[*memory].name);
        }
    }

    fn price(&mut self, key: &str, price: f64) {
        if price != 0.0 {
            self.line(key, number(price));
        }
    }

    fn unit(&mut self, unit: &Unit, memory: &str) {
        self.line("name", quoted(&unit.name));
        self.line("kind", quoted(&unit.kind));
        self.line("count", unit.count);
        self.line("memory", quoted(memory));
        self.figure("speed", &unit.speed);
        if let Some(flops) = &unit.flops {
            self.figure("flops", flops);
        }
        self.figure("busy_watts", &unit.busy_watts);
        self.figure("spinning_watts", &unit.spinning_watts);
        self.figure("idle_watts", &unit.idle_watts);
        self.price("price_per_hour", unit.price_per_hour);
        if unit.states.is_empty() {
            return;
        }
        self.text.push_str("states = [\n");
        for state in &unit.states {
            let (name, speed) = (quoted(&state.name), self.value(&state.speed));
            let watts = self.value(&state.busy_watts);
            let _ = writeln!(
                self.text,
                "  {{ name = {name}, speed = {speed}, busy_watts = {watts} }},"
            );
        }
        self.text.push_str("]\n");
    }

    fn link<'p, P>(&mut self, link: &'p Link<P>, end: impl Fn(&'p P) -> &'p String) {
        self.line("name", quoted(&link.name));
        self.line("connects", list(link.connects.iter().map(end)));
        self.figure("bandwidth", &link.bandwidth);
        self.figure("latency", &link.latency);
        if !link.messages.is_empty() {
            let message = |m: &Message| format!("[{}, {}]", number(m.bytes), number(m.seconds));
            let messages: Vec<String> = link.messages.iter().map(message).collect();
            self.line("messages", format!("[{}]", messages.join(", ")));
        }
        self.figure("joules_per_byte", &link.joules_per_byte);
        self.price("price_per_byte", link.price_per_byte);
        if link.sharing != Sharing::default() {
            self.line("shared", quoted(link.sharing.name()));
        }
    }
}

/// A text as TOML has it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn list<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| quoted(name)).collect();
    format!("[{}]", names.join(", "))
}

/// In the largest unit that leaves a whole number.
fn bytes(bytes: u64) -> String {
    let binary = BYTE_UNITS.iter().filter(|(name, _)| name.ends_with("iB"));
    match binary.into_iter().find(|(_, scale)| bytes.is_multiple_of(*scale)) {
        Some((unit, scale)) => format!("\"{} {unit}\"", bytes / scale),
        None => bytes.to_string(),
    }
}
