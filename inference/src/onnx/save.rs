//! Writes a model as files: one, or one with its weights in another beside it.

use super::proto::tensor_proto::DataLocation;
use super::proto::{ModelProto, StringStringEntryProto};
use crate::error::{Error, Result};
use crate::model::Model;
use std::io::{BufWriter, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// Tensors begin at multiples of this many bytes, so that a mapped file can be computed on.
const ALIGNMENT: u64 = 64;
/// What is smaller stays in the model, where other programs look for shapes and axes.
const INLINE_BYTES_MAX: usize = 1024;

impl Model {
    /// Writes the model to a file. With `external_data` its weights go to a second one beside it,
    /// named as the first with `.data` after it: what passes 2 GiB needs that. Each file appears
    /// whole or not at all, the weights first.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Export`] as [`Model::to_onnx`], or where the second file would take
    /// the place of one that belongs to another model.
    pub fn save(&self, path: impl AsRef<Path>, external_data: bool) -> Result<()> {
        let path = path.as_ref();
        if !external_data {
            let bytes = self.to_onnx()?;
            return place(path, |out| out.write_all(&bytes));
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.map(|name| format!("{name}.data")) else {
            let message = format!("{} is no file name in UTF-8", path.display());
            return Err(Error::Export { message });
        };
        let data = path.with_file_name(&name);
        if data.exists() && !path.exists() {
            let message = format!("{} is there already, without its model", data.display());
            return Err(Error::Export { message });
        }
        let mut proto = self.to_proto()?;
        place(&data, |out| move_out(&mut proto, &name, out))?;
        let bytes = super::export::encoded(&proto)?;
        place(path, |out| out.write_all(&bytes))
    }
}

/// Writes the bytes of large tensors one after the other and leaves their place in the model.
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

/// Writes a file beside its place and moves it there when it is on the disk.
fn place(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let failed = |e| Error::io("write", path)(e);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // As any file that a program creates, less what the user's mask takes away.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file: NamedTempFile = builder.tempfile_in(folder).map_err(failed)?;
    let mut out = BufWriter::new(&mut file);
    write(&mut out).and_then(|()| out.flush()).map_err(failed)?;
    drop(out);
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|e| failed(e.error))?;
    Ok(())
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
        std::fs::remove_file(&path).unwrap();
        let error = model.save(&path, true).unwrap_err().to_string();
        assert!(error.contains("m.onnx.data is there already"), "{error}");
        Ok(())
    }

    #[test]
    fn floats_are_stored_narrow_and_widened_again() -> Result<()> {
        for dtype in [DType::F16, DType::BF16] {
            let narrow = model()?.with_stored_floats(dtype)?;
            assert!(narrow.initializers().values().all(|t| t.dtype() == dtype));
            let back = Model::from_bytes(&narrow.to_onnx()?, None)?;
            // Whole numbers up to 250 survive in both.
            assert_eq!(
                back.with_stored_floats(DType::F32)?.initializers(),
                model()?.initializers()
            );
        }
        assert!(model()?.with_stored_floats(DType::I8).is_err());
        Ok(())
    }
}
