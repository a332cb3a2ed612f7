//! The accuracy that 8-bit products cost, on the bundled digits.

use lgp_inference::{Model, Precision, Session, SessionOptions};
use lgp_memory::Tensor;
use std::io::Read;

const MODEL: &[u8] = include_bytes!("../../apps/cli/assets/digits/digits.onnx");
const IMAGES: &[u8] = include_bytes!("../../apps/cli/assets/digits/digits.csv.gz");

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The images that the model was not trained on, and their digits.
fn test_part() -> Result<(Tensor, Vec<usize>)> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(IMAGES).read_to_string(&mut text)?;
    let (mut pixels, mut digits) = (Vec::new(), Vec::new());
    for row in text.lines().step_by(5) {
        let values = row.split(',').map(str::parse).collect::<std::result::Result<Vec<u8>, _>>()?;
        let (digit, image) = values.split_last().ok_or("an empty row")?;
        pixels.extend(image.iter().map(|&p| f32::from(p)));
        digits.push(usize::from(*digit));
    }
    Ok((Tensor::from_slice([digits.len(), 1, 8, 8], &pixels)?, digits))
}

fn right(precision: Precision, images: &Tensor, digits: &[usize]) -> Result<usize> {
    let options = SessionOptions { precision, ..SessionOptions::with_threads(1) };
    let session = Session::new(&Model::from_bytes(MODEL, None)?, options)?;
    let out = session.run(&[("image", images.view())])?;
    let answers = out[0].tensor.as_slice::<f32>()?.chunks_exact(10).map(|logits| {
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.map(|(digit, _)| digit)
    });
    Ok(answers.zip(digits).filter(|(answer, digit)| *answer == Some(**digit)).count())
}

#[test]
fn eight_bits_read_the_digits_nearly_as_well() -> Result<()> {
    let (images, digits) = test_part()?;
    let exact = right(Precision::Exact, &images, &digits)?;
    let int8 = right(Precision::Int8, &images, &digits)?;
    println!("of {} digits: exact {exact}, int8 {int8}", digits.len());
    assert!(exact * 100 >= digits.len() * 95, "{exact} of {}", digits.len());
    assert!(int8 + 4 >= exact, "int8 reads {int8}, exact {exact}");
    Ok(())
}
