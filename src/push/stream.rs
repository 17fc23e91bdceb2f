//! `uniprof push -`: a recording that comes now is pushed interval by interval. In: the recording. Out: messages,
//! through the spool. A server that is away costs only room there.
//!
//! A thread reads, another one delivers, and this one makes messages.

use super::Args;
use super::client::Client;
use super::conversion::Conversion;
use super::deadline::Deadline;
use super::delivery::{Delivery, Left, PAUSE_MAX, without_numbers};
use super::inlet::Inlet;
use super::spool::Spool;
use crate::outcome::{Outcome, describe};
use crate::selection::{inform, say};
use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use uniprof_report::stacks::Tables;

/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(100);
/// How often the spool is looked at, without news.
const REST: Duration = Duration::from_secs(1);
/// What is said once names had to be forgotten.
const LACKS_NAMES: &str = "warning: some functions have no names: the names and mappings of what runs take more than \
                           32 MiB, or tables of generated code more than 64 MiB, and the oldest are left out";

/// What became of the messages.
struct Delivered {
    delivered: u64,
    refused: u64,
    /// Why something is left.
    why: Option<String>,
}

/// Pushes what comes on standard input until its end.
pub fn push(args: &Args, client: &Client, spool: &Spool) -> anyhow::Result<Outcome> {
    // What is named wrongly is told at once.
    args.images.library()?;
    #[cfg(feature = "record")]
    uniprof_record::lockdown::lock_down(None)?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        // The second one ends the program at once; what is in the spool stays there.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_stopped))
            .context("cannot listen to signals")?;
        signal_hook::flag::register(signal, Arc::clone(&is_stopped))
            .context("cannot listen to signals")?;
    }
    let (inlet, reader) = Inlet::open(args.every)?;
    let deadline = Deadline::open(args.retry_for);
    let mut conversion = Conversion::new(args, client, spool, &deadline);
    let delivered = thread::scope(|scope| {
        let start = |name: &str| thread::Builder::new().name(name.into());
        let delivers = start("uniprof-delivers");
        let delivers = delivers.spawn_scoped(scope, || deliver(client, spool, &deadline));
        let delivers = delivers.context("cannot start a thread")?;
        let reads = start("uniprof-stream").spawn_scoped(scope, || inlet.fill(reader));
        let converted = reads
            .context("cannot start a thread")
            .and_then(|_| convert(&inlet, &mut conversion, &is_stopped));
        deadline.close();
        while !delivers.is_finished() {
            if is_stopped.load(Ordering::Relaxed) {
                deadline.hurry();
            }
            thread::sleep(LOOK / 4);
        }
        let delivered = delivers.join();
        converted?;
        delivered.map_err(|_| anyhow::anyhow!("a thread failed, as reported above"))
    })?;
    Ok(say_result(&inlet, &conversion, &delivered))
}

/// Converts intervals until the stream is over.
fn convert(
    inlet: &Inlet,
    conversion: &mut Conversion<'_>,
    is_stopped: &AtomicBool,
) -> anyhow::Result<()> {
    let args = conversion.args;
    loop {
        let library = args.images.library()?;
        let tables = Tables::new(&library);
        while !tables.are_full() {
            if is_stopped.load(Ordering::Relaxed) {
                conversion.deadline.hurry();
            }
            match inlet.next(LOOK)? {
                Some(interval) => {
                    conversion.convert(interval, &tables);
                    if inlet.lacks_names() {
                        conversion.say_once(LACKS_NAMES);
                    }
                }
                None if inlet.end().is_some() => return Ok(()),
                None => {}
            }
        }
    }
}

/// Delivers what is in the spool until the recording is over, and what is left then for as long as the deadline says.
fn deliver(client: &Client, spool: &Spool, deadline: &Deadline) -> Delivered {
    let mut delivery = Delivery::new(client, deadline);
    let mut waits_since = None;
    let mut last_said = String::new();
    let why = loop {
        let is_over = deadline.is_closed();
        match delivery.deliver_all(spool) {
            Ok(Left::Nothing) if is_over => break None,
            Ok(Left::Nothing) => {
                last_said.clear();
                deadline.wait_for_news(REST);
            }
            Ok(Left::ToAnother) => {
                let since = *waits_since.get_or_insert_with(Instant::now);
                if is_over && spool.waiting().is_ok_and(|waiting| waiting.is_empty()) {
                    break None;
                }
                if deadline.left(since).is_zero() {
                    break Some("another uniprof is delivering from this spool".to_owned());
                }
                deadline.pause(REST);
                continue;
            }
            Ok(Left::Undelivered(why)) => break Some(why),
            Ok(Left::Unusable(why)) if is_over => break Some(why),
            Ok(Left::Unusable(why)) => {
                // A server that is set up anew, or a proxy before it, answers so for a while.
                let said = without_numbers(&why);
                if said != last_said {
                    say(&format!(
                        "{}: {why}; trying again; what comes is kept in {}",
                        client.url,
                        spool.folder().display()
                    ));
                    last_said = said;
                }
                deadline.pause_while_open(PAUSE_MAX);
            }
            Err(error) if is_over => break Some(describe(&error)),
            Err(error) => {
                let error = describe(&error);
                if error != last_said {
                    say(&format!("warning: {error}; trying again"));
                    last_said = error;
                }
                deadline.pause_while_open(REST);
            }
        }
        waits_since = None;
    };
    delivery.say_repeated();
    Delivered {
        delivered: delivery.delivered,
        refused: delivery.refused,
        why,
    }
}

/// Says what was pushed and what not.
fn say_result(inlet: &Inlet, conversion: &Conversion<'_>, delivered: &Delivered) -> Outcome {
    let (spool, url) = (conversion.spool, &conversion.client.url);
    let folder = spool.folder().display();
    inform(&format!(
        "profiles delivered to {url}: {}",
        delivered.delivered
    ));
    let mut missing = inlet.missing();
    if conversion.lost_samples > 0 {
        missing.push(format!(
            "samples that became no profile: {}",
            conversion.lost_samples
        ));
    }
    if conversion.lost_profiles > 0 {
        missing.push(format!(
            "profiles that the spool did not take: {}",
            conversion.lost_profiles
        ));
    }
    if spool.dropped() > 0 {
        missing.push(format!(
            "profiles dropped, as the spool was full: {}; --spool-size raises its limit",
            spool.dropped()
        ));
    }
    if delivered.refused > 0 {
        missing.push(format!(
            "profiles that were refused: {}, in {folder}; rename them to try again, or remove them",
            delivered.refused
        ));
    }
    let waiting = conversion.own.iter().filter(|path| path.exists()).count();
    if waiting > 0 {
        let why = delivered.why.as_deref().unwrap_or("they came too late");
        missing.push(format!(
            "{url}: {why}; profiles that wait in {folder}: {waiting}; `uniprof push --spool {folder} --to {url}` \
             delivers them"
        ));
    }
    missing.iter().for_each(|line| say(line));
    // That names are missing was said when it began.
    Outcome::lossy_if(!missing.is_empty() || inlet.lacks_names())
}
