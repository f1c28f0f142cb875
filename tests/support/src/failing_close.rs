//! A full network file system, which reports lost bytes only when the file is closed.

use std::path::Path;
use std::process::Command;

use crate::built::own_folder;

/// A library whose `close` fails for files that were open for writing and have bytes.
const SOURCE: &str = r"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int close(int fd)
{
    struct stat status;
    int loses = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0
        && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    int result = (int)syscall(SYS_close, fd);

    if (result == 0 && loses) {
        errno = EDQUOT;
        return -1;
    }
    return result;
}
";

/// Lets `command` run on such a file system. `name` is this test program's folder in `target/tmp`.
///
/// # Panics
///
/// If the library cannot be built.
pub fn failing_close(command: &mut Command, name: &str) {
    let folder = own_folder(name);
    let (source, library) = (folder.join("failing_close.c"), Path::new("libfailing_close.so"));
    std::fs::write(&source, SOURCE).expect("written");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(folder.join(library)).arg(&source);
    assert!(compiler.status().expect("a C compiler").success());
    // LD_PRELOAD cannot have a path with spaces.
    command.env("LD_PRELOAD", library).env("LD_LIBRARY_PATH", folder);
}
