//! Writes the reference networks, with seeded random weights, as ONNX files into a folder: those
//! named, or else all small ones.
//! `cargo run --release -p lgp-inference --example zoo -- FOLDER [NAME…]`.

mod bert;
mod blocks;
mod decoder;
mod dynamic;
mod nets;
mod qdq;
mod rewrite;
mod transformer;

use nets::{Net, Size};
use std::path::PathBuf;

/// Networks that are written when asked for: large, or quantised.
const MORE: [(&str, Net); 5] = [
    ("resnet50_qdq", |size| qdq::quantize(&net("resnet50")(size)?, "resnet50_qdq")),
    ("mobilenetv2_qdq", |size| qdq::quantize(&net("mobilenetv2")(size)?, "mobilenetv2_qdq")),
    ("bert", bert::bert),
    ("decoder", decoder::decoder),
    ("bert_int8", |size| dynamic::quantize(&bert::bert(size)?, "bert_int8")),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("usage: zoo FOLDER [NAME…]")?);
    let mut names: Vec<String> = args.collect();
    if names.is_empty() {
        names =
            nets::ALL.iter().chain(&blocks::BLOCKS).map(|(name, _)| (*name).to_owned()).collect();
    }
    std::fs::create_dir_all(&folder)?;
    for name in names {
        let known = || nets::ALL.iter().chain(&blocks::BLOCKS).chain(&MORE);
        let Some((_, net)) = known().find(|(other, _)| *other == name) else {
            let known: Vec<&str> = known().map(|(name, _)| *name).collect();
            return Err(format!("no network '{name}', expected {}", known.join(", ")).into());
        };
        let path = folder.join(format!("{name}.onnx"));
        std::fs::write(&path, net(Size::Full)?.to_onnx()?)?;
        println!("{}", path.display());
    }
    Ok(())
}

fn net(name: &str) -> Net {
    let (_, net) = nets::ALL.iter().find(|(other, _)| *other == name).expect("a name of the table");
    *net
}
