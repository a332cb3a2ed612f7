//! What the preprocessor and constants give, seen through the side of a work-group.

use lgp_portable::compile;

/// The value of an expression after these lines.
fn value(lines: &str, expression: &str) -> u32 {
    let source = format!("{lines}\nKERNEL GROUP_SIZE({expression}, 1, 1) void k() {{}}");
    let kernels = compile(&source, "").unwrap_or_else(|error| panic!("{source}: {error}"));
    kernels[0].group.map_or(0, |[side, ..]| side)
}

#[test]
fn macros_are_replaced_as_in_c() {
    for (lines, expression, expected) in [
        ("#define A 5", "A", 5),
        ("#define A B\n#define B 7", "A", 7),
        // A macro's own name stays, so that this is no loop.
        ("#define F(x) (x + G(x))\n#define G(x) 2 * x", "F(3)", 9),
        ("#define F(a, b) a##b", "F(1, 6)", 16),
        ("#define F(a) a##_LEFT\n#define X_LEFT 9", "F(X)", 9),
        // An argument is replaced before, but not beside ##.
        ("#define ONE 1\n#define F(a) a\n#define G(a) a##5\n#define ONE5 8", "F(ONE) + G(ONE)", 9),
        // Nothing joined with a token is the token; joined with nothing it is nothing.
        ("#define F(a, b) 1 + a##b", "F(, 2)", 3),
        ("#define F(a, b) 1 + a##b", "F(2, )", 3),
        ("#define F(a, b) 7 a##b", "F(,)", 7),
        ("#define F(a, b, c) a##b##c", "F(1, , 2)", 12),
        ("#define F(a, b) a##b##9", "F(1 + 2, )", 30),
        ("#define F(a, b) a##b##9", "F(, 3)", 39),
        ("#define F(a, b) a##b 6", "F(,)", 6),
        // An argument is replaced once, also where its parameter stands twice.
        ("#define F(a) a + a\n#define G(a) a * 2", "F(F(G(3)))", 24),
        ("#define F() 4", "F()", 4),
        // Without a bracket a macro with parameters is a name like others.
        ("#define F(x) x\n#define A F", "A(6)", 6),
        ("#define F (2)", "F * 3", 6),
        ("#define A 1 + \\\n 2", "A", 3),
        ("#define A 1 // one\n", "A /* and */ + 1", 2),
        ("#define A 1\n#undef A\n#define A 2", "A", 2),
    ] {
        assert_eq!(value(lines, expression), expected, "{lines:?} {expression:?}");
    }
}

#[test]
fn parts_are_chosen_as_in_c() {
    let chosen = |conditions: &str| {
        let [a, b] = conditions.split('|').collect::<Vec<_>>()[..] else { return 0 };
        value(
            &format!(
                "#define N 3\n#define SELF SELF + 1\n#define ID(x) x\n#define TIMES(a) a * G\n#define G(a) a\n#if {a}\n#define A 1\n#elif {b}\n#define A 2\n#else\n#define A 3\n#endif"
            ),
            "A",
        )
    };
    for (conditions, expected) in [
        ("N == 3|1", 1),
        ("N < 3|N > 2", 2),
        ("0|0", 3),
        ("defined(N)|0", 1),
        ("defined M|!defined(M)", 2),
        ("M|M + 1", 2),
        ("(N & 1) && N * 2 > 5|0", 1),
        ("N ? 0 : 1|N % 2 == 1", 2),
        // A macro's own name stays also when it comes through an argument.
        ("SELF == 1|0", 1),
        ("ID(SELF) == 1|0", 1),
        ("TIMES(2)(9) == 18|0", 1),
        // Integers have 64 bits.
        ("1 << 40|0", 1),
        ("0xffffffff + 1 == 0|0x7fffffff + 1 > 0", 2),
        ("-1 < 0u|(2 > 1) << 33", 2),
    ] {
        assert_eq!(chosen(conditions), expected, "{conditions}");
    }
    let nested =
        "#ifdef M\n#if 1\n#error not read\n#endif\n#define A 1\n#else\n#define A 2\n#endif";
    assert_eq!(value(nested, "A"), 2);
}

#[test]
fn constants_have_the_types_of_c() {
    for (expression, expected) in [
        ("1 + 2 * 3", 7),
        ("(7 - 9) / 2 + 2", 1),
        ("(0u - 1u) >> 28", 15),
        ("-1 < 0 ? 1 : 2", 1),
        // A signed number that meets an unsigned one is unsigned.
        ("-1 < 0u ? 1 : 2", 2),
        ("(u8)300", 44),
        ("(i8)200 < 0 ? 3 : 4", 3),
        ("(u32)(2.5f * 2.0f)", 5),
        ("(1 || 1 / 0) ? 6 : 7", 6),
        ("0x10 | 3 ^ 1", 18),
        ("~0u % 10", 5),
        ("0xffffffff > 0 ? 1 : 2", 1),
    ] {
        assert_eq!(value("", expression), expected, "{expression}");
    }
}
