//! Loads libraries and their dependencies in one scope.
//!
//! SPDK's shared libraries are linked for immediate binding, and do not list all libraries that they call:
//! `libspdk_env_dpdk` calls DPDK, and `libspdk_util` calls libcrypto and the env library, which needs
//! `libspdk_util`. So no order exists in which they could be loaded one after another. In a program that is
//! linked with all of them, the loader resolves them together. This module gets the same effect by a library
//! that only lists them. It writes this library to memory, or to a temporary file if that is refused, and the
//! system's loader binds the listed libraries in one scope.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dma_process::{ForkLock, OutputFile, above_stdio};
use object::elf::{
    DT_HASH, DT_NEEDED, DT_NULL, DT_STRSZ, DT_STRTAB, DT_SYMENT, DT_SYMTAB, Dyn64, ELFCLASS64, ELFDATA2LSB,
    ELFDATA2MSB, ELFMAG, ELFOSABI_NONE, ET_DYN, EV_CURRENT, FileFlags, FileHeader64, Ident, PF_R, PF_W,
    PT_DYNAMIC, PT_GNU_STACK, PT_LOAD, ProgramHeader64, SHN_UNDEF, Sym64,
};
use object::{Endian, Endianness, I64, U16, U32, U64, pod};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

use crate::elf::{Elf, MACHINE, Unfit};
use crate::file_name::newest;
use crate::loaded::is_loaded;
use crate::{ImplicitSymbols, LoadError, Loaded};

/// The largest page size of x86-64 and AArch64.
const PAGE: u64 = 0x1_0000;

/// The sets of libraries that this process has loaded and never unloads. Each set is loaded only once,
/// because its list in memory keeps a file descriptor open.
static LOADED: ForkLock<BTreeSet<Vec<PathBuf>>> = ForkLock::new(BTreeSet::new);

/// Directories to search for libraries.
pub(crate) struct Places<'a> {
    /// The vendor's own directories. Libraries in these directories are preferred to the system's.
    pub(crate) own: &'a [PathBuf],
    /// The system's directories.
    pub(crate) system: &'a [PathBuf],
}

/// Loads `roots` and all their dependencies, unless this process has already loaded them. All libraries that
/// the program loads later can use the symbols of these libraries. Blocks while another thread loads
/// libraries. Returns a [`LoadError`] for the first file that cannot be used.
pub(crate) fn load(
    roots: &[PathBuf],
    places: &Places<'_>,
    implicit_symbols: &[ImplicitSymbols],
) -> Result<(), LoadError> {
    let set: Vec<_> = roots.iter().map(|root| absolute(root)).collect();
    let mut loaded = LOADED.lock();
    if loaded.contains(&set) {
        return Ok(());
    }
    let mut gathered = Gathered::default();
    for root in roots {
        gathered.add(root.clone(), true)?;
    }
    gathered.walk(places)?;
    for symbols in implicit_symbols {
        gathered.add_implicit(symbols, places)?;
    }
    let listed: Vec<&Path> = gathered.files.iter().filter(|f| f.ours).map(|f| f.path.as_path()).collect();
    load_together(&listed)?;
    loaded.insert(set);
    Ok(())
}

/// Loads these files in one scope.
fn load_together(files: &[&Path]) -> Result<(), LoadError> {
    let open = |path: &Path| match Loaded::open(path) {
        Ok(_) => Ok(()),
        Err(reason) => {
            // The message of the system's loader is "FILE: REASON".
            let named = reason.split(':').next().map(PathBuf::from).filter(|path| path.is_absolute());
            let path = named.or_else(|| Some(files.first()?.to_path_buf())).unwrap_or_default();
            Err(LoadError::Unloadable { path, reason })
        }
    };
    if let [file] = files {
        return open(file);
    }
    let list = listing(files);
    let in_memory = in_memory(&list).and_then(|file| {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // This fails if /proc is not mounted.
        path.metadata().map(|_| (file, path))
    });
    let refused = match in_memory {
        Ok((file, path)) => {
            open(&path)?;
            // Keep the descriptor open. If it were closed, another file could get its number, and the loader,
            // which knows libraries by their paths, would mistake that file for this one.
            let _ = file.into_raw_fd();
            return Ok(());
        }
        Err(refused) => refused,
    };
    // Keep the file until the loader has mapped the library.
    let on_disk = on_disk(&list).map_err(|also| {
        let dir = std::env::temp_dir();
        let reason = format!(
            "a file in memory (memfd_create, /proc/self/fd): {refused}; a file in {}: {also}",
            dir.display()
        );
        LoadError::NoList { reason }
    })?;
    open(on_disk.temporary_path().expect("a regular file is not written directly"))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A library that will be loaded.
#[derive(Debug)]
struct Member {
    path: PathBuf,
    elf: Elf,
    /// True if the library is loaded from this path, false if the system's loader finds it by its name.
    ours: bool,
}

/// The libraries that will be loaded.
#[derive(Debug, Default)]
struct Gathered {
    files: Vec<Member>,
    /// Index of the first file whose dependencies have not been added.
    next: usize,
    names: BTreeSet<String>,
}

impl Gathered {
    /// Adds a library. Fails if its file cannot be used.
    fn add(&mut self, path: PathBuf, ours: bool) -> Result<(), LoadError> {
        let elf = Elf::read(&path).map_err(|unfit| unfit.of(&path))?;
        self.names.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        // Store an absolute path: the loader treats a name with a slash as a path, relative to the working
        // directory.
        self.files.push(Member { path: absolute(&path), elf, ours });
        Ok(())
    }

    /// Adds all dependencies that the libraries list.
    fn walk(&mut self, places: &Places<'_>) -> Result<(), LoadError> {
        while let Some(Member { elf, .. }) = self.files.get(self.next) {
            self.next += 1;
            let Elf { needed, search, .. } = elf.clone();
            for name in needed {
                if name.contains('/') || !self.names.insert(name.clone()) || is_loaded(&name) {
                    continue;
                }
                let own = places.own.iter().map(|dir| dir.join(&name)).find(|path| path.is_file());
                if let Some(path) = own {
                    self.add(path, true)?;
                } else if let Some(path) = in_system(&name, &search, places.system) {
                    self.add(path, false)?;
                }
                // Otherwise the system's loader finds the library, or reports that it is missing.
            }
        }
        Ok(())
    }

    /// Adds libraries that define symbols which are used without a listed dependency.
    fn add_implicit(&mut self, implicit: &ImplicitSymbols, places: &Places<'_>) -> Result<(), LoadError> {
        let Some((first, _)) = implicit.libraries.split_first() else { return Ok(()) };
        if self.names.iter().any(|name| name.starts_with(first)) {
            return Ok(());
        }
        let program = Loaded::program();
        let program_has = |name: &str| CString::new(name).is_ok_and(|name| program.symbol(&name).is_some());
        let is_implicit = |name: &&String| {
            implicit.prefixes.iter().any(|prefix| name.starts_with(prefix)) && !program_has(name)
        };
        let call = |member: &Member| {
            Some((member.path.clone(), member.elf.undefined.iter().find(is_implicit)?.clone()))
        };
        let Some((path, call)) = self.files.iter().find_map(call) else { return Ok(()) };
        let dirs: Vec<PathBuf> = places.own.iter().chain(places.system).cloned().collect();
        let Some(dir) = dirs.iter().find(|dir| newest(first, std::slice::from_ref(dir)).is_some()) else {
            let looked: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
            let product = implicit.product;
            let reason = format!(
                "it calls {call} of {product} and lists no library that defines it, and no {first} was found in {}",
                looked.join(", ")
            );
            return Err(LoadError::Unloadable { path, reason });
        };
        // All files must belong to one installation, so search only `dir`. Some releases lack some of the
        // libraries, so skip missing libraries.
        for library in implicit.libraries {
            if let Some(path) = newest(library, std::slice::from_ref(dir)) {
                self.add(path, true)?;
            }
        }
        // Search for the dependencies of the added libraries first in the same installation.
        let own: Vec<_> = std::iter::once(dir).chain(places.own).cloned().collect();
        self.walk(&Places { own: &own, system: places.system })
    }
}

/// Returns the file that the system's loader will probably find by this name. Like the loader, skips files
/// for other processors.
fn in_system(name: &str, search: &[PathBuf], system: &[PathBuf]) -> Option<PathBuf> {
    let candidates = search.iter().chain(system).map(|dir| dir.join(name)).filter(|path| path.is_file());
    candidates.into_iter().find(|path| !matches!(Elf::read(path), Err(Unfit::OtherProcessor(_))))
}

/// Creates a file in memory, without a path. The file can never change, because a change would change the
/// loaded library, and the mapping of a file that shrinks ends the program.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create("dma-vendor", flags | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know the flag `NOEXEC_SEAL`.
        Err(Errno::INVAL) => memfd_create("dma-vendor", flags),
        other => other,
    }?;
    let mut file = File::from(above_stdio(file));
    dma_process::check_file_size(&file, bytes.len() as u64)?;
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(file)
}

/// Creates a temporary file that only this user can read. Dropping it deletes the file.
fn on_disk(bytes: &[u8]) -> io::Result<OutputFile> {
    // The name cannot be guessed, so no other user can have created a link of this name.
    let name = format!("dma-vendor-{:016x}.so", RandomState::new().hash_one(0));
    let mut file = OutputFile::create_private(&std::env::temp_dir().join(name))?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Makes a library that depends on these files and has no other contents.
fn listing(files: &[&Path]) -> Vec<u8> {
    const SEGMENTS: usize = 3;
    let e = Endianness::default();
    let mut strings = vec![0];
    let mut entries = Vec::new();
    for file in files {
        entries.push((DT_NEEDED, strings.len()));
        strings.extend_from_slice(file.as_os_str().as_bytes());
        strings.push(0);
    }
    // The hash table has one bucket and one symbol, both empty.
    let hash = [1_u32, 1, 0, 0];
    // The parts follow each other in the file. Each part's address is its offset in the file.
    let segments_at = size_of::<FileHeader64<Endianness>>();
    let dynamic_at = (segments_at + SEGMENTS * size_of::<ProgramHeader64<Endianness>>()).next_multiple_of(16);
    let dynamic_len = (entries.len() + 6) * size_of::<Dyn64<Endianness>>();
    let symbols_at = dynamic_at + dynamic_len;
    let hash_at = symbols_at + size_of::<Sym64<Endianness>>();
    let strings_at = hash_at + size_of_val(&hash);
    entries.extend([
        (DT_HASH, hash_at),
        (DT_STRTAB, strings_at),
        (DT_SYMTAB, symbols_at),
        (DT_STRSZ, strings.len()),
        (DT_SYMENT, size_of::<Sym64<Endianness>>()),
        (DT_NULL, 0),
    ]);

    let mut library = Vec::new();
    library.extend_from_slice(pod::bytes_of(&FileHeader64 {
        e_ident: Ident {
            magic: ELFMAG,
            class: ELFCLASS64,
            data: if e.is_big_endian() { ELFDATA2MSB } else { ELFDATA2LSB },
            version: EV_CURRENT,
            os_abi: ELFOSABI_NONE,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: U16::new(e, ET_DYN),
        e_machine: U16::new(e, MACHINE),
        e_version: U32::new(e, EV_CURRENT.0.into()),
        e_entry: U64::new(e, 0),
        e_phoff: U64::new(e, segments_at as u64),
        e_shoff: U64::new(e, 0),
        e_flags: U32::new(e, FileFlags(0)),
        e_ehsize: U16::new(e, segments_at as u16),
        e_phentsize: U16::new(e, size_of::<ProgramHeader64<Endianness>>() as u16),
        e_phnum: U16::new(e, SEGMENTS as u16),
        e_shentsize: U16::new(e, 0),
        e_shnum: U16::new(e, 0),
        e_shstrndx: U16::new(e, SHN_UNDEF),
    }));
    let segments = [
        (PT_LOAD, 0, strings_at + strings.len(), PAGE),
        (PT_DYNAMIC, dynamic_at, dynamic_len, 16),
        (PT_GNU_STACK, 0, 0, 16),
    ];
    for (kind, at, len, align) in segments {
        let (at, len) = (U64::new(e, at as u64), U64::new(e, len as u64));
        library.extend_from_slice(pod::bytes_of(&ProgramHeader64 {
            p_type: U32::new(e, kind),
            // The segment is writable, because the loader writes addresses into the dynamic table. Neither a
            // segment nor the stack is executable.
            p_flags: U32::new(e, PF_R | PF_W),
            p_offset: at,
            p_vaddr: at,
            p_paddr: at,
            p_filesz: len,
            p_memsz: len,
            p_align: U64::new(e, align),
        }));
    }
    library.resize(dynamic_at, 0);
    for (tag, value) in entries {
        let (d_tag, d_val) = (I64::new(e, tag), U64::new(e, value as u64));
        library.extend_from_slice(pod::bytes_of(&Dyn64 { d_tag, d_val }));
    }
    library.resize(hash_at, 0);
    hash.iter().for_each(|word| library.extend_from_slice(&word.to_ne_bytes()));
    library.extend_from_slice(&strings);
    library
}

#[cfg(test)]
mod tests {
    use rustix::fs::ftruncate;

    use super::*;

    /// The loader maps the file as long as the program runs, and all code of the program can reach its
    /// descriptor.
    #[test]
    fn a_list_in_memory_can_be_loaded_and_never_changes() {
        let file = in_memory(&listing(&[Path::new("libc.so.6")])).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Loaded::open(Path::new(&path)).unwrap();
        assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
        assert_eq!(rustix::io::pwrite(&file, b"x", 0), Err(Errno::PERM));
        let again = File::options().write(true).open(&path).and_then(|mut again| again.write_all(b"x"));
        assert_eq!(again.unwrap_err().raw_os_error(), Some(Errno::PERM.raw_os_error()));
        assert_eq!(fcntl_add_seals(&file, SealFlags::empty()), Err(Errno::PERM));
        let _ = file.into_raw_fd();
    }
}
