//! Tokens of PTX text.

use super::{PtxError, Result};

/// A token and its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: u32,
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')
}

/// Returns the length of the word at the start of a text. Modifiers such as `.L1::no_allocate` contain `::`.
fn word_len(text: &str) -> usize {
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    match text[end..].strip_prefix("::") {
        Some(rest) if rest.starts_with(is_word) => end + 2 + word_len(rest),
        _ => end,
    }
}

/// Splits a text into words (names, numbers, instructions with their modifiers), strings and punctuation.
/// Skips comments.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => match rest.find("*/") {
                Some(end) => end + 2,
                None => return Err(PtxError::wrong(line, "a comment does not end")),
            },
            '"' => match rest[1..].find('"') {
                Some(end) => end + 2,
                None => return Err(PtxError::wrong(line, "a string does not end")),
            },
            first if is_word(first) => word_len(rest),
            first => first.len_utf8(),
        };
        let (token, after) = rest.split_at(len);
        let is_comment = token.starts_with("//") || token.starts_with("/*");
        if !is_comment && !first.is_whitespace() {
            found.push(Token { text: token, line });
        }
        line += token.matches('\n').count() as u32;
        rest = after;
    }
    Ok(found)
}
