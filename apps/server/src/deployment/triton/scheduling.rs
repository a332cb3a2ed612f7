//! Parses Triton's settings of batching.

use super::proto::ModelConfig;
use super::proto::model_config::SchedulingChoice;
use super::proto::model_sequence_batching::StrategyChoice;
use lgp_distributed::Batching;
use std::num::NonZeroU32;

/// Without a scheduler, and if `max_batch_size` is 0, each inference runs alone. If a file does not list inputs and
/// outputs, Triton completes it and turns batching on if the model allows it. Batching then follows
/// `max_batch_size`, or else the workers' settings (none).
pub(super) fn read(config: &ModelConfig, rows: u32) -> Result<Option<Batching>, String> {
    let choice = config.scheduling_choice.as_ref();
    let is_whole = !config.input.is_empty() && !config.output.is_empty();
    if choice.is_none() && !is_whole {
        let max = NonZeroU32::new(rows);
        return Ok(max.map(|max| Batching { max, preferred: Vec::new(), delay_us: 0 }));
    }
    let most = NonZeroU32::new(rows).unwrap_or(NonZeroU32::MIN);
    let (max, preferred, delay_us) = match choice {
        Some(SchedulingChoice::DynamicBatching(said)) => {
            (most, &said.preferred_batch_size[..], said.max_queue_delay_microseconds)
        }
        Some(SchedulingChoice::SequenceBatching(said)) => match &said.strategy_choice {
            Some(StrategyChoice::Oldest(oldest)) => {
                (most, &oldest.preferred_batch_size[..], oldest.max_queue_delay_microseconds)
            }
            Some(StrategyChoice::Direct(direct)) => {
                (most, &[][..], direct.max_queue_delay_microseconds)
            }
            None => (most, &[][..], 0),
        },
        Some(SchedulingChoice::EnsembleScheduling(_)) | None => (NonZeroU32::MIN, &[][..], 0),
    };
    let size = |size: &i32| {
        let fitting = u32::try_from(*size).ok().and_then(NonZeroU32::new).filter(|n| *n <= max);
        fitting.ok_or_else(|| {
            format!("preferred_batch_size has {size}, expected 1 to {max}, the max_batch_size")
        })
    };
    let preferred = preferred.iter().map(size).collect::<Result<_, _>>()?;
    Ok(Some(Batching { max, preferred, delay_us }))
}
