//! The server that the command line names. In: an address and files. Out: the way to it. Nothing is sent here.

use super::address::Address;
use super::client::Client;
use super::headers::{self, TENANT};
use anyhow::Context;
use std::path::Path;
use ureq::Proxy;

/// What the command line says of a server.
pub struct Server<'a> {
    /// The flag that names it.
    pub flag: &'static str,
    /// Its address.
    pub url: &'a str,
    /// What it takes.
    pub format: Option<&'a str>,
    /// A file with headers of requests.
    pub header_file: Option<&'a Path>,
    /// A file with certificates of authorities.
    pub ca_file: Option<&'a Path>,
}

impl Server<'_> {
    /// The way to the server, and what is to be warned of.
    ///
    /// # Errors
    /// It is no address, or a file can't be used.
    pub fn client(&self) -> anyhow::Result<(Client, Option<String>)> {
        // Not by the parser of the command line, which repeats what it refuses: it may have a password.
        let address = Address::parse(self.url);
        let address =
            address.with_context(|| format!("cannot push to the address of {}", self.flag))?;
        let (url, protocol) = address.for_format(self.format)?;
        let headers = self.header_file.map(headers::read).transpose()?;
        let headers = headers.unwrap_or_default();
        let has_credentials = headers.iter().any(|(name, _)| name != TENANT);
        let warning = (address.is_open() && has_credentials).then(|| {
            format!(
                "warning: the credentials go to {url} unencrypted; name it with https:// if it can do that"
            )
        });
        // What is sent to this machine doesn't leave it.
        let proxy = Proxy::try_from_env().filter(|_| !address.is_here());
        let client = Client::new(url, protocol, headers, self.ca_file, proxy)?;
        Ok((client, warning))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_sends_credentials_unencrypted_is_warned() {
        for (url, line, is_warned) in [
            ("http://a.example:4040", "Authorization: Bearer a", true),
            ("http://a.example:4040", "X-Api-Key: a", true),
            ("http://a.example:4040", "X-Scope-OrgID: a", false),
            ("https://a.example:4040", "X-Api-Key: a", false),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), line).unwrap();
            let server = Server {
                flag: "--to",
                url,
                format: Some("pyroscope"),
                header_file: Some(file.path()),
                ca_file: None,
            };
            let (_, warning) = server.client().unwrap();
            assert_eq!(warning.is_some(), is_warned, "{url} {line}");
        }
    }
}
