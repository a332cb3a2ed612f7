//! A registered model, as the cluster API describes it.

use crate::failure::{Failure, Result};
use crate::folder;
use crate::picture;
use crate::rest::{Client, segment};
use crate::wire::WireSpec;
use lgp_common::vision::Scaling;
use lgp_sdk::model::ValueSpec;
use serde::Deserialize;

/// A version of a model.
#[derive(Debug, Deserialize)]
pub(crate) struct Registered {
    name: String,
    version: u64,
    inputs: Vec<WireSpec>,
    #[serde(default)]
    labels: Option<Vec<String>>,
    #[serde(default)]
    scaling: Option<Scaling>,
}

impl Registered {
    /// The version for NAME/VERSION; for a bare NAME, the served one.
    ///
    /// # Errors
    /// `usage` for an invalid name; the coordinator's refusals.
    pub(crate) fn of(client: &Client, text: &str) -> Result<Self> {
        let Some((name, version)) = text.split_once('/') else {
            return client.get(&format!("models/{}", segment(text)));
        };
        let version: u64 = version.parse().map_err(|_| {
            Failure::usage(format!("model {text:?} is not valid, expected NAME or NAME/VERSION"))
        })?;
        let found = client.get(&format!("models/{}/versions/{version}", segment(name)));
        found.map_err(|failure: Failure| match &*failure.code {
            // The code that the command line has always used.
            "unknown_model" => Failure { code: "model_unknown".into(), ..failure },
            _ => failure,
        })
    }

    /// The names of the model's classes, where known.
    pub(crate) fn labels(&self) -> Vec<String> {
        self.labels.clone().unwrap_or_default()
    }

    /// Its inputs, as a session would describe them.
    pub(crate) fn inputs(&self) -> Result<Vec<ValueSpec>> {
        self.inputs.iter().map(WireSpec::spec).collect()
    }

    /// The scaling of pictures for the model's input: from the model's configuration file in the data folder, which may
    /// be invalid, else from the coordinator.
    pub(crate) fn scaling(&self, client: &Client) -> Result<Scaling> {
        match client.data() {
            Some(data) => picture::scaling_of(&folder::model_file(data, &self.name, self.version)),
            None => Ok(self.scaling.clone().unwrap_or_default()),
        }
    }
}
