//! Whom a recording is of: processes and all below them, a control group, or the whole machine.

use super::cgroup::Cgroup;
use super::{threads, tree};
use crate::pids;
use crate::source::SourceError;

/// Whom to record.
#[derive(Debug, Clone)]
pub enum Whom {
    /// These processes, and all that they and their children started.
    Tree(Vec<i32>),
    /// All processes of a control group.
    Cgroup(Cgroup),
    /// All processes.
    Machine,
}

impl Whom {
    /// The processes with these ids.
    ///
    /// # Errors
    /// Which of them can't be recorded, and why.
    pub fn processes(pids: Vec<i32>) -> Result<Whom, SourceError> {
        pids.iter()
            .try_for_each(|&pid| threads::check_exists(pid))?;
        Ok(Whom::Tree(pids))
    }

    /// All processes with this name, or whose program has it.
    ///
    /// # Errors
    /// That there is none.
    pub fn named(name: &str) -> Result<Whom, SourceError> {
        match tree::named(name) {
            pids if pids.is_empty() => Err(SourceError(format!(
                "no process is called `{name}`, and none runs a program of that name; \
                 `ps -e` lists them"
            ))),
            pids => Ok(Whom::Tree(pids)),
        }
    }

    /// The processes that are there.
    pub fn pids(&self) -> Vec<i32> {
        match self {
            Whom::Tree(pids) => tree::below(pids),
            Whom::Cgroup(cgroup) => cgroup.pids(),
            Whom::Machine => pids::all(),
        }
    }

    /// Whether processes may join of which no record tells.
    pub fn takes_in(&self) -> bool {
        matches!(self, Whom::Cgroup(_))
    }

    /// The id of its first process; 0 where it is no matter of single ones.
    pub fn id(&self) -> i32 {
        match self {
            Whom::Tree(pids) => pids.first().copied().unwrap_or(0),
            Whom::Cgroup(cgroup) => cgroup.pids().first().copied().unwrap_or(0),
            Whom::Machine => 0,
        }
    }

    /// What a recording calls it.
    pub fn name(&self) -> String {
        match self {
            Whom::Tree(pids) => {
                let mut names: Vec<String> =
                    pids.iter().map(|&pid| threads::name(pid, pid)).collect();
                names.dedup();
                names.truncate(8);
                names.join(", ")
            }
            Whom::Cgroup(cgroup) => cgroup.path().display().to_string(),
            Whom::Machine => "all processes".into(),
        }
    }

    /// What messages call it.
    pub fn described(&self) -> String {
        match self {
            Whom::Tree(pids) => match &pids[..] {
                [pid] => format!("process {pid}"),
                pids => {
                    let pids: Vec<String> = pids.iter().take(8).map(i32::to_string).collect();
                    format!("processes {}", pids.join(", "))
                }
            },
            Whom::Cgroup(cgroup) => format!("cgroup {}", cgroup.path().display()),
            Whom::Machine => "the machine".into(),
        }
    }
}
