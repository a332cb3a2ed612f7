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
        source: "compute/src",
        closed_by: &[("op.rs", "bytes.rs"), ("op.rs", "reorder.rs"), ("op.rs", "rewrite.rs")],
        reason: "the trait of operators answers with forms of a graph, which hold operators",
    },
];
