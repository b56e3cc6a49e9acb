//! The energy counters of processors, as Linux shows them through powercap.
//!
//! A directory a domain: `intel-rapl:0` is a package and has `name`, `energy_uj` and
//! `max_energy_range_uj`; `intel-rapl:0:0` is a part of it. AMD's processors are shown
//! under the same names. `intel-rapl-mmio:*` shows the same counters again and is left out.

use super::{Covers, Meter, Source, Total};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// More watts than a domain can have: in a time in which so many would wrap the counter
/// around, it may have wrapped around twice.
const MOST_WATTS: f64 = 2000.0;

/// The domains of a powercap directory. One that is listed and cannot be read misses all
/// the time, so that sums over packages say that they are not whole.
#[derive(Debug)]
pub struct Rapl {
    domains: Vec<Domain>,
    readable: bool,
}

#[derive(Debug)]
struct Domain {
    energy: PathBuf,
    /// The largest microjoules before it starts from 0; `None` where that is not known.
    range: Option<u64>,
    total: Total,
    /// When it was looked at last, and what it said, if it did.
    last: Option<(Instant, Option<u64>)>,
}

impl Rapl {
    /// Opens the domains below a directory, such as `/sys/class/powercap`, and says what
    /// cannot be read and what to do about it.
    pub fn open(root: &Path) -> (Self, Vec<String>) {
        let mut notes = Vec::new();
        let entries = match fs::read_dir(root) {
            Ok(entries) => entries,
            Err(error) => {
                notes.push(format!(
                    "{}: {error}: no counters of the processor; on your own machine: \
                     sudo modprobe intel_rapl_msr (Intel, and AMD since Linux 5.8); virtual \
                     machines have none",
                    root.display()
                ));
                return (Self { domains: Vec::new(), readable: false }, notes);
            }
        };
        let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|n| n.starts_with("intel-rapl:")).collect();
        names.sort();
        let domains: Vec<Domain> = names.iter().map(|name| open(root, name)).collect();
        let mut readable = false;
        for domain in &domains {
            let file = domain.energy.display();
            match microjoules(&domain.energy) {
                Ok(_) => readable = true,
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    notes.push(format!(
                        "{file}: {error}: to make it readable for all users until the next reboot: sudo \
                         chmod a+r {file}"
                    ));
                }
                Err(error) => {
                    notes.push(format!("{file}: {error}: {} is not in the sums", domain.total.name))
                }
            }
        }
        if names.is_empty() {
            notes.push(format!(
                "{}: no intel-rapl:N in it: no counters of the processor; sudo modprobe \
                 intel_rapl_msr may bring them",
                root.display()
            ));
        }
        (Self { domains, readable }, notes)
    }

    /// Whether there was nothing to read when it was opened.
    pub fn is_empty(&self) -> bool {
        !self.readable
    }
}

/// `package-0`, or `package-0/core` for a part of it; the entry's own name where it does not
/// tell another.
fn open(root: &Path, entry: &str) -> Domain {
    let text = |path: PathBuf| fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
    let path = root.join(entry);
    let own = text(path.join("name")).unwrap_or_else(|| entry.to_owned());
    let parent = entry.rsplit_once(':').map(|(parent, _)| parent).filter(|p| p.contains(':'));
    let name = match parent.map(|parent| text(root.join(parent).join("name"))) {
        Some(Some(parent)) => format!("{parent}/{own}"),
        Some(None) => format!("{entry}/{own}"),
        None => own.clone(),
    };
    let covers = match own.as_str() {
        "psys" => Covers::Machine,
        "dram" => Covers::Memory,
        _ if parent.is_some() => Covers::Part,
        _ => Covers::Package,
    };
    let energy = path.join("energy_uj");
    let range = text(path.join("max_energy_range_uj")).and_then(|text| text.parse().ok());
    Domain { energy, range, total: Total::new(name, Source::Rapl, covers), last: None }
}

fn microjoules(path: &Path) -> std::io::Result<u64> {
    let text = fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| std::io::Error::from(ErrorKind::InvalidData))
}

impl Domain {
    fn read(&mut self, now: Instant) {
        let (file, found) = (self.energy.display(), microjoules(&self.energy));
        if let Some((then, before)) = self.last {
            let time = now.saturating_duration_since(then);
            match (before, &found) {
                (_, Err(error)) => self.total.miss(time, format_args!("{file}: {error}")),
                // What it says when it is back has nothing to do with what it said.
                (None, Ok(_)) => self.total.miss(time, format_args!("{file} was gone")),
                (Some(before), &Ok(uj)) => match spent([before, uj], self.range, time) {
                    Some(spent) => self.total.add(spent as f64 * 1e-6, time),
                    None => {
                        let why = "may have wrapped around more than once";
                        self.total.miss(time, format_args!("{file} {why}"));
                    }
                },
            }
        }
        self.last = Some((now, found.ok()));
    }
}

/// Microjoules between two readings; `None` where the counter may have gone around and come
/// by the first one again.
fn spent([before, now]: [u64; 2], range: Option<u64>, time: Duration) -> Option<u64> {
    let Some(range) = range else { return now.checked_sub(before) };
    if time.as_secs_f64() * MOST_WATTS * 1e6 >= range as f64 {
        return None;
    }
    match now >= before {
        true => Some(now - before),
        false => Some(now + range.checked_sub(before)?),
    }
}

impl Meter for Rapl {
    fn read(&mut self, now: Instant) -> Vec<Total> {
        self.domains.iter_mut().for_each(|domain| domain.read(now));
        self.domains.iter().map(|domain| domain.total.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A powercap directory of one's own.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("dahl-rapl-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn domain(&self, entry: &str, name: &str, uj: u64, range: u64) {
            let path = self.0.join(entry);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("name"), format!("{name}\n")).unwrap();
            fs::write(path.join("energy_uj"), format!("{uj}\n")).unwrap();
            fs::write(path.join("max_energy_range_uj"), format!("{range}\n")).unwrap();
        }

        fn set(&self, entry: &str, uj: u64) {
            fs::write(self.0.join(entry).join("energy_uj"), uj.to_string()).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn joules(totals: &[Total]) -> Vec<(&str, f64)> {
        totals.iter().map(|t| (t.name.as_str(), (t.joules * 1e6).round() / 1e6)).collect()
    }

    #[test]
    fn packages_and_their_parts_are_read_and_wrap_around() {
        let tree = Tree::new("wrap");
        tree.domain("intel-rapl:0", "package-0", 900_000_000, 1_000_000_000);
        tree.domain("intel-rapl:0:0", "core", 5, 1_000_000_000);
        tree.domain("intel-rapl:0:1", "dram", 0, 1_000_000_000);
        tree.domain("intel-rapl:1", "package-1", 10, 1_000_000_000);
        tree.domain("intel-rapl:2", "psys", 10, 1_000_000_000);
        tree.domain("intel-rapl-mmio:0", "package-0", 10, 1_000_000_000);
        let (mut rapl, notes) = Rapl::open(&tree.0);
        assert_eq!(notes, Vec::<String>::new());
        let begin = Instant::now();
        rapl.read(begin);
        tree.set("intel-rapl:0", 50_000_000);
        tree.set("intel-rapl:0:0", 2_000_005);
        tree.set("intel-rapl:0:1", 3_000_000);
        tree.set("intel-rapl:1", 4_000_010);
        let totals = rapl.read(begin + Duration::from_millis(100));
        // 100 J up to the end of the range and 50 from its beginning.
        let expected = [
            ("package-0", 150.0),
            ("package-0/core", 2.0),
            ("package-0/dram", 3.0),
            ("package-1", 4.0),
            ("psys", 0.0),
        ];
        assert_eq!(joules(&totals), expected);
        let covers: Vec<Covers> = totals.iter().map(|t| t.covers).collect();
        use Covers::{Machine, Memory, Package, Part};
        assert_eq!(covers, [Package, Part, Memory, Package, Machine]);
        assert!(totals.iter().all(|t| !t.is_partial() && (t.seconds - 0.1).abs() < 1e-9));
        let board = super::super::widest(&totals).unwrap();
        assert_eq!((board.joules().0, board.of[0].name.as_str()), (0.0, "psys"));
    }

    #[test]
    fn what_may_have_wrapped_twice_is_missed() {
        let tree = Tree::new("twice");
        tree.domain("intel-rapl:0", "package-0", 900, 1_000_000_000);
        let (mut rapl, _) = Rapl::open(&tree.0);
        let begin = Instant::now();
        rapl.read(begin);
        tree.set("intel-rapl:0", 100);
        let total = rapl.read(begin + Duration::from_secs(60)).remove(0);
        assert_eq!((total.joules, total.missed), (0.0, 60.0));
        assert!(total.why.unwrap().contains("more than once"));
        // A counter that reads more may have gone around too.
        tree.set("intel-rapl:0", 200);
        let total = rapl.read(begin + Duration::from_secs(120)).remove(0);
        assert_eq!((total.joules, total.missed), (0.0, 120.0));
    }

    #[test]
    fn a_domain_that_vanishes_is_partial() {
        let tree = Tree::new("gone");
        tree.domain("intel-rapl:0", "package-0", 0, 262_143_000_000);
        let (mut rapl, _) = Rapl::open(&tree.0);
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        rapl.read(at(0));
        tree.set("intel-rapl:0", 5_000_000);
        rapl.read(at(1));
        fs::remove_file(tree.0.join("intel-rapl:0/energy_uj")).unwrap();
        rapl.read(at(2));
        // It comes back as something else: what it says counts from there.
        tree.set("intel-rapl:0", 700_000_000);
        rapl.read(at(3));
        tree.set("intel-rapl:0", 701_000_000);
        let total = rapl.read(at(4)).remove(0);
        assert_eq!((total.joules, total.seconds, total.missed), (6.0, 2.0, 2.0));
        assert!(total.is_partial() && total.why.is_some());
    }

    #[test]
    fn what_cannot_be_read_says_what_to_do() {
        let tree = Tree::new("hints");
        let (rapl, notes) = Rapl::open(&tree.0.join("none"));
        assert!(rapl.is_empty() && notes[0].contains("sudo modprobe"), "{notes:?}");
        let (rapl, notes) = Rapl::open(&tree.0);
        assert!(rapl.is_empty() && notes[0].contains("no intel-rapl:N"), "{notes:?}");
        tree.domain("intel-rapl:0", "package-0", 1, 1_000);
        fs::write(tree.0.join("intel-rapl:0/energy_uj"), "many\n").unwrap();
        let (rapl, notes) = Rapl::open(&tree.0);
        assert!(rapl.is_empty() && notes[0].contains("package-0 is not in the sums"), "{notes:?}");
    }

    #[test]
    fn a_package_that_cannot_be_read_makes_the_sum_partial() {
        let tree = Tree::new("unread");
        tree.domain("intel-rapl:0", "package-0", 0, 262_143_000_000);
        tree.domain("intel-rapl:1", "package-1", 0, 262_143_000_000);
        fs::write(tree.0.join("intel-rapl:1/energy_uj"), "many\n").unwrap();
        let (mut rapl, notes) = Rapl::open(&tree.0);
        assert!(!rapl.is_empty() && notes[0].contains("package-1 is not in the sums"), "{notes:?}");
        let begin = Instant::now();
        rapl.read(begin);
        tree.set("intel-rapl:0", 5_000_000);
        let totals = rapl.read(begin + Duration::from_secs(1));
        let sum = super::super::widest(&totals).unwrap();
        assert_eq!((sum.joules().0, sum.of.len(), sum.missed()), (5.0, 2, 1.0));
        assert!(totals[1].is_partial() && totals[1].seconds == 0.0);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_of_root_alone_is_named_with_its_command() {
        use std::os::unix::fs::PermissionsExt;
        let tree = Tree::new("denied");
        tree.domain("intel-rapl:0", "package-0", 1, 1_000);
        let file = tree.0.join("intel-rapl:0/energy_uj");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o0)).unwrap();
        if fs::read(&file).is_ok() {
            eprintln!("skipped: this user reads every file");
            return;
        }
        let (rapl, notes) = Rapl::open(&tree.0);
        let hint = format!("sudo chmod a+r {}", file.display());
        assert!(rapl.is_empty() && notes[0].contains(&hint), "{notes:?}");
    }
}
