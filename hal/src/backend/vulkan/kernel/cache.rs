//! The driver's store of compiled pipelines, which a program's binary holds.

use crate::backend::vulkan::shared::Shared;
use crate::error::Result;
use ash::vk;
use std::sync::Arc;

/// The driver's store of compiled pipelines.
#[derive(Debug)]
pub(in crate::backend::vulkan) struct Cache {
    pub(super) shared: Arc<Shared>,
    pub(super) cache: vk::PipelineCache,
}

impl Cache {
    /// A store with what an earlier one had; the driver ignores data that it did not write.
    ///
    /// # Safety
    /// The data must be of [`Self::data`] of this driver and device, or empty.
    pub(in crate::backend::vulkan) unsafe fn new(
        shared: &Arc<Shared>,
        data: &[u8],
    ) -> Result<Self> {
        let info = vk::PipelineCacheCreateInfo::default().initial_data(data);
        // SAFETY: the caller promises that the driver wrote the data.
        let cache = unsafe { shared.device.create_pipeline_cache(&info, None) }
            .map_err(shared.failed("vkCreatePipelineCache"))?;
        Ok(Self { shared: Arc::clone(shared), cache })
    }

    /// The data for a later store.
    pub(in crate::backend::vulkan) fn data(&self) -> Option<Vec<u8>> {
        // SAFETY: the store is of the device, and the driver locks it.
        unsafe { self.shared.device.get_pipeline_cache_data(self.cache) }.ok()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if self.shared.may_free() {
            // SAFETY: kernels that use the store keep it.
            unsafe { self.shared.device.destroy_pipeline_cache(self.cache, None) };
        }
    }
}
