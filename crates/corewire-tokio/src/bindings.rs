//! Clients and services of interfaces.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use corewire_bind::{Bind, Reactor, Serve, Watched};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::ready::must_be_in_runtime;

/// A descriptor in tokio's reactor, for any number of tasks.
struct Descriptor(AsyncFd<OwnedFd>);

impl Watched for Descriptor {
    fn readable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(async {
            // It was armed, or read until it was empty, before this: what tokio hears from then on is new.
            self.0.readable().await?.clear_ready();
            Ok(())
        })
    }

    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(async {
            self.0.writable().await?.clear_ready();
            Ok(())
        })
    }
}

/// tokio's reactor, for [`Bind::reactor`] and [`Serve::reactor`]. Used within a runtime of tokio.
#[must_use]
pub fn reactor() -> Reactor {
    Arc::new(|descriptor| {
        must_be_in_runtime()?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        #[expect(deprecated, reason = "sound for a descriptor that is owned; the other is unsafe")]
        let descriptor = AsyncFd::with_interest(descriptor, interest)?;
        Ok(Box::new(Descriptor(descriptor)) as Box<dyn Watched>)
    })
}

/// How a generated `AsyncClient` binds whose calls, events and streams wait in tokio's reactor.
///
/// ```no_run
/// # mod calc { pub struct AsyncClient; impl AsyncClient {
/// #     pub async fn bind(_: &corewire::Domain, _: &str, _: &corewire_bind::Bind) -> Result<Self, corewire_bind::BindError> { std::future::pending().await }
/// #     pub async fn add(&self, _: i64, _: i64) -> Result<i64, corewire_bind::CallError> { std::future::pending().await }
/// # } }
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let domain = corewire::Domain::open()?;
/// let client = calc::AsyncClient::bind(&domain, "calc", &corewire_tokio::bind()).await?;
/// assert_eq!(client.add(1, 2).await?, 3);
/// # Ok(())
/// # }
/// ```
pub fn bind() -> Bind {
    Bind::default().reactor(reactor())
}

/// How a generated `Server` is created whose `serve_async` waits in tokio's reactor.
pub fn serve() -> Serve {
    Serve::default().reactor(reactor())
}
