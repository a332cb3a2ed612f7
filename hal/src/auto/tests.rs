//! Ranking devices, and opening the best of made-up drivers.

use super::*;
use crate::backend::{Backend, Found, Probe};
use crate::caps::Caps;

fn info(id: &str, kind: DeviceKind, usable: bool, memory_bytes: u64) -> DeviceInfo {
    let device: DeviceId = id.parse().expect(id);
    DeviceInfo {
        id: id.to_owned(),
        device: Some(device),
        name: String::new(),
        backend: device.backend.to_string(),
        memory_bytes: Some(memory_bytes),
        usable,
        reason: None,
        hint: None,
        self_test: SelfTest::Passed,
        caps: Caps { kind, ..Caps::default() },
        telemetry: None,
        card: None,
        ways: vec![way(id, usable)],
    }
}

fn way(id: &str, usable: bool) -> Way {
    let id = id.parse().expect(id);
    let (name, driver, self_test) = (String::new(), String::new(), SelfTest::Passed);
    Way { id, name, driver, usable, reason: None, hint: None, self_test }
}

#[test]
fn a_measured_choice_among_the_ways_of_the_best_device_wins() {
    let card = DeviceInfo {
        ways: vec![way("vulkan:0", true), way("opencl:1", true), way("cuda:0", false)],
        ..info("vulkan:0", DeviceKind::Gpu, true, 8)
    };
    let small = info("vulkan:1", DeviceKind::Gpu, true, 4);
    let devices = [small, card, info("cpu", DeviceKind::Cpu, true, 64)];
    for (chosen, expected) in [
        (None, "vulkan:0"),
        (Some("opencl:1"), "opencl:1"),
        (Some("vulkan:0"), "vulkan:0"),
        // Not usable, of another device, and unknown.
        (Some("cuda:0"), "vulkan:0"),
        (Some("vulkan:1"), "vulkan:0"),
        (Some("opencl:7"), "vulkan:0"),
    ] {
        let chosen = chosen.map(|id| id.parse().expect(id));
        let choose = |ways: &[Way]| {
            assert_eq!(ways.len(), 3, "those that are not usable too, by which times are kept");
            chosen
        };
        assert_eq!(select_auto_by(&devices, &choose).to_string(), expected, "{chosen:?}");
    }
}

/// A card of which nothing was tested.
fn candidate(id: &str, memory: u64, bus: Option<u8>) -> Candidate {
    let id: DeviceId = id.parse().expect(id);
    let worth = worth(id, DeviceKind::Gpu, Some(memory)).expect("a card");
    let found = Found { name: format!("card of {id}"), caps: Caps::default() };
    let pci = bus.map(|bus| PciAddress { domain: 0, bus, device: 0, function: 0 });
    Candidate { worth, pci, is_amd: true, way: untested(id, found) }
}

/// Two cards that two backends show, and one that OpenCL alone shows.
fn three_cards() -> Vec<Candidate> {
    vec![
        candidate("opencl:0", 8, Some(1)),
        candidate("opencl:1", 4, None),
        candidate("vulkan:0", 4, Some(2)),
        candidate("vulkan:1", 8, Some(1)),
        candidate("opencl:2", 4, Some(2)),
    ]
}

#[test]
fn the_ways_of_one_card_are_tried_together_the_chosen_one_first() {
    let order = |choose: Choose<'_>| -> Vec<String> {
        in_order(three_cards(), choose).map(|id| id.to_string()).collect()
    };
    let by_rank = order(&by_rank);
    assert_eq!(by_rank, ["vulkan:1", "opencl:0", "vulkan:0", "opencl:2", "opencl:1"]);
    let last = order(&|ways| {
        assert!(ways.iter().all(|way| way.name == format!("card of {}", way.id)), "{ways:?}");
        ways.last().map(|way| way.id)
    });
    assert_eq!(last, ["opencl:0", "vulkan:1", "opencl:2", "vulkan:0", "opencl:1"]);
}

#[test]
fn the_ways_of_a_card_are_compared_only_when_better_cards_have_failed() {
    let compared = std::cell::Cell::new(0);
    let choose = |_: &[Way]| {
        compared.set(compared.get() + 1);
        None
    };
    let mut order = in_order(three_cards(), &choose);
    for (id, so_far) in
        [("vulkan:1", 1), ("opencl:0", 1), ("vulkan:0", 2), ("opencl:2", 2), ("opencl:1", 3)]
    {
        assert_eq!(order.next().map(|id| id.to_string()).as_deref(), Some(id));
        assert_eq!(compared.get(), so_far, "{id}");
    }
    assert_eq!((order.next(), compared.get()), (None, 3));
}

#[test]
fn a_card_without_an_address_is_joined_if_there_is_one_of_each_backend() {
    let named = |name: &str, candidate: Candidate| Candidate {
        way: Way { name: name.to_owned(), ..candidate.way },
        ..candidate
    };
    let vulkan = || named("Radeon RX 580 (RADV POLARIS10)", candidate("vulkan:0", 8, Some(1)));
    let opencl = || named("Radeon RX 580 (radeonsi, polaris10)", candidate("opencl:0", 8, None));
    let other = |candidate| Candidate { is_amd: false, ..candidate };
    for (candidates, joined) in [
        (vec![vulkan(), opencl()], true),
        (vec![vulkan(), opencl(), other(candidate("vulkan:1", 8, Some(2)))], true),
        (vec![vulkan(), opencl(), candidate("vulkan:1", 8, Some(2))], false),
        (vec![vulkan(), opencl(), candidate("opencl:1", 8, None)], false),
        (vec![vulkan(), named("Radeon RX 570", opencl())], false),
        (vec![vulkan(), other(opencl())], false),
        (vec![opencl()], false),
    ] {
        let mut candidates = candidates;
        find_address(&mut candidates);
        let opencl = candidates.iter().find(|it| it.way.id.backend == BackendKind::OpenCl);
        let found = opencl.is_some_and(|it| it.pci.is_some());
        let ids = candidates.iter().map(|it| it.way.id.to_string()).collect::<Vec<_>>();
        assert_eq!(found, joined, "{ids:?}");
    }
}

#[test]
fn auto_takes_the_best_usable_device_and_never_a_disguised_processor() {
    use DeviceKind::{Cpu, Gpu};
    let cpu = || info("cpu", Cpu, true, 64);
    for (devices, expected) in [
        (vec![], "cpu"),
        (vec![cpu()], "cpu"),
        (vec![cpu(), info("opencl:0", Cpu, true, 64)], "cpu"),
        (vec![cpu(), info("opencl:0", Gpu, false, 8)], "cpu"),
        (vec![cpu(), info("opencl:0", Gpu, true, 8)], "opencl:0"),
        (vec![info("opencl:0", Gpu, true, 4), info("opencl:1", Gpu, true, 8), cpu()], "opencl:1"),
        (vec![info("opencl:0", Gpu, true, 8), info("opencl:1", Gpu, true, 8)], "opencl:0"),
        (vec![info("opencl:0", Gpu, true, 8), info("cuda:1", Gpu, true, 6), cpu()], "cuda:1"),
        (vec![info("opencl:0", Gpu, true, 8), info("vulkan:0", Gpu, true, 8), cpu()], "vulkan:0"),
        (vec![cpu(), info("vulkan:0", Cpu, true, 64)], "cpu"),
        (vec![info("null", Gpu, true, 8), cpu()], "cpu"),
        (vec![info("cpu", Cpu, false, 64)], "cpu"),
    ] {
        assert_eq!(select_auto(&devices).to_string(), expected, "{devices:?}");
    }
}

/// A driver with a healthy device, a broken one, or one that compiles no programs.
struct Fake(Kind);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Absent,
    Broken,
    WithoutPrograms,
}

impl Backend for Fake {
    fn probe(&self) -> Probe {
        let caps = Caps { kind: DeviceKind::Gpu, ..Caps::default() };
        let found = (self.0 != Kind::Absent).then(|| Found { name: "card".to_owned(), caps });
        Probe { found: found.into_iter().collect(), ..Probe::default() }
    }
    fn open(&self, _ordinal: u32) -> Result<Arc<dyn Device>> {
        match self.0 {
            Kind::Broken => Err(Error::Launch { kernel: "k".to_owned(), reason: "no".to_owned() }),
            _ => Ok(Arc::new(crate::backend::null::NullDevice::new(None))),
        }
    }
}

#[test]
fn what_does_not_open_or_compiles_nothing_leaves_the_processor() {
    const fn opencl(backend: &'static dyn Backend) -> [Line; 1] {
        [Line { backend: Some(backend), ..*BackendKind::OpenCl.line() }]
    }
    static TABLES: [[Line; 1]; 3] = [
        opencl(&Fake(Kind::Absent)),
        opencl(&Fake(Kind::Broken)),
        opencl(&Fake(Kind::WithoutPrograms)),
    ];
    for table in &TABLES {
        assert!(open_best(table, &by_rank).is_none());
    }
}

#[test]
fn auto_opens_what_auto_selects() -> Result<()> {
    let devices = crate::probe::probe(&ProbeOptions::default());
    assert_eq!(open_auto()?.id(), select_auto(&devices));
    Ok(())
}
