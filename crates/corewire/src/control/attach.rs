//! The receiver's side: joining a channel, and learning of its sender's death.
//!
//! The receiver creates a segment of one page and sends it in a `Hello`, with a descriptor of its process. It checks the
//! seals and the header of the segment in the answer, and watches the owner's socket and process. A hang-up counts as the
//! sender's end, like its death: the receiver gets a notice (W3) and is woken through a word of its own. It first
//! receives every message whose stamp is stored.

use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use corewire_layout::frame::{Frame, Hello, Place, Reason, Welcome};
use corewire_layout::name::ChannelName;
use corewire_layout::segment::{
    BELL, FenceMode, HINT_SEGMENT_BYTES, RECEIVER_SEGMENT_BYTES, RawSenderHeader, ReceiverHeader,
    SenderHeader, TypeTag,
};
use corewire_os::OsError;
use corewire_os::event::Bell;
use corewire_os::fork::{Descriptor, InChild};
use corewire_os::memory::{MemoryOptions, Segment, SegmentError};
use corewire_os::process::{self, effective_uid};
use corewire_os::sleep::Linux;
use corewire_os::socket::{ReceiveError as SocketError, Socket};
use corewire_ring::broadcast::{ReceiverParts, ReceiverShared, head_of};
use corewire_ring::doorbell::notice;
use corewire_ring::region::{Region, Slots};
use zerocopy::{FromZeros, IntoBytes};

use crate::control::asking::{
    ANSWER_TIMEOUT, Row, Wishes, answer, answer_within, ask, connect, protocol, refusal,
};
use crate::control::domain::{DomainHandle, DomainInner};
use crate::control::frames::{REQUESTS_PER_TURN, next_descriptor};
use crate::control::hub::{Failures, Handler, Token};
use crate::control::shared::attachment::{self, JoinRequest, SharedAttachment};
use crate::error::JoinError;
use crate::guard::lock;
use crate::halves::ReceiverHalf;
use crate::host::{Hosted, ReceiverRing};
use crate::tell::tell;
use crate::wait::{Readiness, cap_ns};

/// A receiver asks again after this time without an answer, then after twice that time, and so on.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A receiver's link to its sender.
pub(crate) struct Attachment {
    name: ChannelName,
    shared: Arc<ReceiverShared>,
    slots: Slots,
    socket: Socket,
    /// The owner runs as this process's user.
    is_trusted: bool,
    life: Descriptor,
    tokens: OnceLock<[Token; 2]>,
    readiness: OnceLock<Arc<Bell>>,
    /// Runs when the owner is gone.
    when_gone: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// True once the owner has the readiness descriptor.
    is_handed_over: Mutex<bool>,
    /// Number of requests that the owner has answered, and whether it is gone.
    answers: Mutex<Answers>,
    answered: Condvar,
    /// Failed calls in a row that read from the socket.
    unread: Failures,
    domain: DomainHandle,
    incarnation: u128,
    type_tag: TypeTag,
}

#[derive(Default)]
struct Answers {
    count: u32,
    /// The reason, if the last answer was a refusal.
    refused: Option<Reason>,
    is_gone: bool,
}

/// An owner's answer to a process that asks to join.
pub(crate) enum Answer {
    /// A row in the sender's ring.
    Linked(Row<Attachment>),
    /// A row in the ring of a shared channel.
    Shared(Row<SharedAttachment>),
    /// The receiver must read the relay's channel. This is the sender's incarnation.
    Relayed(u128),
}

/// Asks the owner of channel `name` for a row. `is_in_place`: the receiver reads in place.
pub(crate) fn attach(
    domain: &DomainHandle,
    name: &ChannelName,
    place: Place,
    wishes: Wishes,
    is_in_place: bool,
) -> Result<Answer, JoinError> {
    let (socket, trusted) = connect(domain, name, wishes.patience)?;
    if trusted.is_none() && is_in_place {
        return Err(needs_snapshots(&socket, domain, name));
    }
    let linux = Linux::get();
    let memory = MemoryOptions::default();
    let (segment, own) = Segment::create(RECEIVER_SEGMENT_BYTES as u64, memory)?;
    own.copy_in(0, ReceiverHeader { pid: process::pid() }.to_raw().as_bytes());
    let Wishes { sleep_cap, start, type_tag, waiter, patience, .. } = wishes;
    let needs_fence = !linux.has_membarrier();
    let process = domain.socket_name().map_or(0, |name| name.0);
    let place = if trusted.is_some() { place } else { Place::Ring };
    let (name_asked, type_key) = (name.clone(), type_tag.key);
    let hello =
        Hello { name: name_asked, start, waiter, place, needs_fence, type_key, socket: process };
    let own_life = process::own_life()?;
    ask(&socket, name, &Frame::Hello(hello), &[segment.as_fd(), own_life.as_fd()])?;
    let (frame, descriptors) = answer_within(&socket, name, patience)?;
    let welcome = match frame {
        Frame::Welcome(welcome) => welcome,
        Frame::Relayed { channel, .. } => return Ok(Answer::Relayed(channel)),
        Frame::Refused(reason) => return Err(refusal(name, reason, type_tag)),
        other => return Err(protocol(name, format!("{other:?}"))),
    };
    if welcome.table {
        let request = JoinRequest { domain, name, socket: &socket, trusted, wishes, is_in_place };
        return attachment::join(&request, welcome, descriptors).map(Answer::Shared);
    }
    let link = Welcomed::check(name, welcome, descriptors)?;
    let shared = Arc::new(ReceiverShared::default());
    let life = socket.peer_life(Some(link.life))?;
    let attachment = Arc::new(Attachment {
        name: name.clone(),
        shared: Arc::clone(&shared),
        slots: Slots::new(&link.memory, &link.header.geometry),
        socket,
        is_trusted: trusted.is_some(),
        life,
        tokens: OnceLock::new(),
        readiness: OnceLock::new(),
        when_gone: OnceLock::new(),
        is_handed_over: Mutex::new(false),
        answers: Mutex::default(),
        answered: Condvar::new(),
        unread: Failures::default(),
        domain: domain.clone(),
        incarnation: link.header.incarnation,
        type_tag: link.header.type_tag,
    });
    attachment.watch()?;
    let header = link.header;
    let fence_mode = if needs_fence { FenceMode::Fenced } else { header.fence_mode };
    let parts = ReceiverParts {
        sender: link.memory,
        geometry: header.geometry,
        fence_mode,
        policy: header.policy,
        own,
        hint: link.hint,
        welcome,
        shared,
        many: None,
    };
    let mut ring = ReceiverRing::new(parts, Hosted::new(Arc::clone(&attachment) as _));
    ring.set_sleep_cap(cap_ns(sleep_cap));
    Ok(Answer::Linked(Row { ring, attachment, trusted, header }))
}

/// Why a channel of another user cannot be joined: the owner's reason if it gives one, otherwise ours.
fn needs_snapshots(socket: &Socket, domain: &DomainInner, name: &ChannelName) -> JoinError {
    let look = Frame::Observe { name: name.clone() };
    match ask(socket, name, &look, &[]).and_then(|()| answer(socket, name)) {
        Ok((Frame::Refused(reason), _)) => refusal(name, reason, TypeTag::default()),
        Ok(_) => {
            let (owner, user) = (domain.directory.owner(), effective_uid());
            JoinError::NeedsSnapshots { name: name.clone(), owner, user }
        }
        Err(error) => error,
    }
}

/// The contents of a welcome, checked.
struct Welcomed {
    memory: Region,
    header: SenderHeader,
    life: Descriptor,
    hint: Option<Region>,
}

impl Welcomed {
    fn check(
        name: &ChannelName,
        welcome: Welcome,
        mut descriptors: Vec<Descriptor>,
    ) -> Result<Self, JoinError> {
        let bad = |error: SegmentError| JoinError::Segment { name: name.clone(), error };
        let missing = || protocol(name, "too few descriptors".into());
        let segment = next_descriptor(&mut descriptors).ok_or_else(missing)?;
        let (memory, header) = open_sender(name, segment)?;
        let life = next_descriptor(&mut descriptors).ok_or_else(missing)?;
        let hint = match welcome.hint {
            true => {
                let hint = next_descriptor(&mut descriptors).ok_or_else(missing)?;
                let hint = Segment::adopt(hint, true).map_err(bad)?;
                Some(hint.map_writable(HINT_SEGMENT_BYTES as u64).map_err(bad)?)
            }
            false => None,
        };
        if u64::from(welcome.row) >= header.geometry.receivers_max() {
            return Err(protocol(name, format!("with row {}", welcome.row)));
        }
        if welcome.start > u64::MAX / 2 {
            return Err(protocol(name, format!("with a first message numbered {}", welcome.start)));
        }
        if welcome.incarnation != header.incarnation {
            return Err(protocol(name, "with another channel's memory".into()));
        }
        Ok(Self { memory, header, life, hint })
    }
}

/// Maps and checks a sender's segment.
pub(crate) fn open_sender(
    name: &ChannelName,
    descriptor: Descriptor,
) -> Result<(Region, SenderHeader), JoinError> {
    let bad = |error: SegmentError| JoinError::Segment { name: name.clone(), error };
    let segment = Segment::adopt(descriptor, false).map_err(bad)?;
    let memory = segment.map(BELL as u64).map_err(bad)?;
    let mut raw = RawSenderHeader::new_zeroed();
    memory.copy_out(0, raw.as_mut_bytes());
    let header = SenderHeader::parse(&raw, segment.bytes())
        .map_err(|error| JoinError::Header { name: name.clone(), error })?;
    Ok((memory, header))
}

impl Attachment {
    fn watch(self: &Arc<Self>) -> Result<(), OsError> {
        let in_child: Weak<dyn InChild> = Arc::downgrade(self) as Weak<dyn InChild>;
        corewire_os::fork::notify_in_child(in_child);
        let handler: Weak<dyn Handler> = Arc::downgrade(self) as Weak<dyn Handler>;
        let hub = self.domain.hub();
        let _ = self.tokens.set(hub.watch_both(&self.socket, &self.life, &handler)?);
        Ok(())
    }

    fn unwatch(&self) {
        if let Some(tokens) = self.tokens.get() {
            self.domain.hub().forget_both(&self.socket, &self.life, *tokens);
        }
    }

    fn hand_over(&self, bell: &Bell) -> Result<(), JoinError> {
        let before = lock(&self.answers).count;
        // An owner of another user gets no descriptor. It wakes this receiver with frames instead.
        let own = [bell.as_fd()];
        let descriptors = if self.is_trusted { &own[..] } else { &[] };
        let waiting = |answers: &mut Answers| answers.count == before && !answers.is_gone;
        let name = self.name.clone();
        let mut left = ANSWER_TIMEOUT;
        let mut patience = ASK_AGAIN_AFTER;
        let mut answers = loop {
            match self.socket.send(&Frame::Readiness, descriptors) {
                // A sender that is gone needs no descriptor: this process reports its end.
                Err(error) if error.is_hang_up() => return Ok(()),
                other => other?,
            }
            let (answers, timeout) = self
                .answered
                .wait_timeout_while(lock(&self.answers), patience.min(left), waiting)
                .unwrap_or_else(PoisonError::into_inner);
            if !timeout.timed_out() {
                break answers;
            }
            left = left.saturating_sub(patience);
            if left.is_zero() {
                let pid = self.socket.peer().map_or(0, |peer| peer.pid);
                return Err(JoinError::NoAnswer { name, after: ANSWER_TIMEOUT, pid });
            }
            // The owner may have had no memory for its answer. A repeated request is harmless.
            patience *= 2;
        };
        match answers.refused.take() {
            Some(reason) => Err(JoinError::Refused { name, reason }),
            None => Ok(()),
        }
    }

    /// Reads the owner's frames. True if the owner has hung up or sent an invalid frame.
    fn is_over(&self, hung_up: bool) -> bool {
        for _ in 0..REQUESTS_PER_TURN {
            let received = self.socket.receive();
            if !matches!(received, Err(SocketError::Os(_))) {
                self.unread.end();
            }
            match received {
                Ok((Frame::Done, _)) => self.answer(None),
                Ok((Frame::Ring, _)) => {
                    if let Some(bell) = self.readiness.get() {
                        bell.ring();
                    }
                }
                Ok((Frame::Refused(reason), _)) => self.answer(Some(reason)),
                Err(SocketError::Nothing) => return hung_up,
                // A failed call says nothing about the owner. A frame that it sent is still in the socket: an answer, or
                // that there is something to receive.
                Err(SocketError::Os(error)) => {
                    if self.unread.add() {
                        self.answer(Some(Reason::Resources { errno: error.errno.unsigned_abs() }));
                        self.readiness.get().into_iter().for_each(|bell| bell.ring());
                    }
                    return hung_up;
                }
                _ => return true,
            }
        }
        // The next event, which comes at once, handles the rest, including a hang-up.
        false
    }

    fn answer(&self, refused: Option<Reason>) {
        let mut answers = lock(&self.answers);
        answers.count = answers.count.wrapping_add(1);
        answers.refused = refused;
        self.answered.notify_all();
    }

    fn gone(&self) {
        self.unwatch();
        lock(&self.answers).is_gone = true;
        self.answered.notify_all();
        self.notify(notice::PEER_GONE);
        if let Some(job) = self.when_gone.get() {
            job();
        }
        tell!(info, "the sender is gone", channel = self.name);
    }

    /// Runs `job` when the owner is gone, possibly twice, and at once if the owner is gone already. It runs on the
    /// control thread and must not block.
    pub(crate) fn when_gone(&self, job: impl Fn() + Send + Sync + 'static) {
        let job = self.when_gone.get_or_init(|| Box::new(job));
        if lock(&self.answers).is_gone {
            job();
        }
    }

    /// Number of messages that the channel has carried, once its sender is gone.
    pub(crate) fn head(&self) -> u64 {
        head_of(&self.slots)
    }

    /// Makes the owner wake the receiver through `bell`, instead of a bell of this attachment.
    pub(crate) fn use_bell(&self, bell: &Arc<Bell>) {
        let _ = self.readiness.set(Arc::clone(bell));
    }
}

impl ReceiverHalf for Attachment {
    fn name(&self) -> &ChannelName {
        &self.name
    }

    fn incarnation(&self) -> u128 {
        self.incarnation
    }

    fn type_tag(&self) -> TypeTag {
        self.type_tag
    }

    fn notify(&self, notice: u32) {
        self.shared.notify(notice, &Linux::get());
        if let Some(bell) = self.readiness.get() {
            bell.ring();
        }
    }

    /// Tells the owner that the receiver leaves.
    fn leave(&self) {
        self.unwatch();
        // If this fails, the hang-up tells the owner.
        let _ = self.socket.send(&Frame::Leave, &[]);
        self.domain.end();
    }

    /// The descriptor through which the owner wakes this receiver. It is created and handed over once.
    fn readiness(&self) -> Result<Readiness, JoinError> {
        if self.shared.notices() & notice::FORKED != 0 {
            return Err(JoinError::Forked);
        }
        let mut is_handed_over = lock(&self.is_handed_over);
        let bell = match self.readiness.get() {
            Some(bell) => bell,
            None => {
                let bell = Arc::new(Bell::new()?);
                self.readiness.get_or_init(|| bell)
            }
        };
        if !*is_handed_over {
            self.hand_over(bell)?;
            *is_handed_over = true;
        }
        if self.shared.notices() & notice::PEER_GONE != 0 {
            bell.ring();
        }
        Ok(Readiness::of(bell))
    }
}

impl corewire_ring::Control for Attachment {
    fn leave(&self) {
        ReceiverHalf::leave(self);
    }
}

impl Handler for Attachment {
    fn on_event(&self, token: Token, hung_up: bool) {
        let is_life = self.tokens.get().is_some_and(|tokens| tokens[1] == token);
        if is_life || self.is_over(hung_up) {
            self.gone();
        }
    }
}

impl InChild for Attachment {
    fn forked(&self) {
        self.shared.mark_forked();
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.unwatch();
    }
}
