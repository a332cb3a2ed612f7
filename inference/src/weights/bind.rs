//! Replaces a model's weights by those of a file.

use super::Weights;
use super::entry::gather;
use super::store::cast;
use crate::error::{Error, Result};
use crate::model::{Attr, Model};
use lgp_memory::{Buffer, Tensor};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Prefixes that frameworks add to the names of a network's tensors.
const PREFIXES: [&str; 5] = ["module.", "model.", "state_dict.", "_orig_mod.", "network."];

/// A stored tensor of a model that was replaced by a file's tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundWeight {
    /// The tensor's name in the model.
    pub initializer: String,
    /// The tensor's name in the file.
    pub weight: String,
    /// Whether rows and columns were exchanged.
    pub transposed: bool,
}

/// The result of matching a file's tensors with a model's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoundWeights {
    /// The tensors that were replaced, by the model's names.
    pub bound: Vec<BoundWeight>,
    /// The file's tensors that match none of the model's.
    pub unused: Vec<String>,
    /// The model's tensors that keep their values.
    pub unmatched: Vec<String>,
}

impl Model {
    /// The model with a file's tensors in the place of its own tensors of the same name, prefixes
    /// such as `module.` apart. `map` gives the file's name for a tensor of the model if the names
    /// differ otherwise.
    ///
    /// A matrix that `MatMul` multiplies by is transposed if the file has it as `[out, in]`. A
    /// square matrix does not show that, so it is treated like the model's other matrices.
    ///
    /// # Errors
    /// [`Error::Tensor`] if shapes or dtypes do not fit, [`Error::Weights`] for a name of `map`
    /// that the model or the file does not have.
    pub fn with_weights(
        &self,
        weights: &Weights,
        map: &BTreeMap<String, String>,
    ) -> Result<(Self, BoundWeights)> {
        let pairs = self.pairs(weights, map)?;
        let wrong = |name: &str, message: String| Error::Tensor { tensor: name.into(), message };
        let (mut straight, mut turned) = (Vec::new(), Vec::new());
        let mut square = Vec::new();
        for (name, weight) in pairs {
            let wanted = self.initializers[name].shape().dims();
            let given = weights.describe(weight).map(|(_, shape)| shape).unwrap_or_default();
            let matrix = self.is_right_matrix(name);
            let reversed = given.iter().rev().eq(wanted) && given.len() == 2;
            match (given == wanted, matrix && reversed) {
                (true, true) => square.push((name, weight)),
                (true, false) => straight.push((name, weight, matrix)),
                (false, true) => turned.push((name, weight)),
                (false, false) => {
                    let message = format!("'{weight}' has shape {given:?}, expected {wanted:?}");
                    return Err(wrong(name, message));
                }
            }
        }
        match (straight.iter().any(|&(.., matrix)| matrix), turned.is_empty()) {
            (true, true) => straight.extend(square.into_iter().map(|(n, w)| (n, w, true))),
            (false, false) => turned.extend(square),
            _ => {
                if let Some((name, weight)) = square.first() {
                    let message =
                        format!("'{weight}' is square, and no other matrix tells whether");
                    return Err(wrong(name, message + " its rows are inputs or outputs"));
                }
            }
        }
        let straight = straight.into_iter().map(|(name, weight, _)| (name, weight, false));
        let turned = turned.into_iter().map(|(name, weight)| (name, weight, true));
        let mut model = self.clone();
        let mut binding = BoundWeights::default();
        for (name, weight, transposed) in straight.chain(turned) {
            let tensor = cast(&weights.get(weight)?, self.initializers[name].dtype())
                .map_err(|message| wrong(name, message))?;
            let tensor = if transposed { transpose(&tensor)? } else { tensor };
            model.initializers.insert(name.to_owned(), tensor);
            let (initializer, weight) = (name.to_owned(), weight.to_owned());
            binding.bound.push(BoundWeight { initializer, weight, transposed });
        }
        binding.bound.sort_by(|a, b| a.initializer.cmp(&b.initializer));
        let used: BTreeSet<&str> = binding.bound.iter().map(|b| b.weight.as_str()).collect();
        let bound: BTreeSet<&str> = binding.bound.iter().map(|b| b.initializer.as_str()).collect();
        binding.unused =
            weights.names().filter(|name| !used.contains(name)).map(str::to_owned).collect();
        let own = self.initializers.keys().filter(|name| !bound.contains(name.as_str()));
        binding.unmatched = own.cloned().collect();
        Ok((model, binding))
    }

    /// The names of the model's tensors, and of the file's tensors that replace them.
    fn pairs<'a>(
        &'a self,
        weights: &'a Weights,
        map: &'a BTreeMap<String, String>,
    ) -> Result<Vec<(&'a str, &'a str)>> {
        let unknown = |message: String| Error::Weights { format: weights.format(), message };
        for (name, weight) in map {
            if !self.initializers.contains_key(name) {
                return Err(unknown(format!("the model has no stored tensor '{name}'")));
            }
            if weights.describe(weight).is_none() {
                return Err(unknown(format!("no tensor '{weight}' for '{name}'")));
            }
        }
        // Tensors whose names differ only in their prefixes match exact names only.
        let mut plain: HashMap<&str, Option<&str>> = HashMap::new();
        for name in weights.names() {
            plain.entry(stripped(name)).and_modify(|other| *other = None).or_insert(Some(name));
        }
        let find = |name: &'a String| {
            let mapped = map.get(name).map(String::as_str);
            let exact = || weights.names().find(|weight| weight == name);
            let similar = || plain.get(stripped(name)).copied().flatten();
            mapped.or_else(exact).or_else(similar).map(|weight| (name.as_str(), weight))
        };
        Ok(self.initializers.keys().filter_map(find).collect())
    }

    /// Whether the tensor is only read as the right operand of matrix products.
    fn is_right_matrix(&self, name: &str) -> bool {
        let mut readers =
            self.nodes.iter().filter(|node| node.reads().any(|read| read == name)).peekable();
        readers.peek().is_some()
            && readers.all(|node| {
                let straight = node.attributes.get("transB").is_none_or(|b| *b == Attr::Int(0));
                let product = node.op_type == "MatMul" || (node.op_type == "Gemm" && straight);
                let places = node.inputs.iter().enumerate().filter(|(_, input)| *input == name);
                product && places.map(|(place, _)| place).eq([1])
            })
    }
}

/// The name without its prefixes.
fn stripped(mut name: &str) -> &str {
    while let Some(rest) = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)) {
        name = rest;
    }
    name
}

/// A matrix with rows and columns exchanged.
fn transpose(tensor: &Tensor) -> Result<Tensor> {
    let &[rows, columns] = tensor.shape().dims() else { return Ok(tensor.clone()) };
    let mut out = Buffer::zeroed(tensor.as_bytes().len())?;
    gather(&mut out, tensor.as_bytes(), &[columns, rows], &[1, columns], tensor.dtype());
    Ok(Tensor::from_buffer(tensor.dtype(), [columns, rows], out)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::GraphBuilder;
    use lgp_memory::{DType, SymShape, TensorType};

    fn file(tensors: &[(&str, &[usize], &[f32])]) -> Weights {
        let (mut header, mut data) = (Vec::new(), Vec::new());
        for (name, shape, values) in tensors {
            let from = data.len();
            data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
            let to = data.len();
            header.push(format!(
                r#""{name}":{{"dtype":"F32","shape":{shape:?},"data_offsets":[{from},{to}]}}"#
            ));
        }
        let header = format!("{{{}}}", header.join(","));
        let len = u64::try_from(header.len()).unwrap().to_le_bytes();
        Weights::from_bytes([&len[..], header.as_bytes(), &data].concat()).unwrap()
    }

    fn model() -> Model {
        let ty = TensorType { dtype: DType::F32, shape: None::<SymShape> };
        let mut g = GraphBuilder::new("two");
        let mut y = g.input("x", ty.clone());
        for (name, shape) in [("a.weight", [2, 3]), ("b.weight", [3, 3])] {
            let zeros = vec![0f32; shape[0] * shape[1]];
            let w = g.initializer(name, Tensor::from_slice(shape, &zeros).unwrap());
            y = g.node("MatMul", &[y, w], []);
        }
        let bias = g.initializer("b.bias", Tensor::from_slice([3], &[0f32; 3]).unwrap());
        y = g.node("Add", &[y, bias], []);
        g.output("y", y, ty);
        g.finish().unwrap()
    }

    const SIX: &[f32] = &[1., 2., 3., 4., 5., 6.];
    const NINE: &[f32] = &[1., 2., 3., 4., 5., 6., 7., 8., 9.];

    #[test]
    fn tensors_are_bound_by_name_and_turned_where_shapes_say_so() -> Result<()> {
        let file = file(&[
            ("module.a.weight", &[3, 2], SIX),
            ("b.weight", &[3, 3], NINE),
            ("c", &[1], &[0.]),
        ]);
        let (model, binding) = model().with_weights(&file, &BTreeMap::new())?;
        let stored = |name: &str| model.initializers[name].as_slice::<f32>().map(<[f32]>::to_vec);
        assert_eq!(stored("a.weight")?, [1., 3., 5., 2., 4., 6.]);
        assert_eq!(stored("b.weight")?, [1., 4., 7., 2., 5., 8., 3., 6., 9.]);
        assert!(binding.bound.len() == 2 && binding.bound.iter().all(|b| b.transposed));
        assert_eq!((binding.unused, binding.unmatched), (vec!["c".into()], vec!["b.bias".into()]));
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let none = BTreeMap::new();
        let map = |a: &str, b: &str| BTreeMap::from([(a.to_owned(), b.to_owned())]);
        let cases = [
            (file(&[("a.weight", &[6], SIX)]), none.clone(), "has shape [6], expected [2, 3]"),
            (file(&[("b.weight", &[3, 3], NINE)]), none.clone(), "is square"),
            (file(&[("c", &[6], SIX)]), map("b.bias", "c"), "has shape [6], expected [3]"),
            (file(&[("c", &[6], SIX)]), map("b.bias", "d"), "no tensor 'd' for 'b.bias'"),
            (file(&[("c", &[6], SIX)]), map("d", "c"), "no stored tensor 'd'"),
        ];
        for (file, map, message) in cases {
            let error = model().with_weights(&file, &map).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
