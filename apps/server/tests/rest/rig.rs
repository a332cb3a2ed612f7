//! A whole cluster in one process: a real coordinator, a real worker over QUIC, a repository of small models, and
//! an executor whose behaviour depends on the model's name.

use crate::sequences;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use lgp_distributed::{
    DeviceStatus, ExecError, Executor, ExecutorStatus, NodeTime, Stop as TaskStop,
};
use lgp_inference::GraphBuilder;
use lgp_sdk::cluster::{
    Coordinator, CoordinatorConfig, ModelExecutor, ModelRef, Pki, Services, Tokens, WorkerConfig,
    run_worker,
};
use lgp_sdk::model::{Repository, SessionOptions};
use lgp_sdk::tensor::{DType, Dim, NamedTensor, SymShape, Tensor, TensorType};
use lgp_server::{Access, Driver, LocalKey, ServerConfig, ServerState, router, serve};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tower::ServiceExt;

pub(crate) const MODELS: [&str; 3] = ["relu", "gated", "fails"];

/// The longest wait of a test for an event that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Blocks runs of the model `gated` and loads of the model `slow` until the gate is opened.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    /// The models that the worker was told to load.
    loads: Mutex<Vec<String>>,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    pub(crate) fn close(&self) {
        *self.open.lock().unwrap() = false;
    }

    /// How often the worker was told to load a model.
    pub(crate) fn loads_of(&self, model: &str) -> usize {
        self.loads.lock().unwrap().iter().filter(|name| *name == model).count()
    }

    fn pass(&self) {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap());
    }
}

struct TestExecutor {
    device: DeviceStatus,
    gate: Arc<Gate>,
    loaded: Mutex<Vec<ModelRef>>,
    /// Runs models whose names begin with `real.`.
    real: ModelExecutor,
}

impl Executor for TestExecutor {
    fn load(&self, _: usize, model: &ModelRef) -> Result<(), ExecError> {
        self.gate.loads.lock().unwrap().push(model.name.clone());
        if model.name.contains("unloadable") {
            return Err(ExecError::failed("does not fit"));
        }
        if model.name.contains("slow") {
            self.gate.pass();
        }
        let mut loaded = self.loaded.lock().unwrap();
        if !loaded.contains(model) {
            loaded.push(model.clone());
        }
        Ok(())
    }

    fn unload(&self, _: usize, model: &ModelRef) {
        self.loaded.lock().unwrap().retain(|m| m != model);
    }

    fn execute(
        &self,
        device: usize,
        model: &ModelRef,
        inputs: &[NamedTensor],
        stop: &TaskStop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        if model.name.starts_with("real.") {
            return self.real.execute(device, model, inputs, stop);
        }
        if model.name == "adds" {
            if inputs[0].tensor.as_slice::<f32>().is_ok_and(|x| x[0] == sequences::WAITS) {
                self.gate.pass();
            }
            return sequences::run(inputs);
        }
        match model.name.as_str() {
            "gated" | "frigate.gated" => self.gate.pass(),
            "fails" => return Err(ExecError::failed("secret detail in /home/somebody")),
            _ => {}
        }
        let x = &inputs[0].tensor;
        let map = |f: fn(f32) -> f32| {
            let data: Vec<f32> = x.as_slice::<f32>().unwrap().iter().map(|&v| f(v)).collect();
            Tensor::from_slice(x.shape().clone(), &data).unwrap()
        };
        if model.name.starts_with("frigate.") {
            return Ok(vec![NamedTensor::new("found", map(|v| v.max(0.0)))]);
        }
        Ok(vec![
            NamedTensor::new("y", map(|v| v.max(0.0))),
            NamedTensor::new("double", map(|v| v + v)),
        ])
    }

    fn execute_traced(
        &self,
        device: usize,
        model: &ModelRef,
        batch: &[Vec<NamedTensor>],
        stop: &TaskStop,
    ) -> (Vec<Result<Vec<NamedTensor>, ExecError>>, Vec<NodeTime>) {
        if model.name.starts_with("real.") {
            return self.real.execute_traced(device, model, batch, stop);
        }
        (batch.iter().map(|inputs| self.execute(device, model, inputs, stop)).collect(), Vec::new())
    }

    fn status(&self) -> ExecutorStatus {
        ExecutorStatus::of(DeviceStatus {
            models: self.loaded.lock().unwrap().clone(),
            ..self.device.clone()
        })
    }
}

/// An ONNX file with input `x` f32 [n,2] and outputs `y` = relu(x) and `double` = x + x.
pub(crate) fn onnx() -> Vec<u8> {
    let shape = SymShape(vec![Dim::Symbol("n".into()), Dim::Known(2)]);
    let ty = TensorType { dtype: DType::F32, shape: Some(shape) };
    let mut graph = GraphBuilder::new("small");
    let x = graph.input("x", ty.clone());
    let y = graph.node("Relu", &[x], []);
    let double = graph.node("Add", &[x, x], []);
    graph.output("y", y, ty.clone());
    graph.output("double", double, ty);
    graph.finish().unwrap().to_onnx().unwrap()
}

pub(crate) struct Rig {
    pub(crate) app: Router,
    pub(crate) state: ServerState,
    pub(crate) gate: Arc<Gate>,
    /// The owner's credential, which `call` adds to requests without one.
    pub(crate) bearer: String,
    /// The folder of models and the journal.
    pub(crate) folder: TempDir,
    pub(crate) coordinator: Coordinator,
    pki: Pki,
    worker: Option<oneshot::Sender<()>>,
}

#[derive(Default)]
pub(crate) struct Options {
    pub(crate) server: ServerConfig,
    pub(crate) queue_tasks_max: Option<usize>,
    pub(crate) journal: bool,
    /// The certificate authority; by default one in memory.
    pub(crate) pki: Option<Pki>,
    pub(crate) driver: Option<Arc<dyn Driver>>,
    /// The worker's report of its device; by default a CPU without sensors.
    pub(crate) device: Option<DeviceStatus>,
    /// Whether the worker runs models, instead of acting by their names.
    pub(crate) runs_models: bool,
    /// The file system of models and the journal; by default that of temporary files.
    pub(crate) disk: Option<PathBuf>,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::with(Options::default()).await
    }

    /// A cluster with one worker of one slot, and every model of [`MODELS`] loaded.
    pub(crate) async fn with(options: Options) -> Self {
        let folder = options.disk.map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap();
        let repository = Repository::open(folder.path().join("models")).unwrap();
        for name in MODELS {
            repository.add_bytes(name, &onnx()).unwrap();
        }
        let mut config =
            CoordinatorConfig { quic_addr: ([127, 0, 0, 1], 0).into(), ..Default::default() };
        config.journal = options.journal.then(|| folder.path().join("tasks.journal"));
        config.queue_tasks_max = options.queue_tasks_max.unwrap_or(config.queue_tasks_max);
        let pki = options.pki.unwrap_or_else(|| Pki::generate().unwrap());
        let services =
            Services { tokens: Some(Tokens::open(&pki).unwrap()), ..Services::default() };
        let coordinator = Coordinator::start_with(config, &pki, services).await.unwrap();

        let device = options.device.unwrap_or_else(|| DeviceStatus {
            device: "cpu:0".into(),
            backend: "cpu".into(),
            ..DeviceStatus::default()
        });
        let gate = Arc::new(Gate::default());
        let real = SessionOptions::with_threads(1);
        let real = ModelExecutor::new(repository.clone(), None, real);
        let loaded = Mutex::default();
        let executor = TestExecutor { device, gate: Arc::clone(&gate), loaded, real };
        let identity = pki.issue_worker("w1").unwrap();
        let worker = WorkerConfig::new(coordinator.quic_addr(), identity, 1);
        let (keep, gone) = oneshot::channel::<()>();
        let executor: Arc<dyn Executor> = match options.runs_models {
            true => {
                let alone = SessionOptions::with_threads(1);
                Arc::new(ModelExecutor::new(repository.clone(), None, alone))
            }
            false => Arc::new(executor),
        };
        tokio::spawn(run_worker(worker, executor, async {
            let _ = gone.await;
        }));
        let ready = coordinator.wait_for_workers(1);
        tokio::time::timeout(PATIENCE, ready).await.unwrap().unwrap();

        let key = LocalKey::ensure(&folder.path().join("local.key")).unwrap();
        let bearer = format!("Bearer {}", key.text());
        let access = Access::open(&pki).unwrap().with_local(key);
        let access = access.with_audit(&folder.path().join("audit.log")).unwrap();
        let driver = options.driver;
        let state =
            ServerState::new(options.server, coordinator.clone(), repository, access, driver);
        let app = router(state.clone());
        let rig = Self { app, state, gate, bearer, folder, coordinator, pki, worker: Some(keep) };
        for name in MODELS {
            let path = format!("/v2/repository/models/{name}/load");
            assert_eq!(rig.post(&path, "").await.status, 200);
            rig.until(&format!("/v2/models/{name}/ready"), |a| a.status == 200).await;
        }
        rig
    }

    /// Starts another worker, `w2`, and stops the first. `w2` runs models, independent of their names.
    pub(crate) async fn replace_worker(&mut self) {
        let repository = Repository::open(self.folder.path().join("models")).unwrap();
        let executor = ModelExecutor::new(repository, None, SessionOptions::with_threads(1));
        let identity = self.pki.issue_worker("w2").unwrap();
        let worker = WorkerConfig::new(self.coordinator.quic_addr(), identity, 1);
        let (keep, gone) = oneshot::channel::<()>();
        tokio::spawn(run_worker(worker, Arc::new(executor), async {
            let _ = gone.await;
        }));
        let ready = self.coordinator.wait_for_workers(2);
        tokio::time::timeout(PATIENCE, ready).await.unwrap().unwrap();
        drop(self.worker.replace(keep));
    }

    /// Sends a request as the owner, unless it has its own credential.
    pub(crate) async fn call(&self, request: Request<Body>) -> Answer {
        Answer::of(self.send(request).await).await
    }

    /// Like `call`, without reading the response's body.
    pub(crate) fn send(
        &self,
        mut request: Request<Body>,
    ) -> impl Future<Output = Response> + Send + 'static {
        let given = request.headers_mut().entry(header::AUTHORIZATION);
        given.or_insert_with(|| self.bearer.parse().unwrap());
        self.without_key_sent(request)
    }

    /// Sends a request from another machine, without a key.
    pub(crate) async fn without_key(&self, request: Request<Body>) -> Answer {
        Answer::of(self.without_key_sent(request).await).await
    }

    /// Like `without_key`, without reading the response's body.
    pub(crate) fn without_key_sent(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Response> + Send + 'static {
        let answer = self.app.clone().oneshot(request);
        async { answer.await.unwrap() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(request("GET", path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.call(request("POST", path).body(body.into()).unwrap()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call(request("DELETE", path).body(Body::empty()).unwrap()).await
    }

    /// Repeats a request until the answer is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let started = std::time::Instant::now();
        loop {
            let answer = self.get(path).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "{path} stays {}: {}",
                answer.status,
                answer.text()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn request(method: &str, path: &str) -> axum::http::request::Builder {
    Request::builder().method(method).uri(path).header("host", "127.0.0.1:8000")
}

/// A listener on loopback, as programs of this machine reach it.
pub(crate) async fn listen(rig: &Rig) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, None, rig.state.clone(), std::future::pending()));
    addr
}

/// Status and text of a request over its own connection, with or without a key.
pub(crate) async fn ask_with(
    addr: SocketAddr,
    (method, path): (&str, &str),
    key: Option<&str>,
    body: &str,
) -> (u16, String) {
    let key = key.map_or(String::new(), |key| format!("Authorization: Bearer {key}\r\n"));
    let length = body.len();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{key}\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status line");
    (status, answer)
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}
