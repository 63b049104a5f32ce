//! The operations of the roles of a shared channel. To add one, add a line to a table below and run
//! `make kill` to renew its table in `points/`.

use corewire_layout::segment::Policy;
use corewire_ring::doorbell::SLEEP_CAP_NS;
use corewire_ring::sync::kill;

use super::{
    Blocked, History, INLINE_BYTES, LARGE_BYTES, NEWCOMER, Reader, Role, Shared, Start, State,
    WINDOW_BYTES, wait_for_room,
};
use crate::engine::Operation;

/// Every operation of every role.
#[must_use]
pub fn all() -> Vec<Operation<Shared>> {
    let mut all = of_senders();
    all.extend(of_host());
    all.extend(of_receivers());
    all.extend(of_newcomers());
    all
}

impl Shared {
    /// Sends a short message without a loan. Returns false if there is no room.
    pub fn send_inline(&mut self, place: usize, bytes: usize) -> bool {
        let Self { senders, history, now_ns, .. } = self;
        let Some(member) = &mut senders[place] else { return false };
        let (number, message) = history.begin(place, bytes);
        let mut looks = 0;
        let sent =
            member.ring.send_inline(&message, |s| wait_for_room(s, bytes, now_ns, &mut looks));
        history.end(number, sent.is_ok());
        sent.is_ok()
    }

    /// Sends a message by a loan, written in place in two halves. Returns false if there is no
    /// room.
    pub fn send_loan(&mut self, place: usize, bytes: usize) -> bool {
        let Self { senders, history, now_ns, .. } = self;
        let Some(member) = &mut senders[place] else { return false };
        let (number, message) = history.begin(place, bytes);
        let mut looks = 0;
        let loan = member.ring.loan_with(bytes, |s| wait_for_room(s, bytes, now_ns, &mut looks));
        let is_sent = loan.is_ok_and(|mut loan| {
            let target = loan.bytes_mut();
            for half in [0..bytes / 2, bytes / 2..bytes] {
                let target = &mut target[half.clone()];
                if kill::writes(target.as_ptr().addr(), target.len()) {
                    target.copy_from_slice(&message[half]);
                }
            }
            loan.send(|s| wait_for_room(s, 0, now_ns, &mut looks)).is_ok()
        });
        history.end(number, is_sent);
        is_sent
    }

    /// Sends a message in the way that fits its length. Returns false if there is no room.
    pub fn send(&mut self, place: usize, bytes: usize) -> bool {
        if bytes <= 48 { self.send_inline(place, bytes) } else { self.send_loan(place, bytes) }
    }

    /// Sends a run. If there is no room, gives up all of it and returns false.
    pub fn batch(&mut self, place: usize, lengths: &[usize]) -> bool {
        let Self { senders, history, now_ns, .. } = self;
        let Some(member) = &mut senders[place] else { return false };
        let ring = &mut member.ring;
        let mut looks = 0;
        let mut numbers = Vec::new();
        let is_staged = lengths.iter().all(|&bytes| {
            let (number, message) = history.begin(place, bytes);
            let wait = |s: &mut _| wait_for_room(s, bytes, now_ns, &mut looks);
            let is_staged = ring.stage(&message, wait).is_ok();
            if is_staged {
                numbers.push(number);
            } else {
                history.end(number, false);
            }
            is_staged
        });
        let is_sent =
            is_staged && ring.flush(&mut |s| wait_for_room(s, 0, now_ns, &mut looks)).is_ok();
        ring.abandon();
        numbers.into_iter().for_each(|number| history.end(number, is_sent));
        is_sent
    }

    /// Sends a run of short messages straight into its slots. Returns false if there is no room.
    fn run(&mut self, place: usize, count: usize) -> bool {
        let Self { senders, history, now_ns, .. } = self;
        let Some(member) = &mut senders[place] else { return false };
        let messages: Vec<_> = (0..count).map(|_| history.begin(place, INLINE_BYTES)).collect();
        let bytes: Vec<_> = messages.iter().map(|(_, message)| &message[..]).collect();
        let mut looks = 0;
        let wait = |s: &mut _| wait_for_room(s, 0, now_ns, &mut looks);
        let is_sent = member.ring.send_run(&bytes, wait).is_ok();
        messages.into_iter().for_each(|(number, _)| history.end(number, is_sent));
        is_sent
    }

    /// Waits for room. If this would sleep, the sender counts as asleep from then on.
    fn wait_for_room(&mut self, place: usize, bytes: usize) {
        self.log.borrow_mut().waited = None;
        let Self { senders, now_ns, .. } = self;
        let Some(member) = &mut senders[place] else { return };
        _ = wait_for_room(&mut member.ring, bytes, now_ns, &mut 0);
        let waited = self.log.borrow().waited;
        self.blocked =
            waited.map(|waited| Blocked { sender: place, bytes, waited }).or(self.blocked);
    }

    fn abandon(&mut self, place: usize) {
        let Self { senders, history, .. } = self;
        let Some(member) = &mut senders[place] else { return };
        for bytes in [INLINE_BYTES, WINDOW_BYTES, LARGE_BYTES] {
            let (number, message) = history.begin(place, bytes);
            let _ = member.ring.stage(&message, |_| Err(()));
            history.end(number, false);
        }
        member.ring.abandon();
    }

    /// Marks a sender that slept as awake.
    fn wake_sender(&mut self, place: usize) {
        self.blocked = self.blocked.filter(|blocked| blocked.sender != place);
    }
}

fn always(_: Start) -> bool {
    true
}

fn evicts(start: Start) -> bool {
    start.is_evicting()
}

fn in_place(start: Start) -> bool {
    start.policy == Policy::Block
}

fn nothing(_: &mut Shared) {}

fn of_senders() -> Vec<Operation<Shared>> {
    macro_rules! sender {
        ($place:literal, $($name:literal $is_in:ident $run:expr;)*) => {
            [$(Operation::<Shared> {
                name: concat!("sender_", $place, "_", $name),
                role: Role::Sender($place),
                is_in: $is_in,
                prepare: nothing,
                run: |world| {
                    let run: fn(&mut Shared, usize) = $run;
                    world.wake_sender($place);
                    run(world, $place);
                },
            }),*]
        };
    }
    macro_rules! senders {
        ($($place:literal)*) => {
            [$(sender!($place,
                "send_inline" always |w, at| _ = w.send_inline(at, INLINE_BYTES);
                "loan_inline" always |w, at| _ = w.send_loan(at, INLINE_BYTES);
                "loan_window" always |w, at| _ = w.send_loan(at, WINDOW_BYTES);
                "loan_large" always |w, at| _ = w.send_loan(at, LARGE_BYTES);
                "loan_dropped" always |w, at| {
                    if let Some(member) = &mut w.senders[at] {
                        _ = member.ring.loan_with(WINDOW_BYTES, |_| Err(()));
                    }
                };
                "run_7" always |w, at| _ = w.run(at, 7);
                "batch_5" always |w, at| _ = w.batch(at, &[INLINE_BYTES; 5]);
                "batch_16" always |w, at| _ = w.batch(at, &[INLINE_BYTES; 16]);
                "batch_mixed" always |w, at| {
                    _ = w.batch(at, &[WINDOW_BYTES, INLINE_BYTES, LARGE_BYTES]);
                };
                "abandon" always Shared::abandon;
                "refresh" always |w, at| of(w, at, |ring, _| ring.refresh());
                "wait_for_room" always |w, at| w.wait_for_room(at, WINDOW_BYTES);
                "sleep_until_drained" always |w, at| of(w, at, |ring, _| {
                    ring.sleep_until(SLEEP_CAP_NS, |ring| ring.is_drained());
                });
                "remove_dead" always |w, at| of(w, at, |ring, _| {
                    ring.refresh();
                    ring.watch_whom_we_wait_for();
                    ring.remove_dead();
                });
                "evict" evicts |w, at| of(w, at, |ring, now_ns| {
                    ring.evict_stalled(INLINE_BYTES, *now_ns);
                });
                "ring_bell" always |w, at| of(w, at, |ring, _| ring.ring_bell());
                "leave" always |w, at| {
                    of(w, at, |ring, _| ring.leave());
                    w.senders[at] = None;
                };
            )),*]
        };
    }
    senders!(0 1).into_iter().flatten().collect()
}

/// Runs `job` with a sender.
fn of(
    world: &mut Shared,
    place: usize,
    job: fn(&mut corewire_ring::shared::Sender<super::kernel::TurnKernel>, &mut u64),
) {
    let Shared { senders, now_ns, .. } = world;
    if let Some(member) = &mut senders[place] {
        job(&mut member.ring, now_ns);
    }
}

fn of_host() -> impl Iterator<Item = Operation<Shared>> {
    type Table = &'static [(&'static str, fn(&mut Shared))];
    const HOST: Table = &[
        ("host_enter_sender", |w| {
            w.let_in(NEWCOMER);
        }),
        ("host_admit", |w| w.take_in(NEWCOMER)),
        ("host_hold", |w| {
            // As the founder does while receivers that it invited have not joined.
            let Some(host) = w.host() else { return };
            host.roster.hold(0, 0);
            host.roster.let_go(0, host.ring.host());
        }),
    ];
    HOST.iter().map(|&(name, run)| Operation {
        name,
        role: Role::Sender(0),
        is_in: always,
        prepare: nothing,
        run,
    })
}

fn of_newcomers() -> [Operation<Shared>; 2] {
    fn has_free_row(start: Start) -> bool {
        use State::*;
        !matches!(
            start.state,
            ClaimPending | RunClaimed | RunPending | RunPendingFull | BlockedByDead
        )
    }
    [
        Operation {
            name: "sender_2_begin",
            role: Role::Sender(NEWCOMER),
            is_in: has_free_row,
            prepare: |w| w.let_in(NEWCOMER),
            run: |w| {
                w.begin_sending(NEWCOMER);
                w.send_inline(NEWCOMER, INLINE_BYTES);
                w.batch(NEWCOMER, &[WINDOW_BYTES, INLINE_BYTES]);
            },
        },
        Operation {
            name: "receiver_2_begin",
            role: Role::Receiver(NEWCOMER),
            is_in: always,
            prepare: |w| {
                w.take_in(NEWCOMER);
                _ = w.send(0, INLINE_BYTES);
            },
            run: |w| {
                w.begin_receiving(NEWCOMER);
                receiver(w, NEWCOMER, |reader, history| {
                    _ = reader.take(history);
                    reader.ring.publish_cursor();
                });
            },
        },
    ]
}

/// The operations of a receiver, for each place.
fn of_receivers() -> impl Iterator<Item = Operation<Shared>> {
    macro_rules! receiver {
        ($place:literal, $($name:literal $is_in:ident $run:expr;)*) => {
            [$(Operation::<Shared> {
                name: concat!("receiver_", $place, "_of_many_", $name),
                role: Role::Receiver($place),
                is_in: $is_in,
                prepare: nothing,
                run: |w| receiver(w, $place, $run),
            }),*]
        };
    }
    macro_rules! receivers {
        ($($place:literal)*) => {
            [$(receiver!($place,
                "receive" always |reader, history| _ = reader.take(history);
                "receive_6" always |reader, history| {
                    for _ in 0..6 {
                        _ = reader.take(history);
                    }
                };
                "copy" in_place |reader, history| _ = reader.copy(history);
                "batch" in_place |reader, history| reader.batch(history, 9);
                "acknowledge" always |reader, history| {
                    _ = reader.take(history);
                    reader.ring.publish_cursor();
                };
                "drain" always |reader, history| _ = reader.drain(history);
                "drain_and_sleep" always |reader, history| {
                    while reader.take(history).is_ok() {}
                    reader.ring.count_wait();
                    reader.put_to_sleep(false);
                };
                "leave" always |reader, _| {
                    reader.ring.retract();
                    reader.ring.publish_cursor();
                    reader.leave();
                    reader.has_left = true;
                };
            )),*]
        };
    }
    receivers!(0 1).into_iter().flatten()
}

/// Runs `job` with a receiver, if it is there. A receiver that slept counts as woken.
fn receiver(world: &mut Shared, place: usize, job: fn(&mut Reader, &mut History)) {
    let Shared { readers, history, .. } = world;
    if let Some(reader) = &mut readers[place] {
        reader.wake_up();
        job(reader, history);
        if reader.has_left {
            readers[place] = None;
        }
    }
}
