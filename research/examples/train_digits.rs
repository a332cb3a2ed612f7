//! Trains the digits model.

fn main() {
    let f = std::fs::File::open("apps/cli/assets/digits/digits.csv.gz").unwrap();
    let (train, test) = lgp_research::DigitSet::read_split(f).unwrap();
    let seed = std::env::args().nth(1).map_or(1998, |s| s.parse().unwrap());
    let (mut tr, mut va) = (lgp_research::DigitSet::default(), lgp_research::DigitSet::default());
    for i in 0..train.len() {
        let p = if i % 5 == 2 { &mut va } else { &mut tr };
        p.pixels.extend_from_slice(train.image(i).unwrap());
        p.labels.push(train.labels[i]);
    }
    let _ = test;
    let t = std::time::Instant::now();
    let c = lgp_research::DigitsConfig { seed, ..Default::default() };
    let n = lgp_research::train_digits(&tr, &c, |r| {
        if r.epoch % 10 == 0 {
            eprintln!("{r:?}")
        }
    })
    .unwrap();
    let l = n.forward(&va.pixels).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    println!("val {} in {:?}", lgp_research::accuracy(&l, &va.labels).unwrap(), t.elapsed());
}
