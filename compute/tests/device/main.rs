//! Every operator with kernels, on a device and on the CPU.

mod cases;
mod library;

use cases::Case;
use lgp_compute::device::{Accelerator, Recipe};
use lgp_hal::Device;
use library::WithLibrary;
use std::collections::BTreeSet;
use std::sync::Arc;

lgp_hal::on_backends!([opencl vulkan cuda] {
    operators_agree_with_the_cpu
    products_of_a_vendors_library_agree_with_the_cpu
    every_way_to_convolve_first_layers_agrees_with_the_cpu
    every_schedule_agrees_with_the_cpu
});

/// The differences from the CPU.
fn failures<'a>(cases: impl IntoIterator<Item = &'a Case>, device: Arc<dyn Device>) -> Vec<String> {
    let accelerator = Accelerator::new(device).expect("it passed its self-test");
    let failure = |case: &Case| {
        let why = case.check(&accelerator).err()?;
        Some(format!("{}: {why}", case.name))
    };
    cases.into_iter().filter_map(failure).collect()
}

fn operators_agree_with_the_cpu(device: Arc<dyn Device>) {
    let failures = failures(&cases::all(), device);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn products_of_a_vendors_library_agree_with_the_cpu(device: Arc<dyn Device>) {
    let device = Arc::new(WithLibrary::new(device));
    let all = cases::all();
    let by_library = |case: &&Case| {
        case.recipes().is_ok_and(|recipes| recipes.iter().any(|recipe| recipe.library().is_some()))
    };
    let some: Vec<&Case> = all.iter().filter(by_library).collect();
    let failures = failures(some.iter().copied(), Arc::clone(&device) as Arc<dyn Device>);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(some.len() >= 10, "{} cases", some.len());
    assert_eq!(device.multiplied(), some.len(), "the library is preferred where it is");
}

fn every_schedule_agrees_with_the_cpu(device: Arc<dyn Device>) {
    let accelerator = Accelerator::new(device).expect("it passed its self-test");
    let (mut kernels, mut failures) = (BTreeSet::new(), Vec::new());
    for case in cases::all().iter().filter(|case| case.in_every_way) {
        let recipes = case.recipes().expect("it has kernels");
        assert!(recipes.len() > 1, "{} has one schedule", case.name);
        kernels.extend(recipes.iter().flat_map(Recipe::calls).map(|call| call.kernel.name()));
        if let Err(why) = case.check_all(&accelerator) {
            failures.push(format!("{}: {why}", case.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for name in ["gemm", "gemv", "conv", "winograd", "attention_join", "norm_part"] {
        assert!(kernels.contains(name), "no schedule launches {name}");
    }
}

fn every_way_to_convolve_first_layers_agrees_with_the_cpu(device: Arc<dyn Device>) {
    let accelerator = Accelerator::new(device).expect("it passed its self-test");
    let directly =
        |recipe: &Recipe| recipe.calls().iter().any(|call| call.kernel.name() == "conv_direct");
    let (mut cases, mut preferred, mut failures) = (0, 0, Vec::new());
    for case in cases::all() {
        let Ok(recipes) = case.recipes() else { continue };
        if !recipes.iter().any(directly) {
            continue;
        }
        cases += 1;
        preferred += usize::from(recipes.first().is_some_and(directly));
        if let Err(why) = case.check_all(&accelerator) {
            failures.push(format!("{}: {why}", case.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cases >= 15 && preferred >= 2, "{cases} cases, {preferred} of them preferred");
}
