//! The address of a server. In: a word of the command line. Out: the URL of requests, and the protocol. Never a
//! password: addresses are printed.

use anyhow::{anyhow, bail};
use std::net::Ipv4Addr;
use uniprof_report::push::{PROTOCOLS, Protocol};
use ureq::http::Uri;

/// A URL of the scheme http or https.
#[derive(Debug, Clone)]
pub struct Address(Uri);

impl Address {
    /// Parses `--to`.
    ///
    /// # Errors
    /// It is no URL, has another scheme, or a password.
    pub fn parse(text: &str) -> anyhow::Result<Address> {
        let uri: Uri = text
            .parse()
            .map_err(|_| anyhow!("it is no URL such as http://localhost:4040"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            bail!("it doesn't begin with http:// or https://, as http://localhost:4040 does");
        }
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            bail!("it has a password, which others can see; put credentials into --header-file");
        }
        Ok(Address(uri))
    }

    /// Whether it is on this machine.
    pub fn is_here(&self) -> bool {
        let host = self.0.host().unwrap_or_default();
        // `127.0.0.1.example` is a name, and may be any machine's.
        let is_loopback = host.parse::<Ipv4Addr>().is_ok_and(|it| it.is_loopback());
        host == "localhost" || is_loopback || host == "[::1]"
    }

    /// Whether others can read what is sent: it is not encrypted, and leaves this machine.
    pub fn is_open(&self) -> bool {
        self.0.scheme_str() == Some("http") && !self.is_here()
    }

    /// The URL of requests, and the protocol: `format`, or else what the path or the port says.
    ///
    /// # Errors
    /// Neither says it.
    pub fn for_format(&self, format: Option<&str>) -> anyhow::Result<(String, &'static Protocol)> {
        let path = self.0.path();
        let protocol = match format {
            Some(name) => PROTOCOLS.iter().find(|one| one.name == name),
            None => Protocol::of_address(path, self.0.port_u16()),
        };
        let protocol = protocol.ok_or_else(|| {
            let names: Vec<&str> = PROTOCOLS.iter().map(|one| one.name).collect();
            anyhow!(
                "{} doesn't show what the server takes; add --format {}",
                self.0,
                names.join(" or --format ")
            )
        })?;
        let url = self.0.to_string();
        let is_bare = path.is_empty() || path == "/";
        if is_bare && self.0.query().is_none() {
            return Ok((
                format!("{}{}", url.trim_end_matches('/'), protocol.path),
                protocol,
            ));
        }
        Ok((url, protocol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_path_and_a_protocol() {
        let of = |text: &str, format| {
            let (url, protocol) = Address::parse(text).unwrap().for_format(format).unwrap();
            (url, protocol.name)
        };
        let push = "http://a:4040/push.v1.PusherService/Push".to_owned();
        assert_eq!(of("http://a:4040", None), (push.clone(), "pyroscope"));
        assert_eq!(of("http://a:4040/", None), (push.clone(), "pyroscope"));
        assert_eq!(of(&push, None), (push, "pyroscope"));
        let export = "https://a/v1development/profiles".to_owned();
        assert_eq!(of("https://a", Some("otlp")), (export, "otlp"));
        let whole = "http://a:4040/api/default/v1/profiles".to_owned();
        assert_eq!(of(&whole, None), (whole.clone(), "otlp"));
        assert_eq!(of(&whole, Some("pyroscope")), (whole, "pyroscope"));
        assert!(
            Address::parse("http://a")
                .unwrap()
                .for_format(None)
                .is_err()
        );
        for wrong in ["a", "ftp://a", "http://user:s3cret@a", "/tmp/x", ""] {
            let error = Address::parse(wrong).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn only_what_leaves_the_machine_unencrypted_is_open() {
        for (text, is_open) in [
            ("http://a.example", true),
            ("https://a.example", false),
            ("http://localhost:1", false),
            ("http://127.0.0.1:1", false),
            ("http://127.1.2.3", false),
            ("http://127.evil.example", true),
            ("http://127.0.0.1.example", true),
            ("http://[::1]:1", false),
        ] {
            assert_eq!(Address::parse(text).unwrap().is_open(), is_open, "{text}");
        }
    }
}
