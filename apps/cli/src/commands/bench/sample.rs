//! The parts of a run that later runs are compared by: the program, the machine and all values.

use crate::failure::{Failure, Result};
use lgp_measure::stats;
use lgp_sdk::device::DeviceId;
use lgp_sdk::model::SessionOptions;
use serde::{Deserialize, Serialize};

/// The version of this program.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A measured quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sample {
    pub(super) unit: String,
    pub(super) better: Better,
    /// Every value, in order.
    pub(super) values: Vec<f64>,
}

/// The direction in which a quantity is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Better {
    Lower,
    Higher,
    Neither,
}

impl Better {
    /// The name in the JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Lower => "lower",
            Self::Higher => "higher",
            Self::Neither => "neither",
        }
    }
}

impl From<Better> for stats::Better {
    fn from(better: Better) -> Self {
        match better {
            Better::Lower => Self::Lower,
            Better::Higher => Self::Higher,
            Better::Neither => Self::Neither,
        }
    }
}

/// The machine that measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) memory_bytes: Option<u64>,
}

impl Machine {
    /// This machine.
    pub(super) fn this() -> Result<Self> {
        let processor = lgp_hal::open(DeviceId::CPU)
            .map_err(|error| Failure::from_error("device_broken", &error))?;
        Ok(Self {
            cpu: processor.name().to_owned(),
            cores: SessionOptions::default().threads,
            memory_bytes: processor.caps().memory_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_direction_has_the_name_that_its_json_has() {
        for better in [Better::Lower, Better::Higher, Better::Neither] {
            let json = serde_json::to_value(better).expect("a text");
            assert_eq!(json, Value::from(better.name()));
        }
    }
}
