//! The library's functions, and which version of it a device can use.

use crate::backend::cuda::library::{self, done, functions, names};
use cudarc::cublas::sys::{
    self, cublasHandle_t, cublasOperation_t, cudaStream_t, libraryPropertyType,
};
use libloading::Library;
use std::ffi::{c_int, c_longlong};

/// The oldest architecture that CUDA 13's library has kernels for.
const ARCHITECTURE_OF_13: u32 = 75;

/// How to install the library. Versions after 12.9 have kernels for sm_75 and newer only.
pub(in crate::backend::cuda) const INSTALL: &str = "install libcublas-12-9 from NVIDIA's \
    repository, or the wheel nvidia-cublas-cu12==12.9.* with its lib folder in LD_LIBRARY_PATH";

functions! {
    /// The functions of the library.
    Functions: cublasStatus_t {
        cublasGetProperty(libraryPropertyType, *mut c_int);
        cublasCreate_v2(*mut cublasHandle_t);
        cublasDestroy_v2(cublasHandle_t);
        cublasSetStream_v2(cublasHandle_t, cudaStream_t);
        cublasSgemmStridedBatched(
            cublasHandle_t, cublasOperation_t, cublasOperation_t, c_int, c_int, c_int, *const f32,
            *const f32, c_int, c_longlong, *const f32, c_int, c_longlong, *const f32, *mut f32,
            c_int, c_longlong, c_int
        );
    }
}

/// The loaded library.
#[derive(Debug, Clone, Copy)]
pub(in crate::backend::cuda) struct Cublas {
    pub(in crate::backend::cuda) functions: Functions,
    /// Major and minor version, and the level of patches.
    version: [c_int; 3],
}

impl Cublas {
    /// The newest library for a device of `architecture` that its driver of CUDA `major` runs.
    ///
    /// # Errors
    /// Why no installed library does.
    pub(in crate::backend::cuda) fn load(architecture: u32, major: i32) -> Result<Self, String> {
        let newest = newest(architecture, major);
        let mut refusals: Vec<String> = Vec::new();
        for library in names("cublas", newest).iter().filter_map(|name| library::load(name)) {
            // A name without a version may lead to a library of any version.
            let found = Self::of(&library).and_then(|it| match it.version[0] <= newest {
                true => Ok(it),
                false => Err(format!(
                    "{} is not for sm_{architecture} with a driver of CUDA {major}, expected \
                     cuBLAS {newest} or older",
                    it.name()
                )),
            });
            match found {
                Ok(found) => return Ok(found),
                // Two names may lead to one file.
                Err(reason) if refusals.contains(&reason) => {}
                Err(reason) => refusals.push(reason),
            }
        }
        if refusals.is_empty() {
            return Err("NVIDIA's library of products (cuBLAS) is not installed".to_owned());
        }
        Err(refusals.join("; "))
    }

    fn of(library: &Library) -> Result<Self, String> {
        use libraryPropertyType::{MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
        let functions = Functions::of(library)
            .map_err(|name| format!("cuBLAS is too old: it has no {name}"))?;
        let mut version = [0; 3];
        for (which, number) in
            [MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL].into_iter().zip(&mut version)
        {
            // SAFETY: the call needs no handle, and writes one integer into the given place.
            done(unsafe { (functions.cublasGetProperty)(which, number) }).map_err(|status| {
                format!("cuBLAS does not tell its version: error {}", status.0)
            })?;
        }
        Ok(Self { functions, version })
    }

    /// The library's name and version.
    pub(in crate::backend::cuda) fn name(&self) -> String {
        let [major, minor, patch] = self.version;
        format!("cuBLAS {major}.{minor}.{patch}")
    }
}

/// The newest major version for a device of `architecture` whose driver is of CUDA `major`.
fn newest(architecture: u32, major: i32) -> i32 {
    if architecture < ARCHITECTURE_OF_13 { major.min(12) } else { major }
}
