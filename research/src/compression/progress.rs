//! Finished stages on disk, so that a pipeline that was ended goes on where it was.

use super::ledger::Stage;
use super::samples::Samples;
use crate::error::{Error, Result};
use lgp_inference::Model;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

const STATE: &str = "stages.json";

/// The file of the model after so many stages. The stages that name it are written after it, so an
/// interruption between the two leaves the earlier stages with the earlier model.
fn model_file(stages: usize) -> String {
    format!("after-{stages}.onnx")
}

/// The folder of a pipeline's progress; without one nothing is kept.
#[derive(Debug)]
pub(crate) struct Progress {
    folder: Option<PathBuf>,
    key: String,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    /// The original model and the settings: another key's stages are not gone on with.
    key: String,
    stages: Vec<Stage>,
}

impl Progress {
    /// The progress of this model on these samples with these settings, which are told apart by
    /// their text.
    ///
    /// # Errors
    /// A model that cannot be written.
    pub(crate) fn new(
        folder: Option<&Path>,
        model: &Model,
        samples: &Samples,
        settings: &str,
    ) -> Result<Self> {
        let Some(folder) = folder else { return Ok(Self { folder: None, key: String::new() }) };
        let mut digest = Sha256::new_with_prefix(model.to_onnx()?);
        for part in [&samples.calibration, &samples.evaluation] {
            for input in part.runs.iter().flatten() {
                digest.update(format!("{} {:?}", input.name, input.tensor.shape()));
                digest.update(input.tensor.as_bytes());
            }
            digest.update(format!("{:?}", part.labels));
        }
        let key = format!("{} {settings}", hex(&digest.finalize()));
        Ok(Self { folder: Some(folder.to_owned()), key })
    }

    /// The model and the stages of an earlier run, if there was one with this key.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub(crate) fn load(&self) -> Result<Option<(Model, Vec<Stage>)>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let state = folder.join(STATE);
        let text = match std::fs::read_to_string(&state) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed("read", &state, e)),
        };
        // A damaged state is no state: the stages run again.
        let saved: Option<Saved> = serde_json::from_str(&text).ok();
        let Some(saved) = saved.filter(|saved| saved.key == self.key) else { return Ok(None) };
        // Neither is one whose model is gone.
        let model = Model::load(folder.join(model_file(saved.stages.len()))).ok();
        Ok(model.map(|model| (model, saved.stages)))
    }

    /// Keeps the model and the stages so far.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub(crate) fn save(&self, model: &Model, stages: &[Stage]) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        std::fs::create_dir_all(folder).map_err(|e| failed("write", folder, e))?;
        model.save(folder.join(model_file(stages.len())), false)?;
        let saved = Saved { key: self.key.clone(), stages: stages.to_vec() };
        let path = folder.join(STATE);
        let write = || -> std::io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(&serde_json::to_vec_pretty(&saved)?)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|e| e.error)?;
            Ok(())
        };
        write().map_err(|e| failed("write", &path, e))
    }

    /// Removes the files of a pipeline that has ended after so many stages, and the folder if it
    /// holds nothing else.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub(crate) fn clear(&self, stages: usize) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let models = (0..=stages).map(model_file);
        for path in models.chain([STATE.to_owned()]).map(|name| folder.join(name)) {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path, e));
                }
                _ => {}
            }
        }
        // A folder with files of others stays.
        let _ = std::fs::remove_dir(folder);
        Ok(())
    }
}

fn failed(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { action, path: path.display().to_string(), source }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
