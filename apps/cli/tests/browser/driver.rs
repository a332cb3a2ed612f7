//! A browser that a test drives.

use crate::harness::{Cluster, World};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// The size of a window on a desk, in pixels.
pub(crate) const DESK: (u32, u32) = (1280, 900);

/// A browser with one tab, and the cluster whose dashboard it shows.
pub(crate) struct Browser {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    driver: Child,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser itself ends with the world that it was started in.
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// Starts a cluster and a browser; without a browser, prints the skip and answers nothing.
    pub(crate) async fn start((width, height): (u32, u32), workers: &str) -> Option<Self> {
        let world = World::new();
        let Some((driver, port)) = chromedriver(&world) else {
            println!(
                "skipped: chromium: chromedriver is not installed: apt-get install chromium-driver"
            );
            return None;
        };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            &format!("--window-size={width},{height}"),
        ];
        let options = json!({ "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" } });
        let capabilities = options.as_object().expect("an object").clone();
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities);
        let client = builder.connect(&format!("http://127.0.0.1:{port}")).await.expect("a session");
        let cluster = Cluster::start(world, workers);
        Some(Self { cluster, client, driver })
    }

    /// As [`Self::start`] at desk size, signed in, at a page.
    pub(crate) async fn at(page: &str, workers: &str) -> Option<Self> {
        let browser = Self::start(DESK, workers).await?;
        browser.sign_in().await;
        browser.open(page).await;
        Some(browser)
    }

    /// The address of the dashboard, which ends with a slash.
    pub(crate) fn address(&self) -> String {
        format!("{}/", self.cluster.endpoint["http"].as_str().expect("an address"))
    }

    /// Opens the dashboard as `radeon-cluster dashboard` does.
    pub(crate) async fn sign_in(&self) {
        let link = self.cluster.run(&["dashboard"]).json();
        self.client.goto(link["url"].as_str().expect("an address")).await.expect("reached");
        self.shows("h1", "Overview").await;
    }

    /// Goes to a page by its name in the list of pages.
    pub(crate) async fn open(&self, page: &str) {
        self.client
            .find(Locator::LinkText(page))
            .await
            .expect("a link")
            .click()
            .await
            .expect("shown");
        self.shows("h1", page).await;
    }

    pub(crate) async fn click(&self, button: &str) {
        let open = self.script("return Boolean(document.querySelector('dialog[open]'))").await;
        let place = if open == json!(true) { "//dialog[@open]" } else { "" };
        let shown = "not(ancestor-or-self::*[@hidden])";
        let path = format!("{place}//button[{shown} and normalize-space()='{button}']");
        let until = Instant::now() + PATIENCE;
        loop {
            let clicked = match self.client.find(Locator::XPath(&path)).await {
                Ok(found) => found.click().await,
                Err(error) => Err(error),
            };
            match clicked {
                Ok(()) => return,
                Err(error) => assert!(Instant::now() < until, "button {button}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Clicks the first element that a selector finds.
    pub(crate) async fn press(&self, css: &str) {
        self.client.find(Locator::Css(css)).await.expect(css).click().await.expect(css);
    }

    /// Types text into a field, or sets the file of a file field.
    pub(crate) async fn fill(&self, css: &str, text: &str) {
        self.client.find(Locator::Css(css)).await.expect(css).send_keys(text).await.expect(css);
    }

    /// The result of a script.
    pub(crate) async fn script(&self, text: &str) -> Value {
        self.client.execute(text, Vec::new()).await.expect(text)
    }

    pub(crate) async fn text(&self, css: &str) -> String {
        let texts = format!(
            "return [...document.querySelectorAll({css:?})].map((it) => it.innerText).join('\\n')"
        );
        self.script(&texts).await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an element's text contains `part`.
    #[track_caller]
    pub(crate) fn shows<'a>(
        &'a self,
        css: &'a str,
        part: &'a str,
    ) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let until = Instant::now() + PATIENCE;
            loop {
                let text = self.text(css).await;
                if text.contains(part) {
                    return;
                }
                if Instant::now() >= until {
                    let page: String = self.text("body").await.chars().take(4_000).collect();
                    let text: String = text.chars().take(1_000).collect();
                    panic!(
                        "{caller}: {css} shows {text:?}, expected {part:?}, on the page {page:?}"
                    );
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Checks that the browser's console is empty: no error, and no violation of the content policy.
    pub(crate) async fn is_quiet(&self) {
        let logged = self.client.issue_cmd(Log).await.expect("Chromium has it");
        let entries = logged.as_array().cloned().unwrap_or_default();
        // A missing favicon and provoked refusals are network entries, not errors of the page.
        let wrong = entries.iter().filter(|it| it["source"] != "network").collect::<Vec<_>>();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Checks the page with axe-core, and that it is no wider than its window.
    pub(crate) async fn is_accessible(&self, page: &str) {
        let wide = self.script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth",
        );
        assert_eq!(wide.await, json!(0), "{page} is wider than its window");
        let Ok(axe) = std::fs::read_to_string(axe()) else {
            println!(
                "skipped: axe: axe-core is not installed: npm install --prefix target/axe axe-core"
            );
            return;
        };
        self.script(&format!("{axe}; window.axe = axe")).await;
        let run = "const done = arguments[0]; axe.run(document, { resultTypes: ['violations'] })
            .then((found) => done(found.violations.map((it) => [it.id, it.nodes.map((node) => node.html)])))
            .catch((error) => done(String(error)))";
        let found = self.client.execute_async(run, Vec::new()).await.expect("it ends");
        assert_eq!(found, json!([]), "{page}");
    }
}

/// Chromium's command that reads the console's log.
#[derive(Debug)]
struct Log;

impl fantoccini::wd::WebDriverCompatibleCommand for Log {
    fn endpoint(
        &self,
        base: &url::Url,
        session: Option<&str>,
    ) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({ "type": "browser" }).to_string()))
    }
}

fn axe() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("target/axe/node_modules/axe-core/axe.min.js")
}

/// Starts the browser's driver on a free port.
fn chromedriver(world: &World) -> Option<(Child, u16)> {
    let mut command = Command::new("chromedriver");
    // The world finds its processes by this variable.
    command.env("LGP_TEST_WORLD", world.folder.path());
    command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut driver = command.spawn().ok()?;
    let said = BufReader::new(driver.stdout.take().expect("it is piped"));
    let (sender, port) = channel();
    std::thread::spawn(move || {
        // Reads to the end: the driver would end if its pipe closed.
        for line in said.lines().map_while(Result::ok) {
            let port = line
                .rsplit_once("successfully on port ")
                .map(|(_, port)| port.trim_end_matches('.').parse());
            port.and_then(Result::ok).map(|port| sender.send(port));
        }
    });
    let port = port.recv_timeout(PATIENCE).expect("chromedriver says its port");
    Some((driver, port))
}
