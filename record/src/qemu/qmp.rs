//! A client of QEMU's machine protocol: JSON, one object per line.
//!
//! Input: commands. Output: their results. Events are skipped; replies are bounded in size and time. Source: QEMU
//! documentation, "QEMU Machine Protocol Specification".

use crate::gdb::endpoint::{Connection, Endpoint, deadline};
use crate::gdb::error::GdbError;
use crate::source::SourceError;
use crate::sys::clock::monotonic_ns;
use nix::errno::Errno;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest conversation: a monitor answers in milliseconds.
const WHOLE: Duration = Duration::from_secs(3);
/// Longest reply; a machine with many devices has a long memory map. Parsed, it may take 32 times as much.
const MOST_LINE_BYTES: usize = 2 << 20;
/// Most events that may come before an answer.
const MOST_EVENTS: usize = 10_000;

/// Why the monitor did not answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QmpError {
    /// No connection.
    #[error("cannot reach QEMU's monitor: {}", unreachable(.0))]
    Unreachable(GdbError),
    /// It is silent or the connection broke.
    #[error(
        "QEMU's monitor at {path} did not answer {command}: {why}; a monitor serves one program at a \
         time, and must have been made with -qmp: is another program connected?"
    )]
    Silent {
        /// Its socket.
        path: String,
        /// The command.
        command: String,
        /// What happened.
        why: &'static str,
    },
    /// Not a valid reply.
    #[error(
        "{path} is no QMP monitor: {problem}; start QEMU with -qmp unix:PATH,server=on,wait=off"
    )]
    Nonsense {
        /// Its socket.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// QEMU refused a command.
    #[error("QEMU refused {command}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// Its words.
        reason: String,
    },
}

/// Why there is no connection, with advice about monitors instead of stubs.
fn unreachable(error: &GdbError) -> String {
    match error {
        GdbError::Connect(endpoint, errno @ (Errno::ENOENT | Errno::ECONNREFUSED)) => format!(
            "cannot connect to {endpoint}: {}; start QEMU with -qmp unix:{endpoint},server=on,wait=off",
            errno.desc()
        ),
        other => other.to_string(),
    }
}

impl From<QmpError> for SourceError {
    fn from(error: QmpError) -> Self {
        SourceError(error.to_string())
    }
}

/// A connection to a monitor.
pub struct Qmp {
    path: String,
    connection: Connection,
    received: Vec<u8>,
    /// When the whole conversation has to be over, however quick each reply is.
    end_ns: u64,
}

impl Qmp {
    /// Connects to the monitor that listens at `path`, and negotiates capabilities.
    ///
    /// # Errors
    /// Why there is no conversation.
    pub fn connect(path: &Path) -> Result<Self, QmpError> {
        let endpoint = Endpoint::Unix(path.to_owned());
        let connection = endpoint.connect(PATIENCE).map_err(QmpError::Unreachable)?;
        Qmp::over(connection, path)
    }

    /// A client over an existing connection; `path` is its name in messages.
    ///
    /// # Errors
    /// As for [`Qmp::connect`].
    pub fn over(connection: Connection, path: &Path) -> Result<Self, QmpError> {
        let mut qmp = Qmp {
            path: path.display().to_string(),
            connection,
            received: Vec::new(),
            end_ns: deadline(WHOLE),
        };
        let greeting = qmp.line("its greeting")?;
        if greeting.get("QMP").is_none() {
            return Err(qmp.nonsense("it greets otherwise"));
        }
        qmp.run("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and returns its result.
    ///
    /// # Errors
    /// Why there is none.
    pub fn run(&mut self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        let line = format!(
            "{}\n",
            json!({ "execute": command, "arguments": arguments })
        );
        let sent = self.connection.send(line.as_bytes(), deadline(PATIENCE));
        sent.map_err(|errno| self.silent(command, errno))?;
        for _ in 0..MOST_EVENTS {
            let mut answer = self.line(command)?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                let reason = error.get("desc").and_then(Value::as_str);
                return Err(QmpError::Refused {
                    command: command.to_owned(),
                    reason: reason.unwrap_or("it gives no reason").trim().to_owned(),
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
    /// Why there is none.
    pub fn human(&mut self, command: &str) -> Result<String, QmpError> {
        let result = self.run("human-monitor-command", json!({ "command-line": command }))?;
        Ok(result.as_str().unwrap_or_default().to_owned())
    }

    /// The property of an object of the machine; `None` if it has none.
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

    fn line(&mut self, command: &str) -> Result<Value, QmpError> {
        let end_ns = deadline(PATIENCE).min(self.end_ns);
        let mut searched = 0;
        let mut bytes = [0; 16 << 10];
        if monotonic_ns() > self.end_ns {
            // Events may keep coming, each in time.
            return Err(self.silent(command, Errno::ETIMEDOUT));
        }
        loop {
            let newline = self.received[searched..]
                .iter()
                .position(|&byte| byte == b'\n');
            if let Some(at) = newline {
                let line: Vec<u8> = self.received.drain(..=searched + at).collect();
                return serde_json::from_slice(&line)
                    .map_err(|error| self.nonsense(error.to_string()));
            }
            searched = self.received.len();
            if searched > MOST_LINE_BYTES {
                return Err(self.nonsense("a line has no end"));
            }
            match self.connection.receive(&mut bytes, end_ns) {
                Ok(0) => return Err(self.silent(command, Errno::ECONNRESET)),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(errno) => return Err(self.silent(command, errno)),
            }
        }
    }

    fn silent(&self, command: &str, errno: Errno) -> QmpError {
        QmpError::Silent {
            path: self.path.clone(),
            command: command.to_owned(),
            why: errno.desc(),
        }
    }

    /// The error for an invalid reply.
    pub fn nonsense(&self, problem: impl Into<String>) -> QmpError {
        QmpError::Nonsense {
            path: self.path.clone(),
            problem: problem.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    /// A monitor that answers each line by the next of `answers`, then goes away.
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
        test(Qmp::connect(&path));
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
        let refusal = "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\n";
        against(&[GREETING, refusal], |qmp| {
            assert!(message(qmp).contains("refused qmp_capabilities: no"));
        });
        let absent = message(Qmp::connect(Path::new("/nowhere/qmp")));
        assert!(absent.contains("No such file"), "{absent}");
        assert!(
            absent.contains("-qmp unix:/nowhere/qmp,server=on,wait=off"),
            "{absent}"
        );
        assert!(!absent.contains("-gdb"), "{absent}");
    }
}
