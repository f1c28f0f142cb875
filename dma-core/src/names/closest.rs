//! [`closest_name`]: finds the intended name of a misspelled word.

/// Returns the word in `known` that `word` is a misspelling of, if any. The two words have the same first
/// letter and differ by one typing error, or by two if `word` has more than four letters. The first letter
/// must be the same, because short words differ little: `gpu` is not a misspelled `cpu`.
#[must_use]
pub fn closest_name<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let limit = if word.len() > 4 { 2 } else { 1 };
    let same_start = known.iter().filter(|known| known.chars().next() == word.chars().next());
    let near = same_start.map(|known| (strsim::damerau_levenshtein(word, known), *known));
    near.filter(|(distance, _)| *distance <= limit).min().map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_names_are_recognized() {
        let known = ["cpu", "cuda", "doca", "threads"];
        for (word, name) in [("cpo", Some("cpu")), ("thread", Some("threads")), ("gpu", None), ("", None)] {
            assert_eq!(closest_name(word, &known), name, "{word}");
        }
    }
}
