//! One pass over a tensor at one rank: frames out, frames in.

use super::call::{Call, HEADER_BYTES};
use super::element::Word;
use super::pass::Pass;

/// A pass under way. `take` combines elements that came with this rank's own.
pub(crate) struct Round<'a, W, F> {
    call: &'a Call,
    pass: Pass,
    data: &'a mut [W],
    take: F,
    sent: usize,
    received: usize,
}

impl<'a, W: Word, F: Fn(&[u8], &mut [W])> Round<'a, W, F> {
    pub(crate) fn new(call: &'a Call, pass: Pass, data: &'a mut [W], take: F) -> Self {
        Self { call, pass, data, take, sent: 0, received: 0 }
    }

    /// The next frame to send, if its elements are there.
    pub(crate) fn frame(&mut self) -> Option<Vec<u8>> {
        let (range, _) =
            self.pass.sends.get(self.sent).filter(|(_, after)| *after <= self.received)?;
        let elements = self.data.get(range.clone())?;
        let body = size_of_val(elements);
        let mut frame = Vec::with_capacity(HEADER_BYTES + body);
        frame.extend_from_slice(&self.call.header(body));
        frame.resize(HEADER_BYTES + body, 0);
        W::put(elements, &mut frame[HEADER_BYTES..]);
        self.sent += 1;
        Some(frame)
    }

    /// Bytes of the next frame's elements; `None` when nothing more comes.
    pub(crate) fn expected(&self) -> Option<usize> {
        self.pass.receives.get(self.received).map(|range| range.len() * size_of::<W>())
    }

    /// Bytes of the longest frame to receive.
    pub(crate) fn longest(&self) -> usize {
        HEADER_BYTES + self.pass.longest() * size_of::<W>()
    }

    /// Checks the header of the next frame; an error has what it is and what it should be.
    pub(crate) fn check(&self, header: &[u8; HEADER_BYTES]) -> Result<(), (String, String)> {
        let body = self.expected().unwrap_or(0);
        self.call.check(header, body).map_err(|given| {
            let expected = match given.starts_with("a frame of") {
                true => format!("one of {}", HEADER_BYTES - 4 + body),
                false => self.call.to_string(),
            };
            (given, expected)
        })
    }

    /// Takes the elements of the next frame; `body` has as many bytes as were expected.
    pub(crate) fn take(&mut self, body: &[u8]) {
        let own = self.pass.receives.get(self.received).cloned();
        if let Some(own) = own.and_then(|range| self.data.get_mut(range)) {
            (self.take)(body, own);
            self.received += 1;
        }
    }
}
