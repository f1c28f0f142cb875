//! placeholder
use crate::results::Results;
pub fn page(_: &Results) -> Result<String, String> { Ok(String::new()) }
pub fn files(_: &Results, _: &std::path::Path) -> Result<(), String> { Ok(()) }
