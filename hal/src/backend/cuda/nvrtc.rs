//! NVIDIA's run-time compiler (NVRTC): from the portable language to code for one architecture.
//! It needs neither a driver nor a device.

use crate::backend::BackendKind;
use crate::portable::with_prelude;
use cudarc::nvrtc::result::{self, NvrtcError};
use cudarc::nvrtc::sys;
use std::ffi::{CStr, CString, c_char};

/// The library calls of this module; the bindings panic on a call that the library lacks.
const CALLS: [&str; 12] = [
    "nvrtcVersion",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetSupportedArchs",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcCompileProgram",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
    "nvrtcGetPTXSize",
    "nvrtcGetPTX",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
];

/// How to install the library. Versions after 12.9 compile for sm_75 and newer only.
const INSTALL: &str = "install cuda-nvrtc-12-9 from NVIDIA's repository, or the wheel \
    nvidia-cuda-nvrtc-cu12==12.9.* with its lib folder in LD_LIBRARY_PATH";

/// The target of the generated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Machine code of this architecture (61 is sm_61).
    Machine(u32),
    /// PTX of this architecture, which the driver translates for its newer device.
    Ptx(u32),
}

/// The loaded library.
#[derive(Debug, Clone)]
pub(super) struct Nvrtc {
    version: (i32, i32),
    /// The architectures that the library compiles for, rising.
    architectures: Vec<u32>,
}

/// A compiled program that is not on a device yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) kernels: Vec<Signature>,
    /// Machine code, or PTX that ends in a zero byte.
    pub(super) code: Vec<u8>,
}

/// A kernel's name, and the sizes of its parameters in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) name: String,
    pub(super) sizes: Vec<usize>,
}

impl Nvrtc {
    /// Loads the library.
    ///
    /// # Errors
    /// The missing part, and how to install it.
    pub(super) fn load() -> Result<Self, String> {
        // SAFETY: the search for the library runs its initialisers, as loading it does.
        if !unsafe { sys::is_culib_present() } {
            return Err(format!("NVIDIA's compiler (libnvrtc.so.12) is not installed: {INSTALL}"));
        }
        // SAFETY: the library is present; the symbols are only looked up here, not called.
        let lacking = unsafe {
            let library = sys::culib();
            CALLS
                .into_iter()
                .find(|name| library.get::<unsafe extern "C" fn()>(name.as_bytes()).is_err())
        };
        if let Some(name) = lacking {
            return Err(format!("NVIDIA's compiler is too old, it has no {name}: {INSTALL}"));
        }
        let refuse = |error: NvrtcError| format!("NVIDIA's compiler does not start: {error}");
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: both calls write integers into the given places.
        let facts = unsafe {
            sys::nvrtcVersion(&raw mut major, &raw mut minor)
                .result()
                .and_then(|()| sys::nvrtcGetNumSupportedArchs(&raw mut count).result())
        };
        facts.map_err(refuse)?;
        let mut numbers = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the call writes as many integers as the call before it reported.
        unsafe { sys::nvrtcGetSupportedArchs(numbers.as_mut_ptr()) }.result().map_err(refuse)?;
        let mut architectures: Vec<u32> =
            numbers.into_iter().filter_map(|number| u32::try_from(number).ok()).collect();
        architectures.sort_unstable();
        Ok(Self { version: (major, minor), architectures })
    }

    /// The compile target for a device of `architecture` whose driver is of CUDA `driver`.
    ///
    /// # Errors
    /// Why this library cannot compile for the device, and which version can.
    pub(super) fn target(&self, architecture: u32, driver: i32) -> Result<Target, String> {
        let (major, minor) = self.version;
        // A driver loads code of its own major version and of earlier ones.
        if major > driver {
            return Err(format!(
                "NVRTC {major}.{minor} makes code that a driver of CUDA {driver} cannot load: \
                 update the driver, or install NVRTC of CUDA {driver}"
            ));
        }
        let oldest = self.architectures.first().copied().unwrap_or(u32::MAX);
        match self.architectures.iter().rfind(|&&it| it <= architecture) {
            Some(&found) if found == architecture => Ok(Target::Machine(found)),
            Some(&newest) => Ok(Target::Ptx(newest)),
            None => Err(format!(
                "NVRTC {major}.{minor} compiles for sm_{oldest} and newer, not for \
                 sm_{architecture}: {INSTALL}"
            )),
        }
    }

    /// Compiles `source`, in the portable language, with `options` (`-D NAME=VALUE …`).
    ///
    /// # Errors
    /// The compiler's messages.
    pub(super) fn compile(
        &self,
        target: Target,
        source: &str,
        options: &str,
    ) -> Result<Image, String> {
        let mut options = defines(options)?;
        options.push(match target {
            Target::Machine(number) => format!("--gpu-architecture=sm_{number}"),
            Target::Ptx(number) => format!("--gpu-architecture=compute_{number}"),
        });
        let text = CString::new(with_prelude(BackendKind::Cuda, source))
            .map_err(|error| format!("the source has a zero byte at {}", error.nul_position()))?;
        let program = Program::new(&text)?;
        // SAFETY: the program is alive; `defines` has checked that the options have no zero byte.
        if let Err(error) = unsafe { result::compile_program(program.0, &options) } {
            let log = program.log();
            return Err(if log.is_empty() { error.to_string() } else { log });
        }
        let refuse = |error: NvrtcError| error.to_string();
        // SAFETY: the program is alive and compiled.
        let ptx: Vec<c_char> = unsafe { result::get_ptx(program.0) }.map_err(refuse)?;
        let ptx = bytes_of(&ptx);
        let kernels = signatures(&String::from_utf8_lossy(&ptx))?;
        let code = match target {
            Target::Machine(_) => program.machine_code().map_err(refuse)?,
            Target::Ptx(_) => ptx,
        };
        Ok(Image { kernels, code })
    }
}

impl Image {
    /// The image as bytes: a line for each kernel, an empty one, the code.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for Signature { name, sizes } in &self.kernels {
            bytes.extend_from_slice(name.as_bytes());
            sizes.iter().for_each(|size| bytes.extend_from_slice(format!(" {size}").as_bytes()));
            bytes.push(b'\n');
        }
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.code);
        bytes
    }

    /// The image that was written as `bytes`.
    pub(super) fn read(mut bytes: &[u8]) -> Option<Self> {
        let mut kernels = Vec::new();
        loop {
            let end = bytes.iter().position(|&byte| byte == b'\n')?;
            let line = std::str::from_utf8(&bytes[..end]).ok()?;
            bytes = &bytes[end + 1..];
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { break };
            let sizes: Option<Vec<usize>> = words.map(|word| word.parse().ok()).collect();
            kernels.push(Signature { name: name.to_owned(), sizes: sizes? });
        }
        Some(Self { kernels, code: bytes.to_vec() })
    }
}

/// A program of the library; dropping this destroys it.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(text: &CStr) -> Result<Self, String> {
        // The library copies the text.
        result::create_program(text, None).map(Self).map_err(|error| error.to_string())
    }

    /// The compiler's messages.
    fn log(&self) -> String {
        // SAFETY: the program is alive.
        let bytes = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        String::from_utf8_lossy(&bytes_of(&bytes)).trim_matches(['\0', ' ', '\n']).to_owned()
    }

    fn machine_code(&self) -> Result<Vec<u8>, NvrtcError> {
        let mut size = 0;
        // SAFETY: the program is alive, and the size is written into its place.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &raw mut size) }.result()?;
        let mut code = vec![0u8; size];
        // SAFETY: the call writes as many bytes as the call before it reported.
        unsafe { sys::nvrtcGetCUBIN(self.0, code.as_mut_ptr().cast()) }.result()?;
        Ok(code)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program came from `create_program` and is not used again. A failure cannot be
        // handled here.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

fn bytes_of(text: &[c_char]) -> Vec<u8> {
    bytemuck::cast_slice(text).to_vec()
}

/// The options that mean the same to every compiler, one string each.
fn defines(options: &str) -> Result<Vec<String>, String> {
    if let Some(at) = options.bytes().position(|byte| byte == 0) {
        return Err(format!("the compiler options have a zero byte at {at}"));
    }
    let mut words = options.split_whitespace();
    let mut all = Vec::new();
    while let Some(word) = words.next() {
        let define = match word.strip_prefix("-D") {
            Some("") => words.next(),
            define => define,
        };
        let define = define.ok_or_else(|| {
            format!("the compiler option {word:?} is not of the form -D NAME=VALUE")
        })?;
        all.push(format!("--define-macro={define}"));
    }
    Ok(all)
}

/// The kernels that a PTX text declares: `.entry NAME(.param .u64 NAME_param_0, …)`.
fn signatures(ptx: &str) -> Result<Vec<Signature>, String> {
    let mut all = Vec::new();
    for entry in ptx.split(".entry ").skip(1) {
        let unknown =
            || format!("the compiler's PTX declares a kernel in an unknown way: {entry:.80}");
        let (name, rest) = entry.split_once('(').ok_or_else(unknown)?;
        let (params, _) = rest.split_once(')').ok_or_else(unknown)?;
        let params = params.split(',').map(str::trim).filter(|param| !param.is_empty());
        let sizes: Option<Vec<usize>> = params.map(size_of_param).collect();
        let name = name.trim().to_owned();
        all.push(Signature { name, sizes: sizes.ok_or_else(unknown)? });
    }
    Ok(all)
}

/// The size of one parameter: `.param .u64 .ptr .align 1 NAME`, or `.param .align 8 .b8 NAME[32]`.
fn size_of_param(param: &str) -> Option<usize> {
    let kind = param.split_whitespace().find_map(|word| {
        let digits = word.strip_prefix(['.'])?.strip_prefix(['u', 's', 'b', 'f'])?;
        digits.parse::<usize>().ok()
    })?;
    let count = match param.rsplit_once('[') {
        Some((_, count)) => count.strip_suffix(']')?.parse().ok()?,
        None => 1,
    };
    Some(kind / 8 * count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_get_code_that_they_can_run() {
        let library = |version, oldest: u32| Nvrtc {
            version,
            architectures: [50, 61, 75, 90].into_iter().filter(|&it| it >= oldest).collect(),
        };
        for (library, architecture, driver, expected) in [
            (library((12, 9), 50), 61, 12, Ok(Target::Machine(61))),
            (library((12, 9), 50), 61, 13, Ok(Target::Machine(61))),
            (library((12, 9), 50), 62, 12, Ok(Target::Ptx(61))),
            (library((12, 9), 50), 121, 13, Ok(Target::Ptx(90))),
            (library((13, 0), 75), 61, 13, Err("sm_75 and newer, not for sm_61")),
            (library((12, 9), 50), 61, 11, Err("driver of CUDA 11 cannot load")),
        ] {
            let target = library.target(architecture, driver);
            match (&target, expected) {
                (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
                _ => assert_eq!(target.as_ref().ok(), expected.as_ref().ok(), "{target:?}"),
            }
        }
    }

    #[test]
    fn options_are_defines_and_nothing_else() {
        let expected = ["--define-macro=A=1u", "--define-macro=B"].map(str::to_owned).to_vec();
        assert_eq!(defines(" -D A=1u  -DB "), Ok(expected));
        for faulty in ["-cl-mad-enable", "-D A=1 -O3", "-D", "A=1", "-D A\0"] {
            assert!(defines(faulty).is_err(), "{faulty:?}");
        }
    }

    #[test]
    fn kernels_are_read_from_ptx() {
        let ptx = ".visible .entry add(\n\t.param .u64 .ptr .align 1 add_param_0,\n\t.param .f32 \
            add_param_1\n)\n.maxntid 64, 1, 1\n{ ret; }\n.visible .entry none()\n{ }\n.visible \
            .entry wide(\n.param .align 8 .b8 wide_param_0[24],\n.param .u8 wide_param_1\n){ }";
        let kernel = |name: &str, sizes: &[usize]| Signature {
            name: name.to_owned(),
            sizes: sizes.to_vec(),
        };
        let expected = vec![kernel("add", &[8, 4]), kernel("none", &[]), kernel("wide", &[24, 1])];
        assert_eq!(signatures(ptx), Ok(expected));
        assert!(signatures(".entry broken(.param odd x)").is_err());
    }

    #[test]
    fn images_are_read_as_they_were_written() {
        let kernel = |name: &str, sizes: &[usize]| Signature {
            name: name.to_owned(),
            sizes: sizes.to_vec(),
        };
        let kernels = vec![kernel("add", &[8, 8, 4]), kernel("none", &[])];
        for kernels in [kernels, vec![]] {
            let image = Image { kernels, code: b"\n\x7fELF\n\n\0".to_vec() };
            assert_eq!(Image::read(&image.write()), Some(image));
        }
        for faulty in [b"" as &[u8], b"add 8", b"add 8\n", b"add eight\n\n", b"\xff\n\n"] {
            assert_eq!(Image::read(faulty), None, "{faulty:?}");
        }
    }

    #[test]
    fn portable_sources_compile_without_a_device() {
        let compiler = match Nvrtc::load() {
            Ok(compiler) => compiler,
            Err(reason) => {
                println!("skipped: nvrtc: {reason}");
                return;
            }
        };
        let target = compiler.target(61, 12).expect("compiles for Pascal");
        assert_eq!(target, Target::Machine(61));
        let self_test = include_str!("../../self_test/self_test.cl");
        let laws = include_str!("../../../conformance/src/laws/programs.cl");
        for (source, kernel, sizes) in [
            (self_test, "test_fma", [8, 8, 8, 8].as_slice()),
            (laws, "all_arguments", &[8, 4, 4, 8, 4]),
        ] {
            for target in [target, Target::Ptx(61), Target::Machine(90)] {
                let image = compiler.compile(target, source, "-D CONSTANT=7u").expect(kernel);
                let found = image.kernels.iter().find(|it| it.name == kernel).expect(kernel);
                assert_eq!(found.sizes, sizes, "{kernel}");
                let is_machine_code = image.code.starts_with(b"\x7fELF");
                assert_eq!(is_machine_code, matches!(target, Target::Machine(_)), "{target:?}");
                assert_eq!(Image::read(&image.write()), Some(image));
            }
        }
        let log = compiler.compile(target, "KERNEL void f(GLOBAL int *p) {\n nowhere; }", "");
        let log = log.expect_err("does not compile");
        assert!(log.contains("(2)") && log.contains("nowhere"), "{log}");
    }
}
