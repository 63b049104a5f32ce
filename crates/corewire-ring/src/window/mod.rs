//! What the participants of a window agree by: a lock, fences, epochs and counters. The data itself needs no agreement:
//! its bytes are copied, and its words loaded, stored and changed, by all that have them mapped (`data.rs`).
//!
//! A window has an *owner*, in whose memory the data lies, and other *participants*, which have attached to it. Each has a
//! row of the window's [`Book`], of which it writes the words that say how far it is. Nobody writes a word of another one,
//! except the lock and the counters, which all change by atomic operations, and what an ended participant has left, which
//! the owner's control thread puts in order once the kernel says that it has ended ([`Roster`]).
//!
//! | | the one | the others |
//! |---|---|---|
//! | lock, exclusive | sets the lock from 0 to its own word, looks whether it still has its row, then waits until no row says that it reads | see the lock |
//! | lock, shared | says in its row that it reads, then looks at the lock; if somebody has it, says the opposite and waits | see the row |
//! | fence | counts its fences up, waits until so many participants have counted as far, or one has left the fence, and says that it has left it | one that comes begins behind the last fence that anybody has left |
//! | post, start, complete, wait | the owner counts up how often it has opened the window to a row, and says for which participant of it; that one waits for it, and repeats the word when it has completed; the owner waits for that | a later participant of the row sees by the word that it is not for it |
//! | counter | adds | wait until it has reached a number |
//!
//! Both kinds of lock first store a word and then, behind a full fence, load the other's: of two that try at the same
//! time, at least one sees the other.
//!
//! # Sleeping
//! All that wait share one bell. One that goes to sleep reads the bell, sets the word *sleepers*, fences, and looks once
//! more. One that has stored something fences, and, if that word is set, clears it, changes the bell, and wakes everybody.
//! Those that must wait again set it again. If a process dies between these steps, the owner's control thread rings when it
//! learns of the death.
//!
//! # Cost
//!
//! | | nobody else there |
//! |---|---|
//! | exclusive lock | a compare-and-swap, a fence, one line for each row of the book |
//! | shared lock | a store, a fence, a load |
//! | unlock, fence, post, complete, add | a store or an addition, a fence, a load |
//! | load, store or atomic operation on the data | itself |
//!
//! # Death
//! The kernel says to the owner's control thread that a participant's process has ended. It frees what that participant
//! had: of several operations under a lock, those that it has stored stay. When the owner ends, everything that waits ends.
//! A participant that is stopped with the lock keeps it.
//!
//! The participants are of level 1 or 2 of `docs/threats.md`; any value of a word is taken for what it can mean, and none
//! makes a call panic or read outside the book.
//!
//! Sources: Buntinas and others, "Design and Evaluation of Nemesis" (2.3); "Data Transfers between Processes in a SMP
//! System" (IV-B); MPI 4.1, 12.5. Proofs: `proof/models/tests/models/windows.rs`, `proof/kill/src/windows.rs`.

mod book;
mod data;
mod participant;
mod roster;

pub use book::{Book, Seat};
pub use corewire_layout::window::Turn;
pub use data::{Data, Number, Word};
pub use participant::{Pace, Participant, Stop, WindowShared};
pub use roster::Roster;
