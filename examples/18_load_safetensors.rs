//! Loads the tensors of a safetensors file into a device's own memory, such as a GPU's, and saves them as
//! another file. Shows the progress, and compares the CRC-32C of every tensor and of both files.
//!
//! `cargo run --example 18_load_safetensors -- --engine cuda:0 FILE [COPY]`. Without FILE, the example makes
//! one. Without COPY, the copy is compared and removed.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use dma::files::{DeviceFiles, DeviceTransfer, FilePiece, FileQueueOptions, OpenFile};
use dma::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use safetensors::tensor::{Dtype, Metadata, TensorView};

/// The beginning and the end of each tensor, by its name.
type Ranges = BTreeMap<String, (u64, u64)>;
type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Loads a safetensors file into device memory, and saves it again
#[derive(Parser)]
struct Options {
    /// An engine with device memory: cuda:0, sim:device_memory=1G
    #[arg(short, long, value_name = "NAME", default_value = "sim:device_memory=64M")]
    engine: String,
    /// The file to load [default: a file of 24 tensors]
    file: Option<PathBuf>,
    /// The file to save [default: a temporary file]
    copy: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let folder = tempfile::tempdir()?;
    let path = match &options.file {
        Some(path) => path.clone(),
        None => made_up(folder.path())?,
    };
    let copy = options.copy.clone().unwrap_or_else(|| folder.path().join("copy.safetensors"));

    let engine = dma::open(&options.engine)?;
    let queue = engine.open_shared_queue(&SharedQueueOptions::new())?;
    // The transfers use these 16 MiB of host memory, whatever the length of the file.
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(1 << 20, 16))?;
    let files = DeviceFiles::new(&queue, &pool, &FileQueueOptions::new())?;

    // Each tensor gets a window of device memory.
    let (header, tensors) = header(&path)?;
    let start = header.len() as u64;
    let mut pieces = Vec::with_capacity(tensors.len() + 1);
    for &(from, to) in tensors.values() {
        pieces.push(FilePiece::new(start + from..start + to, engine.allocate_device((to - from) as usize)?));
    }
    // Pieces in the order of the file share reads.
    pieces.sort_by_key(|piece| piece.range.start);
    let open = OpenFile::new();
    // Not every file system supports reads without the page cache.
    let file = open.clone().with_direct(true).open(&path).or_else(|_| open.open(&path))?;
    let mut pieces = progress("loaded", files.read(&file, pieces)?)?;

    // The device's bytes are those of the file.
    let bytes = std::fs::read(&path)?;
    for piece in &pieces {
        let (_, crc) = queue.crc32c(piece.window.clone(), 0)?.wait()?;
        let expected = crc32c::crc32c(&bytes[piece.range.start as usize..piece.range.end as usize]);
        assert_eq!(crc, expected, "bytes {:?} of {}", piece.range, path.display());
    }

    // The header is in host memory, which is a window, too.
    let mut first = engine.allocate(header.len())?;
    first.copy_from_slice(&header);
    pieces.insert(0, FilePiece::new(0..start, first.share()));
    // The copy gets its name when all its bytes are on the disk.
    progress("saved", files.save(&copy, pieces)?)?;
    assert_eq!(crc32c::crc32c(&std::fs::read(&copy)?), crc32c::crc32c(&bytes));
    println!(
        "{} tensors, {} bytes: the CRCs of the file, the device and the copy are equal",
        tensors.len(),
        bytes.len()
    );
    Ok(())
}

/// Waits for a transfer, and shows how many bytes have arrived.
fn progress(what: &'static str, mut transfer: DeviceTransfer) -> Result<Vec<FilePiece>> {
    let bar = ProgressBar::new(transfer.total()).with_message(what);
    bar.set_style(ProgressStyle::with_template(
        "{msg:6} {decimal_bytes} of {decimal_total_bytes} {wide_bar} {decimal_bytes_per_sec}",
    )?);
    while !transfer.wait_timeout(Duration::from_millis(100)) {
        bar.set_position(transfer.moved());
    }
    bar.finish();
    Ok(transfer.wait().map_err(dma::Error::from)?.0)
}

/// Reads the header of a file. Returns it with its length field, and the range of each tensor behind it.
fn header(path: &Path) -> Result<(Vec<u8>, Ranges)> {
    let mut file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut len = [0; 8];
    file.read_exact(&mut len)?;
    let mut header = len.to_vec();
    (&mut file).take(u64::from_le_bytes(len)).read_to_end(&mut header)?;
    let metadata: Metadata = serde_json::from_slice(&header[8..])
        .map_err(|e| format!("{} is no safetensors file: {e}", path.display()))?;
    if file.metadata()?.len() != (header.len() + metadata.data_len()) as u64 {
        return Err(format!("{} is incomplete", path.display()).into());
    }
    let ranges = metadata.tensors().into_iter().map(|(name, info)| {
        let (from, to) = info.data_offsets;
        (name, (from as u64, to as u64))
    });
    Ok((header, ranges.collect()))
}

/// Makes a file of 24 tensors, of 12 bytes to 2.4 MB.
fn made_up(folder: &Path) -> Result<PathBuf> {
    let sizes: Vec<usize> = (0..24).map(|i| 3 + i * i * i * 50).collect();
    let bytes: Vec<u8> =
        (0..4 * sizes[23] as u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let tensors = sizes.iter().enumerate().map(|(number, &len)| {
        let view = TensorView::new(Dtype::F32, vec![len], &bytes[bytes.len() - 4 * len..]);
        view.map(|view| (format!("layer.{number:02}.weight"), view))
    });
    let path = folder.join("made-up.safetensors");
    safetensors::serialize_to_file(tensors.collect::<Result<Vec<_>, _>>()?, None, &path)?;
    Ok(path)
}
