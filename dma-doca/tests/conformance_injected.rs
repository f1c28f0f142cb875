//! The conformance suite on the stand-in SDK, linked into the test and passed as a table.

#[path = "support/calls.rs"]
mod calls;

use calls::engine;

dma_conformance::conformance_tests!(plain, engine(""));
dma_conformance::conformance_tests!(tight, engine("max_buf_size = 64\nmax_list_len = 1\nmax_tasks = 3\n"));
dma_conformance::conformance_tests!(lists, engine("max_buf_size = \"4K\"\nmax_list_len = 3\nseed = 5\n"));
// The suite has only one engine, so it imports exports on the side that made them.
const CARD: &str = "profile = \"bluefield3\"\nself_import = true\nclock = \"virtual\"\nseed = 9\n";
dma_conformance::conformance_tests!(card, engine(CARD));
