//! Several operators as one: element-wise ones, alone or at the end of another operator's kernel.

mod facts;

use super::launches::Launches;
use super::pointwise::{Operand, Pointwise};
use crate::Axes;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo, count, launch};
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// An element-wise operator and what it reads. Input 0 is the base's result where there is a base.
#[derive(Debug, Clone)]
pub struct Step {
    /// The operator, of one output.
    pub op: Arc<dyn Op>,
    /// Where its inputs come from; `None` for an optional one that is absent.
    pub operands: Vec<Option<Operand>>,
}

/// Operators whose intermediate results stay in registers: the base, which need not be
/// element-wise, and element-wise steps after it. The inputs are those of the base, then those that
/// steps read; the output is the last step's.
///
/// On the CPU the operators run one after the other.
#[derive(Debug, Clone)]
pub struct Fused {
    /// The base, with the number of its inputs.
    base: Option<(Arc<dyn Op>, usize)>,
    steps: Vec<Step>,
}

impl Fused {
    /// Joins operators; `base` comes with the number of its inputs. The steps are in order: each
    /// reads inputs and the results of earlier ones.
    #[must_use]
    pub fn new(base: Option<(Arc<dyn Op>, usize)>, steps: Vec<Step>) -> Self {
        Self { base, steps }
    }

    /// The operators' names, in order.
    pub fn parts(&self) -> impl Iterator<Item = &'static str> {
        let base = self.base.iter().map(|(op, _)| op.name());
        base.chain(self.steps.iter().map(|step| step.op.name()))
    }

    /// How many of the inputs belong to the base.
    fn own(&self, given: usize) -> Result<usize> {
        let arity = self.arity();
        count(&arity, given).map(|()| *arity.start())
    }

    /// Applies the operators in order to values of type `T`: `apply` answers an operator's result
    /// for its inputs. Answers every result in order, the base's first where there is a base.
    fn walk<T: Clone>(
        &self,
        inputs: &[Option<T>],
        mut apply: impl FnMut(&dyn Op, &[Option<T>]) -> Result<T>,
    ) -> Result<Vec<T>> {
        let (own, extra) = inputs.split_at(self.own(inputs.len())?);
        let base = self.base.as_ref().map(|(op, _)| apply(&**op, own)).transpose()?;
        let given: Vec<Option<T>> =
            base.clone().map(Some).into_iter().chain(extra.iter().cloned()).collect();
        let mut results: Vec<T> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let operands = step.operands.iter().map(|operand| match *operand {
                None => Ok(None),
                Some(Operand::Input(i)) => given.get(i).cloned().ok_or(()),
                Some(Operand::Step(i)) => results.get(i).cloned().map(Some).ok_or(()),
            });
            let operands: Vec<Option<T>> = operands
                .collect::<Result<_, ()>>()
                .map_err(|()| Error::invalid("a step reads what is not there"))?;
            results.push(apply(&*step.op, &operands)?);
        }
        Ok(base.into_iter().chain(results).collect())
    }

    /// The work of a device for these inputs; `None` where it cannot compute them.
    fn on_device<'a, 'b>(
        &self,
        inputs: &'a [Option<&'b ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Parts<'a, 'b>> {
        let [output] = outputs else { return None };
        let (own, extra) = inputs.split_at(self.own(inputs.len()).ok()?);
        let extra: Vec<&ValueInfo> = extra.iter().copied().collect::<Option<_>>()?;
        let mut base = self.types(inputs).ok()?;
        let results = base.split_off(usize::from(self.base.is_some()));
        let read: Vec<&ValueInfo> = base.iter().chain(extra.iter().copied()).collect();
        let mut steps = Pointwise::new(&read, output)?;
        for (step, result) in self.steps.iter().zip(results) {
            steps = steps.step(&*step.op, &step.operands, result.ty.dtype)?;
        }
        Some(Parts { own, base, steps })
    }

    /// The type of each result, the base's first where there is a base.
    fn types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        self.seen(inputs, |_, _, _| ())
    }

    /// As [`Self::types`]; `see` is called with each operator, its inputs and its outputs.
    fn seen(
        &self,
        inputs: &[Option<&ValueInfo>],
        mut see: impl FnMut(&dyn Op, &[Option<&ValueInfo>], &[ValueInfo]),
    ) -> Result<Vec<ValueInfo>> {
        let owned: Vec<Option<ValueInfo>> = inputs.iter().map(|info| info.cloned()).collect();
        self.walk(&owned, |op, given| {
            let given: Vec<Option<&ValueInfo>> = given.iter().map(Option::as_ref).collect();
            let made = op.infer(&given)?;
            see(op, &given, &made);
            let first = made.into_iter().next();
            first.ok_or_else(|| Error::invalid("it makes nothing").of(op.name()))
        })
    }
}

/// The work of a device.
struct Parts<'a, 'b> {
    /// The base's inputs.
    own: &'a [Option<&'b ValueInfo>],
    /// The base's results; empty where there is no base.
    base: Vec<ValueInfo>,
    steps: Pointwise,
}

/// A tensor between operators on the CPU.
#[derive(Clone)]
enum Value<'a> {
    Given(TensorView<'a>),
    Made(Arc<Tensor>),
}

impl Value<'_> {
    fn view(&self) -> TensorView<'_> {
        match self {
            Self::Given(view) => view.clone(),
            Self::Made(tensor) => tensor.view(),
        }
    }
}

impl Op for Fused {
    fn name(&self) -> &'static str {
        "Fused"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        self.base.as_ref().map_or(0, |(_, inputs)| *inputs)..=usize::MAX
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        Ok(self.types(inputs)?.pop().into_iter().collect())
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        match &self.base {
            Some((base, _)) => self.axes_of_base(&**base, inputs, outputs).unwrap_or_default(),
            None => Axes::elementwise(inputs, outputs),
        }
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        let mut sum = 0u64;
        let all = self.seen(inputs, |op, given, made| {
            sum = sum.saturating_add(op.multiply_adds(given, made));
        });
        all.map_or(0, |_| sum)
    }

    fn label(&self) -> String {
        self.parts().collect::<Vec<_>>().join("+")
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let given: Vec<Option<Value<'_>>> =
            inputs.iter().map(|input| input.clone().map(Value::Given)).collect();
        let mut results = self.walk(&given, |op, given| {
            let views: Vec<Option<TensorView<'_>>> =
                given.iter().map(|x| x.as_ref().map(Value::view)).collect();
            let made = launch(op, ctx, &views)?.into_iter().next();
            let made = made.ok_or_else(|| Error::invalid("it makes nothing").of(op.name()))?;
            Ok(Value::Made(Arc::new(made)))
        })?;
        match results.pop() {
            Some(Value::Made(last)) => Ok(Arc::into_inner(last).into_iter().collect()),
            _ => Err(Error::invalid("there are no operators")),
        }
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        let Parts { own, base, steps } = self.on_device(inputs, outputs)?;
        match &self.base {
            Some((op, _)) => op.launches(own, &base)?.finished_by(&steps, own.len()),
            None => steps.launches(),
        }
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        let Some(Parts { own, base, steps }) = self.on_device(inputs, outputs) else {
            return Vec::new();
        };
        let Some((op, _)) = &self.base else { return steps.launches().into_iter().collect() };
        let schedules = op.schedules(own, &base).into_iter();
        schedules.filter_map(|launches| launches.finished_by(&steps, own.len())).collect()
    }
}
