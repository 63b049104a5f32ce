//! A client for tasks of any executor.
//!
//! A task reads everything that has come, for all tasks, and wakes those whose reply was among it. Then it waits for the
//! client's descriptor, in the reactor of `async-io`, which needs no executor of its own, or in another one. Several tasks
//! may wait at once.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use corewire::Domain;
use corewire_circuit::patience::Patience;
use futures_core::Stream as _;

use super::bind::Bind;
use super::events::add_once;
use super::{Binding, DecodeStream, PartStream};
use crate::capability::Capabilities;
use crate::error::{BindError, CallError};
use crate::exchange::Description;
use crate::lane::Interest;
use crate::message::Message;
use crate::reactor::{Reactor, Waiting, Watched, of_async_io};
use crate::tag::Tag;

/// A client's end of a connection, for generated code: a handle that tasks share. A clone is the same client.
#[derive(Clone)]
pub struct AsyncBinding(Arc<Shared>);

struct Shared {
    binding: Mutex<Binding>,
    readiness: Box<dyn Watched>,
    /// Tasks that wait for the descriptor. Changed upwards only while the binding is locked.
    waiting: Mutex<usize>,
}

impl Shared {
    /// How many tasks wait for the descriptor.
    fn waiting(&self) -> MutexGuard<'_, usize> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncBinding {
    /// Binds without blocking the task: a thread does it.
    ///
    /// # Errors
    /// [`BindError`].
    pub async fn connect(
        domain: &Domain,
        service: &str,
        bind: &Bind,
        own: &'static Description<'static>,
    ) -> Result<Self, BindError> {
        let (domain, service) = (domain.clone(), service.to_owned());
        let reactor = bind.reactor_of_tasks();
        let bind = bind.clone().on_core(rustix::thread::sched_getcpu());
        let binding = blocking::unblock(move || bind.connect(&domain, &service, own)).await?;
        Self::with_reactor(binding, &reactor)
    }

    /// Lets tasks use a binding, which wait in the reactor of `async-io`.
    ///
    /// # Errors
    /// [`BindError`]: there is no descriptor to wait for.
    pub fn new(binding: Binding) -> Result<Self, BindError> {
        Self::with_reactor(binding, &of_async_io())
    }

    /// The same in another reactor.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_reactor(mut binding: Binding, reactor: &Reactor) -> Result<Self, BindError> {
        let readiness = match binding.readiness() {
            Ok(readiness) => reactor(readiness).map_err(|error| CallError::Os {
                what: "wait for a descriptor",
                errno: error.raw_os_error().unwrap_or_default(),
            }),
            Err(error) => Err(error),
        };
        match readiness {
            Ok(readiness) => {
                let (binding, waiting) = (Mutex::new(binding), Mutex::new(0));
                Ok(Self(Arc::new(Shared { binding, readiness, waiting })))
            }
            Err(error) => Err(BindError::of(binding.service(), binding.driver(), error.into())),
        }
    }

    /// The binding, for what never waits.
    pub fn lock(&self) -> MutexGuard<'_, Binding> {
        self.0.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and waits for the reply of at most `reply_bytes_max`. A future that is dropped
    /// abandons the call.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(
        &self,
        ordinal: u16,
        reply_bytes_max: u32,
        message: &[u8],
        capabilities: &Capabilities<'_>,
    ) -> Result<Message, CallError> {
        let token = self
            .ready(|binding, cx| {
                if !binding.calls.has_room(reply_bytes_max) {
                    add_once(&mut binding.senders, cx.waker());
                    return Poll::Pending;
                }
                let tag = binding.next_tag(ordinal);
                binding.poll_send(tag, message, capabilities, cx.waker()).map_ok(|()| {
                    binding.calls.ask(tag.token(), reply_bytes_max);
                    tag.token()
                })
            })
            .await?;
        let mut call = Call { client: self, token, is_open: true };
        let reply = self
            .ready(|binding, cx| match binding.calls.take(token) {
                Some(reply) => Poll::Ready(reply),
                None => {
                    binding.calls.wake(token, cx.waker());
                    Poll::Pending
                }
            })
            .await;
        call.is_open = false;
        reply
    }

    /// Calls what answers with a stream.
    ///
    /// # Errors
    /// As for [`Binding::start_stream`].
    pub async fn start_stream<P, E: From<CallError>>(
        &self,
        ordinal: u16,
        message: &[u8],
        capabilities: &Capabilities<'_>,
        decode: DecodeStream<P, E>,
    ) -> Result<AsyncParts<P, E>, CallError> {
        let stream = self.ready(|binding, cx| {
            binding.check_streams()?;
            let tag = binding.next_tag(ordinal);
            binding.poll_send(tag, message, capabilities, cx.waker()).map_ok(|()| {
                binding.streams.add(tag.token(), ordinal);
                binding.stream_of(tag.token(), decode)
            })
        });
        Ok(AsyncParts { client: self.clone(), stream: Some(stream.await?), waiting: None })
    }

    /// Sends a message without a reply, waiting for room if necessary. If the future is dropped meanwhile, the message may
    /// have been kept, and a later call of this client sends it.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn send(
        &self,
        ordinal: u16,
        message: &[u8],
        capabilities: &Capabilities<'_>,
    ) -> Result<(), CallError> {
        let mut kept_behind = None;
        self.ready(|binding, cx| {
            if kept_behind.is_none() {
                let tag = Tag::new(binding.number, ordinal, 0);
                match binding.poll_send(tag, message, capabilities, cx.waker()) {
                    Poll::Ready(Ok(())) if binding.link.is_keeping() => {}
                    ended => return ended,
                }
            }
            // It is kept: nobody else may ever do anything that sends it.
            if *kept_behind.get_or_insert(binding.flush_count) < binding.flush_count {
                return Poll::Ready(Ok(()));
            }
            add_once(&mut binding.senders, cx.waker());
            Poll::Pending
        })
        .await
    }

    /// The next message from the service that is no reply, and its ordinal.
    ///
    /// # Errors
    /// As for [`Binding::event`].
    pub async fn event(&self) -> Result<(u16, Message), CallError> {
        self.ready(|binding, cx| match binding.events.take() {
            Some(event) => Poll::Ready(event),
            None => match &binding.end {
                Some(end) => Poll::Ready(Err(end.clone())),
                None => {
                    binding.events.wake_later(cx.waker());
                    Poll::Pending
                }
            },
        })
        .await
    }

    /// Reads what has come until `done` is ready. `done` leaves its waker where what it waits for is put.
    async fn ready<T>(
        &self,
        mut done: impl FnMut(&mut Binding, &mut Context<'_>) -> Poll<Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let (mut wait, mut turn) = (Wait::default(), Turn { client: self, is_waiting: false });
        poll_fn(|cx| {
            turn.end();
            loop {
                let mut binding = self.lock();
                // Its error is that of the link, which ends what waits on it.
                let progress = binding.progress_far();
                if let Poll::Ready(done) = done(&mut binding, cx) {
                    self.arm_for_others(&mut binding, progress.is_ok_and(|(_, is_all)| !is_all));
                    return Poll::Ready(done);
                }
                let (_, is_all) = progress?;
                if !is_all {
                    // Other tasks get their turn. There may be no news of what has come already.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let Some(interest) = binding.interest()? else { continue };
                turn.begin();
                drop(binding);
                match wait.poll(&*self.0.readiness, interest, cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(waited) => turn.end_of_wait(waited)?,
                }
            }
        })
        .await
    }

    /// A task that does not wait for the descriptor any more may have taken what had made it readable.
    fn arm_for_others(&self, binding: &mut Binding, mut has_more: bool) {
        while *self.0.waiting() > 0 && (has_more || matches!(binding.interest(), Ok(None))) {
            let Ok((_, is_all)) = binding.progress_far() else { return };
            has_more = !is_all;
        }
    }
}

/// Counts a task while it waits for the descriptor.
struct Turn<'a> {
    client: &'a AsyncBinding,
    is_waiting: bool,
}

impl Turn<'_> {
    fn begin(&mut self) {
        self.is_waiting = true;
        *self.client.0.waiting() += 1;
    }

    /// The reactor has told the task, or cannot: its runtime may have ended.
    fn end_of_wait(&mut self, waited: io::Result<()>) -> Result<(), CallError> {
        self.end();
        waited.map_err(|error| CallError::Os {
            what: "wait for a descriptor",
            errno: error.raw_os_error().unwrap_or_default(),
        })
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            *self.client.0.waiting() -= 1;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Binding {
    /// Sends, or keeps the message if there is no room; pending if one is kept already.
    fn poll_send(
        &mut self,
        tag: Tag,
        message: &[u8],
        capabilities: &Capabilities<'_>,
        waker: &Waker,
    ) -> Poll<Result<(), CallError>> {
        match self.send_by(tag, message, capabilities, Patience::None) {
            Err(CallError::Busy) if !self.link.is_keeping() => Poll::Ready(
                self.link.keep(tag, message, capabilities).map_err(|error| self.send_failed(error)),
            ),
            Err(CallError::Busy) => {
                add_once(&mut self.senders, waker);
                Poll::Pending
            }
            sent => Poll::Ready(sent),
        }
    }
}

/// Waits for a descriptor in the reactor.
#[derive(Default)]
struct Wait<'a> {
    readable: Option<Waiting<'a>>,
    writable: Option<Waiting<'a>>,
}

impl<'a> Wait<'a> {
    fn poll(
        &mut self,
        readiness: &'a dyn Watched,
        interest: Interest,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let readable = self.readable.get_or_insert_with(|| readiness.readable());
        if let Poll::Ready(waited) = readable.as_mut().poll(cx) {
            self.readable = None;
            return Poll::Ready(waited);
        }
        if interest == Interest::ReadAndWrite {
            let writable = self.writable.get_or_insert_with(|| readiness.writable());
            if let Poll::Ready(waited) = writable.as_mut().poll(cx) {
                self.writable = None;
                return Poll::Ready(waited);
            }
        }
        Poll::Pending
    }
}

impl Binding {
    /// Tells the service what has been taken of a stream, if it is time; once there is room.
    pub(super) fn poll_credit(&mut self, token: u32, waker: &Waker) {
        // The end of the link is that of the stream.
        let _ = self.give_credit(token, Patience::None);
        if self.streams.credit_due(token).is_some() {
            add_once(&mut self.senders, waker);
        }
    }
}

/// Gives the stream back, with what came.
type NextPart<P, E> =
    Pin<Box<dyn Future<Output = (PartStream<P, E>, Option<Result<P, E>>)> + Send>>;

/// The parts of a stream, for tasks of any executor: a [`futures_core::Stream`]. It ends after an error. Dropping it cancels
/// the stream.
#[must_use = "a stream that is dropped is cancelled"]
pub struct AsyncParts<P, E: From<CallError>> {
    client: AsyncBinding,
    /// `None` while the future has it.
    stream: Option<PartStream<P, E>>,
    /// Waits for the next part.
    waiting: Option<NextPart<P, E>>,
}

impl<P: Send + 'static, E: From<CallError> + Send + 'static> AsyncParts<P, E> {
    /// Waits for the next part. `None` once the stream has ended. If the future is dropped, no part is lost.
    pub async fn next(&mut self) -> Option<Result<P, E>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl<P: Send + 'static, E: From<CallError> + Send + 'static> futures_core::Stream
    for AsyncParts<P, E>
{
    type Item = Result<P, E>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(mut stream) = this.stream.take() {
            let client = this.client.clone();
            this.waiting = Some(Box::pin(async move {
                let next = client.ready(|binding, cx| match stream.poll(binding, cx.waker()) {
                    Some(next) => Poll::Ready(Ok(next)),
                    None => Poll::Pending,
                });
                let next = next.await.unwrap_or_else(|error| Some(Err(error.into())));
                (stream, next)
            }));
        }
        let Some(waiting) = &mut this.waiting else { return Poll::Ready(None) };
        let Poll::Ready((stream, next)) = waiting.as_mut().poll(cx) else { return Poll::Pending };
        (this.waiting, this.stream) = (None, Some(stream));
        Poll::Ready(next)
    }
}

impl<P, E: From<CallError>> Drop for AsyncParts<P, E> {
    fn drop(&mut self) {
        (self.waiting, self.stream) = (None, None);
        self.client.lock().cancel_dropped();
    }
}

impl<P, E: From<CallError>> fmt::Debug for AsyncParts<P, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncParts").finish_non_exhaustive()
    }
}

impl<P, E: From<CallError>> Unpin for AsyncParts<P, E> {}

/// A call whose future may be dropped.
struct Call<'a> {
    client: &'a AsyncBinding,
    token: u32,
    is_open: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.client.lock().calls.abandon(self.token);
        }
    }
}

impl fmt::Debug for AsyncBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}
