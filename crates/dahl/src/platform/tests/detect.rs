//! Machines as directories of files.

use super::super::{Detected, Platform, detect};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory with the files of a machine, removed at the end.
pub(super) struct Machine(pub(super) PathBuf);

impl Machine {
    pub(super) fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("dahl-machine-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        Self(root)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What was found, in a few lines.
fn summary(found: &Detected, root: &Path) -> String {
    let node = &found.platform.nodes[0];
    let mut text = format!("{}: {}, {} W\n", found.platform.name, node.name, node.base_watts.value);
    for unit in &node.units {
        let _ = write!(
            text,
            "{} x {} ({}), speed {:.2}, {} W",
            unit.count, unit.name, unit.kind, unit.speed.value, unit.busy_watts.value
        );
        for state in &unit.states {
            let (speed, watts) = (state.speed.value, state.busy_watts.value);
            let _ = write!(text, "; {} {speed:.2} {watts:.2} W", state.name);
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{} B", node.memories[0].bytes);
    found.notes.iter().for_each(|note| text += &format!("{note}\n"));
    for counter in &found.counters {
        let _ = writeln!(text, "{}", counter.strip_prefix(root).expect("inside").display());
    }
    text
}

#[track_caller]
fn check(name: &str, files: &[(&str, &str)], expected: &str) {
    let machine = Machine::new(name, files);
    let found = detect(&machine.0).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(summary(&found, &machine.0), expected, "{name}");
    // What is found is a platform that can be stored.
    let again = Platform::parse("found.toml", &found.platform.to_toml());
    assert_eq!(again.unwrap_or_else(|e| panic!("{e}")), found.platform);
}

/// Processors with their package and core, as `proc/cpuinfo` has them.
fn cpuinfo(model: &str, flags: &str, processors: &[(usize, usize)]) -> String {
    let mut text = String::new();
    for (id, (package, core)) in processors.iter().enumerate() {
        let _ = write!(
            text,
            "processor\t: {id}\nmodel name\t: {model}\nphysical id\t: {package}\n\
             core id\t\t: {core}\nflags\t\t: fpu {flags}\n\n"
        );
    }
    text
}

#[test]
fn a_bare_machine() {
    let cpu = cpuinfo("Old One", "sse2", &[(0, 0), (0, 1)]);
    let files = [("proc/cpuinfo", &*cpu), ("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 1 kB\n")];
    check(
        "bare",
        &files,
        "Old One: machine, 40 W\n2 x core (cpu-portable), speed 1.00, 5 W\n4194304 B\n",
    );
}

#[test]
fn a_laptop_of_unequal_cores() {
    // Two fast cores of two threads each, one of them a little faster, and two slow ones.
    let cpu = cpuinfo("Laptop CPU", "avx2 fma", &[(0, 0), (0, 0), (0, 1), (0, 1), (0, 2), (0, 3)]);
    let gpu = "proc/driver/nvidia/gpus/0000:01:00.0/information";
    let mut files = vec![
        ("proc/cpuinfo", &*cpu),
        ("proc/meminfo", "MemTotal:       16000000 kB\n"),
        ("proc/sys/kernel/hostname", "travel\n"),
        ("sys/class/power_supply/BAT0/status", "Full\n"),
        ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
        ("sys/class/powercap/intel-rapl:0/energy_uj", "1234\n"),
        ("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "28000000\n"),
        ("sys/class/powercap/intel-rapl:0:0/name", "core\n"),
        ("sys/class/powercap/intel-rapl:0:0/energy_uj", "1000\n"),
        (gpu, "Model: \t\t NVIDIA GeForce RTX 3050\nIRQ: 1\n"),
        ("sys/class/drm/card0/device/vendor", "0x8086\n"),
        ("sys/class/drm/card0/device/device", "0x46a6\n"),
        ("sys/class/drm/card0-eDP-1/status", "connected\n"),
        ("sys/class/drm/card1/device/vendor", "0x10de\n"),
        ("sys/class/drm/card1/device/device", "0x25a2\n"),
    ];
    let cpus: Vec<[String; 2]> = (0..6)
        .map(|id| {
            let file = |name: &str| format!("sys/devices/system/cpu/cpu{id}/cpufreq/{name}");
            [file("cpuinfo_min_freq"), file("cpuinfo_max_freq")]
        })
        .collect();
    let most = ["4700000", "4700000", "4500000", "4500000", "3300000", "3300000"];
    for (files_of, most) in cpus.iter().zip(most) {
        files.extend([(&*files_of[0], "400000\n"), (&*files_of[1], most)]);
    }
    let expected = "\
Laptop CPU: travel, 8 W
2 x core of 4.7 GHz (cpu-avx2), speed 1.00, 7 W; 0.4 GHz 0.09 0.60 W
2 x core of 3.3 GHz (cpu-avx2), speed 0.70, 7 W; 0.4 GHz 0.12 0.85 W
16384000000 B
6 threads on 4 cores: a unit is a core
a GPU is left out, because its figures are unknown: NVIDIA GeForce RTX 3050
a GPU is left out, because its figures are unknown: Intel device 0x46a6
sys/class/powercap/intel-rapl:0
";
    check("laptop", &files, expected);
}

#[test]
fn limits_of_the_process_count() {
    // Two packages of two cores, two threads each; the second package is not ours.
    let all = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0), (0, 1), (1, 0), (1, 1)];
    let cpu = cpuinfo("Server CPU", "fma avx2 avx512f", &all);
    let files = [
        ("proc/cpuinfo", &*cpu),
        ("proc/meminfo", "MemTotal: 1048576 kB"),
        ("proc/self/status", "Name:\tdahl\nCpus_allowed_list:\t0-1,4\n"),
        ("sys/devices/system/node/node0/meminfo", ""),
        ("sys/devices/system/node/node1/meminfo", ""),
        ("sys/class/powercap/intel-rapl:0/name", "package-0\n"),
        ("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "60000000\n"),
        ("sys/class/powercap/intel-rapl:1/name", "package-1\n"),
        ("sys/class/powercap/intel-rapl:1/constraint_0_power_limit_uw", "60000000\n"),
    ];
    let two = "\
Server CPU: machine, 40 W
2 x core (cpu-avx512), speed 1.00, 30 W
1073741824 B
3 threads on 2 cores: a unit is a core
the 2 NUMA nodes are described as one memory
";
    check("affinity", &files, two);

    let one = |group: &[(&str, &str)], name: &str| {
        let files = [&files[..3], group].concat();
        let expected = "\
Server CPU: machine, 40 W
1 x core (cpu-avx512), speed 1.00, 5 W
536870912 B
3 threads on 2 cores: a unit is a core
1.5 processors of 2 cores are allowed: 1 units
536870912 of 1073741824 bytes of memory are allowed
";
        check(name, &files, expected);
    };
    one(
        &[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "536870912\n"),
            ("sys/fs/cgroup/memory.max", "max\n"),
        ],
        "cgroup2",
    );
    one(
        &[
            ("proc/self/cgroup", "4:memory:/box\n3:cpu,cpuacct:/box\n1:name=systemd:/\n"),
            ("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "75000\n"),
            ("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "50000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "536870912\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ],
        "cgroup1",
    );
}

#[test]
fn a_board_without_names() {
    let cpu = "processor\t: 0\nFeatures\t: fp asimd\n\nprocessor\t: 1\nFeatures\t: fp asimd\n";
    let files = [
        ("proc/cpuinfo", cpu),
        ("proc/meminfo", "MemTotal: 1024 kB"),
        ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "-1\n"),
        ("sys/class/drm/card0/device/uevent", "DRIVER=vc4\n"),
    ];
    check(
        "board",
        &files,
        "processors: machine, 40 W\n2 x core (cpu-neon), speed 1.00, 5 W\n1048576 B\n",
    );
}

#[test]
fn other_systems_are_refused() {
    for files in
        [&[("proc/cpuinfo", "")][..], &[("proc/meminfo", "MemTotal: 1 kB")], &[("etc/os", "")]]
    {
        let machine = Machine::new("other", files);
        let error = detect(&machine.0).expect_err("no machine").to_string();
        assert!(error.starts_with("not supported: detecting a machine without"), "{error}");
    }
}
