//! The threads of a process, from `/proc`.

use super::stat;
use crate::source::SourceError;
use uprof::Task;
use uprof::cold::{ModuleEvent, TaskEvent};

/// Thread ids of process `pid`, in order; empty when it is gone.
pub fn of(pid: i32) -> Vec<i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task"));
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let mut tids: Vec<i32> = names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect();
    tids.sort_unstable();
    tids
}

/// The running child processes of `pid`.
pub fn children(pid: i32) -> Vec<i32> {
    let read = |tid| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
    let lists: Vec<String> = of(pid)
        .into_iter()
        .filter_map(|tid| read(tid).ok())
        .collect();
    lists
        .iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Name of a thread (at most 15 bytes, `comm`); empty when it is gone.
pub fn name(pid: i32, tid: i32) -> String {
    let comm = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&comm).trim_end().to_string()
}

/// The current threads, as events at `now_ns`.
pub fn events(pid: i32, now_ns: u64) -> Vec<TaskEvent> {
    let event = |tid: i32| {
        let (space, vcpu) = (pid as u32, tid as u32);
        TaskEvent::named(now_ns, Task { space, vcpu }, name(pid, tid))
    };
    of(pid).into_iter().map(event).collect()
}

/// The current code mappings, as events at `now_ns`.
pub fn module_events(pid: i32, now_ns: u64) -> Vec<ModuleEvent> {
    let mappings = super::maps::executable(pid).into_iter();
    let events = mappings.map(|mapping| ModuleEvent::mapped(now_ns, pid as u32, mapping));
    events.collect()
}

/// Makes sure that `pid` is a process that can be recorded.
///
/// # Errors
/// Says why it can't be recorded, for example because the id is that of a thread.
pub fn check_exists(pid: i32) -> Result<(), SourceError> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| {
        SourceError(format!(
            "no process {pid}: it has ended, or never was; `ps -e` lists them"
        ))
    })?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(|value| value.trim().to_string())
    };
    let leader = field("Tgid:").unwrap_or_default();
    if leader != pid.to_string() {
        return Err(SourceError(format!(
            "{pid} is a thread of process {leader}: record pid:{leader} instead"
        )));
    }
    if !stat::is_running(pid) {
        return Err(SourceError(format!(
            "process {pid} has ended already (its parent has not noticed)"
        )));
    }
    if std::fs::read_link(format!("/proc/{pid}/exe"))
        .is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT))
    {
        if stat::of(pid).is_some_and(|stat| stat.threads > 1) {
            return Err(SourceError(format!(
                "the first thread of process {pid} has ended, and what it ran can't be read any more, though others \
                 run: start the program with `uniprof record -- PROGRAM`"
            )));
        }
        return Err(SourceError(format!(
            "{pid} is a kernel thread, which has no program to record"
        )));
    }
    Ok(())
}
