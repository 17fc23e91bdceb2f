//! An output that fails in the middle of a block: what was written before and after is read, and
//! what was not is told.

#[allow(dead_code)]
mod fixture;

use fixture::end;
use std::io::{self, Write};
use uprof::cold::Metadata;
use uprof::{Frame, Item, Sample, SliceReader, Task, Writer};

/// A disk that has room up to a byte, and again after it was asked in vain a number of times.
struct Disk {
    bytes: Vec<u8>,
    room: usize,
    refusals: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.refusals == 0 {
            self.bytes.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let fits = bytes.len().min(self.room - self.bytes.len());
        if fits == 0 {
            self.refusals -= 1;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(&bytes[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_costs_the_blocks_that_did_not_fit() {
    const SAMPLES: u64 = 12;
    for room in (200..1500).step_by(7) {
        let disk = Disk {
            bytes: Vec::new(),
            room,
            refusals: 2,
        };
        let mut writer = Writer::create(disk, [1; 16], &Metadata::default(), 0).unwrap();
        let mut refused = 0;
        for number in 0..SAMPLES {
            let task = Task { space: 0, vcpu: 0 };
            let chain = [Frame::exact(number)];
            writer.sample(&Sample::bare(number, task, &chain)).unwrap();
            refused += u64::from(writer.flush().is_err());
        }
        let Ok(disk) = writer.finish(&end()) else {
            continue;
        };
        let recording = SliceReader::open(&disk.bytes).unwrap();
        let (mut found, mut lost) = (0, 0);
        for item in recording.blocks() {
            match item {
                Item::Block(block) => found += u64::from(block.samples),
                Item::Damage(damage) => lost += damage.samples.unwrap(),
            }
        }
        assert_eq!(
            (found, lost),
            (SAMPLES - refused, refused),
            "room for {room} bytes"
        );
    }
}
