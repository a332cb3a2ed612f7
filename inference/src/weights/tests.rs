//! Reads files that the formats' own libraries wrote, and damaged ones. The files and their
//! expected values come from `inference/tests/weights/make.py`.

use super::*;
use half::{bf16, f16};
use lgp_memory::{F8E4M3FN, F8E5M2};
use std::path::PathBuf;

const FILES: [&str; 4] = ["all.safetensors", "zip.pt", "legacy.pt", "quants.gguf"];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/weights").join(name)
}

/// Any tensor's elements as numbers.
fn numbers(t: &Tensor) -> Result<Vec<f64>> {
    fn each<T: lgp_memory::Element>(t: &Tensor, number: impl Fn(T) -> f64) -> Result<Vec<f64>> {
        Ok(t.as_slice::<T>()?.iter().map(|&v| number(v)).collect())
    }
    match t.dtype() {
        DType::F32 => each::<f32>(t, f64::from),
        DType::F64 => each::<f64>(t, |v| v),
        DType::F16 => each::<f16>(t, f64::from),
        DType::BF16 => each::<bf16>(t, f64::from),
        DType::I8 => each::<i8>(t, f64::from),
        DType::I16 => each::<i16>(t, f64::from),
        DType::I32 => each::<i32>(t, f64::from),
        DType::I64 => each::<i64>(t, |v| v.to_string().parse().unwrap()),
        DType::U8 => each::<u8>(t, f64::from),
        DType::U16 => each::<u16>(t, f64::from),
        DType::Bool => each::<bool>(t, |v| f64::from(u8::from(v))),
        DType::F8E4M3FN => each::<F8E4M3FN>(t, |v| v.to_f32().into()),
        DType::F8E5M2 => each::<F8E5M2>(t, |v| v.to_f32().into()),
        other => panic!("{other} is in no file"),
    }
}

#[test]
fn files_hold_what_their_own_libraries_read() -> Result<()> {
    for file in FILES {
        let weights = Weights::load(path(file))?;
        let expected = std::fs::read_to_string(path(&format!("{file}.txt"))).unwrap();
        let mut names = Vec::new();
        for line in expected.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let [name, shape, values] = fields[..] else { panic!("{file}: {line}") };
            let shape = shape.split('x').filter(|d| !d.is_empty()).map(|d| d.parse().unwrap());
            let tensor = weights.get(name)?;
            assert_eq!(tensor.shape().dims(), shape.collect::<Vec<usize>>(), "{file}: {name}");
            let values: Vec<f64> =
                values.split_whitespace().map(|value| value.parse().unwrap()).collect();
            let numbers = numbers(&tensor)?;
            // The libraries multiply and add in another order than this crate.
            let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs().max(1e-2);
            assert_eq!(numbers.len(), values.len(), "{file}: {name}");
            assert!(numbers.iter().zip(&values).all(close), "{file}: {name}: {numbers:?}");
            names.push(name);
        }
        assert_eq!(weights.names().collect::<Vec<_>>(), names, "{file}");
    }
    Ok(())
}

#[test]
fn notes_are_kept() -> Result<()> {
    let cases = [
        ("all.safetensors", "safetensors", "format", "pt"),
        ("zip.pt", "PyTorch", "epoch", "3"),
        ("legacy.pt", "PyTorch before 1.6", "epoch", "3"),
        ("quants.gguf", "GGUF", "answer", "42"),
        ("quants.gguf", "GGUF", "words", "[2 strings]"),
    ];
    for (file, format, key, value) in cases {
        let weights = Weights::load(path(file))?;
        assert_eq!(weights.format(), format);
        assert_eq!(weights.metadata().get(key).map(String::as_str), Some(value), "{file}");
    }
    Ok(())
}

#[test]
fn what_is_no_tensor_is_named_and_not_called() {
    let error = Weights::load(path("system.pt")).unwrap_err();
    assert!(matches!(&error, Error::WeightsGlobal { global } if global == "posix.system"));
}

/// Reads everything in the bytes.
fn exhaust(bytes: &[u8]) -> Result<()> {
    let weights = Weights::from_bytes(bytes.to_vec())?;
    weights.names().try_for_each(|name| weights.get(name).map(drop))
}

#[test]
fn files_that_end_early_are_refused() {
    for file in FILES {
        let bytes = std::fs::read(path(file)).unwrap();
        assert!(exhaust(&bytes).is_ok(), "{file}");
        for len in 0..bytes.len() {
            // The padding after the last tensor may be missing.
            let refused = exhaust(&bytes[..len]).is_err();
            assert!(refused || bytes[len..].iter().all(|&b| b == 0), "{file}: {len} bytes");
        }
    }
}

#[test]
fn damaged_bytes_make_no_panic() {
    for file in FILES {
        let bytes = std::fs::read(path(file)).unwrap();
        for at in 0..bytes.len() {
            for value in [0xff, bytes[at] ^ 1] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                drop(exhaust(&damaged));
            }
        }
    }
}

/// A legacy file with this pickle as the pickle of its tensors, and the data after it.
fn legacy(pickle: &[u8]) -> Vec<u8> {
    let start = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.}.";
    [&start[..], pickle].concat()
}

#[test]
fn pickles_that_lie_are_refused() {
    let storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0\x30X\x03\0\0\0cpuK\x01tQ";
    let view = |shape: &[u8]| {
        let call = b"ctorch._utils\n_rebuild_tensor_v2\n(";
        let pickle = [&call[..], storage, b"K\0(", shape, b"t(", shape, b"t\x89}tR."].concat();
        let keys = b"]X\x01\0\0\0\x30a.\x01\0\0\0\0\0\0\0abcd";
        legacy(&[&pickle[..], keys].concat())
    };
    assert!(exhaust(&view(b"K\x01")).is_ok());
    let deep = [b"}K\0".repeat(40), b"K\0".to_vec(), b"s".repeat(40), b".].".to_vec()].concat();
    let cases = [
        (view(b"J\xff\xff\xff\x7f"), "in a file of"),
        (view(b"J\xff\xff\xff\xff"), "no sizes"),
        (view(&b"K\x01".repeat(9)), "no sizes"),
        (view(b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"), "shape [9223372036854775807]"),
        (legacy(b"cos\nsystem\n."), "wants to call 'os.system'"),
        (legacy(b"ctorch\nload\n."), "wants to call 'torch.load'"),
        (legacy(b"c__builtin__\neval\n."), "wants to call '__builtin__.eval'"),
        (legacy(b"X\xff\xff\xff\xff."), "expected 4294967295 more"),
        (legacy(b"K\x01R."), "empty stack"),
        (legacy(b"(0."), "empty stack"),
        (legacy(b"h\x05."), "forgot value 5"),
        (legacy(b"}]a."), "cannot take them"),
        (legacy(b"K\x01K\x01\x86Q."), "no storage"),
        (legacy(b"i"), "opcode 0x69"),
        (legacy(&deep), "nest more than 32 deep"),
        // A list that contains itself is endless, but the budget ends.
        (legacy(b"]q\0h\0a.]."), "hold each other more often"),
    ];
    for (bytes, message) in cases {
        let error = exhaust(&bytes).unwrap_err().to_string();
        assert!(error.contains(message), "{error}, expected {message}");
    }
}

#[test]
fn sizes_that_lie_are_refused() {
    let gguf = |rest: &[&[u8]]| [&b"GGUF\x03\0\0\0"[..], rest.concat().as_slice()].concat();
    let count = |n: u64| n.to_le_bytes();
    let info = |dim: u64, kind: u8, offset: u64| {
        let name = [&count(1)[..], b"t", &[1, 0, 0, 0]].concat();
        gguf(&[&count(1), &count(0), &name, &count(dim), &[kind, 0, 0, 0], &count(offset)])
    };
    let json =
        |header: &str| [&count(header.len().try_into().unwrap())[..], header.as_bytes()].concat();
    let cases = [
        (b"hello".to_vec(), "begins like none of GGUF, PyTorch"),
        (b"GGUF\x01\0\0\0".to_vec(), "version 1, expected 2 or 3"),
        (gguf(&[&count(u64::MAX), &count(0)]), "it ends 0 bytes after"),
        (gguf(&[&count(0), &count(u64::MAX)]), "it ends 0 bytes after"),
        (info(1 << 62, 0, 0), "more bytes than can be addressed"),
        (info(1 << 40, 0, 0), "of a file of"),
        (info(1, 0, u64::MAX), "offset is too large"),
        (info(33, 2, 0), "rows of 33 in Q4_0, expected a multiple of 32"),
        (info(256, 16, 0), "type 16"),
        (json(r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#), ""),
        (json(r#"{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4]}}"#), ""),
        (json(r#"{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}"#), ""),
    ];
    for (bytes, message) in cases {
        let error = exhaust(&bytes).unwrap_err().to_string();
        assert!(error.contains(message), "{error}, expected {message}");
    }
}
