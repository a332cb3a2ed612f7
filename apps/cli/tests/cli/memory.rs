//! Models' use of a worker's memory, and its release.

use crate::harness::{Cluster, World, eventually, npy};
use lgp_inference::GraphBuilder;
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The rows and columns of a model's weights, and their bytes.
const WIDTH: usize = 4096;
const BYTES: usize = WIDTH * WIDTH * 4;

/// A model with weights of 64 MiB, no two of whose pages are alike.
fn heavy(world: &World, name: &str, seed: u32) -> PathBuf {
    let ty = || TensorType {
        dtype: DType::F32,
        shape: Some(SymShape(vec![Dim::Known(1), Dim::Known(WIDTH)])),
    };
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let weights: Vec<f32> = (0..WIDTH * WIDTH).map(|_| next()).collect();
    let mut graph = GraphBuilder::new(name);
    let x = graph.input("x", ty());
    let weights = Tensor::from_slice([WIDTH, WIDTH], &weights).expect("they are so many");
    let weights = graph.initializer("w", weights);
    let y = graph.node("MatMul", &[x, weights], []);
    graph.output("y", y, ty());
    let file = graph.finish().expect("a graph").to_onnx().expect("it can be written");
    world.write(&format!("{name}.onnx"), file)
}

/// A process's resident memory in bytes.
fn resident(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

#[test]
fn models_make_room_for_one_another_and_unloading_frees_memory() {
    let world = World::new();
    std::fs::create_dir_all(world.path("data")).expect("ours");
    // Room for one of them.
    let room = BYTES + BYTES / 2;
    world.write("data/radeon-cluster.toml", format!("model_memory_bytes = {room}\n"));
    let input = world.write("x.npy", npy(&[1, WIDTH], &vec![1.0; WIDTH])).display().to_string();
    let cluster = Cluster::start_with(world, &["--workers", "1", "--device", "cpu"]);
    let worker = *cluster.workers("ready").first().expect("one worker");
    let before = resident(worker);
    let taken = || resident(worker).saturating_sub(before);
    let run = |model: &str| {
        let done = cluster.run(&["submit", "--model", model, "--input", &input, "--wait"]).json();
        assert_eq!(done["state"], "succeeded", "{done}");
    };
    // The models that the worker holds; an evicted model is ready too, since it can come back.
    let there = || {
        let models = cluster.run(&["models", "ls"]).json();
        let models = models.as_array().expect("an array").clone();
        let has = |m: &&Value| m["workers"] != json!([]) && m["name"] != "digits";
        let there = models.iter().filter(has);
        there.map(|m| m["name"].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    for (name, seed) in [("a", 1), ("b", 2)] {
        let file = heavy(&cluster.world, name, seed).display().to_string();
        assert_eq!(cluster.run(&["models", "add", name, &file]).json()["state"], "ready");
        run(name);
        assert!(taken() > BYTES * 8 / 10, "{} bytes after {name}", taken());
        eventually("only the newest is there", || there() == [name] && taken() < BYTES * 14 / 10);
    }
    // The model comes back for an inference, and the other is evicted.
    run("a");
    eventually("the first is back, alone", || there() == ["a"] && taken() < BYTES * 14 / 10);
    // In this order, because with free room the other model would come back.
    for name in ["b", "a"] {
        cluster.run(&["models", "unload", name]).json();
    }
    eventually("its memory is free", || taken() < BYTES / 5);
    cluster.run(&["stop", "--now"]).json();
    cluster.world.expect_no_processes();
}
