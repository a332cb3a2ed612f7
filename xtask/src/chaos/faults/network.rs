//! Bad networks, and networks that lose packets in one direction or both.

use super::Kind::Other;
use super::{Fault, fault};
use crate::chaos::stage::Stage;
use crate::chaos::world::Need::{Island, Nothing};
use crate::chaos::world::island::Direction;
use crate::relay::Weather;
use anyhow::Result;
use std::time::Duration;

pub(super) const FAULTS: &[Fault] = &[
    fault("joined worker in a bad network", 3, (Other, Nothing), |stage| {
        weather(stage, BAD, (1_000, 4_000))
    }),
    fault("joined worker cut off", 3, (Other, Nothing), |stage| {
        weather(stage, Weather::CUT, (1_000, 5_000))
    }),
    fault("joined worker is not heard", 2, (Other, Nothing), |stage| {
        weather(stage, Weather { cut_forth: true, ..Weather::CALM }, (1_000, 8_000))
    }),
    fault("joined worker hears nothing", 2, (Other, Nothing), |stage| {
        weather(stage, Weather { cut_back: true, ..Weather::CALM }, (1_000, 8_000))
    }),
    fault("namespace cut off", 4, (Other, Island), |stage| {
        cut(stage, Direction::Both, (500, 6_000))
    }),
    fault("namespace cut off towards the coordinator", 3, (Other, Island), |stage| {
        cut(stage, Direction::ToCoordinator, (500, 8_000))
    }),
    fault("namespace cut off towards the worker", 3, (Other, Island), |stage| {
        cut(stage, Direction::ToWorker, (500, 8_000))
    }),
];

/// A bad wireless link, which loses every twelfth datagram.
const BAD: Weather = Weather {
    lost_per_mille: 80,
    doubled_per_mille: 20,
    overtaken_per_mille: 50,
    delay: Duration::from_millis(20),
    jitter: Duration::from_millis(10),
    ..Weather::CALM
};

fn weather(stage: &mut Stage<'_>, weather: Weather, (from, to): (u64, u64)) -> Result<()> {
    let time = stage.some_ms(from, to);
    stage.weather(weather, time);
    Ok(())
}

fn cut(stage: &mut Stage<'_>, direction: Direction, (from, to): (u64, u64)) -> Result<()> {
    let time = stage.some_ms(from, to);
    stage.cut(direction, time)
}
