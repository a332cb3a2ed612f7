//! Immich's images, decoded once for all tasks of a request.

use crate::bodies::Room;
use crate::extract::make_more_room;
use crate::fault::Fault;
use crate::oip;
use crate::state::ServerState;
use axum::body::Bytes;
use lgp_common::vision::{self, Channels, DecodeLimits, Pixels, VisionError};
use std::sync::Arc;

/// The most bytes of a pixel during decoding.
const PIXEL_BYTES: usize = 8;

/// The upright pixels in RGB. Clones share them.
#[derive(Clone)]
pub(super) struct Picture(Arc<(Pixels, Room)>);

impl Picture {
    /// Decodes an image, once there is room for its pixels, and for the bytes that the tasks need for an image of
    /// its width and height.
    ///
    /// # Errors
    /// 400 if the bytes are not an image, 503 if there is no room in time.
    pub(super) async fn decode(
        state: &ServerState,
        bytes: Bytes,
        mut room: Room,
        needs: impl FnOnce((u32, u32)) -> Result<usize, Fault>,
    ) -> Result<Self, Fault> {
        let limits = DecodeLimits::default();
        let (width, height) = vision::dimensions(&bytes, &limits).map_err(bad)?;
        let pixels = u64::from(width) * u64::from(height);
        let pixels = usize::try_from(pixels).unwrap_or(usize::MAX).saturating_mul(PIXEL_BYTES);
        let all = pixels.saturating_add(needs((width, height))?);
        make_more_room(state, &mut room, bytes.len().saturating_add(all)).await?;
        // The room is held as long as the pixels, even if the request is gone.
        let decode =
            move || Ok((vision::decode(&bytes, Channels::Rgb, &limits).map_err(bad)?, room));
        Ok(Self(Arc::new(oip::off_loop(oip::LARGE_BYTES, decode).await?)))
    }

    pub(super) fn width(&self) -> u32 {
        self.0.0.width()
    }

    pub(super) fn height(&self) -> u32 {
        self.0.0.height()
    }

    pub(super) fn pixels(&self) -> &Pixels {
        &self.0.0
    }
}

/// The error for an unusable image.
pub(super) fn bad(error: VisionError) -> Fault {
    let fault = Fault::bad_input(error.to_string());
    match error {
        VisionError::UnknownFormat => {
            fault.hint("have Immich make its previews as JPEG: Image Settings, Preview, Format")
        }
        _ => fault,
    }
}
