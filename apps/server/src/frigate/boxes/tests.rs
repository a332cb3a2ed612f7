//! Outputs of each kind of network, and the rows that Frigate gets.

use super::*;

fn tensor(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(shape.to_vec(), values).expect("it fits")
}

/// Rows up to the first without a score, rounded to three digits.
fn found(kind: Kind, outputs: &[Tensor], size: (u16, u16)) -> Vec<[f32; 6]> {
    let outputs: Vec<&Tensor> = outputs.iter().collect();
    let rows = rows(kind, &outputs, size).unwrap_or_else(|fault| panic!("{}", fault.message));
    let rows = rows.into_iter().take_while(|row| row[1] > 0.0);
    rows.map(|row| row.map(|value| (value * 1e3).round() / 1e3)).collect()
}

#[test]
fn each_kind_of_network_is_understood() {
    // Two classes; the second box nearly equals the first, and the third has a low score.
    let yolo = [
        [50.0, 25.0, 20.0, 10.0, 0.1, 0.9],
        [51.0, 25.0, 20.0, 10.0, 0.8, 0.1],
        [80.0, 40.0, 10.0, 10.0, 0.3, 0.2],
        [20.0, 10.0, 10.0, 10.0, 0.6, 0.1],
    ];
    let wide = [&yolo[..], &[[0.0; 6]; 4]].concat().concat();
    let expected = vec![[1.0, 0.9, 0.4, 0.4, 0.6, 0.6], [0.0, 0.6, 0.1, 0.15, 0.3, 0.25]];
    let by_channel: Vec<f32> =
        (0..6).flat_map(|c| wide.iter().skip(c).step_by(6).copied()).collect();
    for (shape, values) in [([1, 6, 8], &by_channel), ([1, 8, 6], &wide)] {
        let outputs = [tensor(&shape, values)];
        assert_eq!(found(Kind::YoloGeneric, &outputs, (100, 50)), expected, "{shape:?}");
    }

    let nas = [0.0, 10.0, 5.0, 30.0, 25.0, 0.9, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0];
    let expected = vec![[2.0, 0.9, 0.1, 0.1, 0.5, 0.3]];
    assert_eq!(found(Kind::YoloNas, &[tensor(&[2, 7], &nas)], (100, 50)), expected);

    let ssd = [0.0, 3.0, 0.7, 0.1, 0.2, 0.3, 0.4, -1.0, 1.0, 0.5, 0.0, 0.0, 0.0, 0.0];
    let expected = vec![[3.0, 0.7, 0.2, 0.1, 0.4, 0.3]];
    assert_eq!(found(Kind::Ssd, &[tensor(&[1, 1, 2, 7], &ssd)], (9, 9)), expected);

    let classes = Tensor::from_slice(vec![1, 2], &[7i64, 1]).expect("it fits");
    let boxes = tensor(&[1, 2, 4], &[5.0, 20.0, 25.0, 60.0, 0.0, 0.0, 1.0, 1.0]);
    let outputs = [classes, boxes, tensor(&[1, 2], &[0.8, 0.2])];
    let expected = vec![[7.0, 0.8, 0.2, 0.1, 0.6, 0.5]];
    assert_eq!(found(Kind::DFine, &outputs, (100, 50)), expected);

    let boxes = tensor(&[1, 2, 4], &[0.5, 0.5, 0.2, 0.4, 0.1, 0.1, 0.1, 0.1]);
    // The softmax of 0, ln 3 and 0 is 0.2, 0.6 and 0.2.
    let third = 3f32.ln();
    let logits = tensor(&[1, 2, 3], &[0.0, third, 0.0, 9.0, 0.0, 0.0]);
    let expected = vec![[0.0, 0.6, 0.3, 0.4, 0.7, 0.6]];
    assert_eq!(found(Kind::RfDetr, &[boxes, logits], (9, 9)), expected);
}

#[test]
fn boxes_relative_to_cells_are_put_in_their_places() {
    // 32 × 32 pixels are 16 + 4 + 1 cells; the one at column 1, row 2 of the first grid sees class 1.
    let mut values = vec![0.0; 21 * 7];
    values[9 * 7..10 * 7].copy_from_slice(&[0.5, 0.25, 0.0, 2f32.ln(), 0.9, 0.1, 1.0]);
    let expected = [[1.0, 0.9, (18.0f32 - 8.0) / 32.0, 8.0 / 32.0, 26.0 / 32.0, 16.0 / 32.0]];
    let rounded: Vec<_> =
        expected.iter().map(|row| row.map(|v: f32| (v * 1e3).round() / 1e3)).collect();
    assert_eq!(found(Kind::YoloX, &[tensor(&[1, 21, 7], &values)], (32, 32)), rounded);

    // The second anchor of the first output, at column 1, row 2 of 4 × 4: 19 × 36 pixels.
    let mut small = vec![0.0; 3 * 7 * 16];
    for (channel, value) in [0.5, 0.5, 0.5, 0.5, 0.9, 0.1, 1.0].into_iter().enumerate() {
        small[(7 + channel) * 16 + 9] = value;
    }
    let outputs = [
        tensor(&[1, 21, 4, 4], &small),
        tensor(&[1, 21, 2, 2], &[0.0; 84]),
        tensor(&[1, 21, 1, 1], &[0.0; 21]),
    ];
    // Its centre is at 12, 20, and the part outside the image is cut off.
    let expected = vec![[1.0, 0.9, 0.063, 0.078, 1.0, 0.672]];
    assert_eq!(found(Kind::YoloGeneric, &outputs, (32, 32)), expected);
}

#[test]
fn no_more_than_twenty_and_nothing_that_is_no_number() {
    let row = |i: u16| [f32::from(i) * 20.0, 10.0, 10.0, 10.0, 0.5 + f32::from(i) / 1e3];
    let mut values: Vec<f32> = (0..30).flat_map(row).collect();
    values[4] = f32::NAN;
    values[29 * 5] = f32::INFINITY;
    let rows = found(Kind::YoloGeneric, &[tensor(&[1, 30, 5], &values)], (1000, 100));
    assert_eq!(rows.len(), 20);
    assert_eq!(rows[0][1], 0.528, "the best comes first");
}

#[test]
fn outputs_of_another_network_are_refused() {
    for (kind, shapes) in [
        (Kind::YoloGeneric, vec![vec![1, 6], vec![1, 6]]),
        (Kind::YoloGeneric, vec![vec![2, 6, 8]]),
        (Kind::YoloGeneric, vec![vec![1, 20, 4, 4], vec![1, 21, 2, 2], vec![1, 21, 1, 1]]),
        (Kind::YoloGeneric, vec![vec![1, 0, 4, 4], vec![1, 21, 2, 2], vec![1, 21, 1, 1]]),
        (Kind::YoloX, vec![vec![1, 20, 7]]),
        (Kind::YoloNas, vec![vec![1, 6]]),
        (Kind::YoloNas, vec![vec![1, 6, 7]]),
        (Kind::Ssd, vec![vec![1, 6, 7]]),
        (Kind::Ssd, vec![]),
        (Kind::DFine, vec![vec![1, 2], vec![1, 3, 4], vec![1, 2]]),
        (Kind::RfDetr, vec![vec![1, 2, 4], vec![1, 3, 3]]),
    ] {
        let tensors: Vec<Tensor> =
            shapes.iter().map(|shape| tensor(shape, &vec![0.0; shape.iter().product()])).collect();
        let outputs: Vec<&Tensor> = tensors.iter().collect();
        let fault = rows(kind, &outputs, (32, 32)).expect_err("it is another's");
        assert!(fault.message.contains("outputs have the shapes"), "{}", fault.message);
    }
    let fault = Kind::parse("efficientdet").expect_err("there is none");
    assert!(fault.message.contains("efficientdet") && fault.message.contains("yolox"));
}
