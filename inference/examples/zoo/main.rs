//! Writes the reference networks, with seeded random weights, as ONNX files into a folder: those
//! named, or else all small ones; with `--tiny` every family in a form for tests.
//! `cargo run --release -p lgp-inference --example zoo -- FOLDER [--tiny | NAME…]`.

mod bert;
mod blocks;
mod convnext;
mod decoder;
mod deeplab;
mod dynamic;
mod efficientnet;
mod layers;
mod llama;
mod mobile;
mod mobilenetv3;
mod nets;
mod qdq;
mod recurrent;
mod resnext;
mod rewrite;
mod segformer;
mod shufflenet;
mod ssd;
mod swin;
#[cfg(test)]
mod tests;
mod transformer;
mod unet;
mod whisper;

use nets::{Net, Size};
use std::path::PathBuf;

/// Networks that are written when asked for: large, or quantised.
const MORE: [(&str, Net); 4] = [
    ("resnet50_qdq", |size| qdq::quantize(&net("resnet50")(size)?, "resnet50_qdq")),
    ("mobilenetv2_qdq", |size| qdq::quantize(&net("mobilenetv2")(size)?, "mobilenetv2_qdq")),
    ("bert", bert::bert),
    ("bert_int8", |size| dynamic::quantize(&bert::bert(size)?, "bert_int8")),
];

/// Families of networks, each with a file of its own: written in full when asked for.
const FAMILIES: [(&str, Net); 18] = [
    ("convnext", convnext::convnext),
    ("decoder", decoder::decoder),
    ("deeplab", deeplab::deeplab),
    ("efficientnet", efficientnet::efficientnet),
    ("efficientnet_qdq", |size| {
        qdq::quantize(&efficientnet::efficientnet(size)?, "efficientnet_qdq")
    }),
    ("gru", recurrent::gru),
    ("llama", llama::llama),
    ("lstm", recurrent::lstm),
    ("mobilenetv3", mobilenetv3::mobilenetv3),
    ("mobilenetv3_qdq", |size| qdq::quantize(&mobilenetv3::mobilenetv3(size)?, "mobilenetv3_qdq")),
    ("resnext", resnext::resnext),
    ("segformer", segformer::segformer),
    ("shufflenet", shufflenet::shufflenet),
    ("ssd", ssd::ssd),
    ("swin", swin::swin),
    ("unet", unet::unet),
    ("whisper_decoder", whisper::decoder),
    ("whisper_encoder", whisper::encoder),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("usage: zoo FOLDER [--tiny | NAME…]")?);
    let mut names: Vec<String> = args.collect();
    let size = if names == ["--tiny"] { Size::Tiny } else { Size::Full };
    if size == Size::Tiny {
        names = FAMILIES.iter().map(|(name, _)| (*name).to_owned()).collect();
    } else if names.is_empty() {
        names =
            nets::ALL.iter().chain(&blocks::BLOCKS).map(|(name, _)| (*name).to_owned()).collect();
    }
    std::fs::create_dir_all(&folder)?;
    for name in names {
        let known = || nets::ALL.iter().chain(&blocks::BLOCKS).chain(&MORE).chain(&FAMILIES);
        let Some((_, net)) = known().find(|(other, _)| *other == name) else {
            let known: Vec<&str> = known().map(|(name, _)| *name).collect();
            return Err(format!("no network '{name}', expected {}", known.join(", ")).into());
        };
        let path = folder.join(format!("{name}.onnx"));
        std::fs::write(&path, net(size)?.to_onnx()?)?;
        println!("{}", path.display());
    }
    Ok(())
}

fn net(name: &str) -> Net {
    let (_, net) = nets::ALL.iter().find(|(other, _)| *other == name).expect("a name of the table");
    *net
}
