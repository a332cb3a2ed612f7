//! Trees as lists of nodes that are named by a tree and a number, as versions before 5 have them.

use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{Cast, TreeBranch, TreeChild, TreeSplit, Trees};
use lgp_compute::{Context, Op};
use lgp_memory::DType;
use std::collections::HashMap;

/// The weights that leaves add: each entry has a tree, a node, a target and a weight.
pub(super) struct Leaves {
    pub(super) trees: Vec<i64>,
    pub(super) nodes: Vec<i64>,
    pub(super) targets: Vec<usize>,
    pub(super) weights: Vec<f64>,
}

/// Numbers from a list of floats or from a tensor; empty when neither is there.
pub(super) fn numbers(
    cx: &mut NodeCx<'_>,
    list: &'static str,
    tensor: &'static str,
) -> Result<Vec<f64>, Refusal> {
    if let Some(tensor) = cx.tensor(tensor)? {
        let wide = Cast { to: DType::F64 }.run(&Context::new(1), &[Some(tensor.view())]);
        let wide = wide.map_err(|e| e.to_string())?;
        let wide = wide.first().ok_or("a tensor is empty")?;
        return Ok(wide.as_slice::<f64>().map_err(|e| e.to_string())?.to_vec());
    }
    if list.is_empty() {
        return Ok(Vec::new());
    }
    Ok(cx.floats(list)?.unwrap_or_default().into_iter().map(f64::from).collect())
}

/// Reads the attributes `nodes_…`. A tree's root is its node that is no child.
pub(super) fn from_node_lists(cx: &mut NodeCx<'_>, leaves: &Leaves) -> Result<Trees, Refusal> {
    cx.ignore(&["nodes_hitrates", "nodes_hitrates_as_tensor"]);
    let lists = Lists {
        trees: cx.ints("nodes_treeids")?.unwrap_or_default(),
        ids: cx.ints("nodes_nodeids")?.unwrap_or_default(),
        features: cx.ints("nodes_featureids")?.unwrap_or_default(),
        modes: cx.texts("nodes_modes")?,
        values: numbers(cx, "nodes_values", "nodes_values_as_tensor")?,
        yes: cx.ints("nodes_truenodeids")?.unwrap_or_default(),
        no: cx.ints("nodes_falsenodeids")?.unwrap_or_default(),
        missing: cx.ints("nodes_missing_value_tracks_true")?.unwrap_or_default(),
    };
    lists.check()?;
    let (index, children) = lists.number()?;
    let mut trees = Trees { leaves: lists.leaves(leaves, &children)?, ..Trees::default() };
    let mut is_child = vec![false; lists.ids.len()];
    for i in 0..lists.ids.len() {
        if matches!(children[i], TreeChild::Leaf(_)) {
            continue;
        }
        let mut child = |id: i64| {
            let tree = lists.trees[i];
            let at = *index.get(&(tree, id)).ok_or_else(|| {
                format!(
                    "node {} of tree {tree} leads to node {id}, which is not there",
                    lists.ids[i]
                )
            })?;
            is_child[at] = true;
            Ok::<_, Refusal>(children[at])
        };
        let (yes, no) = (child(lists.yes[i])?, child(lists.no[i])?);
        trees.splits.push(lists.split(i, yes, no)?);
    }
    trees.roots = (0..is_child.len()).filter(|&i| !is_child[i]).map(|i| children[i]).collect();
    // A tree without a root is a circle of nodes, which the ensemble would never reach.
    let rooted: std::collections::HashSet<i64> =
        (0..is_child.len()).filter(|&i| !is_child[i]).map(|i| lists.trees[i]).collect();
    match lists.trees.iter().find(|tree| !rooted.contains(tree)) {
        Some(tree) => Err(format!("tree {tree} has no root")),
        None if rooted.len() != trees.roots.len() => Err("a tree has several roots".into()),
        None => Ok(trees),
    }
}

struct Lists<'a> {
    trees: Vec<i64>,
    ids: Vec<i64>,
    features: Vec<i64>,
    modes: &'a [String],
    values: Vec<f64>,
    yes: Vec<i64>,
    no: Vec<i64>,
    missing: Vec<i64>,
}

impl Lists<'_> {
    fn check(&self) -> Result<(), Refusal> {
        let count = self.ids.len();
        for (name, given) in [
            ("nodes_treeids", self.trees.len()),
            ("nodes_featureids", self.features.len()),
            ("nodes_modes", self.modes.len()),
            ("nodes_values", self.values.len()),
            ("nodes_truenodeids", self.yes.len()),
            ("nodes_falsenodeids", self.no.len()),
        ] {
            if given != count {
                return Err(format!("attribute '{name}' has {given} entries, expected {count}"));
            }
        }
        if !self.missing.is_empty() && self.missing.len() != count {
            let given = self.missing.len();
            return Err(format!(
                "attribute 'nodes_missing_value_tracks_true' has {given} entries, expected {count}"
            ));
        }
        Ok(())
    }

    /// The position in the lists of each node by tree and number, and the split or leaf it becomes.
    #[allow(clippy::type_complexity, reason = "said by the names of its parts")]
    fn number(&self) -> Result<(HashMap<(i64, i64), usize>, Vec<TreeChild>), Refusal> {
        let mut index = HashMap::with_capacity(self.ids.len());
        let mut children = Vec::with_capacity(self.ids.len());
        let (mut splits, mut leaves) = (0, 0);
        for (i, (&tree, &id)) in self.trees.iter().zip(&self.ids).enumerate() {
            if index.insert((tree, id), i).is_some() {
                return Err(format!("node {id} of tree {tree} is there twice"));
            }
            let count = if self.modes[i] == "LEAF" { &mut leaves } else { &mut splits };
            children.push(if self.modes[i] == "LEAF" {
                TreeChild::Leaf(*count)
            } else {
                TreeChild::Split(*count)
            });
            *count += 1;
        }
        Ok((index, children))
    }

    /// The targets and weights of each leaf. Weights of inner nodes are left out.
    fn leaves(
        &self,
        given: &Leaves,
        children: &[TreeChild],
    ) -> Result<Vec<Vec<(usize, f64)>>, Refusal> {
        let count = given.targets.len();
        if [given.trees.len(), given.nodes.len(), given.weights.len()] != [count; 3] {
            return Err(format!("the lists of leaves differ in length from the {count} targets"));
        }
        let mut of_node: HashMap<(i64, i64), Vec<(usize, f64)>> = HashMap::new();
        for i in 0..count {
            let node = (given.trees[i], given.nodes[i]);
            of_node.entry(node).or_default().push((given.targets[i], given.weights[i]));
        }
        let leaves = children.iter().zip(self.trees.iter().zip(&self.ids));
        Ok(leaves
            .filter(|(child, _)| matches!(child, TreeChild::Leaf(_)))
            .map(|(_, (&tree, &id))| of_node.remove(&(tree, id)).unwrap_or_default())
            .collect())
    }

    fn split(&self, i: usize, yes: TreeChild, no: TreeChild) -> Result<TreeSplit, Refusal> {
        let t = self.values[i];
        let branch = match self.modes[i].as_str() {
            "BRANCH_LEQ" => TreeBranch::LessOrEqual(t),
            "BRANCH_LT" => TreeBranch::Less(t),
            "BRANCH_GTE" => TreeBranch::GreaterOrEqual(t),
            "BRANCH_GT" => TreeBranch::Greater(t),
            "BRANCH_EQ" => TreeBranch::Equal(t),
            "BRANCH_NEQ" => TreeBranch::NotEqual(t),
            other => return Err(format!("mode '{other}' of node {i} is not known")),
        };
        let feature = usize::try_from(self.features[i])
            .map_err(|_| format!("feature {} of node {i}, expected 0 or more", self.features[i]))?;
        let missing_is_yes = self.missing.get(i).is_some_and(|&m| m != 0);
        Ok(TreeSplit { feature, branch, missing_is_yes, yes, no })
    }
}
