//! `--verify`: compares the XXH3 digests (128 bits) of the bytes read and of the copy.

use std::os::unix::fs::FileExt;

use indicatif::ProgressBar;
use twox_hash::XxHash3_128;

use crate::failure::{Failure, check_interrupt, failure};
use crate::files::Target;
use apps_shared::disk::Source;

/// Adds `len` zeros, the content of a hole.
pub(crate) fn add_zeros(hasher: &mut XxHash3_128, mut len: u64) -> Result<(), Failure> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    while len > 0 {
        check_interrupt()?;
        let n = len.min(ZEROS.len() as u64);
        hasher.write(&ZEROS[..n as usize]);
        len -= n;
    }
    Ok(())
}

/// Reads `target` back and compares its digest with `read`, the digest of the bytes read from `source`.
pub(crate) fn verify(
    target: &Target,
    source: &Source,
    read: u128,
    chunk: usize,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let mut hasher = XxHash3_128::new();
    let mut buffer = vec![0; chunk];
    let mut at = 0;
    while at < source.len() {
        check_interrupt()?;
        let n = (source.len() - at).min(chunk as u64) as usize;
        target
            .file()
            .read_exact_at(&mut buffer[..n], at)
            .map_err(|e| failure!("cannot read the copy back at byte {at}: {e}"))?;
        hasher.write(&buffer[..n]);
        at += n as u64;
        bar.set_position(at);
    }
    let arrived = hasher.finish_128();
    if arrived == read {
        return Ok(());
    }
    Err(failure!(
        "what arrived is not what was read (xxh3 {arrived:032x}, was {read:032x}): the engine or the disk corrupted it, and DST \
         was left alone; copy with --engine cpu --verify to see which"
    ))
}
