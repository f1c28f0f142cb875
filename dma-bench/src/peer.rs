//! Memory of another process. A child process allocates and exports it, and reads and writes it on request,
//! so that bytes are verified through the child's own mapping.

use std::io::{self, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use dma::{Access, DmaEngineExt as _, Error, ErrorKind, ExportDescriptor, MemoryRequest, Result};

/// The child, and the pipes to it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

/// The most bytes of an export descriptor.
const DESCRIPTOR: u64 = 1 << 20;
/// Request: read bytes of the memory.
const READ: u8 = b'r';
/// Request: write bytes of the memory.
const WRITE: u8 = b'w';

fn lost(error: &io::Error) -> Error {
    Error::new(ErrorKind::Os, format!("the peer process: {error}"))
        .with_hint("its own message is on standard error")
}

impl Process {
    /// Starts a process with `len` bytes of an engine's memory. Returns it and the descriptor of its export.
    ///
    /// # Errors
    ///
    /// The process cannot be started, or its engine cannot allocate or export.
    pub fn start(engine: &str, len: usize) -> Result<(Self, ExportDescriptor)> {
        // This is the running program even if its file has been replaced.
        let mut child = Command::new("/proc/self/exe")
            .args(["peer", engine])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| lost(&e))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (mut to, from) = pipes.ok_or_else(|| lost(&io::Error::from(io::ErrorKind::BrokenPipe)))?;
        let mut from = BufReader::new(from);
        let descriptor = to.write_all(&(len as u64).to_le_bytes()).and_then(|()| to.flush()).and_then(|()| {
            let len = number(&mut from)?.min(DESCRIPTOR);
            let mut bytes = vec![0; len as usize];
            from.read_exact(&mut bytes)?;
            Ok(bytes)
        });
        let process = Self { child, pipes: Mutex::new((to, from)) };
        let descriptor = ExportDescriptor::from_bytes(&descriptor.map_err(|e| lost(&e))?)?;
        Ok((process, descriptor))
    }

    /// Reads `bytes` from offset `at` of the memory.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn read_at(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let (to, from) = &mut *pipes;
        request(to, READ, at, bytes.len()).and_then(|()| to.flush()).map_err(|e| lost(&e))?;
        from.read_exact(bytes).map_err(|e| lost(&e))
    }

    /// Writes `bytes` at offset `at` of the memory.
    ///
    /// # Errors
    ///
    /// The process has ended.
    pub fn write_at(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let (to, from) = &mut *pipes;
        let sent = request(to, WRITE, at, bytes.len()).and_then(|()| to.write_all(bytes));
        sent.and_then(|()| to.flush()).map_err(|e| lost(&e))?;
        // The answer comes when the bytes are in the memory.
        from.read_exact(&mut [0]).map_err(|e| lost(&e))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child ends at the end of its input; killing it ends it in any case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(to: &mut impl Write, what: u8, at: usize, len: usize) -> io::Result<()> {
    to.write_all(&[what])?;
    to.write_all(&(at as u64).to_le_bytes())?;
    to.write_all(&(len as u64).to_le_bytes())
}

fn number(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Runs the child process: allocates memory of `engine`, exports it, and serves requests until standard input
/// ends.
///
/// # Errors
///
/// The engine cannot allocate or export, or the pipes break in the middle of a request.
pub fn serve(engine: &str) -> std::result::Result<(), String> {
    let mut from = BufReader::new(io::stdin().lock());
    let mut to = io::stdout().lock();
    let text = |e: io::Error| format!("peer: {e}");
    let engine = dma::open(engine).map_err(|e| e.to_string())?;
    let len = number(&mut from).map_err(text)? as usize;
    let request = MemoryRequest::new(len).exportable(Access::all());
    let window = engine.allocate_window(&request).map_err(|e| e.to_string())?;
    let export = window.export(Access::all()).map_err(|e| e.to_string())?;
    let descriptor = export.descriptor().to_bytes();
    to.write_all(&(descriptor.len() as u64).to_le_bytes()).map_err(text)?;
    to.write_all(&descriptor).and_then(|()| to.flush()).map_err(text)?;
    let mut what = [0];
    let mut bytes = Vec::new();
    while from.read(&mut what).map_err(text)? == 1 {
        let (at, count) =
            (number(&mut from).map_err(text)? as usize, number(&mut from).map_err(text)? as usize);
        bytes.resize(count.min(len), 0);
        match what[0] {
            READ => {
                window.read_at(at, &mut bytes).map_err(|e| e.to_string())?;
                to.write_all(&bytes).and_then(|()| to.flush()).map_err(text)?;
            }
            WRITE => {
                from.read_exact(&mut bytes).map_err(text)?;
                window.write_at(at, &bytes).map_err(|e| e.to_string())?;
                to.write_all(&[0]).and_then(|()| to.flush()).map_err(text)?;
            }
            other => return Err(format!("peer: the unknown request {other}")),
        }
    }
    Ok(())
}
