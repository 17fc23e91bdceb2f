//! A process that computes until the test is over.

use std::process::{Child, Command};

/// The process; it is killed on drop.
pub struct Busy(pub Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Busy {
    /// A shell that loops.
    #[allow(dead_code, reason = "some tests start another program")]
    pub fn shell() -> Self {
        let shell = Command::new("bash")
            .args(["-c", "while :; do :; done"])
            .spawn();
        Busy(shell.unwrap())
    }
}
