//! Sends commands to a monitor that libvirt is connected to: `virsh qemu-monitor-command` forwards them.
//!
//! Input: a command for the monitor. Output: the answer, bounded in size and time. virsh chooses the libvirt as always:
//! by LIBVIRT_DEFAULT_URI, or else the system's for root and the session's for others.

use crate::guest::endpoint::Connection;
use nix::errno::Errno;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A domain of libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Its name, number or UUID.
    pub name: String,
    /// The program that asks libvirt.
    pub virsh: PathBuf,
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libvirt:{}", self.name)
    }
}

/// The reason why libvirt forwards nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VirshError {
    /// The program is missing.
    #[error(
        "cannot run virsh, which asks libvirt for a domain's monitor: {0}; install Debian's libvirt-clients"
    )]
    Run(String),
    /// It takes too long.
    #[error("libvirt did not answer for {0} in time; does `virsh list` answer?")]
    Late(Domain),
    /// Its output is longer than any monitor's.
    #[error("libvirt's answer for {0} has no end")]
    Long(Domain),
    /// libvirt refused.
    #[error("libvirt says of {domain}: {reason}; `virsh list` shows the domains that run")]
    Refused {
        /// The domain.
        domain: Domain,
        /// The output of virsh.
        reason: String,
    },
}

impl Domain {
    /// The domain with this name, number or UUID.
    pub fn named(name: &str) -> Self {
        Domain {
            name: name.to_owned(),
            virsh: "virsh".into(),
        }
    }

    /// Makes libvirt forward `command` to the monitor. The answer may have `most_bytes` and must be there by `end_ns`.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn pass_on(
        &self,
        command: &str,
        most_bytes: usize,
        end_ns: u64,
    ) -> Result<Vec<u8>, VirshError> {
        let (mut child, printed) = self
            .start(command)
            .map_err(|error| VirshError::Run(error.to_string()))?;
        let answer = self.read(&printed, most_bytes, end_ns);
        // A virsh that has answered ends by itself; one that hasn't is killed.
        if answer.is_err() {
            let _ = child.kill();
        }
        let status = child.wait();
        let answer = answer?;
        match status {
            Ok(status) if status.success() => Ok(answer),
            _ => Err(VirshError::Refused {
                domain: self.clone(),
                reason: reason(&answer),
            }),
        }
    }

    /// Starts virsh; its output comes over the connection.
    fn start(&self, command: &str) -> io::Result<(Child, Connection)> {
        let (ours, theirs) = UnixStream::pair()?;
        let errors = OwnedFd::from(theirs.try_clone()?);
        let child = Command::new(&self.virsh)
            .args(["--quiet", "qemu-monitor-command"])
            .arg(format!("--domain={}", self.name))
            .arg(format!("--cmd={command}"))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(OwnedFd::from(theirs))
            .stderr(errors)
            .spawn()?;
        Ok((child, Connection::from(OwnedFd::from(ours))))
    }

    fn read(
        &self,
        printed: &Connection,
        most_bytes: usize,
        end_ns: u64,
    ) -> Result<Vec<u8>, VirshError> {
        let mut all = Vec::new();
        let mut bytes = [0; 16 << 10];
        loop {
            match printed.receive(&mut bytes, end_ns) {
                Ok(0) => return Ok(all),
                Ok(count) => all.extend_from_slice(&bytes[..count]),
                Err(Errno::ETIMEDOUT) => return Err(VirshError::Late(self.clone())),
                Err(errno) => return Err(VirshError::Run(errno.desc().to_owned())),
            }
            if all.len() > most_bytes {
                return Err(VirshError::Long(self.clone()));
            }
        }
    }
}

/// The message of virsh, without the `error:` of each line.
fn reason(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(&printed[..printed.len().min(1000)]);
    let lines = text
        .lines()
        .map(|line| line.trim_start_matches("error:").trim());
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}
