//! A process that works until the test is over.

use std::process::Child;

/// Killed on drop.
pub struct Busy(pub Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
