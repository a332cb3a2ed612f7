//! Watches what the code under test allocates, and stops the fuzzer when an input asks for more
//! memory than its length justifies.
#![forbid(unsafe_code)]

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Runs `work` on an input, which may have `fixed + factor * input` bytes more allocated at any
/// time than there were before.
///
/// # Panics
/// When there were more: libFuzzer keeps the input and ends.
pub fn bounded(input: &[u8], fixed: usize, factor: usize, work: impl FnOnce(&[u8])) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    work(input);
    let most = ALLOCATOR.peak_usage().saturating_sub(before);
    let allowed = fixed.saturating_add(factor.saturating_mul(input.len()));
    assert!(
        most <= allowed,
        "{} bytes of input had {most} bytes allocated, expected at most {allowed}",
        input.len()
    );
}
