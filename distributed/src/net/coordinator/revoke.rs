//! Revokes a member: its certificates, its connections, and the tokens that it has made.

use super::Coordinator;
use crate::error::{Error, Result};
use crate::net::identity::pki::Revocation;
use crate::net::identity::role::Role;
use crate::worker_info::WorkerId;

impl Coordinator {
    /// Revokes every certificate that a member was given so far: the member can neither connect nor
    /// renew with one, and its connections are closed; returns how many it had. Certificates for a
    /// later token are good. Join tokens that it has made, as an administrator may, are taken back;
    /// members that joined with one stay. The authority's folder keeps the revocation until none of
    /// the certificates could be renewed any more. Once begun, this goes on to its end, even if its
    /// future is dropped.
    ///
    /// Members that know one another's addresses, as ranks of a ring may, do not hear of it.
    ///
    /// # Errors
    /// [`Error::TokenLimit`] when too many members are revoked at once, and then nothing happened.
    /// [`Error::File`] where the revocation cannot be written down: it takes effect all the same,
    /// and holds until the coordinator restarts.
    pub async fn revoke(&self, role: Role, name: WorkerId) -> Result<(Revocation, usize)> {
        let own = self.clone();
        // On a blocking thread, a dropped future cannot end it halfway.
        let revoking = tokio::task::spawn_blocking(move || {
            let (revocation, kept) = own.pki.revoke(role, name)?;
            let name = &revocation.name;
            let closed = own.present.send_away(|m| own.pki.is_revoked(m), (role, name));
            if role == Role::Worker {
                // The name may be reserved for a machine that joined a moment ago.
                own.limits.release(name);
                own.shared.with(|core, now| core.worker_revoked(now, name.as_str()));
            }
            let maker = (role, name.clone());
            let taken = own.tokens.as_ref().map(|tokens| tokens.take_back(&maker));
            let (tokens, forgotten) = taken.unwrap_or_else(|| (Vec::new(), Ok(())));
            tracing::warn!(%role, %name, closed, ?tokens, "certificates were revoked");
            kept.and(forgotten).map_err(|error| match error {
                Error::File { path, source, .. } => {
                    let what = "keep a revocation, which holds until the coordinator restarts, in";
                    tracing::error!(%role, %name, path = %path.display(), %source, "cannot {what}");
                    Error::File { what, path, source }
                }
                other => other,
            })?;
            Ok::<_, Error>((revocation, closed))
        });
        revoking.await.map_err(|_| Error::Stopped)?
    }
}
