//! The operations of the roles of a channel with one sender. To add one, add a function below and a
//! line in [`all`], and run `make kill` to renew its table in `points/`.

use corewire_layout::counters::ControlCounter;
use corewire_layout::frame::Start as From;
use corewire_layout::segment::Policy;
use corewire_ring::Lock;
use corewire_ring::broadcast::{Loan, Members};
use corewire_ring::doorbell::{SLEEP_CAP_NS, notice};
use corewire_ring::sync::kill;

use super::{
    Broadcast, INLINE_BYTES, LARGE_BYTES, NEWCOMER, Role, Start, State, WINDOW_BYTES, content,
    wait_for_room,
};
use crate::engine::Operation;
use crate::kernel::TurnKernel;

/// The way in which a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the path for short messages if there is a slot, otherwise by a loan.
    Short,
    /// By a loan that is filled.
    Fill,
    /// By a loan that is written in place, in two halves.
    InPlace,
    /// By a loan that is cut to 20 bytes and then filled.
    Truncated,
    /// By a loan, without a check for sleeping receivers.
    Quietly,
    /// By a loan that is filled and dropped.
    Dropped,
}

/// Finishes a send that has its loan.
pub fn finish(mut loan: Loan<'_, TurnKernel>, message: &[u8], ledger: &mut Vec<Vec<u8>>, way: Way) {
    match way {
        Way::Dropped => return loan.fill(message),
        Way::Truncated => {
            let sequence = ledger.len() as u64;
            let message = content(sequence, INLINE_BYTES);
            loan.truncate(INLINE_BYTES);
            loan.fill(&message);
            ledger.push(message);
        }
        Way::InPlace => {
            ledger.push(message.to_vec());
            let bytes = loan.bytes_mut();
            let middle = message.len() / 2;
            for half in [0..middle, middle..message.len()] {
                let target = &mut bytes[half.clone()];
                if kill::writes(target.as_ptr().addr(), target.len()) {
                    target.copy_from_slice(&message[half]);
                }
            }
        }
        Way::Short | Way::Fill | Way::Quietly => {
            ledger.push(message.to_vec());
            loan.fill(message);
        }
    }
    if way == Way::Quietly { loan.send_quietly() } else { loan.send() }
}

/// Every operation of every role.
#[must_use]
pub fn all() -> Vec<Operation<Broadcast>> {
    let mut all = Vec::new();
    all.extend(of_sender());
    all.extend(of_control());
    all.extend(of_receivers());
    all
}

/// Whether the sender is free to do something.
fn has_sender(start: Start) -> bool {
    !matches!(start.state, State::Blocked | State::Closed)
}

fn overwrites(start: Start) -> bool {
    start.policy == Policy::Overwrite && has_sender(start)
}

fn evicts(start: Start) -> bool {
    start.is_evicting() && has_sender(start)
}

fn nothing(_: &mut Broadcast) {}

type Table = &'static [(&'static str, fn(Start) -> bool, fn(&mut Broadcast))];

fn of_sender() -> impl Iterator<Item = Operation<Broadcast>> {
    const SENDER: Table = &[
        ("send_short", has_sender, |w| _ = w.send(INLINE_BYTES, Way::Short)),
        ("loan_short", has_sender, |w| _ = w.send(INLINE_BYTES, Way::Fill)),
        ("loan_in_place", has_sender, |w| _ = w.send(INLINE_BYTES, Way::InPlace)),
        ("loan_window", has_sender, |w| _ = w.send(WINDOW_BYTES, Way::Fill)),
        ("loan_window_in_place", has_sender, |w| _ = w.send(WINDOW_BYTES - 7, Way::InPlace)),
        ("loan_large", has_sender, |w| _ = w.send(WINDOW_BYTES + 8, Way::Fill)),
        ("loan_large_in_place", has_sender, |w| _ = w.send(WINDOW_BYTES + 15, Way::InPlace)),
        ("loan_truncated", has_sender, |w| _ = w.send(WINDOW_BYTES, Way::Truncated)),
        ("loan_large_truncated", has_sender, |w| _ = w.send(LARGE_BYTES, Way::Truncated)),
        ("loan_dropped", has_sender, |w| _ = w.send(WINDOW_BYTES, Way::Dropped)),
        ("batch", has_sender, |w| {
            for bytes in [INLINE_BYTES, WINDOW_BYTES, INLINE_BYTES] {
                if !w.send(bytes, Way::Quietly) {
                    break;
                }
            }
            if w.sender.someone_sleeps() {
                w.sender.ring_bell();
            }
        }),
        ("refresh", has_sender, |w| _ = w.sender.refresh(&w.members)),
        ("wait_for_room", has_sender, |w| {
            wait_for_room(&mut w.sender, &w.members, WINDOW_BYTES, &mut w.now_ns);
        }),
        ("sleep_until_drained", has_sender, |w| {
            w.sender.sleep_until(&w.members, SLEEP_CAP_NS, |sender| sender.is_drained());
        }),
        ("ring_bell", has_sender, |w| w.sender.ring_bell()),
        ("give_up_window", overwrites, |w| w.sender.give_up_for(WINDOW_BYTES)),
        ("give_up_large", overwrites, |w| w.sender.give_up_for(LARGE_BYTES)),
        ("evict", evicts, |w| {
            _ = w.sender.evict_stalled(INLINE_BYTES, w.now_ns, &w.members);
        }),
        ("close", has_sender, |w| w.sender.close()),
    ];
    SENDER.iter().map(|&(name, is_in, run)| Operation {
        name,
        role: Role::Sender,
        is_in,
        prepare: nothing,
        run,
    })
}

fn of_control() -> impl Iterator<Item = Operation<Broadcast>> {
    fn is_open(start: Start) -> bool {
        start.state != State::Closed
    }
    fn is_violated(start: Start) -> bool {
        start.state == State::Violated
    }
    const CONTROL: Table = &[
        ("join_now", is_open, |w| w.take_in(NEWCOMER, From::Now)),
        ("join_oldest", is_open, |w| w.take_in(NEWCOMER, From::Oldest)),
        ("let_leave", is_open, |w| leave(w, 1, ControlCounter::Leaves)),
        ("let_die", is_open, |w| leave(w, 1, ControlCounter::Deaths)),
        ("drop_violator", is_violated, |w| {
            for row in w.members.with(Members::take_violators) {
                leave(w, row, ControlCounter::Violations);
            }
        }),
        ("invite", is_open, |w| {
            w.members.with(Members::invite);
            w.shared.revoke();
            w.members.with(Members::answered);
            w.shared.nudge(&w.kernel());
        }),
        ("demand_fence", is_open, |w| w.shared.demand_fence()),
        ("interrupt", is_open, |w| {
            let kernel = w.kernel();
            w.members.with(|_| w.shared.notify(notice::INTERRUPTED, &kernel));
        }),
    ];
    CONTROL.iter().map(|&(name, is_in, run)| Operation {
        name,
        role: Role::Control,
        is_in,
        prepare: match name {
            // The receiver has announced that it leaves, and does nothing any more.
            "let_leave" => |w: &mut Broadcast| {
                if let Some(mut reader) = w.readers[1].take() {
                    reader.ring.retract();
                    reader.ring.publish_cursor();
                }
            },
            "let_die" => |w: &mut Broadcast| w.readers[1] = None,
            _ => nothing,
        },
        run,
    })
}

fn leave(world: &mut Broadcast, row: u32, why: ControlCounter) {
    world.readers[row as usize] = None;
    world.with_members(|members, channel| members.leave(row, channel, why));
    world.shared.nudge(&world.kernel());
}

/// The operations of a receiver, for each row.
fn of_receivers() -> impl Iterator<Item = Operation<Broadcast>> {
    fn always(start: Start) -> bool {
        start.state != State::Violated
    }
    fn in_place(start: Start) -> bool {
        always(start) && start.policy.keeps_messages()
    }
    macro_rules! receiver {
        ($row:literal, $($name:literal $is_in:ident $run:expr;)*) => {
            [$(Operation::<Broadcast> {
                name: concat!("receiver_", $row, "_", $name),
                role: Role::Receiver($row),
                is_in: $is_in,
                prepare: nothing,
                run: |w| receiver(w, $row, $run),
            }),*]
        };
    }
    macro_rules! receivers {
        ($($row:literal)*) => {
            [$(receiver!($row,
                "receive" always |reader, ledger| _ = reader.take(ledger);
                "receive_3" always |reader, ledger| {
                    for _ in 0..3 {
                        _ = reader.take(ledger);
                    }
                };
                "copy" in_place |reader, ledger| _ = reader.copy(ledger);
                "batch" in_place |reader, ledger| reader.batch(ledger, 5);
                "hold" in_place |reader, ledger| reader.hold(ledger);
                "acknowledge" always |reader, ledger| {
                    _ = reader.take(ledger);
                    reader.ring.publish_cursor();
                };
                "drain_and_sleep" always |reader, ledger| {
                    while reader.take(ledger).is_ok() {}
                    reader.ring.count_wait();
                    reader.ring.sleep(SLEEP_CAP_NS);
                };
                "drain_and_arm" always |reader, ledger| {
                    while reader.take(ledger).is_ok() {}
                    if reader.ring.arm() {
                        reader.ring.retract();
                    }
                };
                "leave" always |reader, _| {
                    reader.ring.retract();
                    reader.ring.publish_cursor();
                };
            )),*]
        };
    }
    let newcomer = Operation {
        name: "receiver_2_begin",
        role: Role::Receiver(NEWCOMER),
        is_in: |start| always(start) && start.state != State::Closed,
        prepare: |w: &mut Broadcast| w.take_in(NEWCOMER, From::Oldest),
        run: |w: &mut Broadcast| {
            w.begin();
            receiver(w, NEWCOMER, |reader, ledger| _ = reader.take(ledger));
        },
    };
    receivers!(0 1).into_iter().flatten().chain([newcomer])
}

/// Runs `job` with the receiver of a row, if it is there. A receiver that slept counts as woken.
fn receiver(
    world: &mut Broadcast,
    row: u32,
    job: impl FnOnce(&mut crate::broadcast::Reader, &[Vec<u8>]),
) {
    let Broadcast { readers, ledger, .. } = world;
    if let Some(reader) = &mut readers[row as usize] {
        reader.wake_up();
        job(reader, ledger);
    }
}
