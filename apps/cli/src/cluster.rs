//! A coordinator with its local workers: what `start` and `demo` run.

pub(crate) mod bootstrap;
pub(crate) mod digits;
pub(crate) mod driver;
mod host;
mod launch;
pub(crate) mod member;
mod scale;
mod serve;
mod signals;
pub(crate) mod survey;
pub(crate) mod temporary;

pub(crate) use bootstrap::HUGE_PAGES;
pub(crate) use host::{host, runtime};
pub(crate) use launch::{Cluster, Plan};
pub(crate) use serve::{Listeners, Service, access, serve};
pub(crate) use signals::{Signals, on_interrupt};
