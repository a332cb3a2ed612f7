//! Everything in a model that has no implementation here, in one error.

use std::fmt;

/// Operators, and uses of operators, without a mapping. The lists are complete: once all of them
/// are mended, the model runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unsupported {
    /// Operators without a mapping.
    pub operators: Vec<UnsupportedOperator>,
    /// Nodes of known operators with an attribute, input or output that is not handled.
    pub nodes: Vec<UnsupportedNode>,
}

/// An operator without a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedOperator {
    /// Operator domain; empty for ONNX's own.
    pub domain: String,
    /// The operator's name.
    pub op_type: String,
    /// The nodes that use it.
    pub nodes: Vec<String>,
}

/// A node that uses its operator in a way that is not handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedNode {
    /// The node's name.
    pub node: String,
    /// Its operator.
    pub op_type: String,
    /// What is not handled.
    pub reason: String,
}

impl Unsupported {
    /// Notes that `node` uses an operator without a mapping.
    pub(crate) fn operator(&mut self, domain: &str, op_type: &str, node: &str) {
        let known = self.operators.iter_mut().find(|o| o.domain == domain && o.op_type == op_type);
        match known {
            Some(operator) => operator.nodes.push(node.to_owned()),
            None => self.operators.push(UnsupportedOperator {
                domain: domain.to_owned(),
                op_type: op_type.to_owned(),
                nodes: vec![node.to_owned()],
            }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.operators.is_empty() && self.nodes.is_empty()
    }
}

impl std::error::Error for Unsupported {}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.operators.is_empty() {
            let (verb, plural) = if self.operators.len() == 1 { ("is", "") } else { ("are", "s") };
            write!(f, "{} operator{plural} {verb} not supported: ", self.operators.len())?;
        }
        for (i, operator) in self.operators.iter().enumerate() {
            f.write_str(if i > 0 { ", " } else { "" })?;
            if !operator.domain.is_empty() {
                write!(f, "{}::", operator.domain)?;
            }
            let plural = if operator.nodes.len() == 1 { "" } else { "s" };
            let nodes: Vec<String> = operator.nodes.iter().map(|n| format!("'{n}'")).collect();
            write!(f, "{} (node{plural} {})", operator.op_type, nodes.join(", "))?;
        }
        if !self.operators.is_empty() && !self.nodes.is_empty() {
            f.write_str("; ")?;
        }
        for (i, node) in self.nodes.iter().enumerate() {
            f.write_str(if i > 0 { "; " } else { "" })?;
            write!(f, "node '{}' ({}): {}", node.node, node.op_type, node.reason)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_lists_everything() {
        let mut u = Unsupported::default();
        assert!(u.is_empty());
        u.operator("", "Foo", "a");
        u.operator("custom", "Bar", "b");
        u.operator("", "Foo", "c");
        u.nodes.push(UnsupportedNode {
            node: "r".into(),
            op_type: "Resize".into(),
            reason: "mode 'cubic' is not supported".into(),
        });
        assert_eq!(
            u.to_string(),
            "2 operators are not supported: Foo (nodes 'a', 'c'), custom::Bar (node 'b'); \
             node 'r' (Resize): mode 'cubic' is not supported"
        );
    }
}
