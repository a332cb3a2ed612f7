//! Signing in: the ways, the rights and their end.

use crate::driver::{Browser, DESK};
use fantoccini::Locator;
use serde_json::json;

async fn enter(browser: &Browser, key: &str) {
    let field = browser.client.find(Locator::Css("input[type=password]")).await.expect("a field");
    field.clear().await.expect("ours");
    field.send_keys(key).await.expect("ours");
    browser.click("Sign in").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_lets_in_as_far_as_it_reaches_and_a_wrong_one_does_not() {
    let Some(browser) = Browser::start(DESK, "2").await else { return };
    browser.client.goto(&browser.address()).await.expect("reached");
    browser.shows("h1", "Sign in").await;
    browser.is_accessible("sign in").await;
    enter(&browser, "lgp_nobody").await;
    browser.shows("#trouble", "the key is unknown, expired or revoked").await;
    let made = browser.cluster.run(&["keys", "create", "--role", "infer"]).json();
    enter(&browser, made["key"].as_str().expect("a key")).await;
    browser.shows("#trouble", "this key is for inference alone").await;
    browser.shows("h1", "Sign in").await;
    let made = browser.cluster.run(&["keys", "create", "--role", "submit"]).json();
    enter(&browser, made["key"].as_str().expect("a key")).await;
    browser.shows("h1", "Overview").await;
    browser.open("Machines").await;
    browser.shows(".cards", "local-1").await;
    let buttons = browser.text("main button").await;
    assert!(!buttons.contains("Add a machine") && !buttons.contains("leave"), "{buttons}");
    browser.open("Keys").await;
    browser.shows("main", "Only administrators see keys").await;

    // The key is revoked while its page is open.
    let id = made["id"].as_str().expect("a name");
    browser.open("Overview").await;
    browser.cluster.run(&["keys", "revoke", id]).json();
    browser.shows("h1", "Sign in").await;
    browser.shows("#trouble", "the key is unknown, expired or revoked").await;
    browser.is_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_signs_in_once_and_signing_out_ends_it() {
    let Some(browser) = Browser::start(DESK, "2").await else { return };
    let link = browser.cluster.run(&["dashboard"]).json();
    let url = link["url"].as_str().expect("an address");
    browser.client.goto(url).await.expect("reached");
    browser.shows("h1", "Overview").await;
    let shown = browser.client.current_url().await.expect("a page").to_string();
    assert!(!shown.contains("link="), "{shown}");
    let key = browser.script("return sessionStorage.getItem('radeon-cluster.key')").await;
    // Storage holds nothing for other tabs, and this tab's key is dropped.
    assert_eq!(browser.script("return localStorage.length").await, json!(0));
    browser.click("Sign out").await;
    browser.shows("h1", "Sign in").await;
    assert_eq!(browser.script("return sessionStorage.length").await, json!(0));
    enter(&browser, key.as_str().expect("a key")).await;
    browser.shows("#trouble", "the key is unknown, expired or revoked").await;
    browser.client.goto(url).await.expect("reached");
    browser.shows("#trouble", "the link was used before, or is over").await;
    browser.shows("h1", "Sign in").await;
    browser.is_quiet().await;
}
