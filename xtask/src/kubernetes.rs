//! Renders the manifests below `deploy/kubernetes` as an administrator would, and checks them without a cluster.

use crate::report::{Outcome, Skip};
use crate::{cmd, python, step};
use anyhow::{Result, ensure};
use std::fs;
use std::path::PathBuf;

/// Renders every folder with a kustomization, and checks the result.
pub(crate) fn suite() -> Result<Outcome> {
    let found = cmd::capture(cmd::command("kubectl").args(["version", "--client"]));
    if !found.is_ok_and(|finished| finished.ok) {
        let reason = "kubectl is not installed; https://kubernetes.io/docs/tasks/tools says how";
        return Ok(Outcome::skip(Skip::new("kubectl", reason)));
    }
    let rendered = cmd::root().join("target/xtask/kubernetes");
    fs::create_dir_all(&rendered)?;
    let mut outcome = Outcome::default();
    let mut files = vec![cmd::root().to_string_lossy().into_owned()];
    for folder in folders()? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let shown = cmd::stdout(cmd::command("kubectl").arg("kustomize").arg(&folder))?;
        if !shown.ok {
            outcome.failed.push(format!("kubectl kustomize does not render {name}"));
            continue;
        }
        outcome.passed += 1;
        let file = rendered.join(format!("{name}.yaml"));
        fs::write(&file, shown.output)?;
        files.push(file.to_string_lossy().into_owned());
    }
    let arguments: Vec<&str> = files.iter().map(String::as_str).collect();
    outcome.and(step::script(python::kubernetes(), "deploy/tests/manifests.py", &arguments)?);
    Ok(outcome)
}

/// Folders with a kustomization: bases and overlays.
fn folders() -> Result<Vec<PathBuf>> {
    let top = cmd::root().join("deploy/kubernetes");
    let mut found = Vec::new();
    for folder in [&top, &top.join("overlays")] {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.join("kustomization.yaml").exists() {
                found.push(path);
            }
        }
    }
    found.sort();
    ensure!(found.len() > 2, "there are no overlays below {}", top.display());
    Ok(found)
}
