//! The conditions of `--save-when`.

use crate::quantity::{parse_duration, parse_share};
use anyhow::{anyhow, bail};
use uniprof_record::trigger::{Condition, Trigger};

/// The time over which a condition is judged that says none.
const USUAL_FOR_NS: u64 = 1_000_000_000;
const FORMS: &str =
    "a condition is 'busy>95% for 3s', 'silent for 2s', 'crash' or 'share(FUNCTION)>20% for 2s'";

/// Parses a condition.
pub fn parse(text: &str) -> anyhow::Result<Trigger> {
    // A function's name may have this word, before the sign and the share.
    let divided = text
        .rsplit_once(" for ")
        .filter(|(_, time)| !time.contains('>'));
    let (what, time) = match divided {
        Some((what, time)) => (what.trim(), Some(time.trim())),
        None => (text.trim(), None),
    };
    let condition = condition(what)?;
    let for_ns = match time {
        Some(_) if condition == Condition::Crash => {
            bail!("`crash` happens at once, without a time: {FORMS}")
        }
        Some(time) => {
            let time = parse_duration(time).map_err(|error| anyhow!("`for {time}`: {error}"))?;
            u64::try_from(time.as_nanos())?
        }
        None => USUAL_FOR_NS,
    };
    Ok(Trigger {
        text: text.trim().to_owned(),
        condition,
        for_ns,
    })
}

fn condition(what: &str) -> anyhow::Result<Condition> {
    match what {
        "silent" => return Ok(Condition::Silent),
        "crash" => return Ok(Condition::Crash),
        _ => {}
    }
    // A function's name may have this sign, a share has none.
    let Some((what, share)) = what.rsplit_once('>') else {
        bail!("{FORMS}");
    };
    let share = parse_share(share.trim()).map_err(|error| anyhow!("`>{share}`: {error}"))?;
    if share >= 1.0 {
        bail!("more than 100% never happens; {FORMS}");
    }
    let what = what.trim();
    if what == "busy" {
        return Ok(Condition::Busy(share));
    }
    let function = what
        .strip_prefix("share(")
        .and_then(|rest| rest.strip_suffix(')'));
    match function.map(str::trim) {
        Some(function) if !function.is_empty() => Ok(Condition::Share(function.to_owned(), share)),
        _ => bail!("{FORMS}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_of_all_kinds() {
        let busy = parse("busy>95% for 3s").unwrap();
        assert_eq!(busy.condition, Condition::Busy(0.95));
        assert_eq!(
            (busy.for_ns, busy.text.as_str()),
            (3_000_000_000, "busy>95% for 3s")
        );
        assert_eq!(parse("silent for 200ms").unwrap().for_ns, 200_000_000);
        assert_eq!(parse(" crash ").unwrap().condition, Condition::Crash);
        let function = |text| match parse(text).unwrap().condition {
            Condition::Share(function, share) => (function, share),
            other => panic!("{other:?}"),
        };
        assert_eq!(function("share(parse)>20% for 2s"), ("parse".into(), 0.2));
        assert_eq!(
            function("share(a > b for (c)) > 0.5"),
            ("a > b for (c)".into(), 0.5)
        );
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        let wrong = [
            "",
            "busy",
            "busy>",
            "busy>95% for",
            "busy>95% for 3",
            "busy>101% for 3s",
            "busy>100%",
            "busy<5%",
            "idle",
            "silent for",
            "silent for 0s",
            "crash for 2s",
            "share()>2%",
            "share(x>2%",
            "share(x)",
            "busy>95%for3s",
        ];
        let accepted: Vec<_> = wrong.iter().filter(|text| parse(text).is_ok()).collect();
        // A bare number is in seconds.
        assert_eq!(accepted, [&"busy>95% for 3"]);
    }
}
