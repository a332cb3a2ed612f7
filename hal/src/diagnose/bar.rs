//! The part of a card's memory that the processor can address: all of it with resizable BAR.

use super::scene::Scene;
use super::{Finding, Status, gib};
use crate::amd::ids::AmdChip;
use crate::amd::sysfs::Card;

/// A measurement of a card without resizable BAR, by others and with Vulkan.
const MEASURED: &str = "https://github.com/ggml-org/llama.cpp/issues/27097";

/// Cards of whose memory the processor can address only a part.
pub(super) fn check(scene: &Scene<'_>) -> Vec<Finding> {
    let finding = |(info, card): (&crate::DeviceInfo, &Card)| {
        // An APU's memory is the host's and has no window.
        if card.chip == Some(AmdChip::Apu) {
            return None;
        }
        let telemetry = info.telemetry.as_ref()?;
        let total = telemetry.vram_total_bytes?;
        let window = window(scene, card).or(telemetry.vram_visible_bytes)?;
        // The firmware reserves a part of the memory, so a slightly smaller window is fine.
        if window >= total / 10 * 9 {
            return None;
        }
        let message = format!(
            "resizable BAR is off: the processor reaches {} MiB of {:.1} GiB at a time. Models here do \
             not need it, for weights and inputs go through copies; a Vulkan program that keeps weights \
             in that window was measured at 38 % of its speed ({MEASURED})",
            window >> 20,
            gib(total)
        );
        let fix = "switch on Above 4G Decoding and Resizable BAR in the firmware's setup, where it has them";
        Some(Finding::new(&info.id, Status::Info, message).fix(fix))
    };
    scene.amd().filter_map(finding).collect()
}

/// The size of the card's first window from the PCI core's file: `START END FLAGS` in hexadecimal.
fn window(scene: &Scene<'_>, card: &Card) -> Option<u64> {
    let text = scene.sysfs.text(&format!("{}/resource", card.folder))?;
    let mut numbers = text
        .lines()
        .next()?
        .split_whitespace()
        .map(|number| u64::from_str_radix(number.trim_start_matches("0x"), 16).ok());
    let (start, end) = (numbers.next()??, numbers.next()??);
    end.checked_sub(start)?.checked_add(1).filter(|size| *size > 1)
}

#[cfg(test)]
mod tests {
    use super::super::scene::tree;
    use super::*;

    /// The findings about a card of 8 GiB whose first window has a size.
    fn say(window: &str, visible: &str) -> Vec<Finding> {
        let folder = "sys/class/drm/card0/device";
        let paths =
            ["vendor", "device", "mem_info_vram_total", "mem_info_vis_vram_total", "resource"]
                .map(|name| format!("{folder}/{name}"));
        let texts = ["0x1002", "0x67df", "8589934592", visible, window];
        let files: Vec<(&str, &str)> = paths
            .iter()
            .map(String::as_str)
            .zip(texts)
            .filter(|(_, text)| !text.is_empty())
            .collect();
        let (_root, options) = tree(&files);
        let all = super::super::diagnose(&options);
        all.into_iter().filter(|finding| finding.message.contains("BAR")).collect()
    }

    #[test]
    fn the_window_is_what_the_bus_says_and_else_what_the_driver_says() {
        let small = "0x00000000e0000000 0x00000000efffffff 0x000000000014220c\n0x0 0x0 0x0\n";
        let large = "0x0000002000000000 0x00000021ffffffff 0x000000000014220c\n";
        for (window, visible, is_off) in [
            (small, "8589934592", true),
            (large, "268435456", false),
            ("", "268435456", true),
            ("", "8573157376", false),
            ("0x0 0x0 0x0", "268435456", true),
            ("", "", false),
        ] {
            let found = say(window, visible);
            assert_eq!(found.len(), usize::from(is_off), "{window:?} {visible}: {found:#?}");
            if let [finding] = found.as_slice() {
                assert!(finding.message.contains("256 MiB of 8.0 GiB"), "{finding:?}");
                assert!(finding.fix.is_some());
            }
        }
    }
}
