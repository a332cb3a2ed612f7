//! Sets Mesa's OpenCL and Vulkan up below target, with a simulated graphics card.
//!
//! The drivers are Debian's, unpacked into their own root. For OpenCL the card is Mesa's drm-shim: it answers a
//! program's requests to the kernel like an RX 580, and executes nothing. The Vulkan driver simulates one itself.

use crate::cmd;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The first release of Debian whose Mesa has rusticl with radeonsi.
const SUITE: &str = "trixie";
const SOURCES: &str = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
    http://deb.debian.org/debian";
/// The drivers with their dependencies, a loader of each, and headers for the shim.
const PACKAGES: &[&str] = &[
    "mesa-opencl-icd",
    "ocl-icd-libopencl1",
    "mesa-vulkan-drivers",
    "libvulkan1",
    "libc6",
    "libdrm-dev",
];
/// The source files of Mesa's shim, and of the utilities that the shim calls.
const SHIM: &[&str] = &[
    "src/drm-shim/device.c",
    "src/drm-shim/drm_shim.c",
    "src/amd/drm-shim/amdgpu_noop_drm_shim.c",
    "src/amd/drm-shim/amdgpu_devices.c",
    "src/c11/impl/threads_posix.c",
    "src/c11/impl/time.c",
    "src/util/anon_file.c",
    "src/util/blob.c",
    "src/util/hash_table.c",
    "src/util/log.c",
    "src/util/memstream.c",
    "src/util/os_file.c",
    "src/util/os_misc.c",
    "src/util/os_time.c",
    "src/util/ralloc.c",
    "src/util/set.c",
    "src/util/simple_mtx.c",
    "src/util/u_call_once.c",
    "src/util/u_debug.c",
    "src/util/u_printf.c",
    "src/util/u_process.c",
    "src/util/vma.c",
];
/// The definitions that Mesa's build makes for these files on Linux.
const DEFINES: &[&str] = &[
    "NDEBUG",
    "_GNU_SOURCE",
    "HAVE_PTHREAD",
    "HAVE_STRUCT_TIMESPEC",
    "HAVE_ENDIAN_H",
    "HAVE_FUNC_ATTRIBUTE_PACKED",
    "HAVE___BUILTIN_CLZ",
    "HAVE___BUILTIN_CLZLL",
    "HAVE_SECURE_GETENV",
    "HAVE_MEMFD_CREATE",
    "HAVE_PROGRAM_INVOCATION_NAME",
    "UTIL_ARCH_LITTLE_ENDIAN=1",
    "UTIL_ARCH_BIG_ENDIAN=0",
    "MESA_DEBUG=0",
    "PACKAGE_VERSION=\"\"",
];
/// The program that calls OpenCL, in the root, and the one that calls Vulkan.
const PROGRAM: &str = "compile";
const ASKER: &str = "aco";
const VULKAN: &str = "usr/share/vulkan/icd.d/radeon_icd.json";

/// A root folder in which Mesa finds a card.
pub(super) struct Mesa(PathBuf);

impl Mesa {
    /// Unpacks and builds on the first call. It takes root, Debian's servers and a C compiler.
    pub(super) fn install() -> Result<Self> {
        let home = cmd::root().join("target/xtask/mesa");
        let root = home.join("root");
        if !root.join(PROGRAM).exists() || !root.join(VULKAN).exists() {
            let user = cmd::capture(cmd::command("id").arg("-u"))?;
            if user.output.trim() != "0" {
                bail!("a root folder of its own for Mesa needs root");
            }
            if home.exists() {
                std::fs::remove_dir_all(&home)?;
            }
            unpack(&home, &root)?;
            build(&home.join("source"), &root)?;
        }
        Ok(Self(root))
    }

    /// The drivers' version, as their package tells.
    pub(super) fn version(&self) -> Result<String> {
        let packages = std::fs::read_dir(self.0.join("../apt/archives"))?.flatten();
        let names = packages.filter_map(|entry| entry.file_name().into_string().ok());
        let own = names.filter_map(|name| Some(name.strip_prefix("mesa-opencl-icd_")?.to_owned()));
        own.last().context("no package mesa-opencl-icd").map(|name| name.replace("_amd64.deb", ""))
    }

    /// Compiles kernels for an RX 580 through OpenCL; answers the driver's output.
    pub(super) fn opencl(&self, files: &[(String, String)]) -> Result<String> {
        let mut chroot = self.program(PROGRAM, files)?;
        chroot.env("AMDGPU_GPU_ID", "polaris10").env("RUSTICL_ENABLE", "radeonsi");
        chroot.env("OCL_ICD_VENDORS", "/etc/OpenCL/vendors/rusticl.icd");
        // Statistics come with the listing alone; kernels of OpenCL get one by the option alone.
        chroot.env("AMD_DEBUG", "cs,asm").env("radeonsi_debug_disassembly", "true");
        output(&mut chroot, "OpenCL")
    }

    /// Compiles kernels for a chip through Vulkan by `asker`; answers its output.
    pub(super) fn vulkan(
        &self,
        asker: &Path,
        chip: &str,
        files: &[(String, String)],
    ) -> Result<String> {
        std::fs::copy(asker, self.0.join(ASKER))?;
        let mut chroot = self.program(ASKER, files)?;
        chroot.env("RADV_FORCE_FAMILY", chip).env("VK_DRIVER_FILES", format!("/{VULKAN}"));
        output(&mut chroot, "Vulkan")
    }

    /// A program of the root, to be run with a folder of these files.
    fn program(&self, name: &str, files: &[(String, String)]) -> Result<Command> {
        let kernels = self.0.join("kernels");
        if kernels.exists() {
            std::fs::remove_dir_all(&kernels)?;
        }
        std::fs::create_dir(&kernels)?;
        for (name, text) in files {
            std::fs::write(kernels.join(name), text)?;
        }
        let mut chroot = cmd::command("chroot");
        chroot.arg(&self.0).args([format!("/{name}").as_str(), "/kernels"]);
        // Only what is compiled now is told.
        chroot.env("MESA_SHADER_CACHE_DISABLE", "1");
        Ok(chroot)
    }
}

fn output(chroot: &mut Command, of: &str) -> Result<String> {
    let finished = cmd::capture(chroot)?;
    if !finished.ok {
        let tail: Vec<&str> = finished.output.lines().rev().take(5).collect();
        bail!("Mesa's {of} ended with a failure: {tail:?}");
    }
    Ok(finished.output)
}

/// Packages and source, without touching what is installed here.
fn unpack(home: &Path, root: &Path) -> Result<()> {
    let apt = home.join("apt");
    for folder in ["lists/partial", "archives/partial", "parts"] {
        std::fs::create_dir_all(apt.join(folder))?;
    }
    let list = format!("deb {SOURCES} {SUITE} main\ndeb-src {SOURCES} {SUITE} main\n");
    std::fs::write(apt.join("sources.list"), list)?;
    std::fs::write(apt.join("status"), "")?;
    let get = |arguments: &[&str], at: &Path| {
        let mut command = cmd::command("apt-get");
        command.current_dir(at).env("DEBIAN_FRONTEND", "noninteractive");
        for (name, path) in [
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::Etc::sourceparts", "parts"),
            ("Dir::Etc::preferencesparts", "parts"),
            ("Dir::State::lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", ""),
        ] {
            command.arg("-o").arg(format!("{name}={}", apt.join(path).display()));
        }
        cmd::run(command.arg("--quiet=2").args(arguments))
    };
    get(&["update"], home)?;
    let install = ["install", "--yes", "--no-install-recommends", "--download-only"];
    get(&[&install, PACKAGES].concat(), home)?;
    get(&["source", "--download-only", "mesa"], home)?;
    // The packages expect /bin and others to be links into /usr.
    for folder in ["bin", "lib", "lib64", "sbin"] {
        std::fs::create_dir_all(root.join("usr").join(folder))?;
        std::os::unix::fs::symlink(Path::new("usr").join(folder), root.join(folder))?;
    }
    for package in files(&apt.join("archives"), "deb")? {
        cmd::run(cmd::command("dpkg").arg("-x").arg(package).arg(root))?;
    }
    // The shim opens /dev/null in place of the card.
    std::fs::create_dir_all(root.join("dev"))?;
    cmd::run(cmd::command("mknod").arg(root.join("dev/null")).args(["c", "1", "3"]))?;
    let source = home.join("source");
    std::fs::create_dir_all(&source)?;
    let archives = files(home, "xz")?.into_iter();
    let mut original = archives.filter(|path| path.to_string_lossy().contains(".orig."));
    let original = original.next_back().context("no source of Mesa was fetched")?;
    let mut tar = cmd::command("tar");
    tar.arg("-xf").arg(original).arg("-C").arg(source).arg("--strip-components=1");
    cmd::run(&mut tar)
}

/// Links the program and the shim into one file, whose symbols take precedence over the C
/// library's.
fn build(source: &Path, root: &Path) -> Result<()> {
    let mut cc = Command::new("cc");
    cc.current_dir(source).args(["-rdynamic", "-O1", "-w", "-fvisibility=hidden"]);
    cc.args(DEFINES.iter().map(|define| format!("-D{define}")));
    cc.args(["-Iinclude", "-Isrc", "-Isrc/amd", "-Isrc/util"]);
    cc.arg("-I").arg(root.join("usr/include")).arg("-I").arg(root.join("usr/include/libdrm"));
    cc.arg(cmd::root().join("xtask/src/cards/compile.c")).args(SHIM);
    cmd::run(cc.arg("-o").arg(root.join(PROGRAM)).args(["-lpthread", "-ldl", "-lm"]))
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    Ok(entries.filter(|path| path.extension() == Some(OsStr::new(extension))).collect())
}
