//! [`Style`]: the look of tables and text, on a terminal, in a pipe and in a Markdown file.

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING, UTF8_FULL_CONDENSED};
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Style of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With lines, as wide as their content.
    Plain,
    /// For a terminal with this many columns.
    Terminal(u16),
    /// For a Markdown file.
    Markdown,
}

impl Style {
    /// Returns the style for standard output: a terminal, or anything else.
    #[must_use]
    pub fn of_stdout() -> Self {
        Table::new().width().map_or(Self::Plain, Self::Terminal)
    }

    /// Returns an empty table. On a terminal, long texts are wrapped.
    pub(crate) fn table(self, header: &[&str]) -> Table {
        let mut table = self.rigid_table(header, true);
        if let Self::Terminal(width) = self {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        table
    }

    /// Returns an empty table whose rows are one line each, however long. With `lines`, it has lines between
    /// columns.
    pub(super) fn rigid_table(self, header: &[&str], lines: bool) -> Table {
        let mut table = Table::new();
        table.load_style(match self {
            Self::Markdown => ASCII_MARKDOWN,
            _ if lines => UTF8_FULL_CONDENSED,
            _ => NOTHING,
        });
        table.set_content_arrangement(ContentArrangement::Disabled).set_header(header);
        table
    }

    /// Escapes text for a table. In Markdown, a bar would end the table's cell, and HTML would be
    /// interpreted.
    pub(crate) fn text(self, text: &str) -> String {
        let text = printable(text);
        if self == Self::Markdown { text.replace('|', "\\|").replace('<', "\\<") } else { text }
    }

    /// Returns the beginning of a line in a list.
    pub(super) fn bullet(self) -> &'static str {
        if self == Self::Markdown { "- " } else { "  " }
    }

    pub(super) fn title(self, text: &str) -> String {
        match self {
            Self::Plain | Self::Terminal(_) => format!("\n{text}\n"),
            Self::Markdown => format!("\n### {text}\n\n"),
        }
    }
}

/// Replaces control characters, and others that XML forbids, so that terminals and pages show the text as it
/// is.
pub(crate) fn printable(text: &str) -> String {
    let odd = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if odd(c) { ' ' } else { c }).collect()
}

/// Aligns these columns to the right.
pub(crate) fn right(table: &mut Table, columns: &[usize]) {
    for &column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
