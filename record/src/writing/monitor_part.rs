//! What passes from the recording of a guest's monitor to the encoder of the guest's.

use crate::source::handled::HandledExits;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes that may wait for the guest's encoder.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The bytes of the monitor's recording that are in no block of the guest's yet.
#[derive(Debug, Clone, Default)]
pub struct MonitorBytes(Arc<Mutex<Vec<u8>>>);

impl MonitorBytes {
    /// Takes them.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for MonitorBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() + bytes.len() > WAITING_BYTES_MAX {
            return Err(io::Error::other(
                "the guest's recording is written too slowly to take in the monitor's",
            ));
        }
        waiting.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the guest's encoder takes from the monitor's recording.
#[derive(Debug, Clone)]
pub struct MonitorPart {
    /// Its next bytes.
    pub bytes: MonitorBytes,
    /// What its samples handled.
    pub handled: HandledExits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_that_may_wait_are_limited() {
        let bytes = MonitorBytes::default();
        let mut output = bytes.clone();
        let piece = vec![7; WAITING_BYTES_MAX / 2];
        assert!(output.write_all(&piece).is_ok());
        assert!(output.write_all(&piece).is_ok());
        assert!(output.write_all(&[7]).is_err());
        assert_eq!(bytes.take().len(), WAITING_BYTES_MAX);
        assert!(output.write_all(&piece).is_ok());
    }
}
