//! [`Elf`]: checks a library's file before the system's loader maps it.

use std::fs::File;
use std::path::{Path, PathBuf};

use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, EM_AARCH64, EM_X86_64, FileHeader64, Machine, SHT_DYNSYM, STB_GLOBAL,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};

use crate::LoadError;

type Header = FileHeader64<Endianness>;

/// ELF's number of this program's processor.
pub(crate) const MACHINE: Machine = if cfg!(target_arch = "aarch64") { EM_AARCH64 } else { EM_X86_64 };
/// Length of a 64-bit ELF header in bytes.
const HEADER: usize = 64;

/// The dependencies of a library.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elf {
    /// Names of libraries (DT_NEEDED), in order.
    pub(crate) needed: Vec<String>,
    /// Directories in which the loader searches for these libraries (DT_RUNPATH, DT_RPATH).
    pub(crate) search: Vec<PathBuf>,
    /// Symbols that other libraries must define.
    pub(crate) undefined: Vec<String>,
}

/// The reason why this program cannot load a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The file is for another processor. The system's loader skips it and continues its search.
    OtherProcessor(String),
    /// The file is not a library, or it is truncated. When the system's loader maps a truncated file,
    /// SIGBUS kills the process.
    Bad(String),
}

impl Unfit {
    pub(crate) fn of(self, path: &Path) -> LoadError {
        let (Self::OtherProcessor(reason) | Self::Bad(reason)) = self;
        LoadError::NotALibrary { path: path.to_owned(), reason }
    }
}

impl Elf {
    /// Reads a library's dependencies. Fails if the file cannot be read, is not a library, is truncated,
    /// or is for another processor.
    pub(crate) fn read(path: &Path) -> Result<Self, Unfit> {
        let bad = |reason: String| Unfit::Bad(reason);
        // Check the file type first, because opening a pipe would block.
        let metadata = std::fs::metadata(path).map_err(|e| bad(e.to_string()))?;
        if !metadata.is_file() {
            return Err(bad("not a file".to_owned()));
        }
        let len = metadata.len();
        // Drivers can have 100 MB and more, so read only the headers and tables.
        let cache = ReadCache::new(File::open(path).map_err(|e| bad(e.to_string()))?);
        let data = &cache;
        let start = data.read_bytes_at(0, len.min(HEADER as u64));
        check_start(start.map_err(|()| bad("it cannot be read".to_owned()))?)?;
        let parsed = Header::parse(data).and_then(|header| {
            let endian = header.endian()?;
            Ok((header, endian, header.program_headers(endian, data)?))
        });
        let Ok((header, endian, segments)) = parsed else { return Err(cut_off()) };
        let sections_end = u64::from(header.e_shentsize.get(endian)) * u64::from(header.e_shnum.get(endian));
        let mut ends = segments.iter().map(|s| s.p_offset(endian).saturating_add(s.p_filesz(endian)));
        // A file usually ends with its section table, and a stripped file with its segments. So the file is
        // truncated if one of them ends after the file.
        if header.e_shoff.get(endian).saturating_add(sections_end) > len || ends.any(|end| end > len) {
            return Err(cut_off());
        }
        Self::of(header, endian, data, path).map_err(|e| bad(format!("its tables are invalid: {e}")))
    }

    /// Reads the dependencies from the tables of a file whose header was checked.
    fn of<'a>(
        header: &'a Header,
        endian: Endianness,
        data: impl ReadRef<'a>,
        path: &Path,
    ) -> Result<Self, String> {
        let broken = |error: object::read::Error| error.to_string();
        let sections = header.sections(endian, data).map_err(broken)?;
        let mut elf = Self::default();
        if let Some((entries, strings)) = sections.dynamic(endian, data).map_err(broken)? {
            let strings = sections.strings(endian, data, strings).map_err(broken)?;
            for entry in entries {
                let text = || {
                    let name = entry.val32(endian).and_then(|at| strings.get(at).ok());
                    name.map(|name| String::from_utf8_lossy(name).into_owned())
                        .ok_or_else(|| "a name is outside of its table".to_owned())
                };
                match entry.tag(endian) {
                    DT_NEEDED => elf.needed.push(text()?),
                    DT_RPATH | DT_RUNPATH => elf.search.extend(directories(&text()?, path)),
                    _ => {}
                }
            }
        }
        let symbols = sections.symbols(endian, data, SHT_DYNSYM).map_err(broken)?;
        let undefined = symbols.iter().filter(|s| s.is_undefined(endian) && s.st_bind() == STB_GLOBAL);
        for symbol in undefined {
            let name = symbol.name(endian, symbols.strings()).map_err(broken)?;
            elf.undefined.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(elf)
    }
}

fn cut_off() -> Unfit {
    Unfit::Bad("it is truncated".to_owned())
}

/// Checks the first bytes of a file: the magic number, the processor, and the length of the header.
fn check_start(start: &[u8]) -> Result<(), Unfit> {
    if !start.starts_with(b"\x7fELF") {
        return Err(Unfit::Bad("it does not begin with the ELF magic number".to_owned()));
    }
    let &[_, _, _, _, class, order, .., _] = start else { return Err(too_short()) };
    let Some(&[low, high]) = start.get(18..20) else { return Err(too_short()) };
    let machine =
        Machine(if order == 2 { u16::from_be_bytes([low, high]) } else { u16::from_le_bytes([low, high]) });
    if (class, machine) != (2, MACHINE) {
        let bits = if class == 1 { "32" } else { "64" };
        let reason = format!(
            "it is for {}, {bits} bits, but this program is for {}, 64 bits",
            processor(machine),
            processor(MACHINE)
        );
        return Err(Unfit::OtherProcessor(reason));
    }
    if start.len() < HEADER { Err(too_short()) } else { Ok(()) }
}

fn too_short() -> Unfit {
    Unfit::Bad("it is too short".to_owned())
}

fn processor(machine: Machine) -> String {
    match machine {
        EM_X86_64 => "x86-64".to_owned(),
        EM_AARCH64 => "AArch64".to_owned(),
        object::elf::EM_386 => "x86".to_owned(),
        object::elf::EM_ARM => "ARM".to_owned(),
        object::elf::EM_RISCV => "RISC-V".to_owned(),
        object::elf::EM_PPC64 => "PowerPC".to_owned(),
        Machine(other) => format!("processor {other} (ELF's number)"),
    }
}

/// Returns the directories of the search path of the library at `path`.
fn directories(search: &str, path: &Path) -> impl Iterator<Item = PathBuf> {
    let origin = path.parent().unwrap_or(Path::new("")).display().to_string();
    let search = search.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    let dirs: Vec<_> = search.split(':').filter(|dir| !dir.is_empty()).map(PathBuf::from).collect();
    dirs.into_iter()
}
