//! [`Style`]: the layout of tables and text on a terminal, in a pipe, and in a Markdown file.

use comfy_table::Table;

use super::Format;
use crate::units::printable;

/// Width in columns of text that is not for a terminal.
const COLUMNS: u16 = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// For pipes and files, with a width of [`COLUMNS`].
    Plain,
    /// For a terminal with this many columns.
    Terminal(u16),
    Markdown,
}

impl Style {
    /// Returns the style for standard output, which depends on whether it is a terminal.
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

    /// Returns the width of text in columns; `None` in Markdown, because its viewer wraps the text.
    pub(super) fn columns(self) -> Option<u16> {
        match self {
            Self::Plain => Some(COLUMNS),
            Self::Terminal(width) => Some(width),
            Self::Markdown => None,
        }
    }

    /// Returns text with a line break at its end, wrapped between words. Lines after the first are indented
    /// by four columns.
    pub(crate) fn wrap(self, text: &str) -> String {
        let Some(columns) = self.columns() else { return format!("{text}\n") };
        let indent = &text[..text.len() - text.trim_start().len()];
        let (mut wrapped, mut line) = (String::new(), indent.to_owned());
        for word in text.split_whitespace() {
            let is_blank = line.trim().is_empty();
            if !is_blank && line.chars().count() + 1 + word.chars().count() > usize::from(columns) {
                wrapped += &(line + "\n");
                line = format!("    {word}");
            } else {
                line += if is_blank { "" } else { " " };
                line += word;
            }
        }
        wrapped + &line + "\n"
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
