//! Tests of output files: a file is complete or absent, links are followed, and devices and pipes are never
//! replaced.
#![expect(unsafe_code, reason = "a thread takes the rights of another user")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use dma_core::{Access, ExportDescriptor};
use dma_process::OutputFile;
use rustix::fs::{CWD, FileType, Mode, makedev, mkfifoat, mknodat};

type Create = fn(&Path) -> std::io::Result<OutputFile>;
const ALL: [Create; 3] = [OutputFile::create, OutputFile::create_private, OutputFile::create_partial];

fn write(create: Create, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = create(path)?;
    file.write_all(bytes)?;
    file.finish()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_appears_when_it_is_complete() {
    for create in ALL {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = create(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read(file.temporary_path().unwrap()).unwrap(), b"new");
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        // Discarding a file leaves the earlier file unchanged.
        let mut file = create(&path).unwrap();
        file.write_all(b"other").unwrap();
        file.discard();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["a"]);
    }
}

#[test]
fn links_are_followed_and_stay() {
    for create in ALL {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/real"), b"old").unwrap();
        symlink("dir/real", at("link")).unwrap();
        symlink("link", at("links")).unwrap();
        symlink("dir/later", at("ahead")).unwrap();
        write(create, &at("links"), b"new").unwrap();
        write(create, &at("ahead"), b"new").unwrap();
        for name in ["link", "links", "ahead"] {
            assert!(at(name).is_symlink(), "{name}");
        }
        for name in ["dir/real", "dir/later"] {
            assert_eq!(fs::read(at(name)).unwrap(), b"new", "{name}");
        }
        assert_eq!(names(folder.path()), ["ahead", "dir", "link", "links"]);
        assert_eq!(names(&at("dir")), ["later", "real"]);
    }
}

#[test]
fn modes_are_kept_or_private() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
    fs::write(&path, b"old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    for create in [OutputFile::create, OutputFile::create_partial] {
        write(create, &path, b"new").unwrap();
        assert_eq!(mode(), 0o640);
    }
    write(OutputFile::create_private, &path, b"new").unwrap();
    assert_eq!(mode(), 0o600);
}

#[test]
fn a_pipe_is_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
    for create in ALL {
        assert_eq!(create(&pipe).unwrap_err().kind(), ErrorKind::NotConnected, "no process reads the pipe");
        assert_eq!(OutputFile::check(&pipe).unwrap(), None);
        // Open the pipe for reading and writing, so that it has a reader immediately.
        let mut reader = fs::File::options().read(true).write(true).open(&pipe).unwrap();
        write(create, &pipe, b"new").unwrap();
        let mut got = [0; 3];
        reader.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"new");
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    }
    // An export descriptor can be saved through a link to a pipe.
    let link = folder.path().join("link");
    symlink("pipe", &link).unwrap();
    let mut reader = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let descriptor = ExportDescriptor::new("cpu", Access::READ, 4096, b"blob").unwrap();
    descriptor.save(&link).unwrap();
    let mut got = vec![0; descriptor.to_bytes().len()];
    reader.read_exact(&mut got).unwrap();
    assert_eq!(got, descriptor.to_bytes());
    assert_eq!(names(folder.path()), ["link", "pipe"]);
}

#[test]
fn a_device_is_written_to() {
    let folder = tempfile::tempdir().unwrap();
    // The test makes its own device node, because a bug would replace the system's node.
    let null = folder.path().join("null");
    if mknodat(CWD, &null, FileType::CharacterDevice, Mode::from_raw_mode(0o600), makedev(1, 3)).is_err()
        || fs::File::options().write(true).open(&null).is_err()
    {
        println!("skipped: only root can make device nodes, and only on file systems that support them");
        return;
    }
    for create in ALL {
        write(create, &null, b"new").unwrap();
        assert!(fs::symlink_metadata(&null).unwrap().file_type().is_char_device());
    }
    ExportDescriptor::new("cpu", Access::READ, 4096, b"blob").unwrap().save(&null).unwrap();
    assert!(fs::symlink_metadata(&null).unwrap().file_type().is_char_device());
    let disk = folder.path().join("disk");
    mknodat(CWD, &disk, FileType::BlockDevice, Mode::from_raw_mode(0o600), makedev(7, 200)).unwrap();
    assert_eq!(OutputFile::create(&disk).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(names(folder.path()), ["disk", "null"]);
}

#[test]
fn unwritable_outputs_are_errors_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("kept"), b"mine").unwrap();
    fs::set_permissions(at("kept"), fs::Permissions::from_mode(0o444)).unwrap();
    symlink("kept", at("link")).unwrap();
    symlink("circle", at("circle")).unwrap();
    let _listener = UnixListener::bind(at("socket")).unwrap();
    let before = names(folder.path());
    for create in ALL {
        for (name, kind) in [
            ("dir", Some(ErrorKind::IsADirectory)),
            ("dir/", Some(ErrorKind::IsADirectory)),
            ("new/", Some(ErrorKind::NotFound)),
            ("none/a", Some(ErrorKind::NotFound)),
            ("kept", Some(ErrorKind::PermissionDenied)),
            ("link", Some(ErrorKind::PermissionDenied)),
            ("kept/a", Some(ErrorKind::NotADirectory)),
            ("socket", Some(ErrorKind::InvalidInput)),
            ("circle", None),
            (&"n".repeat(256), Some(ErrorKind::InvalidFilename)),
        ] {
            for error in [create(&at(name)).unwrap_err(), OutputFile::check(&at(name)).unwrap_err()] {
                assert!(kind.is_none_or(|kind| kind == error.kind()), "{name}: {error:?}");
                let explained = dma_core::Error::of_output_file(&at(name), error);
                assert!(explained.to_string().contains(name) && !explained.hint().is_empty(), "{explained}");
            }
        }
    }
    assert_eq!(fs::read(at("kept")).unwrap(), b"mine");
    assert_eq!(names(folder.path()), before);
    let error = ExportDescriptor::new("cpu", Access::READ, 1, b"").unwrap().save(at("none/a")).unwrap_err();
    assert!(error.to_string().contains("none/a") && !error.hint().is_empty(), "{error}");
}

#[test]
fn partial_files_stay_and_replace_none() {
    let folder = tempfile::tempdir().unwrap();
    // With the suffix, the second name exceeds the file system's limit.
    for name in ["a.trace".to_owned(), "n".repeat(255)] {
        let path = folder.path().join(&name);
        for run in [b"one", b"two"] {
            let mut file = OutputFile::create_partial(&path).unwrap();
            file.write_all(run).unwrap();
        }
        let start = &name[..name.len().min(247)];
        assert_eq!(fs::read(folder.path().join(format!("{start}.partial"))).unwrap(), b"one");
        let start = &name[..name.len().min(246)];
        assert_eq!(fs::read(folder.path().join(format!("{start}.partial2"))).unwrap(), b"two");
        write(OutputFile::create_partial, &path, b"three").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
    }
    assert_eq!(names(folder.path()).len(), 6);
}

#[test]
fn open_files_of_the_process_are_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut open = fs::File::options().write(true).create_new(true).open(&path).unwrap();
    open.write_all(b"old ").unwrap();
    write(OutputFile::create, Path::new(&format!("/dev/fd/{}", open.as_raw_fd())), b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old new");
    assert_eq!(names(folder.path()), ["a"]);
}

#[test]
fn writers_of_one_file_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::thread::scope(|scope| {
        for byte in [b'x', b'y', b'z'] {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..300 {
                    write(OutputFile::create_partial, path, &[byte; 100]).unwrap();
                }
            });
        }
    });
    let last = fs::read(&path).unwrap();
    assert!(last.len() == 100 && last.iter().all(|byte| *byte == last[0]));
    assert_eq!(names(folder.path()), ["a"]);
}

/// Ids that no user of the machine needs to have.
const USER: u32 = 41_234;
const OWNER: u32 = 41_235;
const TEAM: u32 = 41_236;

/// Calls `act` on a thread with the rights of `USER` in this group. Returns `None` without the right to do
/// so.
fn as_user<T: Send + 'static>(group: u32, act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let act = move || {
        // The system calls change only this thread, whereas the C library's functions change all threads.
        // SAFETY: the arguments are numbers.
        let left = unsafe { libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()) };
        // SAFETY: the arguments are numbers.
        let group = unsafe { libc::syscall(libc::SYS_setresgid, group, group, group) };
        // SAFETY: the arguments are numbers.
        let user = unsafe { libc::syscall(libc::SYS_setresuid, USER, USER, USER) };
        (left == 0 && group == 0 && user == 0).then(act)
    };
    std::thread::spawn(act).join().unwrap()
}

/// An access control list that gives `USER` and the mask all rights to read and write, and `group` to the
/// owning group.
fn list(group: u16) -> Vec<u8> {
    const ANY: u32 = u32::MAX;
    let entries =
        [(0x01_u16, 6_u16, ANY), (0x02, 6, USER), (0x04, group, ANY), (0x10, 6, ANY), (0x20, 0, ANY)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const ACL: &str = "system.posix_acl_access";

/// Returns the owner, the group, the mode and the length of the access control list.
fn access(path: &Path) -> (u32, u32, u32, usize) {
    let found = fs::metadata(path).unwrap();
    let list = rustix::fs::lgetxattr(path, ACL, &mut [0; 1000][..]).unwrap_or(0);
    (found.uid(), found.gid(), found.mode() & 0o7777, list)
}

#[test]
fn a_replaced_file_keeps_its_owner_and_group_and_admits_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("a");
    let make = |mode, group: Option<u16>| {
        let _ = fs::remove_file(&path);
        fs::write(&path, b"old").unwrap();
        std::os::unix::fs::chown(&path, Some(OWNER), Some(TEAM)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let set = |group| rustix::fs::setxattr(&path, ACL, &list(group), rustix::fs::XattrFlags::empty());
        group.map(set).is_none_or(|set| set.is_ok())
    };
    if !rustix::process::geteuid().is_root() || as_user(USER, || ()).is_none() {
        println!("skipped: this user may not give files away");
        return;
    }
    for create in [OutputFile::create, OutputFile::create_partial] {
        let replaced = |group| {
            let theirs = path.clone();
            as_user(group, move || write(create, &theirs, b"new")).unwrap().unwrap();
            access(&path)
        };
        // The superuser keeps all.
        make(0o6640, None);
        write(create, &path, b"new").unwrap();
        assert_eq!(access(&path), (OWNER, TEAM, 0o6640, 0));
        // A member of the group keeps the group, but may not keep the owner and its rights to set-user-id.
        make(0o4660, None);
        assert_eq!(replaced(TEAM), (USER, TEAM, 0o660, 0));
        // Another user may keep neither, and gives no group more rights than before.
        for (before, after) in [(0o666, 0o666), (0o2646, 0o644), (0o606, 0o600), (0o667, 0o666)] {
            make(before, None);
            assert_eq!(replaced(USER), (USER, USER, after, 0), "{before:o}");
        }
        // An access control list admits this user, but not the group.
        if !make(0o660, Some(0)) {
            println!("the file system has no access control lists");
            continue;
        }
        write(create, &path, b"new").unwrap();
        assert_eq!(access(&path), (OWNER, TEAM, 0o660, list(0).len()));
        assert_eq!(replaced(USER), (USER, USER, 0o600, 0));
        make(0o660, Some(6));
        assert_eq!(replaced(TEAM), (USER, TEAM, 0o660, list(6).len()));
        // A list that the directory passes on to new files does not admit anyone to a replacement.
        make(0o660, None);
        let inherited = "system.posix_acl_default";
        rustix::fs::setxattr(folder.path(), inherited, &list(6), rustix::fs::XattrFlags::empty()).unwrap();
        write(create, &path, b"new").unwrap();
        assert_eq!(access(&path), (OWNER, TEAM, 0o660, 0));
        rustix::fs::removexattr(folder.path(), inherited).unwrap();
    }
}
