//! The bounds on the memory of this process, and its use.

use super::root::{Root, kibibytes};
use crate::units::{Bytes, Headroom, MemoryBound};
use std::path::Path;

/// Limits of a process: their names in `limits`, and what counts in `status`.
const LIMITS: [(&str, &str, MemoryBound); 2] = [
    ("Max address space", "VmSize", MemoryBound::AddressSpace),
    ("Max data size", "VmData", MemoryBound::Data),
];

/// The tightest bound on the memory of this process, by the files in `root`, which is `/` for
/// this machine: what the machine has, what the control groups allow that the process is in,
/// and its own limits. `None` where no file tells.
///
/// Pages of files can be dropped and do not count as used. Swap does not count: a plan that
/// does not fit into memory would wait for the disk at every step.
pub fn headroom(root: &Path) -> Option<Headroom> {
    let root = Root(root);
    let meminfo = root.text("proc/meminfo").unwrap_or_default();
    let machine = kibibytes(&meminfo, "MemTotal").zip(kibibytes(&meminfo, "MemAvailable"));
    let machine = machine.map(|(limit, left)| (limit, limit.saturating_sub(left)));
    let groups = root.groups("memory");
    let groups = groups.iter().filter_map(|group| of_group(&root, group));
    let limits = root.text("proc/self/limits").unwrap_or_default();
    let status = root.text("proc/self/status").unwrap_or_default();
    let own = LIMITS.iter().filter_map(|(name, used, bound)| {
        let limit = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let limit = limit.split_whitespace().next()?.parse().ok()?;
        Some((*bound, (limit, kibibytes(&status, used)?)))
    });
    let all = machine.into_iter().map(|bytes| (MemoryBound::Machine, bytes));
    let all = all.chain(groups.map(|bytes| (MemoryBound::ControlGroup, bytes))).chain(own);
    let all = all.map(|(bound, (limit, used))| Headroom {
        bound,
        limit: Bytes(limit),
        used: Bytes(used),
    });
    all.min_by_key(Headroom::left)
}

/// Limit and use of a control group, in bytes.
fn of_group(root: &Root<'_>, group: &Path) -> Option<(u64, u64)> {
    let used = root
        .number(group.join("memory.current"))
        .or_else(|| root.number(group.join("memory.usage_in_bytes")))?;
    let stat = root.text(group.join("memory.stat")).unwrap_or_default();
    let files = [file_pages(&stat, "active_file"), file_pages(&stat, "inactive_file")];
    let used = used.saturating_sub(files.into_iter().flatten().sum());
    Some((memory_limit(root, group)?, used))
}

/// The memory limit of a control group, in bytes.
pub(super) fn memory_limit(root: &Root<'_>, group: &Path) -> Option<u64> {
    let limit = root.number(group.join("memory.max"));
    limit.or_else(|| root.number(group.join("memory.limit_in_bytes")))
}

/// A number of `memory.stat`; of the groups below too, which version 1 counts apart.
fn file_pages(stat: &str, name: &str) -> Option<u64> {
    let of = |name: &str| {
        let words = stat.lines().filter_map(|line| line.split_once(' '));
        words.filter(|(word, _)| *word == name).find_map(|(_, number)| number.parse().ok())
    };
    of(&format!("total_{name}")).or_else(|| of(name))
}
