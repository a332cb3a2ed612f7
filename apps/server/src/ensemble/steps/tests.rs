//! The built-in steps, on values computed by hand.

use super::super::value::Value;
use super::{Given, Joint, find, tensor};
use crate::fault::Fault;
use lgp_common::vision::{Channels, Pixels};
use lgp_sdk::tensor::{Element, Tensor};
use std::sync::Arc;

fn floats(shape: &[usize], data: &[f32]) -> Value {
    tensor(shape.to_vec(), data).expect("they fit")
}

fn run(
    name: &str,
    parameters: &str,
    inputs: &[(&str, Value)],
) -> Result<Vec<(&'static str, Tensor)>, Fault> {
    let step = find(name, toml::from_str(parameters).expect("a table")).expect("a good step");
    let joint = |(port, value): &(&str, Value)| Joint {
        port: (*port).to_owned(),
        label: format!("value '{port}'"),
        value: value.clone(),
    };
    let given = Given(inputs.iter().map(joint).collect());
    step.room(&given)?;
    let labels = ["cat".to_owned(), "dog".to_owned()];
    let made = step.run(given, &labels)?.into_iter();
    made.map(|(port, value)| Ok((port, value.tensor()?))).collect()
}

fn of<T: Element>(made: &[(&str, Tensor)], port: &str) -> (Vec<usize>, Vec<T>) {
    let (_, tensor) = made.iter().find(|(known, _)| *known == port).expect("it is made");
    (tensor.shape().dims().to_vec(), tensor.as_slice::<T>().expect("its type").to_vec())
}

#[test]
fn classes_of_every_shape_of_scores() {
    let scores = [0.25, 0.5, 0.125, 3.0, -1.0, 2.5];
    for (shape, k, expected, best) in [
        (vec![2, 3], 2, vec![2, 2], vec![1, 0, 0, 2]),
        (vec![6], 2, vec![2], vec![3, 5]),
        (vec![1, 6, 1, 1], 1, vec![1, 1], vec![3]),
        (vec![2, 3], 9, vec![2, 3], vec![1, 0, 2, 0, 2, 1]),
    ] {
        let given = [("scores", floats(&shape, &scores))];
        let made = run("top_k", &format!("k = {k}\nlabels = \"m\""), &given).expect("numbers");
        assert_eq!(of::<i64>(&made, "index"), (expected, best.clone()), "{shape:?}");
        let labels = made.iter().find(|(port, _)| *port == "label").expect("it is made");
        let name = |&index: &i64| {
            ["cat", "dog"].get(index as usize).map_or(index.to_string(), |&l| l.into())
        };
        let names: Vec<String> = best.iter().map(name).collect();
        assert_eq!(labels.1.strings().expect("text"), names);
    }
    for shape in [vec![0, 3], vec![2, 0], vec![0]] {
        for (name, parameters) in [("top_k", "k = 1"), ("softmax", "")] {
            run(name, parameters, &[("scores", floats(&shape, &[]))]).expect("nothing to do");
        }
    }
    let given = [("scores", floats(&[2, 2], &[0.0, 0.0, 0.0, 3.0f32.ln()]))];
    let (_, shares) = of::<f32>(&run("softmax", "", &given).expect("numbers"), "scores");
    for (share, expected) in shares.iter().zip([0.5, 0.5, 0.25, 0.75]) {
        assert!((share - expected).abs() < 1e-6, "{shares:?}");
    }
}

#[test]
fn boxes_of_every_format_are_the_same() {
    // Three boxes in each of two images: the second overlaps the first, and the third scores too low.
    let rows = [[5.0, 5.0, 4.0, 4.0], [5.0, 5.5, 4.0, 4.0], [1.0, 1.0, 1.0, 1.0]];
    let scores = [[0.1, 0.9], [0.2, 0.6], [0.1, 0.2]];
    let twice = |one: Vec<f32>| [one.clone(), one].concat();
    let beside: Vec<f32> =
        rows.iter().zip(scores).flat_map(|(row, of)| row.iter().copied().chain(of)).collect();
    let columns: Vec<f32> = (0..6)
        .flat_map(|at| (0..3).map(move |row| (row, at)))
        .map(|(row, at)| beside[row * 6 + at])
        .collect();
    let object: Vec<f32> = rows
        .iter()
        .zip(scores)
        .flat_map(|(row, [a, b])| row.iter().copied().chain([0.5, a * 2.0, b * 2.0]))
        .collect();
    let corners: Vec<f32> = rows
        .iter()
        .flat_map(|[x, y, w, h]| [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0])
        .collect();
    // Padding with impossible boxes, so that there are more boxes than values of one box.
    let padded = |values: &[f32], of: usize| [values, &vec![0.0; 5 * of]].concat();
    let widened: Vec<f32> = columns.chunks(3).flat_map(|row| padded(row, 1)).collect();
    for (format, given) in [
        ("yolo", vec![("boxes", floats(&[2, 8, 6], &twice(padded(&beside, 6))))]),
        ("yolo", vec![("boxes", floats(&[2, 6, 8], &twice(widened)))]),
        ("yolov5", vec![("boxes", floats(&[2, 8, 7], &twice(padded(&object, 7))))]),
        (
            "corners",
            vec![
                ("boxes", floats(&[2, 3, 4], &twice(corners))),
                ("scores", floats(&[2, 3, 2], &twice(scores.concat()))),
            ],
        ),
    ] {
        let made = run("nms", &format!("format = \"{format}\"\nlabels = \"m\""), &given);
        let made = made.unwrap_or_else(|fault| panic!("{format}: {}", fault.message));
        assert_eq!(of::<f32>(&made, "boxes").1, [3.0, 3.0, 7.0, 7.0].repeat(2), "{format}");
        assert_eq!(of::<f32>(&made, "boxes").0, [2, 4], "{format}");
        assert_eq!(of::<f32>(&made, "scores").1, [0.9, 0.9], "{format}");
        assert_eq!(of::<i64>(&made, "classes").1, [1, 1], "{format}");
        assert_eq!(of::<i64>(&made, "pictures").1, [0, 1], "{format}");
    }
}

#[test]
fn boxes_that_do_not_fit_are_refused() {
    let picture = Pixels::new(1, 1, Channels::Grey, vec![0]).expect("one pixel");
    let pictures = ("pictures", Value::Pictures(Arc::new(vec![picture; 2])));
    let boxes = |shape: &[usize]| ("boxes", floats(shape, &vec![0.0; shape.iter().product()]));
    for (format, given, part) in [
        ("yolo", vec![boxes(&[6, 8])], "three dimensions"),
        ("yolo", vec![boxes(&[1, 6, 8]), pictures], "2 pictures and the boxes of 1"),
        (
            "corners",
            vec![boxes(&[1, 3, 4]), ("scores", floats(&[1, 2, 1], &[0.0; 2]))],
            "do not belong together",
        ),
    ] {
        let parameters = format!("format = \"{format}\"\nsize = [1, 1]");
        let fault = run("nms", &parameters, &given).expect_err(part);
        assert!(fault.status == 400 && fault.message.contains(part), "{}", fault.message);
    }
    // No boxes in empty data, whatever number the shape claims.
    let none = run("nms", "format = \"yolo\"", &[boxes(&[1 << 40, 0, 6])]).expect("no boxes");
    assert_eq!(of::<f32>(&none, "boxes").0, [0, 4]);
}

#[test]
fn pictures_become_numbers_in_either_order() {
    let pixels = Pixels::new(2, 1, Channels::Rgb, vec![1, 2, 3, 4, 5, 6]).expect("they fit");
    let given = [("pictures", Value::Pictures(Arc::new(vec![pixels.clone(), pixels.clone()])))];
    for (layout, shape, first) in [
        ("nchw", vec![2, 3, 1, 2], [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
        ("nhwc", vec![2, 1, 2, 3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ] {
        let parameters = format!("layout = \"{layout}\"\nscale = 1");
        let made = run("normalise", &parameters, &given).expect("pictures of one size");
        assert_eq!(of::<f32>(&made, "tensor"), (shape, first.repeat(2)), "{layout}");
    }
    let other = Pixels::new(1, 1, Channels::Rgb, vec![0; 3]).expect("they fit");
    let given = [("pictures", Value::Pictures(Arc::new(vec![pixels, other])))];
    let fault = run("normalise", "", &given).expect_err("two sizes");
    assert!(fault.message.contains("picture 1 has another size"), "{}", fault.message);
    let made = run("resize", "width = 1\nheight = 1", &given).expect("pictures");
    assert_eq!(of::<u8>(&made, "pictures").0, [2, 1, 1, 3]);
}
