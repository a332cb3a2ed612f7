//! The engines that are compared.

/// Who is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Engine {
    Ours,
    OnnxRuntime,
    OpenVino,
    Rten,
    Tract,
}

impl Engine {
    pub(super) const ALL: [Self; 5] =
        [Self::Ours, Self::OnnxRuntime, Self::OpenVino, Self::Rten, Self::Tract];

    /// Its name in raw runs and on command lines.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OnnxRuntime => "onnxruntime",
            Self::OpenVino => "openvino",
            Self::Rten => "rten",
            Self::Tract => "tract",
        }
    }

    /// Its name in tables.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OnnxRuntime => "ONNX Runtime",
            Self::OpenVino => "OpenVINO",
            Self::Rten => "rten",
            Self::Tract => "tract",
        }
    }
}
