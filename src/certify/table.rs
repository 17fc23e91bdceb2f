//! A certificate as a table, or as JSON.

use crate::certify::finding::{Certificate, Finding, Tally};
use crate::output::write_to_stdout;
use serde_json::{Value, json};
use std::io::{self, Write};
use uniprof_report::text::{printable, short};

/// Writes it to standard output.
///
/// # Errors
/// The errors of standard output.
pub fn write(certificate: &Certificate, is_json: bool) -> anyhow::Result<()> {
    write_to_stdout(|out| {
        if is_json {
            let whole = whole(certificate);
            serde_json::to_writer_pretty(&mut *out, &whole)?;
            return writeln!(out);
        }
        text(certificate, out)
    })
}

fn text(certificate: &Certificate, out: &mut dyn Write) -> io::Result<()> {
    let peer = certificate.peer;
    let peer_heading = peer.map_or(String::new(), |peer| format!("{peer:>8}  {:<14}", ""));
    writeln!(
        out,
        "{:>9}  {:>7}  {:>7}  {:<14}  {:<5}  {peer_heading}function",
        "planted", "%", "seen %", "95 % interval", ""
    )?;
    for finding in &certificate.findings {
        let module = finding.image.rsplit('/').next().unwrap_or_default();
        let name = format!("{} [{module}]", short(&printable(&finding.function)));
        let planted = finding.planted().filter(|_| finding.is_enough());
        let Some(planted) = planted else {
            let reason = finding.reason.as_deref().unwrap_or_default();
            writeln!(out, "{:>9}  {name}: {reason}", "-")?;
            continue;
        };
        write!(
            out,
            "{:>6.0} ms  {:>7.2}  {}  {}  ",
            finding.planted_ns as f64 / 1e6,
            planted * 100.0,
            seen(finding.tally),
            verdict(finding.tally, planted)
        )?;
        if peer.is_some() {
            write!(out, "{}  ", seen(finding.beside.unwrap_or_default()))?;
        }
        writeln!(out, "{name}")?;
    }
    writeln!(out)?;
    for warning in &certificate.warnings {
        writeln!(out, "Warning: {warning}.")?;
    }
    writeln!(out, "{}", sentence(certificate))
}

/// The share that was seen, and its interval.
fn seen(tally: Tally) -> String {
    let percent = |share: f64| share * 100.0;
    let (low, high) = tally.interval().unwrap_or_default();
    let interval = format!("{:.2} to {:.2}", percent(low), percent(high));
    format!(
        "{:>7.2}  {interval:<14}",
        percent(tally.share().unwrap_or_default())
    )
}

fn verdict(tally: Tally, planted: f64) -> &'static str {
    if tally.covers(planted) == Some(true) {
        "right"
    } else {
        "WRONG"
    }
}

fn sentence(certificate: &Certificate) -> String {
    let all = certificate.findings.len();
    let is_covered = |covered| {
        let found = certificate.findings.iter();
        found
            .filter(|finding| finding.is_covered() == Some(covered))
            .count()
    };
    let (right, wrong) = (is_covered(true), is_covered(false));
    let functions = if right == 1 { "function" } else { "functions" };
    match (wrong, all - right - wrong) {
        (0, 0) => {
            format!("The profile is right: it shows what was planted in {right} {functions}.")
        }
        (0, left) => format!(
            "The profile shows what was planted in {right} {functions}; {left} could not be slowed down."
        ),
        (wrong, _) => format!(
            "The profile is WRONG: in {wrong} of {all} functions it does not show what was planted. Don't decide by it \
             here; `uniprof doctor` says what this machine lacks."
        ),
    }
}

fn whole(certificate: &Certificate) -> Value {
    let functions: Vec<Value> = certificate.findings.iter().map(one).collect();
    json!({
        "command": certificate.command,
        "share": certificate.share,
        "frequency_hz": certificate.frequency,
        "beside": certificate.peer,
        "right": certificate.is_right(),
        "verdict": sentence(certificate),
        "warnings": certificate.warnings,
        "functions": functions,
    })
}

fn one(finding: &Finding) -> Value {
    let profile = |tally: Tally| {
        let (low, high) = tally.interval().unzip();
        let covered = finding.planted().and_then(|planted| tally.covers(planted));
        json!({
            "samples": tally.samples,
            "seen_samples": tally.seen,
            "seen_share": tally.share(),
            "low": low,
            "high": high,
            "covered": covered,
        })
    };
    json!({
        "function": finding.function,
        "image": finding.image,
        "share_before": finding.share,
        "runs": finding.runs,
        "spins": finding.spins,
        "cpu_ns": finding.cpu_ns,
        "planted_ns": finding.planted_ns,
        "planted_share": finding.planted(),
        "profile": profile(finding.tally),
        "beside": finding.beside.map(profile),
        "not_slowed_down": finding.reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(planted_ns: u64, seen: u64) -> Finding {
        Finding {
            function: "parse".to_owned(),
            image: "/bin/server".to_owned(),
            share: 0.3,
            runs: 1,
            spins: 80,
            cpu_ns: 2_000_000_000,
            planted_ns,
            tally: Tally {
                samples: 2000,
                seen,
            },
            beside: None,
            reason: None,
        }
    }

    #[test]
    fn a_wrong_profile_is_called_wrong() {
        let written = |findings: Vec<Finding>| {
            let certificate = Certificate {
                command: vec!["server".to_owned()],
                share: 0.1,
                frequency: 997.0,
                peer: None,
                findings,
                warnings: Vec::new(),
            };
            let mut out = Vec::new();
            text(&certificate, &mut out).unwrap();
            let is_right = whole(&certificate)["right"] == true;
            assert_eq!(is_right, certificate.is_right());
            (String::from_utf8(out).unwrap(), is_right)
        };
        // 10 % were planted.
        let (text, is_right) = written(vec![finding(200_000_000, 190)]);
        assert!(
            is_right && text.contains("right") && !text.contains("WRONG"),
            "{text}"
        );
        for seen in [0, 150, 260] {
            let (text, is_right) =
                written(vec![finding(200_000_000, 200), finding(200_000_000, seen)]);
            assert!(!is_right && text.contains("WRONG: in 1 of 2"), "{text}");
        }
        // So little shows nothing.
        let (text, is_right) = written(vec![finding(200_000_000, 200), finding(2_000_000, 2)]);
        assert!(
            !is_right && text.contains("1 could not be slowed down"),
            "{text}"
        );
    }
}
