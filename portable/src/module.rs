//! A SPIR-V module in the making: types, constants, global variables, and the function that is written.

mod assemble;
mod function;
mod global;
mod types;

use crate::Need;
pub(crate) use global::View;
use rspirv::dr::{Block, Function, Instruction, Module, ModuleHeader, Operand};
use rspirv::spirv::{AddressingModel, BuiltIn, Decoration, MemoryModel, Op, Word};
use std::collections::{BTreeSet, HashMap, HashSet};

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
}

fn plain(op: Op, operands: Vec<Operand>) -> Instruction {
    Instruction::new(op, None, None, operands)
}
