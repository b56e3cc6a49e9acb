//! The files of a Linux machine, and the control groups of this process.

use std::path::{Component, Path, PathBuf};

/// A directory with the files of Linux.
pub(super) struct Root<'a>(pub(super) &'a Path);

impl Root<'_> {
    pub(super) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        // Paths in its files start at the root too.
        let path = path.as_ref();
        let path = self.0.join(path.strip_prefix("/").unwrap_or(path));
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.trim_end().to_owned())
    }

    pub(super) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.trim().parse().ok()
    }

    /// The names in a directory, sorted.
    pub(super) fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.join(directory)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The directories of the control groups that this process is in: its own and all above
    /// it, of version 2 and, for one controller, of version 1.
    pub(super) fn groups(&self, controller: &str) -> Vec<PathBuf> {
        let mountinfo = self.text("proc/self/mountinfo").unwrap_or_default();
        let mut found = Vec::new();
        for line in self.text("proc/self/cgroup").unwrap_or_default().lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(of), Some(own)) = (fields.next(), fields.next()) else { continue };
            let hierarchy = match of {
                "" => Hierarchy::Second,
                of if of.split(',').any(|one| one == controller) => Hierarchy::First(controller),
                _ => continue,
            };
            let own = Path::new(own);
            let mounts = mountinfo.lines().filter_map(|line| Mount::parse(line, hierarchy));
            // Of several the one that shows the least besides.
            let mount = mounts.max_by_key(|mount| mount.below(own).map(|_| mount.group.clone()));
            let mount = mount.unwrap_or_else(|| Mount::usual(hierarchy));
            // A mount that does not show the group shows one above it.
            let below = mount.below(own).unwrap_or(Path::new(""));
            found.extend(below.ancestors().map(|group| mount.point.join(group)));
        }
        found
    }
}

/// A hierarchy of control groups.
#[derive(Clone, Copy)]
enum Hierarchy<'a> {
    /// That of a controller, in version 1.
    First(&'a str),
    /// That of all controllers, in version 2.
    Second,
}

/// Where a hierarchy is mounted.
struct Mount {
    /// The group whose directory the mount point is: in a container maybe not the first.
    group: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// Where systems mount it that do not tell.
    fn usual(hierarchy: Hierarchy<'_>) -> Self {
        let point = match hierarchy {
            Hierarchy::First(controller) => Path::new("/sys/fs/cgroup").join(controller),
            Hierarchy::Second => PathBuf::from("/sys/fs/cgroup"),
        };
        Self { group: PathBuf::from("/"), point }
    }

    /// From a line of `mountinfo`: `35 31 0:32 /group /point rw shared:7 - cgroup cgroup
    /// rw,memory`, where the fields before the dash vary in number.
    fn parse(line: &str, hierarchy: Hierarchy<'_>) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let fits = match hierarchy {
            Hierarchy::First(of) => kind == "cgroup" && options.split(',').any(|one| one == of),
            Hierarchy::Second => kind == "cgroup2",
        };
        let mut mount = mount.split(' ').skip(3).map(unescaped);
        fits.then_some(Self { group: mount.next()?.into(), point: mount.next()?.into() })
    }

    /// A group as seen from the mount point; none where it is not below it.
    fn below<'a>(&self, group: &'a Path) -> Option<&'a Path> {
        let below = group.strip_prefix(&self.group).ok()?;
        below.components().all(|part| matches!(part, Component::Normal(_))).then_some(below)
    }
}

/// A path of `mountinfo`, which writes spaces and the like as `\040`.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => path.push(code.into()),
            None => path.push('\\'),
        }
        path += &part[if code.is_some() { 3 } else { 0 }..];
    }
    path
}

/// The value of the first line `key : value`.
pub(super) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.trim(), value.trim())).find(|f| f.0 == key).map(|f| f.1)
}

/// The value of a line `key: 12 kB`, in bytes.
pub(super) fn kibibytes(text: &str, key: &str) -> Option<u64> {
    let kib: u64 = field(text, key)?.strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}
