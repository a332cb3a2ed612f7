//! Trains the digits model: `train_digits DATA.csv.gz OUT.onnx [BUNDLED.onnx]`.
//!
//! A session runs the written file on the test part. With a bundled model, both accuracies are
//! compared.

use lgp_inference::{Model, Session, SessionOptions};
use lgp_memory::TensorView;
use lgp_research::{DigitSet, DigitsConfig, SIDE, accuracy, train_digits};
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::time::Instant;

/// The least accuracy on the test part.
const ACCURACY_MIN: f64 = 0.975;
/// The most test images by which the accuracies may differ. Machines add in different orders, so
/// after thousands of steps two models may disagree on images between two digits.
const IMAGES_APART_MAX: f64 = 3.0;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (data, out, bundled) = match arguments.as_slice() {
        [data, out] => (data, out, None),
        [data, out, bundled] => (data, out, Some(bundled)),
        _ => return Err("usage: train_digits DATA.csv.gz OUT.onnx [BUNDLED.onnx]".into()),
    };
    let (train, test) = DigitSet::read_split(BufReader::new(File::open(data)?))?;
    let started = Instant::now();
    let network = train_digits(&train, &DigitsConfig::default(), |report| {
        if report.epoch % 10 == 0 {
            eprintln!("epoch {}: loss {:.4}", report.epoch, report.loss);
        }
    })?;
    eprintln!("trained on {} images in {:.1} s", train.len(), started.elapsed().as_secs_f64());
    std::fs::write(out, network.to_model()?.to_onnx()?)?;

    let reached = measure(out, &test)?;
    println!("{out}: {:.2} % of {} test images", 100.0 * reached, test.len());
    if reached < ACCURACY_MIN {
        return Err(format!("accuracy {reached:.4}, expected at least {ACCURACY_MIN}").into());
    }
    if let Some(bundled) = bundled {
        let before = measure(bundled, &test)?;
        println!("{bundled}: {:.2} %", 100.0 * before);
        let apart = (reached - before).abs() * test.len() as f64;
        if apart > IMAGES_APART_MAX + 0.5 {
            return Err(
                format!("{apart:.0} images apart, at most {IMAGES_APART_MAX} wanted").into()
            );
        }
    }
    Ok(())
}

/// The accuracy of a model file on `test`.
fn measure(path: &str, test: &DigitSet) -> Result<f64, Box<dyn Error>> {
    let session = Session::new(&Model::load(path)?, SessionOptions::default())?;
    let images = TensorView::from_slice([test.len(), 1, SIDE, SIDE], &test.pixels)?;
    let outputs = session.run(&[("image", images)])?;
    let logits = outputs.first().ok_or("the model has no output")?;
    Ok(accuracy(logits.tensor.as_slice()?, &test.labels)?)
}
