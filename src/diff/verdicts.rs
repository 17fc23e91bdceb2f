//! Flags of comparisons: what is asked, how certain an answer must be, and in which form it is written.

use crate::form::FormFlag;
use crate::outcome::{Outcome, unless_closed};
use crate::output::write_to_stdout;
use crate::quantity::parse_share;
use crate::selection::{inform, say};
use crate::showing::Showing;
use anyhow::bail;
use uniprof_report::diff::json::JsonSource;
use uniprof_report::diff::listing::ListingSource;
use uniprof_report::diff::{
    Comparison, Diff, DiffOptions, Inquiry, Rule, RuleSubject, RuleVerdict, json, markdown, table,
    workflow,
};
use uniprof_report::recording::Unit;
use uniprof_report::views::workflow::{Level, annotate};

/// What is asked, and in which form the answer is written.
#[derive(Debug, clap::Args)]
pub struct Verdicts {
    /// JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// In which form to write the table
    #[arg(long, value_enum, default_value_t = FormFlag::Text, conflicts_with = "json")]
    pub format: FormFlag,
    /// The reasoning, too: what is compared, warnings, what could have been found, and what to do next
    #[arg(long)]
    pub explain: bool,
    /// Exit 1 if a change is certain at that size: 'netfront_rx>+5%', 'any>+2%', 'parse>+0.5pp'; may be repeated. A
    /// named function is tested alone, so smaller changes of it are certain than in the table
    #[arg(long, value_name = "RULE", value_parser = Rule::parse)]
    pub fail_if: Vec<Rule>,
    /// Let a rule pass if neither side has its function
    #[arg(long, requires = "fail_if")]
    pub allow_missing: bool,
    /// Ask about these functions alone, so that smaller changes of them are certain; names as in the table
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub functions: Vec<String>,
    /// Ask about functions of your own images alone: the program, and what is outside the system's folders (default:
    /// about all, but these first)
    #[arg(long)]
    pub own: bool,
    /// Ask about functions with at least this share of both sides' samples [default: 0.1%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub min_share: Option<f64>,
    /// Compare call paths too
    #[arg(long)]
    pub paths: bool,
    /// Lines of the table; 0 for all
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub rows: usize,
    /// Smallest change to report: a change is certain if it is certainly larger [default: 0.05% of
    /// all samples; of calls, 1% of the time per call, or of the calls a second]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub min_change: Option<f64>,
    /// Most false discoveries among the changes called certain
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "5%")]
    pub false_discoveries: f64,
    #[command(flatten)]
    pub showing: Showing,
}

impl Verdicts {
    /// The options of a comparison of samples that these flags describe.
    pub fn options(&self) -> DiffOptions {
        let options = DiffOptions::default();
        DiffOptions {
            false_discoveries: self.false_discoveries,
            least_share: self.min_share.unwrap_or(options.least_share),
            least_change: self.min_change.unwrap_or(options.least_change),
            asked: Inquiry {
                functions: self.functions.clone(),
                own: self.own,
            },
            ..options
        }
    }

    /// Refuses a comparison with nothing, in which no change could be certain and no rule be broken.
    ///
    /// # Errors
    /// A side has no sample, wait or call that counts.
    pub fn refuse_empty<S, V>(&self, found: &Comparison<S, V>) -> anyhow::Result<()> {
        let mut sides = ["A", "B"].into_iter().zip(&found.accounts);
        let empty = sides.find(|(_, side)| side.counted == 0 && side.counted_samples() == 0);
        let Some((side, account)) = empty else {
            return Ok(());
        };
        let what = match account.unit {
            Unit::Samples | Unit::Sampled => "sample",
            Unit::OffCpu => "wait",
            Unit::Calls => "call",
            Unit::VcpuTime => "time of a vCPU",
        };
        let advice = match account.unit {
            Unit::OffCpu => "; where threads wait is in recordings of `record --off-cpu`",
            _ => "",
        };
        bail!(
            "{side} has no {what} that counts, so there is nothing to compare: look at the flags that select \
             samples{advice}"
        );
    }

    /// Refuses names of functions that neither side has.
    ///
    /// # Errors
    /// There is one.
    pub fn refuse_missing(&self, found: &Diff) -> anyhow::Result<()> {
        let missing = found.options.asked.missing(&found.series);
        if !missing.is_empty() && !self.allow_missing {
            bail!(
                "neither side has a function that is called {}; is it spelt as in the table?",
                missing.join(" or ")
            );
        }
        Ok(())
    }

    /// Writes the comparison in its form.
    pub fn write<S, V>(&self, found: &Comparison<S, V>) -> anyhow::Result<()>
    where
        Comparison<S, V>: ListingSource + JsonSource,
    {
        if self.json {
            return write_to_stdout(|out| json::write(found, self.paths, out));
        }
        let options = table::TableOptions {
            rows: self.rows,
            paths: self.paths,
            explain: self.explain,
            screen: self.showing.screen(),
        };
        let write = match self.format {
            FormFlag::Text => table::write,
            FormFlag::Markdown => markdown::write,
            FormFlag::Github => workflow::write,
        };
        self.showing.write(|out| write(found, options, out))
    }

    /// The outcome by the rules of `--fail-if`, after the comparison was `written`. They hold also where its reader had
    /// seen enough.
    pub fn apply_rules<S, V>(
        &self,
        found: &Comparison<S, V>,
        written: anyhow::Result<()>,
    ) -> anyhow::Result<Outcome>
    where
        Comparison<S, V>: RuleSubject,
    {
        unless_closed(written)?;
        let is_incomplete = found.accounts.iter().any(|account| account.is_incomplete());
        let outcome = Outcome::lossy_if(is_incomplete);
        let how = (self.format, self.allow_missing);
        apply_rules(&self.fail_if, found, how, outcome)
    }
}

/// The outcome by rules, of what is `outcome` without them: each rule is told, and one that names no function fails,
/// unless that is allowed.
pub fn apply_rules(
    rules: &[Rule],
    subject: &impl RuleSubject,
    (format, allows_missing): (FormFlag, bool),
    mut outcome: Outcome,
) -> anyhow::Result<Outcome> {
    let mut missing = None;
    for rule in rules {
        match rule.verdict(subject)? {
            RuleVerdict::Passed(how) => inform(&how),
            RuleVerdict::Broken(why) => {
                say(&why);
                if format == FormFlag::Github {
                    unless_closed(write_to_stdout(|out| annotate(Level::Error, &why, out)))?;
                }
                outcome = Outcome::Lossy;
            }
            RuleVerdict::Missing(why) if allows_missing => say(&why),
            RuleVerdict::Missing(why) => missing = Some(why),
        }
    }
    if let Some(why) = missing {
        bail!("{why}; is it spelt as in the table? --allow-missing lets the rule pass");
    }
    Ok(outcome)
}
