//! A program's components, for scanners of known vulnerabilities: CycloneDX 1.5.

use super::{Program, Release, crates};
use crate::cmd;
use anyhow::{Context, Result};
use cargo_metadata::Package;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

/// `radeon-cluster-VERSION-x86_64-linux.cdx.json`, of one program. The test validates it by the official schema.
pub(super) fn make(release: &Release, program: &Program) -> Result<PathBuf> {
    let sums = checksums()?;
    let linked = crates::linked(program)?;
    let (own, others) = linked.split_first().context("nothing is linked")?;
    let mut components: Vec<Value> = others.iter().map(|it| component(it, &sums)).collect();
    // Rust's library is compiled already, and so is a C library that is part of the program.
    let rustc = cmd::stdout(cmd::command("rustc").arg("--version"))?.output;
    let rustc = rustc.split_whitespace().nth(1).unwrap_or_default().to_owned();
    components.push(json!({ "type": "library", "name": "rust-std", "version": rustc }));
    components.extend(program.libc.map(|name| json!({ "type": "library", "name": name })));
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "radeon-cluster",
                "name": "radeon-cluster",
                "version": own.version.to_string(),
                "licenses": licences(own),
            },
        },
        "components": components,
    });
    let path = release.out.join(format!("{}.cdx.json", release.name(program)));
    fs::write(&path, serde_json::to_vec_pretty(&document)?)?;
    Ok(path)
}

/// A crate in CycloneDX's form.
fn component(package: &Package, sums: &HashMap<(String, String), String>) -> Value {
    let (name, version) = (package.name.to_string(), package.version.to_string());
    let sum = sums.get(&(name.clone(), version.clone()));
    let mut component = json!({
        "type": "library",
        "bom-ref": format!("{name}@{version}"),
        "name": name,
        "version": version,
        "licenses": licences(package),
    });
    // Crates of this tree are in no registry.
    if let Some(sum) = sum {
        component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    component
}

/// The licence of a crate. Old manifests have a slash in place of `OR`.
fn licences(package: &Package) -> Value {
    match &package.license {
        Some(text) => json!([{ "expression": text.replace(" / ", "/").replace('/', " OR ") }]),
        None => json!([]),
    }
}

/// The checksums of crates from registries, by name and version.
fn checksums() -> Result<HashMap<(String, String), String>> {
    let lock: toml::Value = toml::from_str(&fs::read_to_string(cmd::root().join("Cargo.lock"))?)?;
    let packages = lock.get("package").and_then(|it| it.as_array()).context("no packages")?;
    let field = |it: &toml::Value, name: &str| Some(it.get(name)?.as_str()?.to_owned());
    Ok(packages
        .iter()
        .filter_map(|it| {
            Some(((field(it, "name")?, field(it, "version")?), field(it, "checksum")?))
        })
        .collect())
}
