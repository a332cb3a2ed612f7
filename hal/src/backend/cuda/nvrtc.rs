//! NVIDIA's run-time compiler (NVRTC): from the portable language to code for one architecture.
//! It needs neither a driver nor a device.

use super::library::{self, MAJOR_LAST, Status, done, functions, names};
use crate::backend::BackendKind;
use crate::portable::with_prelude;
use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use libloading::Library;
use std::ffi::{CString, c_char, c_int};

functions! {
    /// The functions of the compiler.
    Functions: nvrtcResult {
        nvrtcVersion(*mut c_int, *mut c_int);
        nvrtcGetNumSupportedArchs(*mut c_int);
        nvrtcGetSupportedArchs(*mut c_int);
        nvrtcCreateProgram(
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char,
            *const *const c_char
        );
        nvrtcDestroyProgram(*mut nvrtcProgram);
        nvrtcCompileProgram(nvrtcProgram, c_int, *const *const c_char);
        nvrtcGetProgramLogSize(nvrtcProgram, *mut usize);
        nvrtcGetProgramLog(nvrtcProgram, *mut c_char);
        nvrtcGetPTXSize(nvrtcProgram, *mut usize);
        nvrtcGetPTX(nvrtcProgram, *mut c_char);
        nvrtcGetCUBINSize(nvrtcProgram, *mut usize);
        nvrtcGetCUBIN(nvrtcProgram, *mut c_char);
    }
}

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
    functions: Functions,
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
    /// Loads the newest compiler that compiles for a device of `architecture` whose driver is of
    /// CUDA `driver`, major and minor version.
    ///
    /// # Errors
    /// Why no installed compiler does, and how to install one.
    pub(super) fn load(architecture: u32, driver: (i32, i32)) -> Result<(Self, Target), String> {
        let mut refusals: Vec<String> = Vec::new();
        for library in names("nvrtc", MAJOR_LAST).iter().filter_map(|name| library::load(name)) {
            let found = Self::of(&library).and_then(|it| {
                Ok((target(it.version, &it.architectures, architecture, driver)?, it))
            });
            match found {
                Ok((target, compiler)) => return Ok((compiler, target)),
                // Two names may lead to one file.
                Err(reason) if refusals.contains(&reason) => {}
                Err(reason) => refusals.push(reason),
            }
        }
        if refusals.is_empty() {
            return Err(format!("NVIDIA's compiler (libnvrtc.so.12) is not installed: {INSTALL}"));
        }
        Err(refusals.join("; "))
    }

    /// The compiler of a library.
    fn of(library: &Library) -> Result<Self, String> {
        let functions = Functions::of(library)
            .map_err(|name| format!("NVIDIA's compiler is too old, it has no {name}: {INSTALL}"))?;
        let refuse = |status| format!("NVIDIA's compiler does not start: {}", code(status));
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: the call writes integers into the given places.
        done(unsafe { (functions.nvrtcVersion)(&raw mut major, &raw mut minor) })
            .map_err(refuse)?;
        // SAFETY: as above.
        done(unsafe { (functions.nvrtcGetNumSupportedArchs)(&raw mut count) }).map_err(refuse)?;
        let mut numbers = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the call writes as many integers as the call before it reported.
        done(unsafe { (functions.nvrtcGetSupportedArchs)(numbers.as_mut_ptr()) })
            .map_err(refuse)?;
        let mut architectures: Vec<u32> =
            numbers.into_iter().filter_map(|number| u32::try_from(number).ok()).collect();
        architectures.sort_unstable();
        Ok(Self { functions, version: (major, minor), architectures })
    }

    /// The library's name and version.
    pub(super) fn name(&self) -> String {
        let (major, minor) = self.version;
        format!("NVRTC {major}.{minor}")
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
        // `defines` has refused options with a zero byte.
        let options: Vec<CString> =
            options.into_iter().filter_map(|option| CString::new(option).ok()).collect();
        let text = CString::new(with_prelude(BackendKind::Cuda, source))
            .map_err(|error| format!("the source has a zero byte at {}", error.nul_position()))?;
        let program = Program::new(self.functions, &text)?;
        if let Err(status) = program.compile(&options) {
            let log = program.log();
            return Err(if log.is_empty() { code(status) } else { log });
        }
        let Functions { nvrtcGetPTXSize: ptx_size, nvrtcGetPTX: ptx, .. } = self.functions;
        let ptx = program.bytes(ptx_size, ptx).map_err(code)?;
        let kernels = signatures(&String::from_utf8_lossy(&ptx))?;
        let code = match target {
            Target::Machine(_) => {
                let Functions { nvrtcGetCUBINSize: size, nvrtcGetCUBIN: cubin, .. } =
                    self.functions;
                program.bytes(size, cubin).map_err(code)?
            }
            Target::Ptx(_) => ptx,
        };
        Ok(Image { kernels, code })
    }
}

/// The target of a compiler for a device of `architecture` whose driver is of CUDA `driver`.
///
/// # Errors
/// Which versions do not go together, and which do.
fn target(
    (major, minor): (i32, i32),
    architectures: &[u32],
    architecture: u32,
    driver: (i32, i32),
) -> Result<Target, String> {
    let not_newer =
        |version: &str| format!("update the driver, or install NVRTC of CUDA {version} or older");
    // A driver loads machine code of its own major version and of earlier ones.
    if major > driver.0 {
        return Err(format!(
            "NVRTC {major}.{minor} makes code that a driver of CUDA {} cannot load: {}",
            driver.0,
            not_newer(&driver.0.to_string())
        ));
    }
    let oldest = architectures.first().copied().unwrap_or(u32::MAX);
    match architectures.iter().rfind(|&&it| it <= architecture) {
        Some(&found) if found == architecture => Ok(Target::Machine(found)),
        // A driver translates PTX of its own version and of earlier ones.
        Some(_) if (major, minor) > driver => {
            let driver = format!("{}.{}", driver.0, driver.1);
            Err(format!(
                "NVRTC {major}.{minor} makes no machine code for sm_{architecture}, and its PTX is \
                 newer than a driver of CUDA {driver} translates: {}",
                not_newer(&driver)
            ))
        }
        Some(&newest) => Ok(Target::Ptx(newest)),
        None => Err(format!(
            "NVRTC {major}.{minor} compiles for sm_{oldest} and newer, not for \
             sm_{architecture}: {INSTALL}"
        )),
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
struct Program {
    functions: Functions,
    handle: nvrtcProgram,
}

/// A function that writes the size of a program's text or code.
type SizeOf = unsafe extern "C" fn(nvrtcProgram, *mut usize) -> u32;
/// A function that writes that text or code.
type BytesOf = unsafe extern "C" fn(nvrtcProgram, *mut c_char) -> u32;

impl Program {
    fn new(functions: Functions, text: &CString) -> Result<Self, String> {
        let mut handle = std::ptr::null_mut();
        let (name, none) = (std::ptr::null(), std::ptr::null());
        // SAFETY: the library copies the text, which has no name and no headers.
        done(unsafe {
            (functions.nvrtcCreateProgram)(&raw mut handle, text.as_ptr(), name, 0, none, none)
        })
        .map_err(code)?;
        Ok(Self { functions, handle })
    }

    fn compile(&self, options: &[CString]) -> Result<(), Status> {
        let pointers: Vec<*const c_char> = options.iter().map(|it| it.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
        // SAFETY: the program is alive, and the options are as many strings.
        done(unsafe { (self.functions.nvrtcCompileProgram)(self.handle, count, pointers.as_ptr()) })
    }

    /// What a pair of functions says of the program.
    fn bytes(&self, size_of: SizeOf, bytes_of: BytesOf) -> Result<Vec<u8>, Status> {
        let mut size = 0;
        // SAFETY: the program is alive, and the size is written into its place.
        done(unsafe { size_of(self.handle, &raw mut size) })?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the call writes as many bytes as the call before it reported.
        done(unsafe { bytes_of(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    /// The compiler's messages.
    fn log(&self) -> String {
        let Functions { nvrtcGetProgramLogSize: size, nvrtcGetProgramLog: log, .. } =
            self.functions;
        let bytes = self.bytes(size, log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n']).to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was made once and is not used again. A failure cannot be handled
        // here.
        let _ = unsafe { (self.functions.nvrtcDestroyProgram)(&raw mut self.handle) };
    }
}

/// The library's name of a status.
fn code(status: Status) -> String {
    use nvrtcResult::*;
    let known = [
        NVRTC_ERROR_OUT_OF_MEMORY,
        NVRTC_ERROR_PROGRAM_CREATION_FAILURE,
        NVRTC_ERROR_INVALID_INPUT,
        NVRTC_ERROR_INVALID_PROGRAM,
        NVRTC_ERROR_INVALID_OPTION,
        NVRTC_ERROR_COMPILATION,
        NVRTC_ERROR_BUILTIN_OPERATION_FAILURE,
        NVRTC_ERROR_INTERNAL_ERROR,
    ];
    status.name(known.map(|it| (it as u32, it)))
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
    fn devices_get_code_that_they_and_their_drivers_can_load() {
        let [all, turing] = [&[50u32, 61, 75, 90][..], &[75, 90]];
        for (version, architectures, architecture, driver, expected) in [
            ((12, 9), all, 61, (12, 9), Ok(Target::Machine(61))),
            ((12, 9), all, 61, (12, 0), Ok(Target::Machine(61))),
            ((12, 9), all, 61, (13, 0), Ok(Target::Machine(61))),
            ((12, 9), all, 62, (12, 9), Ok(Target::Ptx(61))),
            ((12, 9), all, 121, (13, 0), Ok(Target::Ptx(90))),
            (
                (12, 9),
                all,
                62,
                (12, 4),
                Err(
                    "NVRTC 12.9 makes no machine code for sm_62, and its PTX is newer than a driver \
                     of CUDA 12.4 translates",
                ),
            ),
            ((13, 0), turing, 61, (13, 0), Err("sm_75 and newer, not for sm_61")),
            ((12, 9), all, 61, (11, 8), Err("driver of CUDA 11 cannot load")),
        ] {
            let target = target(version, architectures, architecture, driver);
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
        // A compiler of CUDA 13 begins with Turing.
        let newer = |_| Nvrtc::load(75, (i32::MAX, 0));
        let (compiler, target) = match Nvrtc::load(61, (12, 9)).or_else(newer) {
            Ok(found) => found,
            Err(reason) => {
                println!("skipped: nvrtc: {reason}");
                return;
            }
        };
        let Target::Machine(architecture) = target else { panic!("{target:?}") };
        let self_test = include_str!("../../self_test/self_test.cl");
        let laws = include_str!("../../../conformance/src/laws/programs.cl");
        for (source, kernel, sizes) in [
            (self_test, "test_fma", [8, 8, 8, 8].as_slice()),
            (laws, "all_arguments", &[8, 4, 4, 8, 4]),
        ] {
            for target in [target, Target::Ptx(architecture), Target::Machine(90)] {
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
