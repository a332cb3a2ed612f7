//! Facts about the processor from itself and from the kernel: name, features, cores, memory.

use super::simd::SimdLevel;
use crate::backend::host::HostBuffer;
use crate::caps::{Caps, DeviceKind};
use std::path::{Path, PathBuf};

/// Facts about the host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CpuFacts {
    /// The brand, as the processor reports it.
    pub(crate) name: String,
    /// The maker.
    pub(crate) vendor: String,
    /// Threads that this process may use.
    pub(crate) cores: u32,
    /// All memory that this process may use.
    pub(crate) memory_bytes: Option<u64>,
    /// SIMD and dot-product features.
    pub(crate) features: Vec<String>,
    /// The instruction set that the self-test and the kernels use.
    pub(crate) level: SimdLevel,
}

impl CpuFacts {
    /// Reads the facts from the processor and the kernel.
    pub(crate) fn read() -> Self {
        let (name, vendor) = brand();
        Self {
            name,
            vendor,
            cores: std::thread::available_parallelism()
                .map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX)),
            memory_bytes: memory_bytes(),
            features: features(),
            level: SimdLevel::best(),
        }
    }

    /// The facts as capabilities.
    pub(crate) fn caps(&self) -> Caps {
        Caps {
            kind: DeviceKind::Cpu,
            vendor: self.vendor.clone(),
            driver: format!("native code, {}", self.level),
            compute_units: self.cores,
            memory_bytes: self.memory_bytes,
            allocation_bytes_max: self.memory_bytes,
            alignment_bytes: HostBuffer::ALIGNMENT as u32,
            unified_memory: true,
            features: self.features.clone(),
            ..Caps::default()
        }
    }
}

/// Brand and vendor of the processor.
#[cfg(target_arch = "x86_64")]
fn brand() -> (String, String) {
    let cpuid = raw_cpuid::CpuId::new();
    let vendor =
        cpuid.get_vendor_info().map_or_else(String::new, |vendor| vendor.as_str().to_owned());
    let brand = cpuid.get_processor_brand_string();
    let name = brand.map_or_else(|| "x86-64 processor".to_owned(), |it| it.as_str().trim().into());
    (name, vendor)
}

/// Brand and vendor of the processor, which only x86 reports to programs.
#[cfg(not(target_arch = "x86_64"))]
fn brand() -> (String, String) {
    (format!("{} processor", std::env::consts::ARCH), String::new())
}

/// The features that matter to kernels. The standard library also checks that the operating system
/// saves the registers; raw-cpuid adds features that the library cannot detect.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<String> {
    let cpuid = raw_cpuid::CpuId::new();
    let avx_vnni = cpuid.get_extended_feature_info().is_some_and(|info| info.has_avx_vnni());
    let table = [
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx", is_x86_feature_detected!("avx")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx-vnni", avx_vnni && is_x86_feature_detected!("avx2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512-vnni", is_x86_feature_detected!("avx512vnni")),
        ("avx512-bf16", is_x86_feature_detected!("avx512bf16")),
    ];
    table.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()).collect()
}

/// The features that matter to kernels.
#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<String> {
    Vec::new()
}

/// The machine's memory, or the container's share of it.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = meminfo_bytes(&text, "MemTotal:")?;
    let limits = groups().into_iter().filter_map(|group| group_bytes(&group, "memory.max"));
    Some(limits.fold(total, u64::min))
}

/// The part of the memory that programs can still take, including memory that the kernel would free
/// for them.
pub(crate) fn free_bytes() -> Option<u64> {
    free_of(&std::fs::read_to_string("/proc/meminfo").ok()?, 0)
}

/// The bytes that this process can still allocate before the system is out of memory, including
/// swap; `None` where the system does not report them.
#[must_use]
pub fn host_free_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    free_of(&text, meminfo_bytes(&text, "SwapFree:").unwrap_or(0))
}

/// The free bytes by `/proc/meminfo` and `swap`, limited by the share of this process's container.
fn free_of(meminfo: &str, swap: u64) -> Option<u64> {
    let free = meminfo_bytes(meminfo, "MemAvailable:")?.saturating_add(swap);
    Some(groups().iter().filter_map(|group| free_in(group)).fold(free, u64::min))
}

/// The rest of a group's limit; `None` where the group has none.
fn free_in(group: &Path) -> Option<u64> {
    let limit = group_bytes(group, "memory.max")?;
    let used = group_bytes(group, "memory.current")?;
    let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    Some(limit.saturating_sub(used.saturating_sub(cached_bytes(&stat))))
}

/// Bytes of files and of the kernel that count as used by a container and are released when
/// programs need them.
fn cached_bytes(stat: &str) -> u64 {
    let files = stat.lines().filter_map(|line| line.split_once(' '));
    let files = files
        .filter(|(name, _)| matches!(*name, "active_file" | "inactive_file" | "slab_reclaimable"));
    files.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum()
}

/// A number in a file of a group; `None` where the file has none, as without a limit.
fn group_bytes(group: &Path, file: &str) -> Option<u64> {
    std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

/// The folders of this process's control group and of the groups around it, each of which may have
/// a limit.
fn groups() -> Vec<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    groups_of(&own)
}

/// The folders by the text of `/proc/self/cgroup`.
fn groups_of(own: &str) -> Vec<PathBuf> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let root = Path::new("/sys/fs/cgroup");
    Path::new(own).ancestors().map(|group| root.join(group)).collect()
}

/// A line of `/proc/meminfo` in bytes.
fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_memory_can_be_given_up() {
        let stat = "anon 4096\nfile 900\ninactive_file 600\nactive_file 200\nslab x\n";
        assert_eq!(cached_bytes(stat), 800);
        assert_eq!(cached_bytes(""), 0);
    }

    #[test]
    fn a_limit_may_be_that_of_a_group_around() {
        let root = Path::new("/sys/fs/cgroup");
        let all = groups_of("1:cpu:/x\n0::/a/b.scope\n");
        assert_eq!(all, [root.join("a/b.scope"), root.join("a"), root.to_owned()]);
        for none in ["", "0::/\n", "4:memory:/x\n"] {
            assert_eq!(groups_of(none), [root]);
        }
        let group = tempfile::tempdir().expect("a folder");
        let write = |file, text| std::fs::write(group.path().join(file), text).expect("written");
        write("memory.max", "max\n");
        write("memory.current", "900\n");
        assert_eq!(free_in(group.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(free_in(group.path()), Some(100));
        write("memory.stat", "anon 500\ninactive_file 300\nslab_reclaimable 50\n");
        assert_eq!(free_in(group.path()), Some(450));
    }

    #[test]
    fn meminfo_is_read_in_bytes() {
        let text = "MemTotal:       24684092 kB\nMemFree:        21093340 kB\n";
        assert_eq!(meminfo_bytes(text, "MemTotal:"), Some(24_684_092 * 1024));
        assert_eq!(meminfo_bytes(text, "MemFree:"), Some(21_093_340 * 1024));
        for text in ["", "MemTotal: x kB", "MemTotal: 1 MB", "MemFree: 1 kB"] {
            assert_eq!(meminfo_bytes(text, "MemTotal:"), None, "{text:?}");
        }
        assert_eq!(meminfo_bytes(&format!("MemTotal: {} kB", u64::MAX), "MemTotal:"), None);
    }

    #[test]
    fn free_memory_is_part_of_all_memory() {
        if let (Some(free), Some(all)) = (free_bytes(), memory_bytes()) {
            assert!((1..=all).contains(&free), "{free} of {all}");
            assert!(host_free_bytes().is_some());
        }
    }

    #[test]
    fn the_host_has_a_name_and_cores() {
        let facts = CpuFacts::read();
        assert!(!facts.name.is_empty());
        assert!(facts.cores > 0);
        assert_eq!(facts, CpuFacts::read(), "asking twice gives the same answer");
    }
}
