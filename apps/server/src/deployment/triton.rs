//! Triton's `config.pbtxt`: the protobuf text format of the message `ModelConfig`.

pub mod proto;
mod refuse;
mod scheduling;
mod sequences;

use super::config::{ModelConfig, place};
use super::ports::{INPUT, Port, Ports, Side};
use super::warm_up::RUNS_MAX;
use super::{Deployment, WarmUp};
use crate::versions::VersionPolicy;
use lgp_memory::DType;
use miette::Diagnostic;
use prost_reflect::text_format::ParseError;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use proto::model_config::SchedulingChoice;
use proto::model_version_policy::PolicyChoice;
use proto::{DataType, ModelVersionPolicy, ModelWarmup};
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Component, Path};
use std::sync::LazyLock;

/// The message's fields, as `proto/model_config.proto` has them.
const DESCRIPTORS: &[u8] = include_bytes!("triton/model_config.bin");
const MESSAGE: &str = "inference.ModelConfig";
/// Stack of the parser, which recurses for each `[DOMAIN/inference.ModelInput] {` with up to 16 KiB in an
/// unoptimised build; the largest file has room for 2,600 of these. Untouched memory costs nothing.
const STACK_BYTES: usize = 64 << 20;
/// The most characters of a parser's message, which mostly quotes the file.
const REASON_CHARS_MAX: usize = 300;
/// The most lists without a colon, because the text is parsed again for each.
const LISTS_MAX: usize = 500;
/// The size of a cache, which `response_cache` only switches on.
const CACHE_BYTES: NonZeroU64 = NonZeroU64::new(64 << 20).unwrap();

static DESCRIPTOR: LazyLock<Option<MessageDescriptor>> =
    LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).ok()?.get_message_by_name(MESSAGE));

/// Parses a file and converts it to a config.
pub(super) fn read(model: &str, text: &str) -> Result<ModelConfig, String> {
    let (config, ignored) = parse(text)?;
    refuse::check(model, &config)?;
    let max_batch_size = u32::try_from(config.max_batch_size)
        .map_err(|_| format!("max_batch_size is {}, expected 0 or more", config.max_batch_size))?;
    let mut ports = declared(&config)?;
    ports.rows = max_batch_size > 0;
    ports.complete = !config.input.is_empty();
    let sequences = match &config.scheduling_choice {
        Some(SchedulingChoice::SequenceBatching(said)) => {
            Some(sequences::read(said, &mut ports.all)?)
        }
        _ => None,
    };
    let warm_up = warm_ups(&config.model_warmup, max_batch_size, &mut ports.all)?;
    let is_cached = config.response_cache.is_some_and(|cache| cache.enable);
    let deployment = Deployment {
        version_policy: policy(config.version_policy.as_ref())?,
        cache_bytes: is_cached.then_some(CACHE_BYTES),
        batching: scheduling::read(&config, max_batch_size)?,
        sequences,
        warm_up,
        ..Deployment::default()
    };
    let label_file = label_file(&config)?;
    Ok(ModelConfig {
        deployment,
        label_file,
        max_batch_size,
        ignored,
        ports,
        ..ModelConfig::default()
    })
}

/// Parses a text into the message, and lists its fields that have no effect here.
fn parse(text: &str) -> Result<(proto::ModelConfig, Vec<String>), String> {
    let descriptor = DESCRIPTOR.clone().ok_or("its schema is damaged")?;
    let parse = || -> Result<_, String> {
        let message = message(&descriptor, text)?;
        let set = message.fields().map(|(field, _)| field.name().to_owned());
        let ignored = set.filter(|name| refuse::IGNORED.contains(&name.as_str())).collect();
        let config = message.transcode_to().map_err(|error| error.to_string())?;
        Ok((config, ignored))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let parsing = thread.spawn_scoped(scope, parse).map_err(|error| error.to_string())?;
        parsing.join().map_err(|_| "it makes its parser fail".to_owned())?
    })
}

/// Parses a text. Triton's files have lists of messages without a colon, `input [ { … } ]`, as the format allows.
/// The parser stops at such a bracket and accepts it once a colon precedes it.
fn message(descriptor: &MessageDescriptor, text: &str) -> Result<DynamicMessage, String> {
    let mut text = text.to_owned();
    let mut tried: Option<(usize, String)> = None;
    for _ in 0..=LISTS_MAX {
        let error = match DynamicMessage::parse_text_format(descriptor.clone(), &text) {
            Ok(message) => return Ok(message),
            Err(error) => error,
        };
        let (at, said) = (offset(&error), explain(&text, &error));
        match (at, tried.take()) {
            // The colon is wrong there, or the list is invalid even with it.
            (Some(at), Some((before, first))) if at == before => return Err(first),
            (Some(at), Some((before, _))) if at == before + 1 => return Err(said),
            (Some(at), _) if text.as_bytes().get(at) == Some(&b'[') => {
                text.insert(at, ':');
                tried = Some((at, said));
            }
            _ => return Err(said),
        }
    }
    Err(format!("it has more than {LISTS_MAX} lists without a colon"))
}

/// The position at which the parser stopped.
fn offset(error: &ParseError) -> Option<usize> {
    error.labels().into_iter().flatten().next().map(|label| label.offset())
}

fn explain(text: &str, error: &ParseError) -> String {
    // A truncated text fails at its end.
    let place = place(text, offset(error).unwrap_or(text.len()));
    let message: String = error.to_string().chars().take(REASON_CHARS_MAX).collect();
    format!("{place}{message}")
}

/// The declared inputs and outputs.
fn declared(config: &proto::ModelConfig) -> Result<Ports, String> {
    let inputs = config.input.iter().map(|i| (Side::Input, INPUT, &i.name, i.data_type, &i.dims));
    let outputs = config.output.iter();
    let outputs = outputs.map(|o| (Side::Output, "output", &o.name, o.data_type, &o.dims));
    let mut ports = Ports::default();
    for (side, part, name, data_type, dims) in inputs.chain(outputs) {
        if ports.all.iter().any(|port: &Port| port.part == part && port.name == *name) {
            return Err(format!("{part} '{name}' is listed twice, expected once"));
        }
        ports.all.push(port(side, part, name, data_type, dims)?);
    }
    Ok(ports)
}

fn port(
    side: Side,
    part: &'static str,
    name: &str,
    data_type: i32,
    dims: &[i64],
) -> Result<Port, String> {
    if let Some(dim) = dims.iter().find(|dim| **dim < 1 && **dim != -1) {
        return Err(format!("{part} '{name}': dims have {dim}, expected 1 or more, or -1"));
    }
    let dims = (!dims.is_empty()).then(|| dims.to_vec());
    let dtype = dtype(part, name, data_type)?;
    Ok(Port { side, part, name: name.to_owned(), dtype, dims })
}

/// The datatype; `None` if unset.
fn dtype(part: &str, name: &str, data_type: i32) -> Result<Option<DType>, String> {
    let known = DataType::try_from(data_type)
        .map_err(|_| format!("{part} '{name}': data_type {data_type} is unknown"))?;
    Ok(Some(match known {
        DataType::TypeInvalid => return Ok(None),
        DataType::TypeBool => DType::Bool,
        DataType::TypeUint8 => DType::U8,
        DataType::TypeUint16 => DType::U16,
        DataType::TypeUint32 => DType::U32,
        DataType::TypeUint64 => DType::U64,
        DataType::TypeInt8 => DType::I8,
        DataType::TypeInt16 => DType::I16,
        DataType::TypeInt32 => DType::I32,
        DataType::TypeInt64 => DType::I64,
        DataType::TypeFp16 => DType::F16,
        DataType::TypeFp32 => DType::F32,
        DataType::TypeFp64 => DType::F64,
        DataType::TypeString => DType::Str,
        DataType::TypeBf16 => DType::BF16,
    }))
}

fn policy(said: Option<&ModelVersionPolicy>) -> Result<Option<VersionPolicy>, String> {
    let Some(choice) = said.and_then(|said| said.policy_choice.as_ref()) else { return Ok(None) };
    match choice {
        PolicyChoice::All(_) => Ok(Some(VersionPolicy::All)),
        PolicyChoice::Latest(latest) => NonZeroU32::new(latest.num_versions)
            .map(|count| Some(VersionPolicy::Latest(count)))
            .ok_or_else(|| "version_policy: num_versions is 0, expected 1 or more".to_owned()),
        PolicyChoice::Specific(specific) => {
            let listed = specific.versions.iter().map(i64::to_string).collect::<Vec<_>>();
            // `parse` applies the usual bounds.
            let policy = listed.join(",").parse().map_err(|e| format!("version_policy: {e}"))?;
            Ok(Some(policy))
        }
    }
}

/// The single label file, beside the versions or in their folders.
fn label_file(config: &proto::ModelConfig) -> Result<Option<String>, String> {
    let mut files = config.output.iter().map(|output| &output.label_filename);
    files.by_ref().find(|file| !file.is_empty()).map_or(Ok(None), |first| {
        if let Some(other) = files.find(|file| !file.is_empty() && *file != first) {
            return Err(format!("label_filename is '{first}' and '{other}', expected one file"));
        }
        let parts: Vec<_> = Path::new(first).components().collect();
        match parts[..] {
            [Component::Normal(_)] => Ok(Some(first.clone())),
            _ => Err(format!("label_filename is '{first}', expected a name without a folder")),
        }
    })
}

fn warm_ups(
    said: &[ModelWarmup],
    max_batch_size: u32,
    ports: &mut Vec<Port>,
) -> Result<Vec<WarmUp>, String> {
    let mut all = Vec::new();
    for warm_up in said {
        let name = &warm_up.name;
        let rows = match (warm_up.batch_size, max_batch_size) {
            (0 | 1, 0) => None,
            (rows, most) if rows <= most => Some(u64::from(rows.max(1))),
            (rows, most) => {
                let what = format!("model_warmup '{name}': batch_size is {rows}");
                return Err(format!("{what}, expected {most} at most, the max_batch_size"));
            }
        };
        let mut shapes = BTreeMap::new();
        // Sorted, so that parsing a file twice gives the same result.
        for (input, of) in warm_up.inputs.iter().collect::<BTreeMap<_, _>>() {
            ports.push(port(Side::Input, "model_warmup", input, of.data_type, &of.dims)?);
            let dims = of.dims.iter().map(|dim| u64::try_from(*dim)).collect::<Result<Vec<_>, _>>();
            let dims = dims.map_err(|_| {
                format!("model_warmup '{name}': input '{input}' has an open dimension")
            })?;
            if !dims.is_empty() {
                shapes.insert(input.clone(), rows.into_iter().chain(dims).collect());
            }
        }
        let count = usize::try_from(warm_up.count.max(1)).unwrap_or(usize::MAX);
        if count > RUNS_MAX.saturating_sub(all.len()) {
            return Err(format!("model_warmup has more than {RUNS_MAX} runs together"));
        }
        all.extend(std::iter::repeat_n(WarmUp { shapes }, count));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
