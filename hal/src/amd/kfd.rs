//! The nodes of AMD's compute driver (KFD): the instruction set and sizes of a card. Polaris on a
//! board without PCIe atomics has no node, and still works through `/dev/dri`.

/// One GPU node of the compute driver.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct KfdNode {
    /// The instruction set, as compilers name it: `gfx803`.
    pub gfx: String,
    /// SIMD units; four make a compute unit on GCN.
    pub simd_count: u64,
    /// Work-items that run in lock-step.
    pub wave: u64,
    /// Local memory of a compute unit.
    pub local_memory_kib: u64,
    /// The minor number of its render node: 128 is `/dev/dri/renderD128`.
    pub render_minor: u64,
    /// Whether the node is also a processor: an APU.
    pub has_cpu: bool,
}

/// A GPU node's properties; `None` for a node without SIMD units, which is a processor.
pub(crate) fn parse(text: &str) -> Option<KfdNode> {
    let number = |key: &str| -> Option<u64> {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            (name == key).then(|| value.trim().parse().ok())?
        })
    };
    let simd_count = number("simd_count").filter(|&count| count > 0)?;
    Some(KfdNode {
        gfx: gfx_name(number("gfx_target_version")?),
        simd_count,
        wave: number("wave_front_size").unwrap_or(64),
        local_memory_kib: number("lds_size_in_kb").unwrap_or(0),
        render_minor: number("drm_render_minor")?,
        has_cpu: number("cpu_cores_count").unwrap_or(0) > 0,
    })
}

/// 80003 is gfx803: decimal major, minor and stepping, the last two written in hexadecimal.
fn gfx_name(version: u64) -> String {
    format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_sets_are_named_as_compilers_do() {
        for (version, name) in
            [(80_003, "gfx803"), (90_000, "gfx900"), (90_010, "gfx90a"), (100_302, "gfx1032")]
        {
            assert_eq!(gfx_name(version), name);
        }
    }

    #[test]
    fn only_nodes_with_simd_units_are_cards() {
        let gpu = "cpu_cores_count 0\nsimd_count 144\nwave_front_size 64\nlds_size_in_kb 64\n\
                   gfx_target_version 80003\ndrm_render_minor 128\n";
        let node = parse(gpu).expect("a card");
        assert_eq!((node.gfx.as_str(), node.simd_count, node.wave), ("gfx803", 144, 64));
        assert_eq!((node.local_memory_kib, node.render_minor, node.has_cpu), (64, 128, false));
        assert_eq!(parse("cpu_cores_count 8\nsimd_count 0\n"), None);
        assert_eq!(parse("simd_count many\n"), None);
        assert_eq!(parse(""), None);
    }
}
