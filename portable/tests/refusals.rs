//! Mistakes are named, with their line.

use lgp_portable::compile;

/// A kernel with these statements from its second line on.
fn kernel(statements: &str) -> String {
    format!(
        "KERNEL GROUP_SIZE(64, 1, 1) void k(GLOBAL const float *x, GLOBAL float *y, u32 n) {{\n{statements}\n}}"
    )
}

#[test]
fn mistakes_in_statements_are_named() {
    for (statements, line, part) in [
        ("y[0] = z;", 2, "z is not declared"),
        ("u32 i = 0;\nu32 i = 1;", 3, "i is declared twice"),
        ("x[0] = 1.0f;", 2, "what is const is written"),
        ("y = x;", 2, "expected y[i]"),
        ("y[0] = *x;", 2, "pointers are read as p[i]"),
        ("y[0] = ((GLOBAL const u32 *)x)[0];", 2, "\")\" is expected"),
        ("y[0] = ((u32 *)x)[0];", 2, "pointers keep their type"),
        ("y[0] = 1.0;", 2, "expected 1.0f"),
        ("y[0] = 08;", 2, "octal"),
        ("y[0] = tgamma(x[0]);", 2, "there is no function tgamma"),
        ("y[0] = fmin(x[0]);", 2, "fmin gets 1 arguments, expected 2"),
        ("n + 1;", 2, "does nothing"),
        ("y[0] = n = 1;", 2, "one assignment in a statement"),
        ("y[n.x] = 1.0f;", 2, "u32 has no parts"),
        ("float4 v = F32X4(1, 2, 3, 4);\ny[0] = v.r;", 3, "no part r"),
        ("float4 v = F32X4(1, 2, 3, 4);\nv = v + v;", 3, "float4 has no operator +"),
        ("y[0] = x[0] % 2;", 2, "float has no operator %"),
        ("y[x[0]] = 1.0f;", 2, "an index is float"),
        ("float a[n];", 2, "no constant above 0"),
        ("LOCAL float a[9000];", 2, "above 32768 bytes"),
        ("{\nLOCAL float a[2]; }", 3, "a is LOCAL outside of a kernel's outermost block"),
        ("LOCAL float a;", 2, "an array without a first value"),
        ("f16 h = 0;", 2, "in buffers only"),
        ("break;", 2, "outside of a loop"),
        ("return 1;", 2, "returns void"),
        ("float a[2][2];\ny[0] = a[1];", 3, "fewer indices"),
        ("switch (n) { }", 2, "which has no switch"),
        ("y[GLOBAL_ID(n)] = 0;", 2, "a dimension is no constant"),
        ("y[0] = load4(y, 0).x;\ny[1] = load_u32(y, 0);", 3, "a buffer of float, expected u8"),
        ("compare_and_swap(y, 0, 1);", 2, "takes a pointer to u32"),
        ("const u32 a = n;\na = 1;", 3, "what is const is written"),
        ("const u32 a;", 2, "a is const, expected its value"),
        ("GLOBAL const float *p = y;\np[0] = 1.0f;", 3, "what is const is written"),
        ("GLOBAL const float *p = y;\nGLOBAL float *q = p;", 3, "q lacks const"),
        ("LOCAL float a[4];\nGLOBAL float *p = a;", 3, "p points into no buffer"),
        ("GLOBAL bool *p = y;", 2, "a buffer of bool, expected u8"),
        ("volatile u32 a = 1;", 2, "before GLOBAL only"),
        ("float y = 1.0f;", 2, "y is declared twice"),
        ("if (0) {\ny[0] = z;\n}", 3, "z is not declared"),
        ("if (1) { } else y[0] = z;", 2, "z is not declared"),
        ("return;\ny[0] = z;", 3, "z is not declared"),
        ("for (;;) {\ncontinue;\ny[0] = z; }", 4, "z is not declared"),
        ("for (u32 i = 0; ; z++) break;", 2, "z is not declared"),
        ("do break; while (z);", 2, "z is not declared"),
        ("float a[1 << 2.5f];", 2, "no constant above 0"),
        ("u32 a = 1 << 2.5f;", 2, "float has no operator <<"),
        ("i64 i = 1;\ny[i] = 1.0f;", 3, "an index is i64, expected an integer of at most 32 bits"),
        ("if (n) {", 3, "the source ends"),
        ("@", 2, "no character of the language"),
        ("/* y[0] = 1;", 2, "the comment has no end"),
    ] {
        let error = compile(&kernel(statements), "").expect_err(statements);
        assert!(error.line == line && error.message.contains(part), "{statements:?}: {error}");
    }
}

#[test]
fn mistakes_between_items_are_named() {
    for (source, line, part) in [
        ("float f() { }", 1, "where KERNEL or DEVICE is expected"),
        ("KERNEL float k() { }", 1, "expected void"),
        ("KERNEL GROUP_SIZE(64, 8, 1) void k() { }", 1, "512 items, at most 256"),
        ("KERNEL GROUP_SIZE(0, 1, 1) void k() { }", 1, "no constant above 0"),
        ("KERNEL void k() { }\nKERNEL void k() { }", 2, "k is defined twice"),
        ("DEVICE void f() {\nLOCAL float a[2]; }", 2, "a is LOCAL outside"),
        ("KERNEL void k() { }\nDEVICE void k() { }", 1, "k is defined twice"),
        ("KERNEL void exp() { }", 1, "exp is defined twice"),
        ("DEVICE float floor(float x) { return x; }", 1, "floor is defined twice"),
        (
            "DEVICE float4 load4(GLOBAL const float *p, u32 i) { return p[i]; }",
            1,
            "load4 is defined",
        ),
        ("DEVICE float f(float x) {\nreturn z; }", 2, "z is not declared"),
        ("DEVICE float f(float *p, GLOBAL float *q) {\nq[0] = z;\nreturn p[0]; }", 2, "z is not"),
        ("DEVICE void f(GLOBAL const float *p) {\np[0] = 1.0f; }", 2, "what is const is written"),
        ("DEVICE float f(float x) {\nfloat x = 1.0f;\nreturn x; }", 2, "x is declared twice"),
        ("DEVICE void f(float *p) {\nfloat p[1]; }", 2, "p is declared twice"),
        (
            "DEVICE void f(GLOBAL const float *p) { }\n\
             DEVICE void g(GLOBAL const float *p, GLOBAL float *q) {\nf(q);\nq[0] = p[0];\np[0] = 1; }",
            5,
            "what is const is written",
        ),
        ("KERNEL void k(GLOBAL bool *y) { }", 1, "a buffer of bool, expected u8"),
        ("KERNEL void k(const u32 n) { }", 1, "n is const or volatile, which only buffers"),
        ("DEVICE float exp(float x) { return x; }", 1, "exp is defined twice"),
        ("KERNEL void k(float *p) { }", 1, "no pointer to a buffer (GLOBAL)"),
        ("KERNEL void k(u8 n) { }", 1, "a kernel takes no u8"),
        ("KERNEL void k(size_t n) { }", 1, "where a type is expected"),
        ("DEVICE u32 f(u32 x) { return f(x); }\nKERNEL void k() { u32 a = f(1); }", 1, "f calls f"),
        (
            "DEVICE float f(float *p) {\nif (p[0] > 0.0f) return 1.0f;\nreturn 0.0f; }\n\
             KERNEL void k() { float a[1];\nfloat b = f(a); }",
            2,
            "returns at its end only",
        ),
        ("#if 1", 1, "no #endif"),
        ("#else", 1, "without an #if"),
        ("#if 0\n#else\n#else\n#endif", 3, "#else after the #else"),
        ("#if 1\n#else\n#elif 1\n#endif", 3, "#elif after the #else"),
        ("#pragma unroll", 1, "expected _Pragma"),
        ("#line 7", 1, "no directive"),
        ("#define F(a) ##a", 1, "## joins nothing"),
        ("#define F(a) a##", 1, "## joins nothing"),
        ("\n/*/", 2, "the comment has no end"),
        ("#include <x>", 1, "no directive"),
        ("#error too old", 1, "too old"),
        ("#define F(a, b) a\nKERNEL void k() { u32 x = F(1); }", 2, "gets 1 arguments, expected 2"),
        ("#define F(a) a\nKERNEL void k() { u32 x = F(1; }", 2, "have no end"),
    ] {
        let error = compile(source, "").expect_err(source);
        assert!(error.line == line && error.message.contains(part), "{source:?}: {error}");
    }
}

#[test]
fn sources_that_grow_without_end_are_refused() {
    // Each macro doubles the one before it.
    let mut source = "#define A0 1 +\n".to_owned();
    for level in 1..40 {
        source += &format!("#define A{level} A{0} A{0}\n", level - 1);
    }
    source += "KERNEL void k() { u32 x = A39 1; }";
    let error = compile(&source, "").expect_err("it has 2^39 terms");
    assert!(error.message.contains("tokens"), "{error}");
    // Tokens beyond the most that there may be, around a directive.
    let source = format!("{}\n#define A\n1", "1 ".repeat((1 << 17) + 1));
    let error = compile(&source, "").expect_err("it has too many tokens");
    assert!(error.message.contains("tokens"), "{error}");
    // Each macro's argument stands 3,000 times in it, and has 3,000 tokens.
    let (uses, tokens) = ("a ".repeat(3000), "1 ".repeat(3000));
    let source = format!("#define F(a) {uses}\nKERNEL void k() {{ u32 x =\nF({tokens}); }}");
    let error = compile(&source, "").expect_err("it has 9,000,000 tokens");
    assert!(error.line == 3 && error.message.contains("tokens"), "{error}");
}

/// A function that takes a pointer `levels` deep, where each level stands for `times` calls of the one before.
fn called(levels: usize, times: usize) -> String {
    let mut source = "DEVICE void call0(float *p) { p[0] += 1.0f; }\n".to_owned();
    for level in 1..levels {
        let calls = format!("call{}(p); ", level - 1).repeat(times);
        source += &format!("DEVICE void call{level}(float *p) {{ {calls} }}\n");
    }
    source + &format!("KERNEL void k() {{ float a[1]; call{}(a); }}", levels - 1)
}

#[test]
fn what_would_take_the_stack_or_all_time_is_refused() {
    let statement = |statement: String| format!("KERNEL void k(GLOBAL u32 *y) {{ {statement} }}");
    let unrolled =
        |name: char| format!("_Pragma(\"unroll 64\") for (u32 {name} = 0; {name} < 64; {name}++) ");
    let loops: String = ['a', 'b', 'c', 'd'].map(unrolled).concat();
    for (source, part) in [
        (
            statement(format!("u32 x = {}1{};", "(".repeat(5000), ")".repeat(5000))),
            "levels of nesting",
        ),
        (statement(format!("u32 x = {}1;", "- ".repeat(5000))), "levels of nesting"),
        (statement("{".repeat(5000)), "levels of nesting"),
        (statement(format!("u32 x = y[0]{};", " + y[0]".repeat(6000))), "one in another"),
        (statement(format!("u32 x = y{};", "[0]".repeat(6000))), "one in another"),
        (statement(format!("u32 x = y{};", ".x".repeat(6000))), "one in another"),
        (
            format!(
                "#define F(a) a\n{}",
                statement(format!("u32 x = {}1{};", "F(".repeat(300), ")".repeat(300)))
            ),
            "macros stand in one another",
        ),
        (called(3000, 1), "levels of nesting"),
        (called(30, 2), "statements and expressions"),
        (statement(format!("{loops} y[a] += 1;")), "statements and expressions"),
    ] {
        match compile(&source, "") {
            Ok(_) => panic!("{part:?} is not said"),
            Err(error) => assert!(error.message.contains(part), "{part:?}: {error}"),
        }
    }
}

#[test]
fn what_nests_as_deep_as_is_allowed_takes_little_stack_and_time() {
    let statement = |statement: String| format!("KERNEL void k(GLOBAL u32 *y) {{ {statement} }}");
    let condition = "y[0] > 1 ? ".repeat(90) + "1" + &" : 2".repeat(90);
    for source in [
        statement(format!("y[0] = 1{};", " + 1".repeat(6000))),
        statement(format!("y[0] = y[1]{};", " + y[1]".repeat(390))),
        statement(format!("y[0] = {}y[1]{};", "(1 + ".repeat(190), ")".repeat(190))),
        statement(format!("y[0] = {condition};")),
        statement(format!("y[0] = {};", "1 ? ".repeat(190) + "1" + &" : 2".repeat(190))),
        statement(format!("{}y[0] = 1;{}", "if (y[0] > 0) {".repeat(90), "}".repeat(90))),
        called(70, 1),
    ] {
        let kernels = compile(&source, "").unwrap_or_else(|error| panic!("{source}: {error}"));
        assert_eq!(kernels.len(), 1);
    }
}

#[test]
fn options_define_names() {
    let source = "KERNEL void k(GLOBAL u32 *y) { y[0] = SIZE; }";
    assert!(compile(source, "").is_err());
    for options in ["-D SIZE=7", "-DSIZE=7", "-D OTHER -D SIZE=7"] {
        assert!(compile(source, options).is_ok(), "{options}");
    }
    let error = compile(source, "-cl-fast").expect_err("no such option");
    assert!(error.message.contains("-cl-fast"), "{error}");
}
