//! [`Grid`]: a table, rendered for terminals, Markdown, CSV and HTML pages.

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING, UTF8_FULL_CONDENSED};
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::Style;
use super::words::labelled;
use crate::units::digits;
use crate::verdict::stats::Figures;

/// A table. All rows are as long as the header.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    pub(crate) header: Vec<String>,
    /// The rows, each with its CSS class on a page.
    pub(crate) rows: Vec<(&'static str, Vec<Entry>)>,
}

/// One table cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) text: String,
    /// True if the text has the mark of a model.
    pub(crate) model: bool,
    /// The smallest and the largest figure.
    pub(crate) range: Option<(String, String)>,
    /// A number's sort key. Unknown numbers come last.
    pub(crate) key: Option<f64>,
}

impl Entry {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(crate) fn engine(name: &str, model: bool) -> Self {
        Self { model, ..Self::text(name) }
    }

    pub(crate) fn number(text: impl Into<String>, key: Option<f64>) -> Self {
        Self { key: Some(key.unwrap_or(f64::MAX)), ..Self::text(text) }
    }

    /// Returns a number as text, or `-` if it is not known.
    pub(crate) fn known(value: Option<f64>, words: impl Fn(f64) -> String) -> Self {
        Self::number(value.map_or("-".to_owned(), words), value)
    }

    /// Returns the median of figures, with their range.
    pub(crate) fn figures(figures: Option<&Figures>, scale: f64) -> Self {
        let of = |value: f64| digits(value * scale);
        let range = figures.map(|f| (of(f.min), of(f.max)));
        Self { range, ..Self::known(figures.map(|f| f.median), of) }
    }
}

/// The style of a table in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Without lines between columns, and without ranges. Long texts are wrapped.
    Bare,
    /// With lines and ranges. Each row is one line, however long.
    Ranges,
    /// With lines. Terminals wrap long texts; in pipes each row is one line.
    Wrapped,
}

impl Grid {
    pub(crate) fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    pub(crate) fn with(header: &[&str], rows: impl IntoIterator<Item = Vec<Entry>>) -> Self {
        Self { rows: rows.into_iter().map(|row| ("", row)).collect(), ..Self::new(header) }
    }

    /// Returns a table of texts.
    pub(crate) fn texts(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        Self::with(header, rows.into_iter().map(|row| row.into_iter().map(Entry::text).collect()))
    }

    /// Returns the table with only these columns.
    pub(crate) fn columns(&self, columns: &[usize]) -> Self {
        let pick = |row: &Vec<Entry>| columns.iter().map(|at| row[*at].clone()).collect();
        Self {
            header: columns.iter().map(|at| self.header[*at].clone()).collect(),
            rows: self.rows.iter().map(|(class, row)| (*class, pick(row))).collect(),
        }
    }

    /// Returns true if a column has numbers.
    pub(crate) fn has_numbers(&self, column: usize) -> bool {
        self.rows.first().is_some_and(|(_, row)| row[column].key.is_some())
    }

    /// Returns the table as text, with a line break at its end.
    pub(crate) fn print(&self, style: Style, look: Look) -> String {
        let mut table = Table::new();
        table.load_style(match (style, look) {
            (Style::Markdown, _) => ASCII_MARKDOWN,
            (_, Look::Bare) => NOTHING,
            _ => UTF8_FULL_CONDENSED,
        });
        table.set_content_arrangement(ContentArrangement::Disabled).set_header(&self.header);
        let columns = match (style, look) {
            (_, Look::Bare) => style.columns(),
            (Style::Terminal(columns), Look::Wrapped) => Some(columns),
            _ => None,
        };
        if let Some(columns) = columns {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
        }
        for (_, row) in &self.rows {
            table.add_row(row.iter().map(|entry| {
                let text = labelled(&entry.text, entry.model);
                let range = entry.range.as_ref().filter(|_| look == Look::Ranges);
                style.text(&range.map_or(text.clone(), |(least, most)| format!("{text} ({least} to {most})")))
            }));
        }
        for at in (0..self.header.len()).filter(|at| self.has_numbers(*at)) {
            if let Some(column) = table.column_mut(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        format!("{}\n", table.trim_fmt())
    }

    /// Returns the texts as comma-separated values.
    pub(crate) fn csv(&self) -> String {
        let rows = self.rows.iter().map(|(_, row)| row.iter().map(|entry| entry.text.clone()).collect());
        csv(std::iter::once(self.header.clone()).chain(rows))
    }
}

/// Returns a text that a spreadsheet shows, but does not compute. Texts may come from a results file of
/// another person. A spreadsheet computes a text that begins with one of these characters, unless an
/// apostrophe precedes it. Numbers remain as they are.
fn inert(text: String) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    if is_formula { format!("'{text}") } else { text }
}

/// Returns records of one length as lines of comma-separated values.
pub(crate) fn csv(records: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory does not fail.
    records.into_iter().for_each(|record| drop(writer.write_record(record.into_iter().map(inert))));
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}
