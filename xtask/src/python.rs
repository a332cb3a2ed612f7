//! The Python environments of the agreement tests and of the comparison of engines, below target.
//! They never hold torch.

use crate::cmd;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// What the agreement tests import, pinned so that every machine compares with the same thing.
const PACKAGES: &[&str] =
    &["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.31.1", "tritonclient[grpc,http]==2.73.0"];

/// Frigate's detector's packages, kept apart: the others can be installed where these cannot.
const FRIGATE: &[&str] = &["numpy==2.4.6", "onnx==1.23.2", "pyzmq==27.3.0"];

/// The engines that this one is compared with, pinned so that figures stay comparable.
pub(crate) const ENGINES: &[&str] = &["numpy==2.4.6", "onnxruntime==1.31.1", "openvino==2026.4.1"];

/// The systems that the cluster is compared with.
const PEERS: &[&str] = &["ray==2.60.0", "distributed==2026.8.0", "celery[redis]==5.7.0"];

/// The queues that durable tasks are compared with.
const QUEUES: &[&str] = &["celery[redis]==5.7.0", "dramatiq[redis]==2.2.1"];

/// The servers that serving is compared with, each with the engine that runs its model.
const ML_SERVER: &[&str] = &["mlserver==1.7.1", "onnxruntime==1.31.1"];
const RAY_SERVE: &[&str] = &["ray[serve]==2.60.0", "onnxruntime==1.31.1"];
const BENTOML: &[&str] = &["bentoml==1.4.40", "onnxruntime==1.31.1"];

/// KServe's client. Its protobuf messages and those of Triton's client cannot share a process.
const KSERVE: &[&str] = &["kserve==0.21.0"];

/// A server that speaks S3.
const S3: &[&str] = &["moto[s3]==5.2.1", "flask==3.1.3", "flask-cors==6.0.2"];

/// Triton's load generator comes with this version of its client, and was linked with CUDA's runtime.
const PERF_ANALYZER: &[&str] = &["tritonclient==2.48.0", "nvidia-cuda-runtime-cu12==12.9.79"];

/// NVIDIA's compiler, of the last series that compiles for cards before sm_75.
const NVRTC: &[&str] = &["nvidia-cuda-nvrtc-cu12==12.9.86"];
const NVRTC_FOLDER: &str = "target/venv-nvrtc";

/// The schemas of Kubernetes' API, of each release up to this one.
const KUBERNETES: &[&str] = &["kubernetes-validate==1.37.0"];

/// The validators of component lists and Compose files; their schemas come along.
const DEPLOYMENT: &[&str] = &[
    "check-jsonschema==0.39.0",
    "cyclonedx-python-lib[json-validation]==11.12.0",
    "pyyaml==6.0.4",
];

/// The tools that build the package and check its types.
const MATURIN: &[&str] = &["maturin==1.16.0", "mypy==2.4.1", "numpy==2.4.6"];

/// The packages that the tests of the Python package need.
const PACKAGE: &[&str] = &["numpy==2.4.6", "pytest==9.2.0"];

/// The interpreter of the agreement tests. The first call sets the environment up.
pub(crate) fn interpreter() -> Result<PathBuf> {
    environment("target/venv", PACKAGES)
}

/// The interpreter of Frigate's detector, likewise.
pub(crate) fn frigate() -> Result<PathBuf> {
    environment("target/venv-frigate", FRIGATE)
}

/// The interpreter of the comparison of engines, likewise.
pub(crate) fn engines() -> Result<PathBuf> {
    environment("target/venv-engines", ENGINES)
}

/// The interpreter of the systems that the cluster is compared with, likewise.
pub(crate) fn peers() -> Result<PathBuf> {
    environment("target/venv-peers", PEERS)
}

/// The interpreter of the queues that durable tasks are compared with, likewise.
pub(crate) fn queues() -> Result<PathBuf> {
    environment("target/venv-queues", QUEUES)
}

/// The interpreter of MLServer, likewise.
pub(crate) fn mlserver() -> Result<PathBuf> {
    environment("target/venv-mlserver", ML_SERVER)
}

/// The interpreter of Ray Serve, likewise.
pub(crate) fn ray_serve() -> Result<PathBuf> {
    environment("target/venv-serve", RAY_SERVE)
}

/// The interpreter of BentoML, likewise.
pub(crate) fn bentoml() -> Result<PathBuf> {
    environment("target/venv-bentoml", BENTOML)
}

/// The interpreter of KServe's client, likewise.
pub(crate) fn kserve() -> Result<PathBuf> {
    environment("target/venv-kserve", KSERVE)
}

/// The interpreter of the environment with an S3 server, likewise; tests look for the server in this folder.
pub(crate) fn s3() -> Result<PathBuf> {
    environment("target/venv-s3", S3)
}

/// The interpreter of the environment with Triton's load generator, likewise.
pub(crate) fn perf_analyzer() -> Result<PathBuf> {
    environment("target/venv-perf", PERF_ANALYZER)
}

/// The interpreter that has NVIDIA's compiler, likewise.
pub(crate) fn nvrtc() -> Result<PathBuf> {
    environment(NVRTC_FOLDER, NVRTC)
}

/// The folder of NVIDIA's compiler, for programs that load it; `None` until [`nvrtc`] installs it.
pub(crate) fn nvrtc_libraries() -> Option<PathBuf> {
    libraries(&prepared(NVRTC_FOLDER, NVRTC)?, "cuda_nvrtc").ok()
}

/// The folder of libraries that one of NVIDIA's wheels brought, such as `cuda_runtime`.
pub(crate) fn libraries(python: &Path, wheel: &str) -> Result<PathBuf> {
    let ask = ["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"];
    let found = cmd::stdout(cmd::command(python).args(ask))?;
    Ok(Path::new(found.output.trim()).join("nvidia").join(wheel).join("lib"))
}

/// The interpreter that has Kubernetes' schemas, likewise.
pub(crate) fn kubernetes() -> Result<PathBuf> {
    environment("target/venv-kubernetes", KUBERNETES)
}

/// The interpreter that has the validators of deployment files, likewise.
pub(crate) fn packages() -> Result<PathBuf> {
    environment("target/venv-packages", DEPLOYMENT)
}

/// The interpreter of the environment with maturin, likewise.
pub(crate) fn maturin() -> Result<PathBuf> {
    environment("target/venv-maturin", MATURIN)
}

/// The interpreter that the Python package is installed for, likewise.
pub(crate) fn package() -> Result<PathBuf> {
    environment("target/venv-package", PACKAGE)
}

/// The file that lists an environment's packages once they are installed.
const STAMP: &str = "packages.txt";

/// The interpreter of an environment that has these packages already.
fn prepared(folder: &str, packages: &[&str]) -> Option<PathBuf> {
    let venv = cmd::root().join(folder);
    let python = venv.join("bin/python");
    let installed = std::fs::read_to_string(venv.join(STAMP)).ok()?;
    (python.exists() && installed == packages.join("\n")).then_some(python)
}

fn environment(folder: &str, packages: &[&str]) -> Result<PathBuf> {
    if let Some(python) = prepared(folder, packages) {
        return Ok(python);
    }
    let venv = cmd::root().join(folder);
    let python = venv.join("bin/python");
    let create = cmd::capture(cmd::command("python3").args(["-m", "venv"]).arg(&venv));
    if !create.is_ok_and(|finished| finished.ok) {
        bail!("`python3 -m venv` does not work here");
    }
    let mut pip = cmd::command(&python);
    // Most installed modules are never imported, so they are not compiled.
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]);
    pip.args(packages);
    let installed = cmd::capture(&mut pip)?;
    if !installed.ok {
        let why =
            installed.output.lines().rfind(|line| line.starts_with("ERROR")).map(str::to_owned);
        bail!("pip cannot install the packages: {}", why.unwrap_or_default());
    }
    std::fs::write(venv.join(STAMP), packages.join("\n"))?;
    Ok(python)
}
