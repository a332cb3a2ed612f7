//! What the writer writes is valid SPIR-V for Vulkan 1.2, by the validator of the Khronos Group.

use lgp_portable::{Kernel, Need, Parameter, Scalar, compile};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The validator's complaint; `None` for a valid module.
fn complaint(kernel: &Kernel) -> std::io::Result<Option<String>> {
    let mut validator = Command::new("spirv-val")
        .args(["--target-env", "vulkan1.2", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let bytes: Vec<u8> = kernel.words.iter().flat_map(|word| word.to_le_bytes()).collect();
    if let Some(mut input) = validator.stdin.take() {
        input.write_all(&bytes)?;
    }
    let output = validator.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    Ok((!output.status.success()).then_some(text))
}

/// Every statement, operator, type and function of the language.
const SOURCE: &str = include_str!("everything.cl");

#[test]
fn modules_are_valid() {
    let kernels = compile(SOURCE, "-D SIDE=8").expect("it is the language");
    assert_eq!(kernels.len(), 9);
    for kernel in &kernels {
        match complaint(kernel) {
            Ok(None) => {}
            Ok(Some(text)) => panic!("{}: {text}", kernel.name),
            Err(error) => return println!("skipped: spirv-val: {error}"),
        }
    }
}

#[test]
fn kernels_need_what_they_use() {
    let kernels = compile(SOURCE, "-D SIDE=8").expect("it is the language");
    let needs = |name: &str| {
        let kernel = kernels.iter().find(|kernel| kernel.name == name);
        kernel.map(|kernel| kernel.needs.clone()).unwrap_or_default()
    };
    assert_eq!(needs("tiled"), [Need::FloatControls]);
    assert_eq!(needs("halves"), [Need::Storage16, Need::FloatControls]);
    assert_eq!(needs("bytes"), [Need::Storage8, Need::FloatControls]);
    // The two views of four halves are of words.
    assert_eq!(needs("packed"), [Need::FloatControls]);
    assert_eq!(needs("long_words"), [Need::Int64, Need::FloatControls]);
    assert_eq!(
        needs("small_words"),
        [Need::Storage16, Need::Int8, Need::Int16, Need::FloatControls]
    );
}

#[test]
fn parameters_are_told() {
    let source =
        "KERNEL void k(GLOBAL const float *x, u32 n, u64 long_, float f, i32 i, GLOBAL u8 *y) {}";
    let kernels = compile(source, "").expect("it is the language");
    let scalar = |ty, offset| Parameter::Scalar { ty, offset };
    assert_eq!(
        kernels[0].parameters,
        [
            Parameter::Buffer { binding: 0, written: false },
            scalar(Scalar::U32, 0),
            scalar(Scalar::U64, 8),
            scalar(Scalar::F32, 16),
            scalar(Scalar::I32, 20),
            Parameter::Buffer { binding: 1, written: true },
        ]
    );
    // Three words for a piece's first work-group follow the scalars.
    let kernel = &kernels[0];
    assert_eq!((kernel.scalar_bytes, kernel.first_offset, kernel.group), (36, 24, None));
}

#[test]
fn groups_are_counted_where_a_kernel_asks() {
    let source = "KERNEL void a(GLOBAL u32 *y) { y[GLOBAL_ID(0)] = 1; }\n\
                  KERNEL void b(GLOBAL u32 *y) { y[GLOBAL_ID(0)] = GROUPS(0); }";
    let kernels = compile(source, "").expect("it is the language");
    assert_eq!(kernels.iter().map(|it| it.counts_groups).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn places_begin_where_a_piece_of_the_grid_does() {
    // The numbers of the constants: operands of `OpDecorate … SpecId`.
    let numbers = |source: &str| {
        let kernels = compile(source, "").expect("it is the language");
        let words = &kernels[0].words;
        let mut numbers = std::collections::BTreeSet::new();
        let mut at = 5;
        while let Some([head, rest @ ..]) = words.get(at..) {
            if let (0x0004_0047, [_, 1, number, ..]) = (*head, rest) {
                numbers.insert(*number);
            }
            at += (*head >> 16) as usize;
        }
        numbers.into_iter().collect::<Vec<u32>>()
    };
    for (body, expected) in [
        ("y[GLOBAL_ID(1)] = GROUP_ID(2);", &[3, 5][..]),
        ("y[GLOBAL_ID(0)] = GLOBAL_ID(0) + GLOBAL_ID(2);", &[4, 6]),
        ("y[LOCAL_ID(0)] = 1;", &[]),
    ] {
        let head = "KERNEL GROUP_SIZE(4, 1, 1) void k(GLOBAL u32 *y)";
        assert_eq!(numbers(&format!("{head} {{ {body} }}")), expected, "{body}");
    }
}
