//! Writes small ONNX files field by field, with only what a graph needs.

/// Element types.
pub(super) const F32: u64 = 1;
pub(super) const I64: u64 = 7;
pub(super) const BOOL: u64 = 9;

/// The version of the operators, and of the file format.
const OPSET: u64 = 17;
const IR: u64 = 8;

/// The fields of a message.
#[derive(Debug, Clone, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value > 127 {
            self.0.push(u8::try_from(value & 127).unwrap_or_default() | 128);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or_default());
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(u64::try_from(bytes.len()).unwrap_or_default());
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }
}

/// A value by name, with its element type and its dimensions, of which `None` is open.
pub(super) type Value<'a> = (&'a str, u64, &'a [Option<u64>]);

/// An operator: its type, inputs, outputs and attributes.
pub(super) fn node(
    kind: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: &[Message],
) -> Message {
    let mut node = Message::default();
    for input in inputs {
        node = node.text(1, input);
    }
    for output in outputs {
        node = node.text(2, output);
    }
    node = node.text(4, kind);
    attributes.iter().fold(node, |node, attribute| node.message(5, attribute))
}

/// An attribute that is a number.
pub(super) fn integer(name: &str, value: u64) -> Message {
    Message::default().text(1, name).number(3, value).number(20, 2)
}

/// An attribute that is a graph.
pub(super) fn subgraph(name: &str, graph: &Message) -> Message {
    Message::default().text(1, name).message(6, graph).number(20, 5)
}

/// A graph: operators, constants of one i64 each, inputs and outputs.
pub(super) fn graph(
    nodes: &[Message],
    constants: &[(&str, u64)],
    inputs: &[Value<'_>],
    outputs: &[Value<'_>],
) -> Message {
    let mut graph = Message::default();
    for node in nodes {
        graph = graph.message(1, node);
    }
    graph = graph.text(2, "graph");
    for (name, value) in constants {
        let tensor = Message::default().number(1, 1).number(2, I64).text(8, name);
        graph = graph.message(5, &tensor.bytes(9, &value.to_le_bytes()));
    }
    for input in inputs {
        graph = graph.message(11, &described(*input));
    }
    for output in outputs {
        graph = graph.message(12, &described(*output));
    }
    graph
}

fn described((name, dtype, dims): Value<'_>) -> Message {
    let mut shape = Message::default();
    for (axis, dim) in dims.iter().enumerate() {
        let dim = match dim {
            Some(size) => Message::default().number(1, *size),
            None => Message::default().text(2, &format!("{name}_{axis}")),
        };
        shape = shape.message(1, &dim);
    }
    let tensor = Message::default().number(1, dtype).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

/// A file of a graph.
pub(super) fn model(graph: &Message) -> Vec<u8> {
    let opset = Message::default().text(1, "").number(2, OPSET);
    Message::default().number(1, IR).message(7, graph).message(8, &opset).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_as_the_format_says() {
        let message = Message::default().number(1, 300).text(2, "ab");
        assert_eq!(message.0, [8, 0xAC, 2, 18, 2, b'a', b'b']);
        let node = node("Add", &["a", ""], &["c"], &[integer("to", 7)]);
        let attribute = [10, 2, b't', b'o', 24, 7, 160, 1, 2];
        let expected = [&b"\x0a\x01a\x0a\x00\x12\x01c\x22\x03Add\x2a\x09"[..], &attribute].concat();
        assert_eq!(node.0, expected);
        assert_eq!(model(&Message::default()), [8, 8, 58, 0, 66, 4, 10, 0, 16, 17]);
    }
}
