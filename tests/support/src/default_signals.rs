//! Programs under test start with the default actions of signals.
#![expect(unsafe_code, reason = "sets the actions of signals in the child")]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the program start with the default actions of SIGINT and SIGHUP. Without this, a program ignores
/// them if the tests do, as under `nohup` or in a background job of a shell.
pub fn default_signals(command: &mut Command) -> &mut Command {
    let reset = || {
        for signal in [libc::SIGINT, libc::SIGHUP] {
            // SAFETY: the default action is always valid.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure calls only `signal`, which is permitted between fork and exec.
    unsafe { command.pre_exec(reset) }
}
