//! The table of routes under `/api/v1/cluster`: who may use each route, its bodies and its answers.

use super::{
    admin, aliases, events, insight, journal, keys, listing, logs, models, sign_ins, tasks, tokens,
    workers,
};
use crate::access::KeyRole::{Admin, Infer, Submit};
use crate::access::Right;
use crate::route::{Content, Route};

/// Everything under `/api/v1/cluster`.
pub(crate) fn routes() -> Vec<Route> {
    let of_models = ["/models/{model}", "/models/{model}/versions/{version}"].map(of_model);
    let all = [cluster(), journal(), workers(), tasks(), members(), models(), aliases()];
    all.into_iter().chain(of_models).flatten().collect()
}

// Nested routers would not see the whole path, which decides the form of errors.
fn at(path: &str) -> String {
    format!("/api/v1/cluster{path}")
}

fn cluster() -> Vec<Route> {
    vec![
        Route::post(
            at("/coordinator/start"),
            Submit,
            admin::start,
            "Says that it runs, and since when",
        )
        .answers(200, "Coordinator"),
        Route::post(at("/coordinator/stop"), Admin, admin::stop, "Ends the coordinator")
            .takes("Stop")
            .answers(202, "Stopping")
            .refuses(&[501]),
        Route::post(
            at("/restart"),
            Admin,
            admin::restart,
            "Replaces every local worker by a new one",
        )
        .takes("Patience")
        .answers(200, "Restarted")
        .refuses(&[500, 501]),
        Route::post(at("/scale"), Admin, admin::scale, "Brings the local workers to a number")
            .takes("Scale")
            .answers(202, "Scaled")
            .refuses(&[501]),
        Route::get(at("/stats"), Submit, admin::stats, "Totals of tasks and workers")
            .answers(200, "Stats"),
        Route::get(
            at("/stats/history"),
            Submit,
            admin::history,
            "What the totals were every two seconds of the last half hour",
        )
        .answers(200, "History"),
        Route::get(at("/events"), Submit, events::listen, "Events as they happen, server-sent")
            .query("after", "EventId", "The event that was heard last: those since come first")
            .header(
                "Last-Event-ID",
                "EventId",
                "That event as browsers send it; it counts where both are given",
            )
            .answers_as(200, Content::Text("text/event-stream", "EventStream"))
            .refuses(&[400, 503]),
        Route::get(at("/logs"), Admin, logs::show, "The latest lines of this machine's logs")
            .query("level", "LogLevel", "Only lines of this level and the more serious ones")
            .query("contains", "Text", "Only lines with this text")
            .query("after", "LogTime", "Only lines later than this")
            .query("limit", "PageLimit", "Most lines in the answer")
            .answers(200, "Logs")
            .refuses(&[400]),
        Route::get(at("/health"), Infer, admin::health, "Whether an inference would find a worker")
            .answers(200, "Health")
            .answers(503, "Health"),
        Route::get(at("/config"), Submit, admin::config, "The settings in force")
            .answers(200, "Config"),
        Route::put(
            at("/config/balancing"),
            Admin,
            admin::set_balancing,
            "Sets how tasks are spread",
        )
        .takes("NewBalancing")
        .answers(200, "Balancing"),
    ]
}

fn journal() -> Vec<Route> {
    vec![
        Route::get(
            at("/journal"),
            Admin,
            journal::show,
            "How large the journal of durable tasks is",
        )
        .answers(200, "Journal")
        .refuses(&[501]),
        Route::post(at("/journal/backup"), Admin, journal::back_up, "Copies the journal beside it")
            .answers(200, "Backup")
            .refuses(&[500, 501, 507]),
        Route::post(
            at("/journal/compact"),
            Admin,
            journal::compact,
            "Gives the disk back what is not needed",
        )
        .answers(200, "Compacted")
        .refuses(&[501]),
    ]
}

fn workers() -> Vec<Route> {
    vec![
        Route::get(at("/workers"), Submit, workers::list, "Every worker").answers(200, "Workers"),
        Route::get(at("/workers/{id}"), Submit, workers::show, "One worker")
            .answers(200, "Worker")
            .refuses(&[404]),
        Route::get(
            at("/workers/{id}/metrics"),
            Submit,
            workers::metrics,
            "What changes while a worker works",
        )
        .answers(200, "WorkerMetrics")
        .refuses(&[404]),
        Route::post(
            at("/workers/{id}/shutdown"),
            Admin,
            workers::shutdown,
            "Has a worker finish and leave",
        )
        .answers(202, "WorkerDraining")
        .refuses(&[404, 409]),
        Route::post(
            at("/workers/{id}/drain"),
            Admin,
            workers::drain,
            "Has a worker finish and leave, answered once it has left",
        )
        .takes("Patience")
        .answers(200, "WorkerLeft")
        .refuses(&[404, 409]),
        Route::post(
            at("/workers/{id}/enable"),
            Admin,
            workers::enable,
            "Lets devices that were taken out work again",
        )
        .answers(200, "WorkerEnabled")
        .refuses(&[404]),
    ]
}

fn tasks() -> Vec<Route> {
    vec![
        Route::get(
            at("/tasks"),
            Submit,
            listing::list,
            "Tasks, newest first, without outputs; the header Link leads to more",
        )
        .query("state", "TaskState", "Only tasks in this state")
        .query("model", "ModelName", "Only tasks of this model")
        .query("limit", "PageLimit", "Most tasks in the answer")
        .query("after", "TaskId", "Only tasks older than this one")
        .answers(200, "Tasks")
        .refuses(&[400]),
        Route::post(
            at("/tasks"),
            Submit,
            tasks::submit,
            "Submits a task; a durable one is in the journal then",
        )
        .tensors()
        .takes("NewTask")
        .answers(202, "Accepted")
        .refuses(&[404, 409, 410, 501, 507]),
        Route::post(
            at("/tasks/batch"),
            Submit,
            tasks::submit_batch,
            "Submits tasks, all of them or none",
        )
        .tensors()
        .takes("NewBatch")
        .answers(202, "AcceptedBatch")
        .refuses(&[404, 409, 410, 501, 507]),
        Route::get(at("/tasks/{id}"), Submit, tasks::show, "A task, at once or once it has ended")
            .query("wait_ms", "Milliseconds", "How long to wait for its end, an hour at most")
            .answers(200, "Task")
            .refuses(&[400, 404, 410, 500, 503]),
        Route::delete(at("/tasks/{id}"), Submit, tasks::cancel, "Cancels what is not finished")
            .answers(200, "Task")
            .refuses(&[404, 410, 500, 503]),
        Route::delete(
            at("/tasks/{id}/result"),
            Submit,
            tasks::let_go,
            "Lets a result go that is needed no more",
        )
        .answers(200, "LetGo")
        .refuses(&[404, 409, 410, 503]),
        Route::post(
            at("/tasks/{id}/retry"),
            Submit,
            tasks::retry,
            "Runs a task again that failed or was cancelled, as a new task",
        )
        .answers(202, "Accepted")
        .refuses(&[404, 409, 410, 507]),
        Route::get(
            at("/tasks/{id}/why"),
            Submit,
            tasks::why,
            "Each decision about a task, and what it waits for",
        )
        .answers(200, "Decisions")
        .refuses(&[404, 410]),
    ]
}

fn members() -> Vec<Route> {
    vec![
        Route::post(at("/sign-ins"), Submit, sign_ins::link, "Makes a link that signs in once")
            .takes("SignInPage")
            .answers(201, "SignIn")
            .refuses(&[503]),
        Route::post(at("/session"), Right::Anybody, sign_ins::begin, "Signs in by such a link")
            .takes("SignInCode")
            .answers(201, "CreatedSession")
            .refuses(&[401]),
        Route::get(at("/session"), Infer, sign_ins::show, "Who one is, and what one may do")
            .answers(200, "Session"),
        Route::delete(at("/session"), Infer, sign_ins::end, "Signs out")
            .answers(200, "EndedSession"),
        Route::get(at("/keys"), Admin, keys::list, "API keys, without their secrets")
            .answers(200, "Keys"),
        Route::post(at("/keys"), Admin, keys::create, "Makes an API key, which is shown this once")
            .takes("NewKey")
            .answers(201, "CreatedKey"),
        Route::delete(at("/keys/{id}"), Admin, keys::revoke, "Takes an API key back")
            .answers(200, "Revoked")
            .refuses(&[404]),
        Route::get(at("/tokens"), Admin, tokens::list, "Join tokens, without their secrets")
            .answers(200, "Tokens")
            .refuses(&[501]),
        Route::post(
            at("/tokens"),
            Admin,
            tokens::create,
            "Makes a join token, which is shown this once",
        )
        .takes("NewToken")
        .answers(201, "CreatedToken")
        .refuses(&[501]),
        Route::delete(at("/tokens/{id}"), Admin, tokens::revoke, "Takes a join token back")
            .answers(200, "Revoked")
            .refuses(&[404, 501]),
        Route::get(
            at("/revocations"),
            Admin,
            tokens::revoked_members,
            "Members whose certificates are revoked",
        )
        .answers(200, "Revocations"),
        Route::post(
            at("/revocations"),
            Admin,
            tokens::revoke_member,
            "Revokes the certificates of a member",
        )
        .takes("NewRevocation")
        .answers(201, "CreatedRevocation")
        .refuses(&[409, 500, 507]),
    ]
}

fn aliases() -> Vec<Route> {
    vec![
        Route::get(at("/aliases"), Submit, aliases::list, "Names that stand for weighted models")
            .answers(200, "Aliases"),
        Route::put(at("/aliases/{alias}"), Admin, aliases::set, "Makes or replaces an alias")
            .takes("NewAlias")
            .answers(200, "Alias")
            .refuses(&[404, 409, 500, 507]),
        Route::delete(at("/aliases/{alias}"), Admin, aliases::remove, "Removes an alias")
            .answers(200, "RemovedAlias")
            .refuses(&[404, 500, 507]),
    ]
}

fn models() -> Vec<Route> {
    vec![
        Route::get(at("/models"), Submit, models::list, "Every version of every model")
            .answers(200, "Models"),
        Route::post(
            at("/models/{model}"),
            Admin,
            models::add,
            "Adds a version of a model and loads it",
        )
        .takes_as(Content::Bytes("application/octet-stream"))
        .takes_as(Content::Bytes("multipart/form-data"))
        .answers(201, "Model")
        .refuses(&[507]),
        Route::put(
            at("/models/{model}/deployment"),
            Admin,
            models::deploy,
            "Says where a model is to run and what may answer for it",
        )
        .takes("Deployment")
        .answers(200, "Model")
        .refuses(&[404, 500, 507]),
        Route::patch(
            at("/models/{model}/deployment"),
            Admin,
            models::amend,
            "Changes fields of it: what is absent stays as it was said, null opens a field",
        )
        .takes("DeploymentPatch")
        .answers(200, "Model")
        .refuses(&[404, 500, 507]),
    ]
}

/// The routes of a model, or those of one of its versions.
fn of_model(path: &str) -> Vec<Route> {
    let at = |rest: &str| at(&format!("{path}{rest}"));
    vec![
        Route::get(
            at(""),
            Submit,
            models::show,
            "A version; the one that is used where none is named",
        )
        .answers(200, "Model")
        .refuses(&[400, 404]),
        Route::delete(
            at(""),
            Admin,
            models::remove,
            "Removes a version, or all where none is named",
        )
        .answers(200, "Removed")
        .refuses(&[400, 404]),
        Route::post(
            at("/load"),
            Admin,
            models::load,
            "Loads a version, or those that the policy chooses where none is named",
        )
        .answers(200, "Model")
        .refuses(&[400, 404]),
        Route::post(
            at("/profile"),
            Admin,
            insight::profile,
            "Measures a run of zeros node by node, on a device that has the model",
        )
        .answers(200, "ModelProfile")
        .refuses(&[400, 404, 500, 501, 503]),
        Route::get(
            at("/plan"),
            Admin,
            insight::plan,
            "What a run takes of memory, and where each tensor lies",
        )
        .answers(200, "ModelPlan")
        .refuses(&[400, 404, 501, 503]),
        Route::post(
            at("/unload"),
            Admin,
            models::unload,
            "Unloads a version, or all where none is named; the files stay",
        )
        .takes("Patience")
        .answers(200, "UnloadedModel")
        .refuses(&[404]),
    ]
}
