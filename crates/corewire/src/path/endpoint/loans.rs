//! Messages that the program writes where their receiver reads them.
//!
//! A loan is a block of the heap. If the heap is full or the peer grants nothing, the loan has memory of its own. A loan
//! that may not wait ends with `ReceiverFull` when the grant is spent.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use corewire_endpoint::transport::Room;
use corewire_endpoint::{Envelope, Fragment, MessageError, Peer, Source};
use corewire_layout::rendezvous::Stretch;
use corewire_ring::pair::{Lending, LentBlock};

use super::{Endpoint, after};
use crate::rings::Returned;
use crate::wait::Patience;

/// Memory for one message to one peer, returned by [`Endpoint::loan`]. It derefs to its bytes. Write the message there, and
/// [send](Endpoint::send_loan) it.
///
/// It may be written by any thread. Dropping it unsent gives its memory back.
pub struct EndpointLoan {
    peer: Peer,
    memory: LoanMemory,
    home: Arc<Returned>,
}

enum LoanMemory {
    /// In the heap, where the peer reads it.
    Block(LentBlock),
    /// Of its own: it is sent as any other message.
    Own(Vec<u8>),
    /// It was sent.
    Gone,
}

impl EndpointLoan {
    /// Its receiver.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether the peer will read it where it lies: sending it copies nothing.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        matches!(self.memory, LoanMemory::Block(_))
    }

    /// Shortens the message to its first `bytes` bytes, if it is longer.
    pub fn truncate(&mut self, bytes: usize) {
        match &mut self.memory {
            LoanMemory::Block(lent) => lent.truncate(bytes),
            LoanMemory::Own(own) => own.truncate(bytes),
            LoanMemory::Gone => {}
        }
    }
}

impl Deref for EndpointLoan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            LoanMemory::Block(lent) => lent.as_slice(),
            LoanMemory::Own(own) => own,
            LoanMemory::Gone => &[],
        }
    }
}

impl DerefMut for EndpointLoan {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            LoanMemory::Block(lent) => lent.as_mut_slice(),
            LoanMemory::Own(own) => own,
            LoanMemory::Gone => &mut [],
        }
    }
}

impl Drop for EndpointLoan {
    fn drop(&mut self) {
        if let LoanMemory::Block(lent) = std::mem::replace(&mut self.memory, LoanMemory::Gone) {
            self.home.add(lent);
        }
    }
}

impl fmt::Debug for EndpointLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (peer, bytes) = (&self.peer, self.len());
        f.debug_struct("EndpointLoan")
            .field("peer", peer)
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}

/// A message in a block, as something to send.
struct Written<'a>(&'a LentBlock);

impl Source for Written<'_> {
    fn bytes(&self) -> u64 {
        self.0.as_slice().len() as u64
    }

    fn fill(&self, offset: u64, target: &mut Fragment<'_>) {
        self.0.as_slice().fill(offset, target);
    }

    fn stretches(&self, each: &mut dyn FnMut(Stretch)) {
        self.0.as_slice().stretches(each);
    }

    fn block(&self) -> Option<&LentBlock> {
        Some(self.0)
    }
}

/// A loan that was not sent, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct UnsentLoan {
    /// The loan, which may be sent again.
    pub loan: EndpointLoan,
    /// Why it was not sent.
    pub error: MessageError,
}

impl Endpoint {
    /// Memory for a message of `bytes` bytes to `peer`, where the peer reads it: then neither side copies the message. Waits
    /// while what the peer [grants](crate::EndpointBuilder::grants) is spent.
    ///
    /// If the message is longer than what the peer grants altogether by now (the call asks for more), or than half of this
    /// endpoint's [heap](crate::EndpointBuilder::heap), the memory is the loan's own, and the message is sent as any other.
    ///
    /// The memory holds what was written there before, by this endpoint.
    ///
    /// # Errors
    /// [`MessageError::PeerDied`], `PeerLeft`, `PeerCutOff`, `UnknownPeer`, `NoMemory`, `Interrupted` or `Forked`.
    ///
    /// ```
    /// use corewire::{Domain, Selector};
    ///
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-loan-{}", std::process::id()));
    /// let domain = Domain::open_at(&directory)?;
    /// let mut camera = domain.endpoint("camera").create()?;
    /// let mut viewer = domain.endpoint("viewer").create()?;
    /// let peer = camera.peer("viewer")?;
    ///
    /// let mut image = camera.loan(peer, 320 * 240)?;
    /// image.fill(7);
    /// camera.send_loan(image, 1)?;
    ///
    /// # std::thread::scope(|scope| {
    /// # scope.spawn(move || camera.close());
    /// let image = viewer.receive(Selector::any())?;
    /// assert!(image.iter().all(|&pixel| pixel == 7));
    /// # Ok::<_, corewire::MessageError>(())
    /// # })?;
    /// # drop((viewer, domain));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn loan(&mut self, peer: Peer, bytes: usize) -> Result<EndpointLoan, MessageError> {
        self.loan_patiently(peer, bytes, Patience::Forever)
    }

    pub(super) fn loan_patiently(
        &mut self,
        peer: Peer,
        bytes: usize,
        patience: Patience,
    ) -> Result<EndpointLoan, MessageError> {
        match self.find_loan(peer, bytes) {
            Some(Ok(loan)) if !loan.is_in_place() => {}
            Some(end) => return end,
            None => {}
        }
        // Grants arrive as messages do.
        self.engine.progress(None)?;
        if let Some(end) = self.find_loan(peer, bytes) {
            return end;
        }
        if matches!(patience, Patience::None) {
            return Err(MessageError::Timeout { after: Duration::ZERO });
        }
        let (envelope, is_in_place) = (Envelope::tagged(0), true);
        let room = Room {
            row: peer.row(),
            envelope,
            bytes: bytes.max(1) as u64,
            is_in_place,
            is_begun: false,
        };
        self.engine.transport_mut().show_waiting_loan(peer.row(), bytes as u64);
        let end = self
            .wait_for(patience, None, Some(room), |endpoint, _| endpoint.find_loan(peer, bytes));
        self.engine.transport_mut().show_waiting_loan(peer.row(), 0);
        end.map_err(|error| match error {
            MessageError::Timeout { .. } => MessageError::Timeout { after: after(patience) },
            other => other,
        })?
    }

    /// A loan, if there is one now.
    fn find_loan(
        &mut self,
        peer: Peer,
        bytes: usize,
    ) -> Option<Result<EndpointLoan, MessageError>> {
        if let Err(error) = self.handle_notices().and_then(|()| self.engine.check_peer(peer)) {
            return Some(Err(error));
        }
        let (granted, most) = self.engine.granted(peer.row());
        let lent = if granted == 0 || bytes as u64 > most {
            Lending::Impossible
        } else {
            self.engine.transport_mut().lend(peer.row(), bytes)
        };
        let memory = match lent {
            Lending::Done(lent) => LoanMemory::Block(lent),
            Lending::Spent => {
                self.engine.want_grant(peer.row(), bytes as u64);
                return None;
            }
            Lending::Impossible => {
                // A larger grant may make the next one possible.
                self.engine.want_grant(peer.row(), bytes as u64);
                let mut own = Vec::new();
                if own.try_reserve_exact(bytes).is_err() {
                    return Some(Err(MessageError::NoMemory { bytes: bytes as u64 }));
                }
                own.resize(bytes, 0);
                LoanMemory::Own(own)
            }
        };
        let home = Arc::clone(self.engine.transport().returned());
        Some(Ok(EndpointLoan { peer, memory, home }))
    }

    /// Sends a loan to its peer, waiting for room in the ring if necessary; the message itself is where it belongs already.
    ///
    /// # Errors
    /// [`UnsentLoan`], with the loan, and as for [`send`](Self::send); [`MessageError::UnknownPeer`] also if the loan is
    /// another endpoint's.
    #[expect(clippy::result_large_err, reason = "an unsent loan is given back")]
    pub fn send_loan(
        &mut self,
        loan: EndpointLoan,
        envelope: impl Into<Envelope>,
    ) -> Result<(), UnsentLoan> {
        self.send_loan_patiently(loan, envelope.into(), Patience::Forever)
    }

    #[expect(clippy::result_large_err, reason = "an unsent loan is given back")]
    pub(super) fn send_loan_patiently(
        &mut self,
        mut loan: EndpointLoan,
        envelope: Envelope,
        patience: Patience,
    ) -> Result<(), UnsentLoan> {
        if !Arc::ptr_eq(&loan.home, self.engine.transport().returned()) {
            return Err(UnsentLoan { loan, error: MessageError::UnknownPeer });
        }
        let peer = loan.peer;
        let is_block = |bytes: usize| bytes > envelope.inline_bytes_max();
        let sent = match &loan.memory {
            LoanMemory::Block(lent) if is_block(lent.as_slice().len()) => {
                self.send_source(peer, envelope, &Written(lent), patience)
            }
            // A short message travels in slots.
            _ => self.send_source(peer, envelope, &&*loan, patience),
        };
        if let Err(error) = sent {
            return Err(UnsentLoan { loan, error });
        }
        let is_sent = is_block(loan.len());
        if let LoanMemory::Block(lent) = std::mem::replace(&mut loan.memory, LoanMemory::Gone)
            && !is_sent
        {
            // The message was short; no other thread has to be told.
            self.engine.transport_mut().take_back(&lent);
        }
        Ok(())
    }

    /// What the peer has no room for.
    pub(super) fn full_error(&self, peer: Peer, needed: u64) -> MessageError {
        let (granted, _) = self.engine.granted(peer.row());
        match self.engine.name_of(peer) {
            Some(name) => MessageError::ReceiverFull { name: name.clone(), granted, needed },
            None => MessageError::UnknownPeer,
        }
    }
}
