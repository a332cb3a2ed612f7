//! `dashboard`: the cluster's page in a browser.

use crate::failure::Result;
use crate::output::Output;
use crate::rest::Target;
use serde::Deserialize;
use serde_json::json;

/// Flags of `dashboard`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster dashboard\n\n\
    Without a desktop, or with --json, the link is printed: it signs in once, within two minutes, as\n\
    whoever asks for it.")]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

#[derive(Deserialize)]
struct SignIn {
    code: String,
    expires_s: u64,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let client = args.target.connect()?;
    let made: SignIn = client.post("sign-ins", &json!({}))?;
    let url = format!("{}/#link={}", client.base(), made.code);
    let opened = !out.is_json() && has_desktop() && open::that_detached(&url).is_ok();
    let value = json!({ "url": url, "expires_s": made.expires_s, "opened": opened });
    out.emit(&value, |_| match opened {
        true => format!("opened {}/ in the browser\n", client.base()),
        false => format!("open this within two minutes; it signs in once:\n{url}\n"),
    })
}

/// Whether there is a desktop on which to open a browser.
fn has_desktop() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !cfg!(target_os = "linux") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}
