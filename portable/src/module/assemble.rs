//! The module as words.

use super::{Writer, plain};
use crate::Need;
use rspirv::binary::Assemble as _;
use rspirv::dr::Operand;
use rspirv::spirv::{Capability, ExecutionMode, ExecutionModel, Op, Word};
use std::collections::BTreeSet;

impl Writer {
    /// The module as words, with one entry point.
    pub(crate) fn assemble(
        mut self,
        entry: Word,
        name: &str,
        group: Option<[u32; 3]>,
    ) -> (Vec<u32>, BTreeSet<Need>) {
        let capabilities = self.needs.iter().map(|need| need.capability());
        for capability in std::iter::once(Capability::Shader).chain(capabilities) {
            let operands = vec![Operand::Capability(capability)];
            self.module.capabilities.push(plain(Op::Capability, operands));
        }
        let first = [
            Operand::ExecutionModel(ExecutionModel::GLCompute),
            Operand::IdRef(entry),
            Operand::LiteralString(name.to_owned()),
        ];
        let interface = self.interface.iter().map(|id| Operand::IdRef(*id));
        let operands = first.into_iter().chain(interface).collect();
        self.module.entry_points.push(plain(Op::EntryPoint, operands));
        let mut mode = |mode, values: &[u32]| {
            let values = values.iter().map(|value| Operand::LiteralBit32(*value));
            let first = [Operand::IdRef(entry), Operand::ExecutionMode(mode)];
            let operands = first.into_iter().chain(values).collect();
            self.module.execution_modes.push(plain(Op::ExecutionMode, operands));
        };
        mode(ExecutionMode::LocalSize, &group.unwrap_or([1; 3]));
        mode(ExecutionMode::SignedZeroInfNanPreserve, &[32]);
        if let Some(header) = &mut self.module.header {
            header.bound = self.ids + 1;
        }
        (self.module.assemble(), self.needs)
    }
}

impl Need {
    fn capability(self) -> Capability {
        match self {
            Self::Storage8 => Capability::StorageBuffer8BitAccess,
            Self::Storage16 => Capability::StorageBuffer16BitAccess,
            Self::Int8 => Capability::Int8,
            Self::Int16 => Capability::Int16,
            Self::Int64 => Capability::Int64,
            Self::FloatControls => Capability::SignedZeroInfNanPreserve,
        }
    }
}
