//! Calls that list, load and unload models.

use super::proto::ModelRepositoryParameter;
use super::proto::repository_index_response::ModelIndex;
use super::service::Service;
use crate::access::Caller;
use crate::catalog::Indexed;
use crate::fault::Fault;
use crate::leader;
use crate::oip;
use std::collections::HashMap;

impl Service {
    pub(super) async fn index(
        &self,
        caller: &Caller,
        ready_only: bool,
    ) -> Result<Vec<ModelIndex>, Fault> {
        let catalog = self.state().catalog();
        let mut models = Vec::new();
        for Indexed { name, version, readiness } in catalog.index().await? {
            if !caller.may_use(&name) || ready_only && !readiness.is_ready() {
                continue;
            }
            models.push(ModelIndex {
                name,
                version: version.to_string(),
                state: readiness.name().to_owned(),
                reason: readiness.reason().to_owned(),
            });
        }
        Ok(models)
    }

    pub(super) async fn load(
        &self,
        name: &str,
        parameters: &HashMap<String, ModelRepositoryParameter>,
    ) -> Result<(), Fault> {
        oip::refuse_upload(parameters.keys())?;
        leader::check(self.state())?;
        self.state().catalog().load(name, None).await.map(drop)
    }

    pub(super) async fn unload(&self, name: &str) -> Result<(), Fault> {
        leader::check(self.state())?;
        self.state().catalog().unload(name, None).await.map(drop)
    }
}
