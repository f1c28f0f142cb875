//! [`DeviceFiles`]: reads files into device memory, and writes them from there.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use dma_core::{BufferPool, Error, ErrorKind, Result, SharedQueue};
use dma_process::{OutputFile, check_file_size, count};
use rustix::fs::{FallocateFlags, FileType, fallocate, fstat, fstatvfs};
use rustix::io::Errno;

use crate::device_transfer::{DeviceTransfer, Inner, Start, operation};
use crate::error::FileError;
use crate::file::{DIRECT_ALIGNMENT, DmaFile};
use crate::options::{FileQueueOptions, MAX_DEPTH};
use crate::pieces::{FilePiece, Layout, check};
use crate::queue::FileQueue;
use crate::transfer::no_space;

/// Reads ranges of files into memory that the CPU may not reach, such as a GPU's, and writes files from
/// there. The bytes go through the buffers of a pool: while the disk fills some of them, the device empties
/// others. Clones share the pool, and any thread may use them.
///
/// - **Memory.** An operation has one buffer of the pool's greatest size for each block in flight, and uses
///   no other memory for the bytes. Several operations share the buffers. Once warm, a block allocates
///   nothing, unless two threads release its operation at the same time.
/// - **Blocks.** A block is a contiguous range of the file, of at most [`block_len`](Self::block_len) bytes.
///   Pieces that follow each other in the file share blocks, so give them in the order of the file. One
///   submission copies all pieces of a block.
/// - **Direct access.** For a file with [direct access](crate::OpenFile::direct), blocks begin and end at
///   multiples of 4096 bytes. Only the ends of written ranges use the page cache. The pool's greatest size
///   should be a multiple of 4096 bytes.
/// - **Errors** name the file, its bytes and the remedy. After an error, the contents of the pieces' windows
///   (or of the file's ranges) are undefined.
///
/// ```
/// use dma_core::{BufferPool, DmaEngine, DmaEngineExt, PoolOptions, SharedQueueOptions};
/// use dma_files::{DeviceFiles, FilePiece, FileQueueOptions, OpenFile};
/// # async fn demo(engine: &dyn DmaEngine) -> dma_core::Result<()> {
///
/// let pool = BufferPool::new(engine, &PoolOptions::new().with_class(1 << 20, 16))?;
/// let queue = engine.open_shared_queue(&SharedQueueOptions::new())?;
/// let files = DeviceFiles::new(&queue, &pool, &FileQueueOptions::new())?;
///
/// let weights = engine.allocate_device(1_000_000)?;
/// let file = OpenFile::new().with_direct(true).open("weights")?;
/// let piece = FilePiece::new(4096..1_004_096, weights);
/// let (pieces, bytes) = files.read(&file, vec![piece])?.await?;
/// println!("{bytes} bytes are in device memory");
///
/// // The file gets its name when all bytes are on the disk.
/// files.save("copy-of-weights", pieces)?.await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct DeviceFiles(Arc<Inner>);

impl DeviceFiles {
    /// Makes a file queue for the pool's buffers of the greatest size, and a reader and writer by which they
    /// are copied on `queue`. Pool and queue are of the engine whose memory the pieces use.
    ///
    /// The file queue's depth is at least the number of these buffers.
    ///
    /// # Errors
    ///
    /// The errors of [`FileQueue::with_pools`]; `OutOfRange` if the pool has more than 4095 buffers of its
    /// greatest size.
    pub fn new(queue: &SharedQueue, pool: &BufferPool, options: &FileQueueOptions) -> Result<Self> {
        let fail = |e: Error| e.with_operation("open files for device memory");
        let class = pool
            .classes()
            .last()
            .ok_or_else(|| fail(Error::new(ErrorKind::InvalidArgument, "the pool has no buffers")))?;
        let buffers = class.max.max(class.count);
        if buffers >= MAX_DEPTH {
            let message = format!("the pool has up to {buffers} buffers of {} bytes", class.len);
            return Err(fail(
                Error::new(ErrorKind::OutOfRange, message)
                    .with_numbers(buffers as u64, MAX_DEPTH as u64 - 1)
                    .with_hint("use a pool of fewer, longer buffers"),
            ));
        }
        // Each operation on a file holds a buffer, so that the file queue is never full.
        let options = options.clone().with_depth(options.depth.max(buffers));
        Ok(Self(Arc::new(Inner {
            files: FileQueue::with_pools(&options, &[pool])?,
            queue: queue.clone(),
            engine: pool.regions().first().map(dma_core::Region::engine_id),
            pool: pool.clone(),
            buffer_len: class.len,
            block_len: match class.len / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT {
                0 => class.len,
                len => len,
            },
            depth: buffers,
        })))
    }

    /// Returns the maximum length of a block in bytes: that of the pool's greatest buffers, rounded down to a
    /// multiple of 4096 unless they are shorter.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.0.block_len
    }

    /// Returns the file queue, for example to [`sync`](FileQueue::sync) a file that [`write`](Self::write)
    /// has written.
    #[must_use]
    pub fn file_queue(&self) -> &FileQueue {
        &self.0.files
    }

    /// Reads the pieces' ranges of a file into the pieces' windows. Empty pieces are left out. Submits the
    /// first blocks when the returned transfer is first polled or waited for.
    ///
    /// # Errors
    ///
    /// Nothing is read, and the error contains the pieces, if:
    ///
    /// - `LengthMismatch`: a window is shorter or longer than its range.
    /// - `OutOfRange`: a range ends behind the end of the file.
    /// - `InvalidArgument`: a range ends before it begins, or the file is a pipe, a socket or a directory.
    /// - `WrongEngine`: a window belongs to another engine than the pool.
    /// - `AccessDenied`: the device may not write a window.
    /// - `Overlap`: two windows overlap.
    ///
    /// The [`DeviceTransfer`] returns errors of the file and of the device.
    pub fn read(
        &self,
        file: &DmaFile,
        pieces: Vec<FilePiece>,
    ) -> Result<DeviceTransfer, FileError<Vec<FilePiece>>> {
        let checked = check(&pieces, true, self.0.engine).and_then(|(sum, end)| {
            let (kind, len) = kind_of(file)?;
            if kind == FileType::RegularFile && end > len {
                return Err(Error::new(
                    ErrorKind::OutOfRange,
                    format!("the file has {}", count(len, "byte", "bytes")),
                )
                .with_numbers(end, len)
                .with_hint("give ranges within the file; it may have become shorter"));
            }
            Ok(sum)
        });
        match checked {
            Ok(sum) => Ok(self.start(true, file.clone(), None, pieces, sum)),
            Err(e) => Err(FileError::new(e.with_operation(operation(true, &file.name())), pieces)),
        }
    }

    /// Writes the pieces' windows to the pieces' ranges of a file. Extends the file if needed. Neither
    /// truncates nor syncs the file: see [`FileQueue::sync`] and [`save`](Self::save). Empty pieces are left
    /// out. Submits the first blocks when the returned transfer is first polled or waited for.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read), with these differences: `AccessDenied` if the device may not read
    /// a window; `Overlap` if two ranges overlap; `OutOfResources` for ranges beyond the process's limit on
    /// the size of files (`ulimit -f`); `InvalidArgument` also for a file that is open for appending. Ranges
    /// may end behind the end of the file.
    pub fn write(
        &self,
        file: &DmaFile,
        pieces: Vec<FilePiece>,
    ) -> Result<DeviceTransfer, FileError<Vec<FilePiece>>> {
        match self.check_write(file, &pieces) {
            Ok((sum, _)) => Ok(self.start(false, file.clone(), None, pieces, sum)),
            Err(e) => Err(FileError::new(e.with_operation(operation(false, &file.name())), pieces)),
        }
    }

    /// Writes the pieces' windows to a new file, which gets the name `path` when all its bytes are on the
    /// disk. Until then, the bytes are in a temporary file in the same directory, and a file that has this
    /// name keeps its content. If the transfer fails, is cancelled or is dropped, the temporary file is
    /// removed. When the transfer has ended, the name is on the disk, too.
    ///
    /// Bytes between the pieces are zeros. A file that is replaced passes on its owner and its rights, as far
    /// as the user may set them. The file has direct access where the file system supports this. Blocks while
    /// the file system makes the file and reserves its space.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write); `OutOfResources` if the file system refuses to
    /// reserve the space, which the transfer may also find later;
    /// `NotFound` if the directory does not exist; `PermissionDenied`; `InvalidArgument` if `path` is not
    /// that of a regular file; `Os`. Each error contains the pieces.
    pub fn save(
        &self,
        path: impl AsRef<Path>,
        pieces: Vec<FilePiece>,
    ) -> Result<DeviceTransfer, FileError<Vec<FilePiece>>> {
        let path = path.as_ref();
        match self.create(path, &pieces) {
            Ok((output, file, sum)) => Ok(self.start(false, file, Some(output), pieces, sum)),
            Err(e) => {
                let operation = operation(false, &path.display().to_string());
                Err(FileError::new(e.with_operation(operation), pieces))
            }
        }
    }

    fn check_write(&self, file: &DmaFile, pieces: &[FilePiece]) -> Result<(u64, u64)> {
        let (sum, end) = check(pieces, false, self.0.engine)?;
        kind_of(file)?;
        file.check_write_offsets()?;
        check_file_size(file, end)?;
        Ok((sum, end))
    }

    /// Makes a temporary file for `save`, and reserves its space.
    fn create(&self, path: &Path, pieces: &[FilePiece]) -> Result<(OutputFile, DmaFile, u64)> {
        let failed = |e| Error::of_output_file(path, e);
        let output = OutputFile::create(path).map_err(failed)?;
        if output.temporary_path().is_none() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{} is a device, a pipe or a standard stream", path.display()),
            )
            .with_hint("give the path of a regular file, which can be replaced as a whole"));
        }
        let file = DmaFile::from(File::from(output.as_fd().try_clone_to_owned().map_err(failed)?));
        let (sum, end) = self.check_write(&file, pieces)?;
        // A file with holes stays sparse. Beyond the free space, the file system would allocate all of it
        // before it fails.
        if sum == end && (1..=free_space(&file)).contains(&end) {
            match fallocate(&file, FallocateFlags::empty(), 0, end) {
                Err(e @ (Errno::NOSPC | Errno::DQUOT)) => {
                    return Err(no_space(e).with_numbers(end, free_space(&file)));
                }
                Err(e @ Errno::FBIG) => return Err(failed(e.into())),
                // Not every file system can reserve space. Writes will report a full disk.
                _ => {}
            }
        }
        let file = file.clone().with_direct().unwrap_or(file);
        Ok((output, file, sum))
    }

    fn start(
        &self,
        reads: bool,
        file: DmaFile,
        output: Option<OutputFile>,
        pieces: Vec<FilePiece>,
        total: u64,
    ) -> DeviceTransfer {
        let block_len = self.0.block_len;
        let aligned = file.is_direct() && block_len.is_multiple_of(DIRECT_ALIGNMENT);
        let layout = Layout { reads, block_len, align: if aligned { DIRECT_ALIGNMENT } else { 1 } };
        let depth = self.0.depth.min(usize::try_from(total).unwrap_or(usize::MAX));
        DeviceTransfer::new(Start { files: Arc::clone(&self.0), layout, file, output, pieces, total, depth })
    }
}

/// Returns the type and the length of a file. Fails if reads and writes have no offsets, or are impossible.
fn kind_of(file: &DmaFile) -> Result<(FileType, u64)> {
    let stat = fstat(file).map_err(io::Error::from)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    match kind {
        FileType::RegularFile | FileType::BlockDevice | FileType::CharacterDevice => {
            Ok((kind, u64::try_from(stat.st_size).unwrap_or(0)))
        }
        _ => Err(Error::new(ErrorKind::InvalidArgument, "a pipe, a socket or a directory has no ranges")
            .with_hint("give a file or a disk; read a pipe by `FileQueue`, and copy the buffers")),
    }
}

/// Returns the number of bytes that the user may add to the file's file system.
fn free_space(file: &DmaFile) -> u64 {
    fstatvfs(file).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

impl fmt::Debug for DeviceFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceFiles")
            .field("files", &self.0.files)
            .field("queue", &self.0.queue)
            .field("pool", &self.0.pool)
            .field("block_len", &self.0.block_len)
            .field("depth", &self.0.depth)
            .finish()
    }
}
