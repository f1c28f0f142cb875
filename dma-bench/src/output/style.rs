//! [`Style`]: the look of tables and text, on a terminal, in a pipe and in a Markdown file.

use comfy_table::Table;

use crate::cli::Format;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// With lines, as wide as their content.
    Plain,
    /// For a terminal with this many columns.
    Terminal(u16),
    Markdown,
}

impl Style {
    /// Returns the style for standard output: a terminal, or anything else.
    pub(crate) fn of_stdout() -> Self {
        Table::new().width().map_or(Self::Plain, Self::Terminal)
    }

    /// Returns the style of a format for standard output.
    pub(crate) fn of(format: Format) -> Self {
        if format == Format::Markdown { Self::Markdown } else { Self::of_stdout() }
    }

    /// Escapes text for a table. In Markdown, a bar would end the table's cell, and HTML would be
    /// interpreted.
    pub(crate) fn text(self, text: &str) -> String {
        let text = printable(text);
        if self == Self::Markdown { text.replace('|', "\\|").replace('<', "\\<") } else { text }
    }

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
