//! Loads libraries, and all that they need, in one scope.
//!
//! SPDK's shared libraries are linked for immediate binding and do not name all that they call:
//! `libspdk_env_dpdk` calls DPDK, `libspdk_util` calls libcrypto and the env library, which needs
//! `libspdk_util`. So no order of loading one after another works. A program that is linked with all of them
//! resolves them together. Here a library that holds nothing but a list of them does: it is written to
//! memory, and the system's loader binds all that it lists in one scope.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{
    DT_HASH, DT_NEEDED, DT_NULL, DT_STRSZ, DT_STRTAB, DT_SYMENT, DT_SYMTAB, Dyn64, ELFCLASS64, ELFDATA2LSB,
    ELFDATA2MSB, ELFMAG, ELFOSABI_NONE, ET_DYN, EV_CURRENT, FileHeader64, Ident, PF_R, PF_W, PT_DYNAMIC,
    PT_GNU_STACK, PT_LOAD, ProgramHeader64, Sym64,
};
use object::{Endian, Endianness, U16, U32, U64, pod};

use crate::elf::{Elf, MACHINE, Unfit};
use crate::loaded::is_loaded;
use crate::vendor::newest;
use crate::{LoadError, Loaded};

/// The largest alignment of pages on x86-64 and AArch64.
const PAGE: u64 = 0x1_0000;

/// Calls that a vendor's libraries make without naming the libraries that have them.
#[derive(Debug)]
pub struct Undeclared {
    /// Prefixes of the calls' names.
    pub prefixes: &'static [&'static str],
    /// The product whose calls they are.
    pub of: &'static str,
    /// The libraries that have them. The first is there in every release of the product.
    pub libraries: &'static [&'static str],
}

/// Directories to search for libraries.
pub(crate) struct Places<'a> {
    /// The vendor's own directories: what is there is used before what the system has.
    pub(crate) beside: &'a [PathBuf],
    /// Those of the system.
    pub(crate) system: &'a [PathBuf],
}

/// Loads these libraries and all that they need. All later libraries of the program see their symbols.
/// Errors: [`LoadError`] for the first file that cannot be used.
pub(crate) fn load(
    roots: &[PathBuf],
    places: &Places<'_>,
    undeclared: &[Undeclared],
) -> Result<(), LoadError> {
    let mut gathered = Gathered::default();
    for root in roots {
        gathered.add(root.clone(), true)?;
    }
    gathered.walk(places)?;
    for undeclared in undeclared {
        gathered.add_undeclared(undeclared, places)?;
    }
    let failed = |reason: String| {
        // The system's loader says "FILE: REASON".
        let named = reason.split(':').next().map(PathBuf::from).filter(|path| path.is_absolute());
        LoadError::Unloadable {
            path: named.unwrap_or_else(|| roots.first().cloned().unwrap_or_default()),
            reason,
        }
    };
    let listed: Vec<&Path> = gathered.files.iter().filter(|f| f.ours).map(|f| f.path.as_path()).collect();
    let list = in_memory(&listing(&listed))
        .map_err(|e| failed(format!("no memory for a list of libraries: {e}")))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", list.as_raw_fd()));
    Loaded::open(&path).map_err(failed)?;
    // The loader knows a library by its path. Closed, the number would be another file's, which the loader
    // would take for this.
    let _ = list.into_raw_fd();
    Ok(())
}

/// A library that is going to be loaded.
#[derive(Debug)]
struct Member {
    path: PathBuf,
    elf: Elf,
    /// It is loaded from this path, and not from where the system finds its name.
    ours: bool,
}

/// The libraries that are going to be loaded.
#[derive(Debug, Default)]
struct Gathered {
    files: Vec<Member>,
    /// The first that has not been asked what it needs.
    next: usize,
    names: BTreeSet<String>,
}

impl Gathered {
    fn add(&mut self, path: PathBuf, ours: bool) -> Result<(), LoadError> {
        let elf = Elf::read(&path).map_err(|unfit| unfit.of(&path))?;
        self.names.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        // The loader takes a name with a slash for a path, from the working directory if it is relative.
        let path = std::path::absolute(&path).unwrap_or(path);
        self.files.push(Member { path, elf, ours });
        Ok(())
    }

    /// Adds all that the libraries name.
    fn walk(&mut self, places: &Places<'_>) -> Result<(), LoadError> {
        while let Some(Member { elf, .. }) = self.files.get(self.next) {
            self.next += 1;
            let Elf { needed, search, .. } = elf.clone();
            for name in needed {
                if name.contains('/') || !self.names.insert(name.clone()) || is_loaded(&name) {
                    continue;
                }
                let beside = places.beside.iter().map(|dir| dir.join(&name)).find(|path| path.is_file());
                if let Some(path) = beside {
                    self.add(path, true)?;
                } else if let Some(path) = in_system(&name, &search, places.system) {
                    self.add(path, false)?;
                }
                // Else the system's loader finds it, or says that it does not.
            }
        }
        Ok(())
    }

    /// Adds the libraries of calls that no dependency names a library for.
    fn add_undeclared(&mut self, undeclared: &Undeclared, places: &Places<'_>) -> Result<(), LoadError> {
        let Some((first, _)) = undeclared.libraries.split_first() else { return Ok(()) };
        if self.names.iter().any(|name| name.starts_with(first)) {
            return Ok(());
        }
        let program = Loaded::program();
        let program_has = |name: &str| CString::new(name).is_ok_and(|name| program.symbol(&name).is_some());
        let is_undeclared = |name: &&String| {
            undeclared.prefixes.iter().any(|prefix| name.starts_with(prefix)) && !program_has(name)
        };
        let call = |member: &Member| {
            Some((member.path.clone(), member.elf.undefined.iter().find(is_undeclared)?.clone()))
        };
        let Some((path, call)) = self.files.iter().find_map(call) else { return Ok(()) };
        let dirs: Vec<PathBuf> = places.beside.iter().chain(places.system).cloned().collect();
        let Some(dir) = dirs.iter().find(|dir| newest(first, std::slice::from_ref(dir)).is_some()) else {
            let looked: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
            let of = undeclared.of;
            let reason = format!(
                "it calls {call} of {of}, names no library that has it, and there is no {first} in {}",
                looked.join(", ")
            );
            return Err(LoadError::Unloadable { path, reason });
        };
        // All of one installation. Releases differ in which of the others they have.
        for library in undeclared.libraries {
            if let Some(path) = newest(library, std::slice::from_ref(dir)) {
                self.add(path, true)?;
            }
        }
        // Their dependencies are of the same installation.
        let beside: Vec<_> = std::iter::once(dir).chain(places.beside).cloned().collect();
        self.walk(&Places { beside: &beside, system: places.system })
    }
}

/// The file that the system's loader finds by this name, as far as that can be told: it passes over those for
/// other processors.
fn in_system(name: &str, search: &[PathBuf], system: &[PathBuf]) -> Option<PathBuf> {
    let candidates = search.iter().chain(system).map(|dir| dir.join(name)).filter(|path| path.is_file());
    candidates.into_iter().find(|path| !matches!(Elf::read(path), Err(Unfit::OtherProcessor(_))))
}

/// A file that is in memory only.
fn in_memory(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("dma-loader", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

/// A library that needs these files, and has nothing of its own.
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
    // One bucket and one symbol, both empty.
    let hash = [1_u32, 1, 0, 0];
    // The parts, one behind the other, with the addresses that they have in the file.
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
        e_version: U32::new(e, EV_CURRENT.into()),
        e_entry: U64::new(e, 0),
        e_phoff: U64::new(e, segments_at as u64),
        e_shoff: U64::new(e, 0),
        e_flags: U32::new(e, 0),
        e_ehsize: U16::new(e, segments_at as u16),
        e_phentsize: U16::new(e, size_of::<ProgramHeader64<Endianness>>() as u16),
        e_phnum: U16::new(e, SEGMENTS as u16),
        e_shentsize: U16::new(e, 0),
        e_shnum: U16::new(e, 0),
        e_shstrndx: U16::new(e, 0),
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
            // The loader writes addresses into the dynamic table. Nothing is executable, the stack included.
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
        let (d_tag, d_val) = (U64::new(e, tag.into()), U64::new(e, value as u64));
        library.extend_from_slice(pod::bytes_of(&Dyn64 { d_tag, d_val }));
    }
    library.resize(hash_at, 0);
    hash.iter().for_each(|word| library.extend_from_slice(&word.to_ne_bytes()));
    library.extend_from_slice(&strings);
    library
}
