//! What readers of stacks hand their stacks to. Input: frames of stacks, by name or address. Output: samples of a
//! recording, whose invented addresses have symbols in it.

use super::names::Names;
use super::{ImportError, ImportSummary};
use crate::recording::UNTIMED;
use crate::work;
use std::io::{self, BufRead, Write};
use uprof::cold::{ClockPair, End, EndReason, Loss, LossReason, Metadata, TaskEvent};
use uprof::{Frame, Sample, State, Stop, Task, Wait, Writer};

/// Most samples of all lines together.
pub(super) const SAMPLES_MAX: u64 = 10_000_000;
/// Number of frames written again that cost one step of a run's budget.
const FRAMES_PER_STEP: u64 = 4;
/// Longest line (bytes); the rest of a longer one is skipped.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Receives stacks and writes them as samples.
pub(crate) struct Importer<'a> {
    out: Option<&'a mut dyn Write>,
    writer: Option<Writer<&'a mut dyn Write>>,
    pub(super) metadata: Metadata,
    uuid: [u8; 16],
    /// Start of the recording, in nanoseconds since 1970, if the input states it.
    pub(super) realtime_ns: Option<i64>,
    names: Names,
    /// The first time in the input, at which the recording begins.
    first_ns: Option<u64>,
    /// End of the recording: after the latest time and the latest wait, or one nanosecond later for each sample
    /// without a time.
    end_ns: u64,
    /// Number of samples without a time.
    untimed: u64,
    pub(super) imported: ImportSummary,
    chain: Vec<Frame>,
    /// Which values of the input's samples are imported; `None` for the usual ones.
    pub(super) sample_type: Option<String>,
    /// Whether this is only a trial to recognize the format. A stack then counts as one sample, whatever
    /// count it has.
    pub(super) is_trial: bool,
}

/// One frame of the input.
#[derive(Debug, Clone, Copy)]
pub(crate) enum InputFrame<'a> {
    /// An address in the guest: of the next instruction, or if it is not the innermost frame, a return address.
    Address(u64),
    /// An address within the instruction that was executed, also of a call.
    Exact(u64),
    /// Image (may be empty), function, and the offset in the function (bytes). The image's name says whether it is
    /// a kernel.
    Named(&'a str, &'a str, u64),
    /// The same in a kernel, whatever its image is called: `[ext4]`.
    Kernel(&'a str, &'a str, u64),
}

/// The vCPU or thread of a stack, and its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// Time on the input's clock; `None` if the input has no times.
    pub time_ns: Option<u64>,
    pub vcpu: u32,
    pub stop: Stop,
}

impl<'a> Importer<'a> {
    pub(super) fn new(out: &'a mut dyn Write, metadata: Metadata, uuid: [u8; 16]) -> Importer<'a> {
        Importer {
            out: Some(out),
            writer: None,
            metadata,
            uuid,
            realtime_ns: None,
            names: Names::default(),
            first_ns: None,
            end_ns: 0,
            untimed: 0,
            imported: ImportSummary::default(),
            chain: Vec::new(),
            sample_type: None,
            is_trial: false,
        }
    }

    /// Adds `count` samples of one stack, whose innermost frame comes first.
    pub(super) fn stack(
        &mut self,
        frames: &[InputFrame<'_>],
        origin: Origin,
        count: u64,
    ) -> Result<(), ImportError> {
        let count = self.take(count)?;
        self.write(frames, origin, count, None)
    }

    /// Adds `count` waits of one stack that took `time_ns` together, as equally long ones.
    pub(super) fn waits(
        &mut self,
        frames: &[InputFrame<'_>],
        origin: Origin,
        (time_ns, count): (u64, u64),
    ) -> Result<(), ImportError> {
        let count = self.take(count)?;
        let (mean_ns, longer) = (time_ns / count.max(1), time_ns % count.max(1));
        for (count, time_ns) in [
            (longer, mean_ns.saturating_add(1)),
            (count - longer, mean_ns),
        ] {
            self.write(frames, origin, count, Some(Wait { time_ns, count: 1 }))?;
        }
        Ok(())
    }

    /// The number of samples to write for a stack that claims `count`. It counts towards the limit of all.
    fn take(&mut self, count: u64) -> Result<u64, ImportError> {
        let count = if self.is_trial { 1 } else { count };
        let all = self.imported.samples.saturating_add(count);
        if all > SAMPLES_MAX {
            let line = self.imported.lines;
            return Err(ImportError::TooMany { line, count });
        }
        self.imported.samples = all;
        Ok(count)
    }

    fn write(
        &mut self,
        frames: &[InputFrame<'_>],
        origin: Origin,
        count: u64,
        wait: Option<Wait>,
    ) -> Result<(), ImportError> {
        let mut chain = std::mem::take(&mut self.chain);
        chain.clear();
        for frame in frames {
            chain.push(match *frame {
                // An invented address is inside its function even if it is a return address.
                InputFrame::Named(module, name, offset) => {
                    let kernel =
                        module.starts_with("[kernel") || module.starts_with("[guest.kernel");
                    Frame::exact(self.names.address(module, name, offset, kernel))
                }
                InputFrame::Kernel(module, name, offset) => {
                    Frame::exact(self.names.address(module, name, offset, true))
                }
                InputFrame::Exact(address) => Frame::exact(address),
                InputFrame::Address(address) if chain.is_empty() => Frame::exact(address),
                InputFrame::Address(address) => Frame::return_address(address),
            });
        }
        work::take(count.saturating_mul(1 + chain.len() as u64 / FRAMES_PER_STEP));
        for _ in 0..count {
            let time_ns = match origin.time_ns {
                Some(time_ns) => self.since_first(time_ns),
                None => {
                    self.untimed += 1;
                    self.end_ns
                }
            };
            // Without times, a wait takes no more of the recording than a sample.
            let length_ns = origin.time_ns.and(wait).map_or(0, |wait| wait.time_ns);
            let end_ns = time_ns.saturating_add(length_ns.max(1));
            self.end_ns = self.end_ns.max(end_ns);
            let task = Task {
                space: 0,
                vcpu: origin.vcpu,
            };
            let sample = Sample {
                state: if wait.is_some() {
                    State::Blocked
                } else {
                    State::Running
                },
                stop: origin.stop,
                wait,
                ..Sample::bare(time_ns, task, &chain)
            };
            self.writer()?.sample(&sample)?;
        }
        self.chain = chain;
        Ok(())
    }

    /// Converts a time of the input to nanoseconds since its first time.
    fn since_first(&mut self, time_ns: u64) -> u64 {
        let first_ns = *self.first_ns.get_or_insert(time_ns);
        if time_ns < first_ns && self.imported.left_out.is_none() {
            self.imported.left_out = Some(
                "some samples are older than the first one: they count as its time; sort the input by time".to_owned(),
            );
        }
        time_ns.saturating_sub(first_ns)
    }

    /// Names a vCPU or thread.
    pub(super) fn name_task(
        &mut self,
        vcpu: u32,
        time_ns: u64,
        name: &str,
    ) -> Result<(), ImportError> {
        let time_ns = self.since_first(time_ns);
        let event = TaskEvent::named(time_ns, Task { space: 0, vcpu }, name.to_owned());
        Ok(self.writer()?.tasks(&[event])?)
    }

    /// Tells that the other tool lost `count` samples, at any time up to now.
    pub(super) fn lose(&mut self, count: u64) -> io::Result<()> {
        let loss = Loss::new(LossReason::KernelBuffer, count, [0, self.end_ns]);
        self.writer()?.losses(&[loss])
    }

    /// The writer, which is created with the first stack: until then the metadata may still change.
    pub(super) fn writer(&mut self) -> io::Result<&mut Writer<&'a mut dyn Write>> {
        if let Some(out) = self.out.take() {
            let mut writer = Writer::create(out, self.uuid, &self.metadata, 0)?;
            if let Some(realtime_ns) = self.realtime_ns {
                writer.clocks(&[ClockPair {
                    monotonic_ns: 0,
                    realtime_ns,
                    guest: None,
                }])?;
            }
            self.writer = Some(writer);
        }
        self.writer
            .as_mut()
            .ok_or_else(|| io::Error::other("an import can't be begun twice"))
    }

    pub(super) fn finish(mut self, format: &'static str) -> Result<ImportSummary, ImportError> {
        if self.imported.samples == 0 {
            return Err(ImportError::NoStack {
                lines: self.imported.lines,
                format,
            });
        }
        let names = std::mem::take(&mut self.names);
        let imported = std::mem::take(&mut self.imported);
        // A single moment has no length, and no rate.
        let untimed = if self.end_ns <= 1 {
            imported.samples
        } else {
            self.untimed
        };
        let end_ns = self.end_ns;
        let writer = self.writer()?;
        names.write(writer)?;
        let mut totals = vec![("lines_skipped".to_owned(), imported.skipped)];
        if untimed > 0 {
            totals.push((UNTIMED.to_owned(), untimed));
        }
        let end = End {
            time_ns: end_ns,
            reason: EndReason::InputEnded,
            message: "the end of the input was reached".to_owned(),
            totals,
        };
        if let Some(writer) = self.writer.take() {
            writer.finish(&end)?;
        }
        Ok(imported)
    }

    /// Reads the next line, without its end, into `line`; `false` at the end of the input. Bytes that are not
    /// UTF-8 are replaced.
    pub(super) fn next_line(
        &mut self,
        input: &mut dyn BufRead,
        line: &mut String,
    ) -> io::Result<bool> {
        let mut bytes = Vec::new();
        let read = io::Read::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(false);
        }
        if read as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
            input.skip_until(b'\n')?;
        }
        while matches!(bytes.last(), Some(b'\n' | b'\r')) {
            bytes.pop();
        }
        line.clear();
        line.push_str(&String::from_utf8_lossy(&bytes));
        self.imported.lines += 1;
        Ok(true)
    }
}

/// Splits `name+0x12` into name and offset; the offset is 0 if there is none.
pub(super) fn split_offset(text: &str) -> (&str, u64) {
    let split = text.rsplit_once("+0x");
    let split = split.and_then(|(name, digits)| {
        let digits = digits.split('/').next().unwrap_or(digits);
        Some((name, u64::from_str_radix(digits, 16).ok()?))
    });
    split
        .filter(|(name, _)| !name.is_empty())
        .unwrap_or((text, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_count_towards_the_limit_of_samples() {
        let mut out = Vec::new();
        let mut importer = Importer::new(&mut out, Metadata::default(), [7; 16]);
        importer.imported.samples = SAMPLES_MAX - 1;
        let origin = Origin {
            time_ns: Some(5),
            vcpu: 0,
            stop: Stop::Unsaid,
        };
        importer.waits(&[], origin, (30, 1)).unwrap();
        let refused = importer.waits(&[], origin, (30, 1)).unwrap_err();
        assert!(matches!(refused, ImportError::TooMany { count: 1, .. }));
    }
}
