//! The cluster API: workers, tasks, models, join tokens and settings.
//!
//! ```text
//! KEY="Authorization: Bearer $(cat DATA/local.key)"
//! curl -H "$KEY" localhost:8000/api/v1/cluster/workers
//! curl -H "$KEY" localhost:8000/api/v1/cluster/tasks -d '{"model":"digits","inputs":[{"name":"image",
//!   "shape":[1,1,8,8],"datatype":"FP32","data":[0,0,5,…]}],"priority":"high"}'
//! # With tensors as bytes behind the JSON, whose inputs have "parameters":{"binary_data_size":N}
//! curl -H "$KEY" localhost:8000/api/v1/cluster/tasks -H "Inference-Header-Content-Length: $(wc -c < json)" \
//!   --data-binary @<(cat json tensors)
//! curl -H "$KEY" -X POST localhost:8000/api/v1/cluster/models/mine --data-binary @mine.onnx
//! ```

mod admin;
mod aliases;
mod events;
mod insight;
mod journal;
mod keys;
mod listing;
mod logs;
mod models;
mod references;
mod routes;
mod sign_ins;
mod tasks;
mod tokens;
mod upload;
mod waiting;
mod workers;

pub(crate) use events::LAST_EVENT_ID;
pub(crate) use references::{leave_out, may_see};
pub(crate) use routes::routes;
#[cfg(feature = "planted")]
pub(crate) use tasks::can_read;
