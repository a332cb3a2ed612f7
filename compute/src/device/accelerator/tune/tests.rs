//! Which recipe is chosen, and how long a choice lasts.

use super::*;
use crate::ops::{Conv, MatMul};
use crate::rewrite::{Hints, Operand};
use crate::testing::constant;
use crate::window::Pads;
use crate::{Op, ValueInfo};
use lgp_hal::{Blas, Device, Gemm, Queue, pass_on};
use lgp_memory::TensorType;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

lgp_hal::on_backends!([opencl vulkan] {
    a_choice_is_for_its_recipes_and_the_next_process
    recipes_that_read_different_inputs_are_measured
    a_library_is_chosen_where_it_was_measured_to_be_faster
    a_library_that_is_gone_is_not_chosen
});

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

/// Winograd's algorithm reads the weight that was transformed ahead, and other recipes the plain one.
fn recipes_that_read_different_inputs_are_measured(device: Arc<dyn Device>) {
    let accelerator = accelerator(&device);
    let image = TensorType::concrete(DType::F32, &[1, 64, 28, 28].into());
    let (x, y) = (ValueInfo::of(image.clone()), ValueInfo::of(image));
    let conv = Conv { pads: Pads::SameUpper, ..Conv::default() };
    let weight = constant(Tensor::zeros(DType::F32, [64, 64, 3, 3]).expect("fits"));
    let hints = Hints { on_device: true, ..Hints::default() };
    let step = conv.prepared(&[Some(&x), Some(&weight), None], hints).expect("it fits");
    let step = step.expect("Winograd's algorithm gains here");
    let (Some(op), Some(Operand::Constant(transformed))) = (&step.op, step.inputs.last()) else {
        panic!("{step:?}");
    };
    let inputs = [Some(&x), Some(&weight), None, Some(&constant(transformed.clone()))];
    let recipes = Recipe::alternatives(&**op, &inputs, &[y]);
    let plain = recipes.iter().filter(|recipe| recipe.reads(1) && recipe.library().is_none());
    assert!(plain.count() > 0 && recipes.iter().any(|recipe| recipe.reads(3)));
    let tuned = accelerator.tune(&recipes, Duration::from_secs(60)).expect("it runs");
    let launched = recipes.iter().map(|recipe| recipe.library().is_none());
    assert!(launched.eq(tuned.times.iter().map(Option::is_some)), "{tuned:?}");
}

/// A device with a library whose products take `product` and calculate nothing.
#[derive(Debug)]
struct WithLibrary {
    inner: Arc<dyn Device>,
    library: Arc<Library>,
}

#[derive(Debug)]
struct Library {
    product: Duration,
    prepared: AtomicUsize,
    multiplied: AtomicUsize,
}

impl Device for WithLibrary {
    pass_on!(inner: id, name, caps, free_bytes, allocate, queue, pinned, compile, load, arithmetic);

    fn blas(&self) -> Option<Arc<dyn Blas>> {
        Some(Arc::clone(&self.library) as Arc<dyn Blas>)
    }
}

impl Blas for Library {
    fn prepare(&self, _queue: &mut dyn Queue) -> lgp_hal::Result<()> {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn gemm(&self, _queue: &mut dyn Queue, _gemm: &Gemm<'_>) -> lgp_hal::Result<()> {
        assert!(self.prepared.load(Ordering::Relaxed) > 0, "before its first product");
        self.multiplied.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.product);
        Ok(())
    }
}

fn a_library_is_chosen_where_it_was_measured_to_be_faster(inner: Arc<dyn Device>) {
    for (product_time, is_faster) in [(Duration::ZERO, true), (Duration::from_millis(100), false)] {
        let (prepared, multiplied) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let library = Arc::new(Library { product: product_time, prepared, multiplied });
        let device = WithLibrary { inner: Arc::clone(&inner), library: Arc::clone(&library) };
        let accelerator = Accelerator::new(Arc::new(device)).expect("it passed its self-test");
        let recipes = product(256);
        assert!(recipes[0].library().is_none(), "the cost model prefers a recipe of its own");
        let choose = || accelerator.choose(recipes.clone()).expect("there are recipes");
        let chosen = choose();
        assert_eq!(chosen.library().is_some(), is_faster, "{product_time:?}");
        let measured = library.multiplied.load(Ordering::Relaxed);
        assert!(measured > 0, "the library was tried");
        assert_eq!(choose(), chosen);
        assert_eq!(library.multiplied.load(Ordering::Relaxed), measured, "it is tried once");
    }
}

fn a_library_that_is_gone_is_not_chosen(device: Arc<dyn Device>) {
    let accelerator = accelerator(&device);
    let recipes = product(256);
    let library = recipes.iter().find(|recipe| recipe.library().is_some());
    let library = library.expect("a library multiplies f32").digest();
    accelerator.keep_choice(recipes[0].digest(), library).expect("there is no folder");
    assert_eq!(accelerator.choose(recipes.clone()).as_ref(), recipes.first());
}
