//! The columns of a table to the left of its functions.

use crate::text::screen::{Color, Screen, width};

/// A column to the left of functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub heading: &'static str,
    /// Its width if there is room for everything; `None` for that of its cells.
    width: Option<usize>,
    /// Its order of omission on a narrow screen, lowest first: other columns imply it. `None` if it always
    /// stays.
    dispensable: Option<u8>,
    /// Whether it has words.
    pub is_text: bool,
}

/// The heading of the column of changes, which is coloured.
pub(crate) const CHANGE: &str = "change";

impl Column {
    pub(crate) const fn new(heading: &'static str) -> Column {
        Column {
            heading,
            width: None,
            dispensable: None,
            is_text: false,
        }
    }

    pub(crate) const fn width(mut self, width: usize) -> Column {
        self.width = Some(width);
        self
    }

    pub(crate) const fn dispensable(mut self, order: u8) -> Column {
        self.dispensable = Some(order);
        self
    }

    pub(crate) const fn text(mut self) -> Column {
        self.is_text = true;
        self
    }
}

/// Columns as they fit on a screen.
pub(crate) struct Columns {
    all: &'static [Column],
    /// The width of each column; `None` if it is omitted.
    widths: Vec<Option<usize>>,
    screen: Screen,
}

impl Columns {
    /// The columns for `rows` of cells. If less than `for_names` remains for names, columns are omitted.
    pub(crate) fn new<'c>(
        all: &'static [Column],
        rows: impl Iterator<Item = &'c [String]> + Clone,
        for_names: usize,
        screen: Screen,
    ) -> Columns {
        let widths = all.iter().enumerate().map(|(index, column)| {
            let fixed = column.width.filter(|_| screen.columns.is_none());
            let cells = rows.clone().map(|row| width(&row[index]));
            Some(fixed.unwrap_or_else(|| cells.fold(width(column.heading), usize::max)))
        });
        let widths = widths.collect();
        let mut columns = Columns {
            all,
            widths,
            screen,
        };
        let Some(room) = screen.columns else {
            return columns;
        };
        let mut dispensable: Vec<usize> = (0..all.len())
            .filter(|index| all[*index].dispensable.is_some())
            .collect();
        dispensable.sort_by_key(|index| all[*index].dispensable);
        for index in dispensable {
            if columns.used() + for_names > room {
                columns.widths[index] = None;
            }
        }
        columns
    }

    /// The column at which functions begin.
    pub(crate) fn used(&self) -> usize {
        let widths = self.widths.iter().flatten();
        2 + widths.map(|width| width + 2).sum::<usize>()
    }

    /// The line above all rows.
    pub(crate) fn heading(&self) -> String {
        let headings = self.all.iter().map(|column| column.heading);
        format!("  {}function", self.row(headings, None))
    }

    /// Cells in their columns, the change coloured.
    pub(crate) fn row<'c>(
        &self,
        cells: impl Iterator<Item = &'c str>,
        color: Option<Color>,
    ) -> String {
        let mut row = String::new();
        for ((cell, column), columns) in cells.zip(self.all).zip(&self.widths) {
            let Some(columns) = *columns else { continue };
            let room = " ".repeat(columns.saturating_sub(width(cell)));
            let cell = if column.is_text {
                format!("{cell}{room}")
            } else {
                format!("{room}{cell}")
            };
            row += &match color.filter(|_| column.heading == CHANGE) {
                Some(color) => self.screen.colored(cell, color),
                None => cell,
            };
            row += "  ";
        }
        row
    }
}
