//! The dashboard, as a person with a browser uses it: the real binary, and Chromium without a window.

#[path = "../cli/harness.rs"]
#[expect(dead_code, reason = "these tests need a part of it")]
mod harness;

mod behind;
mod crowd;
mod driver;
mod pages;
mod signing_in;
