//! A request's use of regions: where its inputs lie and where its outputs go.

use super::{Region, file};
use crate::access::Caller;
use crate::bodies::Room;
use crate::fault::Fault;
use crate::oip::{Parameters, number};
use crate::state::ServerState;
use axum::http::StatusCode;
use lgp_memory::Buffer;
use std::fmt;
use std::sync::Arc;

const REGION: &str = "shared_memory_region";
/// The most memory that parsing a string takes besides its text: its place among the elements, in sorted order and
/// in the tensor's table, and the allocator's overhead.
const STRING_BYTES: usize = 128;

/// The caller's regions, as a request may use them.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    state: ServerState,
    caller: Caller,
}

/// A part of a region, for one tensor.
#[derive(Clone)]
pub(crate) struct Slot {
    region: Arc<Region>,
    /// The region's name in the request.
    pub(crate) name: String,
    /// Where the slot begins in the region, in bytes.
    pub(crate) offset: u64,
    bytes: u64,
}

/// Room that a request's inputs took besides its body: for inputs in regions, and for strings.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    bytes: usize,
    /// The room, to be kept as long as the inputs.
    pub(crate) room: Room,
}

impl Taken {
    /// Takes room for strings, which need more memory parsed than in the request.
    ///
    /// # Errors
    /// 413 for more than one request may have, 503 if there is no room.
    pub(crate) fn strings(&mut self, shared: &Shared, count: usize) -> Result<(), Fault> {
        let most = shared.state.config().room_of_one();
        let wanted = self.bytes.saturating_add(count.saturating_mul(STRING_BYTES));
        if wanted > most {
            let (most, each) = (most / STRING_BYTES, STRING_BYTES);
            let message = format!(
                "the request has {count} strings, expected at most {most}: each counts {each} bytes among \
                 bodies, and one request may have five eighths of http.bodies_bytes_max"
            );
            return Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message));
        }
        self.grow(shared, wanted, "the strings of the request")
    }

    fn grow(&mut self, shared: &Shared, wanted: usize, what: &str) -> Result<(), Fault> {
        let bodies = shared.state.bodies();
        if self.room.bytes() == 0 {
            self.room = bodies.room_of(shared.caller.id());
        }
        if !bodies.try_grow(&mut self.room, wanted) {
            let message =
                format!("there is no room for {what} now (http.bodies_bytes_max sets that)");
            return Err(Fault::unavailable("busy", message));
        }
        self.bytes = wanted;
        Ok(())
    }
}

impl Shared {
    pub(crate) fn new(state: &ServerState, caller: &Caller) -> Self {
        Self { state: state.clone(), caller: caller.clone() }
    }

    /// The most bytes in regions that a JSON request can refer to.
    pub(crate) fn bytes_named(&self, json: &[u8]) -> usize {
        self.bytes_of(|| {
            let named = json.windows(REGION.len()).filter(|part| part == &REGION.as_bytes());
            // An escape allows other spellings of the name, so every byte counts as a use.
            if json.contains(&b'\\') { json.len() } else { named.count() }
        })
    }

    /// The most bytes that this many slots can have.
    pub(crate) fn bytes_of(&self, places: impl FnOnce() -> usize) -> usize {
        match self.state.regions().largest(&self.caller) {
            0 => 0,
            largest => places().saturating_mul(largest),
        }
    }

    /// The slot in a tensor's parameters; `None` if they name no region.
    ///
    /// # Errors
    /// 400 for a place outside of the region, 404 for a region that the caller does not have.
    pub(crate) fn slot(
        &self,
        tensor: &str,
        parameters: &Parameters,
    ) -> Result<Option<Slot>, Fault> {
        let offset = number(parameters, "shared_memory_offset")?.unwrap_or(0);
        let bytes = number(parameters, "shared_memory_byte_size")?;
        let Some(value) = parameters.get(REGION) else { return Ok(None) };
        let name = value.as_str().ok_or_else(|| {
            Fault::bad_input(format!("tensor '{tensor}': {REGION} is {value}, expected its name"))
        })?;
        let bytes = bytes.ok_or_else(|| {
            Fault::bad_input(format!(
                "tensor '{tensor}': {REGION} is without shared_memory_byte_size"
            ))
        })?;
        let region = self.state.regions().find(&self.caller, name)?;
        let most = region.place.byte_size;
        if offset.checked_add(bytes).is_none_or(|end| end > most) {
            return Err(Fault::bad_input(format!(
                "tensor '{tensor}': shared_memory_offset {offset} and shared_memory_byte_size {bytes} \
                 are not within region '{name}', which has {most} bytes"
            )));
        }
        Ok(Some(Slot { region, name: name.to_owned(), offset, bytes }))
    }

    /// Reads an input, after taking room for it.
    ///
    /// # Errors
    /// 400 for more than requests may have and for a region whose file was truncated, 503 if there is no room.
    pub(crate) fn read(&self, slot: &Slot, taken: &mut Taken) -> Result<Buffer, Fault> {
        let config = self.state.config();
        let most = config.binary_bytes_max.min(config.bodies_bytes_max);
        let bytes = usize::try_from(slot.bytes).unwrap_or(usize::MAX);
        let wanted = taken.bytes.saturating_add(bytes);
        if wanted > most {
            return Err(Fault::bad_input(format!(
                "the inputs in shared memory have more than {most} bytes, the most that are taken \
                 (input_bytes_max and http.bodies_bytes_max set that)"
            )));
        }
        taken.grow(self, wanted, "the inputs in shared memory")?;
        file::read(&slot.region.file, slot.begin(), bytes).map_err(|e| slot.broken("read", &e))
    }
}

impl Slot {
    /// The length of the slot, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// Writes an output.
    ///
    /// # Errors
    /// 400 if the slot is too small for the output, or its file was truncated.
    pub(crate) fn write(&self, output: &str, data: &[u8]) -> Result<(), Fault> {
        if u64::try_from(data.len()).is_ok_and(|bytes| bytes <= self.bytes) {
            let written = file::write(&self.region.file, self.begin(), data);
            return written.map_err(|error| self.broken("written", &error));
        }
        Err(Fault::bad_input(format!(
            "output '{output}' has {} bytes, more than the {} of its place in region '{}'",
            data.len(),
            self.bytes,
            self.name
        )))
    }

    /// Where the slot begins in the file. Registration checked that the region's end fits in `u64`.
    fn begin(&self) -> u64 {
        self.region.place.offset.saturating_add(self.offset)
    }

    fn broken(&self, what: &str, error: &std::io::Error) -> Fault {
        let Slot { name, region, .. } = self;
        let key = &region.place.key;
        Fault::bad_input(format!(
            "region '{name}' cannot be {what}; its shared memory '{key}' may have become shorter: {error}"
        ))
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}..{}", self.name, self.offset, self.bytes)
    }
}
