//! Vulkan layers that are loaded into every Vulkan program; some of them have crashed programs.

use super::scene::Scene;
use super::{Finding, Status};
use serde_json::Value;

const FOLDERS: [&str; 4] = [
    "usr/share/vulkan/implicit_layer.d",
    "usr/local/share/vulkan/implicit_layer.d",
    "etc/vulkan/implicit_layer.d",
    "etc/xdg/vulkan/implicit_layer.d",
];

/// Parts of the names of layers that were found in crashes, and the report's address.
const KNOWN: &[(&str, &str)] = &[
    ("MESA_device_select", "https://github.com/ggml-org/llama.cpp/issues/10528"),
    ("OBS", "https://github.com/KhronosGroup/Vulkan-Docs/issues/2808"),
    ("VALVE_steam_overlay", "https://github.com/cjpais/Handy/issues/2049"),
];

/// Why layers without known crashes are named too.
const UNKNOWN: &str = "https://github.com/ggml-org/llama.cpp/issues/27403";

/// A layer, as its manifest describes it.
#[derive(Debug, PartialEq)]
struct Layer {
    name: String,
    /// The environment variable that switches the layer off.
    off_by: Option<String>,
    /// The environment variable without which the layer is not loaded.
    on_by: Option<String>,
}

/// Names the layers that are loaded by default, on a machine with an AMD card.
pub(super) fn check(scene: &Scene<'_>) -> Vec<Finding> {
    let loading: Vec<Layer> =
        layers(scene).into_iter().filter(|layer| layer.on_by.is_none()).collect();
    if loading.is_empty() || scene.amd().next().is_none() {
        return Vec::new();
    }
    let mut parts = Vec::new();
    let mut lines = Vec::new();
    for Layer { name, off_by, .. } in &loading {
        let known = KNOWN.iter().find(|(part, _)| name.contains(part));
        parts.push(match known {
            Some((_, source)) => format!("{name}, which was found in a crash ({source})"),
            None => name.clone(),
        });
        lines.extend(off_by.as_ref().map(|variable| format!("{variable}=1")));
    }
    let message = format!(
        "layers that load themselves into every Vulkan program: {}. OpenCL does without them; should a \
         Vulkan program crash on this card, as one did with such a layer ({UNKNOWN}), try it without",
        parts.join("; ")
    );
    lines.push("VK_LOADER_LAYERS_DISABLE=~implicit~".to_owned());
    vec![Finding::new("vulkan-layers", Status::Info, message).fix(lines.join(" "))]
}

fn layers(scene: &Scene<'_>) -> Vec<Layer> {
    let manifests = FOLDERS.iter().flat_map(|folder| {
        let names = scene.list(folder).into_iter().filter(|name| name.ends_with(".json"));
        names.map(move |name| format!("{folder}/{name}"))
    });
    let texts = manifests.filter_map(|path| scene.text(&path));
    let mut all: Vec<Layer> = texts.flat_map(|text| parse(&text)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.dedup();
    all
}

/// The layers of a manifest: one or several.
fn parse(manifest: &str) -> Vec<Layer> {
    let value: Value = serde_json::from_str(manifest).unwrap_or_default();
    let several = value["layers"].as_array().cloned().unwrap_or_default();
    let one = Some(value["layer"].clone()).filter(Value::is_object);
    let variable = |layer: &Value, key: &str| Some(layer[key].as_object()?.keys().next()?.clone());
    let layer = |layer: Value| {
        Some(Layer {
            name: layer["name"].as_str()?.to_owned(),
            off_by: variable(&layer, "disable_environment"),
            on_by: variable(&layer, "enable_environment"),
        })
    };
    several.into_iter().chain(one).filter_map(layer).collect()
}

#[cfg(test)]
mod tests {
    use super::super::scene::tree;
    use super::*;
    use crate::probe::ProbeOptions;
    use std::path::Path;

    const SELECT: &str = r#"{"file_format_version":"1.0.0","layer":{"name":"VK_LAYER_MESA_device_select",
        "disable_environment":{"NODEVICE_SELECT":"1"}}}"#;
    const HUD: &str = r#"{"layer":{"name":"VK_LAYER_MANGOHUD_overlay","enable_environment":
        {"MANGOHUD":"1"},"disable_environment":{"DISABLE_MANGOHUD":"1"}}}"#;
    const TWO: &str = r#"{"layers":[{"name":"VK_LAYER_a","disable_environment":{"NO_A":"1"}},
        {"name":"VK_LAYER_b"},{"odd":1}]}"#;

    fn say(host: &str, files: &[(&str, &str)]) -> Vec<Finding> {
        let (_root, options) = tree(files);
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let options = ProbeOptions { sysfs_root: fixtures.join(host), ..options };
        let all = super::super::diagnose(&options);
        all.into_iter().filter(|finding| finding.subject == "vulkan-layers").collect()
    }

    #[test]
    fn layers_that_load_by_themselves_are_named_with_what_switches_them_off() {
        let folder = "usr/share/vulkan/implicit_layer.d";
        let paths = ["select.json", "hud.json", "odd.txt"].map(|name| format!("{folder}/{name}"));
        let [select, hud, odd] = paths.each_ref().map(String::as_str);
        let files = [
            (select, SELECT),
            (hud, HUD),
            (odd, SELECT),
            ("etc/vulkan/implicit_layer.d/2.json", TWO),
        ];
        let found = say("rx580", &files);
        let [finding] = found.as_slice() else { panic!("{found:#?}") };
        let fix = finding.fix.as_deref().expect("a line");
        assert_eq!(fix, "NODEVICE_SELECT=1 NO_A=1 VK_LOADER_LAYERS_DISABLE=~implicit~");
        for part in ["issues/10528", "VK_LAYER_a", "VK_LAYER_b", "issues/27403"] {
            assert!(finding.message.contains(part), "{part}: {finding:?}");
        }
        assert!(!finding.message.contains("MANGOHUD"), "it waits to be switched on: {finding:?}");
        assert_eq!(say("no-drm", &files), [], "no card is concerned");
        assert_eq!(say("rx580", &[(hud, HUD), (select, "{")]), []);
    }
}
