//! Where a stub or a monitor listens.

use std::fmt;
use std::path::PathBuf;

/// Where a stub listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// `HOST:PORT`.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => write!(f, "{address}"),
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
