//! Ranking devices, and opening the best of made-up drivers.

use super::*;
use crate::backend::{Backend, Found, Probe};
use crate::caps::Caps;
use crate::info::SelfTest;

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
        assert!(open_best(table).is_none());
    }
}

#[test]
fn auto_opens_what_auto_selects() -> Result<()> {
    let devices = crate::probe::probe(&ProbeOptions::default());
    assert_eq!(open_auto()?.id(), select_auto(&devices));
    Ok(())
}
