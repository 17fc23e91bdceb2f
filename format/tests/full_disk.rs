//! An output that fails in the middle of a block. What was written before and after can be read, and the rest
//! is reported as lost.

#[allow(dead_code)]
mod fixture;

use fixture::end;
use std::io::{self, Write};
use uprof::cold::Metadata;
use uprof::{Frame, Item, Sample, SliceReader, Task, Writer};

/// A disk that has room up to a byte. After it has refused a number of writes, it has room again.
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

/// If the recorder is killed between any two writes, it leaves a file that can be opened.
#[test]
fn what_is_there_after_each_write_is_a_recording() {
    struct Steps(std::rc::Rc<std::cell::RefCell<Vec<Vec<u8>>>>);
    impl std::io::Write for Steps {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut steps = self.0.borrow_mut();
            let mut so_far = steps.last().cloned().unwrap_or_default();
            so_far.extend(bytes);
            steps.push(so_far);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let steps = std::rc::Rc::default();
    let out = Steps(std::rc::Rc::clone(&steps));
    let metadata = uprof::cold::Metadata::default();
    let mut writer = uprof::Writer::create(out, [7; 16], &metadata, 0).unwrap();
    for time_ns in 0..3 {
        let task = uprof::Task { space: 0, vcpu: 0 };
        let chain = [uprof::Frame::exact(0x1000)];
        let sample = uprof::Sample::bare(time_ns, task, &chain);
        writer.sample(&sample).unwrap();
        writer.flush().unwrap();
    }
    let steps = steps.borrow();
    assert_eq!(steps.len(), 4, "metadata, and three blocks");
    for (number, bytes) in steps.iter().enumerate() {
        let recording = uprof::SliceReader::open(bytes).unwrap();
        let blocks = recording.blocks();
        let blocks = blocks.filter(|item| matches!(item, uprof::Item::Block(_)));
        assert_eq!(blocks.count(), 1 + number);
    }
}
