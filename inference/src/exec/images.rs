//! Runs a batch of images image by image. The values between the layers of one image fit into the
//! caches where those of a whole batch do not, and threads that compute an image each never wait
//! for each other inside a layer.

use super::Program;
use crate::error::{Error, Result};
use crate::plan::{MemoryPlan, MemoryReport};
use crate::slots::Slot;
use lgp_compute::ops::Concat;
use lgp_compute::{Context, Op};
use lgp_memory::{DType, Datum, Shape, TensorView};
use std::sync::{Mutex, PoisonError};

impl Program {
    /// Runs the images of a batch one by one. Each thread runs images of its own, and all threads
    /// share the images that are left over. `None` if the inputs are no such batch.
    ///
    /// # Errors
    /// As [`Program::run_whole`].
    pub(super) fn run_images(
        &self,
        ctx: &Context,
        inputs: &[Slot<'_>],
    ) -> Option<Result<Vec<Datum>>> {
        let views: Vec<TensorView<'_>> = inputs.iter().map(Slot::view).collect::<Option<_>>()?;
        let batch = batch_of_images(views.iter().map(TensorView::shape), ctx.threads())?;
        Some(self.images(ctx, &views, batch))
    }

    /// The memory that a run with inputs of these types takes. Images that run one by one take one
    /// arena for each thread; their outputs are joined at the end.
    pub(super) fn report(&self, inputs: &[(DType, Shape)], threads: usize) -> MemoryReport {
        let whole = MemoryPlan::new(&self.graph, inputs, threads).report(&self.graph);
        let batch = batch_of_images(inputs.iter().map(|(_, shape)| shape), threads);
        if !self.by_image || batch.is_none() {
            return whole;
        }
        let one = |(dtype, shape): &(DType, Shape)| {
            let mut dims = shape.to_vec();
            dims[0] = 1;
            (*dtype, Shape::new(dims))
        };
        let image: Vec<_> = inputs.iter().map(one).collect();
        let image = MemoryPlan::new(&self.graph, &image, 1).report(&self.graph);
        let each = |bytes: usize| bytes.saturating_mul(threads);
        let (arena_bytes, scratch_bytes) = (each(image.arena_bytes), each(image.scratch_bytes));
        let running = arena_bytes.saturating_add(scratch_bytes);
        let besides = running.max(whole.output_bytes);
        let parts = [whole.weights_bytes, whole.input_bytes, whole.output_bytes, besides];
        MemoryReport {
            peak_bytes: parts.into_iter().fold(0, usize::saturating_add),
            weights_bytes: whole.weights_bytes,
            input_bytes: whole.input_bytes,
            output_bytes: whole.output_bytes,
            arena_bytes,
            scratch_bytes,
            lower_bound_bytes: each(image.lower_bound_bytes),
            naive_bytes: each(image.naive_bytes),
            tensors: image.tensors * threads,
            multiply_adds: whole.multiply_adds,
            moved_bytes: whole.moved_bytes,
            ..image
        }
    }

    fn images(&self, ctx: &Context, inputs: &[TensorView<'_>], batch: usize) -> Result<Vec<Datum>> {
        let run = |ctx: &Context, image: usize| {
            let inputs = inputs.iter().map(|view| Ok(Slot::View(part(view, image, batch)?)));
            self.run_whole(ctx, inputs.collect::<Result<_>>()?, None)
        };
        let even = batch - batch % ctx.threads();
        let results: Vec<Mutex<Option<Result<Vec<Datum>>>>> =
            (0..even).map(|_| Mutex::new(None)).collect();
        let alone = ctx.on_one_thread();
        ctx.parallel(even, |image| {
            *results[image].lock().unwrap_or_else(PoisonError::into_inner) =
                Some(run(&alone, image));
        });
        let mut images = Vec::with_capacity(batch);
        for result in results {
            let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
            images.push(result.ok_or_else(|| Error::graph("an image did not run"))??);
        }
        for image in even..batch {
            images.push(run(ctx, image)?);
        }
        (0..self.graph.outputs.len()).map(|i| joined(ctx, &images, i)).collect()
    }
}

/// The number of images in inputs of these shapes, if each of `threads` threads gets one.
fn batch_of_images<'a>(
    mut shapes: impl Iterator<Item = &'a Shape>,
    threads: usize,
) -> Option<usize> {
    let batch = *shapes.next()?.first()?;
    let whole = shapes.all(|shape| shape.first() == Some(&batch));
    (whole && batch >= 2 && batch >= threads).then_some(batch)
}

/// One image of a batch.
fn part<'a>(view: &TensorView<'a>, image: usize, batch: usize) -> Result<TensorView<'a>> {
    let mut dims = view.shape().to_vec();
    let bytes = view.as_bytes();
    let each = bytes.len() / batch;
    if let Some(first) = dims.first_mut() {
        *first = 1;
    }
    Ok(TensorView::from_bytes(view.dtype(), dims, &bytes[image * each..][..each])?)
}

/// One output of all images.
fn joined(ctx: &Context, images: &[Vec<Datum>], output: usize) -> Result<Datum> {
    let parts = images.iter().map(|outputs| match outputs.get(output) {
        Some(Datum::Tensor(tensor)) => Ok(Some(tensor.view())),
        _ => Err(Error::graph(format!("output {output} of an image is no tensor"))),
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;
    let mut joined = Concat { axis: 0 }
        .run(ctx, &parts)
        .map_err(|e| Error::graph(format!("the outputs of images do not join: {e}")))?;
    joined.pop().map(Datum::Tensor).ok_or_else(|| Error::graph("nothing was joined"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::builder::Value;
    use crate::compiled::Compiled;
    use crate::passes::tests::graph_of;
    use crate::slices::run_one_by_one;
    use lgp_memory::{Dim, SymShape, Tensor, TensorType};

    fn images(dims: &[usize]) -> TensorType {
        let mut shape = vec![Dim::Symbol("n".into())];
        shape.extend(dims.iter().map(|&d| Dim::Known(d)));
        TensorType { dtype: DType::F32, shape: Some(SymShape(shape)) }
    }

    /// An optimised convolution, followed by the nodes that `last` adds.
    fn program(last: impl FnOnce(&mut GraphBuilder, Value) -> Value) -> Result<Program> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", images(&[3, 16, 16]));
        let weights: Vec<f32> = (0..8 * 3 * 9).map(|i| (i % 7) as f32 - 3.).collect();
        let w = g.initializer("w", Tensor::from_slice([8, 3, 3, 3], &weights)?);
        let y = g.node("Conv", &[x, w], []);
        let y = g.node("Relu", &[y], []);
        let y = last(&mut g, y);
        g.output("y", y, TensorType { dtype: DType::F32, shape: None });
        let mut graph = graph_of(g)?;
        crate::passes::optimize(&mut graph)?;
        Ok(Program::new(graph))
    }

    #[test]
    fn images_one_by_one_give_what_the_batch_gives() -> Result<()> {
        let program = program(|g, y| {
            let y = g.node("GlobalAveragePool", &[y], []);
            g.node("Flatten", &[y], [])
        })?;
        assert!(run_one_by_one(&program.graph));
        for (threads, batch) in [(1, 3), (2, 5), (3, 3), (4, 2)] {
            let data: Vec<f32> = (0..batch * 3 * 256).map(|i| ((i * 31) % 101) as f32).collect();
            let x = Tensor::from_slice([batch, 3, 16, 16], &data)?;
            let ctx = Context::new(threads);
            let alone = program.run_images(&ctx, &[Slot::View(x.view())]);
            assert_eq!(alone.is_some(), batch >= threads);
            let got = program.run(&ctx, vec![Slot::View(x.view())], None)?;
            let want = program.run_whole(&ctx, vec![Slot::View(x.view())], None)?;
            let [Datum::Tensor(got), Datum::Tensor(want)] = [&got[0], &want[0]] else {
                panic!("an output is no tensor")
            };
            assert_eq!(got.shape().dims(), [batch, 8]);
            assert_eq!(got, want);
        }
        Ok(())
    }

    #[test]
    fn images_that_meet_stay_together() -> Result<()> {
        let softmax = program(|g, y| g.node("Softmax", &[y], [("axis", 0i64.into())]))?;
        let joined = program(|g, y| g.node("Concat", &[y, y], [("axis", 0i64.into())]))?;
        let reduced = program(|g, y| g.node("ReduceSum", &[y], [("keepdims", 0i64.into())]))?;
        let numbers = |g: &mut GraphBuilder| g.input("b", images(&[]));
        let biased = program(|g, y| {
            let weights = Tensor::zeros(DType::F32, [4, 8, 3, 3]).unwrap();
            let (v, b) = (g.initializer("v", weights), numbers(g));
            g.node("Conv", &[y, v, b], [])
        })?;
        let clipped = program(|g, y| {
            let b = numbers(g);
            g.node("Clip", &[y, b], [])
        })?;
        for program in [softmax, joined, reduced, biased, clipped] {
            assert!(!run_one_by_one(&program.graph));
        }
        Ok(())
    }
}
