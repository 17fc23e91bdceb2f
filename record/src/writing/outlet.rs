//! Where the encoder writes: one recording, or the files of a flight recorder's window.

use crate::guest::linux::Linux;
use crate::source::Facts;
use crate::source::control::Counters;
use crate::writing::flight_recorder::{FlightRecorder, Keep};
use crate::writing::pending::Pending;
use std::io::{self, Write};
use std::sync::Arc;
use uprof::cold::{ClockPair, Code, End, Metadata};
use uprof::{Sample, Writer};

/// The encoder's output.
pub enum Outlet<W: Write> {
    /// One recording.
    Recording(Box<Writer<W>>),
    /// The last minute of one.
    Window(Box<FlightRecorder>),
}

impl<W: Write> Outlet<W> {
    /// Begins a recording on `output`.
    ///
    /// # Errors
    /// Those of the output.
    pub fn recording(output: W, metadata: &Metadata, clock: ClockPair) -> io::Result<Self> {
        let uuid = fastrand::u128(..).to_le_bytes();
        let mut writer = Writer::create(output, uuid, metadata, clock.monotonic_ns)?;
        writer.clocks(&[clock])?;
        Ok(Outlet::Recording(Box::new(writer)))
    }

    /// Begins a window.
    ///
    /// # Errors
    /// Its first files can't be written.
    pub fn window(
        keep: Keep,
        metadata: &Metadata,
        facts: &Facts,
        clock: ClockPair,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let recorder = FlightRecorder::create(keep, metadata, facts, clock, counters)?;
        Ok(Outlet::Window(Box::new(recorder)))
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// Those of a recording's output.
    pub fn sample(&mut self, sample: &Sample<'_>) -> io::Result<()> {
        match self {
            Outlet::Recording(writer) => writer.sample(sample),
            Outlet::Window(window) => {
                window.sample(sample);
                Ok(())
            }
        }
    }

    /// Writes all records, with `code` of the guest, and the samples so far.
    ///
    /// # Errors
    /// Those of a recording's output; the records are kept then.
    pub fn write(&mut self, pending: &mut Pending, code: &[Code], now_ns: u64) -> io::Result<()> {
        match self {
            Outlet::Recording(writer) => {
                pending.write_events(writer)?;
                pending.write_tables(writer, code, now_ns)?;
                pending.clear();
                writer.flush()
            }
            Outlet::Window(window) => {
                window.write(pending, code, now_ns);
                Ok(())
            }
        }
    }

    /// Writes the next bytes of the recording of the guest's monitor. A window has none.
    ///
    /// # Errors
    /// Those of a recording's output.
    pub fn monitor(&mut self, bytes: &[u8], now_ns: u64) -> io::Result<()> {
        match self {
            Outlet::Recording(writer) => writer.monitor(bytes, now_ns),
            Outlet::Window(_) => Ok(()),
        }
    }

    /// A kernel of the guest became known.
    pub fn add_kernel(&mut self, kernel: &Linux) {
        if let Outlet::Window(window) = self {
            window.add_kernel(kernel);
        }
    }

    /// A boot of the guest ended.
    pub fn boot_ended(&mut self, time_ns: u64) {
        if let Outlet::Window(window) = self {
            window.boot_ended(time_ns, "the guest's boot ended");
        }
    }

    /// Samples that it has lost, which none of its errors tell.
    pub fn lost(&self) -> u64 {
        match self {
            Outlet::Recording(_) => 0,
            Outlet::Window(window) => window.lost_in_all(),
        }
    }

    /// Writes out the samples so far.
    ///
    /// # Errors
    /// Those of a recording's output.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Outlet::Recording(writer) => writer.flush(),
            Outlet::Window(_) => Ok(()),
        }
    }

    /// Bytes of the recording, or of the window.
    pub fn written_bytes(&self) -> u64 {
        match self {
            Outlet::Recording(writer) => writer.written_bytes(),
            Outlet::Window(window) => window.bytes(),
        }
    }

    /// Samples written so far.
    pub fn written_samples(&self) -> u64 {
        match self {
            Outlet::Recording(writer) => writer.written_samples(),
            Outlet::Window(window) => window.written_samples(),
        }
    }

    /// Writes the end.
    ///
    /// # Errors
    /// Those of a recording's output.
    pub fn finish(self, end: &End) -> io::Result<()> {
        match self {
            Outlet::Recording(writer) => writer.finish(end).map(drop),
            Outlet::Window(mut window) => {
                window.finish(end);
                Ok(())
            }
        }
    }
}
