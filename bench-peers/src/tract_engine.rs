//! tract, with the shapes of the inputs given before it optimises.

use crate::{Data, Engine, Input};
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::*;

pub(crate) struct Tract {
    plan: Arc<TypedRunnableModel>,
    inputs: TVec<TValue>,
}

impl Tract {
    pub(crate) fn load(path: &Path, threads: usize, inputs: Vec<Input>) -> Result<Self> {
        if threads > 1 {
            set_default_executor(Executor::multithread(threads));
        }
        let mut model = tract_onnx::onnx().model_for_path(path)?;
        let mut values: TVec<TValue> = tvec!();
        for (position, outlet) in model.input_outlets()?.to_vec().into_iter().enumerate() {
            let name = &model.node(outlet.node).name;
            let input = inputs.iter().find(|input| input.name == *name);
            let input = input.with_context(|| format!("no input '{name}'"))?;
            let value = match &input.data {
                Data::F32(values) => Tensor::from_shape(&input.dims, values)?,
                Data::I64(values) => Tensor::from_shape(&input.dims, values)?,
            };
            let fact = InferenceFact::dt_shape(value.datum_type(), &input.dims);
            model.set_input_fact(position, fact)?;
            values.push(value.into());
        }
        let plan = model.into_optimized()?.into_runnable()?;
        Ok(Self { plan, inputs: values })
    }
}

impl Engine for Tract {
    fn run(&mut self) -> Result<()> {
        Ok(self.plan.run(self.inputs.clone()).map(drop)?)
    }

    fn outputs(&mut self) -> Result<Vec<f32>> {
        let mut all = Vec::new();
        for value in self.plan.run(self.inputs.clone())? {
            all.extend(value.to_plain_array_view::<f32>()?.iter().copied());
        }
        Ok(all)
    }
}
