//! `--share`: the file system shares extents or copies, without an engine.

use std::time::Instant;

use rustix::io::Errno;

use crate::failure::{Failure, check_interrupt, failure};
use crate::files::Target;
use crate::options::Options;
use crate::pieces::{Piece, Pieces};
use apps_shared::disk::Source;
use dma::process::count;

/// Maximum number of bytes that the kernel copies between two checks for an interrupt.
const STEP: usize = 64 << 20;

/// Copies SRC to DST by the file system. Holes stay holes.
pub(crate) fn copy(
    options: &Options,
    source: &Source,
    target: Target,
    started: Instant,
) -> Result<String, Failure> {
    let shared = match rustix::fs::ioctl_ficlone(target.file(), &source.file) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
            copy_range(source, &target)?;
            false
        }
        Err(e) => return Err(target.explain(&e.into())),
    };
    if options.sync {
        target.sync()?;
    }
    source.check_unchanged()?;
    check_interrupt()?;
    target.publish(options.sync)?;
    let seconds = started.elapsed().as_secs_f64();
    let bytes = count(source.len(), "byte", "bytes");
    Ok(if shared {
        format!("shared {bytes} in {seconds:.3} s, by the file system")
    } else {
        format!("copied {bytes} in {seconds:.3} s, by the file system (it shares no extents here)")
    })
}

/// Lets the kernel copy the data between holes.
fn copy_range(source: &Source, target: &Target) -> Result<(), Failure> {
    target.file().set_len(source.len()).map_err(|e| target.explain(&e))?;
    let mut pieces = Pieces::new(&source.file, source.len(), source.is_sparse(), STEP);
    while let Some(piece) = pieces.next().map_err(|e| failure!("cannot look for holes in SRC: {e}"))? {
        let Piece::Data { offset, len } = piece else { continue };
        let (mut from, mut to) = (offset, offset);
        while from < offset + len as u64 {
            check_interrupt()?;
            let left = (offset + len as u64 - from) as usize;
            match rustix::fs::copy_file_range(
                &source.file,
                Some(&mut from),
                target.file(),
                Some(&mut to),
                left,
            ) {
                Ok(0) => {
                    let short = std::io::ErrorKind::UnexpectedEof.into();
                    return Err(Failure::from(source.explain(from, &short)));
                }
                Ok(_) => {}
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
                    return Err(failure!(
                        "the kernel cannot copy between these file systems; copy without --share"
                    ));
                }
                Err(e) => return Err(target.explain(&e.into())),
            }
        }
    }
    Ok(())
}
