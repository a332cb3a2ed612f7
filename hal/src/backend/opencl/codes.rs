//! The meaning of a driver's error codes, which depends on the call that answered them.

use super::quirks::{Quirk, Quirks};
use opencl3::error_codes::{
    CL_CONTEXT_TERMINATED_KHR, CL_DEVICE_NOT_AVAILABLE, CL_INVALID_COMMAND_QUEUE,
    CL_INVALID_CONTEXT, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY,
    CL_OUT_OF_RESOURCES, ClError,
};

/// What a call did when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// It made memory, or queued a command that moves bytes. Drivers report missing memory as
    /// running out of resources.
    Memory,
    /// It waited for commands. Drivers report a command that hung or reached beyond its memory as
    /// running out of resources.
    Wait,
    /// Anything else. A launch runs out of resources when its work-group needs too many registers.
    Other,
}

/// What an error code means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The device is lost.
    Loss,
    /// Memory ran out.
    Shortage,
    /// The call was refused, and the device still works.
    Refusal,
}

/// The meaning of a code that a call answered.
pub(super) fn meaning(error: &ClError, call: Call, quirks: &Quirks) -> Meaning {
    // This backend made the queues and contexts, so they were valid once.
    let fatal = [
        CL_DEVICE_NOT_AVAILABLE,
        CL_INVALID_COMMAND_QUEUE,
        CL_INVALID_CONTEXT,
        CL_CONTEXT_TERMINATED_KHR,
    ];
    match (error.0, call) {
        (code, _) if fatal.contains(&code) || quirks.has(Quirk::LossCode(code)) => Meaning::Loss,
        (CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_HOST_MEMORY, _) => Meaning::Shortage,
        (CL_OUT_OF_RESOURCES, Call::Wait) => Meaning::Loss,
        (CL_OUT_OF_RESOURCES, Call::Memory) => Meaning::Shortage,
        _ => Meaning::Refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_means_what_its_call_makes_of_it() {
        use Meaning::{Loss, Refusal, Shortage};
        for (code, after_waiting, of_memory, of_a_launch) in [
            (-2, Loss, Loss, Loss),
            (-4, Shortage, Shortage, Shortage),
            (-5, Loss, Shortage, Refusal),
            (-6, Shortage, Shortage, Shortage),
            (-34, Loss, Loss, Loss),
            (-36, Loss, Loss, Loss),
            (-54, Refusal, Refusal, Refusal),
            (-1121, Loss, Loss, Loss),
            (-9999, Refusal, Refusal, Refusal),
        ] {
            let found = [Call::Wait, Call::Memory, Call::Other]
                .map(|call| meaning(&ClError(code), call, &Quirks::default()));
            assert_eq!(found, [after_waiting, of_memory, of_a_launch], "{code}");
        }
        let quirks = Quirks::of("NVIDIA CUDA", Some("580.159.04"));
        let of_nvidia = |code| meaning(&ClError(code), Call::Other, &quirks);
        assert_eq!(of_nvidia(-9999), Loss, "a code of this driver's own");
        assert_eq!(of_nvidia(-54), Refusal);
    }
}
