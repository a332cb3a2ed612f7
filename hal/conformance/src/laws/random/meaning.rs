//! What C says that a program does, worked out for each work-item.

use super::{Function, ITEMS, Node, Program, Step, Type, VARIABLES};

/// A number of a type; its bits are right for the type.
#[derive(Debug, Clone, Copy)]
struct Value {
    ty: Type,
    number: i64,
}

/// What a work-item sees.
#[derive(Clone, Copy)]
struct Item<'a> {
    functions: &'a [Function],
    parameters: [u32; 2],
    lane: usize,
    words: &'a [u32],
    bytes: &'a [u8],
    variables: [i64; VARIABLES.len()],
    array: [u32; 8],
}

/// The variables of all work-items at the end, as words.
pub(super) fn run(program: &Program, words: &[u32]) -> Vec<u32> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let functions = program.functions.as_slice();
    let new = |lane| Item::new(functions, lane, words, &bytes);
    let mut items: Vec<Item<'_>> = (0..ITEMS).map(new).collect();
    for step in &program.steps {
        if let Step::Exchange(variable, distance) = step {
            let all: Vec<i64> = items.iter().map(|item| item.variables[*variable]).collect();
            for (lane, item) in items.iter_mut().enumerate() {
                let word = whole(Type::U32, all[(lane + *distance as usize) % ITEMS]);
                item.variables[*variable] = whole(VARIABLES[*variable], word);
            }
        } else {
            items.iter_mut().for_each(|item| item.step(step));
        }
    }
    let word = |number: &i64| u32::try_from(whole(Type::U32, *number)).unwrap_or(0);
    items.iter().flat_map(|item| item.variables.iter().map(word)).collect()
}

/// The number as one of a type of integers, as a conversion wraps it.
fn whole(ty: Type, number: i64) -> i64 {
    match ty {
        Type::Bool => i64::from(number != 0),
        Type::I8 => number << 56 >> 56,
        Type::U8 => number & 0xff,
        Type::I16 => number << 48 >> 48,
        Type::U16 => number & 0xffff,
        Type::I32 => number << 32 >> 32,
        Type::U32 => number & 0xffff_ffff,
        // Floats here hold whole numbers of 16 bits; of a u64 this has the bits.
        Type::I64 | Type::U64 | Type::F32 => number,
    }
}

impl<'a> Item<'a> {
    fn new(functions: &'a [Function], lane: usize, words: &'a [u32], bytes: &'a [u8]) -> Self {
        let variables =
            std::array::from_fn(|at| whole(VARIABLES[at], i64::from(words[(lane + at) % ITEMS])));
        let array =
            std::array::from_fn(|at| words[lane].wrapping_add(u32::try_from(at).unwrap_or(0)));
        Self { functions, parameters: [0; 2], lane, words, bytes, variables, array }
    }

    fn steps(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.step(step));
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Assign(to, operator, value) => {
                let value = self.value(value);
                let old = Value { ty: VARIABLES[*to], number: self.variables[*to] };
                let value = operator.map_or(value, |operator| binary(operator, old, value));
                self.variables[*to] = whole(VARIABLES[*to], value.number);
            }
            Step::Keep(_, at, value) => {
                let at = self.index(at, 8);
                self.array[at] = self.word(value);
            }
            Step::If(condition, then, other) => {
                let then = if self.value(condition).number != 0 { then } else { other };
                self.steps(then);
            }
            Step::Repeat { count, body, leave, .. } => {
                for _ in 0..*count {
                    let leaves = leave.as_ref().filter(|leave| self.value(&leave.0).number != 0);
                    match leaves {
                        Some((_, true)) => break,
                        Some((_, false)) => {}
                        None => self.steps(body),
                    }
                }
            }
            // Only the outermost steps exchange.
            Step::Exchange(..) => {}
        }
    }

    fn index(&self, at: &Node, length: usize) -> usize {
        self.word(at) as usize % length
    }

    fn word(&self, node: &Node) -> u32 {
        u32::try_from(whole(Type::U32, self.value(node).number)).unwrap_or(0)
    }

    fn value(&self, node: &Node) -> Value {
        match node {
            Node::Number(number) => {
                let ty = if *number > i64::from(i32::MAX) { Type::U32 } else { Type::I32 };
                Value { ty, number: *number }
            }
            Node::Variable(at) => Value { ty: VARIABLES[*at], number: self.variables[*at] },
            Node::Parameter(at) => Value { ty: Type::U32, number: i64::from(self.parameters[*at]) },
            Node::Call(at, given) => {
                let parameters = [self.word(&given[0]), self.word(&given[1])];
                let inside = Self { parameters, ..*self };
                let Function { early, result } = &self.functions[*at];
                let early = early.as_ref().filter(|(holds, _)| inside.value(holds).number != 0);
                let word = inside.word(early.map_or(result, |(_, value)| value));
                Value { ty: Type::U32, number: i64::from(word) }
            }
            Node::Lane => Value { ty: Type::U32, number: self.lane as i64 },
            Node::Input(Type::I8, at) => {
                let byte = self.bytes[self.index(at, self.bytes.len())];
                Value { ty: Type::I8, number: i64::from(byte.cast_signed()) }
            }
            Node::Input(Type::U16, at) => {
                let at = 2 * self.index(at, self.bytes.len() / 2);
                let pair = u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]);
                Value { ty: Type::U16, number: i64::from(pair) }
            }
            Node::Input(_, at) => {
                let word = self.words[self.index(at, self.words.len())];
                Value { ty: Type::U32, number: i64::from(word) }
            }
            Node::Array(at) => {
                let word = self.array[self.index(at, self.array.len())];
                Value { ty: Type::U32, number: i64::from(word) }
            }
            Node::Cast(ty, of) => Value { ty: *ty, number: whole(*ty, self.value(of).number) },
            Node::Not(of) => {
                let of = promoted(self.value(of));
                Value { ty: of.ty, number: whole(of.ty, !of.number) }
            }
            Node::Binary("&&", a, b) => {
                truth(self.value(a).number != 0 && self.value(b).number != 0)
            }
            Node::Binary("||", a, b) => {
                truth(self.value(a).number != 0 || self.value(b).number != 0)
            }
            Node::Binary(operator, a, b) => binary(operator, self.value(a), self.value(b)),
            Node::Choice(parts) => {
                let [condition, a, b] = &**parts;
                let (a, b) = (self.value(a), self.value(b));
                let ty = common(a.ty, b.ty);
                let chosen = if self.value(condition).number != 0 { a } else { b };
                Value { ty, number: whole(ty, chosen.number) }
            }
        }
    }
}

fn truth(holds: bool) -> Value {
    Value { ty: Type::Bool, number: i64::from(holds) }
}

fn promoted(value: Value) -> Value {
    Value { ty: common(value.ty, Type::I32), ..value }
}

/// The type in which two numbers meet.
fn common(a: Type, b: Type) -> Type {
    let both = [a, b];
    if both.contains(&Type::F32) {
        Type::F32
    } else if both.contains(&Type::U64) {
        Type::U64
    } else if both.contains(&Type::I64) {
        Type::I64
    } else if both.contains(&Type::U32) {
        Type::U32
    } else {
        Type::I32
    }
}

fn binary(operator: &str, a: Value, b: Value) -> Value {
    if matches!(operator, "<<" | ">>") {
        let a = promoted(a);
        let number = match (operator, a.ty) {
            ("<<", _) => a.number << b.number,
            (_, Type::U64) => (a.number.cast_unsigned() >> b.number).cast_signed(),
            _ => a.number >> b.number,
        };
        return Value { ty: a.ty, number: whole(a.ty, number) };
    }
    let ty = common(a.ty, b.ty);
    let (a, b) = (whole(ty, a.number), whole(ty, b.number));
    let (large, small) = (a.cast_unsigned(), b.cast_unsigned());
    let number = match operator {
        // A quotient by 0 is one that its condition keeps from being chosen.
        "/" | "%" if b == 0 => 0,
        "/" if ty == Type::U64 => (large / small).cast_signed(),
        "%" if ty == Type::U64 => (large % small).cast_signed(),
        "<" if ty == Type::U64 => return truth(large < small),
        ">" if ty == Type::U64 => return truth(large > small),
        "<=" if ty == Type::U64 => return truth(large <= small),
        ">=" if ty == Type::U64 => return truth(large >= small),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "*" => a.wrapping_mul(b),
        "/" => a.wrapping_div(b),
        "%" => a.wrapping_rem(b),
        "&" => a & b,
        "|" => a | b,
        "^" => a ^ b,
        "<" => return truth(a < b),
        ">" => return truth(a > b),
        "<=" => return truth(a <= b),
        ">=" => return truth(a >= b),
        "==" => return truth(a == b),
        _ => return truth(a != b),
    };
    Value { ty, number: whole(ty, number) }
}
