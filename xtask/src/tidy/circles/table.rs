//! The circles that stay, each with its reason.

/// Imports without which the files of a crate's source import each other in no circle.
pub(super) struct Circle {
    /// The folder of the source.
    pub(super) source: &'static str,
    /// The imports, as the file that imports and the file that is imported.
    pub(super) closed_by: &'static [(&'static str, &'static str)],
    pub(super) reason: &'static str,
}

pub(super) const CIRCLES: &[Circle] = &[
    Circle {
        source: "hal/src",
        closed_by: &[("error.rs", "backend.rs"), ("error.rs", "id.rs"), ("id.rs", "backend.rs")],
        reason: "errors and ids show a backend's name, which stands in the table of backends, and \
                 the table leads to devices, whose calls answer with errors",
    },
    Circle {
        source: "memory/src",
        closed_by: &[("buffer.rs", "arena.rs"), ("buffer.rs", "pool.rs")],
        reason: "a dropped buffer returns to the pool or the arena that gave it out",
    },
    Circle {
        source: "distributed/src",
        closed_by: &[
            ("net/identity/pki/ca_hash.rs", "error.rs"),
            ("net/identity/role.rs", "error.rs"),
            ("task/id.rs", "error.rs"),
        ],
        reason: "errors carry values of these types, whose parsers answer with errors",
    },
    Circle {
        source: "apps/server/src",
        closed_by: &[("catalog/entry.rs", "ensemble/plan.rs")],
        reason: "an ensemble is an entry of the catalog as a model is, and its steps run entries",
    },
    Circle {
        source: "compute/src",
        closed_by: &[
            ("op.rs", "args.rs"),
            ("op.rs", "bytes.rs"),
            ("op.rs", "cost.rs"),
            ("op.rs", "device/pointwise.rs"),
            ("op.rs", "device/recipe.rs"),
            ("epilogue.rs", "ops/unary/table.rs"),
            ("op.rs", "ops/binary.rs"),
            ("op.rs", "reorder.rs"),
            ("op.rs", "widen.rs"),
            ("rewrite.rs", "op.rs"),
        ],
        reason: "the trait of operators answers with types of passes and devices, whose code \
                 takes operators",
    },
    Circle {
        source: "compute/src",
        closed_by: &[("ops/unary/table.rs", "ops/unary/cpu.rs")],
        reason: "the table of functions names the loops that run each, which look functions up",
    },
    Circle {
        source: "compute/src",
        closed_by: &[("rewrite.rs", "ops/unpack_bits.rs")],
        reason: "a decoder of weights holds the operator that unpacks them, which answers with it",
    },
    Circle {
        source: "compute/src",
        closed_by: &[
            ("device/recipe.rs", "device/library.rs"),
            ("device/recipe.rs", "device/pointwise.rs"),
        ],
        reason: "a recipe holds these kinds of kernels, which take a recipe's arguments",
    },
    Circle {
        source: "compute/src",
        closed_by: &[("qgemm/epilogue.rs", "qgemm/vnni.rs")],
        reason: "an epilogue calls its vectorised body, which takes the epilogue",
    },
    Circle {
        source: "compute/src",
        closed_by: &[("comm/arrival.rs", "comm/link.rs"), ("comm/link.rs", "comm/transfers.rs")],
        reason: "a link ends the arrivals of its transfers, and an arrival holds its link",
    },
    Circle {
        source: "compute/src",
        closed_by: &[("comm/ring.rs", "comm/group.rs")],
        reason: "the steps of a ring are methods of the group that calls them",
    },
    Circle {
        source: "compute/src",
        closed_by: &[
            ("device/accelerator.rs", "device/cache.rs"),
            ("device/accelerator.rs", "device/tune.rs"),
            ("device/accelerator.rs", "device/turn.rs"),
            ("device/accelerator.rs", "device/uploads.rs"),
            ("device/cache.rs", "device/tune.rs"),
            ("device/memory.rs", "device/accelerator.rs"),
        ],
        reason: "an accelerator holds the state of these parts, which add methods to it",
    },
    Circle {
        source: "compute/src",
        closed_by: &[("ops/attention/mask.rs", "ops/attention/cpu.rs")],
        reason: "the sizes of a run are defined beside the loops that call this part",
    },
    Circle {
        source: "compute/src",
        closed_by: &[("ops/conv/depthwise.rs", "ops/conv/cpu.rs")],
        reason: "the convolution is defined beside the loops that call this part",
    },
    Circle {
        source: "compute/src",
        closed_by: &[("ops/matmul.rs", "ops/matmul_stored.rs")],
        reason: "a product becomes one of stored weights, which computes as the product does",
    },
    Circle {
        source: "compute/src",
        closed_by: &[
            ("ops/pool.rs", "ops/pool_nhwc.rs"),
            ("ops/pool.rs", "ops/q_pool.rs"),
            ("ops/pool_nhwc.rs", "ops/global_pool.rs"),
        ],
        reason: "an operator becomes one of another layout or of bytes, which has its windows",
    },
    Circle {
        source: "compute/src",
        closed_by: &[
            ("ops/q_conv/depthwise.rs", "ops/q_conv/cpu.rs"),
            ("ops/q_conv/windows.rs", "ops/q_conv/cpu.rs"),
        ],
        reason: "windows and pixels are defined beside the loops that call these parts",
    },
    Circle {
        source: "compute/src",
        closed_by: &[("ops/recurrent/cells.rs", "ops/recurrent/cpu.rs")],
        reason: "the sizes of a run are defined beside the loops that call this part",
    },
    Circle {
        source: "inference/src",
        closed_by: &[("model.rs", "operators.rs")],
        reason: "a model keeps the operators of other crates, which are made of its nodes",
    },
    Circle {
        source: "inference/src",
        closed_by: &[("graph.rs", "options.rs")],
        reason: "a graph keeps its session's options, beside which the options of a run lie, and \
                 these hold a profile of the graph's nodes",
    },
    Circle {
        source: "inference/src",
        closed_by: &[("device/needs.rs", "device/plan.rs")],
        reason: "the memory that a run needs follows from a plan's tasks, and the plan keeps it",
    },
    Circle {
        source: "inference/src",
        closed_by: &[("exec.rs", "slices.rs")],
        reason: "a program decides at its start whether images run one by one, as its methods do",
    },
    Circle {
        source: "inference/src",
        closed_by: &[("onnx/node.rs", "onnx/lower.rs")],
        reason: "a node with a graph of its own lowers that graph",
    },
    Circle {
        source: "inference/src",
        closed_by: &[("repository/files.rs", "repository/entry.rs")],
        reason: "the name of an entry's file is taken among the files of its model",
    },
];
