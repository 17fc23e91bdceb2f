//! Functions by samples or time. Input: a profile. Output: the rows to show, with their names. All forms of
//! the table are written from these rows.

use crate::profile::Profile;
use crate::profile::labels::LabelId;
use crate::text::screen::{Notes, Screen};
use crate::text::{in_percent, rows_max};
use std::collections::HashMap;
use uprof::words::share;

/// Options of the table.
#[derive(Debug, Clone, Copy)]
pub struct TopOptions {
    /// Most rows; 0 for all.
    pub rows: usize,
    /// Least share of the samples, 0 to 1, of stacks with the function.
    pub least_share: f64,
    /// Width and colours of the terminal.
    pub screen: Screen,
}

impl Default for TopOptions {
    fn default() -> Self {
        TopOptions {
            rows: 30,
            least_share: 0.0,
            screen: Screen::default(),
        }
    }
}

/// One function's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopRow {
    /// The function.
    pub label: LabelId,
    /// Self: samples with it as the innermost frame.
    pub own: u64,
    /// Total: samples with it in their stack.
    pub total: u64,
    /// Off-CPU: the part of its self time that may belong to other functions, whose waits were recorded with
    /// its stack.
    pub pooled: u64,
}

/// All functions, ordered by most self samples, then by most total samples, then by name.
pub fn rows(profile: &Profile) -> Vec<TopRow> {
    let counts = profile.tree.by_label(&profile.labels);
    let mut pooled: HashMap<LabelId, u64> = HashMap::new();
    for (node, amount) in &profile.pooled {
        let sum = pooled.entry(profile.tree.label(*node)).or_default();
        *sum = sum.saturating_add(*amount);
    }
    let rows = counts.iter().enumerate().filter(|(_, count)| count.1 > 0);
    let mut rows: Vec<TopRow> = rows
        .map(|(label, (own, total))| TopRow {
            label: label as LabelId,
            own: *own,
            total: *total,
            pooled: pooled.get(&(label as LabelId)).copied().unwrap_or(0),
        })
        .collect();
    let labels = &profile.labels;
    rows.sort_by(|a, b| {
        let counts = (b.own, b.total).cmp(&(a.own, a.total));
        let names = labels.name(a.label).cmp(labels.name(b.label));
        let modules = labels.module_name(a.label).cmp(labels.module_name(b.label));
        counts.then(names).then(modules)
    });
    rows
}

/// The rows to show.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The rows.
    pub rows: Vec<TopRow>,
    /// How many more have the least share.
    pub more: usize,
    /// How many don't have it, and that share in words.
    pub below: (usize, String),
}

/// The rows to show, and how many there are besides.
pub(crate) fn shown(profile: &Profile, options: TopOptions) -> Shown {
    let mut rows = rows(profile);
    let all = rows.len();
    let least = (options.least_share * profile.account.counted as f64).ceil() as u64;
    rows.retain(|row| row.total >= least);
    let with_share = rows.len();
    rows.truncate(rows_max(options.rows));
    Shown {
        more: with_share - rows.len(),
        below: (
            all - with_share,
            format!("{}%", in_percent(options.least_share)),
        ),
        rows,
    }
}

/// The name of a row: its function and image, to follow `used` columns.
pub(crate) fn named(profile: &Profile, row: &TopRow, screen: Screen, used: usize) -> String {
    let labels = &profile.labels;
    let mark = if labels.get(row.label).inlined {
        " (inlined)"
    } else {
        ""
    };
    let more = match row.pooled {
        0 => String::new(),
        pooled => format!(" (up to {} others')", share(pooled, row.own)),
    };
    let notes = Notes {
        mark,
        module: labels.module_suffix(row.label),
        more,
    };
    screen.name(labels.name(row.label), &notes, used)
}
