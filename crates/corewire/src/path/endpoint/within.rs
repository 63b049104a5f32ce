//! The rarer calls of an endpoint, with a limit on their wait.

use std::fmt;
use std::time::Duration;

use corewire_endpoint::{
    Completion, Envelope, Matched, MessageError, OperationHandle, OwnedMessage, Peer, Selector,
    Status,
};

use super::receive::none_if_late;
use super::{DetachedRequest, Endpoint, EndpointLoan, Event, Request, UnsentLoan};
use crate::wait::Patience;

impl Endpoint {
    /// Limits the wait of the next call to `timeout`, counted from now.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-within-{}", std::process::id()));
    /// use corewire::{Domain, Selector};
    /// use std::time::Duration;
    ///
    /// let domain = Domain::open_at(&directory)?;
    /// let mut endpoint = domain.endpoint("desk").create()?;
    /// let found = endpoint.within(Duration::from_millis(1)).probe(Selector::any())?;
    /// assert_eq!(found, None);
    /// # drop((endpoint, domain));
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn within(&mut self, timeout: Duration) -> Within<'_> {
        Within { endpoint: self, patience: Patience::until(timeout) }
    }

    /// The next call does not wait.
    #[inline(always)]
    pub fn now(&mut self) -> Within<'_> {
        Within { endpoint: self, patience: Patience::None }
    }
}

/// An endpoint whose next call waits no longer than was said ([`Endpoint::within`]), or not at all ([`Endpoint::now`]).
/// Each call does what the call of this name does for [`Endpoint`], and has its errors.
///
/// A call that receives or looks returns `None` if nothing came by then. A call that sends returns
/// [`MessageError::Timeout`] if there was no room by then; if it may not wait, [`MessageError::Full`] or `ReceiverFull`.
#[must_use = "nothing is done before a call"]
pub struct Within<'a> {
    endpoint: &'a mut Endpoint,
    patience: Patience,
}

impl<'a> Within<'a> {
    /// [`Endpoint::send_gather`]. If it may not wait, sends also if there is room for the beginning of the message.
    ///
    /// # Errors
    /// As for [`Endpoint::send_gather`], and as said above.
    pub fn send_gather(
        self,
        peer: Peer,
        envelope: impl Into<Envelope>,
        parts: &[&[u8]],
    ) -> Result<(), MessageError> {
        match self.patience {
            Patience::None => self.endpoint.send_now(peer, envelope.into(), &parts),
            patience => self.endpoint.send_slowly(peer, envelope.into(), &parts, patience),
        }
    }

    /// [`Endpoint::receive_scatter`].
    ///
    /// # Errors
    /// As for [`Endpoint::receive_scatter`].
    pub fn receive_scatter(
        self,
        selector: Selector,
        parts: &mut [&mut [u8]],
    ) -> Result<Option<Status>, MessageError> {
        none_if_late(self.endpoint.receive_slowly(selector, &mut &mut *parts, self.patience))
    }

    /// [`Endpoint::call_into`]. A reply that comes later is dropped, so that a call which may not wait hardly ever has one.
    ///
    /// # Errors
    /// As for [`Endpoint::call_into`].
    pub fn call_into(
        self,
        peer: Peer,
        request: &[u8],
        reply: &mut [u8],
    ) -> Result<Option<Status>, MessageError> {
        let Self { endpoint, patience } = self;
        match endpoint.begin_call(peer, request, patience)? {
            Some(selector) => endpoint.receive_into_patiently(selector, reply, patience),
            None => Ok(None),
        }
    }

    /// [`Endpoint::receive_request`].
    ///
    /// # Errors
    /// As for [`Endpoint::receive_request`].
    pub fn receive_request(self) -> Result<Option<Request<'a>>, MessageError> {
        let message = match self.patience {
            Patience::None => self.endpoint.try_receive(Selector::requests()),
            patience => self.endpoint.receive_patiently(Selector::requests(), patience),
        };
        Ok(message?.map(|message| Request::new(self.endpoint, message)))
    }

    /// [`Endpoint::receive_event`].
    ///
    /// # Errors
    /// As for [`Endpoint::receive_event`].
    pub fn receive_event(
        self,
        selector: Selector,
    ) -> Result<Option<Event<OwnedMessage>>, MessageError> {
        none_if_late(self.endpoint.event(selector, self.patience))
    }

    /// [`Endpoint::receive_event_into`].
    ///
    /// # Errors
    /// As for [`Endpoint::receive_event_into`].
    #[inline(always)]
    pub fn receive_event_into(
        self,
        selector: Selector,
        buffer: &mut [u8],
    ) -> Result<Option<Event<Status>>, MessageError> {
        match self.patience {
            Patience::None => self.endpoint.event_into_now(selector, buffer),
            patience => none_if_late(self.endpoint.event_into(selector, buffer, patience)),
        }
    }

    /// [`Endpoint::receive_request_event`].
    ///
    /// # Errors
    /// As for [`Endpoint::receive_request_event`].
    pub fn receive_request_event(self) -> Result<Option<Event<DetachedRequest>>, MessageError> {
        let event = none_if_late(self.endpoint.event(Selector::requests(), self.patience))?;
        Ok(event.map(|event| self.endpoint.as_request(event)))
    }

    /// [`Endpoint::loan`].
    ///
    /// # Errors
    /// As for [`Endpoint::loan`], and [`MessageError::Timeout`] or `ReceiverFull` while what the peer grants is spent.
    pub fn loan(self, peer: Peer, bytes: usize) -> Result<EndpointLoan, MessageError> {
        let Self { endpoint, patience } = self;
        endpoint.loan_patiently(peer, bytes, patience).map_err(|error| match (error, patience) {
            (MessageError::Timeout { .. }, Patience::None) => {
                endpoint.full_error(peer, bytes as u64)
            }
            (error, _) => error,
        })
    }

    /// [`Endpoint::send_loan`].
    ///
    /// # Errors
    /// As for [`Endpoint::send_loan`], and as said above.
    #[expect(clippy::result_large_err, reason = "an unsent loan is given back")]
    pub fn send_loan(
        self,
        loan: EndpointLoan,
        envelope: impl Into<Envelope>,
    ) -> Result<(), UnsentLoan> {
        self.endpoint.send_loan_patiently(loan, envelope.into(), self.patience)
    }

    /// [`Endpoint::probe`].
    ///
    /// # Errors
    /// As for [`Endpoint::probe`].
    pub fn probe(self, selector: Selector) -> Result<Option<Status>, MessageError> {
        let look = |endpoint: &mut Endpoint| endpoint.engine.peek(&selector);
        none_if_late(self.endpoint.find(self.patience, look))
    }

    /// [`Endpoint::claim`].
    ///
    /// # Errors
    /// As for [`Endpoint::claim`].
    pub fn claim(self, selector: Selector) -> Result<Option<Matched>, MessageError> {
        let look = |endpoint: &mut Endpoint| endpoint.engine.claim(&selector);
        none_if_late(self.endpoint.find(self.patience, look))
    }

    /// [`Endpoint::wait`]; `None` if the operation has not ended by then.
    ///
    /// # Errors
    /// As for [`Endpoint::wait`].
    pub fn wait(self, handle: OperationHandle) -> Result<Option<Completion>, MessageError> {
        match self.patience {
            Patience::None => self.endpoint.test(handle),
            patience => {
                let ended = none_if_late(self.endpoint.wait_any_of(&[handle], patience))?;
                Ok(ended.map(|(_, completion)| completion))
            }
        }
    }

    /// [`Endpoint::wait_message`]; `None` if no message had come by then. The rest of one that has begun to come is waited
    /// for.
    ///
    /// # Errors
    /// As for [`Endpoint::wait_message`].
    pub fn wait_message(
        self,
        handle: OperationHandle,
    ) -> Result<Option<OwnedMessage>, MessageError> {
        match self.patience {
            Patience::None => self.endpoint.test_message(handle),
            patience => {
                let matched = none_if_late(self.endpoint.claimed(handle, patience))?;
                matched.map(|matched| self.endpoint.receive_claimed(matched)).transpose()
            }
        }
    }

    /// [`Endpoint::completions`]; 0 if there was none.
    ///
    /// # Errors
    /// As for [`Endpoint::completions`].
    pub fn completions(
        self,
        completions: &mut Vec<Completion>,
        count_max: usize,
    ) -> Result<usize, MessageError> {
        let Self { endpoint, patience } = self;
        if let Patience::None = patience {
            endpoint.engine.progress(None)?;
            return Ok(endpoint.drain(completions, count_max));
        }
        let moved = endpoint.completions_patiently(completions, count_max, patience);
        Ok(none_if_late(moved)?.unwrap_or(0))
    }

    /// [`Endpoint::flush`].
    ///
    /// # Errors
    /// As for [`Endpoint::flush`], and [`MessageError::Timeout`].
    pub fn flush(self) -> Result<(), MessageError> {
        let Self { endpoint, patience } = self;
        endpoint.flush_slowly(patience).map_err(|error| match error {
            MessageError::Timeout { .. } => MessageError::Timeout { after: super::after(patience) },
            other => other,
        })
    }
}

impl fmt::Debug for Within<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Within").field("patience", &self.patience).finish_non_exhaustive()
    }
}
