//! Tables as text.

use crate::output::Colour;

/// The lines of a table, its head first. Columns are as wide as what is in them; `>` before a head
/// aligns its column to the right.
pub(crate) fn lines(heads: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let names: Vec<String> =
        heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
    let width = |column: usize| {
        let all = rows.iter().chain([&names]).map(|row| row[column].chars().count());
        all.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = heads.iter().zip(row).zip(&widths);
        let cells = cells.map(|((head, cell), &width)| match head.starts_with('>') {
            true => format!("{cell:>width$}"),
            false => format!("{cell:width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    [&names].into_iter().chain(rows).map(line).collect()
}

/// A table as text.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>], colour: Colour) -> String {
    let lines = lines(heads, rows);
    let head = colour.paint("1", &lines[0]);
    [&head].into_iter().chain(&lines[1..]).map(|line| format!("{line}\n")).collect()
}

/// A line per fact: its name and the text. A fact without a name belongs to the one above it.
pub(crate) fn facts(facts: &[(&str, String)], colour: Colour) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, text): &(&str, String)| {
        format!("{}  {text}\n", colour.paint("1", &format!("{name:width$}")))
    };
    facts.iter().map(line).collect()
}

/// Columns of a table whose rows are printed as they are measured: heads with their widths, below 0
/// for columns that are aligned to the left.
pub(crate) struct Columns(pub(crate) &'static [(&'static str, isize)]);

impl Columns {
    /// The heads of the first columns.
    pub(crate) fn heads(&self, count: usize) -> Vec<String> {
        self.0.iter().take(count).map(|(head, _)| (*head).to_owned()).collect()
    }

    /// A row of the first columns.
    pub(crate) fn row(&self, cells: &[String]) -> String {
        let cells =
            self.0.iter().zip(cells).map(|(&(_, width), cell)| match width.unsigned_abs() {
                wide if width < 0 => format!("{cell:<wide$}"),
                wide => format!("{cell:>wide$}"),
            });
        format!("{}\n", cells.collect::<Vec<_>>().join(" ").trim_end())
    }

    /// The rows as a table in Markdown.
    pub(crate) fn markdown(&self, rows: &[Vec<String>]) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let columns = rows.iter().map(Vec::len).max().unwrap_or(self.0.len());
        let rule = format!("|{}\n", "---|".repeat(columns));
        let rows = rows.iter().map(|row| line(row));
        line(&self.heads(columns)) + &rule + &rows.collect::<String>()
    }
}
