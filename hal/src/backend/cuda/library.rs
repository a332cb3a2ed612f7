//! NVIDIA's libraries, loaded by name at run time, and the tables of the functions that this
//! backend calls. The bindings' own loader is not used: its names end with CUDA 12, and it panics
//! on a function that a library lacks.

use libloading::Library;
use std::ffi::c_void;
use std::fmt::Debug;
use std::mem::ManuallyDrop;
use std::path::PathBuf;

/// The first of CUDA's major versions whose libraries are looked for by their version.
const MAJOR_FIRST: i32 = 12;
/// The last one. CUDA gets a new one about every third year, and a file that is not there costs one
/// look into each folder.
pub(super) const MAJOR_LAST: i32 = 19;

/// The file names of a library that carries CUDA's major version, from `newest` down to the oldest.
/// The name without a version, which comes with development packages, is the last.
pub(super) fn names(library: &str, newest: i32) -> Vec<String> {
    let versions = (MAJOR_FIRST..=newest.min(MAJOR_LAST)).rev();
    let versioned = versions.map(|version| format!("lib{library}.so.{version}"));
    versioned.chain([format!("lib{library}.so")]).collect()
}

/// Declares a table of a library's functions, all of which answer with a status. A table is made
/// from a library that has every one of them, so no call can meet a missing one.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident: $status:ident { $($name:ident($($argument:ty),*);)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[allow(non_snake_case, reason = "the fields have the functions' names")]
        pub(in crate::backend::cuda) struct $table {
            $(pub(in crate::backend::cuda) $name: unsafe extern "C" fn($($argument),*) -> u32,)+
        }

        // The bindings declare the same parameters. Their status is an enum, which a status that
        // they do not know must not become.
        $(const _: unsafe fn($($argument),*) -> sys::$status = sys::$name;)+

        impl $table {
            /// The functions of a library, or the first one that it lacks.
            fn of(library: &libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let symbol = stringify!($name);
                        // SAFETY: the function has this type, as NVIDIA's headers and the bindings
                        // declare it. Libraries are never unloaded.
                        unsafe { $crate::backend::cuda::library::function(library, symbol) }
                            .ok_or(symbol)?
                    },)+
                })
            }
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($table)).finish_non_exhaustive()
            }
        }
    };
}
pub(super) use functions;

/// A function of a library.
///
/// # Safety
/// `F` must be the function's type.
pub(super) unsafe fn function<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the caller's promise is passed on.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol)
}

/// Loads a library for the life of the process: its threads and exit handlers may outlive any use.
pub(super) fn load(name: &str) -> Option<ManuallyDrop<Library>> {
    // SAFETY: loading runs the initialisers of NVIDIA's library, which any program may run.
    unsafe { Library::new(name) }.ok().map(ManuallyDrop::new)
}

/// The file that a function was loaded from.
#[cfg(unix)]
pub(super) fn file_of(function: *const c_void) -> Option<PathBuf> {
    // SAFETY: a `Dl_info` of zeros is a valid one.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes into the given place, and takes any address.
    let is_known = unsafe { libc::dladdr(function, &raw mut info) } != 0;
    if !is_known || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is a string of the loader's, which lives as long as the library.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(&*name.to_string_lossy()))
}

/// On other systems the loader is not asked.
#[cfg(not(unix))]
pub(super) fn file_of(_function: *const c_void) -> Option<PathBuf> {
    None
}

/// Whether a call succeeded.
///
/// # Errors
/// The status otherwise.
pub(super) fn done(status: u32) -> Result<(), Status> {
    if status == 0 { Ok(()) } else { Err(Status(status)) }
}

/// A status other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status(pub(super) u32);

impl Status {
    /// The status's name among those that are known, or its number.
    pub(super) fn name<T: Debug>(self, known: impl IntoIterator<Item = (u32, T)>) -> String {
        let found = known.into_iter().find(|(number, _)| *number == self.0);
        found.map_or_else(|| format!("error {}", self.0), |(_, status)| format!("{status:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_looked_for_from_the_newest_version_to_the_oldest() {
        assert_eq!(names("cublas", 13), ["libcublas.so.13", "libcublas.so.12", "libcublas.so"]);
        let all = names("nvrtc", i32::MAX);
        assert_eq!(all.len(), 9, "{all:?}");
        assert_eq!(names("nvrtc", 11), ["libnvrtc.so"]);
    }

    #[test]
    fn a_status_that_is_not_known_has_its_number() {
        assert_eq!(done(0), Ok(()));
        let name = |status| done(status).expect_err("no success").name([(3, "THREE")]);
        assert_eq!([name(3), name(99)], ["\"THREE\"", "error 99"]);
    }
}
