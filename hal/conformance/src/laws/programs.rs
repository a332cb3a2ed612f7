//! Laws about programs: they compile or give the reason, and calculate correctly.

use super::{Broken, Lawful, Verdict, ensure, refused, same, told};
use lgp_hal::{Arg, Buffer, Device, Error, Launch, Program, Queue};
use std::sync::Arc;

pub(super) const SOURCE: &str = include_str!("programs.cl");
pub(super) const LENGTH: usize = 1024;

/// The verdict of a law about programs: skipped on a device that has none.
pub(super) fn with_programs(device: &dyn Device, law: fn(&dyn Device) -> Lawful) -> Verdict {
    match device.caps().programs {
        true => told(law(device)),
        false => Verdict::Skipped("the device has no programs".to_owned()),
    }
}

pub(super) fn absence(device: &dyn Device) -> Verdict {
    if device.caps().programs {
        return Verdict::Skipped("the device has programs".to_owned());
    }
    let wanted = |error: &Error| matches!(error, Error::Unsupported { .. });
    // SAFETY: a device without programs runs none.
    let loaded = unsafe { device.load(&[]) };
    told(
        refused("a program", device.compile(SOURCE, ""), wanted)
            .and_then(|()| refused("a binary", loaded, wanted)),
    )
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub(super) fn upload(
    device: &dyn Device,
    queue: &mut dyn Queue,
    words: &[u32],
) -> Result<Arc<dyn Buffer>, Broken> {
    let buffer = device.allocate(4 * words.len())?;
    queue.write(&*buffer, 0, &bytes_of(words))?;
    Ok(buffer)
}

pub(super) fn download(queue: &mut dyn Queue, buffer: &dyn Buffer) -> Result<Vec<u32>, Broken> {
    let mut bytes = vec![0; buffer.bytes()];
    queue.read(buffer, 0, &mut bytes)?;
    let words =
        bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    Ok(words.collect())
}

pub(super) fn options(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        let mut queue = device.queue()?;
        let out = upload(device, &mut *queue, &[0; 4])?;
        for value in [7u32, 4_000_000_000] {
            let program = device.compile(SOURCE, &format!("-D CONSTANT={value}u"))?;
            let args = [Arg::Buffer(&*out)];
            let launch = Launch {
                program: &*program,
                kernel: "constant_of_options",
                global: [4, 1, 1],
                local: None,
                args: &args,
            };
            // SAFETY: one element per work-item, and the buffer has four.
            unsafe { queue.launch(&launch)? };
            same("the constant", &download(&mut *queue, &*out)?, &[value; 4])?;
        }
        Ok(())
    })
}

pub(super) fn arguments(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        let program = device.compile(SOURCE, "")?;
        let mut queue = device.queue()?;
        let out = upload(device, &mut *queue, &[0; 6])?;
        let args = [
            Arg::Buffer(&*out),
            Arg::U32(0xdead_beef),
            Arg::I32(-5),
            Arg::U64(0x0123_4567_89ab_cdef),
            Arg::F32(1.5),
        ];
        let launch = Launch {
            program: &*program,
            kernel: "all_arguments",
            global: [64, 1, 1],
            local: Some([64, 1, 1]),
            args: &args,
        };
        // SAFETY: the kernel writes six words from its first work-item; the types are those of its
        // parameters.
        unsafe { queue.launch(&launch)? };
        let expected = [0xdead_beef, 0xffff_fffb, 0x89ab_cdef, 0x0123_4567, 1.5f32.to_bits(), 2016];
        same("the arguments", &download(&mut *queue, &*out)?, &expected)
    })
}

pub(super) fn grids(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        let program = device.compile(SOURCE, "")?;
        let mut queue = device.queue()?;
        // Work-groups of 4 × 2 × 3, and of those 5 × 3 × 2.
        let (group, groups) = ([4, 2, 3], [5, 3, 2]);
        let global = [20, 6, 6];
        let out = upload(device, &mut *queue, &[0; 720])?;
        let args = [Arg::Buffer(&*out)];
        let launch = Launch {
            program: &*program,
            kernel: "places",
            global,
            local: Some(group),
            args: &args,
        };
        // SAFETY: one element per work-item, and the buffer has 720 of them.
        unsafe { queue.launch(&launch)? };
        let place = |at: usize| {
            let item = [at % 20, at / 20 % 6, at / 120];
            let index = |place: fn(usize, usize) -> usize, sides: [usize; 3]| {
                let [x, y, z] = [0, 1, 2].map(|axis| place(item[axis], group[axis]));
                (z * sides[1] + y) * sides[0] + x
            };
            (index(|item, group| item / group, groups) << 16
                | index(|item, group| item % group, group)) as u32
        };
        let expected: Vec<u32> = (0..720).map(place).collect();
        same("the places", &download(&mut *queue, &*out)?, &expected)
    })
}

/// More work-groups than some drivers take at once, in the first dimension, where all others bear them.
const MANY_GROUPS: usize = 70_000;

pub(super) fn many_groups(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        let program = device.compile(SOURCE, "")?;
        let mut queue = device.queue()?;
        let start: Vec<u32> = (0..2 * MANY_GROUPS as u32).map(|at| at % 7).collect();
        let values = upload(device, &mut *queue, &start)?;
        let args = [Arg::Buffer(&*values)];
        let launch = Launch {
            program: &*program,
            kernel: "groups_of_two",
            global: [2 * MANY_GROUPS, 1, 1],
            local: Some([2, 1, 1]),
            args: &args,
        };
        for _ in 0..3 {
            // SAFETY: one element per work-item, and the buffer has two for each group.
            unsafe { queue.launch(&launch)? };
        }
        let expected: Vec<u32> = (0..).zip(&start).map(|(at, start)| start + 3 * at).collect();
        same("what the groups add", &download(&mut *queue, &*values)?, &expected)
    })
}

pub(super) fn order(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        let program = device.compile(SOURCE, "")?;
        let mut queue = device.queue()?;
        let start: Vec<u32> = (0..LENGTH as u32).collect();
        let (values, copy) = (upload(device, &mut *queue, &start)?, device.allocate(4 * LENGTH)?);
        let args = [Arg::Buffer(&*values)];
        let launch = Launch {
            program: &*program,
            kernel: "twice_and_one",
            global: [LENGTH, 1, 1],
            local: None,
            args: &args,
        };
        for _ in 0..5 {
            // SAFETY: one element per work-item, and the buffer has LENGTH of them.
            unsafe { queue.launch(&launch)? };
        }
        queue.copy(&*values, 0, &*copy, 0, 4 * LENGTH)?;
        queue.write(&*values, 0, &bytes_of(&vec![0; LENGTH]))?;
        // SAFETY: as above.
        unsafe { queue.launch(&launch)? };
        let five = |value: u32| (0..5).fold(value, |value, _| 2 * value + 1);
        let expected: Vec<u32> = start.iter().map(|&value| five(value)).collect();
        same("the copy between launches", &download(&mut *queue, &*copy)?, &expected)?;
        same("the launch after the write", &download(&mut *queue, &*values)?, &[1; LENGTH])
    })
}

pub(super) fn binaries(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        let compiled = device.compile(SOURCE, "-D CONSTANT=19u")?;
        let binary = compiled.binary().ok_or(Broken("the driver gives no binary".to_owned()))?;
        // SAFETY: the device has just made the binary.
        let loaded = unsafe { device.load(&binary)? };
        let sorted = |program: &dyn Program| {
            let mut names = program.kernels().to_vec();
            names.sort_unstable();
            names
        };
        same("the kernels", &sorted(&*loaded), &sorted(&*compiled))?;
        drop(compiled);
        let mut queue = device.queue()?;
        let out = upload(device, &mut *queue, &[0; 64])?;
        let args = [Arg::Buffer(&*out)];
        let launch = Launch {
            program: &*loaded,
            kernel: "constant_of_options",
            global: [64, 1, 1],
            local: None,
            args: &args,
        };
        // SAFETY: one element per work-item, and the buffer has 64.
        unsafe { queue.launch(&launch)? };
        same("what the binary calculates", &download(&mut *queue, &*out)?, &[19; 64])?;
        let again = loaded.binary().ok_or(Broken("a loaded program has no binary".to_owned()))?;
        // SAFETY: the device has made the binary.
        unsafe { device.load(&again)? };
        let mut damaged = binary.clone();
        damaged[binary.len() / 2] ^= 1;
        for (what, faulty) in [
            ("no binary", [].as_slice()),
            ("half a binary", &binary[..binary.len() / 2]),
            ("a damaged binary", &damaged),
            ("a source", SOURCE.as_bytes()),
        ] {
            // SAFETY: the binary must be refused before the driver sees it.
            let loaded = unsafe { device.load(faulty) };
            refused(what, loaded, |error| matches!(error, Error::Binary { .. }))?;
        }
        Ok(())
    })
}

pub(super) fn faulty_source(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        for source in ["KERNEL void broken(GLOBAL float *out) { out[0] = nowhere; }", "not C"] {
            match device.compile(source, "") {
                Err(Error::Compile { log, .. }) => {
                    ensure(!log.is_empty(), || "the compiler's messages are missing".to_owned())?;
                }
                Err(error) => ensure(false, || format!("refused with another error: {error}"))?,
                Ok(_) => ensure(false, || format!("compiled: {source}"))?,
            }
        }
        let wanted = |error: &Error| matches!(error, Error::Compile { .. });
        refused("a zero byte in options", device.compile(SOURCE, "-D A=\0"), wanted)
    })
}

pub(super) fn faulty_launch(device: &dyn Device) -> Verdict {
    with_programs(device, |device| {
        let program = device.compile(SOURCE, "")?;
        let mut queue = device.queue()?;
        let buffer = upload(device, &mut *queue, &[5; 64])?;
        let args = [Arg::Buffer(&*buffer)];
        let right = Launch {
            program: &*program,
            kernel: "twice_and_one",
            global: [64, 1, 1],
            local: None,
            args: &args,
        };
        let most = device.caps().work_group_max as usize;
        let too_many = [2 * most, 1, 1];
        let double = [args[0], args[0]];
        for (what, launch) in [
            ("an unknown kernel", Launch { kernel: "nothing", ..right }),
            ("an unknown kernel with a zero byte", Launch { kernel: "twice\0", ..right }),
            ("too few arguments", Launch { args: &[], ..right }),
            ("too many arguments", Launch { args: &double, ..right }),
            ("an argument of the wrong size", Launch { args: &[Arg::U32(1)], ..right }),
            ("an empty grid", Launch { global: [0, 1, 1], ..right }),
            ("work-groups that do not divide", Launch { local: Some([48, 1, 1]), ..right }),
            ("empty work-groups", Launch { local: Some([0, 1, 1]), ..right }),
            ("too large work-groups", Launch { global: too_many, local: Some(too_many), ..right }),
            (
                "work-groups beyond counting",
                Launch { global: [usize::MAX; 3], local: Some([usize::MAX; 3]), ..right },
            ),
        ] {
            // SAFETY: the launch must be refused. A device that runs it anyway writes within the
            // buffer; only the too large grids exceed it, and no device can run those.
            let launched = unsafe { queue.launch(&launch) };
            refused(what, launched, |error| matches!(error, Error::Launch { .. }))?;
        }
        // SAFETY: one element per work-item, and the buffer has 64 of them.
        unsafe { queue.launch(&right)? };
        same("after the refusals", &download(&mut *queue, &*buffer)?, &[11; 64])
    })
}
