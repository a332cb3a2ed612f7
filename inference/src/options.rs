//! How a session computes, and how one of its runs differs from a plain one.

use crate::error::Result;
use crate::profile::{Profile, Recorder};
use lgp_compute::{Context, Isa, Stop};

/// How a session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// Threads that one run may use; 1 runs on the caller's thread alone.
    pub threads: usize,
    /// The widest vector instructions that kernels may use; `None` is what the machine has.
    pub isa: Option<Isa>,
    /// How precisely to compute.
    pub precision: Precision,
}

impl Default for SessionOptions {
    /// A thread for each core, all instructions, exact.
    fn default() -> Self {
        Self::with_threads(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
    }
}

impl SessionOptions {
    /// The default with a number of threads.
    #[must_use]
    pub fn with_threads(threads: usize) -> Self {
        Self { threads, isa: None, precision: Precision::Exact }
    }
}

/// How precisely a session computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// As the model is written, in f32. Sums are added up in another order, and convolutions of 3×3
    /// may use Winograd's transforms, F(2×2) and F(4×4), which spread the rounding error of a pixel
    /// over its tile: one a million times larger than the others was measured to put errors of 0.1
    /// into its neighbours.
    #[default]
    Exact,
    /// Products of matrices and convolutions in bf16 with sums in f32, where the machine has
    /// instructions for it (AVX-512 BF16); elsewhere as the model is written.
    Fast,
    /// Products of matrices with constant weights in 8 bits: the weights are quantised when the
    /// model is loaded, what meets them in each run. Convolutions stay f32.
    Int8,
}

/// How one run differs from a plain one: a request to stop that it obeys, and a [`Profile`] that
/// it fills. Both fit every kind of run.
///
/// ```
/// use lgp_inference::{GraphBuilder, Profile, RunOptions, Session, SessionOptions, Stop};
/// use lgp_memory::{DType, Tensor, TensorType};
///
/// let ty = TensorType { dtype: DType::F32, shape: None };
/// let mut g = GraphBuilder::new("relu");
/// let x = g.input("x", ty.clone());
/// let y = g.node("Relu", &[x], []);
/// g.output("y", y, ty);
/// let session = Session::new(g.finish()?, SessionOptions::with_threads(1))?;
///
/// let x = Tensor::from_slice([1], &[1f32])?;
/// let (stop, mut profile) = (Stop::new(), Profile::default());
/// let options = RunOptions::new().until(&stop).profile(&mut profile);
/// session.run_with(&[("x", x.view())], options)?;
/// assert_eq!(profile.nodes[0].op, "Relu");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct RunOptions<'a> {
    stop: Option<Stop>,
    measured: Option<Measured<'a>>,
}

/// Where a run tells what its nodes took.
#[derive(Debug)]
struct Measured<'a> {
    profile: &'a mut Profile,
    /// As [`Recorder::wants_whole`].
    wants_whole: bool,
}

impl<'a> RunOptions<'a> {
    /// The options of a plain run: nothing stops it, and it fills no profile.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The run ends as [`Error::Stopped`](crate::Error::Stopped) once `stop` asks for it.
    #[must_use]
    pub fn until(self, stop: &Stop) -> Self {
        Self { stop: Some(stop.clone()), ..self }
    }

    /// The run tells what each node took. A batch of images then runs as a whole, even where its
    /// images would otherwise run one by one. The profile is emptied at once, and stays empty if
    /// the run fails.
    #[must_use]
    pub fn profile(self, profile: &'a mut Profile) -> Self {
        self.measured(profile, true)
    }

    /// As [`RunOptions::profile`], but the run goes as it would go without a profile: of a batch
    /// whose images run one by one, no node is told.
    #[must_use]
    pub fn trace(self, profile: &'a mut Profile) -> Self {
        self.measured(profile, false)
    }

    fn measured(self, profile: &'a mut Profile, wants_whole: bool) -> Self {
        *profile = Profile::default();
        Self { measured: Some(Measured { profile, wants_whole }), ..self }
    }

    /// Calls `run` with the context and the recorder that these options ask for, and fills the
    /// profile once it has succeeded.
    ///
    /// # Errors
    /// What `run` fails with.
    pub(crate) fn apply<T>(
        self,
        ctx: &Context,
        run: impl FnOnce(&Context, Option<&mut Recorder>) -> Result<T>,
    ) -> Result<T> {
        let stoppable = self.stop.map(|stop| ctx.clone().with_stop(stop));
        let ctx = stoppable.as_ref().unwrap_or(ctx);
        let Some(Measured { profile, wants_whole }) = self.measured else { return run(ctx, None) };
        let mut recorder = Recorder::new(wants_whole);
        let made = run(ctx, Some(&mut recorder))?;
        *profile = recorder.finish();
        Ok(made)
    }
}
