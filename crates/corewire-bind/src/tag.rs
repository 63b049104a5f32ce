//! The 64 bits that travel with each message.

/// `binding:16 | ordinal:16 | token:32`.
///
/// | part | value |
/// |---|---|
/// | binding | the number that the service gave the client; 0 before that |
/// | ordinal | which message of the interface; 0 for [`Control`] |
/// | token | which call: a request and its reply share one; 0 for messages without a reply |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u64);

/// What binding and unbinding say, in the place of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// Client, on the socket: its interface.
    Bind = 1,
    /// Service, on the socket: the binding's number, and how to reach the ring.
    Accept = 2,
    /// Service: why not, or why not any more. On the socket, or in the ring with a status.
    Refuse = 3,
    /// Client, on the socket: all messages will travel here.
    UseSocket = 4,
    /// Client, in the ring: the number and the secret of its binding.
    Hello = 5,
    /// Service, in the ring: messages may follow.
    Welcome = 6,
    /// Service: events were left out here, as many as the status says.
    Lost = 7,
    /// Service, on the socket: it ends. Without this its process has died, or has closed the socket.
    Leave = 8,
    /// Client, on the socket: asks for the interface in JSON. The reply has the same tag.
    Describe = 9,
    /// Client, on the socket: asks for the service's clients. The reply has the same tag.
    List = 10,
    /// Client: it could not take the capabilities of a message. The status is the ordinal.
    NotTaken = 11,
    /// Client, on the socket: asks for what the service has served. The reply has the same tag.
    Totals = 12,
}

impl Control {
    pub(crate) fn of(tag: Tag) -> Option<Self> {
        const ALL: [Control; 12] = [
            Control::Bind,
            Control::Accept,
            Control::Refuse,
            Control::UseSocket,
            Control::Hello,
            Control::Welcome,
            Control::Lost,
            Control::Leave,
            Control::Describe,
            Control::List,
            Control::NotTaken,
            Control::Totals,
        ];
        (tag.ordinal() == 0)
            .then(|| ALL.into_iter().find(|one| *one as u32 == tag.token()))
            .flatten()
    }
}

impl Tag {
    /// Whether the status of a message in a ring says that its capabilities are in the next packet of the socket. What is no
    /// message of the interface has none: there the number means something else, such as how many events were lost.
    #[inline]
    pub(crate) fn announces_capabilities(self, status: Option<u64>) -> bool {
        status == Some(status::CAPABILITIES) && self.ordinal() != 0
    }

    #[inline(always)]
    pub(crate) const fn new(binding: u16, ordinal: u16, token: u32) -> Self {
        Self((binding as u64) << 48 | (ordinal as u64) << 32 | token as u64)
    }

    pub(crate) const fn control(binding: u16, control: Control) -> Self {
        Self::new(binding, 0, control as u32)
    }

    #[inline(always)]
    pub(crate) const fn binding(self) -> u16 {
        (self.0 >> 48) as u16
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "takes the bits of the ordinal")]
    pub(crate) const fn ordinal(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "takes the bits of the token")]
    pub(crate) const fn token(self) -> u32 {
        self.0 as u32
    }
}

/// The bit of a token that says that a message is a part of a stream, or about its parts (`client/streams.rs`). Tokens of
/// calls do not have it.
pub(crate) const PART: u32 = 1 << 31;

/// What a service may send of a stream before it is given back: the cost of parts. The interface's hash has it, too.
pub(crate) const STREAM_CREDIT: usize = 1 << 16;

/// Bytes of a message with credit.
pub(crate) const CREDIT_BYTES: u32 = 8;

/// Streams of one client at one time.
pub(crate) const STREAMS_MAX: usize = 16;

/// Why a request has no reply, or what else is special about a message: travels as its status.
pub(crate) mod status {
    pub(crate) const DROPPED: u64 = 1;
    pub(crate) const UNKNOWN: u64 = 2;
    pub(crate) const MALFORMED: u64 = 3;
    /// The service could not take the capabilities.
    pub(crate) const NOT_TAKEN: u64 = 4;
    /// The service could not send the capabilities of its reply.
    pub(crate) const NOT_SENT: u64 = 5;
    /// This process could not take the capabilities. Never sent.
    pub(crate) const LOST_HERE: u64 = 6;
    /// The client has more streams than it may.
    pub(crate) const TOO_MANY_STREAMS: u64 = 7;
    /// No reply is missing: the capabilities of this message are in the next packet of the socket.
    pub(crate) const CAPABILITIES: u64 = 0x100;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_lost_events_announces_no_capabilities() {
        let lost = Tag::control(1, Control::Lost);
        assert!(!lost.announces_capabilities(Some(status::CAPABILITIES)));
        assert!(Tag::new(1, 3, 0).announces_capabilities(Some(status::CAPABILITIES)));
        assert!(!Tag::new(1, 3, 0).announces_capabilities(Some(status::NOT_SENT)));
    }
}
