//! `--heatmap`: the times of samples or waits as an SVG. Columns are seconds, the vertical axis is the
//! fraction of a second, and cells with more samples are darker. It shows what a sum over minutes hides:
//! bursts, pauses, phases.

use super::flame::escape;
use super::{Content, Needs, Output, Renderer, View, caption, longest_ns};
use crate::profile::gather::Sampled;
use crate::recording::Recording;
use crate::recording::unit::Unit;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The row of this view in the table of views.
pub(crate) const VIEW: View = View {
    name: "heatmap",
    about: "When samples fell, as SVG: a column a second, its parts upwards [default: the recording's name with \
            .heatmap.svg]",
    output: Output::File {
        kind: "SVG",
        ending: "heatmap.svg",
    },
    needs: Needs::Samples,
    begin: |recordings| Box::new(Heatmap::new(longest_ns(recordings))),
};

impl Renderer for Heatmap {
    fn add(&mut self, _: &[Recording], sampled: &Sampled) {
        self.add(sampled);
    }

    fn write(&mut self, content: &Content<'_>, out: &mut dyn Write) -> io::Result<bool> {
        let lines = content.profile.account.lines();
        Heatmap::write(self, &content.flame_options().title, &lines, out)?;
        Ok(true)
    }
}

/// Samples, or time, by cell: the cells of a column from the bottom up, then those of the next column.
#[derive(Debug)]
pub struct Heatmap {
    cells: BTreeMap<u64, u64>,
    /// For each cell, the change from the previous one in the number of waits that fill a whole cell. So a
    /// wait of hours costs no more than one of milliseconds.
    whole: BTreeMap<u64, i64>,
    unit: Unit,
    column_ns: u64,
    /// Samples later than any column; only a damaged or hostile recording has them.
    beyond: u64,
}

/// Number of cells in a column.
const ROWS: u64 = 50;
/// Most columns. Longer recordings get columns of more than a second.
const COLUMNS_MAX: u64 = 600;
/// Most cells of a map.
const CELLS_MAX: u64 = COLUMNS_MAX * ROWS;
const SECOND_NS: u64 = 1_000_000_000;
const LEFT: u64 = 70;
const TOP: u64 = 44;
const ROW_HEIGHT: u64 = 8;
const WIDTH: u64 = 1100;
/// Most pixels of a column, for short recordings.
const CELL_WIDTH_MAX: u64 = 100;

impl Heatmap {
    /// A map for recordings of at most `length_ns`.
    pub fn new(length_ns: u64) -> Self {
        let seconds = length_ns.div_ceil(SECOND_NS).max(1);
        Heatmap {
            cells: BTreeMap::new(),
            whole: BTreeMap::new(),
            unit: Unit::Samples,
            column_ns: seconds.div_ceil(COLUMNS_MAX) * SECOND_NS,
            beyond: 0,
        }
    }

    /// Adds one sample, or a wait, whose time is divided among the cells that it covers.
    pub fn add(&mut self, sampled: &Sampled) {
        self.unit = sampled.unit;
        let (from_ns, cell_ns) = (sampled.since_ns, self.column_ns / ROWS);
        let first = from_ns / cell_ns;
        if first >= CELLS_MAX {
            self.beyond += 1;
            return;
        }
        if sampled.unit.is_sampled() {
            return self.put(first, sampled.weight.amount);
        }
        let end_ns = from_ns.saturating_add(sampled.weight.amount);
        let end_ns = end_ns.min(CELLS_MAX * cell_ns);
        let last = end_ns.saturating_sub(1) / cell_ns;
        if last <= first {
            return self.put(first, end_ns.saturating_sub(from_ns));
        }
        self.put(first, (first + 1) * cell_ns - from_ns);
        self.put(last, end_ns - last * cell_ns);
        // The cells between are full. Two changes stand for all of them.
        *self.whole.entry(first + 1).or_default() += 1;
        *self.whole.entry(last).or_default() -= 1;
    }

    fn put(&mut self, cell: u64, amount: u64) {
        *self.cells.entry(cell).or_default() += amount;
    }

    /// The count of each cell.
    fn sums(&self) -> BTreeMap<u64, u64> {
        let mut sums = self.cells.clone();
        let (mut waits, mut from) = (0, 0);
        for (cell, more) in &self.whole {
            if waits > 0 {
                let time_ns = waits as u64 * (self.column_ns / ROWS);
                (from..*cell).for_each(|cell| *sums.entry(cell).or_default() += time_ns);
            }
            (waits, from) = (waits + more, *cell);
        }
        sums.retain(|_, amount| *amount > 0);
        sums
    }

    /// Draws the map; `lines` are the lines of its account.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write(&self, title: &str, lines: &[String], out: &mut dyn Write) -> io::Result<()> {
        let sums = self.sums();
        let columns = sums.keys().next_back().map_or(1, |cell| cell / ROWS + 1);
        let cell = (WIDTH / columns).clamp(2, CELL_WIDTH_MAX);
        let most = sums.values().copied().max().unwrap_or(1);
        let width = LEFT + (columns * cell).max(800) + 40;
        let bottom = TOP + ROWS * ROW_HEIGHT;
        let title = caption::cut(title, caption::columns(width - LEFT, 16));
        let lines = caption::lines(lines, caption::columns(width - LEFT, 11));
        let height = bottom + 70 + 16 * lines.len() as u64;
        writeln!(out, "<?xml version=\"1.0\" standalone=\"no\"?>")?;
        writeln!(
            out,
            "<svg version=\"1.1\" xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" \
             height=\"{height}\" viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" \
             font-size=\"12\">"
        )?;
        writeln!(
            out,
            "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
        )?;
        let title = escape(&title);
        writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{title}</text>"
        )?;
        self.write_cells(&sums, cell, most, out)?;
        self.write_axes(columns, cell, bottom, out)?;
        for (number, line) in lines.iter().enumerate() {
            let (y, line) = (bottom + 70 + 16 * number as u64, escape(line));
            writeln!(
                out,
                "<text x=\"{LEFT}\" y=\"{y}\" font-size=\"11\">{line}</text>"
            )?;
        }
        let mut legend = format!(
            "a column is {} s, upwards its parts; strongest: {} in {} ms",
            self.column_ns / SECOND_NS,
            self.unit.phrase(most),
            self.column_ns / ROWS / 1_000_000
        );
        if self.beyond > 0 {
            legend += &format!("; {} samples after the end are left out", self.beyond);
        }
        writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"{}\">{legend}</text>",
            bottom + 52
        )?;
        writeln!(out, "</svg>")
    }

    fn write_cells(
        &self,
        sums: &BTreeMap<u64, u64>,
        cell: u64,
        most: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        for (number, amount) in sums {
            let (column, row) = (number / ROWS, number % ROWS);
            let x = LEFT + column * cell;
            let y = TOP + (ROWS - 1 - row) * ROW_HEIGHT;
            let fill = colour(*amount as f64 / most as f64);
            let from_ms = (column * self.column_ns + row * (self.column_ns / ROWS)) / 1_000_000;
            writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{cell}\" height=\"{ROW_HEIGHT}\" \
                 fill=\"{fill}\"><title>{} from {}.{:03} s</title></rect>",
                self.unit.phrase(*amount),
                from_ms / 1000,
                from_ms % 1000
            )?;
        }
        Ok(())
    }

    fn write_axes(
        &self,
        columns: u64,
        cell: u64,
        bottom: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (right, frame) = (columns * cell, ROWS * ROW_HEIGHT);
        writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{right}\" height=\"{frame}\" fill=\"none\" \
             stroke=\"#888888\"/>"
        )?;
        let whole_ms = self.column_ns / 1_000_000;
        for part in 0..=4 {
            let y = bottom - frame * part / 4 + 4;
            let text = format!("{} ms", whole_ms * part / 4);
            writeln!(
                out,
                "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{text}</text>",
                LEFT - 6
            )?;
        }
        // A label on the axis needs about 60 pixels.
        let step = (60 / cell).max(1).next_power_of_two();
        for column in (0..columns).step_by(step as usize) {
            let x = LEFT + column * cell;
            let text = format!("{} s", column * self.column_ns / SECOND_NS);
            writeln!(out, "<text x=\"{x}\" y=\"{}\">{text}</text>", bottom + 18)?;
        }
        Ok(())
    }
}

/// A colour from white to dark red. The square root keeps single samples visible.
fn colour(heat: f64) -> String {
    let heat = heat.clamp(0.0, 1.0).sqrt();
    let part = |from: f64, to: f64| (from + (to - from) * heat) as u8;
    format!(
        "#{:02x}{:02x}{:02x}",
        part(255.0, 140.0),
        part(235.0, 10.0),
        part(215.0, 20.0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use uprof::{State, Stop, Task};

    /// A sample of a hostile recording may claim any time. The map must not have a column for each second up
    /// to it.
    #[test]
    fn samples_long_after_the_end_are_counted_not_drawn() {
        let mut heatmap = Heatmap::new(3 * SECOND_NS);
        for since_ns in [SECOND_NS, u64::MAX] {
            heatmap.add(&Sampled {
                recording: 0,
                since_ns,
                task: Task { space: 0, vcpu: 0 },
                space: 0,
                state: State::Running,
                stop: Stop::Complete,
                node: 0,
                address: None,
                weight: Unit::ONE,
                unit: Unit::Samples,
                call: None,
            });
        }
        let mut out = Vec::new();
        heatmap.write("t", &[], &mut out).unwrap();
        let svg = String::from_utf8(out).unwrap();
        assert!(svg.len() < 10_000, "{} bytes", svg.len());
        assert!(
            svg.contains("; 1 samples after the end are left out"),
            "{svg}"
        );
    }

    fn waited(amount: u64) -> crate::recording::unit::Weight {
        crate::recording::unit::Weight {
            amount,
            ..Unit::ONE
        }
    }

    #[test]
    fn a_wait_lies_in_all_its_cells() {
        let mut heatmap = Heatmap::new(3 * SECOND_NS);
        let mut wait = |since_ns, weight| {
            heatmap.add(&Sampled {
                recording: 0,
                since_ns,
                task: Task { space: 0, vcpu: 0 },
                space: 0,
                state: State::Blocked,
                stop: Stop::Complete,
                node: 0,
                address: None,
                weight: waited(weight),
                unit: Unit::OffCpu,
                call: None,
            });
        };
        // Cells are 20 ms high.
        wait(30_000_000, 65_000_000);
        wait(40_000_000, 1_000_000);
        wait(59_000_000, 1_000_000);
        wait(u64::MAX - 5, u64::MAX);
        wait(SECOND_NS, 0);
        let sums: Vec<(u64, u64)> = heatmap.sums().into_iter().collect();
        let ms = |cell: u64, time: u64| (cell, time * 1_000_000);
        assert_eq!(sums, [ms(1, 10), ms(2, 22), ms(3, 20), ms(4, 15)]);
        // Any end is as good as another.
        let mut heatmap = Heatmap::new(SECOND_NS);
        let endless = Sampled {
            recording: 0,
            since_ns: 0,
            task: Task { space: 0, vcpu: 0 },
            space: 0,
            state: State::Blocked,
            stop: Stop::Complete,
            node: 0,
            address: None,
            weight: waited(u64::MAX),
            unit: Unit::OffCpu,
            call: None,
        };
        (0..100_000).for_each(|_| heatmap.add(&endless));
        assert_eq!(heatmap.sums().len() as u64, CELLS_MAX);
    }
}
