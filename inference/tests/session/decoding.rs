//! A decoder, run by run.

use crate::{decoder, nets};
use lgp_inference::{Result, Session, SessionOptions};
use lgp_memory::{DType, NamedTensor, Tensor};

/// One run of the decoder over `tokens` after `past`: its last logits, and the new past.
fn read(
    session: &Session,
    tokens: &[i64],
    past: Vec<NamedTensor>,
) -> Result<(Vec<f32>, Vec<NamedTensor>)> {
    let ids = Tensor::from_slice([1, tokens.len()], tokens)?;
    let mut views = vec![("input_ids", ids.view())];
    views.extend(past.iter().map(|x| (x.name.as_str(), x.tensor.view())));
    let mut outputs = session.run(&views)?;
    let cache = outputs.split_off(1).into_iter().map(|x| {
        let name = x.name.replace("present", "past_key_values");
        NamedTensor { name, ..x }
    });
    let logits = outputs[0].tensor.as_slice::<f32>()?;
    let vocabulary = logits.len() / tokens.len();
    Ok((logits[logits.len() - vocabulary..].to_vec(), cache.collect()))
}

#[test]
fn a_decoder_goes_on_where_it_was() -> Result<()> {
    let session = Session::new(&decoder::decoder(nets::Size::Tiny)?, SessionOptions::default())?;
    let nothing = || -> Result<Vec<NamedTensor>> {
        let caches = session.inputs().iter().skip(1);
        caches
            .map(|x| Ok(NamedTensor::new(&x.name, Tensor::zeros(DType::F32, [1, 4, 0, 16])?)))
            .collect()
    };
    let tokens = [7, 90, 3, 3, 41, 12];
    let (whole, _) = read(&session, &tokens, nothing()?)?;
    for cut in 1..tokens.len() {
        let (_, past) = read(&session, &tokens[..cut], nothing()?)?;
        let (pieces, _) = read(&session, &tokens[cut..], past)?;
        let off = whole.iter().zip(&pieces).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(off <= 1e-4, "{off} after {cut}");
    }
    let (other, _) = read(&session, &[7, 91, 3, 3, 41, 12], nothing()?)?;
    let off = whole.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(off > 1e-3, "an earlier token makes no difference");
    Ok(())
}
