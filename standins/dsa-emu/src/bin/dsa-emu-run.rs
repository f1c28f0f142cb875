//! Starts a program on emulated DSA work queues: `dsa-emu-run PROGRAM [ARGUMENT...]`.

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod run {
    #![expect(unsafe_code, reason = "waits for signals")]

    use std::ffi::OsString;
    use std::mem::MaybeUninit;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, ExitStatus};

    pub(crate) const USAGE: &str = "usage: dsa-emu-run PROGRAM [ARGUMENT...]
Starts PROGRAM on made-up work queues of Intel DSA.
  DSA_EMU_CONFIG  a TOML file with the work queues
  DSA_EMU         such text itself
  DSA_EMU_REPORT  if set, each process says when it ends how many submissions its work queues had";

    /// Signals that would end this program, and SIGCHLD, for which it waits.
    const SIGNALS: [i32; 4] = [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

    /// Runs the program, and returns its exit status as a shell does.
    pub(crate) fn run(program: &OsString, arguments: &[OsString]) -> Result<u8, String> {
        let library = library()?;
        let root = tempfile::Builder::new().prefix("dsa-emu-").tempdir().map_err(|e| e.to_string())?;
        let (dev, sysfs) = dsa_emu::lay_out(root.path()).map_err(|e| e.to_string())?;
        let path = root.path().canonicalize().map_err(|e| e.to_string())?;
        let mut preload = preloadable(library, &path)?.into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let signals = block();
        let mut command = Command::new(program);
        let mask = move || {
            // SAFETY: the set is initialized.
            unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut()) };
            Ok(())
        };
        // SAFETY: `mask` makes one system call, which is allowed between `fork` and `exec`.
        unsafe { command.pre_exec(mask) };
        let child = command
            .args(arguments)
            .env("LD_PRELOAD", preload)
            .env("DSA_EMU_ROOT", path)
            .env("DSA_DEV_PATH", dev)
            .env("DSA_SYSFS_PATH", sysfs)
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        let status = wait(child, &signals).map_err(|e| e.to_string())?;
        Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8)
    }

    /// Returns the path of the preloaded library, which is next to the folder of this program.
    fn library() -> Result<PathBuf, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let prefix = program.parent().and_then(|bin| bin.parent()).unwrap_or(&program);
        let library = prefix.join("lib/libdsa_emu.so");
        let there = library.is_file();
        there.then_some(library.clone()).ok_or_else(|| {
            format!("{} does not exist: build it with standins/dsa-emu/install", library.display())
        })
    }

    /// Returns a path of the library that LD_PRELOAD can name: its own path, or a link in `root`. LD_PRELOAD
    /// takes spaces and colons for separators (ld.so(8)).
    fn preloadable(library: PathBuf, root: &Path) -> Result<PathBuf, String> {
        let separates = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
        if !library.as_os_str().as_bytes().iter().any(separates) {
            return Ok(library);
        }
        let link = root.join("libdsa_emu.so");
        if link.as_os_str().as_bytes().iter().any(separates) {
            return Err(format!(
                "LD_PRELOAD cannot name {}: set TMPDIR to a directory without spaces and colons in its path",
                library.display()
            ));
        }
        std::os::unix::fs::symlink(&library, &link).map_err(|e| format!("{}: {e}", link.display()))?;
        Ok(link)
    }

    /// Blocks the signals, so that none ends this program before its files are removed.
    fn block() -> libc::sigset_t {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the local variable has room for a set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        for signal in SIGNALS {
            // SAFETY: `sigemptyset` initialized the set.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: the set is initialized.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
        // SAFETY: `sigemptyset` initialized the set.
        unsafe { set.assume_init() }
    }

    /// Waits for the program's end. In the meantime, forwards SIGTERM and SIGHUP to the program.
    fn wait(mut child: Child, signals: &libc::sigset_t) -> std::io::Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let mut signal = 0;
            // SAFETY: the set is initialized, and `signal` is a local variable that the call may write.
            unsafe { libc::sigwait(signals, &raw mut signal) };
            // A terminal sends SIGINT to the program itself, so it is not forwarded.
            if [libc::SIGTERM, libc::SIGHUP].contains(&signal) {
                // SAFETY: the child was not waited for yet, so its id is still its own.
                unsafe { libc::kill(child.id().cast_signed(), signal) };
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
fn main() -> std::process::ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.split_first() {
        None => {
            eprintln!("{}", run::USAGE);
            std::process::ExitCode::from(2)
        }
        Some((option, _)) if option == "--help" || option == "-h" => {
            println!("{}", run::USAGE);
            std::process::ExitCode::SUCCESS
        }
        Some((program, arguments)) => match run::run(program, arguments) {
            Ok(status) => status.into(),
            Err(problem) => {
                eprintln!("dsa-emu-run: {problem}");
                std::process::ExitCode::from(127)
            }
        },
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
fn main() -> std::process::ExitCode {
    eprintln!("dsa-emu-run: the stand-in is for Linux on x86-64 with the GNU C library");
    std::process::ExitCode::FAILURE
}
