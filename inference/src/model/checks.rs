//! Checks the names of a model or of a graph inside a node, and puts the nodes in running order.

use super::Model;
use super::node::{ModelNode, Subgraph};
use crate::error::{Error, Result};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

impl Model {
    /// Checks the names and puts the nodes in running order.
    pub(crate) fn validated(mut self) -> Result<Self> {
        let producers = self.check_names()?;
        self.nodes = in_running_order(self.nodes, &producers)?;
        Ok(self)
    }

    /// Every name is defined once and every used name is defined. Returns the node of each value.
    fn check_names(&self) -> Result<HashMap<String, usize>> {
        let inputs = self.inputs.iter().map(|v| ("input", v.name.as_str()));
        let stored = self.initializers.keys().map(|name| ("initializer", name.as_str()));
        let Defined { names, producers } = Defined::new(inputs.chain(stored), &self.nodes)?;
        for node in &self.nodes {
            if let Some(unknown) = node.reads().find(|name| !names.contains(name)) {
                return Err(Error::graph(format!(
                    "node '{}' ({}) reads '{unknown}', which nothing defines",
                    node.name, node.op_type
                )));
            }
        }
        self.check_outputs(&names)?;
        Ok(producers)
    }

    fn check_outputs(&self, defined: &HashSet<&str>) -> Result<()> {
        if self.outputs.is_empty() {
            return Err(Error::graph("the model has no outputs"));
        }
        let mut seen = HashSet::new();
        for output in &self.outputs {
            if !defined.contains(output.name.as_str()) {
                return Err(Error::graph(format!(
                    "model output '{}' is defined by no node",
                    output.name
                )));
            }
            if !seen.insert(&output.name) {
                return Err(Error::graph(format!(
                    "model output '{}' is declared more than once",
                    output.name
                )));
            }
        }
        Ok(())
    }
}

impl Subgraph {
    /// Checks the names and puts the nodes in running order.
    pub(crate) fn validated(mut self) -> Result<Self> {
        let given = self.inputs.iter().chain(self.initializers.keys());
        let defined = Defined::new(given.map(|name| ("input", name.as_str())), &self.nodes)?;
        let read = self.nodes.iter().flat_map(ModelNode::reads);
        let read = read.chain(self.outputs.iter().map(String::as_str));
        let free: BTreeSet<&str> = read.filter(|name| !defined.names.contains(name)).collect();
        self.captures = free.into_iter().map(str::to_owned).collect();
        let producers = defined.producers;
        self.nodes = in_running_order(self.nodes, &producers)?;
        Ok(self)
    }
}

/// The names that a graph defines.
struct Defined<'a> {
    names: HashSet<&'a str>,
    /// The index of the node that makes each value.
    producers: HashMap<String, usize>,
}

impl<'a> Defined<'a> {
    fn new(
        given: impl Iterator<Item = (&'static str, &'a str)>,
        nodes: &'a [ModelNode],
    ) -> Result<Self> {
        let mut names: HashSet<&str> = HashSet::new();
        for (what, name) in given {
            if name.is_empty() {
                return Err(Error::graph(format!("an {what} has no name")));
            }
            if !names.insert(name) {
                return Err(Error::graph(format!("value '{name}' is defined more than once")));
            }
        }
        let mut producers = HashMap::new();
        for (index, node) in nodes.iter().enumerate() {
            for output in node.outputs.iter().filter(|o| !o.is_empty()) {
                if !names.insert(output) {
                    return Err(Error::graph(format!(
                        "value '{output}', an output of node '{}', is defined more than once",
                        node.name
                    )));
                }
                producers.insert(output.clone(), index);
            }
        }
        Ok(Self { names, producers })
    }
}

/// Kahn's algorithm; nodes that are ready at the same time keep the file's order.
fn in_running_order(
    nodes: Vec<ModelNode>,
    producers: &HashMap<String, usize>,
) -> Result<Vec<ModelNode>> {
    let mut waiting = vec![0usize; nodes.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        for &producer in node.reads().filter_map(|name| producers.get(name)) {
            waiting[index] += 1;
            readers[producer].push(index);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..nodes.len()).filter(|&i| waiting[i] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &reader in &readers[index] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if order.len() < nodes.len() {
        let stuck =
            nodes.iter().zip(&waiting).filter(|(_, w)| **w > 0).map(|(n, _)| n.name.clone());
        return Err(Error::Cycle { nodes: stuck.collect() });
    }
    let mut slots: Vec<Option<ModelNode>> = nodes.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| slots[i].take()).collect())
}
