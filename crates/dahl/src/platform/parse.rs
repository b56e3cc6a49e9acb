//! Platforms from TOML (docs/platform-format.md).

use super::limits::{
    ARRIVAL, BANDWIDTH, BYTE_UNITS, FLOPS, JOULES, JOULES_PER_BYTE, LONGEST_NAME, MESSAGE,
    MOST_BYTES, MOST_PARTS, PRICE, PRICE_PER_BYTE, Quantity, SECONDS, SPEED, WATTS,
};
use super::reader::{Source, Table, Value, one_of};
use super::{
    Fairness, Figure, Link, Memory, Message, Node, Origin, Place, Platform, PowerState, Sharing,
    Sleep, Unit,
};
use crate::error::{Error, Result};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use toml::de::DeTable;

/// The version of the format.
pub(super) const VERSION: u64 = 1;

pub(super) const PLATFORM: &[&str] =
    &["dahl_platform", "name", "from", "fairness", "switches", "node", "link"];
pub(super) const NODE: &[&str] = &[
    "name",
    "count",
    "base_watts",
    "price_per_hour",
    "price_per_kwh",
    "sleep",
    "memory",
    "unit",
    "link",
];
pub(super) const SLEEP: &[&str] = &["watts", "wake_seconds", "wake_joules"];
pub(super) const MEMORY: &[&str] = &["name", "bytes", "bandwidth"];
pub(super) const UNIT: &[&str] = &[
    "name",
    "kind",
    "count",
    "memory",
    "speed",
    "flops",
    "busy_watts",
    "spinning_watts",
    "idle_watts",
    "price_per_hour",
    "states",
];
pub(super) const STATE: &[&str] = &["name", "speed", "busy_watts"];
pub(super) const LINK: &[&str] = &[
    "name",
    "connects",
    "bandwidth",
    "latency",
    "messages",
    "joules_per_byte",
    "price_per_byte",
    "shared",
];
pub(super) const FIGURE: &[&str] = &["value", "low", "high", "from"];

impl Platform {
    /// Reads a platform from a TOML file.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be read, [`Error::Lines`] as [`Platform::parse`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = crate::os::disk::read_to_string(path)
            .map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Self::parse(path, &text)
    }

    /// Reads a platform from the text of a TOML file; the path is for messages.
    ///
    /// ```
    /// let platform = dahl::platform::Platform::parse("tiny.toml", r#"
    ///     dahl_platform = 1
    ///     name = "tiny"
    ///     [[node]]
    ///     name = "board"
    ///     base_watts = 2
    ///     memory = [{ name = "ram", bytes = "1 GiB", bandwidth = 4e9 }]
    ///     [[node.unit]]
    ///     name = "core"
    ///     kind = "cpu-neon"
    ///     count = 4
    ///     busy_watts = { value = 1.5, low = 1, high = 2, from = "measured" }
    ///     spinning_watts = 1
    ///     idle_watts = 0.2
    /// "#)?;
    /// assert_eq!(platform.nodes[0].units[0].count, 4);
    /// # Ok::<(), dahl::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Lines`]: everything that is wrong, each at its line, up to 100 mistakes.
    pub fn parse(path: impl AsRef<Path>, text: &str) -> Result<Self> {
        let source = Source { text, errors: RefCell::default() };
        let (map, syntax) = DeTable::parse_recoverable(text);
        for error in &syntax {
            let found = error.message().replace('\n', ", ");
            let span = error.span().unwrap_or_default();
            source.push(span, (String::new(), "a TOML file".to_owned(), found));
        }
        let mut platform = Self::default();
        if syntax.is_empty() {
            platform = root(&Table::root(&source, map.get_ref(), PLATFORM));
        }
        let mut errors = source.errors.into_inner();
        if errors.is_empty() {
            return Ok(platform);
        }
        errors.sort_by_key(|error| error.line);
        Err(Error::Lines { path: path.as_ref().to_owned(), errors })
    }
}

fn root(t: &Table<'_>) -> Platform {
    if let Some(version) = t.required("dahl_platform", "the version of the format, 1")
        && version.as_u64() != Some(VERSION)
    {
        version.wrong("1, the only version of the format");
    }
    let from = t.optional("from").map(|v| choice(&v, &Origin::ALL, Origin::name));
    let fairness = t.optional("fairness").map(|v| choice(&v, &Fairness::ALL, Fairness::name));
    let read = Reader { from: from.unwrap_or_default() };
    let tables = t.tables("node", NODE);
    if tables.is_empty() {
        t.wrong("node", "at least one [[node]]", "none");
    }
    let nodes: Vec<Node> = tables.iter().map(|t| read.node(t)).collect();
    let switches = t.optional("switches").map_or(Vec::new(), |v| v.list("a list of names"));
    let mut names = BTreeSet::new();
    refuse_twins(&tables, nodes.iter().map(|node| &*node.name), &mut names);
    let switches: Vec<String> = switches
        .iter()
        .map(|value| {
            let switch = text(value);
            if !names.insert(switch) && !switch.is_empty() {
                value.wrong("a name that no node and no other switch has");
            }
            switch.to_owned()
        })
        .collect();

    let names: Vec<&str> =
        nodes.iter().map(|node| &node.name).chain(&switches).map(String::as_str).collect();
    let place = |i: usize| match i.checked_sub(nodes.len()) {
        Some(switch) => (Place::Switch(switch), 1),
        None => (Place::Nodes(i), nodes[i].count),
    };
    let link_tables = t.tables("link", LINK);
    let links: Vec<Link<Place>> = link_tables.iter().map(|t| read.link(t, &names, place)).collect();
    refuse_twins(&link_tables, links.iter().map(|link| &*link.name), &mut BTreeSet::new());
    let name = t.required("name", "a name").map_or("", |value| text(&value)).to_owned();
    let fairness = fairness.unwrap_or_default();
    let platform = Platform { name, fairness, nodes, switches, links };
    check_size(&tables, &link_tables, &platform);
    platform
}

/// Everything that [`Platform::expand`] counts out has its limit.
fn check_size(nodes: &[Table<'_>], links: &[Table<'_>], platform: &Platform) {
    let expected = format!("at most {MOST_PARTS} units, memories and ends of links in all");
    let mut total = 0u64;
    for (t, node) in nodes.iter().zip(&platform.nodes) {
        let units = node.units.iter().map(|unit| unit.count as u64);
        let ends: usize = node.links.iter().map(|link| 2 * link.connects.len()).sum();
        let parts = units.sum::<u64>() + (1 + node.memories.len() + ends) as u64;
        total = total.saturating_add(parts.saturating_mul(node.count as u64));
        if total > MOST_PARTS {
            return t.wrong("count", &expected, total);
        }
    }
    for (t, link) in links.iter().zip(&platform.links) {
        total += 2 * platform.ends(link) as u64;
        if total > MOST_PARTS {
            return t.wrong("connects", &expected, total);
        }
    }
}

/// The value that replaces a wrong one: no comparison with it is an error.
const WRONG: f64 = f64::NAN;

/// Reads parts of a platform whose figures come from `from`, unless they say it.
struct Reader {
    from: Origin,
}

impl Reader {
    fn node(&self, t: &Table<'_>) -> Node {
        let memory_tables = t.tables("memory", MEMORY);
        let memories: Vec<Memory> = memory_tables.iter().map(|t| self.memory(t)).collect();
        refuse_twins(&memory_tables, memories.iter().map(|m| &*m.name), &mut BTreeSet::new());
        let names: Vec<&str> = memories.iter().map(|memory| &*memory.name).collect();
        let unit_tables = t.tables("unit", UNIT);
        let units: Vec<Unit> = unit_tables.iter().map(|t| self.unit(t, &names)).collect();
        refuse_twins(&unit_tables, units.iter().map(|unit| &*unit.name), &mut BTreeSet::new());
        let link_tables = t.tables("link", LINK);
        let links: Vec<Link<usize>> =
            link_tables.iter().map(|t| self.link(t, &names, |memory| (memory, 1))).collect();
        refuse_twins(&link_tables, links.iter().map(|link| &*link.name), &mut BTreeSet::new());
        for (key, empty) in [("memory", memories.is_empty()), ("unit", units.is_empty())] {
            if empty {
                t.wrong(key, &format!("at least one [[node.{key}]]"), "none");
            }
        }
        let sleep = t.optional("sleep").and_then(|v| v.table(SLEEP)).map(|t| Sleep {
            watts: self.figure(&t, "watts", WATTS),
            wake_seconds: self.figure(&t, "wake_seconds", SECONDS),
            wake_joules: self.figure(&t, "wake_joules", JOULES),
        });
        Node {
            name: name(t, "name"),
            count: count(t),
            base_watts: self.figure(t, "base_watts", WATTS),
            price_per_hour: price(t, "price_per_hour", PRICE).unwrap_or(0.0),
            price_per_kwh: price(t, "price_per_kwh", PRICE),
            sleep,
            memories,
            units,
            links,
        }
    }

    fn memory(&self, t: &Table<'_>) -> Memory {
        Memory {
            name: name(t, "name"),
            bytes: t.required("bytes", BYTES).map_or(1, |v| bytes(&v)),
            bandwidth: self.figure(t, "bandwidth", BANDWIDTH),
        }
    }

    fn unit(&self, t: &Table<'_>, memories: &[&str]) -> Unit {
        let memory = match t.optional("memory") {
            Some(value) => index(&value, memories),
            None if memories.len() > 1 => {
                t.wrong("memory", &format!("one of {}", memories.join(", ")), "nothing");
                None
            }
            None => None,
        };
        let states = t.tables("states", STATE);
        let idle_watts = self.figure(t, "idle_watts", WATTS);
        // Otherwise work would give energy back.
        let at_least_idle = |t: &Table<'_>, key: &str| {
            let figure = self.figure(t, key, WATTS);
            if figure.value < idle_watts.value {
                let expected = format!("at least the idle watts, {}", idle_watts.value);
                t.wrong(key, &expected, figure.value);
            }
            figure
        };
        let state = |t: &Table<'_>| PowerState {
            name: name(t, "name"),
            speed: self.figure(t, "speed", SPEED),
            busy_watts: at_least_idle(t, "busy_watts"),
        };
        let unit = Unit {
            name: name(t, "name"),
            kind: name(t, "kind"),
            count: count(t),
            memory: memory.unwrap_or(0),
            speed: t
                .optional("speed")
                .map_or(Figure::exact(1.0, self.from), |v| self.value(&v, SPEED)),
            flops: t.optional("flops").map(|v| self.value(&v, FLOPS)),
            busy_watts: at_least_idle(t, "busy_watts"),
            spinning_watts: at_least_idle(t, "spinning_watts"),
            idle_watts,
            price_per_hour: price(t, "price_per_hour", PRICE).unwrap_or(0.0),
            states: states.iter().map(state).collect(),
        };
        refuse_twins(&states, unit.states.iter().map(|s| &*s.name), &mut BTreeSet::new());
        unit
    }

    /// A link between some of the places that have `names`; `place` gives one of
    /// them, and how many ends the link has there.
    fn link<P>(
        &self,
        t: &Table<'_>,
        names: &[&str],
        place: impl Fn(usize) -> (P, usize),
    ) -> Link<P> {
        let values = t.required("connects", "a list of names");
        let values = values.map_or(Vec::new(), |value| value.list("a list of names"));
        let mut found: Vec<usize> = Vec::new();
        for value in &values {
            match index(value, names) {
                Some(end) if found.contains(&end) => value.wrong("each name once"),
                end => found.extend(end),
            }
        }
        let all = found.len() == values.len();
        let (connects, ends): (Vec<P>, Vec<usize>) = found.into_iter().map(place).unzip();
        let ends: usize = ends.into_iter().sum();
        if all && ends < 2 && t.optional("connects").is_some() {
            t.wrong("connects", "at least two ends", ends);
        }
        let messages = messages(t);
        let fitted = super::messages::fitted(&messages);
        // What the file has counts; what it lacks comes from its messages.
        let figure = |key, quantity, place: usize| match (t.optional(key), &fitted) {
            (None, Some(fitted)) => fitted[place],
            // Wrong messages have their own error.
            (None, None) if t.optional("messages").is_some() => Figure::exact(WRONG, self.from),
            _ => self.figure(t, key, quantity),
        };
        Link {
            name: name(t, "name"),
            connects,
            bandwidth: figure("bandwidth", BANDWIDTH, 1),
            latency: figure("latency", SECONDS, 0),
            messages,
            joules_per_byte: self.figure(t, "joules_per_byte", JOULES_PER_BYTE),
            price_per_byte: price(t, "price_per_byte", PRICE_PER_BYTE).unwrap_or(0.0),
            sharing: t
                .optional("shared")
                .map_or(Sharing::default(), |v| choice(&v, &Sharing::ALL, Sharing::name)),
        }
    }

    fn figure(&self, t: &Table<'_>, key: &str, quantity: Quantity) -> Figure {
        let value = t.required(key, &quantity.to_string());
        value.map_or(Figure::exact(WRONG, self.from), |value| self.value(&value, quantity))
    }

    /// A bare number, or a table with its interval and where it comes from.
    fn value(&self, value: &Value<'_>, quantity: Quantity) -> Figure {
        if !value.is_table() {
            return Figure::exact(number(value, quantity), self.from);
        }
        let Some(t) = value.table(FIGURE) else { return Figure::exact(WRONG, self.from) };
        let expected = quantity.to_string();
        let value = t.required("value", &expected).map_or(WRONG, |v| number(&v, quantity));
        let bound = |key| t.optional(key).map_or(value, |v| number(&v, quantity));
        let (low, high) = (bound("low"), bound("high"));
        if low > value {
            t.wrong("low", &format!("at most the value, {value}"), low);
        }
        if high < value {
            t.wrong("high", &format!("at least the value, {value}"), high);
        }
        let from = t.optional("from").map(|v| choice(&v, &Origin::ALL, Origin::name));
        Figure { value, low, high, from: from.unwrap_or(self.from) }
    }
}

/// Money, a plain number.
fn price(t: &Table<'_>, key: &str, quantity: Quantity) -> Option<f64> {
    t.optional(key).map(|value| number(&value, quantity))
}

/// Measured messages of a link, of ascending sizes.
fn messages(t: &Table<'_>) -> Vec<Message> {
    const EXPECTED: &str = "a list of [bytes, seconds], at least two, of ascending sizes";
    let Some(value) = t.optional("messages") else { return Vec::new() };
    let mut messages: Vec<Message> = Vec::new();
    for pair in value.list(EXPECTED) {
        let numbers = pair.list("[bytes, seconds]");
        let [bytes, seconds] = &numbers[..] else {
            pair.wrong("[bytes, seconds]");
            return Vec::new();
        };
        let [bytes, seconds] = [(bytes, MESSAGE), (seconds, ARRIVAL)].map(|(x, q)| number(x, q));
        messages.push(Message { bytes, seconds });
    }
    if messages.len() < 2 || messages.windows(2).any(|pair| pair[0].bytes >= pair[1].bytes) {
        value.wrong(EXPECTED);
    }
    if messages.iter().any(|message| message.bytes.is_nan() || message.seconds.is_nan()) {
        return Vec::new();
    }
    messages
}

fn number(value: &Value<'_>, quantity: Quantity) -> f64 {
    let number = value.as_f64().filter(|&number| quantity.contains(number));
    number.unwrap_or_else(|| {
        value.wrong(&quantity.to_string());
        WRONG
    })
}

fn count(t: &Table<'_>) -> usize {
    let Some(value) = t.optional("count") else { return 1 };
    let count = value.as_u64().filter(|count| (1..=MOST_PARTS).contains(count));
    if count.is_none() {
        value.wrong(&format!("a whole number from 1 to {MOST_PARTS}"));
    }
    count.unwrap_or(1) as usize
}

const BYTES: &str = "bytes up to 1 EiB, such as \"16 GiB\" or 16e9";

fn bytes(value: &Value<'_>) -> u64 {
    let from_f64 = |x: f64| (x.fract() == 0.0 && x <= MOST_BYTES as f64).then_some(x as u64);
    let found = match value.as_str() {
        None => value.as_u64().or_else(|| value.as_f64().and_then(from_f64)),
        Some(text) => {
            let unit = BYTE_UNITS.iter().find(|(unit, _)| text.ends_with(unit));
            unit.and_then(|(unit, scale)| {
                let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
                from_f64(number * *scale as f64)
            })
        }
    };
    let found = found.filter(|bytes| (1..=MOST_BYTES).contains(bytes));
    found.unwrap_or_else(|| {
        value.wrong(BYTES);
        1
    })
}

/// The name of a part. Places in a platform are written `desktop[2]/core[5]`.
fn name(t: &Table<'_>, key: &str) -> String {
    let Some(value) = t.required(key, "a name") else { return String::new() };
    let name = text(&value);
    if name.contains(['/', '[', ']']) {
        value.wrong("a name without /, [ and ]");
    }
    name.to_owned()
}

/// A name that fits into a line.
fn text<'a>(value: &Value<'a>) -> &'a str {
    let fits = |name: &&str| {
        (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.chars().any(char::is_control)
    };
    value.as_str().filter(fits).unwrap_or_else(|| {
        value.wrong(&format!("a name of 1 to {LONGEST_NAME} characters in quotes"));
        ""
    })
}

/// Which of the names a value is.
fn index(value: &Value<'_>, names: &[&str]) -> Option<usize> {
    let wrong = value.as_str().unwrap_or_default();
    let found = names.iter().position(|name| !name.is_empty() && *name == wrong);
    if found.is_none() {
        let known: Vec<&str> = names.iter().copied().filter(|name| !name.is_empty()).collect();
        value.wrong(&format!("a name, {}", one_of(wrong, &known)));
    }
    found
}

/// One of a few values by their names.
fn choice<T: Copy + Default>(value: &Value<'_>, all: &[T], name: fn(T) -> &'static str) -> T {
    let found = all.iter().find(|one| value.as_str() == Some(name(**one)));
    found.copied().unwrap_or_else(|| {
        let names: Vec<String> = all.iter().map(|one| format!("{:?}", name(*one))).collect();
        value.wrong(&format!("one of {}", names.join(", ")));
        T::default()
    })
}

/// Says which names are not the first of their kind.
fn refuse_twins<'n>(
    tables: &[Table<'_>],
    names: impl Iterator<Item = &'n str>,
    seen: &mut BTreeSet<&'n str>,
) {
    for (t, name) in tables.iter().zip(names) {
        // An empty one is an error already.
        if !seen.insert(name) && !name.is_empty() {
            t.wrong("name", "a unique name", format!("{name:?} again"));
        }
    }
}
