//! Output options that several subcommands share.

use std::path::PathBuf;

use clap::Args;

use crate::output::Format;

/// Output options that several subcommands share.
#[derive(Debug, Default, Args)]
pub(crate) struct Printed {
    /// Format of standard output.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Also write JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
