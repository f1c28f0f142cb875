//! A second process for the tests: it runs the same test binary, and executes commands from its standard
//! input.

#![expect(unsafe_code, reason = "maps memory and exports it")]

use std::env;
use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader, Write as _, stdin, stdout};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, id};
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use dma_core::Access;
use dma_ipc::{Export, Import, Pages, RemoteError, SharedMemory};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Time limit, long enough for any machine. Only a fault exceeds it.
pub(crate) const LONG: Duration = Duration::from_secs(300);

const ROLE: &str = "DMA_REMOTE_TEST_PEER";

/// The other process, which is killed when this is dropped.
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts the process. The test binary must have a test called `peer` that calls [`obey`].
    pub(crate) fn start() -> Self {
        Self::run(&mut Command::new(env::current_exe().unwrap())).unwrap()
    }

    /// Starts the process as another user. If this process lacks the rights, or that user may not run
    /// the test, prints the reason and returns `None`.
    pub(crate) fn start_as(user: u32) -> Option<Self> {
        let started = Self::run(Command::new(env::current_exe().unwrap()).uid(user));
        started.inspect_err(|e| println!("skipped: no process of user {user} can be started: {e}")).ok()
    }

    fn run(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command
            .args(["--exact", "peer", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Ok(Self { child, input, output })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command without waiting for the answer.
    pub(crate) fn tell(&mut self, command: impl Display) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// Returns the next answer.
    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the peer ended");
            if let Some(answer) = line.strip_prefix('@') {
                return answer.trim_end().to_owned();
            }
        }
    }

    pub(crate) fn ask(&mut self, command: impl Display) -> String {
        self.tell(command);
        self.answer()
    }

    /// Kills the process by SIGKILL. Returns after it is reaped.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills the process by SIGKILL. Returns at once.
    pub(crate) fn kill_now(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The memory, export and import that this process holds between commands.
#[derive(Default)]
struct Holdings {
    memory: Option<SharedMemory>,
    own: Option<Own>,
    export: Option<Export>,
    import: Option<Import>,
}

/// Private, anonymous, sparse memory of a process, mapped until it is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
}

impl Own {
    pub(crate) fn map(len: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let base =
            unsafe { mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE | MapFlags::NORESERVE) };
        Self { base: NonNull::new(base.unwrap().cast()).unwrap(), len }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len);
        self.base.as_ptr().wrapping_add(offset)
    }

    pub(crate) fn get(&self, offset: usize) -> u8 {
        // SAFETY: `at` has checked that the byte is within the mapping, which tests do not use after
        // `unmap`. Every value of a byte is valid.
        unsafe { self.at(offset).read_volatile() }
    }

    pub(crate) fn set(&self, offset: usize, byte: u8) {
        // SAFETY: `at` has checked that the byte is within the mapping, which is writable, and which tests do
        // not use after `unmap`. No reference to the byte exists.
        unsafe { self.at(offset).write_volatile(byte) }
    }

    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the `len` bytes are the whole mapping, which is writable, and which tests do not use after
        // `unmap`. No reference to the bytes exists.
        unsafe { self.base.as_ptr().write_bytes(byte, self.len) }
    }

    pub(crate) fn export(&self, begin: usize, end: usize, rights: Access) -> Result<Export, RemoteError> {
        assert!(begin <= end && end <= self.len);
        let first = NonNull::new(self.base.as_ptr().wrapping_add(begin)).unwrap();
        // SAFETY: no reference to the memory exists, and the callers expect that peers write to it. A test
        // that unmaps the memory before it revokes the export maps no other memory there.
        unsafe { Export::of_process_memory(first, end - begin, rights) }
    }

    pub(crate) fn unmap(self) {
        // SAFETY: `map` made this mapping, no reference to the memory exists, and tests do not use copies of
        // `self` after this call.
        unsafe { munmap(self.base.as_ptr().cast(), self.len) }.unwrap();
    }
}

/// The main loop of the other process. Returns at once if no test has started it.
pub(crate) fn obey() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let mut holdings = Holdings::default();
    say("ready");
    for line in stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        match holdings.command(&words) {
            Ok(answer) => say(answer),
            Err(error) => say(name(&error)),
        }
    }
}

fn say(answer: impl Display) {
    // The test harness has printed an incomplete line.
    println!("\n@{answer}");
    stdout().flush().unwrap();
}

/// Returns the text that tests compare: the error's variant, and the process that the error names.
fn name(error: &RemoteError) -> String {
    match error {
        RemoteError::Revoked { pid } => format!("Revoked {pid}"),
        RemoteError::PeerGone { pid } => format!("PeerGone {pid}"),
        RemoteError::ForeignUser { uid, own, .. } => format!("ForeignUser {uid} {own}"),
        RemoteError::StillInUse { pids, .. } => format!("StillInUse {pids:?}"),
        other => format!("{other:?}"),
    }
}

impl Holdings {
    fn command(&mut self, words: &[&str]) -> Result<String, RemoteError> {
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        Ok(match words[0] {
            // allocate LEN BYTE: allocates memory, and fills it with BYTE
            "allocate" => {
                let memory = SharedMemory::allocate(number(1), Pages::Normal)?;
                memory.write_at(0, &vec![number(2) as u8; number(1)])?;
                self.memory = Some(memory);
                "done".into()
            }
            // own LEN BYTE: maps the process's own memory, which is sparse if BYTE is 0
            "own" => {
                let own = Own::map(number(1));
                if number(2) != 0 {
                    own.fill(number(2) as u8);
                }
                self.own = Some(own);
                "done".into()
            }
            // export-own BEGIN END RIGHTS FILE: exports a range of the process's own memory
            "export-own" => {
                let rights = Access::from_bits(number(3) as u32).unwrap();
                let export = self.own().export(number(1), number(2), rights)?;
                publish(Path::new(words[4]), export.blob());
                self.export = Some(export);
                "done".into()
            }
            // set-own OFFSET BYTE: writes a byte of the process's own memory
            "set-own" => {
                self.own().set(number(1), number(2) as u8);
                "done".into()
            }
            // peek-own OFFSET: reads a byte of the process's own memory
            "peek-own" => self.own().get(number(1)).to_string(),
            "unmap-own" => {
                self.own().unmap();
                self.own = None;
                "done".into()
            }
            // exec: executes another program, with the same process id
            "exec" => panic!("{}", Command::new("sleep").arg("600").exec()),
            // export BEGIN END RIGHTS FILE: exports a range of the allocated memory, and writes FILE
            "export" => {
                let rights = Access::from_bits(number(3) as u32).unwrap();
                let export = Export::new(self.memory.as_ref().unwrap(), number(1)..number(2), rights)?;
                publish(Path::new(words[4]), export.blob());
                self.export = Some(export);
                "done".into()
            }
            // peek OFFSET: reads a byte of the allocated memory
            "peek" => {
                let mut byte = [0];
                self.memory.as_ref().unwrap().read_at(number(1), &mut byte)?;
                byte[0].to_string()
            }
            "revoke" => {
                self.export.as_ref().unwrap().revoke(LONG)?;
                "done".into()
            }
            // import FILE: imports the export whose descriptor is in FILE
            "import" => {
                self.import = Some(Import::open(&fs::read(words[1]).unwrap())?);
                "done".into()
            }
            // write OFFSET BYTE: writes a byte of the import
            "write" => {
                self.import().write_at(number(1) as u64, &[number(2) as u8])?;
                "done".into()
            }
            // hold: forgets a lease, which ends only with the import or the process
            "hold" => {
                std::mem::forget(self.import().lease()?);
                "holding".into()
            }
            // copy BYTE: fills the import with BYTE repeatedly, until a write fails
            "copy" => {
                let bytes = vec![number(1) as u8; self.import().len()];
                self.import().write_at(0, &bytes)?;
                say("copying");
                loop {
                    self.import().write_at(0, &bytes)?;
                }
            }
            "drop-import" => {
                self.import = None;
                "done".into()
            }
            "pid" => id().to_string(),
            other => panic!("{other}?"),
        })
    }

    fn own(&self) -> Own {
        self.own.unwrap()
    }

    fn import(&self) -> &Import {
        self.import.as_ref().unwrap()
    }
}

/// Writes a file that gets its name only after it is complete. All users may read it.
pub(crate) fn publish(path: &Path, bytes: &[u8]) {
    let part = path.with_extension("part");
    fs::write(&part, bytes).unwrap();
    fs::set_permissions(&part, fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(part, path).unwrap();
}
