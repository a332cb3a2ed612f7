//! Writes a model as one file, or as one file with its weights in a second one beside it.

use super::proto::tensor_proto::DataLocation;
use super::proto::{ModelProto, StringStringEntryProto};
use crate::error::{Error, Result};
use crate::model::Model;
use std::io::{BufWriter, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// Tensors begin at multiples of this many bytes, so that a mapped file can be computed on.
const ALIGNMENT: u64 = 64;
/// Tensors of up to this size stay in the model, where other programs look for shapes and axes.
const INLINE_BYTES_MAX: usize = 1024;

impl Model {
    /// Writes the model to a file. With `external_data` its weights go to a second file beside it,
    /// named as the first with `.data` after it: a model above 2 GiB needs that. Existing files are
    /// replaced when both new files are whole on the disk, the weights first.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Export`] as [`Model::to_onnx`], or where the second file exists and
    /// the model that is replaced has no weights in it: it belongs to another model.
    pub fn save(&self, path: impl AsRef<Path>, external_data: bool) -> Result<()> {
        let path = path.as_ref();
        if !external_data {
            let bytes = self.to_onnx()?;
            return Written::new(path, |out| out.write_all(&bytes))?.place();
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.map(|name| format!("{name}.data")) else {
            let message = format!("{} is no file name in UTF-8", path.display());
            return Err(Error::Export { message });
        };
        let data = path.with_file_name(&name);
        if data.exists() && !stores_in(path, &data) {
            let (data, path) = (data.display(), path.display());
            let message = format!("{data} is there already, and is not where {path} has weights");
            return Err(Error::Export { message });
        }
        let mut proto = self.to_proto()?;
        let weights = Written::new(&data, |out| move_out(&mut proto, &name, out))?;
        let bytes = super::export::encoded(&proto)?;
        let model = Written::new(path, |out| out.write_all(&bytes))?;
        weights.place()?;
        model.place()
    }
}

/// Whether a file is a model that has weights in the file `data`.
fn stores_in(model: &Path, data: &Path) -> bool {
    let files = super::read_file(model)
        .and_then(|bytes| super::external_files(&bytes, Some(super::folder_of(model))));
    let Ok(data) = data.canonicalize() else { return false };
    files.is_ok_and(|files| files.values().any(|file| *file == data))
}

/// Writes the bytes of large tensors one after the other; the model keeps their offsets.
fn move_out(proto: &mut ModelProto, name: &str, out: &mut dyn Write) -> std::io::Result<()> {
    let mut at = 0u64;
    let stored = proto.graph.iter_mut().flat_map(|graph| &mut graph.initializer);
    for tensor in stored {
        let Some(bytes) = tensor.raw_data.take_if(|bytes| bytes.len() > INLINE_BYTES_MAX) else {
            continue;
        };
        let start = at.next_multiple_of(ALIGNMENT);
        let gap = usize::try_from(start - at).map_err(std::io::Error::other)?;
        out.write_all(&vec![0; gap])?;
        out.write_all(&bytes)?;
        at = start + u64::try_from(bytes.len()).map_err(std::io::Error::other)?;
        let entries = [
            ("location", name.to_owned()),
            ("offset", start.to_string()),
            ("length", bytes.len().to_string()),
        ];
        let entries = entries.map(|(key, value)| StringStringEntryProto {
            key: Some(key.into()),
            value: Some(value),
        });
        tensor.external_data = entries.into();
        tensor.data_location = Some(DataLocation::External.into());
    }
    Ok(())
}

/// A file that is whole and on the disk, but not yet at its path.
struct Written<'a> {
    file: NamedTempFile,
    path: &'a Path,
}

impl<'a> Written<'a> {
    fn new(
        path: &'a Path,
        write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<Self> {
        let failed = |e| Error::io("write", path)(e);
        let mut builder = tempfile::Builder::new();
        // The permissions of any new file, from which the system takes the user's mask.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(super::folder_of(path)).map_err(failed)?;
        let mut out = BufWriter::new(&mut file);
        write(&mut out).and_then(|()| out.flush()).map_err(failed)?;
        drop(out);
        file.as_file().sync_all().map_err(failed)?;
        Ok(Self { file, path })
    }

    fn place(self) -> Result<()> {
        self.file.persist(self.path).map_err(|e| Error::io("write", self.path)(e.error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::GraphBuilder;
    use lgp_memory::{DType, Tensor, TensorType};

    fn model() -> Result<Model> {
        let ty = TensorType { dtype: DType::F32, shape: None };
        let mut g = GraphBuilder::new("sums");
        let mut y = g.input("x", ty.clone());
        for (name, len) in [("large", 301usize), ("larger", 600), ("small", 1)] {
            let values: Vec<f32> = (0u8..=250).cycle().take(len).map(f32::from).collect();
            let w = g.initializer(name, Tensor::from_slice([len], &values)?);
            y = g.node("Add", &[y, w], []);
        }
        g.output("y", y, ty);
        g.finish()
    }

    #[test]
    fn what_is_saved_is_read_back() -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        let data = folder.path().join("m.onnx.data");
        let model = model()?;
        model.save(&path, false)?;
        assert_eq!(Model::load(&path)?, model);
        assert!(!data.exists());
        model.save(&path, true)?;
        assert_eq!(Model::load(&path)?, model);
        // 1204 bytes, up to the next multiple of 64, and 2400.
        assert_eq!(data.metadata().unwrap().len(), 1216 + 2400);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let error = model.save(folder.path().join("n/m.onnx"), true).unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error}");
        Ok(())
    }

    #[test]
    fn weights_of_another_model_are_not_replaced() -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let model = model()?;
        // The weights of a.onnx lie in b.onnx.data, to which b.onnx does not refer.
        model.save(at("b.onnx"), true)?;
        std::fs::rename(at("b.onnx"), at("a.onnx")).unwrap();
        let refused = || {
            let error = model.save(at("b.onnx"), true).unwrap_err().to_string();
            assert!(error.contains("b.onnx.data is there already"), "{error}");
        };
        refused();
        model.save(at("b.onnx"), false)?;
        refused();
        std::fs::write(at("b.onnx"), "no model").unwrap();
        refused();
        assert_eq!(Model::load(at("a.onnx"))?, model);
        // Weights of the model that is replaced are replaced too.
        std::fs::copy(at("a.onnx"), at("b.onnx")).unwrap();
        model.save(at("b.onnx"), true)
    }

    #[test]
    fn inputs_with_a_default_stay_inputs() -> Result<()> {
        let ty = TensorType { dtype: DType::F32, shape: None };
        let mut given = model()?;
        given.defaults.push(crate::ValueSpec::tensor("small", ty));
        let back = Model::from_bytes(&given.to_onnx()?, None)?;
        assert_eq!(back, given);
        assert_eq!(back.inputs().len(), 1);
        Ok(())
    }
}
