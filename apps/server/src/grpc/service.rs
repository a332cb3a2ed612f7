//! The gRPC calls, mapped to the rest of the server.

use super::body::{Answered, Held};
use super::proto::grpc_inference_service_server::GrpcInferenceService;
use super::proto::*;
use super::{config, metadata};
use crate::access::{Caller, Limits};
use crate::call::Call;
use crate::catalog::{ModelEntry, Named, Readiness};
use crate::fault::Fault;
use crate::oip;
use crate::peer::Peer;
use crate::serve::{Endless, UnderWay};
use crate::state::ServerState;
use axum::http::StatusCode;
use futures_util::Stream;
use prost::Message;
use std::pin::Pin;
use std::sync::Weak;
use tonic::{Request, Response, Status, Streaming};

/// The answers of a stream.
pub(super) type Answers =
    Pin<Box<dyn Stream<Item = Result<ModelStreamInferResponse, Status>> + Send>>;

/// The service. Clones share its state.
#[derive(Clone)]
pub(super) struct Service {
    state: ServerState,
}

impl Service {
    pub(super) fn new(state: ServerState) -> Self {
        Self { state }
    }

    pub(super) fn state(&self) -> &ServerState {
        &self.state
    }

    pub(super) fn limits(&self) -> &Limits {
        self.state.access().limits()
    }

    /// The model in a message; for an alias, its first target.
    pub(super) async fn find(
        &self,
        caller: &Caller,
        name: &str,
        version: &str,
    ) -> Result<ModelEntry, Fault> {
        Ok(self.named(caller, name, version).await?.entry().clone())
    }

    /// Resolves the name in a message; for a model without a version, to the newest.
    pub(super) async fn named(
        &self,
        caller: &Caller,
        name: &str,
        version: &str,
    ) -> Result<Named, Fault> {
        caller.check_model(name)?;
        let version = match version {
            "" => None,
            text => Some(oip::parse_version(text)?),
        };
        self.state.catalog().named(name, version).await
    }
}

/// The caller of a request.
fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>().cloned();
    caller.ok_or_else(|| Fault::internal("a call came past the check of its key").into())
}

/// The call, with its log span.
fn call<T>(request: &Request<T>) -> Call {
    request.extensions().get::<Call>().cloned().unwrap_or_else(Call::unseen)
}

/// The room for bodies that a request holds.
fn held<T>(request: &Request<T>) -> Held {
    request.extensions().get::<Held>().cloned().unwrap_or_default()
}

/// The room for answers that its answer holds.
fn answered<T>(request: &Request<T>) -> Answered {
    request.extensions().get::<Answered>().cloned().unwrap_or_default()
}

/// Refuses a named repository: the only one has no name.
fn check_repository(name: &str) -> Result<(), Fault> {
    match name {
        "" => Ok(()),
        name => Err(Fault::unsupported(format!("repository_name is '{name}', expected none"))),
    }
}

/// The peer of a request.
fn peer<T>(request: &Request<T>) -> Peer {
    request.extensions().get::<Peer>().cloned().unwrap_or_default()
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl GrpcInferenceService for Service {
    type ModelStreamInferStream = Answers;

    async fn server_live(&self, _: Request<ServerLiveRequest>) -> Answer<ServerLiveResponse> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(&self, _: Request<ServerReadyRequest>) -> Answer<ServerReadyResponse> {
        let ready = self.state.catalog().is_ready();
        Ok(Response::new(ServerReadyResponse { ready }))
    }

    async fn model_ready(&self, request: Request<ModelReadyRequest>) -> Answer<ModelReadyResponse> {
        let caller = caller(&request)?;
        let ModelReadyRequest { name, version } = request.into_inner();
        let ready = match self.find(&caller, &name, &version).await {
            Ok(entry) => self.state.catalog().readiness(&entry) == Readiness::Ready,
            // A missing model counts as not ready, not as an error: Triton's clients ask before they add it.
            Err(fault) if fault.status == StatusCode::NOT_FOUND => false,
            Err(fault) => return Err(fault.into()),
        };
        Ok(Response::new(ModelReadyResponse { ready }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Answer<ServerMetadataResponse> {
        Ok(Response::new(metadata::server()))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Answer<ModelMetadataResponse> {
        let caller = caller(&request)?;
        let ModelMetadataRequest { name, version } = request.into_inner();
        let entry = self.find(&caller, &name, &version).await?;
        let versions = match version.is_empty() {
            true => self.state.catalog().versions(entry.name()).await?,
            false => vec![entry.version()],
        };
        Ok(Response::new(metadata::model(&entry, &versions)))
    }

    async fn model_infer(&self, request: Request<ModelInferRequest>) -> Answer<ModelInferResponse> {
        let (caller, call) = (caller(&request)?, call(&request));
        // The room is held until the task has ended.
        let _room = held(&request).take();
        let sent = answered(&request);
        let message = request.into_inner();
        let ticket = self.ticket(&caller, &message);
        let answer = self.infer(&call, &caller, (message, ticket)).await?;
        let bytes = answer.encoded_len();
        sent.add(self.state.answers().room_for(caller.id(), bytes).await?);
        Ok(Response::new(answer))
    }

    async fn model_stream_infer(
        &self,
        request: Request<Streaming<ModelInferRequest>>,
    ) -> Answer<Self::ModelStreamInferStream> {
        let (caller, call, held) = (caller(&request)?, call(&request), held(&request));
        // Each message takes its own place, and keeps the connection busy while it is in progress.
        let caller = caller.without_place();
        let stream = request.extensions().get::<Weak<UnderWay>>().and_then(Weak::upgrade);
        let about = (held, answered(&request), stream);
        let answers = self.infer_each(call, caller, about, request.into_inner());
        let mut response = Response::new(answers);
        response.extensions_mut().insert(Endless);
        Ok(response)
    }

    async fn model_config(
        &self,
        request: Request<ModelConfigRequest>,
    ) -> Answer<ModelConfigResponse> {
        let caller = caller(&request)?;
        let ModelConfigRequest { name, version } = request.into_inner();
        let entry = self.find(&caller, &name, &version).await?;
        let policy = self.state.catalog().version_policy(entry.name()).await;
        let deployment = self.state.catalog().deployment(entry.name()).await;
        let config = config::config(&entry, policy, &deployment);
        Ok(Response::new(ModelConfigResponse { config: Some(config) }))
    }

    async fn model_statistics(
        &self,
        request: Request<ModelStatisticsRequest>,
    ) -> Answer<ModelStatisticsResponse> {
        let caller = caller(&request)?;
        let ModelStatisticsRequest { name, version } = request.into_inner();
        let entries = match name.is_empty() {
            false => vec![self.find(&caller, &name, &version).await?],
            true => {
                let mut all = self.state.catalog().list().await?;
                all.retain(|entry| caller.may_use(entry.name()));
                all
            }
        };
        let read = |entry: &ModelEntry| {
            let counters = self.state.metrics().model(entry.name(), entry.version());
            metadata::statistics(entry, &counters.read())
        };
        let model_stats = entries.iter().map(read).collect();
        Ok(Response::new(ModelStatisticsResponse { model_stats }))
    }

    async fn repository_index(
        &self,
        request: Request<RepositoryIndexRequest>,
    ) -> Answer<RepositoryIndexResponse> {
        let caller = caller(&request)?;
        let RepositoryIndexRequest { repository_name, ready } = request.into_inner();
        check_repository(&repository_name)?;
        let models = self.index(&caller, ready).await?;
        Ok(Response::new(RepositoryIndexResponse { models }))
    }

    async fn repository_model_load(
        &self,
        request: Request<RepositoryModelLoadRequest>,
    ) -> Answer<RepositoryModelLoadResponse> {
        let RepositoryModelLoadRequest { repository_name, model_name, parameters } =
            request.into_inner();
        check_repository(&repository_name)?;
        self.load(&model_name, &parameters).await?;
        Ok(Response::new(RepositoryModelLoadResponse {}))
    }

    async fn repository_model_unload(
        &self,
        request: Request<RepositoryModelUnloadRequest>,
    ) -> Answer<RepositoryModelUnloadResponse> {
        let RepositoryModelUnloadRequest { repository_name, model_name, .. } = request.into_inner();
        check_repository(&repository_name)?;
        self.unload(&model_name).await?;
        Ok(Response::new(RepositoryModelUnloadResponse {}))
    }

    async fn system_shared_memory_status(
        &self,
        request: Request<SystemSharedMemoryStatusRequest>,
    ) -> Answer<SystemSharedMemoryStatusResponse> {
        let caller = caller(&request)?;
        Ok(Response::new(self.regions(&caller, &request.into_inner().name)?))
    }

    async fn system_shared_memory_register(
        &self,
        request: Request<SystemSharedMemoryRegisterRequest>,
    ) -> Answer<SystemSharedMemoryRegisterResponse> {
        let (caller, peer) = (caller(&request)?, peer(&request));
        self.register_region(&caller, &peer, request.into_inner())?;
        Ok(Response::new(SystemSharedMemoryRegisterResponse {}))
    }

    async fn system_shared_memory_unregister(
        &self,
        request: Request<SystemSharedMemoryUnregisterRequest>,
    ) -> Answer<SystemSharedMemoryUnregisterResponse> {
        let caller = caller(&request)?;
        self.unregister_regions(&caller, &request.into_inner().name);
        Ok(Response::new(SystemSharedMemoryUnregisterResponse {}))
    }

    async fn cuda_shared_memory_status(
        &self,
        _: Request<CudaSharedMemoryStatusRequest>,
    ) -> Answer<CudaSharedMemoryStatusResponse> {
        Ok(Response::new(CudaSharedMemoryStatusResponse::default()))
    }

    async fn cuda_shared_memory_unregister(
        &self,
        _: Request<CudaSharedMemoryUnregisterRequest>,
    ) -> Answer<CudaSharedMemoryUnregisterResponse> {
        Ok(Response::new(CudaSharedMemoryUnregisterResponse {}))
    }
}
