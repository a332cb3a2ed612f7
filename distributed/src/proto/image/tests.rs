//! Images survive their bytes, and bytes that are no image are refused.

use super::*;
use crate::proto::message::TensorBlob;
use crate::task::{Backoff, TaskErrorKind};
use lgp_memory::Tensor;

fn image() -> Image {
    let model = ModelRef { name: "m".into(), version: 2, sha256: "ab".into() };
    let input = Tensor::from_slice([2, 2], &[1f32, 2., 3., 4.]).expect("small");
    let mut spec = TaskSpec::new(model, vec![NamedTensor::new("x", input)]);
    spec.durable = true;
    spec.idempotency_key = Some("k".into());
    spec.deadline = Some(Duration::from_secs(5));
    spec.depends_on = vec![TaskId { epoch: 1, seq: 2 }];
    Image {
        id: TaskId { epoch: 7, seq: 9 },
        submitted: Duration::from_millis(1234),
        spec: Arc::new(spec),
        digest: [3; 32],
        end: None,
        apart: None,
        gone: false,
    }
}

/// An image whose outputs are kept apart.
fn with_outputs_apart() -> Image {
    let mut image = ended(Ok(Vec::new()));
    if let Some(end) = &mut image.end {
        end.apart = kept_apart().apart;
    }
    image
}

fn with_extras() -> [Image; 3] {
    let backoff = Backoff { base: Duration::from_millis(3), max: Duration::from_secs(4) };
    let run_limit = Some(Duration::from_secs(9));
    let limited = |image: Image| {
        let spec = TaskSpec { run_limit, backoff: Some(backoff), ..(*image.spec).clone() };
        Image { spec: Arc::new(spec), ..image }
    };
    let mut ended = ended(Ok(Vec::new()));
    ended.gone = true;
    if let Some(end) = &mut ended.end {
        end.variant = Some(Arc::new(image().spec.model.clone()));
        end.story = vec![(Duration::from_secs(2), "why".to_owned())];
    }
    [limited(image()), limited(kept_apart()), ended]
}

fn ended(result: Result<Vec<NamedTensor>, TaskError>) -> Image {
    let end = End {
        state: if result.is_ok() { TaskState::Succeeded } else { TaskState::Failed },
        result,
        apart: None,
        worker: "w1".parse().ok(),
        attempts: 3,
        queued: Duration::from_millis(1),
        model_time: Some(Duration::from_micros(2)),
        finished: Duration::from_secs(3),
        variant: None,
        story: Vec::new(),
    };
    Image { end: Some(end), ..image() }
}

fn kept_apart() -> Image {
    let tensors = describe(&image().spec.inputs).expect("small").0;
    let spec = TaskSpec { inputs: Vec::new(), ..(*image().spec).clone() };
    let blob = TensorBlob { sha256: [5; 32], bytes: 16 };
    Image { spec: Arc::new(spec), apart: Some(Apart { blob, tensors }), ..image() }
}

#[test]
fn inputs_apart_that_fit_nothing_are_refused() {
    let change = |change: fn(&mut Image)| {
        let mut image = kept_apart();
        change(&mut image);
        Image::decode(&image.encode().expect("it fits"))
    };
    assert!(change(|_| ()).is_ok());
    let longer = change(|image| {
        image.apart.iter_mut().for_each(|apart| apart.blob.bytes = 17);
    });
    assert!(longer.is_err());
    assert!(change(|other| other.spec = image().spec).is_err(), "twice");
    assert!(change(|other| other.end = ended(Ok(Vec::new())).end).is_err(), "after its end");
}

#[test]
fn outputs_apart_are_of_tasks_that_have_a_result() {
    let change = |change: fn(&mut End)| {
        let mut image = with_outputs_apart();
        image.end.iter_mut().for_each(change);
        Image::decode(&image.encode().expect("it fits"))
    };
    assert_eq!(change(|_| ()).expect("as it was").outputs_apart(), kept_apart().apart.as_ref());
    let longer = change(|end| end.apart.iter_mut().for_each(|apart| apart.blob.bytes = 17));
    assert!(longer.is_err());
    let twice = change(|end| end.result = Ok(image().spec.inputs.clone()));
    assert!(twice.is_err());
    let failed = change(|end| end.result = Err(TaskError::new(TaskErrorKind::Unavailable, "why")));
    assert!(failed.is_err());
    let gone = Image { gone: true, ..with_outputs_apart() };
    assert!(Image::decode(&gone.encode().expect("it fits")).is_err());
    assert_eq!(with_outputs_apart().end.expect("it has ended").bytes(), 16);
    let back = with_outputs_apart().with_outputs(image().spec.inputs.clone());
    assert_eq!(back, ended(Ok(image().spec.inputs.clone())));
}

#[test]
fn images_survive_their_bytes() {
    let output = Tensor::from_slice([3], &[5u8, 6, 7]).expect("small");
    let images = [
        image(),
        kept_apart(),
        ended(Ok(vec![NamedTensor::new("y", output)])),
        ended(Ok(Vec::new())),
        with_outputs_apart(),
        ended(Err(TaskError::new(TaskErrorKind::ModelFailed, "why"))),
    ];
    for image in images.into_iter().chain(with_extras()) {
        let bytes = image.encode().expect("it fits");
        let read = Image::decode(&bytes).expect("its own bytes");
        assert_eq!(read.spec.inputs.is_empty(), image.end.is_some() || image.apart.is_some());
        // The image of an ended task is read without its inputs.
        let inputs = read.spec.inputs.clone();
        let spec = Arc::new(TaskSpec { inputs, ..(*image.spec).clone() });
        assert_eq!(read, Image { spec, ..image });
        for cut in 0..bytes.len() {
            assert!(Image::decode(&bytes[..cut]).is_err(), "{cut} of {}", bytes.len());
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert!(Image::decode(&longer).is_err());
    }
}
