//! The scope of a recording of processes: some processes and their descendants, a control group, or the whole machine.

use super::cgroup::Cgroup;
use super::{threads, tree};
use crate::source::SourceError;
use crate::sys::pids;

/// The processes that a recording covers.
#[derive(Debug, Clone)]
pub enum Scope {
    /// These processes and their descendants.
    Tree(Vec<i32>),
    /// Processes with this name, at present these, and their descendants.
    Named(String, Vec<i32>),
    /// All processes of a control group.
    Cgroup(Cgroup),
    /// All processes.
    Machine,
}

impl Scope {
    /// The processes with these ids.
    ///
    /// # Errors
    /// Says which of them can't be recorded, and why.
    pub fn processes(pids: Vec<i32>) -> Result<Scope, SourceError> {
        pids.iter()
            .try_for_each(|&pid| threads::check_exists(pid))?;
        Ok(Scope::Tree(pids))
    }

    /// All processes with this name, or whose program has it.
    ///
    /// # Errors
    /// There is none, or the name is empty.
    pub fn named(name: &str) -> Result<Scope, SourceError> {
        // Programs that can't be looked at have no name, either.
        if name.is_empty() {
            return Err(SourceError(
                "`name:` names no process: write name:NAME, for example name:nginx".to_owned(),
            ));
        }
        match tree::named(name) {
            pids if pids.is_empty() => Err(SourceError(format!(
                "no process is called `{name}`, and none runs a program of that name; \
                 `ps -e` lists them"
            ))),
            pids => Ok(Scope::Named(name.to_owned(), pids)),
        }
    }

    /// The current processes.
    pub fn pids(&self) -> Vec<i32> {
        match self {
            Scope::Tree(pids) => tree::below(pids),
            Scope::Named(name, pids) => {
                let mut pids = pids.clone();
                pids.extend(tree::named(name));
                tree::below(&pids)
            }
            Scope::Cgroup(cgroup) => cgroup.pids(),
            Scope::Machine => pids::all(),
        }
    }

    /// Whether processes may join that no process of the scope started.
    pub fn takes_in(&self) -> bool {
        matches!(self, Scope::Cgroup(_) | Scope::Named(..))
    }

    /// The requested processes, without their descendants; empty for the whole machine.
    pub fn asked(&self) -> Vec<i32> {
        match self {
            Scope::Tree(pids) | Scope::Named(_, pids) => pids.clone(),
            Scope::Cgroup(cgroup) => cgroup.pids(),
            Scope::Machine => Vec::new(),
        }
    }

    /// The id of its first process; 0 for the whole machine.
    pub fn id(&self) -> i32 {
        self.asked().first().copied().unwrap_or(0)
    }

    /// Its name in a recording.
    pub fn name(&self) -> String {
        match self {
            Scope::Tree(pids) | Scope::Named(_, pids) => {
                let mut names: Vec<String> =
                    pids.iter().map(|&pid| threads::name(pid, pid)).collect();
                names.dedup();
                names.truncate(8);
                names.join(", ")
            }
            Scope::Cgroup(cgroup) => cgroup.path().display().to_string(),
            Scope::Machine => "all processes".into(),
        }
    }

    /// Its name in messages.
    pub fn described(&self) -> String {
        match self {
            Scope::Tree(pids) => match &pids[..] {
                [pid] => format!("process {pid}"),
                pids => {
                    let pids: Vec<String> = pids.iter().take(8).map(i32::to_string).collect();
                    format!("processes {}", pids.join(", "))
                }
            },
            Scope::Named(name, _) => format!("processes called `{name}`"),
            Scope::Cgroup(cgroup) => format!("cgroup {}", cgroup.path().display()),
            Scope::Machine => "the machine".into(),
        }
    }
}
