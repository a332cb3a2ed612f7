//! The owner of the processes of local workers.

/// The owner of the processes of local workers, for [`Services`](crate::Services).
pub trait Supervisor: Send + Sync {
    /// Brings the number of local workers to `workers`; returns how many there were. Called from
    /// the runtime of the coordinator, and must not block.
    ///
    /// # Errors
    /// Why not, in words for an administrator.
    fn scale(&self, workers: usize) -> Result<usize, String>;

    /// Ends the process of a local worker, which may take no orders any more, and starts another
    /// one in its place; ignores a worker that is not local. As above, it must not block.
    fn replace(&self, worker: &str);
}
