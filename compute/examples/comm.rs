//! Times transfers and collectives over devices: `comm DEVICE,DEVICE… [ROUNDS]` prints a line of
//! JSON for each size and collective, with the microseconds of every round. Bytes are the size of
//! each rank's tensor, or of all parts together for an all-gather and a reduce-scatter.

use lgp_compute::comm::{Group, Reduction, TransferConfig};
use lgp_compute::device::{Accelerator, DeviceTensor};
use lgp_memory::{DType, Tensor};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SIZES: [usize; 3] = [4 << 10, 1 << 20, 64 << 20];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [devices, rest @ ..] = args.as_slice() else {
        return Err("usage: comm DEVICE,DEVICE… [ROUNDS]".into());
    };
    let rounds = rest.first().map_or(Ok(20), |text| text.parse::<usize>())?;
    let open =
        |id: &str| -> Result<Accelerator> { Ok(Accelerator::new(lgp_hal::open(id.parse()?)?)?) };
    let ranks = devices.split(',').map(open).collect::<Result<Vec<_>>>()?;
    let group = Group::new(ranks, TransferConfig::default())?;
    SIZES.into_iter().try_for_each(|bytes| measure(&group, bytes, rounds))
}

fn measure(group: &Group, bytes: usize, rounds: usize) -> Result<()> {
    let n = group.ranks().len();
    let tensors = tensors(group, bytes / 4)?;
    let shares = tensors_of_parts(group, bytes / 4)?;
    let time = |name: &str, run: &dyn Fn() -> Result<()>| -> Result<()> {
        let mut times = Vec::with_capacity(rounds);
        // The first round starts threads, allocates host memory and compiles, so it is not counted.
        for round in 0..=rounds {
            group.ranks().iter().try_for_each(Accelerator::finish)?;
            let begin = Instant::now();
            run()?;
            group.ranks().iter().try_for_each(Accelerator::finish)?;
            if round > 0 {
                times.push(format!("{:.1}", begin.elapsed().as_secs_f64() * 1e6));
            }
        }
        let times = times.join(",");
        println!(r#"{{"name":"{name}","devices":{n},"bytes":{bytes},"us":[{times}]}}"#);
        Ok(())
    };
    time("transfer", &|| {
        let (_, arrival) = group.send(&tensors[0], (0, n - 1), 0)?;
        Ok(arrival.wait()?)
    })?;
    time("broadcast", &|| Ok(group.broadcast(0, &tensors)?))?;
    time("all_reduce", &|| Ok(group.all_reduce(Reduction::Max, &tensors)?))?;
    time("reduce_scatter", &|| Ok(group.reduce_scatter(Reduction::Sum, &tensors).map(drop)?))?;
    time("all_gather", &|| Ok(group.all_gather(&shares).map(drop)?))
}

fn tensors(group: &Group, len: usize) -> Result<Vec<DeviceTensor>> {
    let data: Vec<f32> = (0..len).map(|i| i as f32).collect();
    let tensor = Tensor::from_slice([len], &data)?;
    group.ranks().iter().map(|rank| Ok(rank.upload(&tensor.view())?)).collect()
}

fn tensors_of_parts(group: &Group, len: usize) -> Result<Vec<DeviceTensor>> {
    let part = len / group.ranks().len();
    group.ranks().iter().map(|rank| Ok(rank.alloc(DType::F32, [part])?)).collect()
}
