//! Installs Debian packages that a suite needs, where that is ours to do: as root, with apt.

use crate::{cmd, oclgrind, polaris};
use anyhow::{Result, bail};
use std::path::Path;

/// Makes sure that some OpenCL implementation is registered; PoCL, which runs on the CPU, is
/// enough to test against.
pub(crate) fn opencl() -> Result<()> {
    let vendors = std::fs::read_dir("/etc/OpenCL/vendors");
    if vendors.is_ok_and(|mut entries| entries.next().is_some()) {
        return Ok(());
    }
    install(&["ocl-icd-libopencl1", "pocl-opencl-icd"])
}

/// Makes sure that some Vulkan driver is registered; lavapipe, which runs on the CPU and comes with
/// Mesa's others, is enough to test against.
pub(crate) fn vulkan() -> Result<()> {
    let drivers = std::fs::read_dir("/usr/share/vulkan/icd.d");
    if drivers.is_ok_and(|mut entries| entries.next().is_some()) {
        return Ok(());
    }
    install(&["libvulkan1", "mesa-vulkan-drivers"])
}

/// Makes sure that modules of SPIR-V can be validated.
pub(crate) fn spirv() -> Result<()> {
    match cmd::capture(cmd::command("spirv-val").arg("--version")) {
        Ok(finished) if finished.ok => Ok(()),
        _ => install(&["spirv-tools"]),
    }
}

/// Makes sure that programs for other processors can be run.
pub(crate) fn qemu() -> Result<()> {
    match cmd::capture(cmd::command("qemu-x86_64").arg("--version")) {
        Ok(finished) if finished.ok => Ok(()),
        _ => install(&["qemu-user"]),
    }
}

/// Makes sure that kernels can be compiled for AMD's processors.
pub(crate) fn clang() -> Result<()> {
    let found = cmd::capture(cmd::command(polaris::CLANG).arg("--version"));
    if found.is_ok_and(|finished| finished.ok) && Path::new(polaris::LIBRARY).exists() {
        return Ok(());
    }
    install(&["clang-19", "rocm-device-libs"])
}

/// Ensures that Oclgrind, a simulator of OpenCL devices that finds races, is installed.
pub(crate) fn oclgrind() -> Result<()> {
    if Path::new(oclgrind::LIBRARY).exists() { Ok(()) } else { install(&["oclgrind"]) }
}

/// Makes sure that there is a broker for Celery.
pub(crate) fn redis() -> Result<()> {
    match cmd::capture(cmd::command("redis-server").arg("--version")) {
        Ok(finished) if finished.ok => Ok(()),
        _ => install(&["redis-server"]),
    }
}

/// Makes sure that Triton's load generator finds a library that it is linked with.
pub(crate) fn libb64() -> Result<()> {
    let found = Path::new("/usr/lib/x86_64-linux-gnu/libb64.so.0d").exists();
    if found { Ok(()) } else { install(&["libb64-0d"]) }
}

/// Ensures that the checker of Prometheus metrics is installed.
pub(crate) fn promtool() -> Result<()> {
    match cmd::capture(cmd::command("promtool").arg("--version")) {
        Ok(finished) if finished.ok => Ok(()),
        _ => install(&["prometheus"]),
    }
}

/// The library that shows programs another clock.
pub(crate) const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Makes sure that clocks can be made to jump.
pub(crate) fn faketime() -> Result<()> {
    if Path::new(FAKETIME).exists() { Ok(()) } else { install(&["faketime"]) }
}

/// Makes sure that there are links between network namespaces.
pub(crate) fn iproute() -> Result<()> {
    match cmd::capture(cmd::command("ip").arg("-V")) {
        Ok(finished) if finished.ok => Ok(()),
        _ => install(&["iproute2"]),
    }
}

/// Ensures that the checker of systemd units is installed.
pub(crate) fn systemd() -> Result<()> {
    match cmd::capture(cmd::command("systemd-analyze").arg("--version")) {
        Ok(finished) if finished.ok => Ok(()),
        _ => install(&["systemd"]),
    }
}

/// Installs the database server of the control plane, which Debian keeps out of the path.
pub(crate) fn postgresql() -> Result<()> {
    match Path::new("/usr/lib/postgresql").exists() {
        true => Ok(()),
        false => install(&["postgresql"]),
    }
}

/// Makes sure that there is a browser that a program can drive.
pub(crate) fn chromium() -> Result<()> {
    match cmd::capture(cmd::command("chromedriver").arg("--version")) {
        Ok(finished) if finished.ok => Ok(()),
        _ => install(&["chromium", "chromium-driver"]),
    }
}

/// Installs axe-core, the checker of pages' accessibility, in a version with known results.
pub(crate) fn axe() -> Result<()> {
    let folder = cmd::root().join("target/axe");
    if folder.join("node_modules/axe-core/axe.min.js").exists() {
        return Ok(());
    }
    if !cmd::capture(cmd::command("npm").arg("--version")).is_ok_and(|finished| finished.ok) {
        install(&["npm"])?;
    }
    std::fs::create_dir_all(&folder)?;
    let mut npm = cmd::command("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--prefix"])
        .arg(&folder)
        .arg("axe-core@4.14.1");
    match cmd::capture(&mut npm)?.ok {
        true => Ok(()),
        false => bail!("npm cannot install axe-core"),
    }
}

/// Installs the two servers of the control plane, and the tool that makes users in one of them.
pub(crate) fn etcd_and_nats() -> Result<()> {
    let programs = ["/usr/bin/etcd", "/usr/bin/etcdctl", "/usr/sbin/nats-server"];
    match programs.iter().all(|path| Path::new(path).exists()) {
        true => Ok(()),
        false => install(&["etcd-server", "etcd-client", "nats-server"]),
    }
}

fn install(packages: &[&str]) -> Result<()> {
    let wanted = packages.join(" ");
    if !Path::new("/etc/debian_version").exists() {
        bail!("{wanted} not found, and this is no Debian to install it on");
    }
    let user = cmd::capture(cmd::command("id").arg("-u"))?;
    if user.output.trim() != "0" {
        bail!("{wanted} not found; `apt-get install {wanted}` needs root");
    }
    let mut apt = cmd::command("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    if cmd::capture(&mut apt)?.ok {
        return Ok(());
    }
    // A fresh system has no package lists until they are fetched.
    cmd::capture(cmd::command("apt-get").arg("update"))?;
    if !cmd::capture(&mut apt)?.ok {
        bail!("apt-get cannot install {wanted}");
    }
    Ok(())
}
