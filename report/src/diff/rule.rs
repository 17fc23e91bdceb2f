//! `--fail-if`: a change that must not happen, such as `netfront_rx>+5%` or `any>+2%`.

use super::Diff;
use super::calls::{CallChange, CallDiff, percent};
use super::series::Counted;
use super::verdict::Change;

/// A change that must not happen.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The function; `None` for any.
    function: Option<String>,
    /// Whether growing fails, or shrinking.
    grows: bool,
    /// By how much: relative to A's share, or of all samples.
    by: f64,
    unit: Unit,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Of the function's own share in A.
    Relative,
    /// Of all samples.
    Points,
}

/// The result of a rule, with its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleVerdict {
    /// No change breaks it for certain.
    Passed(String),
    /// A change breaks it.
    Broken(String),
    /// It names a function that neither side has.
    Missing(String),
}

/// Why a rule can't be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read the rule '{0}': write FUNCTION>+5% (of its share before), FUNCTION>+0.5pp (of all \
     samples), FUNCTION<-5%, or any>+2%"
)]
pub struct RuleError(String);

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// [`RuleError`] if it isn't one.
    pub fn parse(text: &str) -> Result<Rule, RuleError> {
        Rule::read(text).ok_or_else(|| RuleError(text.to_owned()))
    }

    fn read(text: &str) -> Option<Rule> {
        // Names may hold `<` and `>`; a rule's sign is the last one with a sign behind it.
        let growing = text.rfind(">+").map(|at| (at, true));
        let shrinking = text.rfind("<-").map(|at| (at, false));
        let (at, grows) = growing.max(shrinking)?;
        let (name, size) = (text[..at].trim(), text[at + 2..].trim());
        let (number, unit) = match (size.strip_suffix("pp"), size.strip_suffix('%')) {
            (Some(number), _) => (number, Unit::Points),
            (_, Some(number)) => (number, Unit::Relative),
            _ => return None,
        };
        let percent: f64 = number.trim().parse().ok()?;
        if name.is_empty() || !percent.is_finite() || percent < 0.0 {
            return None;
        }
        Some(Rule {
            function: (name != "any").then(|| name.to_owned()),
            grows,
            by: percent / 100.0,
            unit,
            text: text.to_owned(),
        })
    }

    /// The result of the rule.
    pub fn verdict(&self, diff: &Diff) -> RuleVerdict {
        if let Some(wanted) = &self.function
            && !diff.series.functions.iter().any(|it| it.name == *wanted)
        {
            return RuleVerdict::Missing(format!(
                "{}: neither side has a function that is called {wanted}",
                self.text
            ));
        }
        let mut changes = diff.verdicts.changes.iter();
        if let Some(broken) = changes.clone().find(|change| self.is_broken(diff, change)) {
            let change = self.describe(diff, broken);
            return RuleVerdict::Broken(format!("{} is broken by {change}", self.text));
        }
        // Where many functions are checked, the closest one is of no interest.
        let judged = self.function.as_ref();
        let judged = judged.and_then(|_| changes.find(|change| self.is_asked(diff, change)));
        let change = judged.map(|change| format!(": {}", self.describe(diff, change)));
        RuleVerdict::Passed(format!(
            "{} is kept{}",
            self.text,
            change.unwrap_or_default()
        ))
    }

    /// The result for calls: of a function's time per call, its own and with what it calls, and of how often it is
    /// called, none may change so.
    ///
    /// # Errors
    /// What is wrong with a rule about points, which calls don't have.
    pub fn verdict_of_calls(&self, diff: &CallDiff) -> Result<RuleVerdict, String> {
        if self.unit == Unit::Points {
            return Err(format!(
                "{}: points are of shares of samples; of calls, write a part of the time per call or of the calls a \
                 second, as in 'walk>+5%'",
                self.text
            ));
        }
        if let Some(wanted) = &self.function
            && !diff.series.functions.iter().any(|it| it.name == *wanted)
        {
            return Ok(RuleVerdict::Missing(format!(
                "{}: neither side has a function that is called {wanted}",
                self.text
            )));
        }
        let asked = |change: &&CallChange| match &self.function {
            Some(wanted) => diff.name(change) == wanted,
            None => change.certain,
        };
        let interval = |change: &CallChange| match self.function {
            Some(_) => change.interval_with(diff.options.confidence),
            None => change.interval(),
        };
        let describe = |change: &CallChange| {
            let (low, high) = interval(change);
            let (name, of) = (diff.name(change), change.of.name());
            format!(
                "{name} ({of}): {}; apart from what most functions changed by, between {} and {}",
                percent(change.relative()),
                percent(low),
                percent(high)
            )
        };
        let is_broken = |change: &&CallChange| match (interval(change), self.grows) {
            ((low, _), true) => low > self.by && change.relative() > self.by,
            ((_, high), false) => high < -self.by && change.relative() < -self.by,
        };
        let changes = || diff.verdicts.changes.iter().filter(asked);
        if let Some(broken) = changes().find(is_broken) {
            let change = describe(broken);
            return Ok(RuleVerdict::Broken(format!(
                "{} is broken by {change}",
                self.text
            )));
        }
        let judged = self.function.as_ref().and_then(|_| changes().next());
        let judged = judged.map(|change| format!(": {}", describe(change)));
        let judged = judged.unwrap_or_default();
        Ok(RuleVerdict::Passed(format!(
            "{} is kept{judged}",
            self.text
        )))
    }

    /// A change in words.
    fn describe(&self, diff: &Diff, change: &Change) -> String {
        let series = &diff.series;
        let item = &series.items[change.item];
        let (low, high) = self.intervals(diff, change).0;
        format!(
            "{} ({}): {:.2}% → {:.2}% of the {}, change between {:+.2} and {:+.2} points",
            series.item_name(item),
            item.counted.name(),
            change.estimate.a * 100.0,
            change.estimate.b * 100.0,
            series.unit.what(),
            low * 100.0,
            high * 100.0
        )
    }

    /// Whether a change is of the function that the rule names.
    fn is_asked(&self, diff: &Diff, change: &Change) -> bool {
        let series = &diff.series;
        let item = &series.items[change.item];
        let name = &series.functions[item.function as usize].name;
        self.function.as_ref() == Some(name) && item.counted == counted_of(diff, item.function)
    }

    /// The intervals of a change and of the relative change: at the requested confidence for a function that was
    /// named beforehand, and corrected for many tests otherwise.
    fn intervals(&self, diff: &Diff, change: &Change) -> ((f64, f64), Option<(f64, f64)>) {
        let confidence = match self.function {
            Some(_) => diff.options.confidence,
            None => change.confidence,
        };
        let estimate = &change.estimate;
        let relative = estimate.relative_interval(confidence);
        (estimate.interval(confidence), relative)
    }

    fn is_broken(&self, diff: &Diff, change: &Change) -> bool {
        let series = &diff.series;
        let item = &series.items[change.item];
        match &self.function {
            // A function named beforehand: its own test decides.
            Some(_) if !self.is_asked(diff, change) || !series.is_matched(item) => return false,
            Some(_) => {}
            // Any of many: it must have passed the test among all of them.
            None if !change.certain || item.counted == Counted::Path => return false,
            None => {}
        }
        let (points, relative) = self.intervals(diff, change);
        let (low, high) = match self.unit {
            Unit::Points => points,
            Unit::Relative => match relative {
                Some(interval) => interval,
                // New in B: more than any share of nothing. Gone: all of it.
                None if change.estimate.change() < 0.0 => match points.1 < 0.0 {
                    true => (-1.0, -1.0),
                    false => (-1.0, f64::INFINITY),
                },
                None => (points.0.signum() * f64::INFINITY, f64::INFINITY),
            },
        };
        match self.grows {
            true => low > self.by,
            false => high < -self.by,
        }
    }
}

/// A function is judged with its callees, if it has any.
fn counted_of(diff: &Diff, function: u32) -> Counted {
    let items = diff.series.items.iter();
    let mut mine = items.filter(|item| item.function == function);
    match mine.any(|item| item.counted == Counted::Total) {
        true => Counted::Total,
        false => Counted::Own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_nonsense_is_refused() {
        let rule = Rule::parse("netfront_rx>+5%").unwrap();
        assert_eq!(rule.function.as_deref(), Some("netfront_rx"));
        assert!(rule.grows && (rule.by - 0.05).abs() < 1e-12);
        assert_eq!(Rule::parse("any>+2%").unwrap().function, None);
        let odd = Rule::parse("<Vec<T> as Drop>::drop < -0.5pp").ok();
        assert_eq!(odd, None);
        let odd = Rule::parse("<Vec<T> as Drop>::drop<-0.5pp").unwrap();
        assert_eq!(odd.function.as_deref(), Some("<Vec<T> as Drop>::drop"));
        assert!(!odd.grows && odd.unit == Unit::Points);
        for bad in [
            "", "x", "x>5%", "x>+", "x>+%", ">+5%", "x>+5", "x>+-5%", "x>+nan%",
        ] {
            assert!(Rule::parse(bad).is_err(), "{bad}");
        }
    }
}
