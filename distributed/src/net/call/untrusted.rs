//! Calls and answers as bytes, for checks that make such bytes up.

use super::{Answer, Call, Refusal, Spec};
use crate::net::identity::role::Role;
use crate::net::transport::{rpc, wire};
use crate::proto::frame::BODY_BYTES_MAX;
use crate::proto::tensors::{describe, plan_first};
use crate::task::TaskSpec;

/// Whether bytes are a call whose tensors could follow.
pub fn is_call(bytes: &[u8]) -> bool {
    rpc::decode::<Call>(bytes).is_ok_and(|call| match call {
        Call::Submit(spec) | Call::Run(spec) => plan_first(spec.tensors, BODY_BYTES_MAX).is_ok(),
        _ => true,
    })
}

/// Whether bytes are the answer to a call.
pub fn is_answer(bytes: &[u8]) -> bool {
    rpc::decode::<Answer>(bytes).is_ok()
}

/// A call with tensors, and an answer, as they travel.
pub fn samples(spec: TaskSpec) -> crate::Result<[Vec<u8>; 2]> {
    let (metas, _) = describe(&spec.inputs)?;
    let call = Call::Run(Box::new(Spec::of(spec, metas)));
    let answer: Answer = Err(Refusal::Role { call: "drain".into(), needs: Role::Admin });
    let bytes = |encoded: Result<Vec<u8>, postcard::Error>| encoded.map_err(wire::lost);
    Ok([bytes(postcard::to_stdvec(&call))?, bytes(postcard::to_stdvec(&answer))?])
}
