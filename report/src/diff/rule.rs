//! `--fail-if`: a change that must not happen, such as `netfront_rx>+5%` or `any>+2%`.

use super::Diff;
use super::calls::{CallDiff, percent};
use super::matching::Match;
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

/// Why a rule can't be parsed, or applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It isn't one.
    #[error(
        "cannot read the rule '{0}': write FUNCTION>+5% (of its share before), FUNCTION>+0.5pp (of all \
         samples), FUNCTION<-5%, or any>+2%"
    )]
    Unreadable(String),
    /// It is about points, which calls don't have.
    #[error(
        "{0}: points are of shares of samples; of calls, write a part of the time per call or of the calls a \
         second, as in 'walk>+5%'"
    )]
    Points(String),
}

/// A change as a rule sees it.
#[derive(Debug)]
pub struct Figure {
    /// The interval, in the unit of the rule.
    interval: (f64, f64),
    /// Whether it may break a rule.
    is_sound: bool,
    /// The change in words.
    words: String,
}

/// A comparison that rules can be applied to.
pub trait Ruled {
    /// Functions of both sides.
    fn functions(&self) -> &[Match];
    /// The changes that a rule is about, in their order.
    ///
    /// # Errors
    /// [`RuleError::Points`] where there are none.
    fn figures(&self, rule: &Rule) -> Result<Vec<Figure>, RuleError>;
}

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// [`RuleError`] if it isn't one.
    pub fn parse(text: &str) -> Result<Rule, RuleError> {
        Rule::read(text).ok_or_else(|| RuleError::Unreadable(text.to_owned()))
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

    /// The result of the rule: it is broken if a change that it is about is certainly as large as it says.
    ///
    /// # Errors
    /// [`RuleError::Points`] where the rule has a unit that the comparison doesn't.
    pub fn verdict(&self, of: &dyn Ruled) -> Result<RuleVerdict, RuleError> {
        let figures = of.figures(self)?;
        if let Some(name) = &self.function
            && !of.functions().iter().any(|it| it.name == *name)
        {
            return Ok(RuleVerdict::Missing(format!(
                "{}: neither side has a function that is called {name}",
                self.text
            )));
        }
        let is_beyond = |(low, high): (f64, f64)| {
            if self.grows {
                low > self.by
            } else {
                high < -self.by
            }
        };
        let mut all = figures.iter();
        let broken = all.find(|figure| figure.is_sound && is_beyond(figure.interval));
        if let Some(Figure { words, .. }) = broken {
            return Ok(RuleVerdict::Broken(format!(
                "{} is broken by {words}",
                self.text
            )));
        }
        // Where many functions are checked, the closest one is of no interest.
        let judged = figures.first().filter(|_| self.function.is_some());
        let words = judged.map(|figure| format!(": {}", figure.words));
        let words = words.unwrap_or_default();
        Ok(RuleVerdict::Passed(format!("{} is kept{words}", self.text)))
    }
}

/// A function that was named beforehand is tested by itself, at the confidence asked for, with its callees if it has
/// any; any of many must have passed the test among all of them.
impl Ruled for Diff {
    fn functions(&self) -> &[Match] {
        &self.series.functions
    }

    fn figures(&self, rule: &Rule) -> Result<Vec<Figure>, RuleError> {
        let series = &self.series;
        let changes = self.verdicts.changes.iter().filter(|change| {
            let item = &series.items[change.item];
            match &rule.function {
                Some(name) => {
                    series.functions[item.function as usize].name == *name
                        && item.counted == counted_of(self, item.function)
                }
                None => change.certain && item.counted != Counted::Path,
            }
        });
        let figure = |change: &Change| {
            let item = &series.items[change.item];
            let confidence = match rule.function {
                Some(_) => self.options.confidence,
                None => change.confidence,
            };
            let points = change.estimate.interval(confidence);
            let interval = match rule.unit {
                Unit::Points => points,
                Unit::Relative => relative(change, points, confidence),
            };
            let words = format!(
                "{} ({}): {:.2}% → {:.2}% of the {}, change between {:+.2} and {:+.2} points",
                series.item_name(item),
                item.counted.name(),
                change.estimate.a * 100.0,
                change.estimate.b * 100.0,
                series.unit.what(),
                points.0 * 100.0,
                points.1 * 100.0
            );
            Figure {
                interval,
                is_sound: series.is_matched(item),
                words,
            }
        };
        Ok(changes.map(figure).collect())
    }
}

/// The interval of the relative change; of what is new in B, more than any share of nothing, of what is gone, all.
fn relative(change: &Change, points: (f64, f64), confidence: f64) -> (f64, f64) {
    let interval = change.estimate.relative_interval(confidence);
    interval.unwrap_or(if change.estimate.change() >= 0.0 {
        (points.0.signum() * f64::INFINITY, f64::INFINITY)
    } else if points.1 < 0.0 {
        (-1.0, -1.0)
    } else {
        (-1.0, f64::INFINITY)
    })
}

/// Of a function's time per call, its own and with what it calls, and of how often it is called, none may change so:
/// neither the whole of it nor what is apart from what most functions changed by.
impl Ruled for CallDiff {
    fn functions(&self) -> &[Match] {
        &self.series.functions
    }

    fn figures(&self, rule: &Rule) -> Result<Vec<Figure>, RuleError> {
        if rule.unit == Unit::Points {
            return Err(RuleError::Points(rule.text.clone()));
        }
        let changes = self.verdicts.changes.iter();
        let changes = changes.filter(|change| match &rule.function {
            Some(name) => self.name(change) == name,
            None => change.certain,
        });
        Ok(changes
            .map(|change| {
                let (low, high) = match rule.function {
                    Some(_) => change.interval_with(self.options.confidence),
                    None => change.interval(),
                };
                let whole = change.relative();
                Figure {
                    interval: (low.min(whole), high.max(whole)),
                    is_sound: true,
                    words: format!(
                        "{} ({}): {}; apart from what most functions changed by, between {} and {}",
                        self.name(change),
                        change.of.name(),
                        percent(whole),
                        percent(low),
                        percent(high)
                    ),
                }
            })
            .collect())
    }
}

/// A function is judged with its callees, if it has any.
fn counted_of(diff: &Diff, function: u32) -> Counted {
    let items = diff.series.items.iter();
    let mut mine = items.filter(|item| item.function == function);
    if mine.any(|item| item.counted == Counted::Total) {
        Counted::Total
    } else {
        Counted::Own
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
