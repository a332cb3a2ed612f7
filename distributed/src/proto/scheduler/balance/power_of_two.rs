//! Power of two choices: the less loaded of two devices drawn at random (Mitzenmacher 2001).
//! The cost does not grow with the number of devices, unless most are busy, and coordinators that
//! know the same loads do not all pick the same device.

use super::{Balance, Candidate, Choice, Request, View, least};
use std::time::Duration;

/// Draws two.
pub(super) struct PowerOfTwo;

/// Draws that may meet a busy device before all devices are searched.
const DRAWS: u32 = 16;

impl Balance for PowerOfTwo {
    fn name(&self) -> &'static str {
        "power_of_two"
    }

    fn pick(&self, _: Duration, view: &View<'_>, request: &Request) -> Option<Choice> {
        let mut state = request.random;
        let mut first: Option<Candidate<'_>> = None;
        for _ in 0..DRAWS {
            let Some(drawn) = draw(view, &mut state) else { continue };
            match first {
                None => first = Some(drawn),
                Some(other) if other.seat() == drawn.seat() => {}
                Some(other) => {
                    let less = if drawn.hot.load < other.hot.load { drawn } else { other };
                    return Choice::of(Some((less, less.hot.load)), "lower load of two drawn");
                }
            }
        }
        let best = first.map(|c| (c, c.hot.load)).or_else(|| least(view.all(), |c| c.hot.load));
        Choice::of(best, "the only one found free by drawing")
    }
}

fn draw<'a>(view: &View<'a>, state: &mut u64) -> Option<Candidate<'a>> {
    // SplitMix64 (Steele et al. 2014) makes many draws of one random number.
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    let count = u64::try_from(view.capable.len()).ok().filter(|&n| n > 0)?;
    let at = usize::try_from(z % count).ok()?;
    view.candidate(view.capable.get(at)?)
}
