//! The programs and their model. `COREWIRE_PROGRAMS=1000000` sets the number of programs. A failure prints
//! the number of its program; `COREWIRE_PROGRAM=` with that number runs it alone.

use std::collections::VecDeque;

use corewire::{Completion, Matched, MessageError, OperationHandle, Peer, Selector};

use crate::matching::party::Party;

/// Default number of programs in a run.
const PROGRAMS: u64 = 100_000;
/// The cost of a kept message besides its bytes, as the builder's documentation states.
const OVERHEAD_BYTES: usize = 128;
/// The budget of the programs in which it runs out.
pub const SMALL_BUDGET: usize = 2000;

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: u64) -> u64 {
        // Marsaglia's xorshift64*.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % count
    }

    fn length(&mut self) -> usize {
        let longest = [1, 9, 49, 105, 300, 3000][usize::try_from(self.below(6)).unwrap()];
        usize::try_from(self.below(longest)).unwrap()
    }
}

/// A message of the model, identified by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    source: usize,
    tag: u64,
    length: usize,
    number: u8,
}

#[derive(Debug, Clone, Copy)]
struct Wish {
    source: Option<usize>,
    tag: u64,
    mask: u64,
}

impl Wish {
    fn takes(&self, message: &Message) -> bool {
        (self.tag ^ message.tag) & self.mask == 0
            && self.source.is_none_or(|source| source == message.source)
    }
}

/// How an operation ends in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Got(Message),
    TooSmall(usize),
    Cancelled,
}

struct Kept {
    message: Message,
    is_held: bool,
    is_claimed: bool,
}

/// The model: which receive gets which message.
#[derive(Default)]
struct Model {
    budget_bytes: usize,
    posted: Vec<(usize, Wish, usize)>,
    kept: Vec<Kept>,
    /// Messages that were sent but are behind one that is left with its sender.
    behind: VecDeque<Message>,
    ends: Vec<Option<End>>,
}

impl Model {
    fn used_bytes(&self) -> usize {
        let here = self.kept.iter().filter(|kept| !kept.is_held);
        here.map(|kept| kept.message.length + OVERHEAD_BYTES).sum()
    }

    /// One peer has at most half of the budget.
    fn has_budget(&self, length: usize) -> bool {
        self.used_bytes() + length + OVERHEAD_BYTES <= self.budget_bytes / 2
    }

    fn send(&mut self, message: Message) {
        self.behind.push_back(message);
        self.flow();
    }

    /// Messages arrive that are not behind a held message.
    fn flow(&mut self) {
        while !self.kept.iter().any(|kept| kept.is_held) || self.fetch() {
            let Some(message) = self.behind.pop_front() else { return };
            self.arrive(message);
        }
    }

    /// Accepts the held message, if that is possible by now.
    fn fetch(&mut self) -> bool {
        let held = self.kept.iter().position(|kept| kept.is_held && !kept.is_claimed);
        match held {
            Some(index) if self.has_budget(self.kept[index].message.length) => {
                self.kept[index].is_held = false;
                true
            }
            _ => false,
        }
    }

    fn arrive(&mut self, message: Message) {
        while let Some(index) = self.posted.iter().position(|(_, wish, _)| wish.takes(&message)) {
            let (operation, _, room) = self.posted.remove(index);
            if message.length <= room {
                self.ends[operation] = Some(End::Got(message));
                return;
            }
            self.ends[operation] = Some(End::TooSmall(message.length));
        }
        let is_held = !self.has_budget(message.length);
        self.kept.push(Kept { message, is_held, is_claimed: false });
    }

    fn find(&self, wish: &Wish) -> Option<usize> {
        self.kept.iter().position(|kept| !kept.is_claimed && wish.takes(&kept.message))
    }

    /// The result of a receive that does not wait.
    fn take(&mut self, wish: &Wish, room: usize) -> Option<End> {
        let index = self.find(wish)?;
        let length = self.kept[index].message.length;
        if length > room {
            return Some(End::TooSmall(length));
        }
        let message = self.kept.remove(index).message;
        self.flow();
        Some(End::Got(message))
    }

    fn post(&mut self, wish: Wish, room: usize) -> usize {
        let end = self.take(&wish, room);
        let is_waiting = end.is_none();
        self.ends.push(end);
        let operation = self.ends.len() - 1;
        if is_waiting {
            self.posted.push((operation, wish, room));
        }
        operation
    }

    /// A claimed message is available to every receive again.
    fn give_back(&mut self, index: usize) {
        let kept = &mut self.kept[index];
        kept.is_claimed = false;
        let message = kept.message.clone();
        while let Some(index) = self.posted.iter().position(|(_, wish, _)| wish.takes(&message)) {
            let (operation, wish, room) = self.posted.remove(index);
            let end = self.take(&wish, room);
            let is_taken = matches!(end, Some(End::Got(_)));
            self.ends[operation] = end;
            if is_taken {
                break;
            }
        }
        self.flow();
    }

    fn cancel(&mut self, operation: usize) {
        let before = self.posted.len();
        self.posted.retain(|(other, _, _)| *other != operation);
        if self.posted.len() < before {
            self.ends[operation] = Some(End::Cancelled);
        }
    }
}

/// The endpoints of all programs. The first receives, and also sends to itself.
#[derive(Debug)]
pub struct Ends<P> {
    /// Each of them.
    pub endpoints: Vec<P>,
    /// What each calls the first.
    pub to_first: Vec<Peer>,
    /// What the first calls each.
    pub sources: Vec<Peer>,
}

/// Rounds in which nothing happens although something waits, before it is taken to wait for good.
const QUIET_ROUNDS: u32 = 20;

impl<P: Party> Ends<P> {
    /// Makes progress until nothing happens any more.
    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < QUIET_ROUNDS {
            let mut has_news = false;
            let mut is_restless = false;
            for endpoint in &mut self.endpoints {
                has_news |= endpoint.progress().unwrap();
                is_restless |= endpoint.is_restless();
            }
            match (has_news, is_restless) {
                (true, _) => quiet = 0,
                (false, true) => quiet += 1,
                (false, false) => return,
            }
        }
    }
}

/// A run of one program.
struct Run<'a, P> {
    ends: &'a mut Ends<P>,
    model: Model,
    dice: Dice,
    /// Indexed by the operation of the model.
    requests: Vec<Option<OperationHandle>>,
    sends: Vec<(usize, OperationHandle)>,
    claimed: Vec<(Matched, Message)>,
    number: u8,
}

fn bytes_of(message: &Message) -> Vec<u8> {
    vec![message.number; message.length]
}

impl<P: Party> Run<'_, P> {
    fn wish(&mut self) -> (Wish, Selector) {
        let source = match self.dice.below(2) {
            0 => None,
            _ => Some(usize::try_from(self.dice.below(self.ends.sources.len() as u64)).unwrap()),
        };
        let (tag, mask) = (self.dice.below(4), [0, 1, 3, u64::MAX][self.below(4)]);
        let selector = Selector::masked(tag, mask);
        let selector = source.map_or(selector, |index| selector.from(self.ends.sources[index]));
        (Wish { source, tag, mask }, selector)
    }

    fn below(&mut self, count: u64) -> usize {
        usize::try_from(self.dice.below(count)).unwrap()
    }

    fn step(&mut self) {
        match self.dice.below(12) {
            0..=3 => self.send(),
            4 | 5 => self.post(),
            6 | 7 => self.receive(),
            8 => self.probe(),
            9 => self.claim(),
            10 => self.end_claim(),
            _ => self.cancel(),
        }
        self.check_operations();
    }

    fn send(&mut self) {
        let source = self.below(self.ends.sources.len() as u64);
        let (tag, length) = (self.dice.below(4), self.dice.length());
        self.number = self.number.wrapping_add(1);
        let message = Message { source, tag, length, number: self.number };
        let to = self.ends.to_first[source];
        let bytes = bytes_of(&message);
        let cut = length / 2;
        let parts = vec![bytes[..cut].to_vec(), bytes[cut..].to_vec()];
        let sender = &mut self.ends.endpoints[source];
        let request = match length % 2 {
            0 => sender.isend(to, tag, bytes.into()).unwrap(),
            _ => sender.isend(to, tag, parts.into()).unwrap(),
        };
        self.sends.push((source, request));
        self.ends.settle();
        self.model.send(message);
    }

    fn post(&mut self) {
        let ((wish, selector), room) = (self.wish(), self.dice.length());
        let request = self.ends.endpoints[0].ireceive(selector, vec![0; room].into()).unwrap();
        self.requests.push(Some(request));
        self.model.post(wish, room);
        self.ends.settle();
    }

    fn receive(&mut self) {
        let ((wish, selector), room) = (self.wish(), self.dice.length());
        let mut buffer = vec![0; room];
        let got = self.ends.endpoints[0].try_receive_into(selector, &mut buffer);
        match (got, self.model.take(&wish, room)) {
            (Ok(None), None) => {}
            (Ok(Some(status)), Some(End::Got(message))) => {
                assert_eq!(status.source, self.ends.sources[message.source]);
                assert_eq!((status.tag, status.bytes), (message.tag, message.length as u64));
                assert_eq!(buffer[..message.length], bytes_of(&message));
            }
            (Err(MessageError::BufferTooSmall { needed, given }), Some(End::TooSmall(length))) => {
                assert_eq!((needed, given), (length as u64, room));
            }
            (got, due) => panic!("{got:?} where {due:?} was due"),
        }
        self.ends.settle();
    }

    fn probe(&mut self) {
        let (wish, selector) = self.wish();
        let found = self.ends.endpoints[0].try_probe(selector).unwrap();
        let due = self.model.find(&wish).map(|index| &self.model.kept[index].message);
        assert_eq!(found.map(|it| (it.tag, it.bytes)), due.map(|it| (it.tag, it.length as u64)));
    }

    fn claim(&mut self) {
        let (wish, selector) = self.wish();
        let found = self.ends.endpoints[0].try_claim(selector).unwrap();
        match (found, self.model.find(&wish)) {
            (None, None) => {}
            (Some(matched), Some(index)) => {
                self.model.kept[index].is_claimed = true;
                let message = self.model.kept[index].message.clone();
                assert_eq!(
                    (matched.status.tag, matched.status.bytes),
                    (message.tag, message.length as u64)
                );
                self.claimed.push((matched, message));
            }
            (found, due) => panic!("{found:?} where {due:?} was due"),
        }
    }

    fn end_claim(&mut self) {
        let Some((matched, message)) = self.claimed.pop() else { return };
        let is_it = |kept: &Kept| kept.is_claimed && kept.message == message;
        let index = self.model.kept.iter().position(is_it).unwrap();
        if self.dice.below(2) == 0 {
            self.ends.endpoints[0].give_back(matched);
            self.model.give_back(index);
        } else {
            let mut buffer = vec![0; message.length];
            self.ends.endpoints[0].receive_claimed_into(matched, &mut buffer).unwrap();
            assert_eq!(buffer, bytes_of(&message));
            self.model.kept.remove(index);
            self.model.flow();
        }
        self.ends.settle();
    }

    fn cancel(&mut self) {
        let open: Vec<_> =
            (0..self.requests.len()).filter(|&it| self.requests[it].is_some()).collect();
        if open.is_empty() {
            return;
        }
        let operation = open[self.below(open.len() as u64)];
        self.ends.endpoints[0].cancel(self.requests[operation].unwrap()).unwrap();
        self.model.cancel(operation);
    }

    /// Checks that each operation has ended if and only if it has in the model, and with the same
    /// result.
    fn check_operations(&mut self) {
        for operation in 0..self.requests.len() {
            let Some(request) = self.requests[operation] else { continue };
            let ended = self.ends.endpoints[0].test(request).unwrap();
            match (ended, &self.model.ends[operation]) {
                (None, None) => continue,
                (Some(completion), Some(end)) => check_end(completion, end),
                (ended, due) => panic!("operation {operation}: {ended:?} where {due:?} was due"),
            }
            self.requests[operation] = None;
        }
    }

    /// Takes everything back, ready for the next program.
    fn finish(&mut self) {
        while let Some((matched, message)) = self.claimed.pop() {
            let is_it = |kept: &Kept| kept.is_claimed && kept.message == message;
            let index = self.model.kept.iter().position(is_it).unwrap();
            self.model.give_back(index);
            self.ends.endpoints[0].give_back(matched);
            self.ends.settle();
            self.check_operations();
        }
        for request in self.requests.drain(..).flatten() {
            self.ends.endpoints[0].cancel(request).unwrap();
            self.ends.endpoints[0]
                .test(request)
                .unwrap()
                .expect("a receive that was cancelled ends");
        }
        self.model.posted.clear();
        self.model.flow();
        self.ends.settle();
        let all = Wish { source: None, tag: 0, mask: 0 };
        while let Some(End::Got(message)) = self.model.take(&all, usize::MAX) {
            let mut received = vec![0; message.length];
            self.ends.endpoints[0].try_receive_into(Selector::any(), &mut received).unwrap();
            assert_eq!(received, bytes_of(&message));
            self.ends.settle();
        }
        assert_eq!(self.ends.endpoints[0].try_probe(Selector::any()).unwrap(), None);
        for (source, request) in self.sends.drain(..) {
            let sent = self.ends.endpoints[source].test(request).unwrap();
            assert!(sent.expect("everything was received").result.is_ok());
        }
    }
}

fn check_end(completion: Completion, end: &End) {
    match (completion.result, end) {
        (Ok(status), End::Got(message)) => {
            assert_eq!((status.tag, status.bytes), (message.tag, message.length as u64));
            assert_eq!(completion.memory.into_vec()[..message.length], bytes_of(message));
        }
        (Err(MessageError::BufferTooSmall { needed, .. }), End::TooSmall(length)) => {
            assert_eq!(needed, *length as u64);
        }
        (Err(MessageError::Cancelled), End::Cancelled) => {}
        (result, due) => panic!("{result:?} where {due:?} was due"),
    }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Prints which program failed.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("program {} failed", self.0);
        }
    }
}

/// Runs the programs on `ends`, whose budget is `budget_bytes`.
///
/// # Panics
/// If one of them does anything else than the model.
pub fn run_all<P: Party>(ends: &mut Ends<P>, budget_bytes: usize) {
    let alone = number_of("COREWIRE_PROGRAM");
    let count = number_of("COREWIRE_PROGRAMS").unwrap_or(PROGRAMS);
    let programs = alone.map_or(0..count, |number| number..number + 1);
    for program in programs {
        let _named = Named(program);
        let dice = Dice(program.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let model = Model { budget_bytes, ..Model::default() };
        let mut run = Run {
            ends,
            model,
            dice,
            requests: Vec::new(),
            sends: Vec::new(),
            claimed: Vec::new(),
            number: 0,
        };
        let steps = 1 + run.dice.below(24);
        (0..steps).for_each(|_| run.step());
        run.finish();
    }
}
