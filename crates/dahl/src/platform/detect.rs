//! Detection of a Linux machine, as a platform of one node.
//!
//! Counts and bytes are what the system lets this process have: its affinity and the
//! limits of its control group. What no file tells, all watts first, is a guess
//! with a wide interval.

use super::headroom::memory_limit;
use super::limits::{MOST_BYTES, WATTS};
use super::root::{Root, field, kibibytes};
use super::{Figure, Memory, Node, Origin, Platform, PowerState, Unit};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A machine, as far as it tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Detected {
    /// One node.
    pub platform: Platform,
    /// Notes for users, such as GPUs without figures.
    pub notes: Vec<String>,
    /// The processors' energy counters that can be read, where all cores are in the
    /// platform: directories with `energy_uj` and `max_energy_range_uj`.
    pub counters: Vec<PathBuf>,
}

/// Describes the machine whose `proc` and `sys` are in `root`, which is `/` for this
/// one. Nothing is measured.
///
/// # Errors
/// [`Error::Unsupported`] where `proc/cpuinfo` or `proc/meminfo` say nothing.
pub fn detect(root: &Path) -> Result<Detected> {
    let root = Root(root);
    let cpuinfo = root.text("proc/cpuinfo").unwrap_or_default();
    let status = root.text("proc/self/status").unwrap_or_default();
    let allowed = field(&status, "Cpus_allowed_list").map(ranges);
    let all = cores(&root, &cpuinfo, None);
    let cores = cores(&root, &cpuinfo, allowed.as_ref());
    let meminfo = root.text("proc/meminfo").unwrap_or_default();
    let (Some(total), false) = (kibibytes(&meminfo, "MemTotal"), cores.is_empty()) else {
        let what = "detecting a machine without proc/cpuinfo and proc/meminfo";
        return Err(Error::Unsupported { what: what.to_owned() });
    };
    let mut notes = Vec::new();
    let busy = busy_watts(&root, all.len());
    let units = units(&root, &cpuinfo, (&cores, busy), &mut notes);
    let bytes = memory_bytes(&root, total, &mut notes);
    notes.extend(gpus(&root));
    let model = field(&cpuinfo, "model name").unwrap_or("processors");
    let host = root.text("proc/sys/kernel/hostname").unwrap_or_default();
    let node = Node {
        name: printable(&host, "machine"),
        count: 1,
        base_watts: base_watts(&root, &cpuinfo),
        price_per_hour: 0.0,
        price_per_kwh: None,
        sleep: None,
        memories: vec![Memory {
            name: "ram".to_owned(),
            bytes,
            bandwidth: guess(20e9, [5e9, 200e9]),
        }],
        units,
        links: Vec::new(),
    };
    let name = printable(model, "machine");
    let platform = Platform { name, nodes: vec![node], ..Platform::default() };
    let own: usize = platform.nodes[0].units.iter().map(|unit| unit.count).sum();
    // What others use too says nothing of this process.
    let packages = if own == all.len() { packages(&root) } else { Vec::new() };
    let counters = packages.into_iter().map(|zone| root.0.join(zone));
    // Most systems let only root read them.
    let readable = |zone: &PathBuf| std::fs::read_to_string(zone.join("energy_uj")).is_ok();
    Ok(Detected { platform, notes, counters: counters.filter(readable).collect() })
}

/// A processor core that this process may use.
#[derive(Clone, Copy, Debug)]
struct Core {
    /// Number of its hardware threads that may be used.
    threads: usize,
    /// The least and the most kHz.
    khz: Option<[u64; 2]>,
}

/// The cores of some processors, by their package and their number.
fn cores(
    root: &Root<'_>,
    cpuinfo: &str,
    allowed: Option<&BTreeSet<u64>>,
) -> BTreeMap<(u64, u64), Core> {
    let mut cores = BTreeMap::new();
    for processor in cpuinfo.split("\n\n") {
        let number = |key| field(processor, key).and_then(|text| text.parse::<u64>().ok());
        let Some(id) = number("processor") else { continue };
        if allowed.is_some_and(|allowed| !allowed.contains(&id)) {
            continue;
        }
        let cpu = Path::new("sys/devices/system/cpu").join(format!("cpu{id}"));
        let topology = |file| root.number(cpu.join("topology").join(file));
        let package = topology("physical_package_id").or(number("physical id")).unwrap_or(0);
        // Where nothing tells, every processor is a core.
        let core = topology("core_id").or(number("core id")).unwrap_or(id);
        let frequency = |file| root.number(cpu.join("cpufreq").join(file));
        let khz = [frequency("cpuinfo_min_freq"), frequency("cpuinfo_max_freq")];
        let khz = match khz {
            [Some(least), Some(most)] if 0 < least && least <= most => Some([least, most]),
            _ => None,
        };
        cores.entry((package, core)).or_insert(Core { threads: 0, khz }).threads += 1;
    }
    cores
}

/// Cores of one speed are a type of unit; each has these watts when it is busy.
fn units(
    root: &Root<'_>,
    cpuinfo: &str,
    (cores, busy): (&BTreeMap<(u64, u64), Core>, Figure),
    notes: &mut Vec<String>,
) -> Vec<Unit> {
    let mut sorted: Vec<Core> = cores.values().copied().collect();
    let most = |core: &Core| core.khz.map_or(0, |[_, most]| most);
    sorted.sort_by_key(|core| std::cmp::Reverse(most(core)));
    let threads: usize = sorted.iter().map(|core| core.threads).sum();
    if threads > sorted.len() {
        notes.push(format!("{threads} threads on {} cores: a unit is a core", sorted.len()));
    }
    if let Some(quota) = quota(root).filter(|quota| *quota < sorted.len() as f64) {
        let whole = (quota as usize).max(1);
        notes.push(format!(
            "{quota} processors of {} cores are allowed: {whole} units",
            sorted.len()
        ));
        sorted.truncate(whole);
    }
    // Makers let their best cores run a little faster than the others.
    let alike = |a: &Core, b: &Core| 100 * most(b) >= 85 * most(a);
    let groups: Vec<&[Core]> = sorted.chunk_by(alike).collect();
    let unit = |group: &&[Core]| {
        let khz = group[0].khz;
        let name = match khz {
            Some([_, most]) if groups.len() > 1 => format!("core of {}", gigahertz(most)),
            _ => "core".to_owned(),
        };
        let speed = match (khz, sorted[0].khz) {
            (Some([_, own]), Some([_, fastest])) => own as f64 / fastest as f64,
            _ => 1.0,
        };
        let idle_watts = guess(0.5, [0.05, 2.0]);
        let state = khz.filter(|[least, most]| least < most).map(|[least, most]| {
            let part = least as f64 / most as f64;
            // Watts grow faster than the frequency, and memory is no slower.
            let watts = |x: f64| (x * part).max(idle_watts.value);
            PowerState {
                name: gigahertz(least),
                speed: guess(part, [part, 1.0]),
                busy_watts: guess(watts(busy.value), [watts(busy.low * part), watts(busy.high)]),
            }
        });
        Unit {
            name,
            kind: kind(cpuinfo).to_owned(),
            count: group.len(),
            memory: 0,
            speed: if speed < 1.0 {
                guess(speed, [0.5 * speed, 1.0])
            } else {
                Figure::exact(1.0, Origin::Guess)
            },
            flops: None,
            busy_watts: busy,
            spinning_watts: guess(0.8 * busy.value, [idle_watts.value, busy.high]),
            idle_watts,
            price_per_hour: 0.0,
            states: state.into_iter().collect(),
        }
    };
    groups.iter().map(unit).collect()
}

/// The key of calibrations for such a processor.
fn kind(cpuinfo: &str) -> &'static str {
    let flags = field(cpuinfo, "flags").or(field(cpuinfo, "Features")).unwrap_or_default();
    let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
    match (has("avx2") && has("fma"), has("avx512f"), has("asimd")) {
        (true, true, _) => "cpu-avx512",
        (true, false, _) => "cpu-avx2",
        (false, _, true) => "cpu-neon",
        _ => "cpu-portable",
    }
}

/// Number of processors that the control groups allow this process, by their time quota.
fn quota(root: &Root<'_>) -> Option<f64> {
    let of = |group: PathBuf| {
        let (quota, period) = match root.text(group.join("cpu.max")) {
            Some(text) => {
                let mut words = text.split_whitespace().map(str::parse);
                (words.next()?.ok()?, words.next()?.ok()?)
            }
            None => (
                root.number(group.join("cpu.cfs_quota_us"))? as f64,
                root.number(group.join("cpu.cfs_period_us"))? as f64,
            ),
        };
        let processors: f64 = quota / period;
        (processors.is_finite() && processors > 0.0).then_some(processors)
    };
    root.groups("cpu").into_iter().filter_map(of).min_by(f64::total_cmp)
}

/// The memory, or the part that the control groups allow this process.
fn memory_bytes(root: &Root<'_>, total: u64, notes: &mut Vec<String>) -> u64 {
    let total = total.clamp(1, MOST_BYTES);
    let limits = root.groups("memory").into_iter().filter_map(|group| memory_limit(root, &group));
    let nodes = root.names("sys/devices/system/node");
    let nodes = nodes.iter().filter(|name| numbered(name, "node")).count();
    if nodes > 1 {
        notes.push(format!("the {nodes} NUMA nodes are described as one memory"));
    }
    match limits.filter(|bytes| (1..total).contains(bytes)).min() {
        Some(bytes) => {
            notes.push(format!("{bytes} of {total} bytes of memory are allowed"));
            bytes
        }
        None => total,
    }
}

/// Directories of the packages' energy counters and limits.
fn packages(root: &Root<'_>) -> Vec<PathBuf> {
    let zones = root.names("sys/class/powercap").into_iter();
    let zones = zones.map(|zone| Path::new("sys/class/powercap").join(zone));
    let package = |zone: &PathBuf| {
        root.text(zone.join("name")).is_some_and(|name| name.starts_with("package"))
    };
    zones.filter(package).collect()
}

/// Watts of a busy core: its part of what the packages may draw for long.
fn busy_watts(root: &Root<'_>, cores: usize) -> Figure {
    let limit = |zone: &PathBuf| {
        let microwatts = root.number(zone.join("constraint_0_power_limit_uw"))?;
        Some(microwatts as f64 / 1e6).filter(|&watts| watts > 0.0 && WATTS.contains(watts))
    };
    let limits: Option<Vec<f64>> = packages(root).iter().map(limit).collect();
    match limits.filter(|limits| !limits.is_empty()) {
        Some(limits) => {
            let watts = (limits.iter().sum::<f64>() / cores as f64).max(1.0);
            guess(watts, [watts / 3.0, 2.0 * watts])
        }
        None => guess(5.0, [1.0, 15.0]),
    }
}

/// Watts of everything but the cores.
fn base_watts(root: &Root<'_>, cpuinfo: &str) -> Figure {
    let battery = root.names("sys/class/power_supply").iter().any(|name| name.starts_with("BAT"));
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    if flags.split_whitespace().any(|flag| flag == "hypervisor") {
        // A part of a machine that nobody knows.
        guess(20.0, [1.0, 150.0])
    } else if battery {
        guess(8.0, [3.0, 20.0])
    } else {
        guess(40.0, [10.0, 150.0])
    }
}

/// The GPUs of this machine, for users to add.
fn gpus(root: &Root<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for address in root.names("proc/driver/nvidia/gpus") {
        let about = root.text(format!("proc/driver/nvidia/gpus/{address}/information"));
        let model = field(about.as_deref().unwrap_or_default(), "Model").map(str::to_owned);
        names.push(model.unwrap_or("NVIDIA".to_owned()));
    }
    let named = !names.is_empty();
    for card in root.names("sys/class/drm").iter().filter(|name| numbered(name, "card")) {
        let id = |file| root.text(format!("sys/class/drm/{card}/device/{file}"));
        let (Some(vendor), Some(device)) = (id("vendor"), id("device")) else { continue };
        let vendor = match vendor.as_str() {
            "0x10de" if named => continue,
            "0x10de" => "NVIDIA",
            "0x1002" => "AMD",
            "0x8086" => "Intel",
            other => other,
        };
        names.push(format!("{vendor} device {device}"));
    }
    let note = |name| format!("a GPU is left out, because its figures are unknown: {name}");
    names.into_iter().map(note).collect()
}

fn guess(value: f64, [low, high]: [f64; 2]) -> Figure {
    Figure { value, low: low.min(value), high: high.max(value), from: Origin::Guess }
}

fn gigahertz(khz: u64) -> String {
    format!("{:.1} GHz", khz as f64 / 1e6)
}

/// `0-2,5` as the numbers 0, 1, 2 and 5.
fn ranges(text: &str) -> BTreeSet<u64> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.trim().parse().ok()?..=to.trim().parse::<u64>().ok()?)
    };
    // More than any machine has is nonsense.
    let sane = |range: &std::ops::RangeInclusive<u64>| *range.end() < 1 << 16;
    text.split(',').filter_map(range).filter(sane).flatten().collect()
}

/// Whether a name is a word with a number behind it.
fn numbered(name: &str, word: &str) -> bool {
    let digits = name.strip_prefix(word);
    digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A name that files may have, or a default if no character is left.
fn printable(text: &str, other: &str) -> String {
    let fits = |c: &char| !c.is_control() && !"/[]".contains(*c);
    let name: String = text.trim().chars().filter(fits).take(60).collect();
    if name.is_empty() { other.to_owned() } else { name }
}
