//! Texts to import that stand for much, and the recordings that are like them.

use super::{Content, TEXT, count, memory, recording, task, time_ns};
use fastrand::Rng;
use std::io::Write;
use uprof::cold::{TaskChange, TaskEvent};
use uprof::{Frame, Sample, Task, Wait};

/// Folded stacks with large numbers, or samples that stand for long waits.
pub(super) fn weights(random: &mut Rng) -> Content {
    if random.bool() {
        return Content::Text("folded", folded(random));
    }
    recording(random, |writer, random| {
        let (time_ns_max, count_max) = (count(random, u64::MAX), count(random, u64::MAX));
        for row in 0..count(random, 1 << 18) {
            let chain = [Frame::exact(TEXT + random.u64(..64))];
            let mut sample = Sample::bare(row, task(random, 64), &chain);
            sample.wait = Some(Wait {
                time_ns: random.u64(..time_ns_max),
                count: random.u64(1..=count_max),
            });
            memory(writer.sample(&sample));
        }
    })
}

fn folded(random: &mut Rng) -> Vec<u8> {
    let mut text = Vec::new();
    let lines = count(random, 1 << 14);
    let weight = count(random, u64::MAX);
    let depth = count(random, (1 << 18) / lines);
    for line in 0..lines {
        for frame in 0..depth {
            let name = if frame == depth - 1 { line } else { frame };
            memory(write!(text, "f{name};"));
        }
        memory(writeln!(text, "leaf {}", random.u64(..=weight)));
    }
    text
}

/// Processes with a sample each: what `perf script` prints of them, or a recording.
pub(super) fn tasks(random: &mut Rng) -> Content {
    let tasks = count(random, 1 << 18) as u32;
    if random.bool() {
        return Content::Text("perf-script", perf_script(random, tasks));
    }
    recording(random, |writer, random| {
        let mut events = Vec::new();
        for vcpu in 1..=tasks {
            let task = Task { space: vcpu, vcpu };
            let at_ns = time_ns(random);
            let event = |what| TaskEvent {
                time_ns: at_ns,
                task,
                what,
            };
            events.push(event(TaskChange::Named(format!("p{vcpu}"))));
            events.push(event(TaskChange::Ended));
            let chain = [Frame::exact(TEXT)];
            memory(writer.sample(&Sample::bare(at_ns, task, &chain)));
        }
        memory(writer.tasks(&events));
    })
}

fn perf_script(random: &mut Rng, tasks: u32) -> Vec<u8> {
    let mut text = Vec::new();
    let different = count(random, u64::from(tasks));
    for number in 0..tasks {
        let pid = number % different as u32 + 1;
        let seconds = 1 + number / 1000;
        let heading = format!("p{number} {pid}/{pid} [000] {seconds}.{number:06}:  1 cycles:");
        memory(writeln!(text, "{heading}\n\t  401136 work+0x16 (/a.out)\n"));
    }
    text
}
