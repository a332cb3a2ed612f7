//! The allowed dependencies between packages, and the fences around third parties.

use cargo_metadata::Metadata;

/// The packages from the ground up. A package may use those of earlier rows; packages in the same
/// row may not use each other.
const LAYERS: &[&[&str]] = &[
    &["lgp-portable"],
    &["lgp-hal", "xtask", "example-client"],
    &["lgp-memory", "lgp-hal-conformance"],
    &["lgp-compute"],
    &["lgp-inference"],
    &["lgp-research", "lgp-distributed", "lgp-measure", "lgp-common"],
    &["lgp-sdk", "lgp-distributed-sim"],
    &["lgp-server", "lgp-python"],
    &["lgp-cli"],
];

/// Third parties (by name or first part of it) and the packages that may use them.
const FENCES: &[(&[&str], &[&str])] = &[
    (
        &["tokio", "quinn"],
        &["lgp-distributed", "lgp-distributed-sim", "lgp-sdk", "lgp-server", "lgp-cli"],
    ),
    (&["candle"], &["lgp-research"]),
    (&["anyhow"], &["lgp-cli", "lgp-hal-conformance", "xtask"]),
    (&["async-nats", "postgres"], &["lgp-distributed"]),
];

/// The crate that drives devices: what it uses optionally are libraries of devices, behind a fence.
const DEVICES: &str = "lgp-hal";
/// The packages that may name a backend's feature: the one that has it, and the program.
const CHOOSING: &[&str] = &[DEVICES, "lgp-cli"];

/// A package's dependencies.
#[derive(Debug, Clone)]
pub(super) struct Package {
    name: String,
    dependencies: Vec<Dependency>,
    features: Vec<String>,
}

#[derive(Debug, Clone)]
struct Dependency {
    name: String,
    defaults: bool,
    dev: bool,
    optional: bool,
}

/// The workspace's packages.
pub(super) fn packages(metadata: &Metadata) -> Vec<Package> {
    let package = |package: &&cargo_metadata::Package| Package {
        name: package.name.to_string(),
        dependencies: package.dependencies.iter().map(dependency).collect(),
        features: package.features.keys().cloned().collect(),
    };
    metadata.workspace_packages().iter().map(package).collect()
}

fn dependency(dependency: &cargo_metadata::Dependency) -> Dependency {
    Dependency {
        name: dependency.name.clone(),
        defaults: dependency.uses_default_features,
        dev: dependency.kind == cargo_metadata::DependencyKind::Development,
        optional: dependency.optional,
    }
}

/// Complaints about edges between `packages` and through fences, and about features that bring
/// `backends` where they are only to be passed on together.
pub(super) fn check(packages: &[Package], backends: &[String]) -> Vec<String> {
    let row = |name: &str| LAYERS.iter().position(|row| row.contains(&name));
    let devices = packages.iter().filter(|package| package.name == DEVICES);
    let libraries = devices.flat_map(|package| &package.dependencies);
    let foreign = |dependency: &&Dependency| row(&dependency.name).is_none();
    let libraries = libraries.filter(|dependency| dependency.optional).filter(foreign);
    let libraries: Vec<&str> = libraries.map(|dependency| dependency.name.as_str()).collect();
    let mut complaints = Vec::new();
    for Package { name, dependencies, features } in packages {
        let choosing = CHOOSING.contains(&name.as_str());
        let named = features.iter().filter(|feature| !choosing && backends.contains(feature));
        complaints.extend(named.map(|feature| {
            format!("{name} names the feature {feature}; only {} do", CHOOSING.join(" and "))
        }));
        let Some(own) = row(name) else {
            complaints.push(format!("{name} has no row in LAYERS"));
            continue;
        };
        for dependency in dependencies {
            let to = &dependency.name;
            match row(to) {
                Some(other) if other >= own => {
                    complaints.push(format!("{name} uses {to}, which is not below it"));
                }
                Some(_) if dependency.defaults => {
                    complaints.push(format!("{name} uses {to} with its default features"));
                }
                _ => {}
            }
            complaints.extend(fenced(name, dependency, &libraries));
        }
    }
    complaints
}

fn fenced(package: &str, dependency: &Dependency, libraries: &[&str]) -> Option<String> {
    // Tests may report errors as they like.
    if dependency.dev && dependency.name == "anyhow" {
        return None;
    }
    let matches = |prefix: &str| {
        dependency.name == prefix || dependency.name.starts_with(&format!("{prefix}-"))
    };
    let complaint = || format!("{package} uses {}, which is fenced off from it", dependency.name);
    if libraries.contains(&dependency.name.as_str()) {
        return (package != DEVICES).then(complaint);
    }
    let fence = FENCES.iter().find(|(names, _)| names.iter().any(|name| matches(name)))?;
    (!fence.1.contains(&package)).then(complaint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, to: &str, defaults: bool) -> Package {
        let dependency = Dependency { name: to.into(), defaults, dev: false, optional: false };
        Package { name: name.into(), dependencies: vec![dependency], features: vec![] }
    }

    /// A package that uses another one, beside that of devices.
    fn uses(name: &str, to: &str, defaults: bool) -> Vec<Package> {
        let mut devices = package(DEVICES, "opencl3", true);
        devices.dependencies[0].optional = true;
        vec![package(name, to, defaults), devices]
    }

    #[test]
    fn edges_point_down() {
        let cases = [
            ("lgp-memory", "lgp-hal", false, None),
            ("lgp-cli", "lgp-research", false, None),
            ("lgp-inference", "lgp-research", false, Some("not below it")),
            ("lgp-research", "lgp-distributed", false, Some("not below it")),
            ("lgp-distributed", "lgp-research", false, Some("not below it")),
            ("lgp-hal", "lgp-memory", false, Some("not below it")),
            ("lgp-memory", "lgp-hal", true, Some("default features")),
            ("lgp-newcomer", "lgp-hal", false, Some("no row in LAYERS")),
            ("lgp-distributed", "tokio", true, None),
            ("lgp-inference", "tokio", true, Some("fenced off")),
            ("lgp-compute", "quinn-proto", true, Some("fenced off")),
            ("lgp-inference", "candle-core", true, Some("fenced off")),
            ("lgp-compute", "opencl3", true, Some("fenced off")),
            ("lgp-server", "anyhow", true, Some("fenced off")),
        ];
        for (from, to, defaults, wanted) in cases {
            let complaints = check(&uses(from, to, defaults), &[]);
            match wanted {
                None => assert!(complaints.is_empty(), "{complaints:?}"),
                Some(text) => {
                    assert!(
                        complaints.len() == 1 && complaints[0].contains(text),
                        "{from} → {to}: {complaints:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn tests_may_use_anyhow() {
        let mut packages = uses("lgp-server", "anyhow", true);
        packages[0].dependencies[0].dev = true;
        assert!(check(&packages, &[]).is_empty());
    }

    #[test]
    fn backends_are_chosen_in_two_places() {
        for (name, feature, complains) in [
            ("lgp-hal", "cuda", false),
            ("lgp-cli", "cuda", false),
            ("lgp-memory", "cuda", true),
            ("lgp-memory", "default", false),
            ("lgp-sdk", "scale", false),
        ] {
            let features = vec![feature.to_owned()];
            let package = Package { name: name.into(), dependencies: vec![], features };
            let complaints = check(&[package], &["cpu".to_owned(), "cuda".to_owned()]);
            assert_eq!(!complaints.is_empty(), complains, "{name} {feature}: {complaints:?}");
        }
    }
}
