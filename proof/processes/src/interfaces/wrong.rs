//! What must not compile. Each wrong line stands beside the right one, which compiles.
//!
//! A reply is sent once:
//!
//! ```
//! # use corewire_processes::interfaces::old::LookReply;
//! fn look(number: u32, reply: LookReply<'_>) {
//!     reply.send(number);
//! }
//! ```
//!
//! ```compile_fail,E0382
//! # use corewire_processes::interfaces::old::LookReply;
//! fn look(number: u32, reply: LookReply<'_>) {
//!     reply.send(number);
//!     reply.send(number);
//! }
//! ```
//!
//! One that is kept for later is not sent now:
//!
//! ```compile_fail,E0382
//! # use corewire_processes::interfaces::old::LookReply;
//! fn look(number: u32, reply: LookReply<'_>) {
//!     let later = reply.later();
//!     reply.send(number);
//!     later.send(number);
//! }
//! ```
//!
//! Only as `later` it leaves its handler:
//!
//! ```
//! # use corewire_processes::interfaces::old::{LookLaterReply, LookReply};
//! fn look(reply: LookReply<'_>) -> LookLaterReply {
//!     reply.later()
//! }
//! ```
//!
//! ```compile_fail
//! # use corewire_processes::interfaces::old::LookReply;
//! fn look(reply: LookReply<'_>) -> LookReply<'static> {
//!     reply
//! }
//! ```
//!
//! Arguments have the types of the interface:
//!
//! ```
//! # use corewire_processes::interfaces::old::Client;
//! fn call(client: &mut Client) {
//!     let _ = client.look(7);
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use corewire_processes::interfaces::old::Client;
//! fn call(client: &mut Client) {
//!     let _ = client.look("7");
//! }
//! ```
//!
//! A method that fails does so with an error of its own set:
//!
//! ```
//! # use corewire_processes::interfaces::old::{LookReply, Trouble};
//! fn look(reply: LookReply<'_>) {
//!     reply.fail(Trouble::Wrong);
//! }
//! ```
//!
//! ```compile_fail,E0308
//! # use corewire_processes::interfaces::{all, old::LookReply};
//! fn look(reply: LookReply<'_>) {
//!     reply.fail(all::Trouble::NotFound);
//! }
//! ```
//!
//! An event is sent by the service alone:
//!
//! ```compile_fail,E0599
//! # use corewire_processes::interfaces::old::Client;
//! # use std::os::fd::BorrowedFd;
//! fn send(client: &mut Client, file: BorrowedFd<'_>) {
//!     let _ = client.tick(1, file);
//! }
//! ```
//!
//! A service has every method:
//!
//! ```
//! # use std::os::fd::{AsFd, OwnedFd};
//! # use corewire_bind::ClientId;
//! # use corewire_processes::interfaces::old::{LookReply, OpenReply, Service, SizeClass};
//! struct Whole;
//!
//! impl Service for Whole {
//!     fn look(&mut self, number: u32, reply: LookReply<'_>) {
//!         reply.send(number);
//!     }
//!     fn note(&mut self, _number: u32, _client: ClientId) {}
//!     fn open(&mut self, file: OwnedFd, class: SizeClass, reply: OpenReply<'_>) {
//!         reply.send(file.as_fd(), class);
//!     }
//! }
//! ```
//!
//! ```compile_fail,E0046
//! # use std::os::fd::{AsFd, OwnedFd};
//! # use corewire_bind::ClientId;
//! # use corewire_processes::interfaces::old::{LookReply, OpenReply, Service, SizeClass};
//! struct Part;
//!
//! impl Service for Part {
//!     fn look(&mut self, number: u32, reply: LookReply<'_>) {
//!         reply.send(number);
//!     }
//!     fn open(&mut self, file: OwnedFd, class: SizeClass, reply: OpenReply<'_>) {
//!         reply.send(file.as_fd(), class);
//!     }
//! }
//! ```
//!
//! A client of one thread at a time: two of them take turns, or are tasks of an `AsyncClient`.
//!
//! ```compile_fail,E0499
//! # use corewire_processes::interfaces::old::Client;
//! fn both(client: &mut Client) {
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| client.look(1).map(drop));
//!         scope.spawn(|| client.look(2).map(drop));
//!     });
//! }
//! ```
//!
//! Every test here keeps P190.
