//! Plans a model's memory in another process, so that the coordinator stays small.

use lgp_server::PlanError;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The time limit of a plan.
const LIMIT: Duration = Duration::from_secs(60);

/// The memory of a run of the model in a file, as `radeon-cluster plan FILE --json` prints it.
pub(super) async fn plan(model: &Path) -> Result<serde_json::Value, PlanError> {
    let program = std::env::current_exe().map_err(PlanError::NotStarted)?;
    let mut command = Command::new(program);
    command.arg("plan").arg(model).args(["--threads", "1", "--json"]);
    planned(command, model, LIMIT).await
}

async fn planned(
    mut command: Command,
    model: &Path,
    limit: Duration,
) -> Result<serde_json::Value, PlanError> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(limit, command.output()).await;
    let output = ended.map_err(|_| PlanError::TooLong { limit })?.map_err(PlanError::NotStarted)?;
    if output.status.success() {
        return serde_json::from_slice(&output.stdout).map_err(PlanError::Unreadable);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (file, status) = (model.display(), output.status);
    tracing::error!(model = %file, %status, said, "a model's memory was not planned");
    let signal = output.status.signal();
    Err(signal.map_or(PlanError::Unloadable, |signal| PlanError::Killed { signal }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn each_way_to_fail_is_told_apart() {
        let (model, long) = (Path::new("model.onnx"), Duration::from_secs(60));
        let script = r#"echo '{"peak_bytes": 9}'"#;
        let made = planned(shell(script), model, long).await.expect("a plan");
        assert_eq!(made["peak_bytes"], 9);
        for (command, limit, part) in [
            (Command::new("/nonexistent/program"), long, "did not start"),
            (shell("exec sleep 60"), Duration::from_millis(100), "not done after 100ms"),
            (shell("echo broken >&2; exit 1"), long, "the model does not load"),
            (shell("kill -KILL $$"), long, "ended by signal 9"),
            (shell("ulimit -c 0; echo broken >&2; kill -ABRT $$"), long, "ended by signal 6"),
            (shell("echo nothing"), long, "expected JSON"),
        ] {
            let error = planned(command, model, limit).await.expect_err(part);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
