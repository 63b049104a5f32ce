//! The run time of code that is generated from interface files: typed calls between processes.
//!
//! A program names an interface and a service; what carries its messages is a *driver*, chosen when it binds
//! (Grest, sections 2.3 and 4). `docs/interfaces.md` is the tutorial, and `corewire_idl::rust` the generator. This
//! crate is everything that generated code needs.
//!
//! # Drivers
//!
//! | driver | between | messages | capabilities |
//! |---|---|---|---|
//! | `local` | threads of one process | a ring ([`corewire::Endpoint`]) | the socket beside it |
//! | `lmp` | threads that run on one core | the same | the same |
//! | `ump` | cores | the same | the same |
//! | `sock` | any processes, of other users too | packets on a socket | in the same packets |
//! | `circuit` | any processes, through monitors | frames in a ring that all circuits of a process share, or on a socket | packets of the control lane |
//!
//! The first three are one mechanism. An endpoint that waits polls, or gives way at once to a peer that last ran on its
//! own core. The three differ only in when a client may bind. Every binding begins on a socket ([`corewire::Listener`]): there the kernel says who is at the other end, both sides exchange their versions of
//! the interface, and descriptors are passed. A ring is what a client gets in addition.
//!
//! # The path of a call
//!
//! `calc.multiply(6, 7)`, bound by `ump`:
//!
//! | who | does | in |
//! |---|---|---|
//! | generated client | stores the arguments at fixed offsets of an array | [`codec`] |
//! | [`Binding::call_fixed`] | takes the next token, sends the array with its tag, and reads what the service sends | `client/calling.rs` |
//! | the endpoint | stores tag and bytes in one slot of the pair's ring; the service's endpoint finds them there | `corewire` |
//! | [`ServerCore::serve_one`] | finds the client by the binding's number in the tag, and checks that the message is this client's | `server/serving.rs` |
//! | generated service | decodes the arguments, and calls the program's method with them and with a [`Reply`] | [`codec`] |
//! | [`Reply::send`] | sends the result with the tag of the request | `server/sending.rs` |
//! | [`Binding::call_fixed`] | sees its own tag: this is the reply | `client/calling.rs` |
//!
//! Each client has an endpoint of its own, `SERVICE.RANDOM`. The service has one for all, `SERVICE.rings`.
//!
//! # Bytes
//!
//! Every message has a tag, `binding:16 | ordinal:16 | token:32`, and its bytes are the arguments in the layout of the
//! interface (`corewire_idl::form::Layout`): up to 48 bytes travel in one line.
//!
//! | message | from | tag | bytes |
//! |---|---|---|---|
//! | request, reply | client, service | `binding, ordinal, token` | the arguments |
//! | one way, event | client, service | `binding, ordinal, 0` | the arguments |
//! | a part of a stream; about its parts | service; client | `binding, ordinal, token + 2^31` | the arguments; credit (`client/streams.rs`) |
//! | no reply | service | that of the request | none; the status says why |
//! | binding and unbinding | both | `binding, 0, what` | `tag.rs`, `server/binding.rs` |
//!
//! In a ring the status is the message's immediate value; the status `CAPABILITIES` says that the capabilities have been
//! sent on the socket before. On a socket `lane/packet.rs` says where everything is.
//!
//! # Who waits
//!
//! A client that waits reads everything that the service has sent, in order, and puts aside what belongs to others of
//! its callers: no reply can be stuck behind an event that nobody asks for. Events are kept up to a bound, beyond which
//! they are left out, and the program is told where and how many.
//!
//! A service never waits for a client. What has no room is kept, up to a bound for each client; beyond it events are
//! left out in the same way, and a client with too many unread replies is unbound. [`Binding`] limits the calls that it
//! begins, so its users never get there.
//!
//! # Cost
//!
//! | | line transfers | copies | allocations |
//! |---|---|---|---|
//! | a message of up to 48 bytes in a ring | 1 | 2: into the slot, out of it | 0 |
//! | up to 160 bytes | 1 for each 48 | 2 | 0 |
//! | longer | those of [`corewire::Endpoint`] | those of [`corewire::Endpoint`] | 0 of fixed size up to 4 KiB; results with strings or vectors own them |
//!
//! A message on a socket costs a system call and a wake-up for its sender, and for a client's message one more wake-up,
//! since the service's second thread reads the sockets.
//!
//! # Deaths
//!
//! If the service dies or is dropped, everything that waits for it ends with [`CallError::PeerDied`] or
//! [`CallError::PeerLeft`]. A client that has gone is reported to the service once, after everything that it had sent.

#![forbid(unsafe_code)]

mod capability;
mod client;
pub mod codec;
mod driver;
mod error;
mod exchange;
mod identity;
mod introspection;
mod lane;
mod message;
mod question;
mod random;
mod reactor;
mod reference;
mod server;
mod tag;
mod totals;

pub use capability::{Arrived, Capabilities, Right};
pub use client::{
    AsyncBinding, AsyncParts, Bind, Binding, DecodeStream, PartStream, Parts, Pending,
};
pub use corewire::{Domain, Wait};
pub use corewire_circuit::link::attach::MonitorAt;
pub use driver::Driver;
pub use error::{
    BindError, BindReason, CallError, DecodeError, EncodeError, Failed, Problem, ServeError,
};
pub use exchange::{Description, Form, Forms, SERVICE_NAME_BYTES_MAX, Wire};
pub use identity::Identity;
pub use introspection::{Bindings, BoundClient, Introspection};
pub use message::Message;
pub use reactor::{Reactor, Waiting, Watched};
pub use reference::{ChannelRef, EndpointRef, ServiceRef, WindowRef};
pub use server::{
    ClientId, Dispatch, Incoming, LaterReply, Outbox, PartSender, Pulled, Refusal, Reply, Serve,
    ServerCore, Stopper, Version,
};
pub use totals::{MethodTotals, TIMED_OF, Times};

/// The module of an interface that `build.rs` has compiled: `corewire_bind::interface!(calc);` is
/// `pub mod calc { ... }`.
///
/// The build script is `corewire_idl::build::compile("calc.if")`; `docs/interfaces.md` shows both.
///
/// With a second argument the code is in that file of `$OUT_DIR`: `corewire_bind::interface!(old, "1/calc.rs");`.
#[macro_export]
macro_rules! interface {
    ($name:ident) => {
        $crate::interface!($name, concat!(stringify!($name), ".rs"));
    };
    ($name:ident, $file:expr) => {
        #[allow(
            missing_docs,
            missing_debug_implementations,
            dead_code,
            unreachable_pub,
            clippy::all
        )]
        pub mod $name {
            include!(concat!(env!("OUT_DIR"), "/", $file));
        }
    };
}
