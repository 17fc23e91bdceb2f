//! Opens an address as a source: attaches, compares the clocks, and places the images.

use super::client::{Client, PATIENCE};
use super::error::AgentError;
use super::intake::Intake;
use super::line::Line;
use super::message::Hello;
use super::source::{AgentSource, ClockObserver};
use super::vchan::{self, Address, Vchan};
use crate::elf::Image;
use crate::guest::endpoint::Endpoint;
use crate::source::plan::Plan;
use crate::source::{Facts, Hot, Life, Source, SourceError};
use crate::sys::clock::monotonic_ns;
use std::path::PathBuf;
use uprof::Task;
use uprof::cold::{Mapping, ModuleEvent, Target, TargetKind, TaskEvent};

/// Number of comparisons of the clocks before the first sample.
const FIRST_PINGS: u32 = 8;
/// Longest time for them, in nanoseconds.
const PINGS_NS: u64 = 1_000_000_000;
/// Pairs of clock readings that may wait for the encoder.
const PAIRS: usize = 256;

/// Opens the target `agent:ADDRESS` with these images, at the addresses that the user gave, if any.
///
/// # Errors
/// Says why the guest can't be sampled.
pub fn open(
    address: &str,
    images: &[(PathBuf, Option<u64>)],
    plan: &Plan,
) -> Result<Source, SourceError> {
    let (client, hello) = Client::attach(line(address)?, address)?;
    Ok(source(client, hello, images, plan)?)
}

fn line(address: &str) -> Result<Box<dyn Line>, AgentError> {
    if let Some(address) = address.strip_prefix(vchan::PREFIX) {
        return Ok(Box::new(Vchan::connect(Address::parse(address)?)?));
    }
    let connection = Endpoint::parse(address).and_then(|endpoint| endpoint.connect(PATIENCE));
    Ok(Box::new(connection?))
}

/// Makes the source for a client that has attached.
pub(super) fn source(
    client: Client,
    hello: Hello,
    images: &[(PathBuf, Option<u64>)],
    plan: &Plan,
) -> Result<Source, AgentError> {
    let now_ns = monotonic_ns();
    let frames = if plan.ip_only {
        0
    } else {
        plan.most_frames.min(hello.most_frames)
    };
    let stack_bytes = (plan.kept_bytes() as u32).min(hello.most_stack_bytes);
    let mut start = [0; 16];
    start[..8].copy_from_slice(&((1e9 / plan.rate_hz) as u64).max(1).to_le_bytes());
    start[8..12].copy_from_slice(&frames.to_le_bytes());
    start[12..].copy_from_slice(&stack_bytes.to_le_bytes());
    let intake = Intake::new(&hello, plan.rate_hz, stack_bytes > 0);
    let (pairs, told) = rtrb::RingBuffer::new(PAIRS);
    let mut facts = facts(&client.name, &hello, &intake, plan, now_ns);
    place(&mut facts, &client.name, &hello, images, now_ns)?;
    let mut source = AgentSource {
        facts,
        client,
        hello,
        intake,
        start,
        pairs,
        ping: None,
        last_ping: (0, now_ns),
        heard_ns: now_ns,
        silent_ns: 0,
        nonce: None,
        attached_anew: 0,
        is_start_due: false,
        told_damaged: 0,
        is_sampling: false,
        life: Life::Alive,
    };
    compare_clocks(&mut source)?;
    Ok(Source {
        observer: Some(Box::new(ClockObserver(told))),
        ..Source::of(Hot::Pushed(Box::new(source)))
    })
}

/// Reads the guest's clock several times, one after the other.
fn compare_clocks(source: &mut AgentSource) -> Result<(), AgentError> {
    let end_ns = monotonic_ns() + PINGS_NS;
    let mut answered = 0;
    source.ping(monotonic_ns());
    while answered < FIRST_PINGS && monotonic_ns() < end_ns {
        source.client.wait(20)?;
        source.take(None)?;
        if source.life != Life::Alive {
            return Err(AgentError::Closed(source.client.name.clone()));
        }
        if source.ping.is_none() {
            answered += 1;
            source.ping(monotonic_ns());
        }
    }
    match answered {
        0 => Err(AgentError::Silent(
            source.client.name.clone(),
            PINGS_NS / 1_000_000_000,
        )),
        _ => Ok(()),
    }
}

fn facts(address: &str, hello: &Hello, intake: &Intake, plan: &Plan, now_ns: u64) -> Facts {
    let tasks = (0..hello.vcpus)
        .map(|vcpu| TaskEvent::named(now_ns, Task { space: 0, vcpu }, format!("vCPU {vcpu}")));
    let mut notes = vec![
        ("agent".to_owned(), address.to_owned()),
        (
            "guest's clock".to_owned(),
            format!("{} ticks a second", hello.clock_hz),
        ),
    ];
    if hello.timer_hz > 0 {
        notes.push((
            "guest's timer".to_owned(),
            format!("{} interrupts a second", hello.timer_hz),
        ));
    }
    let is_slow = hello.timer_hz > 0 && f64::from(hello.timer_hz) < plan.rate_hz;
    let slow = is_slow.then(|| {
        format!(
            "the guest's timer comes {} times a second, so that {} samples a second can't be had of it",
            hello.timer_hz, plan.rate_hz
        )
    });
    let is_short = plan.kept_bytes() as u64 > u64::from(hello.most_stack_bytes);
    let short = is_short.then(|| {
        format!(
            "the guest's agent takes at most {} bytes of a stack, of {} asked for",
            hello.most_stack_bytes,
            plan.kept_bytes()
        )
    });
    Facts {
        notes,
        warnings: slow.into_iter().chain(short).collect(),
        tasks: tasks.collect(),
        ..Facts::new(Target {
            kind: TargetKind::Agent,
            id: 0,
            name: hello.name.clone(),
            arch: intake.arch(),
            vcpus: hello.vcpus,
        })
    }
}

/// Places the images. An image with the guest's build-id is certain. Without an image, the guest's own statement is
/// recorded, by which a report finds the image.
fn place(
    facts: &mut Facts,
    name: &str,
    hello: &Hello,
    images: &[(PathBuf, Option<u64>)],
    now_ns: u64,
) -> Result<(), AgentError> {
    let (mut placed, mut others, mut foreign) = (false, Vec::new(), Vec::new());
    for (path, address) in images {
        let image = Image::open(path, *address);
        let image = image.map_err(|error| AgentError::Image(error.to_string()))?;
        let in_place = |image: Image| match (address, hello.code_bytes) {
            (None, 1..) => image.with_code_at(hello.code_start, hello.code_offset),
            _ => image,
        };
        if hello.build_id.is_empty() || image.build_id().is_empty() {
            others.push(in_place(image));
            continue;
        }
        if image.build_id() != hello.build_id {
            foreign.push(AgentError::OtherImage {
                name: name.to_owned(),
                image: path.display().to_string(),
                own: hexadecimal(image.build_id()),
                guest: hexadecimal(&hello.build_id),
            });
            others.push(image);
            continue;
        }
        placed = true;
        facts
            .modules
            .extend(in_place(image).module_events(now_ns, 0));
    }
    // If one is the guest's, it may be a loader that starts another one.
    if foreign.len() == images.len()
        && let Some(error) = foreign.into_iter().next()
    {
        return Err(error);
    }
    facts.images = others.into();
    if !placed && facts.images.is_empty() && hello.code_bytes > 0 {
        let mapping = Mapping {
            start: hello.code_start,
            length: hello.code_bytes,
            file_offset: hello.code_offset,
            path: if hello.name.is_empty() {
                "guest".into()
            } else {
                hello.name.clone()
            },
            build_id: hello.build_id.clone(),
            file: None,
        };
        facts.modules.push(ModuleEvent::mapped(now_ns, 0, mapping));
    }
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_told() {
        for wrong in ["", "localhost", "host:", "host:0", "host:99999", "host:x"] {
            let error = open(wrong, &[], &Plan::default()).err();
            let expected = SourceError::from(AgentError::Address(wrong.into()));
            assert_eq!(error, Some(expected));
        }
    }
}
