//! Triton's GPU metrics, from a worker's report.

use crate::rig::{Options, Rig};
use lgp_distributed::DeviceStatus;

const LABELS: &str = r#"{gpu_uuid="w1/opencl:0",worker="w1",device="opencl:0"}"#;

pub(crate) fn card() -> DeviceStatus {
    DeviceStatus {
        device: "opencl:0".into(),
        backend: "opencl".into(),
        vram_used_bytes: Some(1 << 20),
        vram_total_bytes: Some(1 << 30),
        utilisation: Some(0.25),
        power_w: Some(50.0),
        ..DeviceStatus::default()
    }
}

pub(crate) async fn rig(device: DeviceStatus) -> Rig {
    Rig::with(Options { device: Some(device), ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_has_tritons_figures() {
    let rig = rig(card()).await;
    let page = rig.get("/metrics").await.text();
    for (name, value) in [
        ("nv_gpu_utilization", "0.25"),
        ("nv_gpu_memory_total_bytes", "1073741824"),
        ("nv_gpu_memory_used_bytes", "1048576"),
        ("nv_gpu_power_usage", "50"),
    ] {
        assert!(page.contains(&format!("# TYPE {name} gauge\n")), "{name}: {page}");
        assert!(page.contains(&format!("{name}{LABELS} {value}\n")), "{name}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn energy_is_power_over_time() {
    let rig = rig(card()).await;
    let begun = std::time::Instant::now();
    let joules = |page: &str| {
        let line = page.lines().find(|line| line.starts_with("nv_energy_consumption{"))?;
        line.strip_prefix("nv_energy_consumption")?.strip_prefix(LABELS)?.trim().parse::<f64>().ok()
    };
    let before = joules(&rig.until("/metrics", |a| joules(&a.text()).is_some()).await.text());
    let wanted = before.unwrap() + 40.0;
    let page = rig.until("/metrics", |a| joules(&a.text()) >= Some(wanted)).await.text();
    assert!(page.contains("# TYPE nv_energy_consumption counter\n"), "{page}");
    // 50 W make 40 J in 0.8 s; a heartbeat may have been in flight for part of that.
    assert!(begun.elapsed().as_millis() >= 300, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_sensor_says_is_no_series() {
    let bare = DeviceStatus { utilisation: None, power_w: None, ..card() };
    let page = rig(bare).await.get("/metrics").await.text();
    assert!(page.contains("nv_gpu_memory_used_bytes{"), "{page}");
    for name in ["nv_gpu_utilization", "nv_gpu_power_usage", "nv_energy_consumption"] {
        assert!(!page.contains(name), "{page}");
    }
    let page = Rig::start().await.get("/metrics").await.text();
    assert!(!page.contains("nv_gpu_") && !page.contains("nv_energy_"), "a CPU is no card: {page}");
}
