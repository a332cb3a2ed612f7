//! rten, with weights packed at load time as its guide to performance advises.

use crate::{Data, Engine, Input};
use anyhow::{Context, Result, anyhow};
use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value, ValueOrView};
use std::path::Path;
use std::sync::Arc;

pub(crate) struct Rten {
    model: Model,
    inputs: Vec<(NodeId, Value)>,
    pool: Arc<ThreadPool>,
}

impl Rten {
    pub(crate) fn load(path: &Path, threads: usize, inputs: Vec<Input>) -> Result<Self> {
        let mut options = ModelOptions::with_all_ops();
        let model = options.prepack_weights(true).load_file(path)?;
        let inputs = inputs.into_iter().map(|input| {
            let id = model.node_id(&input.name).map_err(|e| anyhow!("{e}"))?;
            let value = match input.data {
                Data::F32(values) => {
                    Value::from_shape(input.dims, values).map_err(|e| anyhow!("{e}"))?
                }
                // rten takes 64-bit integers as 32-bit ones.
                Data::I64(values) => {
                    let narrow: std::result::Result<Vec<i32>, _> =
                        values.into_iter().map(i32::try_from).collect();
                    Value::from_shape(input.dims, narrow?).map_err(|e| anyhow!("{e}"))?
                }
            };
            Ok((id, value))
        });
        let inputs = inputs.collect::<Result<_>>()?;
        let pool = Arc::new(ThreadPool::with_num_threads(threads));
        Ok(Self { model, inputs, pool })
    }

    fn values(&self) -> Result<Vec<Value>> {
        let inputs: Vec<(NodeId, ValueOrView<'_>)> =
            self.inputs.iter().map(|(id, value)| (*id, value.into())).collect();
        let mut options = RunOptions::default();
        options.thread_pool = Some(Arc::clone(&self.pool));
        let outputs = self.model.run(inputs, self.model.output_ids(), Some(options));
        outputs.map_err(|e| anyhow!("{e}"))
    }
}

impl Engine for Rten {
    fn run(&mut self) -> Result<()> {
        self.values().map(drop)
    }

    fn outputs(&mut self) -> Result<Vec<f32>> {
        let mut all = Vec::new();
        for value in self.values()? {
            let tensor: rten_tensor::Tensor<f32> = value.try_into().ok().context("expected f32")?;
            all.extend(tensor.into_data());
        }
        Ok(all)
    }
}
