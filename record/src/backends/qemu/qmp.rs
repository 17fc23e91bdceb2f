//! A client of QEMU's machine protocol: JSON, one object per line.
//!
//! Input: commands. Output: their results. Events are skipped; replies are bounded in size and time. A monitor serves
//! one program. If that is libvirt, it forwards commands (`virsh`).
//! Source: QEMU documentation, "QEMU Machine Protocol Specification".

use super::virsh::{Domain, VirshError};
use crate::backends::gdb::error::GdbError;
use crate::guest::endpoint::{Connection, Endpoint, EndpointError, deadline};
use crate::source::SourceError;
use crate::sys::clock::monotonic_ns;
use nix::errno::Errno;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest conversation; a monitor answers in milliseconds.
const WHOLE: Duration = Duration::from_secs(3);
/// The same if libvirt forwards commands: each starts a program, and waits for libvirt.
const LIBVIRT_PATIENCE: Duration = Duration::from_secs(5);
const LIBVIRT_WHOLE: Duration = Duration::from_secs(10);
/// Longest reply in bytes; a machine with many devices has a long memory map. Parsed, it may take 32 times as much.
const MOST_LINE_BYTES: usize = 2 << 20;
/// Most events that may come before an answer.
const MOST_EVENTS: usize = 10_000;

/// The reason why the monitor did not answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QmpError {
    /// No connection.
    #[error("cannot reach QEMU's monitor: {}", unreachable(.0))]
    Unreachable(EndpointError),
    /// It listens on another machine.
    #[error(
        "{0} is not on this machine, and a QEMU guest is recorded where it runs: run uniprof there, or sample its gdb \
         stub (gdb:HOST:PORT)"
    )]
    Elsewhere(Endpoint),
    /// It doesn't answer, or the connection broke.
    #[error(
        "QEMU's monitor at {path} did not answer {command}: {why}; a monitor serves one program at a \
         time, and must have been made with -qmp: is another program connected?"
    )]
    Silent {
        /// Its socket.
        path: String,
        /// The command.
        command: String,
        /// The reason.
        why: &'static str,
    },
    /// Not a valid reply.
    #[error(
        "{path} is no QMP monitor: {problem}; start QEMU with -qmp unix:PATH,server=on,wait=off"
    )]
    Nonsense {
        /// Its socket.
        path: String,
        /// The parse error.
        problem: String,
    },
    /// libvirt doesn't forward the command.
    #[error(transparent)]
    Libvirt(VirshError),
    /// QEMU refused a command.
    #[error("QEMU refused {command}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's reason.
        reason: String,
    },
}

/// The message that there is no connection, with advice about monitors instead of stubs.
fn unreachable(error: &EndpointError) -> String {
    match error {
        EndpointError::Connect(endpoint, errno @ (Errno::ENOENT | Errno::ECONNREFUSED)) => {
            let kind = match endpoint {
                Endpoint::Tcp(_) => "tcp",
                Endpoint::Unix(_) => "unix",
            };
            format!(
                "cannot connect to {endpoint}: {}; start QEMU with -qmp {kind}:{endpoint},server=on,wait=off",
                errno.desc()
            )
        }
        other => GdbError::from(other.clone()).to_string(),
    }
}

impl From<QmpError> for SourceError {
    fn from(error: QmpError) -> Self {
        SourceError(error.to_string())
    }
}

/// The address of a machine's monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Monitor {
    /// It listens here, on this machine.
    Socket(Endpoint),
    /// libvirt is connected to the monitor of this domain.
    Libvirt(Domain),
}

impl fmt::Display for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Monitor::Socket(endpoint) => endpoint.fmt(f),
            Monitor::Libvirt(domain) => domain.fmt(f),
        }
    }
}

impl Monitor {
    /// The monitor that listens at `HOST:PORT`, `:PORT` or a path, which may have no `/`.
    #[must_use]
    pub fn at(text: &str) -> Self {
        let endpoint = match Endpoint::parse(text) {
            Ok(endpoint) if text.contains(':') => endpoint,
            _ => Endpoint::Unix(text.into()),
        };
        Monitor::Socket(endpoint)
    }

    /// Begins a conversation.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn connect(&self) -> Result<Qmp, QmpError> {
        match self {
            Monitor::Socket(endpoint) => {
                // QEMU names paths and threads of its own machine, which are opened here.
                if !endpoint.is_here() {
                    return Err(QmpError::Elsewhere(endpoint.clone()));
                }
                let connection = endpoint.connect(PATIENCE).map_err(QmpError::Unreachable)?;
                Qmp::over(connection, endpoint)
            }
            Monitor::Libvirt(domain) => Ok(Qmp::new(self, Way::Libvirt(domain.clone()))),
        }
    }
}

/// A conversation with a monitor.
pub struct Qmp {
    monitor: String,
    way: Way,
    /// Longest wait for an answer.
    patience: Duration,
    /// End of the conversation, however quick each answer is.
    end_ns: u64,
}

/// The way of commands to the monitor.
enum Way {
    Socket(Lines),
    Libvirt(Domain),
}

impl Qmp {
    fn new(monitor: &Monitor, way: Way) -> Self {
        let (patience, whole) = match way {
            Way::Socket(_) => (PATIENCE, WHOLE),
            Way::Libvirt(_) => (LIBVIRT_PATIENCE, LIBVIRT_WHOLE),
        };
        Qmp {
            monitor: monitor.to_string(),
            way,
            patience,
            end_ns: deadline(whole),
        }
    }

    /// Begins a conversation over an existing connection, and completes the greeting; `endpoint` is its name in
    /// messages.
    ///
    /// # Errors
    /// As for [`Monitor::connect`].
    pub fn over(connection: Connection, endpoint: &Endpoint) -> Result<Self, QmpError> {
        let lines = Lines {
            connection,
            received: Vec::new(),
        };
        let mut qmp = Qmp::new(&Monitor::Socket(endpoint.clone()), Way::Socket(lines));
        let greeting = qmp.line("its greeting", None)?;
        if greeting.get("QMP").is_none() {
            return Err(qmp.nonsense("it greets otherwise"));
        }
        qmp.run("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// The process that listens at the monitor's socket, if that is a process of this host; `None` if libvirt forwards
    /// commands.
    pub fn listener(&self) -> Option<i32> {
        match &self.way {
            Way::Socket(lines) => lines.connection.listener(),
            Way::Libvirt(_) => None,
        }
    }

    /// Runs a command and returns its result.
    ///
    /// # Errors
    /// Says why there is none.
    pub fn run(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        let mut question = Some(json!({ "execute": command, "arguments": arguments }).to_string());
        for _ in 0..MOST_EVENTS {
            let mut answer = self.line(command, question.take())?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                let reason = error.get("desc").and_then(Value::as_str);
                // A line break in a message could fake a line of its own.
                let words = reason.unwrap_or("it gives no reason").split_whitespace();
                return Err(QmpError::Refused {
                    command: command.to_owned(),
                    reason: words.collect::<Vec<_>>().join(" "),
                });
            }
            if answer.get("event").is_none() {
                return Err(self.nonsense("an answer has neither result nor error"));
            }
        }
        Err(self.nonsense("it sends events without end"))
    }

    /// Runs a command of the human monitor and returns what it prints.
    ///
    /// # Errors
    /// Says why there is no output.
    pub fn human(&mut self, command: &str) -> Result<String, QmpError> {
        let result = self.run("human-monitor-command", json!({ "command-line": command }))?;
        Ok(result.as_str().unwrap_or_default().to_owned())
    }

    /// The property of an object of the machine; `None` if there is no such property.
    ///
    /// # Errors
    /// The monitor does not answer.
    pub fn property(&mut self, object: &str, name: &str) -> Result<Option<Value>, QmpError> {
        match self.run("qom-get", json!({ "path": object, "property": name })) {
            Ok(value) => Ok(Some(value)),
            Err(QmpError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The next line; sends the question first, if there is one.
    fn line(&mut self, command: &str, question: Option<String>) -> Result<Value, QmpError> {
        let end_ns = deadline(self.patience).min(self.end_ns);
        if monotonic_ns() > self.end_ns {
            // Events may keep coming, each in time.
            return Err(self.silent(command, Errno::ETIMEDOUT));
        }
        let line = match (&mut self.way, question) {
            (Way::Socket(lines), question) => {
                let line = lines.next(question, end_ns);
                line.map_err(|errno| self.silent(command, errno))?
                    .ok_or_else(|| self.nonsense("a line has no end"))?
            }
            (Way::Libvirt(domain), Some(question)) => {
                let answer = domain.pass_on(&question, MOST_LINE_BYTES, end_ns);
                answer.map_err(QmpError::Libvirt)?
            }
            (Way::Libvirt(_), None) => return Err(self.nonsense("it answers with an event")),
        };
        serde_json::from_slice(&line).map_err(|error| self.nonsense(error.to_string()))
    }

    fn silent(&self, command: &str, errno: Errno) -> QmpError {
        QmpError::Silent {
            path: self.monitor.clone(),
            command: command.to_owned(),
            why: errno.desc(),
        }
    }

    /// The error for an invalid reply.
    pub fn nonsense(&self, problem: impl Into<String>) -> QmpError {
        QmpError::Nonsense {
            path: self.monitor.clone(),
            problem: problem.into(),
        }
    }
}

/// A monitor's socket, line by line.
struct Lines {
    connection: Connection,
    received: Vec<u8>,
}

impl Lines {
    /// The next line; sends the question first, if there is one. `None` if the line is too long.
    fn next(&mut self, question: Option<String>, end_ns: u64) -> Result<Option<Vec<u8>>, Errno> {
        if let Some(question) = question {
            let line = format!("{question}\n");
            self.connection.send(line.as_bytes(), end_ns)?;
        }
        let mut searched = 0;
        let mut bytes = [0; 16 << 10];
        loop {
            let mut rest = self.received[searched..].iter();
            if let Some(at) = rest.position(|&byte| byte == b'\n') {
                return Ok(Some(self.received.drain(..=searched + at).collect()));
            }
            searched = self.received.len();
            if searched > MOST_LINE_BYTES {
                return Ok(None);
            }
            match self.connection.receive(&mut bytes, end_ns)? {
                0 => return Err(Errno::ECONNRESET),
                count => self.received.extend_from_slice(&bytes[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// A monitor that answers each line by the next of `answers`, then closes the connection.
    fn against(answers: &[&'static str], test: impl FnOnce(Result<Qmp, QmpError>)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        let answers = answers.to_vec();
        let monitor = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for answer in answers {
                stream.write_all(answer.as_bytes()).unwrap();
                if !answer.is_empty() && !answer.starts_with("{\"event") {
                    let _ = lines.next();
                }
            }
        });
        test(Monitor::at(path.to_str().unwrap()).connect());
        monitor.join().unwrap();
    }

    const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n";
    const DONE: &str = "{\"return\": {}}\r\n";

    #[test]
    fn answers_are_found_among_events() {
        let event = "{\"event\": \"STOP\"}\n";
        let answer = "{\"return\": {\"arch\": \"x86_64\"}}\n";
        against(&[GREETING, DONE, event, answer], |qmp| {
            let result = qmp.unwrap().run("query-target", json!({})).unwrap();
            assert_eq!(result["arch"], "x86_64");
        });
    }

    #[test]
    fn what_is_no_monitor_is_named() {
        let message = |qmp: Result<Qmp, QmpError>| qmp.err().unwrap().to_string();
        against(&["HTTP/1.1 400 Bad Request\n"], |qmp| {
            assert!(message(qmp).contains("is no QMP monitor"));
        });
        against(&["{\"hello\": 1}\n"], |qmp| {
            assert!(message(qmp).contains("greets otherwise"));
        });
        against(&[GREETING], |qmp| {
            assert!(message(qmp).contains("did not answer qmp_capabilities"));
        });
        let refusal = "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\\n::x::y\"}}\n";
        against(&[GREETING, refusal], |qmp| {
            assert!(message(qmp).contains("refused qmp_capabilities: no ::x::y"));
        });
        let absent = message(Monitor::at("/nowhere/qmp").connect());
        assert!(absent.contains("No such file"), "{absent}");
        assert!(
            absent.contains("-qmp unix:/nowhere/qmp,server=on,wait=off"),
            "{absent}"
        );
        assert!(!absent.contains("-gdb"), "{absent}");
        // Port 1 of this machine.
        let closed = message(Monitor::at("localhost:1").connect());
        assert!(
            closed.contains("-qmp tcp:localhost:1,server=on,wait=off"),
            "{closed}"
        );
    }
}
