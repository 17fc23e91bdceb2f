//! A process that computes until the test is over.

use std::process::Child;

/// The process; it is killed on drop.
pub struct Busy(pub Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
