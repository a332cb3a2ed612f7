//! The libraries that a device gets from the host besides its driver, and the versions of all of
//! them.

use super::blas::functions::Cublas;
use super::driver::Driver;
use super::nvrtc::{Nvrtc, Target};
use nvml_wrapper::Nvml;

/// The compiler and the library of products for one device, or why it has none.
#[derive(Debug)]
pub(super) struct Libraries {
    /// The compiler and its target.
    pub(super) compiler: Result<(Nvrtc, Target), String>,
    pub(super) blas: Result<Cublas, String>,
}

impl Libraries {
    /// Loads the libraries for a device of `architecture` (61 is sm_61).
    pub(super) fn load(architecture: u32, driver: &Driver) -> Self {
        Self {
            compiler: Nvrtc::load(architecture, driver.version()),
            blas: Cublas::load(architecture, driver.version().0),
        }
    }

    /// The versions that kernels and their speed depend on, as far as they are known:
    /// `CUDA 12.4, driver 550.54.14, NVRTC 12.4, cuBLAS 12.4.5`.
    pub(super) fn versions(&self, driver: &Driver, of_kernel: Option<&str>) -> String {
        let cuda = match driver.version() {
            (0, _) => "CUDA".to_owned(),
            (major, minor) => format!("CUDA {major}.{minor}"),
        };
        let of_kernel = of_kernel.map(|version| format!("driver {version}"));
        let compiler = self.compiler.as_ref().ok().map(|(compiler, _)| compiler.name());
        let blas = self.blas.as_ref().ok().map(Cublas::name);
        let known = [of_kernel, compiler, blas].into_iter().flatten();
        [cuda].into_iter().chain(known).collect::<Vec<_>>().join(", ")
    }
}

/// The version of NVIDIA's kernel driver, where the host tells it.
pub(super) fn kernel_driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    // Windows and its Subsystem for Linux have no such file.
    version_in(&text).or_else(|| Nvml::init().ok()?.sys_driver_version().ok())
}

/// The version in the kernel driver's description of itself.
fn version_in(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| {
        let mut numbers = word.split('.');
        word.contains('.') && numbers.all(|number| number.parse::<u32>().is_ok())
    };
    line.split_whitespace().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_driver_tells_its_version() {
        for (text, version) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 \
                 UTC 2024\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
                Some("550.54.14"),
            ),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release \
                 Build  (dvs-builder@U16-I3-B03-4-3)  Wed Feb 26 01:52:30 UTC 2025\n",
                Some("570.124.06"),
            ),
            ("GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n", None),
            ("", None),
        ] {
            assert_eq!(version_in(text).as_deref(), version, "{text}");
        }
    }
}
