//! A unary gRPC call over a Unix socket, by tonic. Each side has a runtime of one thread, which suits a call at a time
//! on pinned cores. The message is protobuf's own `UInt64Value`, so that no code is generated from a file.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::uri::PathAndQuery;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::server::UnaryService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::rivals::Call;
use crate::study::failure::{Doing, Failure};

const METHOD: &str = "/corewire.Measured/Echo";

/// Message and reply.
type Codec = ProstCodec<u64, u64>;

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().doing("make a runtime")
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("grpc")
}

/// Listens in the crew's directory. Returns what serves until the process ends.
pub(super) fn service(directory: &Path) -> Result<impl FnOnce() + Send + 'static, Failure> {
    let listener = UnixListener::bind(socket(directory)).doing("listen for gRPC")?;
    listener.set_nonblocking(true).doing("listen for gRPC")?;
    let runtime = runtime()?;
    Ok(move || {
        let _ = runtime.block_on(async {
            let listener = tokio::net::UnixListener::from_std(listener).doing("listen for gRPC")?;
            let incoming = UnixListenerStream::new(listener);
            Server::builder().serve_with_incoming(Echo, incoming).await.doing("serve gRPC")
        });
    })
}

/// The service: what tonic's generator makes of a service with one method.
#[derive(Debug, Clone, Copy)]
struct Echo;

impl UnaryService<u64> for Echo {
    type Response = u64;
    type Future = Ready<Result<Response<u64>, Status>>;

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("there is one method").into_http());
            }
            Ok(tonic::server::Grpc::new(Codec::default()).unary(Self, request).await)
        })
    }
}

/// The caller.
pub(super) struct Caller {
    runtime: Runtime,
    channel: tonic::client::Grpc<Channel>,
    method: PathAndQuery,
}

impl Caller {
    pub(super) fn connect(directory: &Path) -> Result<Self, Failure> {
        let runtime = runtime()?;
        let address = format!("unix:{}", socket(directory).display());
        let endpoint = Endpoint::from_shared(address).doing("read a gRPC address")?;
        let channel = runtime.block_on(endpoint.connect()).doing("connect by gRPC")?;
        let method = PathAndQuery::from_static(METHOD);
        Ok(Self { runtime, channel: tonic::client::Grpc::new(channel), method })
    }
}

impl Call for Caller {
    fn call(&mut self, number: u64) -> Result<u64, Failure> {
        let Self { runtime, channel, method } = self;
        let call = async {
            channel.ready().await.doing("call by gRPC")?;
            let request = Request::new(number);
            channel.unary(request, method.clone(), Codec::default()).await.doing("call by gRPC")
        };
        Ok(runtime.block_on(call)?.into_inner())
    }
}
