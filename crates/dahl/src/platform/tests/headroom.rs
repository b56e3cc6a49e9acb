//! The memory that processes may have, by directories of files.

use super::super::headroom;
use super::detect::Machine;
use crate::units::{Bytes, Headroom, MemoryBound};

const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable:    1024 kB\n");

/// The tightest bound, with what it is and what is in use.
#[track_caller]
fn check(name: &str, files: &[(&str, &str)], expected: Option<(MemoryBound, u64, u64)>) {
    let machine = Machine::new(&format!("headroom-{name}"), files);
    let expected = expected.map(|(bound, limit, used)| Headroom {
        bound,
        limit: Bytes(limit),
        used: Bytes(used),
    });
    assert_eq!(headroom(&machine.0), expected, "{name}");
}

#[test]
fn memory_is_left_as_far_as_the_machine_and_the_groups_have_it() {
    check("nothing", &[("proc/version", "Linux")], None);
    check("alone", &[MEMINFO], Some((MemoryBound::Machine, 4 << 20, 3 << 20)));
    let second = [
        MEMINFO,
        ("proc/self/cgroup", "0::/job/step\n"),
        ("sys/fs/cgroup/job/memory.max", "600000\n"),
        ("sys/fs/cgroup/job/memory.current", "500000\n"),
        ("sys/fs/cgroup/job/memory.stat", "anon 1\nactive_file 10000\ninactive_file 40000\n"),
        ("sys/fs/cgroup/job/step/memory.max", "max\n"),
        ("sys/fs/cgroup/job/step/memory.current", "500000\n"),
    ];
    check("second", &second, Some((MemoryBound::ControlGroup, 600_000, 450_000)));
    // A limit above what the machine has left says nothing.
    let mut wide = second;
    wide[2].1 = "9000000\n";
    check("wide", &wide, Some((MemoryBound::Machine, 4 << 20, 3 << 20)));
    let first = [
        MEMINFO,
        ("proc/self/cgroup", "5:cpu:/\n4:memory:/job\n"),
        ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "300000\n"),
        ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "200000\n"),
        ("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 7000\n"),
    ];
    check("first", &first, Some((MemoryBound::ControlGroup, 300_000, 193_000)));
    // More than is allowed is used already.
    let mut full = first;
    full[3].1 = "900000\n";
    check("full", &full, Some((MemoryBound::ControlGroup, 300_000, 893_000)));
}

/// A group with a limit of 600,000 bytes, seen in one place.
fn group(at: &str) -> [(String, &'static str); 2] {
    [(format!("{at}/memory.max"), "600000"), (format!("{at}/memory.current"), "1000")]
}

#[test]
fn groups_are_found_where_they_are_mounted() {
    let check = |name: &str, own: &str, mounts: &str, at: &str, expected: bool| {
        let group = group(at);
        let mut files = vec![MEMINFO, ("proc/self/cgroup", own), ("proc/self/mountinfo", mounts)];
        files.extend(group.iter().map(|(path, text)| (path.as_str(), *text)));
        let bound = match expected {
            true => (MemoryBound::ControlGroup, 600_000, 1000),
            false => (MemoryBound::Machine, 4 << 20, 3 << 20),
        };
        check(name, &files, Some(bound));
    };
    // Version 2 beside version 1, which has the memory.
    let hybrid = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    let own = "4:memory:/box/job\n1:cpu,cpuacct:/other\n0::/second\n";
    check("own", own, hybrid, "sys/fs/cgroup/memory/box/job", true);
    check("above", own, hybrid, "sys/fs/cgroup/memory/box", true);
    check("unified", own, hybrid, "sys/fs/cgroup/unified/second", true);
    check("unrelated", own, hybrid, "sys/fs/cgroup/memory/other", false);
    check("cpu", own, hybrid, "sys/fs/cgroup/cpu/other", false);
    // A container that sees its own group as the first, though the kernel names all above it.
    let inside = "35 31 0:32 /docker/a1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    check("container", "4:memory:/docker/a1\n", inside, "sys/fs/cgroup/memory", true);
    check("nested", "4:memory:/docker/a1/b\n", inside, "sys/fs/cgroup/memory/b", true);
    // Another container's group is not above this one, but nothing else is shown.
    check("foreign", "4:memory:/docker/a2\n", inside, "sys/fs/cgroup/memory", true);
    // A namespace of its own, and a place of its own with a space in its name.
    let elsewhere = "50 1 0:40 / /mnt/c\\040g rw master:1 propagate_from:2 - cgroup2 none rw\n";
    check("namespace", "0::/\n", elsewhere, "mnt/c g", true);
    check("namespace-below", "0::/a/b\n", elsewhere, "mnt/c g/a", true);
    // A group outside of the namespace is not looked for outside of the mount.
    check("outside", "0::/../x\n", elsewhere, "mnt/x", false);
    check("outside-shown", "0::/../x\n", elsewhere, "mnt/c g", true);
}

#[test]
fn limits_of_the_process_bound_it_too() {
    let limits = |space: &str, data: &str| {
        format!(
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max cpu time              unlimited            unlimited            seconds\n\
             Max data size             {data:<20} unlimited            bytes\n\
             Max address space         {space:<20} unlimited            bytes\n"
        )
    };
    let check = |name: &str, limits: &str, expected: (MemoryBound, u64, u64)| {
        let status = "Name:\tdahl\nVmSize:\t    2000 kB\nVmData:\t     500 kB\n";
        let files = [MEMINFO, ("proc/self/limits", limits), ("proc/self/status", status)];
        check(name, &files, Some(expected));
    };
    let machine = (MemoryBound::Machine, 4 << 20, 3 << 20);
    check("unlimited", &limits("unlimited", "unlimited"), machine);
    check(
        "space",
        &limits("3000000", "unlimited"),
        (MemoryBound::AddressSpace, 3_000_000, 2_048_000),
    );
    check("data", &limits("3000000", "600000"), (MemoryBound::Data, 600_000, 512_000));
    check("wide-limits", &limits("9000000", "9000000"), machine);
}
