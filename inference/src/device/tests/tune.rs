//! Nodes that were measured to be cheaper on the host run there in every session.

use super::model;
use crate::{Result, Session, SessionOptions};
use lgp_compute::device::Accelerator;
use lgp_hal::Device;
use lgp_hal::testing::RefusingDevice;
use lgp_memory::{Shape, Tensor};
use std::sync::Arc;
use std::time::Duration;

lgp_hal::on_backends!([opencl vulkan] {
    nodes_that_are_cheaper_on_the_host_run_there
});

fn nodes_that_are_cheaper_on_the_host_run_there(inner: Arc<dyn Device>) -> Result<()> {
    let slow = || {
        let device = RefusingDevice::new(Arc::clone(&inner));
        device.slow_down(Duration::from_millis(3));
        Accelerator::new(Arc::new(device))
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (accelerator, model) = (slow()?, model()?);
    accelerator.keep_in(folder.path())?;
    let session = |accelerator: &Accelerator| {
        Session::on_device(&model, SessionOptions::with_threads(1), accelerator.clone())
    };
    let on_device = |session: &Session| -> Result<usize> {
        let places = session.placement(&[("x", Shape::from([3, 4]))])?;
        Ok(places.iter().filter(|place| place.device != "cpu").count())
    };
    let before = session(&accelerator)?;
    let had = on_device(&before)?;
    let tuned = before.tune(&[("x", Shape::from([3, 4]))], Duration::from_millis(100))?;
    let placement = tuned.placement.expect("the session has a device");
    assert_eq!((had > 0, placement.on_host.len()), (true, had), "{placement:?}");
    assert!(placement.device_ms > 3. && placement.divided_ms < 3., "{placement:?}");

    let next = slow()?;
    next.keep_in(folder.path())?;
    let x = Tensor::from_slice([3, 4], &[0.5f32; 12])?;
    for accelerator in [accelerator, next] {
        let after = session(&accelerator)?;
        assert_eq!(on_device(&after)?, 0);
        assert_eq!(after.run(&[("x", x.view())])?, before.run(&[("x", x.view())])?);
        let places = after.placement(&[("x", Shape::from([3, 4]))])?;
        assert_eq!(places.iter().filter(|place| place.measured).count(), had, "{places:?}");
        // The measurement holds for these shapes only.
        let other = after.placement(&[("x", Shape::from([5, 4]))])?;
        assert!(other.iter().any(|place| place.device != "cpu"), "{other:?}");
    }
    Ok(())
}
