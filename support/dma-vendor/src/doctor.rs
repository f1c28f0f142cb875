//! [`LibraryReport`]: findings about the libraries of a backend.

use std::fs;
use std::path::{Path, PathBuf};

use dma_core::Finding;

use crate::{LoadError, Vendor};

/// Directories in which installations put libraries, including directories that the loader does not search.
const USUAL: [&str; 10] = [
    "/opt/mellanox/doca/lib/{arch}-linux-gnu",
    "/opt/mellanox/doca/lib64",
    "/opt/mellanox/doca/lib",
    "/opt/spdk/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/lib/{arch}-linux-gnu",
    "/usr/lib/{arch}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

fn usual() -> Vec<PathBuf> {
    USUAL.iter().map(|folder| PathBuf::from(folder.replace("{arch}", std::env::consts::ARCH))).collect()
}

/// The reason why loading failed.
#[derive(Debug)]
enum Failure {
    /// A library was not found.
    Missing { library: String, looked: Vec<PathBuf> },
    /// A file was found that cannot be used. The path is empty if the failure does not belong to one file.
    Unusable { path: PathBuf, why: String, fix: String },
}

impl Failure {
    fn of(error: &LoadError, vendor: &Vendor) -> Self {
        use LoadError as E;
        let unusable = |path: &Path| Self::Unusable {
            path: path.to_owned(),
            why: error.to_string(),
            fix: error.remedy(vendor),
        };
        match error {
            E::NotFound { library, looked } => {
                Self::Missing { library: library.clone(), looked: looked.clone() }
            }
            // The search does not look for archives, so report the library that belongs to this archive as
            // missing.
            E::StaticOnly { archive } => {
                let looked = archive.with_extension("so");
                let library = looked.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Self::Missing { library, looked: vec![looked] }
            }
            E::NotALibrary { path, .. }
            | E::Unloadable { path, .. }
            | E::Second { path, .. }
            | E::TooOld { path, .. }
            | E::MissingSymbols { path, .. } => unusable(path),
            E::NoDescriptors | E::NoList { .. } => unusable(Path::new("")),
        }
    }
}

/// The result of the search for a vendor's libraries. The methods make findings from this result.
#[derive(Debug)]
pub struct LibraryReport {
    /// The vendor, which describes the libraries and their directories.
    vendor: &'static Vendor,
    /// The value of the environment variable that names the libraries' folder.
    named: Option<PathBuf>,
    /// The hint to print when a library is not found.
    install: &'static str,
    /// The folders that the loader searches.
    folders: Vec<PathBuf>,
    /// The reason of the failure, if the search failed.
    failure: Option<Failure>,
    /// Other folders that may have the libraries.
    usual: Vec<PathBuf>,
    /// Returns the file of a library that this process has loaded.
    loaded: fn(&str) -> Option<PathBuf>,
}

impl LibraryReport {
    /// Reports on the libraries of `vendor`, whose loading failed with `failure`, if any. `install` is the
    /// hint to print when a library is not found.
    #[must_use]
    pub fn of(vendor: &'static Vendor, install: &'static str, failure: Option<&LoadError>) -> Self {
        Self {
            vendor,
            named: vendor.named(),
            install,
            folders: vendor.directories(),
            failure: failure.map(|error| Failure::of(error, vendor)),
            usual: usual(),
            loaded,
        }
    }

    /// Checks each required library.
    #[must_use]
    pub fn needed(&self) -> Vec<Finding> {
        self.vendor.required_libs.iter().map(|library| self.one(library)).collect()
    }

    /// Checks one required library.
    fn one(&self, library: &str) -> Finding {
        let what = format!("library {library}");
        let found = (self.loaded)(library).or_else(|| match &self.failure {
            Some(Failure::Missing { library: missing, .. }) if is(Path::new(missing), library) => None,
            Some(Failure::Unusable { path, .. }) if is(path, library) => Some(path.clone()),
            _ => self.vendor.find_in(library, &self.folders),
        });
        let ended_search = matches!(&self.failure, Some(Failure::Missing { library: missing, .. }) if is(Path::new(missing), library));
        let looked = match (&self.failure, found) {
            (_, Some(path)) if path.components().count() == 1 => {
                return Finding::ok(what, format!("{}, found by the system's loader", path.display()));
            }
            (_, Some(path)) => return Finding::ok(what, path.display().to_string()),
            (None, None) => return Finding::ok(what, "loaded"),
            (Some(Failure::Unusable { why, fix, .. }), None) => {
                return Finding::warning(what, format!("the search ended earlier: {why}"), fix.clone());
            }
            (Some(Failure::Missing { looked, .. }), None) if ended_search => folders_of(looked),
            (Some(Failure::Missing { .. }), None) => self.folders.clone(),
        };
        if let Some(named) = self.named.as_deref().filter(|named| !named.is_dir()) {
            let found = format!("{} is {}, which is not a folder", self.vendor.variable, named.display());
            return Finding::bad(what, found, self.install);
        }
        match self.misplaced(library, &looked) {
            Some(path) => Finding::bad(
                what,
                format!("{}, where the loader does not search", path.display()),
                self.set_to(&path).unwrap_or_else(|| self.install.to_owned()),
            ),
            // The loader's error names only the first folders of a long list.
            None if ended_search => Finding::bad(what, not_found_in(&looked), self.install),
            None => Finding::bad(what, "not found", self.install),
        }
    }

    /// Returns the remedy if all required libraries are in one folder that the loader does not search.
    #[must_use]
    pub fn setting(&self) -> Option<String> {
        let Some(Failure::Missing { library, looked }) = &self.failure else { return None };
        let library = self.vendor.required_libs.iter().find(|needed| is(Path::new(library), needed))?;
        self.set_to(&self.misplaced(library, &folders_of(looked))?)
    }

    /// Checks a library on which the required libraries may depend. `install` is the hint to print when it
    /// is not found.
    #[must_use]
    pub fn dependency(&self, library: &str, install: &str) -> Finding {
        let what = format!("library {library}");
        let found = (self.loaded)(library).or_else(|| match &self.failure {
            Some(Failure::Unusable { path, .. }) if is(path, library) => Some(path.clone()),
            _ => None,
        });
        if let Some(path) = found {
            return Finding::ok(what, path.display().to_string());
        }
        let Some(failure) = &self.failure else {
            return Finding::ok(what, "not needed by these libraries, which load without it");
        };
        // The loader's message names the missing file with its version number: "librte_eal.so.24: cannot
        // open shared object file".
        let lacked = match failure {
            Failure::Unusable { why, .. } => why
                .split(|c: char| c.is_whitespace() || "(:)".contains(c))
                .find(|word| !word.contains('/') && is(Path::new(word), library)),
            Failure::Missing { .. } => None,
        };
        if lacked.is_none()
            && let Some(path) = self.vendor.find_in(library, &self.folders)
        {
            return Finding::ok(what, path.display().to_string());
        }
        let misplaced = self.misplaced(lacked.unwrap_or(library), &[]);
        // Recommend the file only if the loader's message contains its version number, because only the
        // number identifies the release with which these libraries were built.
        let fix = match &misplaced {
            Some(path) if lacked.is_some_and(|name| name != library) => {
                self.set_to(path).unwrap_or_else(|| {
                    let folder = path.parent().unwrap_or(path).display();
                    format!("add the folder to LD_LIBRARY_PATH: `export LD_LIBRARY_PATH={folder}`")
                })
            }
            _ => install.to_owned(),
        };
        match (lacked, misplaced) {
            (Some(_), Some(path)) => {
                Finding::bad(what, format!("{}, where the loader does not search", path.display()), fix)
            }
            (Some(name), None) => Finding::bad(what, format!("{name} is needed, but not found"), fix),
            (None, Some(path)) => {
                Finding::warning(what, format!("{}, where the loader may not search", path.display()), fix)
            }
            (None, None) => Finding::warning(what, "not found, but most builds need it", fix),
        }
    }

    /// Returns the file of a library in a folder that the loader has not searched, preferably a folder with
    /// all required libraries.
    fn misplaced(&self, library: &str, looked: &[PathBuf]) -> Option<PathBuf> {
        let (mut first, mut best) = (None, None);
        for folder in self.usual.iter().filter(|folder| !looked.contains(folder)) {
            if let Some(path) = self.vendor.find_in(library, std::slice::from_ref(folder)) {
                best = best.or_else(|| self.has_all(folder).then(|| path.clone()));
                first = first.or(Some(path));
            }
        }
        best.or(first)
    }

    /// Returns whether a folder has all required libraries.
    fn has_all(&self, folder: &PathBuf) -> bool {
        self.vendor
            .required_libs
            .iter()
            .all(|library| self.vendor.find_in(library, std::slice::from_ref(folder)).is_some())
    }

    /// Returns the setting by which the loader finds a file's folder, if the folder has all required
    /// libraries.
    fn set_to(&self, path: &Path) -> Option<String> {
        let folder = path.parent()?.to_owned();
        let helps = self.has_all(&folder);
        helps.then(|| {
            format!("set the loader's folder: `export {}={}`", self.vendor.variable, folder.display())
        })
    }
}

/// Returns the end of a sentence that lists the optional calls that a library lacks.
#[must_use]
pub fn absent_calls(absent: &[&str]) -> String {
    match absent {
        [] => "; it has every call".to_owned(),
        some => {
            format!("; it has every required call, but lacks {}, which other versions have", some.join(", "))
        }
    }
}

/// Returns whether a file's name is the library's name, with or without a version number.
fn is(file: &Path, library: &str) -> bool {
    let rest = file.file_name().and_then(|name| name.to_str()?.strip_prefix(library));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns the file of a library that this process has loaded.
fn loaded(library: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])))
        .find(|path| is(path, library))
}

/// Returns the folders of the files, each once. The list is empty for names that the system's loader
/// searches.
fn folders_of(files: &[PathBuf]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> =
        files.iter().filter_map(|file| file.parent()).map(Path::to_owned).collect();
    folders.dedup();
    folders
}

/// Returns "not found" and the folders.
fn not_found_in(folders: &[PathBuf]) -> String {
    let names: Vec<_> = folders
        .iter()
        .filter(|folder| !folder.as_os_str().is_empty())
        .map(|f| f.display().to_string())
        .collect();
    if names.is_empty() { "not found".to_owned() } else { format!("not found in {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use dma_core::Verdict;

    use super::*;

    static SPDK: Vendor = Vendor {
        sdk: "SPDK",
        min_version: "23.05",
        build: "",
        variable: "DMA_TEST_SPDK_LIB_DIR",
        required_libs: &["libspdk_env_dpdk.so", "libspdk_ioat.so"],
        optional_libs: &[],
        soname: None,
        default_dirs: &[],
        lib_subdirs: &["lib", "build/lib"],
        dependency_dirs: |home| vec![home.to_owned()],
        implicit_symbols: &[],
    };
    static DOCA: Vendor = Vendor {
        sdk: "DOCA",
        min_version: "1.5",
        variable: "DMA_TEST_DOCA_LIB_DIR",
        required_libs: &["libdoca_common.so", "libdoca_dma.so"],
        soname: Some(2),
        ..SPDK
    };

    /// Returns the report of SPDK's libraries after a search in `folders` that ended with `failure`, or
    /// found all libraries.
    fn spdk(folders: &[&Path], usual: &[&Path], failure: Option<Failure>) -> LibraryReport {
        let owned = |list: &[&Path]| list.iter().map(|folder| (*folder).to_owned()).collect();
        LibraryReport {
            named: None,
            folders: owned(folders),
            usual: owned(usual),
            failure,
            loaded: |_| None,
            ..LibraryReport::of(&SPDK, "install SPDK", None)
        }
    }

    /// Returns the failure of loading SPDK from a folder.
    fn refused(folder: &Path) -> Option<Failure> {
        Some(Failure::of(&SPDK.open_in(folder).unwrap_err(), &SPDK))
    }

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            fs::write(folder.path().join(file), "").unwrap();
        }
        folder
    }

    #[test]
    fn a_loaded_library_is_found_wherever_it_lies() {
        let loader = LibraryReport {
            loaded: |library| Some(Path::new("/srv/far/away").join(library)),
            ..spdk(&[], &[], None)
        };
        for line in loader.needed() {
            assert_eq!(line.verdict, Verdict::Ok, "{line:?}");
            assert!(line.found.starts_with("/srv/far/away/libspdk_"), "{line:?}");
        }
        // The verdict is the same if the report cannot show which files were loaded.
        assert!(spdk(&[], &[], None).needed().iter().all(|line| line.verdict == Verdict::Ok));
        // Every test process on Linux has this library loaded.
        assert!(loaded("libc.so").is_some_and(|path| path.is_file()));
        assert_eq!(loaded("libnone_such.so"), None);
    }

    #[test]
    fn a_library_outside_of_the_places_for_spdk_is_reported() {
        let (empty, full) = (folder(&[]), folder(&["libspdk_env_dpdk.so.17", "libspdk_ioat.so.9"]));
        let loader = spdk(&[empty.path()], &[empty.path(), full.path()], refused(empty.path()));
        let setting = format!("`export DMA_TEST_SPDK_LIB_DIR={}`", full.path().display());
        for line in loader.needed() {
            assert_eq!(line.verdict, Verdict::Bad, "{line:?}");
            assert!(line.found.contains("where the loader does not search"), "{line:?}");
            assert!(line.fix.contains(&setting), "{line:?}");
        }
        assert!(loader.setting().is_some_and(|fix| fix.contains(&setting)));
        assert!(
            usual().contains(&PathBuf::from(format!("/usr/local/lib/{}-linux-gnu", std::env::consts::ARCH)))
        );
        // With only one of the libraries in the folder, the loader would still fail.
        fs::remove_file(full.path().join("libspdk_ioat.so.9")).unwrap();
        assert_eq!(loader.setting(), None);
        assert!(loader.needed().iter().all(|line| line.fix == loader.install));
    }

    #[test]
    fn a_library_outside_of_the_places_for_doca_is_reported() {
        let (empty, full) = (folder(&[]), folder(&["libdoca_common.so.2", "libdoca_dma.so.2"]));
        let error = DOCA.open_in(empty.path()).unwrap_err();
        let loader = LibraryReport {
            named: None,
            folders: vec![empty.path().to_owned()],
            usual: vec![full.path().to_owned()],
            ..LibraryReport::of(&DOCA, "install DOCA", Some(&error))
        };
        let setting = format!("`export DMA_TEST_DOCA_LIB_DIR={}`", full.path().display());
        for line in loader.needed() {
            assert_eq!(line.verdict, Verdict::Bad, "{line:?}");
            assert!(line.found.contains("where the loader does not search"), "{line:?}");
            assert!(line.fix.contains(&setting), "{line:?}");
        }
        assert!(loader.setting().is_some_and(|fix| fix.contains(&setting)));
        assert!(usual().contains(&PathBuf::from("/opt/mellanox/doca/lib")));
        // The loader does not accept a file with another version number.
        fs::rename(full.path().join("libdoca_dma.so.2"), full.path().join("libdoca_dma.so.1")).unwrap();
        assert_eq!(loader.setting(), None);
    }

    #[test]
    fn a_dependency_is_bad_only_if_it_is_lacking() {
        let line = |loader: &LibraryReport| loader.dependency("librte_eal.so", "install DPDK");
        // SPDK loads without this library.
        let fine = line(&spdk(&[], &[], None));
        assert_eq!((fine.verdict, fine.fix.as_str()), (Verdict::Ok, ""), "{fine:?}");
        // SPDK itself is missing, so whether it needs this library is unknown.
        let (empty, full) = (folder(&[]), folder(&["librte_eal.so.24"]));
        let unknown = line(&spdk(&[empty.path()], &[], refused(empty.path())));
        assert_eq!((unknown.verdict, unknown.fix.as_str()), (Verdict::Warning, "install DPDK"));
        // SPDK does not load because DPDK is missing.
        let lacks = |number: u32| {
            Some(Failure::of(
                &LoadError::Unloadable {
                    path: "/x/libspdk_env_dpdk.so.17".into(),
                    reason: format!("librte_eal.so.{number}: cannot open shared object file: No such file"),
                },
                &SPDK,
            ))
        };
        let lacking = line(&spdk(&[full.path()], &[full.path()], lacks(25)));
        assert_eq!((lacking.verdict, lacking.fix.as_str()), (Verdict::Bad, "install DPDK"));
        assert!(lacking.found.contains("librte_eal.so.25"), "{lacking:?}");
        let elsewhere = line(&spdk(&[full.path()], &[full.path()], lacks(24)));
        assert_eq!(elsewhere.verdict, Verdict::Bad);
        assert!(
            elsewhere.fix.contains(&format!("LD_LIBRARY_PATH={}", full.path().display())),
            "{elsewhere:?}"
        );
    }

    #[test]
    fn a_dpdk_of_unknown_release_is_not_recommended() {
        let (empty, full) = (folder(&[]), folder(&["librte_eal.so", "librte_eal.so.23"]));
        let unbound = Some(Failure::of(&LoadError::Unloadable {
            path: "/x/libspdk_env_dpdk.so.17".into(),
            reason: "it calls rte_eal_init of DPDK and lists no library that defines it, and no librte_eal.so was found in /x".into(),
        }, &SPDK));
        for failure in [unbound, refused(empty.path())] {
            let line = spdk(&[empty.path()], &[full.path()], failure)
                .dependency("librte_eal.so", "the one it was built with");
            assert!(line.found.contains("librte_eal.so"), "{line:?}");
            assert_eq!(line.fix, "the one it was built with", "{line:?}");
        }
    }

    #[test]
    fn a_library_that_is_nowhere_is_not_found() {
        let empty = folder(&[]);
        let below = empty.path().join("build/lib");
        let loader = spdk(&[empty.path(), &below], &[], refused(empty.path()));
        let lines = loader.needed();
        for line in &lines {
            assert_eq!((line.verdict, line.fix.as_str()), (Verdict::Bad, loader.install));
        }
        let all =
            ["", "/lib", "/build/lib"].map(|below| format!("{}{below}", empty.path().display())).join(", ");
        let expected = [format!("not found in {all}"), "not found".to_owned()];
        assert!(lines.iter().map(|line| &line.found).eq(&expected), "only the first says where: {lines:?}");
        let named = LibraryReport { named: Some(below), ..loader };
        assert!(named.needed().iter().all(|line| line.found.contains("which is not a folder")));
    }

    #[test]
    fn a_file_that_is_no_library_is_there_all_the_same() {
        let full = folder(&["libspdk_env_dpdk.so.17", "libspdk_ioat.so.9"]);
        let loader = spdk(&[full.path()], &[], refused(full.path()));
        assert!(loader.needed().iter().all(|line| line.verdict == Verdict::Ok));
        fs::remove_file(full.path().join("libspdk_ioat.so.9")).unwrap();
        let half = spdk(&[full.path()], &[], refused(full.path()));
        let verdicts: Vec<_> = half.needed().iter().map(|line| line.verdict).collect();
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Bad]);
        // An archive cannot be loaded.
        let archive = folder(&["libspdk_env_dpdk.a"]);
        let loader = spdk(&[archive.path()], &[], refused(archive.path()));
        assert!(loader.needed().iter().all(|line| line.verdict == Verdict::Bad));
    }
}
