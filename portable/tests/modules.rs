//! What the writer writes is valid SPIR-V for Vulkan 1.2, by the validator of the Khronos Group.

mod common;

use common::{instructions, valid};
use lgp_portable::{Need, Parameter, Scalar, compile};

/// Every statement, operator, type and function of the language.
const SOURCE: &str = include_str!("everything.cl");

#[test]
fn modules_are_valid() {
    let kernels = compile(SOURCE, "-D SIDE=8").expect("it is the language");
    assert_eq!(kernels.len(), 9);
    valid(&kernels);
}

/// The functions that the sources below call.
const FUNCTIONS: &str = "DEVICE float endless(float *p) { for (;;) { p[0] += 1.0f; } return p[0]; }
    DEVICE void first(GLOBAL const float *p, GLOBAL float *q) { q[0] = p[0]; }
    DEVICE float never(float x) { while (true) x += 1.0f; return x; }";

#[test]
fn paths_that_end_within_a_statement_are_valid() {
    for statements in [
        "y[0] = endless(a) + (y[1] > 0.0f && y[2] > 0.0f ? 1.0f : y[3]);",
        "y[0] = n > 1 ? endless(a) : y[1];",
        "y[0] = n > 1 ? y[1] : endless(a);",
        "y[0] = n > 1 ? endless(a) : endless(a);\ny[1] = 1;",
        "if (endless(a) > 0.0f) { y[0] = 1; } else { y[1] = 2; }\ny[2] = 3;",
        "for (u32 i = 0; i < 4; i++) { y[i] = endless(a); if (i == n) continue; y[0] = 1; }",
        "for (u32 i = 0; i < 4; i++) { if (y[i] > endless(a) || y[0] > 1.0f) break; y[0] = 1; }",
        "while (endless(a) > 0.0f && y[0] > 1.0f) { y[1] = 1; }\ny[2] = 2;",
        "for (u32 i = 0; endless(a) > 0.0f; i++) { if (i > n) return; }",
        "do { y[0] = endless(a); } while (y[1] > 1.0f && y[2] > 2.0f);",
        "do { y[0] = 1; } while (endless(a) > 0.0f);\ny[1] = 1;",
        "for (;;) { if (n > 1) { y[0] = endless(a); break; } y[1] = 2; }\ny[2] = 3;",
        "for (u32 i = 0; i < n; a[0] = endless(a), i++) y[i] = 1;",
        "for (;;) { for (;;) { } y[0] = 1; }",
        "y[0] = never(y[1]) + (n > 1 ? y[2] : 0.0f);",
        "store_f16(endless(a), z, 0);\ny[0] = divide(y[1], endless(a));",
        "return;\ny[0] = n > 1 ? endless(a) : load_f16(z, 1);\nfor (;;) break;",
    ] {
        let source = format!(
            "{FUNCTIONS} KERNEL void k(GLOBAL float *y, GLOBAL f16 *z, u32 n) {{\n\
             float a[1];\na[0] = 0;\n{statements}\n}}"
        );
        match compile(&source, "") {
            Ok(kernels) => valid(&kernels),
            Err(error) => panic!("{statements}: {error}"),
        }
    }
}

/// The opcodes of a kernel with this statement.
fn opcodes(statement: &str) -> Vec<u32> {
    let source = format!(
        "KERNEL void k(GLOBAL i32 *y, GLOBAL const float *x, i32 a, i32 b, u32 c) {{ {statement} }}"
    );
    let kernels = compile(&source, "").unwrap_or_else(|error| panic!("{statement}: {error}"));
    valid(&kernels);
    instructions(&kernels[0].words).map(|(op, _)| op).collect()
}

#[test]
fn remainders_come_from_quotients() {
    const REMAINDERS: [u32; 2] = [138, 139];
    for statement in ["y[0] = a % b;", "y[0] = a % 3;", "y[0] %= b;", "y[0] = (i32)((i64)a % b);"] {
        let found = opcodes(statement);
        assert!(found.iter().all(|op| !REMAINDERS.contains(op)), "{statement}: {found:?}");
    }
}

#[test]
fn what_is_not_defined_for_all_values_stands_behind_its_condition() {
    const BRANCH_IF: u32 = 250;
    for (statement, branches) in [
        ("y[0] = b == 0 ? 7 : a / b;", true),
        ("y[0] = b == 0 ? 7 : a % b;", true),
        ("y[0] = c == 0 ? 7 : (i32)(7 / c);", true),
        ("y[0] = b < 0 ? a / -1 : a;", true),
        ("y[0] = a / 0 > 1 && b > 0 ? 1 : 2;", false),
        ("y[0] = b > 0 && a / b > 1;", true),
        ("float f = x[0];\ny[0] = f < 9.0f ? (i32)f : 0;", true),
        ("float f = x[0];\ny[0] = f < 9.0f ? (i32)BITS_F32(F32_BITS(f)) : 0;", true),
        ("y[0] = b < 0 ? a / 3 : a % 3;", false),
        ("float f = x[0];\ny[0] = (b < 0 ? f / 3.0f : 1.0f / f) > 1.0f;", false),
        ("y[0] = b < 0 ? (i32)(u8)a : (i32)((u32)a / 5u);", false),
    ] {
        assert_eq!(opcodes(statement).contains(&BRANCH_IF), branches, "{statement}");
    }
}

#[test]
fn a_buffer_is_writable_if_one_of_its_pointers_is() {
    const NON_WRITABLE: u32 = 24;
    for (statement, expected) in [
        ("first(y, y);", false),
        ("GLOBAL const float *p = y;\ny[0] = p[1];", false),
        ("first(x, y);", true),
    ] {
        let source = format!(
            "{FUNCTIONS} KERNEL void k(GLOBAL float *y, GLOBAL const float *x) {{ {statement} }}"
        );
        let kernels = compile(&source, "").expect("it is the language");
        valid(&kernels);
        let found = instructions(&kernels[0].words)
            .any(|(op, operands)| op == 71 && operands.get(1) == Some(&NON_WRITABLE));
        assert_eq!(found, expected, "{statement}");
    }
}

#[test]
fn local_memory_is_counted_as_vulkan_counts_it() {
    let bytes = |statements: &str| {
        let source = format!("KERNEL void k() {{ {statements} }}");
        compile(&source, "").expect("it is the language")[0].local_bytes
    };
    assert_eq!(bytes("LOCAL bool a[5];"), 20);
    assert_eq!(bytes("LOCAL u8 a[5]; LOCAL float4 b[2];"), 48);
    assert_eq!(bytes("LOCAL float a[3][2]; return; LOCAL float b[100];"), 24);
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
    assert_eq!((kernel.scalar_bytes, kernel.first_offset, kernel.group), (36, Some(24), None));
}

#[test]
fn a_kernel_that_cannot_be_launched_in_pieces_says_so() {
    let scalars = |count: u32| (0..count).map(|i| format!(", u32 s{i}")).collect::<String>();
    for (scalars, value, expected) in [
        (scalars(29), "s28", Some(116)),
        (scalars(30), "s29", None),
        (scalars(32), "s31", None),
        (String::new(), "GROUPS(0)", None),
    ] {
        let source =
            format!("KERNEL void k(GLOBAL u32 *y{scalars}) {{ y[GLOBAL_ID(0)] = {value}; }}");
        let kernels = compile(&source, "").expect("it is the language");
        let kernel = &kernels[0];
        assert_eq!(kernel.first_offset, expected, "{value}");
        assert!(kernel.scalar_bytes <= 128, "{} bytes", kernel.scalar_bytes);
    }
}

#[test]
fn places_begin_where_a_piece_of_the_grid_does() {
    // The numbers of the constants: operands of `OpDecorate … SpecId`.
    let numbers = |source: &str| {
        let kernels = compile(source, "").expect("it is the language");
        let numbers = instructions(&kernels[0].words).filter_map(|(op, operands)| match operands {
            [_, 1, number] if op == 71 => Some(*number),
            _ => None,
        });
        let numbers: std::collections::BTreeSet<u32> = numbers.collect();
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
