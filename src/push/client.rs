//! One request to the server. In: a message. Out: what its answer means, or why there is none. Never follows a
//! redirect, never waits longer than it is given, never reads more of an answer than its beginning.

use super::headers::{Header, TENANT};
use anyhow::{Context, anyhow, bail};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;
use uniprof_report::push::{Answer, Protocol, Verdict, hash};
use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body, Error, Proxy, Timeout};

/// Longest answer that is read (bytes).
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Longest file of certificates (bytes): all public ones are a quarter of a megabyte.
const CA_BYTES_MAX: u64 = 4 << 20;

/// What a request came to.
pub enum Attempt {
    /// The server answered, and wants to be left alone for some time.
    Answered(Verdict, Option<Duration>),
    /// The server was not reached, so it has nothing.
    Unreached(String),
    /// There is no answer, so it may have the message or not.
    Unanswered(String),
}

/// The way to a server.
pub struct Client {
    agent: Agent,
    /// The URL of requests.
    pub url: String,
    /// What the server takes.
    pub protocol: &'static Protocol,
    headers: Vec<Header>,
}

impl Client {
    /// Prepares requests to `url`, by `proxy` if there is one.
    ///
    /// # Errors
    /// There are no certificates in `ca_file`.
    pub fn new(
        url: String,
        protocol: &'static Protocol,
        headers: Vec<Header>,
        ca_file: Option<&Path>,
        proxy: Option<Proxy>,
    ) -> anyhow::Result<Client> {
        let roots = match ca_file {
            Some(path) => RootCerts::new_with_certs(&certificates(path)?),
            None => RootCerts::WebPki,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("uniprof/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .proxy(proxy)
            .build();
        Ok(Client {
            agent: Agent::new_with_config(config),
            url,
            protocol,
            headers,
        })
    }

    /// How a spool's names of what is for this server and its tenant end: a mark of both, and the format. Credentials
    /// may change.
    pub fn ending(&self) -> String {
        let mut server = vec![self.url.as_bytes()];
        let tenants = self.headers.iter().filter(|(name, _)| name == TENANT);
        server.extend(tenants.map(|(_, value)| value.as_bytes()));
        format!("{:016x}.{}", hash(&server), self.protocol.name)
    }

    /// Sends one message, and waits for an answer no longer than `timeout`.
    pub fn send(&self, message: &[u8], timeout: Duration) -> Attempt {
        let mut request = self
            .agent
            .post(&self.url)
            .header("content-type", self.protocol.content_type);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.config().timeout_global(Some(timeout)).build();
        match request.send(message) {
            Ok(response) => self.judge(response),
            Err(error) => failed(&error, timeout),
        }
    }

    fn judge(&self, response: Response<Body>) -> Attempt {
        let (head, body) = response.into_parts();
        let text = |name: &str| {
            let value = head.headers.get(name).map(|value| value.to_str());
            value.and_then(Result::ok).unwrap_or_default()
        };
        let mut bytes = Vec::new();
        // The status counts, even if the rest doesn't come.
        let _ = body
            .into_reader()
            .take(ANSWER_BYTES_MAX)
            .read_to_end(&mut bytes);
        let verdict = self.protocol.judge(&Answer {
            status: head.status.as_u16(),
            content_type: text("content-type"),
            location: text("location"),
            body: &bytes,
        });
        let pause = text("retry-after").parse().ok().map(Duration::from_secs);
        Attempt::Answered(verdict, pause)
    }
}

/// What an error means for the message.
fn failed(error: &Error, timeout: Duration) -> Attempt {
    let seconds = timeout.as_secs_f64();
    match error {
        Error::HostNotFound => Attempt::Unreached("there is no host of this name".to_owned()),
        Error::ConnectionFailed
        | Error::ConnectProxyFailed(_)
        | Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
            Attempt::Unreached(format!("it can't be reached: {error}"))
        }
        Error::Timeout(_) => {
            Attempt::Unanswered(format!("it gives no answer within {seconds:.0} s"))
        }
        Error::Io(error) if is_refused(error) => {
            Attempt::Unreached(format!("it can't be reached: {error}"))
        }
        Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            uncertified(&error.to_string())
        }
        Error::Rustls(error) => uncertified(&error.to_string()),
        Error::Io(error) => Attempt::Unanswered(format!("it gives no answer: {error}")),
        Error::Protocol(error) => Attempt::Unanswered(format!("it gives no answer: {error}")),
        _ => Attempt::Answered(
            Verdict::Unusable(format!("it can't be asked: {error}")),
            None,
        ),
    }
}

fn is_refused(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    let kinds = [
        Kind::ConnectionRefused,
        Kind::HostUnreachable,
        Kind::NetworkUnreachable,
        Kind::AddrNotAvailable,
    ];
    // The system's resolver has no kind of its own.
    kinds.contains(&error.kind()) || error.to_string().contains("lookup address")
}

fn uncertified(error: &str) -> Attempt {
    let why = format!(
        "no encrypted connection: {error}; if its certificate is of an authority of your own, name that with --ca-file"
    );
    Attempt::Answered(Verdict::Unusable(why), None)
}

fn certificates(path: &Path) -> anyhow::Result<Vec<Certificate<'static>>> {
    let describe = || format!("cannot use --ca-file {}", path.display());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).with_context(describe)?;
    file.take(CA_BYTES_MAX)
        .read_to_end(&mut bytes)
        .with_context(describe)?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(_) => return Err(anyhow!("a certificate in it is damaged")).with_context(describe),
        }
    }
    if found.is_empty() {
        bail!(
            "{}: it has no certificates (-----BEGIN CERTIFICATE-----)",
            describe()
        );
    }
    Ok(found)
}
