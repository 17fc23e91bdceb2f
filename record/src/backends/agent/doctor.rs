//! Examines whether a guest that carries the agent can be recorded well.
//!
//! Input: a target. Output: findings. The guest samples itself for a moment.

use super::open;
use crate::elf::GivenImage;
use crate::guest::checks::say_image;
use crate::source::doctor::{Report, Verdict};
use crate::source::plan::Plan;
use crate::source::ring::ring;
use crate::source::{Hot, Life, Source, SourceError};
use crate::sys::clock::monotonic_ns;
use uprof::{State, Stop};

/// How long the guest samples itself, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// Examines the guest whose agent is at `address`.
pub fn examine(address: &str, elf: Option<&GivenImage>) -> Report {
    let mut report = Report::default();
    let image = say_image(&mut report, elf);
    let images = elf.filter(|_| image.is_some());
    let images: Vec<_> = images
        .into_iter()
        .map(|elf| (elf.path.clone(), elf.address))
        .collect();
    let found = open::open(address, &images, &Plan::default());
    let found = found.and_then(|source| look(&mut report, source));
    match found {
        Ok(has_chains) => {
            let elf = elf.map_or(String::new(), |elf| format!(" --elf {elf}"));
            let stack = if has_chains { "" } else { " --stack" };
            report.command = Some(format!("uniprof record -d 30s{stack}{elf} agent:{address}"));
        }
        Err(error) => report.say(Verdict::Bad, error.to_string()),
    }
    report
}

/// Reports what the agent states, and checks some samples. Returns whether their chains of frame pointers are whole.
fn look(report: &mut Report, mut source: Source) -> Result<bool, SourceError> {
    let facts = source.hot.facts();
    let vcpus = facts.target.vcpus;
    report.say(
        Verdict::Good,
        format!("{vcpus} vCPUs, {}", facts.target.arch.name()),
    );
    for (name, value) in &facts.notes {
        report.say(Verdict::Good, format!("{name}: {value}"));
    }
    for warning in &facts.warnings {
        report.say(Verdict::Poor, warning.clone());
    }
    let Hot::Pushed(source) = &mut source.hot else {
        return Ok(true);
    };
    let plan = Plan::default();
    let (mut sink, mut drain) = ring(plan.kept_bytes(), vcpus as usize, plan.rate_hz, true);
    let (mut running, mut idle, mut whole, mut costs) = (0u32, 0u32, 0u32, Vec::new());
    source.start()?;
    let end_ns = monotonic_ns() + LOOK_NS;
    while monotonic_ns() < end_ns && source.drain(&mut sink)? == Life::Alive {
        source.wait(20)?;
        while drain
            .sample(|slot| {
                let is_running = slot.state == State::Running;
                running += u32::from(is_running);
                idle += u32::from(!is_running);
                // A chain of the instruction alone shows no caller.
                let is_whole = slot.stop == Stop::Complete && slot.chain().len() > 1;
                whole += u32::from(is_running && is_whole);
                costs.extend(slot.details.cost_ns);
            })
            .is_some()
        {}
    }
    source.finish(&mut sink);
    match (running, idle) {
        (0, 0) => report.say(
            Verdict::Bad,
            "no sample came within a second: does the guest's timer interrupt call the agent's sample(), and on the \
             vCPU's own number?",
        ),
        (0, _) => report.say(Verdict::Poor, "all vCPUs were idle for a second: there may be little to sample"),
        _ => report.say(Verdict::Good, format!("{} samples in a second, {idle} of them idle", running + idle)),
    }
    costs.sort_unstable();
    if let Some(cost_ns) = costs.get(costs.len() / 2) {
        report.say(
            Verdict::Good,
            format!("a sample costs the guest {cost_ns} ns (median)"),
        );
    }
    let has_chains = whole * 10 >= running * 9;
    if !has_chains {
        report.say(
            Verdict::Poor,
            format!(
                "of {running} chains of frame pointers {whole} are whole: build the guest with them, name all its \
                 stacks to the agent, or record with --stack"
            ),
        );
    } else if running > 0 {
        report.say(Verdict::Good, "chains of frame pointers are whole");
    }
    Ok(has_chains)
}
