//! How one run of a session differs from a plain run.

use crate::error::Result;
use crate::profile::{Profile, Recorder};
use lgp_compute::{Context, Stop};

/// The options of one run: a request to stop that the run obeys, and a [`Profile`] that the run
/// fills. Both work for every kind of run.
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

/// The profile of a run's nodes.
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

    /// The run ends with [`Error::Stopped`](crate::Error::Stopped) once `stop` asks for it.
    #[must_use]
    pub fn until(self, stop: &Stop) -> Self {
        Self { stop: Some(stop.clone()), ..self }
    }

    /// The run records the time of each node. A batch of images then runs as a whole, even if its
    /// images would otherwise run one by one. The profile is emptied at once, and stays empty if
    /// the run fails.
    #[must_use]
    pub fn profile(self, profile: &'a mut Profile) -> Self {
        self.measured(profile, true)
    }

    /// As [`RunOptions::profile`], but the batch runs as it would without a profile: images that
    /// run one by one record no nodes.
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
    /// An error of `run`.
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
