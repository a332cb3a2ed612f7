//! Joining, choosing and reporting, on fixture hosts and made-up backends.

use super::*;
use crate::auto::select_auto;
use crate::backend::Backend;
use crate::device::Device;
use crate::diagnose::{Status, findings};
use crate::program::Program;
use crate::self_test::TestOp;
use std::sync::Arc;

fn fixture(host: &str) -> ProbeOptions {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    ProbeOptions::of_tree(folder.join(host))
}

/// A driver that shows the given devices; opening one opens the recording device.
struct Fake(&'static [(&'static str, &'static str, Option<&'static str>)]);

impl Backend for Fake {
    fn probe(&self) -> Probe {
        let found = |(name, vendor, pci): &(&str, &str, Option<&str>)| Found {
            name: (*name).to_owned(),
            caps: Caps {
                kind: DeviceKind::Gpu,
                vendor: (*vendor).to_owned(),
                pci: pci.map(|text| text.parse().expect("an address")),
                ..Caps::default()
            },
        };
        Probe { found: self.0.iter().map(found).collect(), ..Probe::default() }
    }
    fn open(&self, _ordinal: u32) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(crate::backend::null::NullDevice::new(None)))
    }
}

const fn opencl(backend: &'static dyn Backend) -> [Line; 1] {
    [Line { backend: Some(backend), ..*BackendKind::OpenCl.line() }]
}

#[test]
fn the_processor_is_usable_and_comes_from_its_backend() {
    let devices = probe(&fixture("no-drm"));
    let cpu = devices.iter().find(|info| info.id == "cpu").expect("there is a processor");
    assert!(cpu.usable && cpu.reason.is_none() && cpu.self_test == SelfTest::Passed);
    assert_eq!(cpu.device, Some(DeviceId::CPU));
    assert!(devices.iter().all(|info| !info.id.starts_with("null")), "null is never listed");
    for info in devices.iter().filter(|info| !info.usable) {
        assert!(info.reason.is_some(), "{info:?}");
    }
    assert_eq!(select_auto(&devices), DeviceId::CPU);
}

#[test]
fn a_card_without_a_driver_is_reported_with_reason_and_line() {
    for (host, id, name, backend, memory) in [
        ("rx580", "pci:0000:01:00.0", "AMD Radeon RX 580", "opencl", Some(8 << 30)),
        ("rx570", "pci:0000:04:00.0", "AMD Radeon RX 570", "opencl", Some(4 << 30)),
        ("vegam", "pci:0000:01:00.0", "AMD Radeon RX Vega M GH", "opencl", Some(4 << 30)),
        ("apu", "pci:0000:38:00.0", "AMD Radeon Vega Graphics", "opencl", Some(2 << 30)),
        ("suspended", "pci:0000:01:00.0", "AMD Radeon RX 580", "opencl", Some(8 << 30)),
        ("nvidia", "pci:0000:01:00.0", "NVIDIA GPU 10de:1c03", "cuda", None),
    ] {
        static NONE: [Line; 2] = [
            Line { backend: Some(&Fake(&[])), ..*BackendKind::OpenCl.line() },
            Line { backend: Some(&Fake(&[])), ..*BackendKind::Cuda.line() },
        ];
        let devices = Survey::new(&NONE, &fixture(host)).devices;
        let [info] = devices.as_slice() else { panic!("{host}: {devices:?}") };
        assert_eq!((info.id.as_str(), info.name.as_str()), (id, name));
        assert_eq!((info.backend.as_str(), info.memory_bytes), (backend, memory), "{host}");
        assert!(!info.usable && info.reason.is_some() && info.hint.is_some(), "{host}");
        assert_eq!((info.device, info.self_test), (None, SelfTest::NotRun), "{host}");
    }
}

#[test]
fn cards_join_their_devices() {
    static BY_ADDRESS: [Line; 1] =
        opencl(&Fake(&[("AMD Radeon RX 580 Series (radeonsi)", "AMD", Some("0000:01:00.0"))]));
    static BY_BEING_ALONE: [Line; 1] = opencl(&Fake(&[("Ellesmere", "AMD", None)]));
    for table in [&BY_ADDRESS, &BY_BEING_ALONE] {
        let devices = Survey::new(table, &fixture("rx580")).devices;
        let [info] = devices.as_slice() else { panic!("{devices:?}") };
        assert_eq!((info.id.as_str(), info.name.as_str()), ("opencl:0", "AMD Radeon RX 580"));
        assert_eq!(info.telemetry.as_ref().and_then(|it| it.load_percent), Some(97));
        let reason = info.reason.as_deref().unwrap_or_default();
        let expected = "self-test passed; it compiles no programs";
        assert_eq!((reason, info.usable, info.self_test), (expected, false, SelfTest::Passed));
    }
    static OTHER: [Line; 1] = opencl(&Fake(&[("Another", "AMD", Some("0000:99:00.0"))]));
    static TWO: [Line; 1] = opencl(&Fake(&[("One", "AMD", None), ("Two", "AMD", None)]));
    for (table, count) in [(&OTHER, 2), (&TWO, 3)] {
        let devices = Survey::new(table, &fixture("rx580")).devices;
        assert_eq!(devices.len(), count, "an unclear match is none: {devices:?}");
        assert!(devices.iter().any(|info| info.id == "pci:0000:01:00.0"));
    }
}

#[test]
fn a_card_that_two_backends_see_is_one_device_with_two_ways() {
    const SEEN: &[(&str, &str, Option<&str>)] = &[("RADV POLARIS10", "AMD", Some("0000:01:00.0"))];
    // rusticl of old tells no address.
    for opencl in [Some("0000:01:00.0"), None] {
        let drivers: &'static Fake =
            Box::leak(Box::new(Fake(Box::leak(Box::new([("Ellesmere", "AMD", opencl)])))));
        let table: &'static [Line] = Box::leak(Box::new([
            Line { backend: Some(drivers), ..*BackendKind::OpenCl.line() },
            Line { backend: Some(&Fake(SEEN)), ..*BackendKind::Vulkan.line() },
        ]));
        let devices = Survey::new(table, &fixture("rx580")).devices;
        let [info] = devices.as_slice() else { panic!("{devices:#?}") };
        assert_eq!((info.id.as_str(), info.name.as_str()), ("vulkan:0", "AMD Radeon RX 580"));
        let ways: Vec<String> = info.ways.iter().map(|way| way.id.to_string()).collect();
        assert_eq!(ways, ["vulkan:0", "opencl:0"]);
        assert!(info.is("opencl:0".parse().expect("an id")), "{info:?}");
        assert!(!info.is("opencl:1".parse().expect("an id")), "{info:?}");
        assert_eq!(info.telemetry.as_ref().and_then(|it| it.load_percent), Some(97));
        let json = serde_json::to_value(info).expect("serializes");
        assert_eq!(json["ways"][1]["id"], "opencl:0");
    }
    static TWO: [Line; 1] = [Line {
        backend: Some(&Fake(&[("One", "AMD", None), ("Two", "AMD", None)])),
        ..*BackendKind::Vulkan.line()
    }];
    let devices = Survey::new(&TWO, &fixture("no-drm")).devices;
    assert_eq!(devices.len(), 2, "devices without an address are never joined");
}

/// A driver whose device gets one operation wrong.
struct Corrupting(TestOp);

impl Backend for Corrupting {
    fn probe(&self) -> Probe {
        Fake(&[("Corrupting", "AMD", None)]).probe()
    }
    fn open(&self, _ordinal: u32) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(crate::self_test::tests::Corrupting::new(self.0)))
    }
}

#[test]
fn a_device_that_calculates_wrongly_is_refused_with_the_operation() {
    static TABLES: [[Line; 1]; 5] = [
        opencl(&Corrupting(TestOp::Fma)),
        opencl(&Corrupting(TestOp::Exp)),
        opencl(&Corrupting(TestOp::DivideSqrt)),
        opencl(&Corrupting(TestOp::Integer)),
        opencl(&Corrupting(TestOp::GroupSum)),
    ];
    let options = fixture("no-drm");
    for (table, op) in TABLES.iter().zip(TestOp::ALL) {
        let opened = open_in(table, DeviceId::new(BackendKind::OpenCl, 0));
        let error = opened.expect_err("it calculates wrongly");
        assert!(
            matches!(error, Error::SelfTest { op: named, .. } if named == op.name()),
            "{error}"
        );
        let survey = Survey::new(table, &options);
        let [device] = survey.devices.as_slice() else { panic!("{:?}", survey.devices) };
        assert_eq!((device.usable, device.self_test), (false, SelfTest::Failed));
        assert!(device.reason.as_ref().is_some_and(|it| it.contains(op.name())), "{device:?}");
        let findings = findings(&survey, &options);
        let told = findings.iter().find(|it| it.subject == "opencl:0").expect("is told");
        assert_eq!(told.status, Status::Fail);
        assert!(told.message.contains(op.name()) && told.fix.is_some(), "{told:?}");
        assert_eq!(select_auto(&survey.devices), DeviceId::CPU);
    }
}

/// A device whose driver crashes on a program without kernels, as NVIDIA's OpenCL does.
#[derive(Debug)]
struct Fragile {
    inner: crate::backend::null::NullDevice,
    id: DeviceId,
    caps: Caps,
}

impl Device for Fragile {
    crate::pass_on!(inner: name, free_bytes, allocate, pinned, queue, load, arithmetic);

    fn id(&self) -> DeviceId {
        self.id
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn compile(&self, source: &str, _options: &str) -> Result<Arc<dyn Program>> {
        panic!("it is given {source:?}")
    }
}

#[test]
fn no_device_is_given_a_program_without_kernels() {
    for kind in [BackendKind::OpenCl, BackendKind::Cuda] {
        let inner = crate::backend::null::NullDevice::new(None);
        let caps = Caps { programs: true, ..Caps::default() };
        Tested::new(Arc::new(Fragile { inner, id: DeviceId::new(kind, 0), caps }));
    }
}

/// A driver that hangs or panics.
struct Stuck(bool);

impl Backend for Stuck {
    fn probe(&self) -> Probe {
        Probe::default()
    }
    fn open(&self, _ordinal: u32) -> Result<Arc<dyn Device>> {
        assert!(self.0, "a driver's panic");
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn a_driver_that_hangs_or_panics_does_not_take_the_program_along() {
    static HANGING: [Line; 1] = opencl(&Stuck(true));
    static PANICKING: [Line; 1] = opencl(&Stuck(false));
    let id = DeviceId::new(BackendKind::OpenCl, 0);
    for (table, limit, part) in [
        (&HANGING, Duration::from_millis(20), "no answer within"),
        (&PANICKING, Duration::from_secs(60), "ended the test"),
    ] {
        let error = test_in_time(table, id, limit).expect_err("it cannot pass");
        assert!(matches!(error, Error::SelfTest { op: "opening", .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_hidden_backend_leaves_the_card_and_its_reason() {
    static WITHOUT: [Line; 1] = [Line { backend: None, ..*BackendKind::OpenCl.line() }];
    let devices = Survey::new(&WITHOUT, &fixture("rx580")).devices;
    let reason = devices[0].reason.as_deref().unwrap_or_default();
    assert!(reason.starts_with("this build has no opencl backend; "), "{reason}");
    assert!(reason.contains("once mended"), "{reason}");
    assert_eq!(devices[0].hint.as_deref(), Some("cargo build --release --features rocm"));
}

#[test]
fn json_has_the_promised_keys() {
    let devices = probe(&fixture("rx580"));
    let json = serde_json::to_value(&devices).expect("serializes");
    for device in json.as_array().expect("a list") {
        for key in ["id", "name", "backend", "memory_bytes", "usable", "reason", "hint", "ways"] {
            assert!(device.get(key).is_some(), "{key} is missing in {device}");
        }
    }
}
