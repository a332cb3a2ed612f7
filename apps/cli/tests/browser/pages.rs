//! The contents and actions of each page.

use crate::driver::{Browser, DESK};
use fantoccini::Locator;
use serde_json::json;

/// The narrowest window that Chromium makes is a little wider than a phone.
const PHONE: (u32, u32) = (500, 900);
const PAGES: [&str; 7] = ["Overview", "Machines", "Tasks", "Models", "Try a model", "Log", "Keys"];

/// A ring of ink on paper, which is a zero.
fn zero() -> image::GrayImage {
    image::GrayImage::from_fn(64, 64, |x, y| {
        let (x, y) = ((x as f32 - 32.0) / 16.0, (y as f32 - 32.0) / 24.0);
        image::Luma([if (0.75..1.15).contains(&x.hypot(y)) { 0 } else { 255 }])
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_is_told_what_it_is_and_the_task_is_found_again() {
    let Some(browser) = Browser::at("Try a model", "2").await else { return };
    browser.shows("select", "digits/1").await;
    let picture = browser.cluster.world.path("zero.png");
    zero().save(&picture).expect("the folder is ours");
    browser.fill("input[type=file]", &picture.display().to_string()).await;
    browser.shows("main", "The largest value of logits is at place 0").await;
    browser.shows("main", "in the model").await;
    browser.shows("main", "on cpu of local-").await;
    browser.is_accessible("an answer").await;

    browser.open("Tasks").await;
    browser.shows("tbody", "succeeded").await;
    browser.press("tbody button").await;
    browser.shows("dialog", "What was decided about it").await;
    browser.shows("dialog", "digits/1").await;
    browser.is_accessible("a task").await;
    browser.click("Close").await;
    browser.open("Overview").await;
    browser.shows("main", "2 workers are ready").await;
    browser.shows(".numbers", "Succeeded\n1").await;
    browser.shows(".chart", "tasks a second end at present").await;
    browser.is_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_filtered_and_cancelled() {
    let Some(browser) = Browser::start(DESK, "0").await else { return };
    let image = browser.cluster.world.path("image.npy");
    std::fs::write(&image, digits()).expect("the folder is ours");
    let input = format!("image={}", image.display());
    browser.cluster.run(&["submit", "--model", "digits", "--input", &input]).json();
    browser.sign_in().await;
    browser.shows("main", "No worker is ready").await;
    browser.shows("main", "Waiting tasks by model").await;
    browser.shows("main", "normal").await;
    browser.open("Tasks").await;
    browser.shows("tbody", "queued").await;
    let state = browser.client.find(Locator::Css("select")).await.expect("a filter");
    state.select_by_value("failed").await.expect("a state");
    browser.shows("main", "No tasks like that").await;
    state.select_by_value("queued").await.expect("a state");
    browser.shows("tbody", "queued").await;
    browser.press("tbody button").await;
    browser.click("Cancel the task").await;
    browser.click("Cancel it").await;
    browser.shows("#said", "is cancelled").await;
    state.select_by_value("cancelled").await.expect("a state");
    browser.shows("tbody", "cancelled").await;
    browser.press("tbody button").await;
    browser.click("Run it again").await;
    browser.shows("#said", "again").await;
    state.select_by_value("queued").await.expect("a state");
    browser.shows("tbody", "queued").await;
    browser.is_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_added_unloaded_and_removed_and_a_bad_file_is_explained() {
    let Some(browser) = Browser::at("Models", "2").await else { return };
    browser.shows(".cards", "digits, version 1").await;
    browser.press("summary").await;
    let add = async |name: &str, bytes: &[u8]| {
        let path = browser.cluster.world.write(name, bytes);
        browser.fill("input[type=file]", &path.display().to_string()).await;
        browser.click("Add").await;
    };
    add("broken.onnx", b"no model").await;
    browser.shows("#trouble", "model").await;
    let digits = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits/digits.onnx");
    browser.script("document.querySelector('main form').reset()").await;
    add("second one.onnx", &std::fs::read(digits).expect("in the tree")).await;
    browser.shows(".cards", "second-one, version 1").await;
    browser.shows(".cards", "ready on local-1, local-2").await;
    browser.is_accessible("models").await;
    browser.click("Where its time goes").await;
    browser.shows("dialog", "A run of zeros took").await;
    browser.shows("dialog table", "Conv").await;
    browser.is_accessible("a profile").await;
    browser.click("Close").await;
    browser.click("Where its memory goes").await;
    browser.shows("dialog", "share one block of").await;
    let boxes =
        browser.script("return document.querySelectorAll('dialog .plan rect').length").await;
    assert!(boxes.as_u64() > Some(1), "tensors of the picture: {boxes}");
    browser.is_accessible("a plan").await;
    browser.click("Close").await;
    let broken = browser.cluster.world.path("data/models/broken/1");
    std::fs::create_dir_all(&broken).expect("the folder is ours");
    std::fs::write(broken.join("model.onnx"), b"no model").expect("the folder is ours");
    browser.shows(".cards", "broken, version 1").await;
    browser.shows(".card.unavailable .warning", "model").await;
    std::fs::remove_dir_all(broken.parent().expect("a folder")).expect("ours");
    browser
        .script(
            "[...document.querySelectorAll('.card')].at(-1).querySelector('button.danger').click()",
        )
        .await;
    browser.click("Remove it").await;
    browser.shows("#said", "is removed").await;
    browser.click("Unload").await;
    browser.shows(".cards", "unavailable").await;
    browser.click("Load").await;
    browser.shows(".cards", "ready on").await;
    browser.is_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_added_by_what_the_dialog_says_and_leaves_again() {
    let Some(browser) = Browser::at("Machines", "2").await else { return };
    // The processor through OpenCL, if installed, is reported a moment later.
    browser.shows(".cards", "cpu: ").await;
    browser.shows(".cards", "version ").await;
    browser.shows(".cards", "has digits/1 (128 KB)").await;
    browser.click("Add a machine").await;
    browser.click("Make a token").await;
    browser.shows("dialog", "Other machines cannot reach this coordinator").await;
    browser.shows("dialog pre", "radeon-cluster join 127.0.0.1:").await;
    let width = browser.script("return document.querySelector('dialog img').naturalWidth").await;
    assert!(width.as_u64() >= Some(100), "the code for a camera: {width}");
    browser.is_accessible("the dialog").await;
    let command = browser.text("dialog pre").await;
    let arguments: Vec<&str> = command.split_whitespace().skip(1).collect();
    let joined = browser.cluster.world.spawn(&[&arguments[..], &["--name", "visitor"]].concat());
    browser.click("Close").await;
    browser.shows(".cards", "visitor").await;
    browser.shows("table", "used up").await;
    browser.is_accessible("machines").await;
    let leave = "[...document.querySelectorAll('.card')].find((it) => it.dataset.id === 'visitor').querySelector('button').click()";
    browser.script(leave).await;
    browser.click("Let it leave").await;
    crate::harness::output(joined);
    browser.is_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_filtered_and_goes_on() {
    let Some(browser) = Browser::at("Log", "2").await else { return };
    browser.shows("tbody", "worker joined").await;
    browser.shows("tbody", "loading").await;
    browser.fill("input[type=search]", "an API key was made").await;
    browser.shows("main", "No lines like that").await;
    browser.cluster.run(&["keys", "create", "--role", "infer"]).json();
    browser.shows("tbody", "an API key was made").await;
    browser.is_accessible("the log").await;
    browser.is_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_made_and_revoked() {
    let Some(browser) = Browser::at("Keys", "2").await else { return };
    browser.shows("main", "There is no key but the one").await;
    browser.click("Sign in on a phone").await;
    browser.shows("dialog pre", "#link=").await;
    let link = browser.text("dialog pre").await;
    let width = browser.script("return document.querySelector('dialog img').naturalWidth").await;
    assert!(width.as_u64() >= Some(100), "the code for a camera: {width}");
    browser.is_accessible("a link for a phone").await;
    browser.click("Close").await;
    // The link's code works on this machine too.
    let code = link.rsplit('=').next().unwrap_or_default();
    let body = json!({ "code": code }).to_string();
    let exchange = format!(
        "const done = arguments[0]; fetch('api/v1/cluster/session', {{ method: 'POST', body: {body:?} }})
            .then((it) => done(it.status))"
    );
    assert_eq!(browser.client.execute_async(&exchange, Vec::new()).await.expect("it ends"), 201);
    browser.press("summary").await;
    browser.fill("input[type=text]", "camera").await;
    browser.click("Make a key").await;
    browser.shows("dialog pre", "lgp_").await;
    browser.click("Close").await;
    browser.shows("tbody", "camera").await;
    browser.is_accessible("keys").await;
    browser.click("Revoke").await;
    browser.click("Revoke it").await;
    browser.shows("main", "There is no key but the one").await;
    browser.is_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_for_everybody_and_for_a_narrow_window() {
    let Some(browser) = Browser::start(PHONE, "2").await else { return };
    browser.sign_in().await;
    for page in PAGES {
        browser.open(page).await;
        browser.is_accessible(page).await;
        // A screen reader continues at the page's heading.
        let at = browser.script("return document.activeElement.textContent").await;
        assert!(page == "Overview" || at == json!(page), "{page}: {at}");
    }
    browser.is_quiet().await;
}

/// One picture in NumPy's format: 64 zeros.
pub(crate) fn digits() -> Vec<u8> {
    let head = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }";
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{head:<117}\n").as_bytes());
    bytes.resize(128 + 64 * 4, 0);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_read_by_everybody() {
    let Some(browser) = Browser::start(DESK, "2").await else { return };
    let image = browser.cluster.world.path("image.npy");
    std::fs::write(&image, digits()).expect("the folder is ours");
    let input = format!("image={}", image.display());
    browser.cluster.run(&["submit", "--model", "digits", "--input", &input, "--wait"]).json();
    let page = browser.cluster.world.path("report.html");
    browser.cluster.run(&["stats", "--report", &page.display().to_string()]).json();
    browser.client.goto(&format!("file://{}", page.display())).await.expect("there");
    browser.shows("h1", "Performance of a cluster").await;
    browser.shows("main", "1 succeeded and 0 failed").await;
    browser.is_accessible("report").await;
    browser.client.set_window_size(PHONE.0, PHONE.1).await.expect("resized");
    browser.is_accessible("report on a phone").await;
    browser.is_quiet().await;
}
