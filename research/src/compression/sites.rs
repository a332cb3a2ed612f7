//! Where a model multiplies by stored weights, found by the axes that its operators state.

use crate::error::{Error, Result};
use lgp_compute::AxisKind;
use lgp_inference::{Model, Structure, StructureOp};
use lgp_memory::{DType, Tensor};
use ndarray::{Array2, ArrayD, Axis, IxDyn};

/// A window over one axis of the values that a weight is multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// The axis of the values.
    pub(crate) axis: usize,
    /// Positions from one window to the next.
    pub(crate) stride: usize,
    /// Positions of padding before the first.
    pub(crate) before: usize,
    /// Positions that a window spans.
    pub(crate) extent: usize,
}

/// A product with a stored weight.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Site {
    /// The index of the node in the model.
    pub(crate) node: usize,
    /// The index of the operator in the structure.
    pub(crate) operator: usize,
    /// The node's input that is the weight.
    pub(crate) input: usize,
    /// The weight's name.
    pub(crate) weight: String,
    /// The weight's shape.
    pub(crate) shape: Vec<usize>,
    /// The name of the value that it is multiplied with.
    pub(crate) activation: String,
    /// The rank of that value, and its axis that is summed over; `None` where each channel is
    /// multiplied with its own weights.
    pub(crate) summed: Option<(usize, usize)>,
    /// The weight's axis of outputs.
    pub(crate) n_axis: usize,
    /// The weight's axis that is summed over, as above.
    pub(crate) k_axis: Option<usize>,
    /// The windows for the weight's other axes, in order; empty for products of matrices.
    pub(crate) windows: Vec<Window>,
    /// Multiply-adds of one run.
    pub(crate) multiply_adds: u64,
}

/// Every product with a stored f32 weight, in running order.
pub(crate) fn sites(model: &Model, structure: &Structure) -> Vec<Site> {
    let operators = structure.operators.iter().enumerate();
    operators.filter_map(|(index, operator)| site(model, structure, index, operator)).collect()
}

fn site(
    model: &Model,
    structure: &Structure,
    index: usize,
    operator: &StructureOp,
) -> Option<Site> {
    let (infos, outputs) = (structure.infos(operator), structure.output_infos(operator));
    let axes = operator.op.axes(&infos, &outputs);
    let made: usize = outputs.first()?.ty.concrete_shape()?.elements().ok()?;
    let node = model.nodes().get(operator.node)?;
    let is_constant =
        |i: usize| infos.get(i).copied().flatten().is_some_and(|x| x.constant.is_some());
    // An element-wise product has an axis for each of the weight's, but sums nothing.
    if operator.cost.multiply_adds <= made as u64 {
        return None;
    }
    (0..infos.len()).find_map(|input| {
        let name = &structure.values.get(operator.inputs[input]?)?.name;
        // A caller may give another value for an input with a default.
        let given = model.defaults().iter().any(|default| default.name == *name);
        let stored = model.initializers().get(name).filter(|_| !given)?;
        let rank = stored.shape().rank();
        // A weight is an input of the model's own node, so that the node can be rewritten.
        let place = node.inputs.iter().position(|own| own == name)?;
        if stored.dtype() != DType::F32 || rank < 2 {
            return None;
        }
        let other =
            (0..infos.len()).find(|&i| i != input && infos[i].is_some() && !is_constant(i))?;
        let values = infos[other]?;
        let summed = axes.iter().find_map(|axis| {
            let pair = (axis.in_input(other)?, axis.in_input(input)?);
            (axis.kind == AxisKind::All).then_some(pair)
        });
        let own = axes.iter().find_map(|axis| {
            let at = axis.in_input(input).filter(|_| axis.kind == AxisKind::Each)?;
            axis.in_output(0)?;
            (summed.is_none() == axis.in_input(other).is_some()).then_some(at)
        })?;
        let k_axis = summed.map(|(_, at)| at);
        let windows = axes.iter().filter_map(|axis| {
            let at = axis.in_input(other)?;
            let window = |stride, before, extent| Window { axis: at, stride, before, extent };
            match axis.kind {
                AxisKind::Window { stride, before, extent } => Some(window(stride, before, extent)),
                // A window of one position.
                AxisKind::Each if rank > 2 && at > 1 && axis.in_input(input).is_none() => {
                    Some(window(1, 0, 1))
                }
                _ => None,
            }
        });
        let windows: Vec<Window> = if rank > 2 { windows.collect() } else { Vec::new() };
        let others = rank - 1 - usize::from(k_axis.is_some());
        let fits = windows.len() == others || summed.is_none();
        fits.then(|| {
            Some(Site {
                node: operator.node,
                operator: index,
                input: place,
                weight: name.clone(),
                shape: stored.shape().dims().to_vec(),
                activation: structure.values.get(operator.inputs[other]?)?.name.clone(),
                summed: summed.and_then(|(axis, _)| Some((values.rank()?, axis))),
                n_axis: own,
                k_axis,
                windows,
                multiply_adds: operator.cost.multiply_adds,
            })
        })?
    })
}

/// Every node and input that reads a stored tensor.
pub(crate) fn operand_places(model: &Model, name: &str) -> Vec<(usize, usize)> {
    let nodes = model.nodes().iter().enumerate();
    let inputs =
        nodes.flat_map(|(at, node)| node.inputs.iter().enumerate().map(move |it| (at, it)));
    inputs.filter(|(_, (_, input))| *input == name).map(|(at, (input, _))| (at, input)).collect()
}

impl Site {
    /// The weight's axes in the order of the matrix: outputs, the sum, the windows.
    fn order(&self) -> Vec<usize> {
        let first = std::iter::once(self.n_axis).chain(self.k_axis);
        let rest =
            (0..self.shape.len()).filter(|&axis| axis != self.n_axis && Some(axis) != self.k_axis);
        first.chain(rest).collect()
    }

    /// The weight as a matrix: a row for each output, columns by the axis of the sum and then by
    /// the taps of the windows.
    ///
    /// # Errors
    /// A tensor of another shape, or of no floats.
    pub(crate) fn matrix(&self, weight: &Tensor) -> Result<Array2<f32>> {
        let wrong = |e: ndarray::ShapeError| Error::compression("read a weight", e.to_string());
        let array = ArrayD::from_shape_vec(IxDyn(&self.shape), weight.as_slice::<f32>()?.to_vec());
        let turned = array.map_err(wrong)?.permuted_axes(IxDyn(&self.order()));
        let n = self.shape[self.n_axis];
        let columns = turned.len() / n.max(1);
        let flat: Vec<f32> = turned.iter().copied().collect();
        Array2::from_shape_vec((n, columns), flat).map_err(wrong)
    }

    /// The weight of a matrix as [`Site::matrix`] makes it.
    ///
    /// # Errors
    /// A matrix of another size.
    pub(crate) fn tensor(&self, matrix: &Array2<f32>) -> Result<Tensor> {
        let wrong = |e: ndarray::ShapeError| Error::compression("write a weight", e.to_string());
        let order = self.order();
        let turned: Vec<usize> = order.iter().map(|&axis| self.shape[axis]).collect();
        let flat: Vec<f32> = matrix.iter().copied().collect();
        let array = ArrayD::from_shape_vec(IxDyn(&turned), flat).map_err(wrong)?;
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
        let plain = array.permuted_axes(IxDyn(&back));
        let values: Vec<f32> = plain.iter().copied().collect();
        Ok(Tensor::from_slice(self.shape.clone(), &values)?)
    }

    /// The vectors that the matrix is multiplied with, as rows of `[rows, k · taps]`: up to `most`,
    /// evenly spread. `None` where each channel has weights of its own.
    ///
    /// # Errors
    /// A value of another rank, or of no floats.
    pub(crate) fn vectors(&self, value: &Tensor, most: usize) -> Result<Option<Array2<f32>>> {
        let Some((rank, axis)) = self.summed else { return Ok(None) };
        let wrong = |e: ndarray::ShapeError| Error::compression("read a value", e.to_string());
        let dims = value.shape().dims();
        if dims.len() != rank {
            let message = format!("{} has shape {dims:?}, expected rank {rank}", self.activation);
            return Err(Error::compression("read a value", message));
        }
        let array = ndarray::ArrayViewD::from_shape(IxDyn(dims), value.as_slice::<f32>()?)
            .map_err(wrong)?;
        let k = dims[axis];
        let places = self.places(dims, axis);
        let step = places.len().div_ceil(most.max(1)).max(1);
        let kept: Vec<&Vec<usize>> = places.iter().step_by(step).collect();
        let taps = self.tap_offsets();
        let mut out = Array2::zeros((kept.len(), k * taps.len()));
        for (mut row, place) in out.axis_iter_mut(Axis(0)).zip(kept) {
            for (t, offset) in taps.iter().enumerate() {
                let mut at = place.clone();
                let mut inside = true;
                for (window, shift) in self.windows.iter().zip(offset) {
                    let moved = at[window.axis] * window.stride + shift;
                    inside &= moved >= window.before && moved - window.before < dims[window.axis];
                    at[window.axis] = moved.saturating_sub(window.before);
                }
                if !inside {
                    continue;
                }
                for c in 0..k {
                    at[axis] = c;
                    row[c * taps.len() + t] = array[IxDyn(&at)];
                }
            }
        }
        Ok(Some(out))
    }

    /// Positions of results: indices of the value's axes, with the axis of the sum at 0, and with
    /// the number of the window in place of the position along a window's axis.
    fn places(&self, dims: &[usize], axis: usize) -> Vec<Vec<usize>> {
        let counts: Vec<usize> = (0..dims.len())
            .map(|at| {
                if at == axis {
                    return 1;
                }
                match self.windows.iter().find(|window| window.axis == at) {
                    None => dims[at],
                    // The padding after is taken to be that before.
                    Some(w) => (dims[at] + 2 * w.before).saturating_sub(w.extent) / w.stride + 1,
                }
            })
            .collect();
        let all: usize = counts.iter().product();
        let place = |mut index: usize| {
            let mut at = vec![0; counts.len()];
            for (slot, count) in at.iter_mut().zip(&counts).rev() {
                *slot = index % count;
                index /= count;
            }
            at
        };
        (0..all).map(place).collect()
    }

    /// The shift along each window of each tap.
    fn tap_offsets(&self) -> Vec<Vec<usize>> {
        let others: Vec<usize> = (0..self.shape.len())
            .filter(|&a| a != self.n_axis && Some(a) != self.k_axis)
            .map(|axis| self.shape[axis])
            .collect();
        let all: usize = others.iter().product();
        let offsets = |mut index: usize| {
            let mut at = vec![0; others.len()];
            for (slot, (count, window)) in at.iter_mut().zip(others.iter().zip(&self.windows)).rev()
            {
                let dilation = if *count > 1 { (window.extent - 1) / (count - 1) } else { 1 };
                *slot = index % count * dilation;
                index /= count;
            }
            at
        };
        (0..all).map(offsets).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_inference::{Attr, GraphBuilder, Session, SessionOptions};
    use lgp_memory::{Shape, SymShape, TensorType};

    fn numbers(shape: &[usize], seed: usize) -> Tensor {
        let len = shape.iter().product::<usize>();
        let value = |i: usize| ((i * 37 + seed * 11) % 23) as f32 / 7. - 1.5;
        Tensor::from_slice(shape.to_vec(), &(0..len).map(value).collect::<Vec<_>>()).unwrap()
    }

    fn f32s(shape: &[usize]) -> TensorType {
        TensorType::concrete(DType::F32, &Shape::from(shape.to_vec()))
    }

    type Node<'a> = (&'a str, &'a [usize], &'a [usize], Vec<(&'a str, Attr)>);

    fn model((op, x, w, attributes): Node<'_>) -> Model {
        let mut g = GraphBuilder::new("g");
        let input = g.input("x", f32s(x));
        let weight = g.initializer("w", numbers(w, 1));
        let y = g.node(op, &[input, weight], attributes);
        g.output("y", y, TensorType { dtype: DType::F32, shape: None::<SymShape> });
        g.finish().unwrap()
    }

    #[test]
    fn the_matrix_times_the_vectors_is_the_product() {
        let conv: Vec<(&str, Attr)> = vec![
            ("pads", [1, 1, 1, 1].into()),
            ("strides", [2, 1].into()),
            ("dilations", [1, 2].into()),
        ];
        let cases: [(Node<'_>, usize); 5] = [
            (("MatMul", &[2, 3, 4], &[4, 5], vec![]), 2),
            (("Gemm", &[3, 4], &[5, 4], vec![("transB", 1.into())]), 1),
            (("Gemm", &[4, 3], &[4, 5], vec![("transA", 1.into())]), 1),
            (("Conv", &[2, 3, 5, 6], &[4, 3, 3, 3], conv), 1),
            (("Conv", &[2, 3, 2, 2], &[4, 3, 1, 1], vec![]), 1),
        ];
        for (node, channel) in cases {
            let (name, x) = (node.0, numbers(node.1, 2));
            let model = model(node);
            let shapes = [("x", x.shape().clone())];
            let structure = model.structure(&shapes).unwrap();
            let found = sites(&model, &structure);
            assert_eq!(found.len(), 1, "{name}");
            let site = &found[0];
            let matrix = site.matrix(&model.initializers()["w"]).unwrap();
            let vectors = site.vectors(&x, usize::MAX).unwrap().unwrap();
            let products = vectors.dot(&matrix.t());
            let session = Session::new(&model, SessionOptions::with_threads(1)).unwrap();
            let y = session.run(&[("x", x.view())]).unwrap().remove(0).tensor;
            let y = y.to_array::<f32>().unwrap();
            // The axis of outputs last, the others in order: the rows of the vectors.
            let mut order: Vec<usize> = (0..y.ndim()).filter(|&a| a != channel).collect();
            order.push(channel);
            let y = y.permuted_axes(IxDyn(&order));
            assert_eq!(products.len(), y.len(), "{name}");
            for (found, wanted) in products.iter().zip(y.iter()) {
                assert!((found - wanted).abs() < 1e-4, "{name}: {found} {wanted}");
            }
            let back = site.tensor(&matrix).unwrap();
            assert_eq!(back.as_bytes(), model.initializers()["w"].as_bytes(), "{name}");
        }
    }

    #[test]
    fn a_depthwise_weight_has_a_row_for_each_channel() {
        let attributes = vec![("group", Attr::from(3))];
        let model = model(("Conv", &[1, 3, 4, 4], &[3, 1, 2, 2], attributes));
        let structure = model.structure(&[("x", Shape::from([1, 3, 4, 4]))]).unwrap();
        let found = sites(&model, &structure);
        assert_eq!((found[0].n_axis, found[0].k_axis), (0, None));
        assert_eq!(found[0].matrix(&model.initializers()["w"]).unwrap().dim(), (3, 4));
        assert!(found[0].vectors(&numbers(&[1, 3, 4, 4], 1), 9).unwrap().is_none());
    }

    #[test]
    fn an_elementwise_product_is_no_site() {
        let model = model(("Mul", &[2, 3, 4], &[3, 4], vec![]));
        let structure = model.structure(&[("x", Shape::from([2, 3, 4]))]).unwrap();
        assert!(sites(&model, &structure).is_empty());
    }
}
