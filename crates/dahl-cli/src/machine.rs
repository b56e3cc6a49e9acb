//! Which program ran on which machine, for those who read a run later.

use serde_json::{Value, json};

/// The version, the commit it was built from, and the machine.
pub(crate) fn about() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kib = memory.and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    // What a system does not tell is null.
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": env!("BUILD_COMMIT"),
        "machine": {
            "cpu": field(&read("/proc/cpuinfo"), "model name"),
            "processors": std::thread::available_parallelism().ok().map(usize::from),
            "memory_bytes": kib.map(|kib| kib * 1024),
            "os": std::env::consts::OS,
            "kernel": Some(kernel).filter(|kernel| !kernel.is_empty()),
            "architecture": std::env::consts::ARCH,
        },
    })
}
