//! Writes the kernels that devices may be given, as compilers get them: `kernels FOLDER MODEL.onnx[@BATCH]…`.
//! `FOLDER/NAME.cl`, `NAME.cu` and, without a device's prelude, `NAME.k` are those that the models launch, and those of one case after the
//! other of every operator that has kernels; `variants.tsv` tells of each what `xtask/src/kernels.rs`
//! reads.

#[allow(dead_code, reason = "the tests run the cases, this lists what they launch")]
#[path = "../../compute/tests/device/cases/mod.rs"]
mod cases;

use lgp_compute::device::{Call, Kernel};
use lgp_hal::{BackendKind, with_prelude};
use lgp_inference::{Model, recipes};
use lgp_memory::{Dim, Shape};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Lengths that a model leaves open: text is that long, and all else one, or the batch that is asked for.
const SEQUENCE: usize = 128;

/// Launches of one kernel, by network, operations, bytes and work-groups.
type Launches = BTreeMap<(String, u64, u64, usize), usize>;

/// Kernels in the order in which they came, with the name of their first user.
#[derive(Default)]
struct Variants {
    order: Vec<(Kernel, String)>,
    launches: HashMap<Kernel, Launches>,
}

impl Variants {
    fn add(&mut self, call: &Call, user: &str, network: Option<&str>) {
        let launches = self.launches.entry(call.kernel.clone()).or_insert_with(|| {
            self.order.push((call.kernel.clone(), user.to_owned()));
            Launches::new()
        });
        if let Some(network) = network {
            let groups = call.groups.iter().product();
            *launches.entry((network.to_owned(), call.flops, call.bytes, groups)).or_default() += 1;
        }
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let networks = |kernel: &Kernel| &self.launches[kernel];
        // What a network launches in one variant its users launch in others.
        let launched = self.order.iter().filter(|(kernel, _)| !networks(kernel).is_empty());
        let hot: HashSet<&str> = launched.map(|(kernel, _)| kernel.name()).collect();
        let mut table = "name\tkernel\tgroup\thot\tlaunches\n".to_owned();
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for (kernel, user) in &self.order {
            let entry = kernel.name();
            let number = numbers.entry(entry).or_default();
            *number += 1;
            let name = format!("{entry}_{number}_{}", file_name(user));
            for (extension, backend) in [("cl", BackendKind::OpenCl), ("cu", BackendKind::Cuda)] {
                let source = with_prelude(backend, &kernel.source());
                std::fs::write(folder.join(format!("{name}.{extension}")), source)?;
            }
            std::fs::write(folder.join(format!("{name}.k")), kernel.source())?;
            let launches =
                networks(kernel).iter().map(|((network, flops, bytes, groups), times)| {
                    format!("{network}:{times}:{flops}:{bytes}:{groups}")
                });
            let launches: Vec<String> = launches.collect();
            let (group, hot) = (kernel.group().iter().product::<usize>(), hot.contains(entry));
            let launches = launches.join(",");
            table += &format!("{name}\t{entry}\t{group}\t{hot}\t{launches}\n");
        }
        Ok(std::fs::write(folder.join("variants.tsv"), table)?)
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or("usage: kernels FOLDER MODEL.onnx[@BATCH]…")?;
    let mut variants = Variants::default();
    for path in args {
        let (path, batch) = path.rsplit_once('@').unwrap_or((&path, "1"));
        network(Path::new(path), batch.parse()?, &mut variants)?;
    }
    for case in cases::all() {
        let recipes = case.recipes().map_err(|why| format!("{}: {why}", case.name))?;
        let first = recipes.first().ok_or_else(|| format!("{}: no recipe", case.name))?;
        first.calls().iter().for_each(|call| variants.add(call, &case.name, None));
    }
    std::fs::create_dir_all(&folder)?;
    variants.write(Path::new(&folder))
}

fn network(path: &Path, batch: usize, variants: &mut Variants) -> Result<()> {
    let model = Model::load(path)?;
    let size = |dim: &Dim| match dim {
        Dim::Known(size) => *size,
        Dim::Symbol(name) if name.contains("seq") => SEQUENCE,
        _ => batch,
    };
    let mut shapes: Vec<(&str, Shape)> = Vec::new();
    for spec in model.inputs() {
        let dims = spec.ty.shape.as_ref().ok_or_else(|| format!("{} has no shape", spec.name))?;
        let dims: Vec<usize> = dims.0.iter().map(size).collect();
        shapes.push((&spec.name, dims.into()));
    }
    let stem = path.file_stem().ok_or("a model has a file name")?.to_string_lossy();
    let first = shapes.first().map_or(&[][..], |(_, shape)| shape);
    let dims: Vec<String> = first.iter().map(usize::to_string).collect();
    let network = format!("{stem} {}", dims.join("x"));
    for node in recipes(&model, &shapes)? {
        for (i, recipe) in node.recipes.iter().enumerate() {
            // The others are what tuning may choose instead.
            let network = (i == 0).then_some(&*network);
            for call in recipe.calls() {
                variants.add(call, &format!("{stem} {}", node.name), network);
            }
        }
    }
    Ok(())
}

/// The words of a name, as a file name.
fn file_name(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("_");
    name.chars().take(48).collect()
}
