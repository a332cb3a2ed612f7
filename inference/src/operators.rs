//! Operators that other crates define.

use crate::model::ModelNode;
use lgp_compute::Op;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Makes an operator from a node's attributes; the error tells why it cannot.
type Make = Arc<dyn Fn(&ModelNode) -> Result<Arc<dyn Op>, String> + Send + Sync>;

/// Operators by domain and name, for models with operators that this crate does not know. Operators
/// that it knows are not replaced.
///
/// An operator of another crate is compiled as those of this one are: by the facts that it states
/// about axes, memory and rewrites ([`Op`]).
///
/// ```
/// use lgp_compute::{Context, Op, Result, ValueInfo};
/// use lgp_inference::{GraphBuilder, Operators, Session, SessionOptions};
/// use lgp_memory::{DType, Tensor, TensorType, TensorView};
/// use std::sync::Arc;
///
/// /// `2 · x`, in f32.
/// #[derive(Debug)]
/// struct Twice;
///
/// impl Op for Twice {
///     fn name(&self) -> &'static str {
///         "Twice"
///     }
///     fn arity(&self) -> std::ops::RangeInclusive<usize> {
///         1..=1
///     }
///     fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
///         Ok(inputs.iter().flatten().map(|x| ValueInfo::of(x.ty.clone())).collect())
///     }
///     fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
///         let mut made = Vec::new();
///         for x in inputs.iter().flatten() {
///             let mut out = ctx.alloc(DType::F32, x.shape().clone())?;
///             let pairs = out.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?);
///             pairs.for_each(|(out, x)| *out = 2. * x);
///             made.push(out);
///         }
///         Ok(made)
///     }
/// }
///
/// let ty = TensorType { dtype: DType::F32, shape: None };
/// let mut g = GraphBuilder::new("g");
/// let x = g.input("x", ty.clone());
/// let y = g.node("my.domain::Twice", &[x], []);
/// g.output("y", y, ty);
/// let operators = Operators::new().with("my.domain", "Twice", |_| Ok(Arc::new(Twice)));
/// let model = g.finish()?.with_operators(operators);
///
/// let session = Session::new(model, SessionOptions::with_threads(1))?;
/// let x = Tensor::from_slice([2], &[1f32, 2.])?;
/// let y = session.run(&[("x", x.view())])?;
/// assert_eq!(y[0].tensor.as_slice::<f32>()?, [2., 4.]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Operators(BTreeMap<(String, String), Make>);

impl Operators {
    /// No operators.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operator; `make` makes it from each node that names it.
    #[must_use]
    pub fn with(
        mut self,
        domain: impl Into<String>,
        name: impl Into<String>,
        make: impl Fn(&ModelNode) -> Result<Arc<dyn Op>, String> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert((domain.into(), name.into()), Arc::new(make));
        self
    }

    /// The operator of a node; `None` where none of this name was added.
    pub(crate) fn make(&self, node: &ModelNode) -> Option<Result<Arc<dyn Op>, String>> {
        let make = self.0.get(&(node.domain.clone(), node.op_type.clone()))?;
        Some(make(node))
    }
}

impl std::fmt::Debug for Operators {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Two are equal if they have the same names with the same makers.
impl PartialEq for Operators {
    fn eq(&self, other: &Self) -> bool {
        let mut pairs = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len() && pairs.all(|(a, b)| a.0 == b.0 && Arc::ptr_eq(a.1, b.1))
    }
}
