//! Who may depend on whom, and which third parties stay behind which fence.

use cargo_metadata::Metadata;

/// The packages from the ground up. Each may use those of earlier rows; what shares a row does not
/// see each other.
const LAYERS: &[&[&str]] = &[
    &["lgp-hal", "xtask", "example-client"],
    &["lgp-memory", "lgp-hal-conformance"],
    &["lgp-compute"],
    &["lgp-inference"],
    &["lgp-research", "lgp-distributed"],
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
    (&["opencl3", "cudarc"], &["lgp-hal"]),
    (&["async-nats", "postgres"], &["lgp-distributed"]),
];

/// What a package has to do with others.
#[derive(Debug, Clone)]
pub(super) struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone)]
struct Dependency {
    name: String,
    defaults: bool,
    dev: bool,
}

/// The workspace's packages.
pub(super) fn packages(metadata: &Metadata) -> Vec<Package> {
    let package = |package: &&cargo_metadata::Package| Package {
        name: package.name.to_string(),
        dependencies: package.dependencies.iter().map(dependency).collect(),
    };
    metadata.workspace_packages().iter().map(package).collect()
}

fn dependency(dependency: &cargo_metadata::Dependency) -> Dependency {
    Dependency {
        name: dependency.name.clone(),
        defaults: dependency.uses_default_features,
        dev: dependency.kind == cargo_metadata::DependencyKind::Development,
    }
}

/// Complaints about edges between `packages` and through fences.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    let row = |name: &str| LAYERS.iter().position(|row| row.contains(&name));
    let mut complaints = Vec::new();
    for Package { name, dependencies } in packages {
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
            complaints.extend(fenced(name, dependency));
        }
    }
    complaints
}

fn fenced(package: &str, dependency: &Dependency) -> Option<String> {
    // A test may report its errors as it likes.
    if dependency.dev && dependency.name == "anyhow" {
        return None;
    }
    let matches = |prefix: &str| {
        dependency.name == prefix || dependency.name.starts_with(&format!("{prefix}-"))
    };
    let fence = FENCES.iter().find(|(names, _)| names.iter().any(|name| matches(name)))?;
    let complaint = || format!("{package} uses {}, which is fenced off from it", dependency.name);
    (!fence.1.contains(&package)).then(complaint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(name: &str, to: &str, defaults: bool) -> Vec<Package> {
        let dependency = Dependency { name: to.into(), defaults, dev: false };
        vec![Package { name: name.into(), dependencies: vec![dependency] }]
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
            let complaints = check(&uses(from, to, defaults));
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
        assert!(check(&packages).is_empty());
    }
}
