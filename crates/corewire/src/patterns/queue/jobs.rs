//! Which job goes to which worker: the state of a queue, without threads and messages.
//!
//! A job waits, runs at a worker, and is then done; or it goes back, before all that wait, if its worker has died, has left
//! or gives it back. With [`Delivery::AtMostOnce`] it is done when its worker has got it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is known of a job whose worker has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// It is handed out again: it may be done more than once.
    #[default]
    AtLeastOnce,
    /// It is lost: it may be done not at all.
    AtMostOnce,
}

/// What is to be sent to a peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action<P> {
    /// This job, which [`Jobs::payload`] has.
    Give { to: P, number: u64, is_repeated: bool },
    /// A job of this peer was accepted.
    Accepted { to: P },
    /// No job will come.
    Finished { to: P },
}

struct Job {
    payload: Vec<u8>,
    is_repeated: bool,
}

/// The numbers that describe a queue at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QueueView {
    /// Jobs that wait for a worker.
    pub waiting: u64,
    /// Jobs that are at workers.
    pub running: u64,
    /// Jobs that were accepted since the queue was created.
    pub accepted: u64,
    /// Jobs that are done; with [`Delivery::AtMostOnce`], that workers have got.
    pub done: u64,
    /// How often a job went back, because its worker died, left, or gave it back.
    pub repeated: u64,
    /// Workers that wait for a job.
    pub idle_workers: u64,
}

/// The state of a queue. `P` names a worker or a producer.
pub(super) struct Jobs<P> {
    delivery: Delivery,
    capacity: usize,
    /// Jobs that went back, by number: they go first.
    returned: BTreeMap<u64, Job>,
    waiting: VecDeque<(u64, Job)>,
    running: BTreeMap<u64, (P, Job)>,
    /// Workers that have asked for a job, in the order in which they did.
    asking: VecDeque<P>,
    /// Workers that have asked at any time, and have not been told that no job will come.
    workers: BTreeSet<P>,
    /// Jobs for which there is no room, with those that wait for that.
    outside: VecDeque<(P, Vec<u8>)>,
    /// How many of the owner's own threads wait for room. They and producers take turns.
    own_waiting: usize,
    is_own_turn: bool,
    is_finishing: bool,
    accepted: u64,
    done: u64,
    repeated: u64,
}

impl<P: Copy + Ord> Jobs<P> {
    pub(super) fn new(delivery: Delivery, capacity: usize) -> Self {
        Self {
            delivery,
            capacity,
            returned: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            asking: VecDeque::new(),
            workers: BTreeSet::new(),
            outside: VecDeque::new(),
            own_waiting: 0,
            is_own_turn: false,
            is_finishing: false,
            accepted: 0,
            done: 0,
            repeated: 0,
        }
    }

    pub(super) fn view(&self) -> QueueView {
        QueueView {
            waiting: (self.waiting.len() + self.returned.len()) as u64,
            running: self.running.len() as u64,
            accepted: self.accepted,
            done: self.done,
            repeated: self.repeated,
            idle_workers: self.asking.len() as u64,
        }
    }

    fn is_below_capacity(&self) -> bool {
        self.waiting.len() + self.returned.len() + self.running.len() < self.capacity
    }

    /// Whether there is room for one more job of the owner's own threads.
    pub(super) fn has_room(&self) -> bool {
        self.is_below_capacity() && (self.outside.is_empty() || self.is_own_turn)
    }

    /// One of the owner's own threads waits for room, or does not any more.
    pub(super) fn wait_for_room(&mut self, waits: bool, actions: &mut Vec<Action<P>>) {
        self.own_waiting = match waits {
            true => self.own_waiting + 1,
            false => self.own_waiting.saturating_sub(1),
        };
        self.let_in(actions);
    }

    /// Whether no more jobs are accepted.
    pub(super) const fn is_finishing(&self) -> bool {
        self.is_finishing
    }

    /// Whether every accepted job is done.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
            && self.returned.is_empty()
            && self.running.is_empty()
            && self.outside.is_empty()
    }

    /// A job, for which there is room.
    pub(super) fn push(&mut self, payload: Vec<u8>, actions: &mut Vec<Action<P>>) {
        self.is_own_turn = false;
        self.add(payload, actions);
    }

    fn add(&mut self, payload: Vec<u8>, actions: &mut Vec<Action<P>>) {
        let number = self.accepted;
        self.accepted += 1;
        self.waiting.push_back((number, Job { payload, is_repeated: false }));
        self.hand_out(actions);
    }

    /// A job of a producer, which waits if there is no room. Nothing is accepted any more once the queue is finishing.
    pub(super) fn push_from(&mut self, from: P, payload: Vec<u8>, actions: &mut Vec<Action<P>>) {
        if self.is_finishing {
            return actions.push(Action::Finished { to: from });
        }
        self.outside.push_back((from, payload));
        self.let_in(actions);
    }

    /// A worker asks for a job.
    pub(super) fn ask(&mut self, worker: P, actions: &mut Vec<Action<P>>) {
        if !self.asking.contains(&worker) {
            self.asking.push_back(worker);
        }
        self.workers.insert(worker);
        self.hand_out(actions);
        self.tell_end(actions);
    }

    /// A worker has done its job, or has got it if that is all.
    pub(super) fn finish_job(&mut self, worker: P, number: u64, actions: &mut Vec<Action<P>>) {
        if self.running.get(&number).is_some_and(|(of, _)| *of == worker) {
            self.running.remove(&number);
            self.done += 1;
            self.let_in(actions);
            self.tell_end(actions);
        }
    }

    /// A worker gives its job back.
    pub(super) fn give_back(&mut self, worker: P, number: u64, actions: &mut Vec<Action<P>>) {
        if self.running.get(&number).is_some_and(|(of, _)| *of == worker) {
            self.take_back(number);
            self.hand_out(actions);
        }
    }

    /// A worker or producer has died or left.
    pub(super) fn gone(&mut self, peer: P, actions: &mut Vec<Action<P>>) {
        self.asking.retain(|worker| *worker != peer);
        self.workers.remove(&peer);
        // What it has sent and nobody has accepted goes with it.
        self.outside.retain(|(of, _)| *of != peer);
        let running = self.running.iter().filter(|(_, (of, _))| *of == peer);
        for number in running.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.take_back(number);
        }
        self.let_in(actions);
        self.hand_out(actions);
        self.tell_end(actions);
    }

    /// No more jobs are accepted. Those that wait for room are not, either.
    pub(super) fn finish(&mut self, actions: &mut Vec<Action<P>>) {
        self.is_finishing = true;
        let outside = self.outside.drain(..);
        actions.extend(outside.map(|(from, _)| Action::Finished { to: from }));
        self.tell_end(actions);
    }

    /// The bytes of a job that is to be given.
    pub(super) fn payload(&self, number: u64) -> Option<&[u8]> {
        self.running.get(&number).map(|(_, job)| &job.payload[..])
    }

    /// Whether a job is done when its worker has got it.
    pub(super) fn is_done_when_got(&self) -> bool {
        self.delivery == Delivery::AtMostOnce
    }

    fn take_back(&mut self, number: u64) {
        if let Some((_, job)) = self.running.remove(&number) {
            self.repeated += 1;
            self.returned.insert(number, Job { is_repeated: true, ..job });
        }
    }

    fn hand_out(&mut self, actions: &mut Vec<Action<P>>) {
        while !self.asking.is_empty()
            && let Some((number, job)) =
                self.returned.pop_first().or_else(|| self.waiting.pop_front())
            && let Some(to) = self.asking.pop_front()
        {
            actions.push(Action::Give { to, number, is_repeated: job.is_repeated });
            self.running.insert(number, (to, job));
        }
    }

    /// Accepts jobs for which there is room by now.
    fn let_in(&mut self, actions: &mut Vec<Action<P>>) {
        while self.is_below_capacity()
            && !(self.is_own_turn && self.own_waiting > 0)
            && let Some((from, payload)) = self.outside.pop_front()
        {
            self.is_own_turn = true;
            actions.push(Action::Accepted { to: from });
            self.add(payload, actions);
        }
    }

    /// Tells workers that no job will come, if that is so: also those that have not asked again. The owner may be gone when
    /// they do.
    fn tell_end(&mut self, actions: &mut Vec<Action<P>>) {
        if self.is_finishing && self.is_empty() {
            self.asking.clear();
            let workers = std::mem::take(&mut self.workers);
            actions.extend(workers.into_iter().map(|to| Action::Finished { to }));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the world does to a queue. Peers 0 to 2 are workers, 3 and 4 producers.
    #[derive(Debug, Clone)]
    enum Event {
        Push,
        PushFrom(usize),
        Ask(usize),
        Done(usize),
        GiveBack(usize),
        Dies(usize),
        Finish,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => Just(Event::Push),
            4 => (3..5usize).prop_map(Event::PushFrom),
            8 => (0..3usize).prop_map(Event::Ask),
            8 => (0..3usize).prop_map(Event::Done),
            1 => (0..3usize).prop_map(Event::GiveBack),
            2 => (0..5usize).prop_map(Event::Dies),
            1 => Just(Event::Finish),
        ]
    }

    /// A queue, its peers, and what was seen of each job.
    struct World {
        jobs: Jobs<usize>,
        /// The job that each worker has.
        held: [Option<u64>; 3],
        began: Vec<u64>,
        ended: BTreeMap<u64, u32>,
        /// Jobs that were at a worker that died.
        lost_max: u32,
    }

    impl World {
        /// Sends what is to be sent.
        fn run(&mut self, mut actions: Vec<Action<usize>>) {
            let mut next = Vec::new();
            for action in actions.drain(..) {
                match action {
                    Action::Give { to, number, is_repeated } => {
                        assert!(self.jobs.payload(number).is_some());
                        let was_given = self.began.contains(&number);
                        assert!(!is_repeated || was_given || self.jobs.repeated > 0);
                        assert_eq!(self.held[to].replace(number), None, "two jobs at once");
                        self.began.push(number);
                        if self.jobs.is_done_when_got() {
                            self.jobs.finish_job(to, number, &mut next);
                        }
                    }
                    Action::Accepted { .. } | Action::Finished { .. } => {}
                }
            }
            if !next.is_empty() {
                self.run(next);
            }
        }
    }

    fn run(delivery: Delivery, events: &[Event]) -> World {
        let jobs = Jobs::new(delivery, 5);
        let (held, ended, began) = ([None; 3], BTreeMap::new(), Vec::new());
        let mut world = World { jobs, held, began, ended, lost_max: 0 };
        for event in events {
            let mut actions = Vec::new();
            match *event {
                Event::Push if world.jobs.has_room() && !world.jobs.is_finishing() => {
                    world.jobs.push(vec![1], &mut actions);
                }
                Event::Push => {}
                Event::PushFrom(from) => {
                    // A producer waits for the answer before it sends another one.
                    if !world.jobs.outside.iter().any(|(of, _)| *of == from) {
                        world.jobs.push_from(from, vec![2], &mut actions);
                    }
                }
                Event::Ask(worker) if world.held[worker].is_none() => {
                    world.jobs.ask(worker, &mut actions);
                }
                Event::Ask(_) => {}
                Event::Done(worker) => {
                    if let Some(number) = world.held[worker].take() {
                        *world.ended.entry(number).or_default() += 1;
                        world.jobs.finish_job(worker, number, &mut actions);
                    }
                }
                Event::GiveBack(worker) => {
                    if let Some(number) = world.held[worker].take() {
                        if delivery == Delivery::AtMostOnce {
                            world.lost_max += 1;
                        }
                        world.jobs.give_back(worker, number, &mut actions);
                    }
                }
                Event::Dies(peer) => {
                    if peer < 3 && world.held[peer].take().is_some() {
                        world.lost_max += 1;
                    }
                    world.jobs.gone(peer, &mut actions);
                }
                Event::Finish => world.jobs.finish(&mut actions),
            }
            world.run(actions);
            let view = world.jobs.view();
            assert_eq!(view.accepted, view.waiting + view.running + view.done);
            assert!(view.waiting + view.running <= 5);
        }
        // In the end one worker does all that is left.
        loop {
            let mut actions = Vec::new();
            for worker in 0..3 {
                if let Some(number) = world.held[worker].take() {
                    *world.ended.entry(number).or_default() += 1;
                    world.jobs.finish_job(worker, number, &mut actions);
                }
            }
            world.jobs.ask(0, &mut actions);
            if actions.is_empty() {
                break;
            }
            let is_over = matches!(actions[..], [.., Action::Finished { to: 0 }]);
            world.run(actions);
            if is_over && world.held.iter().all(Option::is_none) {
                break;
            }
        }
        world
    }

    proptest! {
        #[test]
        fn each_job_is_done_as_often_as_was_chosen(events in prop::collection::vec(event(), 0..200)) {
            let least = run(Delivery::AtLeastOnce, &events);
            let all = least.jobs.view().accepted;
            prop_assert!((0..all).all(|number| least.ended.contains_key(&number)));
            let most = run(Delivery::AtMostOnce, &events);
            prop_assert!(most.ended.values().all(|times| *times == 1));
            let lost = most.jobs.view().accepted - most.ended.len() as u64;
            prop_assert!(lost <= u64::from(most.lost_max), "{lost} lost by {}", most.lost_max);
            prop_assert_eq!(most.jobs.view().repeated, 0);
        }
    }

    #[test]
    fn jobs_go_out_in_order_and_those_that_went_back_first() {
        let mut jobs = Jobs::new(Delivery::AtLeastOnce, 100);
        let mut actions = Vec::new();
        for payload in 0..6 {
            jobs.push(vec![payload], &mut actions);
        }
        for worker in 0..3 {
            jobs.ask(worker, &mut actions);
        }
        let given = |actions: &mut Vec<Action<usize>>| {
            let numbers = actions.drain(..).map(|action| match action {
                Action::Give { to, number, is_repeated } => (to, number, is_repeated),
                other => panic!("{other:?}"),
            });
            numbers.collect::<Vec<_>>()
        };
        assert_eq!(given(&mut actions), [(0, 0, false), (1, 1, false), (2, 2, false)]);
        // Worker 1 dies after worker 2: the older job goes first all the same.
        jobs.gone(2, &mut actions);
        jobs.gone(1, &mut actions);
        assert_eq!(jobs.view().repeated, 2);
        for _ in 0..3 {
            let number = jobs.running.keys().next_back().copied().unwrap();
            jobs.finish_job(0, number, &mut actions);
            jobs.ask(0, &mut actions);
        }
        assert_eq!(given(&mut actions), [(0, 1, true), (0, 2, true), (0, 3, false)]);
        // What another worker says of it means nothing.
        jobs.finish_job(7, 3, &mut actions);
        assert_eq!(jobs.view().running, 1);
    }
}
