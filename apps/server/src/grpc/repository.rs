//! Which models there are, and loading and unloading them.

use super::proto::ModelRepositoryParameter;
use super::proto::repository_index_response::ModelIndex;
use super::service::Service;
use crate::access::Caller;
use crate::catalog::Readiness;
use crate::fault::Fault;
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
        for entry in catalog.list().await? {
            let readiness = catalog.readiness(&entry);
            if !caller.may_use(entry.name()) || ready_only && readiness != Readiness::Ready {
                continue;
            }
            models.push(ModelIndex {
                name: entry.name().to_owned(),
                version: entry.version().to_string(),
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
        self.state().catalog().load(name).await.map(drop)
    }

    pub(super) async fn unload(&self, name: &str) -> Result<(), Fault> {
        self.state().catalog().unload(name).await.map(drop)
    }
}
