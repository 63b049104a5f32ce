//! What travels in the control lane: one packet on a SEQPACKET socket each.
//!
//! | packet | from, to | meaning |
//! |---|---|---|
//! | `Attach` | program or monitor, monitor | let me be your neighbour |
//! | `Attached` | monitor, neighbour | you are; the ring is here |
//! | `Lane` | neighbour, monitor | first on a second socket: it is my data lane |
//! | `Ready` | monitor, neighbour | your data lane is known: the link is up |
//! | `Export` | program, monitor | I serve this name, until the link ends |
//! | `Exported` | monitor, program | circuits to this name come to you; or why not |
//! | `Setup` | towards the service | set up a circuit |
//! | `Accept` | towards the client | it is open from here to the service |
//! | `Reset` | both | it has ended |
//! | `Capabilities` | both | those of the next message that has some, with their descriptors |
//! | `Unneeded` | monitor, monitor | from the higher number: this link may end; from the lower one: I would no longer refuse that |
//! | `Needed` | monitor, lower number to higher | it must not end |
//! | `Leave` | program, monitor | I close the link: what follows is a hang-up, not a death |
//! | `Refused` | monitor, anybody | the link ends, because of this |
//! | `Name` | monitor, monitor | who serves a name |
//! | `Table` | monitor, monitor; `corewire routes`, monitor | the routing table |
//! | `Ask`, `Answer` | anybody, monitor | what there is to see, in JSON |
//! | `Trace` | `corewire trace`, monitor; monitor, program | record what you do with frames; no longer |
//! | `Traced` | program, monitor; monitor, `corewire trace` | in this memory, whose descriptor comes with the packet |
//!
//! A packet is hostile until [`Packet::parse`] has read it. One that it refuses ends the link. All numbers are
//! little-endian.
//!
//! More than 600 lines, because each packet stands once where it is written and once where it is read, and both must show the same order.

use corewire_layout::LAYOUT_VERSION;
use corewire_layout::name::NAME_BYTES_MAX;

use super::fields::{Reader, Writer};
use super::{Label, NODES_MAX, NodeId, NodeSet, PATH_MAX};

/// The longest packet.
pub const PACKET_BYTES_MAX: usize = 48 << 10;
/// The longest offer or answer.
pub const OFFER_BYTES_MAX: usize = 32 << 10;
/// The longest description of a message's capabilities.
pub const NOTES_BYTES_MAX: usize = 42 << 10;
/// The longest reason.
pub const REASON_BYTES_MAX: usize = 512;
/// The largest number of single routes in a table.
pub const VIAS_MAX: usize = 4096;

const MAGIC: u32 = u32::from_le_bytes(*b"cwci");

/// Why bytes are no packet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Not a packet at all.
    #[error("not a packet of a circuit's control lane")]
    Magic,
    /// Another version.
    #[error("version {found} of corewire's layout, where {LAYOUT_VERSION} is spoken")]
    Version {
        /// What was found.
        found: u32,
    },
    /// Too long.
    #[error("a packet of {found} bytes: at most {PACKET_BYTES_MAX} are possible")]
    Long {
        /// Its length.
        found: usize,
    },
    /// A field is impossible, or something is missing or left over.
    #[error("a malformed packet of kind {kind}")]
    Malformed {
        /// Its kind.
        kind: u8,
    },
}

/// Who is at the other end of a link, or of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Origin {
    /// The effective user, from the kernel.
    pub uid: u32,
    /// The effective group, from the kernel.
    pub gid: u32,
    /// The process, as its own monitor sees it; 0 in another container.
    pub pid: u32,
}

/// A request for a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Setup {
    /// What the receiver writes into frames of this circuit to the sender.
    pub label: Label,
    /// Up to which line the receiver may send.
    pub credit: u32,
    /// The service.
    pub service: String,
    /// The monitor where the service is; `None` if any will do.
    pub node: Option<NodeId>,
    /// The client, as its monitor has it from the kernel.
    pub origin: Origin,
    /// The monitors on the way so far, the client's first.
    pub path: Vec<NodeId>,
    /// All monitors that have been tried.
    pub visited: NodeSet,
    /// What the client's program says to the service's.
    pub offer: Vec<u8>,
}

/// How a circuit ended, or why it was never open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum End {
    /// An end has closed it.
    Closed = 1,
    /// The process at an end has died.
    Died = 2,
    /// A link or a monitor on the way has died.
    Lost = 3,
    /// The service does not want it.
    Refused = 4,
    /// Nobody serves the name.
    NotFound = 5,
    /// A rule of a monitor forbids it.
    NotPermitted = 6,
    /// There is no way to the service.
    Unreachable = 7,
    /// A monitor has no room.
    Full = 8,
    /// An end did what it must not.
    Violation = 9,
}

impl End {
    const ALL: [Self; 9] = [
        Self::Closed,
        Self::Died,
        Self::Lost,
        Self::Refused,
        Self::NotFound,
        Self::NotPermitted,
        Self::Unreachable,
        Self::Full,
        Self::Violation,
    ];

    /// Whether another way to the service may do better.
    #[must_use]
    pub const fn may_go_around(self) -> bool {
        matches!(self, Self::Unreachable | Self::Lost | Self::Full)
    }
}

/// The end of a circuit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reset {
    /// The receiver's label for it; none if the sender does not know it yet.
    pub to: Label,
    /// The sender's own label for it; none if it had given none.
    pub from: Label,
    /// The receiver acts on this once it has had so many lines from the sender; at once without it.
    pub after: Option<u32>,
    /// What happened.
    pub end: End,
    /// The monitors that were tried, if it was never open.
    pub visited: NodeSet,
    /// What happened, for people.
    pub reason: String,
}

/// Who asks to be a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// A program: a client, a service, or both.
    Program,
    /// Another monitor.
    Monitor(NodeId),
}

/// A routing table, as it travels: from it every monitor computes the same routes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Table {
    /// Which of two tables is newer.
    pub version: u64,
    /// How monitors are joined.
    pub shape: Shape,
    /// Single routes that differ from the shape.
    pub vias: Vec<Via>,
}

/// How monitors are joined (Grest, section 3.9).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Shape {
    /// Each with each.
    #[default]
    Direct,
    /// Each with the next in this order, the last with the first.
    Ring(Vec<NodeId>),
    /// Each with those of its group; the first of each group with those of the others.
    FatTree(Vec<Vec<NodeId>>),
}

/// One route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Via {
    /// At this monitor,
    pub from: NodeId,
    /// the way to this one
    pub to: NodeId,
    /// goes to this one first.
    pub via: NodeId,
}

/// What [`Packet::Ask`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Question {
    /// The circuits through the monitor.
    Circuits = 1,
    /// The monitor's links, names and routes.
    Routes = 2,
    /// The memory of everybody who has recorded: a packet for each, then an empty answer.
    Traces = 3,
}

/// A packet of the control lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Packet {
    /// Let me be your neighbour.
    Attach {
        /// Who asks.
        role: Role,
        /// The data lane shall be a ring.
        wants_ring: bool,
    },
    /// You are my neighbour.
    Attached {
        /// The monitor's number.
        node: NodeId,
        /// By what the data lane is known.
        secret: u64,
        /// The monitor's endpoint; empty if the data lane is a socket.
        endpoint: String,
    },
    /// This socket is the data lane of the link with this secret.
    Lane {
        /// The secret.
        secret: u64,
    },
    /// The link is up.
    Ready,
    /// I serve this name.
    Export {
        /// The name.
        name: String,
    },
    /// Circuits to the name come to you, unless there is a reason why not.
    Exported {
        /// The name.
        name: String,
        /// Why not; empty if they do.
        reason: String,
    },
    /// Set up a circuit.
    Setup(Box<Setup>),
    /// It is open.
    Accept {
        /// The receiver's label.
        to: Label,
        /// The sender's label.
        label: Label,
        /// Up to which line the receiver may send.
        credit: u32,
        /// The service, as its monitor has it from the kernel.
        origin: Origin,
        /// What the service's program says to the client's.
        answer: Vec<u8>,
    },
    /// It has ended.
    Reset(Box<Reset>),
    /// The capabilities of the next message of the circuit that has some; the descriptors are in the same packet.
    Capabilities {
        /// The receiver's label.
        to: Label,
        /// They could not be passed on: the message arrives without them, and its sender is told.
        is_lost: bool,
        /// What they are, for the ends.
        notes: Vec<u8>,
    },
    /// The sender closes the link, and does not die.
    Leave,
    /// The link ends.
    Refused {
        /// Why.
        reason: String,
    },
    /// A monitor serves a name, or no longer.
    Name {
        /// The name; empty for all that the monitor served before it started.
        name: String,
        /// The monitor.
        node: NodeId,
        /// Which of two such packets is newer.
        epoch: u64,
        /// Whether the name is served there.
        is_served: bool,
    },
    /// The routing table.
    Table(Table),
    /// Show me.
    Ask(Question),
    /// A part of the answer, in JSON.
    Answer {
        /// Nothing follows.
        is_last: bool,
        /// The part.
        part: Vec<u8>,
    },
    /// Record what you do with frames.
    Trace {
        /// No longer, if not.
        is_on: bool,
    },
    /// This process records in the memory whose descriptor comes with the packet.
    Traced,
    /// From the monitor with the higher number: the link may end, and it sets up no circuit on it before the answer. From the
    /// other one: it would no longer refuse that.
    Unneeded,
    /// The link must not end.
    Needed,
}

impl Packet {
    const fn kind(&self) -> u8 {
        match self {
            Self::Attach { .. } => 1,
            Self::Attached { .. } => 2,
            Self::Lane { .. } => 3,
            Self::Ready => 4,
            Self::Export { .. } => 5,
            Self::Leave => 6,
            Self::Exported { .. } => 7,
            Self::Setup(_) => 8,
            Self::Accept { .. } => 9,
            Self::Reset(_) => 10,
            Self::Refused { .. } => 11,
            Self::Name { .. } => 12,
            Self::Table(_) => 13,
            Self::Ask(_) => 14,
            Self::Answer { .. } => 15,
            Self::Capabilities { .. } => 16,
            Self::Trace { .. } => 17,
            Self::Traced => 18,
            Self::Unneeded => 19,
            Self::Needed => 20,
        }
    }

    /// The packet's bytes. Reasons that are too long are cut; everything else must be within its limits.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut at = Writer(Vec::with_capacity(64));
        at.u32(MAGIC);
        at.u32(LAYOUT_VERSION);
        at.u8(self.kind());
        match self {
            Self::Attach { role, wants_ring } => {
                at.u16(match role {
                    Role::Program => u16::MAX,
                    Role::Monitor(node) => u16_of(*node),
                });
                at.u8(u8::from(*wants_ring));
            }
            Self::Attached { node, secret, endpoint } => {
                at.u16(u16_of(*node));
                at.u64(*secret);
                at.text(endpoint, NAME_BYTES_MAX);
            }
            Self::Lane { secret } => at.u64(*secret),
            Self::Ready | Self::Leave | Self::Traced | Self::Unneeded | Self::Needed => {}
            Self::Trace { is_on } => at.u8(u8::from(*is_on)),
            Self::Export { name } => at.text(name, NAME_BYTES_MAX),
            Self::Exported { name, reason } => {
                at.text(name, NAME_BYTES_MAX);
                at.text(reason, REASON_BYTES_MAX);
            }
            Self::Setup(setup) => put_setup(&mut at, setup),
            Self::Accept { to, label, credit, origin, answer } => {
                at.u64(to.to_word());
                at.u64(label.to_word());
                at.u32(*credit);
                put_origin(&mut at, origin);
                at.long(answer, OFFER_BYTES_MAX);
            }
            Self::Reset(reset) => {
                at.u64(reset.to.to_word());
                at.u64(reset.from.to_word());
                at.u8(u8::from(reset.after.is_some()));
                at.u32(reset.after.unwrap_or(0));
                at.u8(reset.end as u8);
                put_set(&mut at, &reset.visited);
                at.text(&reset.reason, REASON_BYTES_MAX);
            }
            Self::Capabilities { to, is_lost, notes } => {
                at.u64(to.to_word());
                at.u8(u8::from(*is_lost));
                at.long(notes, NOTES_BYTES_MAX);
            }
            Self::Refused { reason } => at.text(reason, REASON_BYTES_MAX),
            Self::Name { name, node, epoch, is_served } => {
                at.text(name, NAME_BYTES_MAX);
                at.u16(u16_of(*node));
                at.u64(*epoch);
                at.u8(u8::from(*is_served));
            }
            Self::Table(table) => put_table(&mut at, table),
            Self::Ask(question) => at.u8(*question as u8),
            Self::Answer { is_last, part } => {
                at.u8(u8::from(*is_last));
                at.long(part, OFFER_BYTES_MAX);
            }
        }
        at.0
    }

    /// The packet in what a neighbour has sent.
    ///
    /// # Errors
    /// [`PacketError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        if bytes.len() > PACKET_BYTES_MAX {
            return Err(PacketError::Long { found: bytes.len() });
        }
        let mut at = Reader(bytes);
        if at.u32() != Some(MAGIC) {
            return Err(PacketError::Magic);
        }
        let version = at.u32().ok_or(PacketError::Magic)?;
        if version != LAYOUT_VERSION {
            return Err(PacketError::Version { found: version });
        }
        let kind = at.u8().ok_or(PacketError::Magic)?;
        let packet = read(kind, &mut at).filter(|_| at.end().is_some());
        packet.ok_or(PacketError::Malformed { kind })
    }
}

fn read(kind: u8, at: &mut Reader<'_>) -> Option<Packet> {
    Some(match kind {
        1 => {
            let number = at.u16()?;
            let role = match number {
                u16::MAX => Role::Program,
                number => Role::Monitor(NodeId::new(usize::from(number))?),
            };
            Packet::Attach { role, wants_ring: bool_of(at)? }
        }
        2 => Packet::Attached {
            node: node(at)?,
            secret: at.u64()?,
            endpoint: at.text(NAME_BYTES_MAX)?,
        },
        3 => Packet::Lane { secret: at.u64()? },
        4 => Packet::Ready,
        5 => Packet::Export { name: at.text(NAME_BYTES_MAX)? },
        6 => Packet::Leave,
        7 => {
            Packet::Exported { name: at.text(NAME_BYTES_MAX)?, reason: at.text(REASON_BYTES_MAX)? }
        }
        8 => Packet::Setup(Box::new(setup(at)?)),
        9 => Packet::Accept {
            to: label(at)?,
            label: label(at)?,
            credit: at.u32()?,
            origin: origin(at)?,
            answer: at.long(OFFER_BYTES_MAX)?,
        },
        10 => Packet::Reset(Box::new(reset(at)?)),
        11 => Packet::Refused { reason: at.text(REASON_BYTES_MAX)? },
        12 => Packet::Name {
            name: at.text(NAME_BYTES_MAX)?,
            node: node(at)?,
            epoch: at.u64()?,
            is_served: bool_of(at)?,
        },
        13 => Packet::Table(table(at)?),
        14 => Packet::Ask(match at.u8()? {
            1 => Question::Circuits,
            2 => Question::Routes,
            3 => Question::Traces,
            _ => return None,
        }),
        16 => Packet::Capabilities {
            to: label(at)?,
            is_lost: bool_of(at)?,
            notes: at.long(NOTES_BYTES_MAX)?,
        },
        17 => Packet::Trace { is_on: bool_of(at)? },
        18 => Packet::Traced,
        19 => Packet::Unneeded,
        20 => Packet::Needed,
        15 => Packet::Answer { is_last: bool_of(at)?, part: at.long(OFFER_BYTES_MAX)? },
        _ => return None,
    })
}

fn u16_of(node: NodeId) -> u16 {
    u16::try_from(node.number()).unwrap_or(u16::MAX)
}

fn node(at: &mut Reader<'_>) -> Option<NodeId> {
    NodeId::new(usize::from(at.u16()?))
}

fn label(at: &mut Reader<'_>) -> Option<Label> {
    at.u64().map(Label::of_word)
}

fn bool_of(at: &mut Reader<'_>) -> Option<bool> {
    match at.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn put_nodes(at: &mut Writer, nodes: &[NodeId]) {
    at.u16(u16::try_from(nodes.len()).unwrap_or(u16::MAX));
    nodes.iter().for_each(|node| at.u16(u16_of(*node)));
}

fn nodes(at: &mut Reader<'_>, count_max: usize) -> Option<Vec<NodeId>> {
    let count = usize::from(at.u16()?);
    (count <= count_max).then_some(())?;
    (0..count).map(|_| node(at)).collect()
}

fn put_set(at: &mut Writer, set: &NodeSet) {
    set.0.iter().for_each(|word| at.u64(*word));
}

fn set(at: &mut Reader<'_>) -> Option<NodeSet> {
    let mut set = NodeSet::default();
    for word in &mut set.0 {
        *word = at.u64()?;
    }
    Some(set)
}

fn put_origin(at: &mut Writer, origin: &Origin) {
    [origin.uid, origin.gid, origin.pid].iter().for_each(|word| at.u32(*word));
}

fn origin(at: &mut Reader<'_>) -> Option<Origin> {
    Some(Origin { uid: at.u32()?, gid: at.u32()?, pid: at.u32()? })
}

fn put_setup(at: &mut Writer, setup: &Setup) {
    at.u64(setup.label.to_word());
    at.u32(setup.credit);
    at.text(&setup.service, NAME_BYTES_MAX);
    at.u16(setup.node.map_or(u16::MAX, u16_of));
    put_origin(at, &setup.origin);
    put_nodes(at, &setup.path);
    put_set(at, &setup.visited);
    at.long(&setup.offer, OFFER_BYTES_MAX);
}

fn setup(at: &mut Reader<'_>) -> Option<Setup> {
    Some(Setup {
        label: label(at)?,
        credit: at.u32()?,
        service: at.text(NAME_BYTES_MAX)?,
        node: match at.u16()? {
            u16::MAX => None,
            number => Some(NodeId::new(usize::from(number))?),
        },
        origin: origin(at)?,
        path: nodes(at, PATH_MAX)?,
        visited: set(at)?,
        offer: at.long(OFFER_BYTES_MAX)?,
    })
}

fn reset(at: &mut Reader<'_>) -> Option<Reset> {
    let (to, from) = (label(at)?, label(at)?);
    let (has_after, after) = (bool_of(at)?, at.u32()?);
    let end = at.u8()?;
    Some(Reset {
        to,
        from,
        after: has_after.then_some(after),
        end: End::ALL.into_iter().find(|one| *one as u8 == end)?,
        visited: set(at)?,
        reason: at.text(REASON_BYTES_MAX)?,
    })
}

fn put_table(at: &mut Writer, table: &Table) {
    at.u64(table.version);
    match &table.shape {
        Shape::Direct => at.u8(0),
        Shape::Ring(nodes) => {
            at.u8(1);
            put_nodes(at, nodes);
        }
        Shape::FatTree(groups) => {
            at.u8(2);
            at.u16(u16::try_from(groups.len()).unwrap_or(u16::MAX));
            groups.iter().for_each(|group| put_nodes(at, group));
        }
    }
    at.u16(u16::try_from(table.vias.len()).unwrap_or(u16::MAX));
    for via in &table.vias {
        [via.from, via.to, via.via].iter().for_each(|node| at.u16(u16_of(*node)));
    }
}

fn table(at: &mut Reader<'_>) -> Option<Table> {
    let version = at.u64()?;
    let shape = match at.u8()? {
        0 => Shape::Direct,
        1 => Shape::Ring(nodes(at, NODES_MAX)?),
        2 => {
            let count = usize::from(at.u16()?);
            (count <= NODES_MAX).then_some(())?;
            Shape::FatTree((0..count).map(|_| nodes(at, NODES_MAX)).collect::<Option<_>>()?)
        }
        _ => return None,
    };
    let count = usize::from(at.u16()?);
    (count <= VIAS_MAX).then_some(())?;
    let via = |at: &mut Reader<'_>| Some(Via { from: node(at)?, to: node(at)?, via: node(at)? });
    Some(Table { version, shape, vias: (0..count).map(|_| via(at)).collect::<Option<_>>()? })
}

#[cfg(test)]
mod tests;
