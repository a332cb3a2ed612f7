//! Which recipe is chosen, and how long a choice lasts.

use super::*;
use crate::ValueInfo;
use crate::ops::MatMul;
use lgp_hal::Device;
use lgp_memory::TensorType;
use std::sync::Arc;

lgp_hal::on_backends!([opencl vulkan] { a_choice_is_for_its_recipes_and_the_next_process });

fn accelerator(device: &Arc<dyn Device>) -> Accelerator {
    Accelerator::new(Arc::clone(device)).expect("it passed its self-test")
}

fn product(m: usize) -> Vec<Recipe> {
    let value = |dims: [usize; 2]| ValueInfo::of(TensorType::concrete(DType::F32, &dims.into()));
    let (a, b, y) = (value([m, 96]), value([96, 80]), value([m, 80]));
    Recipe::alternatives(&MatMul, &[Some(&a), Some(&b)], &[y])
}

#[test]
fn the_first_is_kept_unless_another_is_clearly_faster() {
    let us = |n: u64| Some(Duration::from_micros(n));
    assert_eq!(fastest(&[us(100), us(99), us(98)]), 0);
    assert_eq!(fastest(&[us(100), None, us(90), us(80), us(85)]), 3);
    assert_eq!(fastest(&[None, us(1)]), 0);
    assert_eq!(fastest(&[]), 0);
}

fn a_choice_is_for_its_recipes_and_the_next_process(device: Arc<dyn Device>) {
    let accelerator = accelerator(&device);
    let folder = tempfile::tempdir().expect("a folder");
    accelerator.keep_in(folder.path()).expect("the folder is ours");
    let recipes = product(64);
    assert!(recipes.len() > 2, "a product has schedules");
    assert_eq!(accelerator.choose(recipes.clone()).as_ref(), recipes.first());

    let tuned = accelerator.tune(&recipes, Duration::from_secs(60)).expect("it runs");
    // These devices have no library of a vendor.
    let launched = recipes.iter().map(|recipe| recipe.library().is_none());
    assert!(launched.eq(tuned.times.iter().map(Option::is_some)), "{tuned:?}");
    assert_eq!(accelerator.choose(recipes.clone()).as_ref(), recipes.get(tuned.chosen));

    // The next process takes the written choice, whichever recipe was the fastest here.
    let [first, other] = [0, 2].map(|i| recipes[i].digest());
    accelerator.keep_choice(first, other).expect("the folder is ours");
    let next = self::accelerator(&device);
    next.keep_in(folder.path()).expect("the folder is ours");
    assert_eq!(next.choose(recipes.clone()).as_ref(), recipes.get(2));
    let others = product(65);
    assert_eq!(next.choose(others.clone()).as_ref(), others.first(), "another product");

    // A file that holds no choices counts as missing.
    let mut files = std::fs::read_dir(folder.path()).expect("it is there");
    let list = files.find_map(|file| {
        let path = file.expect("readable").path();
        path.extension().is_some_and(|it| it == "json").then_some(path)
    });
    std::fs::write(list.expect("choices were written"), "{\"a\": [").expect("writable");
    let last = self::accelerator(&device);
    last.keep_in(folder.path()).expect("the folder is ours");
    assert_eq!(last.choose(recipes.clone()).as_ref(), recipes.first());
}
