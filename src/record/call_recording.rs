//! `uniprof record --calls`: follows calls of some functions of a guest by breakpoints.

use crate::outcome::Outcome;
use crate::record::Args;
use crate::record::destination::OutputPath;
use crate::record::start;
use crate::record::summary;
use crate::record::warnings::Warning;
use crate::target;
use crate::terminal;
use anyhow::bail;
use std::sync::Arc;
use uniprof_record::{CallSummary, Counters, Ending, signal};
use uprof::words::duration;

/// Records calls, and reports their cost.
pub fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.targets.len() > 1 {
        bail!("--calls follows the calls of one guest: name one target");
    }
    start::warn_of_paused();
    let plan = args.plan();
    // The output is checked first, before the guest is touched.
    let place = OutputPath::find(args.file())?;
    let tracer = target::trace(&start::wanted(args, None), &plan)?;
    let output = start::begin(|| place.create(), args.named_file())?;
    start::warn(tracer.facts());
    let summary =
        uniprof_record::record_calls(tracer, output.writer()?, &plan, Arc::<Counters>::default());
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => {
            output.discard();
            bail!("{error}");
        }
    };
    signal::release_stops();
    if let (0, Ending::Failed(error)) = (summary.calls, &summary.ending) {
        output.discard();
        bail!("{error}");
    }
    let has_error = summary.output_error.is_some();
    let mut summary = summary;
    if !summary::is_kept(
        &output,
        (summary.calls, summary.bytes),
        has_error,
        has_error,
    ) {
        summary.bytes = 0;
    }
    say(&summary, args);
    outcome(&summary)
}

fn outcome(summary: &CallSummary) -> anyhow::Result<Outcome> {
    if let Ending::Failed(error) = &summary.ending {
        bail!("{error}; the calls before that are recorded");
    }
    if summary.calls == 0 && summary.output_error.is_some() {
        bail!("nothing was recorded: no call could be written");
    }
    if summary.calls == 0 {
        warn(Warning::NoCall);
    }
    let is_lossy = summary.calls == 0 || summary.lost > 0 || summary.output_error.is_some();
    Ok(Outcome::lossy_if(is_lossy))
}

fn warn(warning: Warning<'_>) {
    terminal::say(format_args!("uniprof: {warning}"));
}

/// Prints the summary.
fn say(summary: &CallSummary, args: &Args) {
    let output = summary::name_of(args.file());
    let cost = &summary.cost;
    let cut = match summary.without_end {
        0 => String::new(),
        count => format!(", {count} of them without an end"),
    };
    terminal::inform(format_args!(
        "Recorded {} calls{cut} in {:.1} s {}; {}.",
        summary.calls,
        summary.passed_ns as f64 / 1e9,
        summary::kept_at(&output, summary.bytes),
        summary.ending,
    ));
    let stopped_ns = cost.stopped_ns();
    let at = |share| duration(cost.stopped.percentile_ns(share).unwrap_or(0));
    terminal::inform(format_args!(
        "The guest was stopped {} times and stood still for {} in all, {:.1} % of the time, {} a stop (median; 99 %: \
         {}); that time is not in the calls.",
        cost.stops,
        duration(stopped_ns),
        stopped_ns as f64 * 100.0 / summary.passed_ns.max(1) as f64,
        at(0.5),
        at(0.99),
    ));
    if let Some(way_ns) = cost.steps.percentile_ns(0.5) {
        terminal::inform(format_args!(
            "What can't be taken out of a call is the way to the stub and back: about {}, and as much for each call \
             followed inside it.",
            duration(way_ns),
        ));
    }
    if cost.changed_code {
        terminal::inform(format_args!(
            "The stub had not enough hardware breakpoints, so that some were instructions in the guest's code; they \
             are removed."
        ));
    }
    for hot in &cost.too_hot {
        warn(Warning::TooManyStops {
            function: &summary.names[hot.function],
            calls_hz: hot.calls_hz,
            most_stops: args.most_stops,
        });
    }
    let other = summary.lost.saturating_sub(cost.too_hot.len() as u64);
    if other > 0 {
        terminal::say(format_args!(
            "Lost: {other} calls that could not be followed."
        ));
    }
    if let Some(error) = &summary.output_error {
        warn(Warning::Output {
            name: &output,
            error,
        });
    }
}
