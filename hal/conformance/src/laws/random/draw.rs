//! Draws programs.

use super::{Function, Node, Program, Step, Type, VARIABLES, Way};

/// A source of random numbers: SplitMix64 (Steele, Lea and Flood, 2014).
pub(super) struct Draw {
    state: u64,
    /// How many loops are around; each has a counter.
    loops: usize,
    /// How many functions can be called.
    functions: usize,
    /// Whether a function is drawn, which sees its parameters alone.
    inside: bool,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed, loops: 0, functions: 0, inside: false }
    }

    fn below(&mut self, most: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        let at = self.below(of.len() as u64);
        of[usize::try_from(at).unwrap_or(0)]
    }

    fn index(&mut self, most: usize) -> usize {
        usize::try_from(self.below(most as u64)).unwrap_or(0)
    }

    pub(super) fn program(mut self) -> Program {
        let mut functions = Vec::new();
        self.inside = true;
        for _ in 0..self.below(3) {
            let early = (self.below(2) == 0).then(|| (self.condition(2), self.word(2)));
            functions.push(Function { early, result: self.word(3) });
            self.functions += 1;
        }
        self.inside = false;
        let count = 4 + self.below(8);
        let steps = (0..count).map(|_| self.step(3, true)).collect();
        Program { functions, steps }
    }

    fn steps(&mut self, depth: u32) -> Vec<Step> {
        (0..1 + self.below(3)).map(|_| self.step(depth, false)).collect()
    }

    /// `outside` tells whether every work-item gets here, so that they may exchange.
    fn step(&mut self, depth: u32, outside: bool) -> Step {
        match self.below(10) {
            0 if outside => {
                let distance = self.below(64);
                Step::Exchange(self.index(VARIABLES.len()), u32::try_from(distance).unwrap_or(0))
            }
            1 | 2 if depth > 0 => {
                let condition = self.condition(2);
                let then = self.steps(depth - 1);
                let other = if self.below(2) == 0 { vec![] } else { self.steps(depth - 1) };
                Step::If(condition, then, other)
            }
            3 | 4 if depth > 0 => {
                let (name, count) = (self.loops, 1 + self.below(6).cast_signed());
                self.loops += 1;
                let body = self.steps(depth - 1);
                let ends = self.below(2) == 0;
                let leave = (self.below(2) == 0).then(|| (self.condition(2), ends));
                let way = self.one_of(&[Way::For, Way::While, Way::Do]);
                Step::Repeat { way, name, count, body, leave }
            }
            5 => Step::Keep(self.below(2) == 0, self.word(2), self.word(3)),
            _ => {
                let to = self.index(VARIABLES.len());
                // Signed sums could leave their type.
                let unsigned = VARIABLES[to] == Type::U32;
                let operators = [None, Some("+"), Some("-"), Some("*"), Some("^"), Some("|")];
                let operator = if unsigned { self.one_of(&operators) } else { None };
                Step::Assign(to, operator, self.word(4))
            }
        }
    }

    /// An expression of `u32`, whose operators C defines for all values.
    fn word(&mut self, depth: u32) -> Node {
        let Some(less) = depth.checked_sub(1) else { return self.leaf() };
        let two = |this: &mut Self| [Box::new(this.word(less)), Box::new(this.word(less))];
        match self.below(18) {
            0..=4 => {
                let operator = self.one_of(&["+", "-", "*", "&", "|", "^"]);
                let [a, b] = two(self);
                Node::Binary(operator, a, b)
            }
            5 => {
                let operator = self.one_of(&["/", "%"]);
                let [a, b] = two(self);
                let odd = Node::Binary("|", b, Box::new(Node::Number(1)));
                Node::Binary(operator, a, Box::new(odd))
            }
            6 => {
                let operator = self.one_of(&["<<", ">>"]);
                let [a, b] = two(self);
                let short = Node::Binary("&", b, Box::new(Node::Number(31)));
                Node::Binary(operator, a, Box::new(short))
            }
            7 => Node::Not(Box::new(self.word(less))),
            8 => {
                let condition = self.condition(less);
                Node::Choice(Box::new([condition, self.word(less), self.word(less)]))
            }
            9 | 10 => Node::Cast(Type::U32, Box::new(self.small(less))),
            11 => {
                // Through a wider type, and through floats that hold the number.
                let of = Box::new(self.word(less));
                let low = Node::Binary("&", of, Box::new(Node::Number(0xffff)));
                let way = self.one_of(&[Type::I64, Type::U64, Type::F32]);
                Node::Cast(Type::U32, Box::new(Node::Cast(way, Box::new(low))))
            }
            12 if !self.inside => Node::Array(Box::new(self.word(less))),
            13 | 14 if less > 0 => self.guarded(less - 1),
            15 if self.functions > 0 => {
                let at = self.index(self.functions);
                Node::Call(at, Box::new([self.word(less), self.word(less)]))
            }
            16 => {
                let operator = self.one_of(&["+", "-", "*", "/", "%", ">>", "<<"]);
                let long = |of| Box::new(Node::Cast(Type::U64, of));
                let [a, b] = two(self);
                let b = match operator {
                    "/" | "%" => Box::new(Node::Binary("|", long(b), Box::new(Node::Number(1)))),
                    "<<" | ">>" => Box::new(Node::Binary("&", b, Box::new(Node::Number(63)))),
                    _ => b,
                };
                let whole = Node::Binary(operator, long(a), b);
                let high = Node::Binary(">>", Box::new(whole), Box::new(Node::Number(7)));
                Node::Cast(Type::U32, Box::new(high))
            }
            _ => Node::Cast(Type::U32, Box::new(self.condition(less))),
        }
    }

    /// A quotient or remainder of words by any word, behind the condition that C defines it.
    fn guarded(&mut self, less: u32) -> Node {
        let ty = self.one_of(&[Type::U32, Type::I32, Type::I32]);
        let operator = self.one_of(&["/", "%"]);
        let mut word = || {
            let of = if self.below(2) == 0 { self.small(less) } else { self.word(less) };
            Node::Cast(ty, Box::new(of))
        };
        let (a, b) = (word(), word());
        let is = |number| Node::Binary("==", Box::new(b.clone()), Box::new(Node::Number(number)));
        let either = |a, b| Node::Binary("||", Box::new(a), Box::new(b));
        let undefined = if ty == Type::I32 { either(is(0), is(-1)) } else { is(0) };
        let other = Node::Cast(ty, Box::new(Node::Number(7)));
        let quotient = Node::Binary(operator, Box::new(a), Box::new(b));
        Node::Cast(Type::U32, Box::new(Node::Choice(Box::new([undefined, other, quotient]))))
    }

    /// An expression of a type below 32 bits, or of signed words that stay small.
    fn small(&mut self, depth: u32) -> Node {
        let Some(less) = depth.checked_sub(1) else { return self.leaf() };
        let ty = self.one_of(&[Type::I8, Type::U8, Type::I16]);
        let cast = |this: &mut Self| Box::new(Node::Cast(ty, Box::new(this.word(less))));
        match self.below(6) {
            0 => *cast(self),
            1 => {
                let operator = self.one_of(&["+", "-", "*"]);
                Node::Binary(operator, cast(self), cast(self))
            }
            2 => {
                let operator = self.one_of(&["/", "%"]);
                let by = match self.below(2) {
                    0 => Node::Number(1 + self.below(9).cast_signed()),
                    // An odd number of either sign.
                    _ => Node::Binary("|", cast(self), Box::new(Node::Number(1))),
                };
                Node::Binary(operator, cast(self), Box::new(by))
            }
            3 => {
                let by = Node::Number(self.below(16).cast_signed());
                Node::Binary(">>", cast(self), Box::new(by))
            }
            4 => {
                let (a, b) = (cast(self), cast(self));
                Node::Choice(Box::new([self.condition(less), *a, *b]))
            }
            _ if self.inside => *cast(self),
            _ => {
                let of = self.one_of(&[Type::I8, Type::U16]);
                Node::Input(of, Box::new(self.word(less)))
            }
        }
    }

    fn condition(&mut self, depth: u32) -> Node {
        let Some(less) = depth.checked_sub(1) else {
            return Node::Binary("<", Box::new(self.leaf()), Box::new(self.leaf()));
        };
        let compare = self.one_of(&["<", ">", "<=", ">=", "==", "!="]);
        match self.below(6) {
            5 => {
                // The right side is defined only where the left one holds.
                let (a, by) = (self.word(less), self.word(less));
                let by = Box::new(by);
                let set = Node::Binary("!=", by.clone(), Box::new(Node::Number(0)));
                let quotient = Node::Binary(self.one_of(&["/", "%"]), Box::new(a), by);
                let less = Node::Binary(compare, Box::new(quotient), Box::new(Node::Number(7)));
                Node::Binary("&&", Box::new(set), Box::new(less))
            }
            0 => {
                let operator = self.one_of(&["&&", "||"]);
                let (a, b) = (self.condition(less), self.condition(less));
                Node::Binary(operator, Box::new(a), Box::new(b))
            }
            1 => {
                let (a, b) = (self.small(less), self.small(less));
                Node::Binary(compare, Box::new(a), Box::new(b))
            }
            _ => {
                let (a, b) = (self.word(less), self.word(less));
                Node::Binary(compare, Box::new(a), Box::new(b))
            }
        }
    }

    fn leaf(&mut self) -> Node {
        match self.below(5) {
            0..=3 if self.inside => Node::Parameter(self.index(2)),
            0 => Node::Cast(Type::U32, Box::new(Node::Variable(self.index(VARIABLES.len())))),
            1 => Node::Variable(self.index(2)),
            2 => Node::Lane,
            3 => Node::Input(Type::U32, Box::new(Node::Lane)),
            _ => {
                let number = self.one_of(&[0, 1, 2, 7, 255, 256, 65_535, 0x7fff_ffff, 0xffff_ffff]);
                Node::Cast(Type::U32, Box::new(Node::Number(number)))
            }
        }
    }
}
