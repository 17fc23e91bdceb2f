//! The table of changes in a page: the rows of the terminal's table, with the same numbers.

use crate::diff::table::{Cells, legend};
use crate::diff::{Change, Diff};
use crate::text::short;
use crate::views::html::shell::text;
use std::io::{self, Write};

/// Most changes in a page.
const ROWS_MAX: usize = 2000;

/// Writes the changes of a list, the certain ones first.
pub(super) fn write(
    diff: &Diff,
    verdict: &str,
    listed: &[&Change],
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "<section id=\"changes\">\n<h2>{}</h2>\n<p class=\"lead\">{}</p>\n\
         <div class=\"scroll tall\"><table id=\"verdicts-table\">\n<thead><tr><th>Verdict</th>\
         <th class=\"number\">Change</th><th class=\"number\">Interval</th>\
         <th class=\"number\">A</th><th class=\"number\">B</th><th class=\"number\">Relative</th>\
         <th>Of</th><th class=\"function\">Function</th></tr></thead>\n<tbody>",
        text(verdict),
        text(&legend(diff))
    )?;
    for change in listed.iter().take(ROWS_MAX) {
        write_row(diff, change, out)?;
    }
    writeln!(out, "</tbody></table></div>")?;
    if let Some(more @ 1..) = listed.len().checked_sub(ROWS_MAX) {
        writeln!(
            out,
            "<p class=\"note\">{more} more changes are left out; \
             <code>uniprof diff --rows 0</code> lists all {}.</p>",
            listed.len()
        )?;
    }
    writeln!(out, "</section>")
}

fn write_row(diff: &Diff, change: &Change, out: &mut dyn Write) -> io::Result<()> {
    let cells = Cells::of(diff, change);
    let grew = change.estimate.change() > 0.0;
    let (class, told) = match (change.certain, change.pushed, grew) {
        (true, _, true) => ("grew", "▲ certain"),
        (true, _, false) => ("shrank", "▼ certain"),
        (false, true, _) => ("open", "pushed"),
        (false, false, _) => ("open", "not certain"),
    };
    let shown = text(&short(&cells.function));
    // If the table shortens a name, the whole name is added, so that it can be seen and searched.
    let whole = match text(&cells.function) {
        whole if whole == shown => String::new(),
        whole => format!(" title=\"{whole}\""),
    };
    writeln!(
        out,
        "<tr class=\"{class}\"><td class=\"verdict\">{told}</td><td class=\"number\">{}</td>\
         <td class=\"number interval\">{}</td><td class=\"number\">{}</td>\
         <td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td>\
         <td class=\"function\"{whole}><bdi>{shown}</bdi> <i>{}</i></td></tr>",
        cells.change,
        cells.interval,
        cells.shares[0],
        cells.shares[1],
        cells.relative,
        cells.of,
        text(&cells.notes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::load::SPREADS;
    use crate::diff::{DiffOptions, Estimate, Item, Kind, Match, Quantity, Series, Verdicts};
    use crate::profile::tree::ROOT;
    use crate::recording::account::Account;

    fn page(changes: usize) -> String {
        let estimate = Estimate {
            a: 0.1,
            b: 0.2,
            shift: 0.0,
            samples: [1.0, 2.0],
            errors: [1.0; SPREADS.len()],
            chances: [1.0 / SPREADS.len() as f64; SPREADS.len()],
            df: 2.0,
            p: 0.5,
            design_effect: 1.0,
        };
        let change = |item| Change {
            item,
            estimate,
            outside: None,
            certain: false,
            pushed: false,
            interval: (-0.1, 0.3),
            relative: None,
            confidence: 0.95,
            detectable: 0.1,
        };
        let item = Item {
            counted: Quantity::Own,
            function: 0,
            node: ROOT,
        };
        let diff = Diff {
            series: Series {
                functions: vec![Match {
                    name: "</td><script>".to_owned(),
                    module: String::new(),
                    kind: Kind::Same,
                    made: false,
                    own: true,
                }],
                items: vec![item; changes],
                ..Series::default()
            },
            verdicts: Verdicts {
                changes: (0..changes).map(change).collect(),
                ..Verdicts::default()
            },
            accounts: [Account::default(), Account::default()],
            names: [Vec::new(), Vec::new()],
            warnings: Vec::new(),
            times: None,
            ending: None,
            options: DiffOptions::default(),
        };
        let mut out = Vec::new();
        let listed: Vec<&Change> = diff.listed(false).collect();
        write(&diff, "No change is certain.", &listed, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn changes_of_a_page() {
        let (full, over) = (page(ROWS_MAX), page(ROWS_MAX + 1));
        for page in [&full, &over] {
            assert_eq!(page.matches("<tr class=").count(), ROWS_MAX);
            assert!(!page.contains("<script>"), "{page}");
        }
        assert!(!full.contains("left out"));
        assert!(over.contains(">1 more changes are left out"));
    }
}
