//! Which parts of a model can compute on bytes, by the forms on bytes that its operators have.

use super::sites::Site;
use crate::error::{Error, Result};
use lgp_compute::bytes::{Dequantized, QuantizedWeight, Requantized};
use lgp_compute::ops::{BinaryKind, Quant};
use lgp_inference::{Model, Structure, StructureOp};
use lgp_memory::{DType, Tensor};
use std::collections::{BTreeSet, HashMap};

/// The operators that will compute on bytes, and the values that will be bytes.
#[derive(Debug, Default)]
pub(crate) struct OnBytesPlan {
    /// Indices of operators in the structure.
    pub(crate) operators: BTreeSet<usize>,
    /// Names of the values that are rounded to bytes.
    pub(crate) values: BTreeSet<String>,
}

/// Chooses the operators: products with stored weights that have a form on bytes, and the operators
/// between such products that have one too. `without` has products that stay as they are.
pub(crate) fn plan(
    model: &Model,
    structure: &Structure,
    (sites, weights): (&[Site], &HashMap<String, QuantizedWeight>),
    without: &BTreeSet<usize>,
) -> OnBytesPlan {
    let graph = Graph::new(structure, sites, weights);
    let able = |index: &usize| !without.contains(index) && graph.is_able(*index);
    let mut chosen: BTreeSet<usize> = (0..structure.operators.len()).filter(able).collect();
    loop {
        let stays =
            |index: &usize| graph.products.contains(index) || graph.between(*index, &chosen);
        let kept: BTreeSet<usize> = chosen.iter().copied().filter(stays).collect();
        if kept.len() == chosen.len() {
            break;
        }
        chosen = kept;
    }
    let outputs: BTreeSet<&str> = model.outputs().iter().map(|it| it.name.as_str()).collect();
    let ends = |id: &usize| outputs.contains(structure.values[*id].name.as_str());
    let touched = chosen.iter().flat_map(|index| {
        let operator = &structure.operators[*index];
        let made = floats(structure, &operator.outputs);
        floats(structure, &operator.inputs).into_iter().chain(made)
    });
    let rounded = touched.filter(|id| !ends(id) && !graph.is_inner(*id, &chosen));
    let values = rounded.map(|id| structure.values[id].name.clone()).collect();
    OnBytesPlan { operators: chosen, values }
}

/// The operators and who reads whom.
struct Graph<'a> {
    structure: &'a Structure,
    weights: &'a HashMap<String, QuantizedWeight>,
    products: BTreeSet<usize>,
    /// How many operators each node of the model became.
    parts: HashMap<usize, usize>,
    /// The operator that makes each value.
    makers: HashMap<usize, usize>,
    /// The operators that read each value.
    readers: HashMap<usize, Vec<usize>>,
}

impl<'a> Graph<'a> {
    fn new(
        structure: &'a Structure,
        sites: &[Site],
        weights: &'a HashMap<String, QuantizedWeight>,
    ) -> Self {
        let (mut makers, mut readers) = (HashMap::new(), HashMap::<usize, Vec<usize>>::new());
        let mut parts = HashMap::new();
        for (index, operator) in structure.operators.iter().enumerate() {
            *parts.entry(operator.node).or_insert(0) += 1;
            makers.extend(operator.outputs.iter().flatten().map(|id| (*id, index)));
            for id in operator.inputs.iter().flatten() {
                readers.entry(*id).or_default().push(index);
            }
        }
        let products = sites.iter().filter(|site| weights.contains_key(&site.weight));
        let products = products.map(|site| site.operator).collect();
        Self { structure, weights, products, parts, makers, readers }
    }

    /// Whether an operator can be part of a chain of bytes. A node of the model that becomes
    /// several operators cannot: its inner values have no places for the nodes that round.
    fn is_able(&self, index: usize) -> bool {
        let operator = &self.structure.operators[index];
        let absorbed = || {
            let added = floats(self.structure, &operator.inputs);
            let maker = added.first().and_then(|id| self.makers.get(id));
            self.adds_constant(index) && maker.is_some_and(|maker| self.products.contains(maker))
        };
        self.parts.get(&operator.node) == Some(&1)
            && (self.has_form(index, UNLIMITED) || absorbed())
    }

    /// Whether all floats that an operator reads come from chosen operators, and one of these reads
    /// its result.
    fn between(&self, index: usize, chosen: &BTreeSet<usize>) -> bool {
        let operator = &self.structure.operators[index];
        let read = floats(self.structure, &operator.inputs);
        let from = read.iter().all(|id| self.makers.get(id).is_some_and(|it| chosen.contains(it)));
        let mut into = operator.outputs.iter().flatten().flat_map(|id| self.readers.get(id));
        !read.is_empty() && from && into.any(|all| all.iter().any(|reader| chosen.contains(reader)))
    }

    /// Whether a value stays inside one kernel on bytes: its only reader limits it, or adds a
    /// constant to a product, and the kernel that makes it can do that.
    fn is_inner(&self, id: usize, chosen: &BTreeSet<usize>) -> bool {
        let Some([reader]) = self.readers.get(&id).map(Vec::as_slice) else { return false };
        let Some(maker) = self.makers.get(&id) else { return false };
        if !chosen.contains(reader) || !chosen.contains(maker) {
            return false;
        }
        let operator = &self.structure.operators[*reader];
        let activation = operator.op.activation(&self.structure.infos(operator));
        let limits = activation.and_then(|activation| activation.bounds());
        let limited = limits.is_some_and(|limits| self.has_form(*maker, limits));
        limited || (self.adds_constant(*reader) && self.products.contains(maker))
    }

    fn adds_constant(&self, index: usize) -> bool {
        let operator = &self.structure.operators[index];
        let infos = self.structure.infos(operator);
        let constants = infos.iter().flatten().filter(|info| info.constant.is_some()).count();
        operator.op.arithmetic() == Some(BinaryKind::Add) && constants == 1
    }

    /// Whether an operator has a form on bytes, if all its floats are bytes, with a result that is
    /// limited.
    fn has_form(&self, index: usize, limits: (f32, f32)) -> bool {
        let operator: &StructureOp = &self.structure.operators[index];
        let quant = Quant { dtype: DType::U8, scale: 0.05, zero: 128 };
        let infos = self.structure.infos(operator);
        let given: Vec<Option<Dequantized<'_>>> = infos
            .iter()
            .zip(&operator.inputs)
            .map(|(info, id)| {
                let info = (*info)?;
                let weight = id.and_then(|id| self.weights.get(&self.structure.values[id].name));
                let is_bytes = info.constant.is_none() && info.ty.dtype == DType::F32;
                Some(Dequantized { info, quant: is_bytes.then_some(quant), weight })
            })
            .collect();
        operator.outputs.len() == 1
            && given.iter().flatten().any(|input| input.quant.is_some())
            && operator.op.on_bytes(&given, &Requantized { quant, limits }).is_some()
    }
}

const UNLIMITED: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);

/// The weight of a site as i8, from codes around 128 and a scale for each row of its matrix or one
/// for all.
///
/// # Errors
/// Codes of another number than the weight has elements; out of memory.
pub(crate) fn weight(site: &Site, codes: &[u8], scales: &[f32]) -> Result<QuantizedWeight> {
    let numbers: Vec<f32> = codes.iter().map(|code| f32::from(*code) - 128.).collect();
    let rows = site.shape[site.n_axis].max(1);
    let matrix = ndarray::Array2::from_shape_vec((rows, numbers.len() / rows), numbers);
    let matrix = matrix.map_err(|e| Error::compression("store codes", e.to_string()))?;
    let plain = site.tensor(&matrix)?;
    #[allow(clippy::cast_possible_truncation, reason = "the numbers are -128 to 127")]
    let bytes: Vec<i8> = plain.as_slice::<f32>()?.iter().map(|code| *code as i8).collect();
    Ok(QuantizedWeight {
        tensor: Tensor::from_slice(site.shape.clone(), &bytes)?,
        scale: scales.to_vec(),
        zero: vec![0; scales.len()],
        axis: site.n_axis,
    })
}

/// The values among these that are floats and not constant.
fn floats(structure: &Structure, ids: &[Option<usize>]) -> Vec<usize> {
    let is_float = |id: &usize| {
        let info = structure.values[*id].info.as_ref();
        info.is_some_and(|info| info.ty.dtype == DType::F32 && info.constant.is_none())
    };
    ids.iter().flatten().copied().filter(is_float).collect()
}
