//! The dashboard as a user sees it: the real binary, and headless Chromium.

#[path = "../cli/harness.rs"]
#[expect(dead_code, reason = "these tests need a part of it")]
mod harness;

mod behind;
mod crowd;
mod driver;
mod pages;
mod signing_in;
