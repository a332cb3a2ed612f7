//! Parses Triton's settings of a stateful model's sequences.

use super::proto::ModelSequenceBatching;
use super::proto::model_sequence_batching::control::Kind;
use super::proto::model_sequence_batching::initial_state::StateData;
use super::proto::model_sequence_batching::{Control, ControlInput, State};
use super::{Port, Side, dtype, port};
use crate::deployment::{ControlKind, SequenceControl, SequenceState, Sequences};
use lgp_memory::DType;
use std::num::NonZeroU64;

/// The default: one second.
const IDLE_US: u64 = 1_000_000;

/// Parses the settings, and adds the inputs and outputs in them to `ports`.
pub(super) fn read(
    said: &ModelSequenceBatching,
    ports: &mut Vec<Port>,
) -> Result<Sequences, String> {
    if said.iterative_sequence {
        let what = "sequence_batching.iterative_sequence is not supported";
        return Err(format!("{what}: each request has one answer here"));
    }
    let idle_us = match said.max_sequence_idle_microseconds {
        0 => IDLE_US,
        us => us,
    };
    let idle_ms = NonZeroU64::new(idle_us.div_ceil(1000)).unwrap_or(NonZeroU64::MIN);
    let states = said.state.iter().map(|it| state(it, ports)).collect::<Result<_, _>>()?;
    let controls = said.control_input.iter().map(|it| control(it, ports));
    Ok(Sequences { idle_ms, states, controls: controls.collect::<Result<_, _>>()? })
}

fn state(said: &State, ports: &mut Vec<Port>) -> Result<SequenceState, String> {
    let State { input_name, output_name, data_type, dims, .. } = said;
    for initial in &said.initial_state {
        if let Some(StateData::DataFile(file)) = &initial.state_data {
            let what = format!("state '{input_name}': data_file is '{file}'");
            return Err(format!("{what}, expected zero_data: sequences begin with zeros here"));
        }
        ports.push(port(Side::Input, "state", input_name, initial.data_type, &initial.dims)?);
    }
    ports.push(port(Side::Input, "state", input_name, *data_type, dims)?);
    ports.push(port(Side::Output, "state", output_name, *data_type, dims)?);
    Ok(SequenceState { input: input_name.clone(), output: output_name.clone() })
}

fn control(said: &ControlInput, ports: &mut Vec<Port>) -> Result<SequenceControl, String> {
    let name = &said.name;
    let [control] = &said.control[..] else {
        let count = said.control.len();
        return Err(format!("control_input '{name}' has {count} controls, expected one"));
    };
    let unknown = || format!("control_input '{name}': kind {} is unknown", control.kind);
    let kind = match Kind::try_from(control.kind).map_err(|_| unknown())? {
        Kind::ControlSequenceStart => ControlKind::Start,
        Kind::ControlSequenceReady => ControlKind::Ready,
        Kind::ControlSequenceEnd => ControlKind::End,
        Kind::ControlSequenceCorrid => ControlKind::CorrelationId,
    };
    let dtype = match kind {
        ControlKind::CorrelationId => dtype("control_input", name, control.data_type)?,
        _ => Some(flag(name, control)?),
    };
    let (side, part, name) = (Side::Input, "control_input", name.clone());
    ports.push(Port { side, part, name: name.clone(), dtype, dims: None });
    Ok(SequenceControl { input: name, kind })
}

/// The type of a flag input, which gets 0 or 1. Other values are not supported.
fn flag(name: &str, control: &Control) -> Result<DType, String> {
    let Control { int32_false_true, fp32_false_true, bool_false_true, .. } = control;
    match (&int32_false_true[..], &fp32_false_true[..], &bool_false_true[..]) {
        ([0, 1], [], []) => Ok(DType::I32),
        ([], [no, yes], []) if *no == 0.0 && *yes == 1.0 => Ok(DType::F32),
        ([], [], [false, true]) => Ok(DType::Bool),
        _ => Err(format!(
            "control_input '{name}': expected one of int32_false_true: [0, 1], \
             fp32_false_true: [0, 1] and bool_false_true: [false, true]"
        )),
    }
}
