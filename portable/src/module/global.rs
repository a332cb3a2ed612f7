//! What stands outside of functions: buffers, push constants, local memory, inputs, and constants that the driver is told.

use super::Writer;
use crate::Need;
use crate::syntax::{Int, Type};
use rspirv::dr::{Instruction, Operand};
use rspirv::spirv::{BuiltIn, Decoration, Op, StorageClass, Word};

/// The elements as which a buffer is seen; several views of one buffer are variables of the same binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum View {
    /// Elements of the type as it is in memory.
    Of(Type),
    /// Two or four words.
    Words(u32),
    F32x4,
}

impl Writer {
    fn global(&mut self, class: StorageClass, ty: Word) -> Word {
        let pointer = self.pointer(class, ty);
        let id = self.id();
        let operands = vec![Operand::StorageClass(class)];
        let variable = Instruction::new(Op::Variable, Some(pointer), Some(id), operands);
        self.module.types_global_values.push(variable);
        self.interface.push(id);
        id
    }

    /// A structure whose members begin at these bytes.
    fn block(&mut self, members: &[(Word, u32)]) -> Word {
        let id = self.id();
        let operands = members.iter().map(|(ty, _)| Operand::IdRef(*ty)).collect();
        let structure = Instruction::new(Op::TypeStruct, None, Some(id), operands);
        self.module.types_global_values.push(structure);
        self.decorate(id, Decoration::Block, vec![]);
        for (member, (_, offset)) in (0..).zip(members) {
            self.decorate_member(id, member, *offset);
        }
        id
    }

    /// The type of a view's elements.
    pub(crate) fn element(&mut self, view: View) -> Word {
        match view {
            View::Of(ty) => {
                match ty.bytes() {
                    1 => drop(self.needs.insert(Need::Storage8)),
                    2 => drop(self.needs.insert(Need::Storage16)),
                    _ => {}
                }
                self.stored(ty)
            }
            View::Words(count) => {
                let word = self.int(32);
                self.vector(word, count)
            }
            View::F32x4 => self.register(Type::F32x4),
        }
    }

    /// The variable of a buffer in a view; its first member is an array without an end.
    pub(crate) fn buffer(&mut self, binding: u32, view: View, constant: bool) -> Word {
        // Types that are stored alike share a view.
        let view = match view {
            View::Of(Type::Int(Int { bits, .. })) => {
                View::Of(Type::Int(Int { bits, signed: false }))
            }
            View::Of(Type::BF16) => View::Of(Type::Int(Int { bits: 16, signed: false })),
            other => other,
        };
        if let Some(id) = self.buffers.get(&(binding, view)) {
            return *id;
        }
        let element = self.element(view);
        let bytes = match view {
            View::Of(ty) => ty.bytes(),
            View::Words(count) => 4 * count,
            View::F32x4 => 16,
        };
        let array = self.id();
        let operands = vec![Operand::IdRef(element)];
        let runtime = Instruction::new(Op::TypeRuntimeArray, None, Some(array), operands);
        self.module.types_global_values.push(runtime);
        self.decorate(array, Decoration::ArrayStride, vec![Operand::LiteralBit32(bytes)]);
        let block = self.block(&[(array, 0)]);
        let id = self.global(StorageClass::StorageBuffer, block);
        self.decorate(id, Decoration::DescriptorSet, vec![Operand::LiteralBit32(0)]);
        self.decorate(id, Decoration::Binding, vec![Operand::LiteralBit32(binding)]);
        // Buffers may be parts of one, and views are of one memory.
        self.decorate(id, Decoration::Aliased, vec![]);
        if constant {
            self.decorate(id, Decoration::NonWritable, vec![]);
        }
        self.buffers.insert((binding, view), id);
        id
    }

    /// The push constants, of these types and first bytes.
    pub(crate) fn push_constants(&mut self, members: &[(Type, u32)]) -> Word {
        let members: Vec<(Word, u32)> =
            members.iter().map(|(ty, offset)| (self.register(*ty), *offset)).collect();
        let block = self.block(&members);
        self.global(StorageClass::PushConstant, block)
    }

    /// An array of local memory, with the type of its elements.
    pub(crate) fn local(&mut self, ty: Type, sizes: &[u32]) -> Word {
        match ty {
            Type::Int(Int { bits: 8, .. }) => drop(self.needs.insert(Need::Int8)),
            Type::Int(Int { bits: 16, .. }) => drop(self.needs.insert(Need::Int16)),
            _ => {}
        }
        let element = self.stored(ty);
        let array = self.array(element, sizes);
        self.global(StorageClass::Workgroup, array)
    }

    /// The variable of an input of three words.
    pub(crate) fn builtin(&mut self, builtin: BuiltIn) -> Word {
        if let Some(id) = self.builtins.get(&builtin) {
            return *id;
        }
        let word = self.int(32);
        let vector = self.vector(word, 3);
        let id = self.global(StorageClass::Input, vector);
        self.decorate(id, Decoration::BuiltIn, vec![Operand::BuiltIn(builtin)]);
        self.builtins.insert(builtin, id);
        id
    }

    /// Whether the function reads an input.
    pub(crate) fn has_builtin(&self, builtin: BuiltIn) -> bool {
        self.builtins.contains_key(&builtin)
    }

    /// A word that the driver is told when it compiles, or `default`.
    pub(crate) fn specialised(&mut self, number: u32, default: u32) -> Word {
        if let Some(id) = self.specialised.get(&number) {
            return *id;
        }
        let (word, id) = (self.int(32), self.id());
        let operands = vec![Operand::LiteralBit32(default)];
        let constant = Instruction::new(Op::SpecConstant, Some(word), Some(id), operands);
        self.module.types_global_values.push(constant);
        self.decorate(id, Decoration::SpecId, vec![Operand::LiteralBit32(number)]);
        self.specialised.insert(number, id);
        id
    }

    /// The size of work-groups by the specialisation constants 0 to 2.
    pub(crate) fn open_group(&mut self) {
        let word = self.int(32);
        let sides: Vec<Word> = (0..3).map(|side| self.specialised(side, 1)).collect();
        let vector = self.vector(word, 3);
        let id = self.id();
        let operands = sides.into_iter().map(Operand::IdRef).collect();
        let size = Instruction::new(Op::SpecConstantComposite, Some(vector), Some(id), operands);
        self.module.types_global_values.push(size);
        let operands = vec![Operand::BuiltIn(BuiltIn::WorkgroupSize)];
        self.decorate(id, Decoration::BuiltIn, operands);
    }
}
