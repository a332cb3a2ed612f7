//! A SPIR-V module in the making: types, constants, global variables, and the function that is written.

mod function;

use crate::Need;
use crate::syntax::{I32, Int, Number, Type, U32};
use rspirv::dr::{Block, Function, Instruction, Module, ModuleHeader, Operand};
use rspirv::spirv::{
    AddressingModel, BuiltIn, Capability, Decoration, MemoryModel, Op, StorageClass, Word,
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// The elements as which a buffer is seen; several views of one buffer are variables of the same binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum View {
    /// Elements of the type as it is in memory.
    Of(Type),
    /// Two or four words.
    Words(u32),
    F32x4,
}

/// The module, and the function of it that is written.
pub(crate) struct Writer {
    module: Module,
    ids: Word,
    known: HashMap<(Op, Vec<Operand>), Word>,
    buffers: HashMap<(u32, View), Word>,
    builtins: HashMap<BuiltIn, Word>,
    /// The specialisation constants by their numbers.
    specialised: HashMap<u32, Word>,
    /// The global variables that the entry point names.
    pub(crate) interface: Vec<Word>,
    pub(crate) needs: BTreeSet<Need>,
    /// The functions of GLSL.std.450.
    extended: Word,
    function: Function,
    /// Variables of the function, which its first block begins with.
    variables: Vec<Instruction>,
    block: Option<Block>,
    /// The blocks of the function that branches lead to, and those where its constructs end.
    reached: HashSet<Word>,
    merges: HashSet<Word>,
    /// Whether results of float operators keep to their own rounding.
    pub(crate) precise: bool,
}

impl Writer {
    pub(crate) fn new() -> Self {
        let mut module = Module::new();
        let mut header = ModuleHeader::new(0);
        header.set_version(1, 5);
        module.header = Some(header);
        module.memory_model = Some(plain(
            Op::MemoryModel,
            vec![
                Operand::AddressingModel(AddressingModel::Logical),
                Operand::MemoryModel(MemoryModel::GLSL450),
            ],
        ));
        let extended = 1;
        let name = Operand::LiteralString("GLSL.std.450".to_owned());
        module.ext_inst_imports.push(Instruction::new(
            Op::ExtInstImport,
            None,
            Some(extended),
            vec![name],
        ));
        Self {
            module,
            ids: extended,
            known: HashMap::new(),
            buffers: HashMap::new(),
            builtins: HashMap::new(),
            specialised: HashMap::new(),
            interface: Vec::new(),
            needs: BTreeSet::from([Need::FloatControls]),
            extended,
            function: Function::new(),
            variables: Vec::new(),
            block: None,
            reached: HashSet::new(),
            merges: HashSet::new(),
            precise: false,
        }
    }

    pub(crate) fn id(&mut self) -> Word {
        self.ids += 1;
        self.ids
    }

    /// A type, constant or other instruction before all functions, which is written once.
    fn once(&mut self, op: Op, result_type: Option<Word>, operands: Vec<Operand>) -> Word {
        let mut key = operands.clone();
        key.extend(result_type.map(Operand::IdRef));
        if let Some(id) = self.known.get(&(op, key.clone())) {
            return *id;
        }
        let id = self.id();
        let instruction = Instruction::new(op, result_type, Some(id), operands);
        self.module.types_global_values.push(instruction);
        self.known.insert((op, key), id);
        id
    }

    pub(crate) fn void(&mut self) -> Word {
        self.once(Op::TypeVoid, None, vec![])
    }

    /// The type of values in registers: integers have 32 or 64 bits, and no sign of their own.
    pub(crate) fn register(&mut self, ty: Type) -> Word {
        match ty {
            Type::Void => self.void(),
            Type::Bool => self.once(Op::TypeBool, None, vec![]),
            Type::Int(Int { bits: 64, .. }) => self.int(64),
            Type::Int(_) => self.int(32),
            Type::F32 | Type::F16 | Type::BF16 => self.float(32),
            Type::F32x4 => {
                let element = self.float(32);
                self.vector(element, 4)
            }
        }
    }

    /// The type of elements in a buffer or in local memory.
    pub(crate) fn stored(&mut self, ty: Type) -> Word {
        match ty {
            Type::Int(Int { bits, .. }) => self.int(bits),
            Type::F16 => self.float(16),
            Type::BF16 => self.int(16),
            other => self.register(other),
        }
    }

    pub(crate) fn int(&mut self, bits: u32) -> Word {
        if bits == 64 {
            self.needs.insert(Need::Int64);
        }
        self.once(Op::TypeInt, None, vec![Operand::LiteralBit32(bits), Operand::LiteralBit32(0)])
    }

    fn float(&mut self, bits: u32) -> Word {
        self.once(Op::TypeFloat, None, vec![Operand::LiteralBit32(bits)])
    }

    pub(crate) fn vector(&mut self, element: Word, count: u32) -> Word {
        let operands = vec![Operand::IdRef(element), Operand::LiteralBit32(count)];
        self.once(Op::TypeVector, None, operands)
    }

    fn array(&mut self, element: Word, size: u32) -> Word {
        let size = self.u32(size);
        self.once(Op::TypeArray, None, vec![Operand::IdRef(element), Operand::IdRef(size)])
    }

    pub(crate) fn pointer(&mut self, class: StorageClass, to: Word) -> Word {
        let operands = vec![Operand::StorageClass(class), Operand::IdRef(to)];
        self.once(Op::TypePointer, None, operands)
    }

    pub(crate) fn function_type(&mut self, result: Word, parameters: &[Word]) -> Word {
        let ids = std::iter::once(&result).chain(parameters);
        self.once(Op::TypeFunction, None, ids.map(|id| Operand::IdRef(*id)).collect())
    }

    pub(crate) fn u32(&mut self, value: u32) -> Word {
        let ty = self.int(32);
        self.once(Op::Constant, Some(ty), vec![Operand::LiteralBit32(value)])
    }

    pub(crate) fn constant(&mut self, number: Number) -> Word {
        let ty = self.register(number.ty());
        match number {
            Number::Bool(true) => self.once(Op::ConstantTrue, Some(ty), vec![]),
            Number::Bool(false) => self.once(Op::ConstantFalse, Some(ty), vec![]),
            Number::Int(Int { bits: 64, .. }, value) => {
                self.once(Op::Constant, Some(ty), vec![Operand::LiteralBit64(value)])
            }
            Number::Int(int, value) => {
                // In a register a number of a smaller type is a word with its sign.
                let wide = Number::Int(int, value).to(if int.signed { I32 } else { U32 });
                let low = match wide {
                    Some(Number::Int(_, low)) => u32::try_from(low).unwrap_or(0),
                    _ => 0,
                };
                self.once(Op::Constant, Some(ty), vec![Operand::LiteralBit32(low)])
            }
            Number::Float(value) => {
                self.once(Op::Constant, Some(ty), vec![Operand::LiteralBit32(value.to_bits())])
            }
        }
    }

    pub(crate) fn decorate(&mut self, id: Word, decoration: Decoration, more: Vec<Operand>) {
        let operands = [vec![Operand::IdRef(id), Operand::Decoration(decoration)], more].concat();
        self.module.annotations.push(plain(Op::Decorate, operands));
    }

    fn decorate_member(&mut self, id: Word, member: u32, offset: u32) {
        self.module.annotations.push(plain(
            Op::MemberDecorate,
            vec![
                Operand::IdRef(id),
                Operand::LiteralBit32(member),
                Operand::Decoration(Decoration::Offset),
                Operand::LiteralBit32(offset),
            ],
        ));
    }

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
        let array = sizes.iter().rev().fold(element, |element, size| self.array(element, *size));
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

    /// The module as words, with one entry point.
    pub(crate) fn assemble(
        mut self,
        entry: Word,
        name: &str,
        group: Option<[u32; 3]>,
    ) -> (Vec<u32>, BTreeSet<Need>) {
        use rspirv::binary::Assemble as _;
        use rspirv::spirv::{ExecutionMode, ExecutionModel};
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

fn plain(op: Op, operands: Vec<Operand>) -> Instruction {
    Instruction::new(op, None, None, operands)
}
