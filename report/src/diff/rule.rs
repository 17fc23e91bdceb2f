//! `--fail-if`: a change that fails the comparison, such as `netfront_rx>+5%` or `any>+2%`.

use super::Diff;
use super::calls::{CallDiff, percent};
use super::estimate::Estimate;
use super::matching::Match;
use super::series::Quantity;
use super::times::TimeRatio;
use super::verdict::Change;

/// A rule: a change that fails the comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// The function; `None` for any.
    function: Option<String>,
    /// Whether growing fails; otherwise shrinking does.
    grows: bool,
    /// The size of the change, relative to A's share or to all samples.
    by: f64,
    unit: Unit,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// Relative to the function's own share in A.
    Relative,
    /// Relative to all samples.
    Points,
}

/// The result of a rule, with its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleVerdict {
    /// No change certainly breaks the rule.
    Passed(String),
    /// A change breaks the rule.
    Broken(String),
    /// The rule names a function that neither side has.
    Missing(String),
}

/// Why a rule can't be parsed, or applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The text is not a rule.
    #[error(
        "cannot read the rule '{0}': write FUNCTION>+5% (of its share before), FUNCTION>+0.5pp (of all \
         samples), FUNCTION<-5%, or any>+2%"
    )]
    Unreadable(String),
    /// The rule is in points, which a comparison of calls doesn't have.
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
    pub(crate) interval: (f64, f64),
    /// Whether the change may break a rule.
    pub(crate) is_sound: bool,
    /// The change in words.
    pub(crate) words: String,
}

/// A comparison that rules can be applied to.
pub trait RuleSubject {
    /// Why a rule can't be applied to a function of this name; `None` if there is one.
    fn missing(&self, name: &str) -> Option<String>;
    /// The changes that a rule applies to, in their order.
    ///
    /// # Errors
    /// [`RuleError::Points`] if the comparison has no points.
    fn figures(&self, rule: &Rule) -> Result<Vec<Figure>, RuleError>;
}

impl Rule {
    /// Parses a rule.
    ///
    /// # Errors
    /// [`RuleError`] if the text isn't a rule.
    pub fn parse(text: &str) -> Result<Rule, RuleError> {
        Rule::read(text).ok_or_else(|| RuleError::Unreadable(text.to_owned()))
    }

    /// The function that the rule names; `None` for any.
    pub(crate) fn function(&self) -> Option<&str> {
        self.function.as_deref()
    }

    /// Whether its size is relative to the function's share before, rather than in points.
    pub(crate) fn is_relative(&self) -> bool {
        self.unit == Unit::Relative
    }

    fn read(text: &str) -> Option<Rule> {
        // Names may contain `<` and `>`. The comparison of a rule is the last one that a sign follows.
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

    /// The result of the rule: it is broken if a change that it applies to is certainly at least as large as
    /// it says.
    ///
    /// # Errors
    /// [`RuleError::Points`] if the rule has a unit that the comparison doesn't.
    pub fn verdict(&self, of: &dyn RuleSubject) -> Result<RuleVerdict, RuleError> {
        let figures = of.figures(self)?;
        if let Some(missing) = self.function.as_ref().and_then(|name| of.missing(name)) {
            return Ok(RuleVerdict::Missing(format!("{}: {missing}", self.text)));
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
        // If a rule applies to any function, the closest change is not worth showing.
        let judged = figures.first().filter(|_| self.function.is_some());
        let words = judged.map(|figure| format!(": {}", figure.words));
        let words = words.unwrap_or_default();
        Ok(RuleVerdict::Passed(format!("{} is kept{words}", self.text)))
    }
}

fn missing_of_both(functions: &[Match], name: &str) -> Option<String> {
    let is_found = functions.iter().any(|function| function.name == *name);
    (!is_found).then(|| format!("neither side has a function that is called {name}"))
}

/// A function that the rule names is tested by itself, at the requested confidence, with its callees if it
/// has any. With `any`, a function must also have passed the test among all functions; the processor time of whole
/// runs is one more, if it is known. A function whose share others have pushed breaks no rule: the change must be as
/// large among all samples, and relative to those outside the changes that were found.
impl RuleSubject for Diff {
    fn missing(&self, name: &str) -> Option<String> {
        missing_of_both(&self.series.functions, name)
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
                None => change.certain && item.counted != Quantity::Path,
            }
        });
        let figure = |change: &Change| {
            let item = &series.items[change.item];
            let confidence = match rule.function {
                Some(_) => self.options.confidence,
                None => change.confidence,
            };
            let between = |estimate: &Estimate| {
                let (low, high) = estimate.interval(confidence);
                format!(
                    "between {:+.2} and {:+.2} points",
                    low * 100.0,
                    high * 100.0
                )
            };
            let mut words = format!(
                "{} ({}): {:.2}% → {:.2}% of the {}, change {}",
                series.item_name(item),
                item.counted.name(),
                change.estimate.a * 100.0,
                change.estimate.b * 100.0,
                series.unit.what(),
                between(&change.estimate)
            );
            let (mut low, mut high) = size(&change.estimate, rule.unit, confidence);
            if let Some(outside) = &change.outside {
                let (low_outside, high_outside) = size(outside, rule.unit, confidence);
                (low, high) = (low.min(low_outside), high.max(high_outside));
                words += &format!("; against what did not change, {}", between(outside));
            }
            Figure {
                interval: (low, high),
                is_sound: series.is_matched(item) && !change.pushed,
                words,
            }
        };
        // Shares say little about a function that has nearly all of the time.
        let is_of_time = rule.function.is_none() && rule.is_relative();
        let time = self.times.and_then(|times| times.processor);
        let time = time.filter(|time| is_of_time && time.is_certain());
        Ok(changes.map(figure).chain(time.map(of_time)).collect())
    }
}

/// The change of the processor time of whole runs.
fn of_time(time: TimeRatio) -> Figure {
    Figure {
        interval: (time.interval.0 - 1.0, time.interval.1 - 1.0),
        is_sound: true,
        words: format!("B, which takes {} of A's processor time", time.words()),
    }
}

/// The interval of a change in the unit of a rule. A function that is new in B grew by more than any relative rule;
/// one that is gone shrank by all.
fn size(estimate: &Estimate, unit: Unit, confidence: f64) -> (f64, f64) {
    let points = estimate.interval(confidence);
    if unit == Unit::Points {
        return points;
    }
    let interval = estimate.relative_interval(confidence);
    interval.unwrap_or(if estimate.change() >= 0.0 {
        (points.0.signum() * f64::INFINITY, f64::INFINITY)
    } else if points.1 < 0.0 {
        (-1.0, -1.0)
    } else {
        (-1.0, f64::INFINITY)
    })
}

/// A rule applies to a function's self and total time per call, and to the frequency of its calls. To break
/// it, both the whole change and the change without the common one must be large enough.
impl RuleSubject for CallDiff {
    fn missing(&self, name: &str) -> Option<String> {
        missing_of_both(&self.series.functions, name)
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

/// Which samples of a function are judged: those with its callees, if it has any.
fn counted_of(diff: &Diff, function: u32) -> Quantity {
    let items = diff.series.items.iter();
    let mut mine = items.filter(|item| item.function == function);
    if mine.any(|item| item.counted == Quantity::Total) {
        Quantity::Total
    } else {
        Quantity::Own
    }
}

#[cfg(test)]
mod tests {
    use super::super::DiffOptions;
    use super::super::load::SPREADS;
    use super::super::matching::Kind;
    use super::super::series::{Item, Series};
    use super::super::verdict::Verdicts;
    use super::*;
    use crate::profile::tree::ROOT;
    use crate::recording::account::Account;

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

    /// A comparison of one function, which has this change.
    fn compared(estimate: Estimate, outside: Option<Estimate>) -> Diff {
        let change = Change {
            item: 0,
            estimate,
            outside,
            certain: false,
            pushed: false,
            interval: estimate.interval(0.95),
            relative: None,
            confidence: 0.95,
            detectable: 0.1,
        };
        Diff {
            series: Series {
                functions: vec![Match {
                    name: "p".to_owned(),
                    module: String::new(),
                    kind: Kind::Same,
                    made: false,
                    own: true,
                }],
                items: vec![Item {
                    counted: Quantity::Own,
                    function: 0,
                    node: ROOT,
                }],
                ..Series::default()
            },
            verdicts: Verdicts {
                changes: vec![change],
                ..Verdicts::default()
            },
            accounts: [Account::default(), Account::default()],
            names: [Vec::new(), Vec::new()],
            warnings: Vec::new(),
            times: None,
            ending: None,
            options: DiffOptions::default(),
        }
    }

    #[test]
    fn a_function_whose_share_grew_only_because_others_shrank_breaks_no_rule() {
        let estimate = |b: f64| Estimate {
            a: 0.0021,
            b,
            shift: 0.0,
            samples: [210.0, 280.0],
            errors: [1e-4; SPREADS.len()],
            chances: [1.0 / SPREADS.len() as f64; SPREADS.len()],
            df: 100.0,
            p: 0.001,
            design_effect: 1.0,
        };
        let grown = estimate(0.0028);
        for (outside, is_broken) in [(None, true), (Some(0.0021), false), (Some(0.003), true)] {
            let found = compared(grown, outside.map(estimate));
            for text in ["p>+5%", "p>+0.01pp"] {
                let verdict = Rule::parse(text).unwrap().verdict(&found).unwrap();
                let is_so = matches!(verdict, RuleVerdict::Broken(_));
                assert_eq!(is_so, is_broken, "{outside:?}: {verdict:?}");
            }
        }
    }
}
