//! Kept tensors on a device: moved and evicted tensors keep their content.

use super::*;
use lgp_hal::Device;
use lgp_memory::Tensor;

const UNIT: usize = 64 << 10;

lgp_hal::on_backends!([opencl vulkan] {
    room_in_pieces_is_made_one_and_content_moves_along
    what_was_wanted_least_recently_goes_first_and_only_for_who_is_alone
});

fn accelerator(device: Arc<dyn Device>, units: usize) -> Result<Accelerator> {
    Accelerator::with_memory(device, units * UNIT)
}

fn unit(mark: u8) -> Result<Tensor> {
    Ok(Tensor::from_slice([UNIT], &vec![mark; UNIT])?)
}

fn has(accelerator: &Accelerator, kept: &Kept, other: &TensorView<'_>) -> Result<Tensor> {
    // `other` is uploaded only if the tensor was evicted.
    let resident = accelerator.turn().resident(kept, other)?;
    accelerator.download(resident.pin()?.tensor())
}

fn room_in_pieces_is_made_one_and_content_moves_along(device: Arc<dyn Device>) -> Result<()> {
    let accelerator = accelerator(device, 4)?;
    let tensors = [unit(1)?, unit(2)?, unit(3)?];
    let mut kept = [0; 3].map(|_| Some(accelerator.keep()));
    for (kept, tensor) in kept.iter().flatten().zip(&tensors) {
        accelerator.turn().resident(kept, &tensor.view())?;
    }
    kept[1] = None;
    assert!(accelerator.pool().stats().fragmentation() > 0.);
    let two = accelerator.alloc(DType::U8, [2 * UNIT])?;
    assert_eq!(accelerator.pool().stats().in_use_bytes, 4 * UNIT);
    let nothing = unit(0)?;
    for (kept, tensor) in kept.iter().zip(&tensors) {
        if let Some(kept) = kept {
            assert_eq!(has(&accelerator, kept, &nothing.view())?, *tensor);
        }
    }
    drop(two);
    Ok(())
}

fn what_was_wanted_least_recently_goes_first_and_only_for_who_is_alone(
    device: Arc<dyn Device>,
) -> Result<()> {
    let accelerator = accelerator(device, 3)?;
    let tensors = [unit(1)?, unit(2)?, unit(3)?];
    let kept = [0; 3].map(|_| accelerator.keep());
    for (kept, tensor) in kept.iter().zip(&tensors) {
        let turn = accelerator.turn();
        turn.want(kept);
        turn.resident(kept, &tensor.view())?;
    }
    accelerator.turn().want(&kept[0]);
    let refused = accelerator.turn().arena(&[UNIT]).expect_err("there is no room").to_string();
    assert!(refused.contains("held by \"weights\": 196608 bytes in 3 ranges"), "{refused}");
    let arena = accelerator.turn_alone().arena(&[UNIT])?;
    drop(arena);
    let nothing = unit(0)?;
    let wanted = [&tensors[0], &nothing, &tensors[2]];
    for (kept, wanted) in kept.iter().zip(wanted) {
        assert_eq!(has(&accelerator, kept, &nothing.view())?, *wanted);
    }
    Ok(())
}
