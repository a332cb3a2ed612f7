//! The text of a program.

use super::{Function, Node, Program, Step, VARIABLES, Way};
use std::fmt::Write as _;

/// The kernel `drawn`.
pub(super) fn program(program: &Program) -> String {
    let mut text = String::new();
    for (at, function) in program.functions.iter().enumerate() {
        let Function { early, result } = function;
        let _ = writeln!(text, "DEVICE u32 f{at}(u32 p0, u32 p1) {{");
        if let Some((condition, value)) = early {
            let _ = writeln!(text, "if ({}) return {};", node(condition), node(value));
        }
        let _ = writeln!(text, "return {};\n}}", node(result));
    }
    text += "DEVICE u32 kept(u32 *to, u32 at, u32 value) {\n\
             u32 old = to[at % 8u];\nto[at % 8u] = value;\nreturn old;\n}\n\
             KERNEL GROUP_SIZE(64, 1, 1)\nvoid drawn(GLOBAL const u32 *words, GLOBAL const i8 *bytes, \
             GLOBAL const u16 *pairs, GLOBAL u32 *y) {\n\
             LOCAL u32 stage[64];\nu32 lane = LOCAL_ID(0), array[8];\n\
             for (u32 i = 0; i < 8; i++) array[i] = words[lane] + i;\n";
    for (at, ty) in VARIABLES.iter().enumerate() {
        let name = ty.name();
        let _ = writeln!(text, "{name} v{at} = ({name})words[(lane + {at}u) % 64u];");
    }
    steps(&mut text, &program.steps);
    for at in 0..VARIABLES.len() {
        let _ = writeln!(text, "y[lane * {}u + {at}u] = (u32)v{at};", VARIABLES.len());
    }
    text + "}\n"
}

fn steps(text: &mut String, of: &[Step]) {
    of.iter().for_each(|one| step(text, one));
}

// Writing to a string cannot fail.
fn step(text: &mut String, of: &Step) {
    match of {
        Step::Assign(to, None, value) => {
            let ty = VARIABLES[*to].name();
            let _ = writeln!(text, "v{to} = ({ty})({});", node(value));
        }
        Step::Assign(to, Some(operator), value) => {
            let _ = writeln!(text, "v{to} {operator}= {};", node(value));
        }
        Step::Keep(true, at, value) => {
            let _ = writeln!(text, "kept(array, {}, {});", node(at), node(value));
        }
        Step::Keep(false, at, value) => {
            let _ = writeln!(text, "array[({}) % 8u] = {};", node(at), node(value));
        }
        Step::If(condition, then, other) => {
            let _ = writeln!(text, "if ({}) {{", node(condition));
            steps(text, then);
            if !other.is_empty() {
                text.push_str("} else {\n");
                steps(text, other);
            }
            text.push_str("}\n");
        }
        Step::Repeat { way, name, count, body, leave } => {
            let _ = match way {
                Way::For => {
                    writeln!(text, "for (u32 n{name} = 0; n{name} < {count}; n{name}++) {{")
                }
                Way::While => {
                    writeln!(text, "u32 n{name} = 0;\nwhile (n{name} < {count}) {{\nn{name}++;")
                }
                Way::Do => writeln!(text, "u32 n{name} = 0;\ndo {{\nn{name}++;"),
            };
            if let Some((condition, ends)) = leave {
                let word = if *ends { "break" } else { "continue" };
                let _ = writeln!(text, "if ({}) {word};", node(condition));
            }
            steps(text, body);
            let _ = match way {
                Way::Do => writeln!(text, "}} while (n{name} < {count});"),
                Way::For | Way::While => writeln!(text, "}}"),
            };
        }
        Step::Exchange(variable, distance) => {
            let ty = VARIABLES[*variable].name();
            let _ = writeln!(
                text,
                "BARRIER();\nstage[lane] = (u32)v{variable};\nBARRIER();\n\
                 v{variable} = ({ty})stage[(lane + {distance}u) % 64u];"
            );
        }
    }
}

fn node(of: &Node) -> String {
    match of {
        Node::Number(number) if *number > i64::from(i32::MAX) => format!("{number}u"),
        Node::Number(number) => number.to_string(),
        Node::Variable(at) => format!("v{at}"),
        Node::Lane => "lane".to_owned(),
        Node::Parameter(at) => format!("p{at}"),
        Node::Call(at, given) => format!("f{at}({}, {})", node(&given[0]), node(&given[1])),
        Node::Input(super::Type::I8, at) => format!("bytes[({}) % 256u]", node(at)),
        Node::Input(super::Type::U16, at) => format!("pairs[({}) % 128u]", node(at)),
        Node::Input(_, at) => format!("words[({}) % 64u]", node(at)),
        Node::Array(at) => format!("array[({}) % 8u]", node(at)),
        Node::Cast(ty, of) => format!("({})({})", ty.name(), node(of)),
        Node::Not(of) => format!("(~{})", node(of)),
        Node::Binary(operator, a, b) => format!("({} {operator} {})", node(a), node(b)),
        Node::Choice(parts) => {
            let [condition, a, b] = &**parts;
            format!("({} ? {} : {})", node(condition), node(a), node(b))
        }
    }
}
