//! The function that is written: its blocks and instructions.

use super::{Writer, plain};
use crate::syntax::Type;
use rspirv::dr::{Block, Function, Instruction, Operand};
use rspirv::spirv::{Decoration, FunctionControl, GlslStd450Op, Op, StorageClass, Word};

impl Writer {
    /// A variable or array of the function.
    pub(crate) fn variable(&mut self, ty: Type, sizes: &[u32]) -> Word {
        let element = self.register(ty);
        let of = self.array(element, sizes);
        let pointer = self.pointer(StorageClass::Function, of);
        let id = self.id();
        let operands = vec![Operand::StorageClass(StorageClass::Function)];
        self.variables.push(Instruction::new(Op::Variable, Some(pointer), Some(id), operands));
        id
    }

    /// Begins a function; its parameters' ids are returned.
    pub(crate) fn begin(&mut self, id: Word, result: Word, parameters: &[Word]) -> Vec<Word> {
        let ty = self.function_type(result, parameters);
        let control = Operand::FunctionControl(FunctionControl::NONE);
        let operands = vec![control, Operand::IdRef(ty)];
        self.function = Function::new();
        self.reached.clear();
        self.merges.clear();
        self.function.def = Some(Instruction::new(Op::Function, Some(result), Some(id), operands));
        let ids: Vec<Word> = parameters.iter().map(|_| self.id()).collect();
        for (ty, id) in parameters.iter().zip(&ids) {
            let parameter = Instruction::new(Op::FunctionParameter, Some(*ty), Some(*id), vec![]);
            self.function.parameters.push(parameter);
        }
        let first = self.id();
        self.label(first);
        ids
    }

    /// Ends the function; every path has ended.
    pub(crate) fn end(&mut self) {
        let mut function = std::mem::take(&mut self.function);
        if let Some(first) = function.blocks.first_mut() {
            first.instructions.splice(0..0, self.variables.drain(..));
        }
        function.end = Some(plain(Op::FunctionEnd, vec![]));
        self.module.functions.push(function);
    }

    /// Begins a block.
    pub(crate) fn label(&mut self, id: Word) {
        let mut block = Block::new();
        block.label = Some(Instruction::new(Op::Label, None, Some(id), vec![]));
        self.block = Some(block);
    }

    /// Begins a block if a branch leads to it; elsewhere nothing is written until one begins that is led to.
    pub(crate) fn enter(&mut self, id: Word) {
        if self.reached.contains(&id) {
            self.label(id);
        }
    }

    /// Begins the block after a construct. It has to be there even if nothing leads to it.
    pub(crate) fn merge(&mut self, id: Word) {
        self.enter(id);
        if !self.is_open() && self.merges.contains(&id) {
            self.label(id);
            self.close(Op::Unreachable, vec![]);
        }
    }

    /// Begins the block of a loop that leads back to `head`, and tells whether anything leads to it. It has to be there
    /// even if not.
    pub(crate) fn next(&mut self, id: Word, head: Word) -> bool {
        self.enter(id);
        let reached = self.is_open();
        if !reached && self.merges.contains(&id) {
            self.label(id);
            self.branch(head);
        }
        reached
    }

    /// Leads back to a loop's `head`. A path that has ended does so too, because a loop needs its way back.
    pub(crate) fn back(&mut self, head: Word) {
        if !self.is_open() {
            self.block = self.function.blocks.pop();
            self.block.iter_mut().for_each(|block| drop(block.instructions.pop()));
        }
        self.branch(head);
    }

    /// Whether statements can be reached here.
    pub(crate) fn is_open(&self) -> bool {
        self.block.is_some()
    }

    /// The label of the block that is written, if one is.
    pub(crate) fn here(&self) -> Option<Word> {
        self.block.as_ref()?.label.as_ref()?.result_id
    }

    /// An instruction with a result.
    pub(crate) fn op(&mut self, op: Op, ty: Word, operands: &[Word]) -> Word {
        let operands = operands.iter().map(|id| Operand::IdRef(*id)).collect();
        let id = self.instruction(op, Some(ty), operands);
        let rounded = matches!(op, Op::FAdd | Op::FSub | Op::FMul | Op::FDiv);
        if self.precise && rounded && self.is_open() {
            self.decorate(id, Decoration::NoContraction, vec![]);
        }
        id
    }

    /// A function of GLSL.std.450.
    pub(crate) fn extended(&mut self, function: GlslStd450Op, ty: Word, operands: &[Word]) -> Word {
        let first =
            [Operand::IdRef(self.extended), Operand::LiteralExtInstInteger(function as u32)];
        let operands = first.into_iter().chain(operands.iter().map(|id| Operand::IdRef(*id)));
        let operands = operands.collect();
        self.instruction(Op::ExtInst, Some(ty), operands)
    }

    pub(crate) fn instruction(&mut self, op: Op, ty: Option<Word>, operands: Vec<Operand>) -> Word {
        let id = self.id();
        self.push(Instruction::new(op, ty, Some(id), operands));
        id
    }

    /// An instruction without a result.
    pub(crate) fn act(&mut self, op: Op, operands: Vec<Operand>) {
        self.push(plain(op, operands));
    }

    /// The last instruction of a block.
    pub(crate) fn close(&mut self, op: Op, operands: Vec<Operand>) {
        self.push(plain(op, operands));
        self.function.blocks.extend(self.block.take());
    }

    /// Goes to another block, unless the path has ended.
    pub(crate) fn branch(&mut self, to: Word) {
        if self.is_open() {
            self.close(Op::Branch, vec![Operand::IdRef(to)]);
        }
    }

    pub(crate) fn branch_if(&mut self, condition: Word, then: Word, other: Word) {
        let operands = [condition, then, other].map(Operand::IdRef).to_vec();
        self.close(Op::BranchConditional, operands);
    }

    fn push(&mut self, instruction: Instruction) {
        // What follows the end of a path is never reached.
        let Some(block) = &mut self.block else { return };
        let labels = instruction.operands.iter().filter_map(Operand::id_ref_any);
        match instruction.class.opcode {
            Op::Branch | Op::BranchConditional => self.reached.extend(labels),
            Op::SelectionMerge | Op::LoopMerge => self.merges.extend(labels),
            _ => {}
        }
        block.instructions.push(instruction);
    }
}
