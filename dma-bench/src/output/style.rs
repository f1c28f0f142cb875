//! [`Style`]: how tables and the text in them look, on a terminal, in a pipe and in a Markdown file.

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING, UTF8_FULL_CONDENSED};
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Style of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// With lines, as wide as they need be.
    Plain,
    /// The same, for a terminal with so many columns.
    Terminal(u16),
    /// For a Markdown file.
    Markdown,
}

impl Style {
    /// For standard output, whatever that is.
    #[must_use]
    pub fn of_stdout() -> Self {
        Table::new().width().map_or(Self::Plain, Self::Terminal)
    }

    /// Texts that are too long for a terminal are broken.
    pub(crate) fn table(self, header: &[&str]) -> Table {
        let mut table = self.rigid_table(header, true);
        if let Self::Terminal(width) = self {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        table
    }

    /// Each row is a line, however long; with lines between columns if `lines`.
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

    /// A text within a table: in Markdown a bar would end the cell, and what looks like HTML would be taken
    /// for that.
    pub(crate) fn text(self, text: &str) -> String {
        let text = printable(text);
        if self == Self::Markdown { text.replace('|', "\\|").replace('<', "\\<") } else { text }
    }

    /// Returns the first characters of a line of a list.
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

/// Text that a terminal or a page shows as it is: no control characters, and none that XML does not allow.
pub(crate) fn printable(text: &str) -> String {
    let odd = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if odd(c) { ' ' } else { c }).collect()
}

/// Aligns the figures in these columns.
pub(crate) fn right(table: &mut Table, columns: &[usize]) {
    for &column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
