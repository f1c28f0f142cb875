//! Reads words, numbers and types from the tokens of a text.

use super::code::{Type, TypeKind};
use super::tokens::Token;
use super::{PtxError, Result};

/// A position in the tokens.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(tokens: &'a [Token<'a>]) -> Self {
        Self { tokens, at: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|token| token.text)
    }

    /// Returns the text after the next one.
    pub(super) fn peek_second(&self) -> Option<&'a str> {
        self.tokens.get(self.at + 1).map(|token| token.text)
    }

    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.tokens.get(self.at).copied()?;
        self.at += 1;
        Some(token)
    }

    /// Returns the line of the next token, or of the last one at the end.
    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    pub(super) fn wrong(&self) -> PtxError {
        match self.peek() {
            Some(text) => PtxError::wrong(self.line(), format!("`{text}` is unexpected")),
            None => PtxError::wrong(self.line(), "the text ends too early"),
        }
    }

    /// Reads a token if it is the given one.
    pub(super) fn skip(&mut self, text: &str) -> bool {
        let is = self.peek() == Some(text);
        self.at += usize::from(is);
        is
    }

    pub(super) fn expect(&mut self, text: &str) -> Result<()> {
        if self.skip(text) { Ok(()) } else { Err(self.wrong()) }
    }

    pub(super) fn word(&mut self) -> Result<&'a str> {
        let is_word = |text: &&str| text.starts_with(|c: char| c.is_alphanumeric() || "_$%.".contains(c));
        let word = self.peek().filter(is_word).ok_or_else(|| self.wrong())?;
        self.at += 1;
        Ok(word)
    }

    /// Reads a whole number without a sign.
    pub(super) fn number(&mut self) -> Result<u64> {
        let number = self.peek().and_then(whole).ok_or_else(|| self.wrong())?;
        self.at += 1;
        Ok(number)
    }

    pub(super) fn skip_line(&mut self, line: u32) {
        while self.tokens.get(self.at).is_some_and(|token| token.line == line) {
            self.at += 1;
        }
    }

    /// Skips tokens up to the end of a block in braces.
    pub(super) fn skip_block(&mut self) -> Result<()> {
        let mut depth = 0;
        loop {
            match self.next().ok_or_else(|| self.wrong())?.text {
                "{" => depth += 1,
                "}" if depth == 1 => return Ok(()),
                "}" => depth -= 1,
                _ => {}
            }
        }
    }
}

/// Parses a whole number: decimal, hexadecimal, octal or binary.
pub(super) fn whole(text: &str) -> Option<u64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

/// Parses a type, such as `u32`.
pub(super) fn type_of(name: &str) -> Option<Type> {
    if name == "pred" {
        return Some(Type::new(TypeKind::Predicate, 1));
    }
    let (kind, bits) = name.split_at_checked(1)?;
    let bits = bits.parse().ok()?;
    let kind = match kind {
        "u" => TypeKind::Unsigned,
        "s" => TypeKind::Signed,
        "b" => TypeKind::Bits,
        "f" if bits >= 32 => TypeKind::Float,
        _ => return None,
    };
    matches!(bits, 8 | 16 | 32 | 64).then_some(Type::new(kind, bits))
}

/// Reads a type from the next token, such as `.u32`.
pub(super) fn read_type(reader: &mut Reader<'_>) -> Result<Type> {
    let found = reader.peek().and_then(|text| type_of(text.strip_prefix('.')?));
    let Some(ty) = found else {
        let what = format!("the type `{}`", reader.peek().unwrap_or_default());
        return Err(PtxError::unsupported(reader.line(), what));
    };
    reader.word()?;
    Ok(ty)
}

/// Reads `.align N`, if it is next.
pub(super) fn read_align(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    if !reader.skip(".align") {
        return Ok(None);
    }
    let (line, align) = (reader.line(), reader.number()?);
    if align.is_power_of_two() && align <= 4096 {
        return Ok(Some(align));
    }
    Err(PtxError::wrong(line, format!("an alignment of {align}")))
}

/// Reads the length of an array, if one follows. An array of unknown length has 0 elements.
pub(super) fn read_elements(reader: &mut Reader<'_>) -> Result<Option<u64>> {
    if !reader.skip("[") {
        return Ok(None);
    }
    if reader.skip("]") {
        return Ok(Some(0));
    }
    let elements = reader.number()?;
    reader.expect("]")?;
    Ok(Some(elements))
}
