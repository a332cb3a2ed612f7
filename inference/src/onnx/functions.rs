//! Replaces calls of a file's own functions by the nodes of the functions.

#[cfg(test)]
mod tests;

use super::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto};
use crate::error::{Error, Result};
use prost::Message;
use std::collections::HashMap;

/// How deep calls of functions and graphs inside nodes may nest, counted together.
const DEPTH_MAX: usize = 64;
/// A model may grow to [`GROWTH_MAX`] times its nodes, and [`NODES_FREE`] more: a few functions
/// that call each other twice would otherwise fill any memory.
const GROWTH_MAX: usize = 256;
const NODES_FREE: usize = 10_000;
/// The same limit on bytes: a function with a large constant fills memory in few calls.
const BYTES_GROWTH_MAX: usize = 16;
const BYTES_FREE: usize = 16 << 20;

/// Domain, name and overload of a function.
type Key = (String, String, String);

/// Writes the body of each called function in place of the call, in the graph and the graphs
/// inside its nodes.
///
/// # Errors
/// Functions that call themselves, nest too deeply or grow too large; a function for another
/// version of an operator set than the model's; calls with more inputs or outputs than declared.
pub(crate) fn inline(model: &mut ModelProto) -> Result<()> {
    let functions = std::mem::take(&mut model.functions);
    if functions.is_empty() {
        return Ok(());
    }
    let Some(graph) = &mut model.graph else { return Ok(()) };
    let written = functions.iter().map(|f| f.node.len()).sum::<usize>() + graph.node.len();
    let mut by_key = HashMap::new();
    for function in functions {
        for import in &function.opset_import {
            let same = |known: &&mut super::proto::OperatorSetIdProto| {
                plain(known.domain()) == plain(import.domain())
            };
            match model.opset_import.iter_mut().find(same) {
                None => model.opset_import.push(import.clone()),
                Some(known) if known.version() == import.version() => {}
                Some(known) => {
                    return Err(Error::graph(format!(
                        "function '{}' is written for version {} of operator set '{}', expected \
                         the model's version {}",
                        function.name(),
                        import.version(),
                        import.domain(),
                        known.version()
                    )));
                }
            }
        }
        let key = key(function.domain(), function.name(), function.overload());
        if by_key.insert(key, function).is_some() {
            return Err(Error::graph("a function is defined more than once"));
        }
    }
    let bytes = by_key.values().map(Message::encoded_len).sum::<usize>() + graph.encoded_len();
    let room = Room {
        nodes: written.saturating_mul(GROWTH_MAX).saturating_add(NODES_FREE),
        bytes: bytes.saturating_mul(BYTES_GROWTH_MAX).saturating_add(BYTES_FREE),
    };
    Inliner { functions: &by_key, room, calls: 0 }.graph(graph, 0)
}

fn key(domain: &str, name: &str, overload: &str) -> Key {
    (plain(domain).to_owned(), name.to_owned(), overload.to_owned())
}

/// ONNX's own domain has two spellings.
fn plain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// The nodes and bytes that may still be added.
struct Room {
    /// Nodes. Calls count too, because a function may be empty.
    nodes: usize,
    /// Bytes of nodes, as a file encodes them.
    bytes: usize,
}

impl Room {
    fn node(&mut self) -> Result<()> {
        self.nodes = self.nodes.checked_sub(1).ok_or_else(|| {
            Error::graph(format!(
                "functions make more than {GROWTH_MAX} times the nodes that the file has"
            ))
        })?;
        Ok(())
    }

    fn bytes(&mut self, count: usize) -> Result<()> {
        self.bytes = self.bytes.checked_sub(count).ok_or_else(|| {
            Error::graph(format!(
                "functions make more than {BYTES_GROWTH_MAX} times the bytes that the file has"
            ))
        })?;
        Ok(())
    }
}

struct Inliner<'a> {
    functions: &'a HashMap<Key, FunctionProto>,
    room: Room,
    calls: usize,
}

impl Inliner<'_> {
    fn graph(&mut self, graph: &mut GraphProto, depth: usize) -> Result<()> {
        graph.node = self.nodes(std::mem::take(&mut graph.node), depth)?;
        Ok(())
    }

    fn nodes(&mut self, nodes: Vec<NodeProto>, depth: usize) -> Result<Vec<NodeProto>> {
        let mut out = Vec::new();
        for mut node in nodes {
            self.room.node()?;
            let key = key(node.domain(), node.op_type(), node.overload());
            if let Some(function) = self.functions.get(&key) {
                deeper(depth, function.name())?;
                self.calls += 1;
                let body = instance(function, &node, self.calls, &mut self.room)?;
                out.extend(self.nodes(body, depth + 1)?);
                continue;
            }
            for graph in node.attribute.iter_mut().filter_map(|a| a.g.as_mut()) {
                deeper(depth, graph.name())?;
                self.graph(graph, depth + 1)?;
            }
            out.push(node);
        }
        Ok(out)
    }
}

/// Refuses a call or a graph that nests deeper than [`DEPTH_MAX`].
fn deeper(depth: usize, name: &str) -> Result<()> {
    if depth < DEPTH_MAX {
        return Ok(());
    }
    Err(Error::graph(format!("functions nest more than {DEPTH_MAX} deep at '{name}'")))
}

/// The function's nodes for one call.
fn instance(
    function: &FunctionProto,
    call: &NodeProto,
    number: usize,
    room: &mut Room,
) -> Result<Vec<NodeProto>> {
    // A call walks all declared inputs and outputs, and may make an entry of each.
    let declared = function.input.len().saturating_add(function.output.len());
    room.bytes(declared.saturating_mul(size_of::<(&str, String)>()))?;
    let what =
        [("inputs", &call.input, &function.input), ("outputs", &call.output, &function.output)];
    let mut names: HashMap<&str, String> = HashMap::new();
    for (kind, given, declared) in what {
        if given.len() > declared.len() {
            return Err(Error::graph(format!(
                "node '{}' gives function '{}' {} {kind}, expected at most {}",
                call.name(),
                function.name(),
                given.len(),
                declared.len()
            )));
        }
        for (i, formal) in declared.iter().enumerate() {
            match given.get(i) {
                Some(actual) if !actual.is_empty() || kind == "inputs" => {
                    names.insert(formal, actual.clone());
                }
                None if kind == "inputs" => {
                    names.insert(formal, String::new());
                }
                // An output that the call leaves out is renamed as inner values are.
                _ => {}
            }
        }
    }
    room.bytes(function.node.iter().map(Message::encoded_len).sum())?;
    let prefix = format!("{}#{number}/", function.name());
    let mut scope = Instance { function, call, names, prefix, room };
    let mut nodes = function.node.clone();
    nodes.iter_mut().try_for_each(|node| scope.node(node))?;
    let passed = scope.passed_through();
    scope.room.bytes(passed.iter().map(Message::encoded_len).sum())?;
    nodes.splice(0..0, passed);
    Ok(nodes)
}

/// One call of a function.
struct Instance<'a> {
    function: &'a FunctionProto,
    call: &'a NodeProto,
    /// The caller's names of the function's inputs and outputs.
    names: HashMap<&'a str, String>,
    prefix: String,
    /// Limits the caller's names and values, which may be long and are written many times.
    room: &'a mut Room,
}

impl Instance<'_> {
    /// An `Identity` for each output that is an input: no node of the body makes it.
    fn passed_through(&self) -> Vec<NodeProto> {
        let inputs = self.function.input.iter().enumerate();
        let positions: HashMap<&str, usize> = inputs.map(|(i, name)| (&**name, i)).collect();
        let pairs = self.function.output.iter().zip(&self.call.output);
        let passed = pairs.filter_map(|(formal, actual)| {
            let position = positions.get(&**formal).filter(|_| !actual.is_empty())?;
            Some((formal, actual, *position))
        });
        let node = |(formal, actual, position): (&String, &String, usize)| {
            let source = self.call.input.get(position).cloned();
            NodeProto {
                op_type: Some("Identity".to_owned()),
                name: Some(format!("{}{formal}", self.prefix)),
                input: vec![source.unwrap_or_default()],
                output: vec![actual.clone()],
                ..NodeProto::default()
            }
        };
        passed.map(node).collect()
    }

    fn rename(&mut self, name: &mut String) -> Result<()> {
        if name.is_empty() {
            return Ok(());
        }
        match self.names.get(name.as_str()) {
            Some(actual) => {
                self.room.bytes(actual.len())?;
                name.clone_from(actual);
            }
            None => self.prefix(name)?,
        }
        Ok(())
    }

    /// Makes one of the function's own names unique among the caller's names.
    fn prefix(&mut self, name: &mut String) -> Result<()> {
        self.room.bytes(self.prefix.len())?;
        name.insert_str(0, &self.prefix);
        Ok(())
    }

    fn node(&mut self, node: &mut NodeProto) -> Result<()> {
        let mut values = node.input.iter_mut().chain(&mut node.output);
        values.try_for_each(|name| self.rename(name))?;
        self.prefix(node.name.get_or_insert_default())?;
        for attribute in std::mem::take(&mut node.attribute) {
            node.attribute.extend(self.attribute(attribute)?);
        }
        Ok(())
    }

    /// The attribute. A reference gets the caller's value or the function's default; `None` if
    /// there is neither, so that the operator uses its own default.
    fn attribute(&mut self, mut attribute: AttributeProto) -> Result<Option<AttributeProto>> {
        let refers = attribute.ref_attr_name.take().filter(|name| !name.is_empty());
        if let Some(refers) = refers {
            let mut given = self.call.attribute.iter().chain(&self.function.attribute_proto);
            let Some(value) = given.find(|a| a.name() == refers) else { return Ok(None) };
            self.room.bytes(value.encoded_len())?;
            return Ok(Some(AttributeProto { name: attribute.name, ..value.clone() }));
        }
        if let Some(graph) = attribute.g.as_mut() {
            self.graph(graph)?;
        }
        Ok(Some(attribute))
    }

    fn graph(&mut self, graph: &mut GraphProto) -> Result<()> {
        let values = graph.input.iter_mut().chain(&mut graph.output);
        let named = values.map(|v| v.name.get_or_insert_default());
        let sparse = graph.sparse_initializer.iter_mut().filter_map(|s| s.values.as_mut());
        let stored = graph.initializer.iter_mut().chain(sparse);
        let stored = stored.map(|t| t.name.get_or_insert_default());
        named.chain(stored).try_for_each(|name| self.rename(name))?;
        graph.node.iter_mut().try_for_each(|node| self.node(node))
    }
}
