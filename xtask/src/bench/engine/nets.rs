//! The models that are compared, with what each is given and the goals set for it.

use super::inputs::{Input, below, halves, noise, ones, padded, places};

/// Numbers of images or sentences that run at once.
const BOTH: &[usize] = &[1, 8];
/// Of what runs for one caller alone.
const ALONE: &[usize] = &[1];

/// A model of the zoo.
pub(super) struct Net {
    /// The zoo's name for it.
    pub(super) file: &'static str,
    /// What it is called in tables.
    pub(super) title: &'static str,
    /// Part of the names of its cases.
    pub(super) short: &'static str,
    /// The most of ONNX Runtime's time that ours should take.
    pub(super) goal: Option<f64>,
    /// Whether it is also run in bf16, and the most of OpenVINO's time that this should take.
    pub(super) fast: Option<Option<f64>>,
    /// The ways in which it is run; it is loaded for the first.
    pub(super) uses: &'static [Use],
}

/// A way to run a model.
pub(super) struct Use {
    /// What tables add to the model's title, and names of cases to its short one; nothing for the
    /// only way.
    pub(super) title: &'static str,
    pub(super) short: &'static str,
    pub(super) batches: &'static [usize],
    /// What it is given, by the batch.
    pub(super) inputs: fn(usize) -> Vec<Input>,
}

/// Every model.
pub(super) const NETS: [Net; 24] = [
    net("resnet50", "ResNet-50, f32", "resnet50-f32", IMAGES).goal(0.8).fast(Some(1.)),
    net("mobilenetv2", "MobileNetV2, f32", "mobilenetv2-f32", IMAGES).goal(0.9).fast(None),
    net("bert", "BERT-base, 128 tokens, f32", "bert-f32", SENTENCES).goal(0.9).fast(None),
    net("resnet50_qdq", "ResNet-50, QDQ int8", "resnet50-int8", IMAGES).goal(0.95),
    net("mobilenetv2_qdq", "MobileNetV2, QDQ int8", "mobilenetv2-int8", IMAGES).goal(1.),
    net("bert_int8", "BERT-base, 128 tokens, dynamic int8", "bert-int8", SENTENCES).goal(0.9),
    net("resnext", "ResNeXt-50 32×4d, f32", "resnext-f32", IMAGES),
    net("shufflenet", "ShuffleNetV2, f32", "shufflenet-f32", IMAGES),
    net("mobilenetv3", "MobileNetV3-Large, f32", "mobilenetv3-f32", IMAGES),
    net("mobilenetv3_qdq", "MobileNetV3-Large, QDQ int8", "mobilenetv3-int8", IMAGES),
    net("efficientnet", "EfficientNet-B0, f32", "efficientnet-f32", IMAGES),
    net("efficientnet_qdq", "EfficientNet-B0, QDQ int8", "efficientnet-int8", IMAGES),
    net("convnext", "ConvNeXt-T, f32", "convnext-f32", IMAGES),
    net("swin", "Swin-T, f32", "swin-f32", IMAGES),
    net("segformer", "SegFormer-B0, 512×512, f32", "segformer-f32", PIXELS),
    net("deeplab", "DeepLabV3 on ResNet-50, 257×257, f32", "deeplab-f32", SCENES),
    net("ssd", "SSDLite on MobileNetV2, 300×300, f32", "ssd-f32", DETECTED),
    net("unet", "diffusion UNet, 32×32, f32", "unet-f32", LATENTS),
    net("lstm", "LSTM, 128 steps, f32", "lstm-f32", STEPS),
    net("gru", "GRU, 128 steps, f32", "gru-f32", STEPS),
    net("decoder", "GPT-2, f32", "gpt2-f32", GPT2),
    net("llama", "SmolLM2-135M, f32", "llama-f32", LLAMA),
    net("whisper_encoder", "Whisper tiny, encoder, f32", "whisper-encoder-f32", SOUND),
    net("whisper_decoder", "Whisper tiny, decoder, f32", "whisper-decoder-f32", SPEECH),
];

const IMAGES: &[Use] = &[only(BOTH, |batch| image("input", batch, 224))];
const SCENES: &[Use] = &[only(BOTH, |batch| image("input", batch, 257))];
const PIXELS: &[Use] = &[only(BOTH, |batch| image("pixel_values", batch, 512))];
const DETECTED: &[Use] = &[only(ALONE, |batch| image("input", batch, 300))];
const STEPS: &[Use] = &[only(BOTH, |batch| vec![noise("input", [batch, 128, 256])])];
const SOUND: &[Use] = &[only(ALONE, |batch| vec![noise("input_features", [batch, 80, 3000])])];

const SENTENCES: &[Use] = &[only(BOTH, |batch| {
    let dims = [batch, 128];
    vec![
        below("input_ids", dims, 30_000),
        padded("attention_mask", dims),
        halves("token_type_ids", dims),
    ]
})];

const LATENTS: &[Use] = &[only(BOTH, |batch| {
    vec![
        noise("sample", [batch, 4, 32, 32]),
        below("timestep", [1], 1000),
        noise("encoder_hidden_states", [batch, 77, 768]),
    ]
})];

const GPT2: &[Use] = &[
    text("first token of 32", "prompt32", |_| gpt2(32, 0)),
    text("one token after 1", "past1", |_| gpt2(1, 1)),
    text("one token after 512", "past512", |_| gpt2(1, 512)),
];

const LLAMA: &[Use] = &[
    text("first token of 32", "prompt32", |_| llama(32, 0)),
    text("one token after 1", "past1", |_| llama(1, 1)),
    text("one token after 512", "past512", |_| llama(1, 512)),
];

/// A token after 64 others and half a minute of sound.
const SPEECH: &[Use] = &[only(ALONE, |_| {
    let mut inputs = vec![below("input_ids", [1, 1], 51_865)];
    for (half, length) in [("decoder", 64), ("encoder", 1500)] {
        inputs.extend(caches(4, Some(half), [1, 6, length, 64]));
    }
    inputs
})];

const fn net(
    file: &'static str,
    title: &'static str,
    short: &'static str,
    uses: &'static [Use],
) -> Net {
    Net { file, title, short, goal: None, fast: None, uses }
}

/// The only way to run a model.
const fn only(batches: &'static [usize], inputs: fn(usize) -> Vec<Input>) -> Use {
    Use { title: "", short: "", batches, inputs }
}

/// One of the ways to run a decoder.
const fn text(title: &'static str, short: &'static str, inputs: fn(usize) -> Vec<Input>) -> Use {
    Use { title, short, batches: ALONE, inputs }
}

impl Net {
    const fn goal(self, goal: f64) -> Self {
        Self { goal: Some(goal), ..self }
    }

    const fn fast(self, goal: Option<f64>) -> Self {
        Self { fast: Some(goal), ..self }
    }

    /// The name under which its loading is measured.
    pub(super) fn load_name(&self) -> String {
        format!("{}-load", self.short)
    }
}

/// Square images in colour.
fn image(name: &str, batch: usize, side: usize) -> Vec<Input> {
    vec![noise(name, [batch, 3, side, side])]
}

/// So many new tokens after `past` others.
fn gpt2(new: usize, past: usize) -> Vec<Input> {
    let mut inputs = vec![below("input_ids", [1, new], 50_257)];
    inputs.extend(caches(12, None, [1, 12, past, 64]));
    inputs
}

/// So many new tokens after `past` others.
fn llama(new: usize, past: usize) -> Vec<Input> {
    let mut inputs = vec![
        below("input_ids", [1, new], 49_152),
        ones("attention_mask", [1, past + new]),
        places("position_ids", [1, new], past),
    ];
    inputs.extend(caches(30, None, [1, 3, past, 64]));
    inputs
}

/// Keys and values of each layer; `half` is that of a model of two to which they belong.
fn caches(
    layers: usize,
    half: Option<&'static str>,
    dims: [usize; 4],
) -> impl Iterator<Item = Input> {
    let half = half.map_or(String::new(), |half| format!("{half}."));
    (0..layers).flat_map(move |layer| {
        ["key", "value"].map(|part| noise(format!("past_key_values.{layer}.{half}{part}"), dims))
    })
}
