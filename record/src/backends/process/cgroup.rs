//! Control groups (cgroups(7)) of both versions: finds them and lists their processes.

use crate::source::SourceError;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Most groups below a group.
const MOST_GROUPS: usize = 4096;
/// Most bytes read of a list of processes.
const MOST_LIST_BYTES: u64 = 1 << 20;

/// A control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// The group named by `name`: a folder, or a path below a mounted hierarchy, as in `/proc/PID/cgroup`. Version 2
    /// takes precedence.
    ///
    /// # Errors
    /// There is no such group.
    pub fn find(name: &str) -> Result<Cgroup, SourceError> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let given = Path::new(name);
        let below = name.trim_start_matches('/');
        let candidates = std::iter::once(given.to_path_buf())
            .filter(|path| path.is_absolute())
            .chain(hierarchies(&mounts).map(|mounted| mounted.join(below)));
        let mut found = candidates.filter(|path| path.join(PROCS).is_file());
        match found.next() {
            Some(path) if !name.is_empty() => Ok(Cgroup(path)),
            _ => Err(SourceError(format!(
                "no cgroup `{name}`: give its folder, such as /sys/fs/cgroup/system.slice/nginx.service, \
                 or its path as /proc/PID/cgroup shows it"
            ))),
        }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Opens the folder, whose descriptor selects the group for perf events.
    pub fn open(&self) -> std::io::Result<File> {
        File::open(&self.0)
    }

    /// Whether it was removed.
    pub fn is_gone(&self) -> bool {
        !self.0.exists()
    }

    /// The processes in it and in the groups below it.
    pub fn pids(&self) -> Vec<i32> {
        let mut groups = vec![self.0.clone()];
        let mut pids = Vec::new();
        let mut next = 0;
        while let Some(group) = groups.get(next).cloned() {
            pids.extend(listed(&group.join(PROCS)));
            let entries = std::fs::read_dir(&group).into_iter().flatten().flatten();
            let room = MOST_GROUPS.saturating_sub(groups.len());
            let is_folder =
                |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            groups.extend(
                entries
                    .filter(is_folder)
                    .map(|entry| entry.path())
                    .take(room),
            );
            next += 1;
        }
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

const PROCS: &str = "cgroup.procs";

fn listed(file: &Path) -> Vec<i32> {
    let mut text = String::new();
    if let Ok(file) = File::open(file) {
        let _ = std::io::Read::read_to_string(
            &mut std::io::Read::take(file, MOST_LIST_BYTES),
            &mut text,
        );
    }
    // 0 is a process outside this namespace.
    let pids = text.lines().filter_map(|line| line.parse().ok());
    pids.filter(|&pid: &i32| pid > 0).collect()
}

/// The mount points of hierarchies, version 2 first.
fn hierarchies(mounts: &str) -> impl Iterator<Item = PathBuf> + '_ {
    let of_kind = move |kind: &'static str| {
        mounts.lines().filter_map(move |line| {
            let mut fields = line.split(' ');
            let (_, folder, found) = (fields.next()?, fields.next()?, fields.next()?);
            (found == kind).then(|| PathBuf::from(folder))
        })
    };
    of_kind("cgroup2").chain(of_kind("cgroup"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions() {
        let mounts = "proc /proc proc rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\nnonsense\n";
        let found: Vec<PathBuf> = hierarchies(mounts).collect();
        let expected = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    /// Plain folders stand in for groups.
    #[test]
    fn groups_below_a_group_up_to_the_last_and_past_it() {
        let folder = tempfile::tempdir().unwrap();
        let add = |pid: usize| {
            let group = folder.path().join(pid.to_string());
            std::fs::create_dir(&group).unwrap();
            std::fs::write(group.join(PROCS), format!("{pid}\n")).unwrap();
        };
        let group = Cgroup(folder.path().to_path_buf());
        (2..=MOST_GROUPS).for_each(add);
        assert_eq!(group.pids().len(), MOST_GROUPS - 1);
        add(MOST_GROUPS + 1);
        assert_eq!(group.pids().len(), MOST_GROUPS - 1);
    }

    #[test]
    fn groups_that_are_none() {
        for name in ["", "no/such/group", "/etc", "/proc/self/mounts"] {
            let error = Cgroup::find(name).unwrap_err().to_string();
            assert!(error.contains("no cgroup"), "{error}");
        }
    }
}
