//! A world of ranks that send messages, take checkpoints, and all end at any time.

use std::collections::{BTreeMap, VecDeque};

use corewire_group::{Arrival, Header, Mark, Part, PartRules, recovery_line};
use stateright::{Model, Property};

/// What a message says: which one it is, as the sender's program counts.
type Content = u8;

/// What a world of ranks may do.
#[derive(Debug, Clone)]
pub struct Computations {
    /// Ranks.
    pub ranks: usize,
    /// Messages that programs send.
    pub messages: u8,
    /// Checkpoints that programs take.
    pub checkpoints: u8,
    /// Times that all end and are restored.
    pub ends: u8,
    /// The rules.
    pub rules: PartRules,
}

/// What a program knows: how many messages it has sent to each rank, and received.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Program {
    sent: Vec<Content>,
    received: Vec<Content>,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Checkpoint {
    mark: Mark<Content>,
    program: Program,
}

/// A state of such a world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ranks {
    parts: Vec<Part<Content>>,
    programs: Vec<Program>,
    queues: BTreeMap<(usize, usize), VecDeque<(Header, Content)>>,
    /// Of each rank, in their order; and how many of them are written.
    checkpoints: Vec<VecDeque<Checkpoint>>,
    written: Vec<usize>,
    messages: u8,
    checkpoints_left: u8,
    ends: u8,
    is_broken: bool,
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A program sends a message.
    Send(usize, usize),
    /// A message is processed.
    Receive(usize, usize),
    /// A program takes a checkpoint, which has so much higher a number.
    Checkpoint(usize, u64),
    /// A rank's next checkpoint is written, and files that nobody needs are removed.
    Write(usize),
    /// A rank's last checkpoint stands for the one before it. Neither is written.
    Join(usize),
    /// A rank sees in the files of another one what it has processed.
    Look(usize, usize),
    /// All end, and go on from their files.
    End,
}

impl Ranks {
    fn take(&mut self, rank: usize, number: u64) {
        if self.parts[rank].checkpoint(number) {
            let mark = self.parts[rank].mark().clone();
            let program = self.programs[rank].clone();
            self.checkpoints[rank].push_back(Checkpoint { mark, program });
        }
    }

    /// Lets a rank's last checkpoint stand for the one before it; false if it cannot.
    fn join(&mut self, rank: usize, rules: PartRules) -> bool {
        let checkpoints = &mut self.checkpoints[rank];
        let Some(last) = checkpoints.len().checked_sub(1).filter(|last| *last > self.written[rank])
        else {
            return false;
        };
        let earlier = checkpoints[last - 1].mark.clone();
        let can = checkpoints[last].mark.stand_for(&earlier, rules);
        if can {
            checkpoints.remove(last - 1);
        }
        can
    }

    fn newest(&self, rank: usize) -> u64 {
        let mut written = self.checkpoints[rank].iter().take(self.written[rank]);
        written.next_back().map_or(0, |one| one.mark.number)
    }

    fn line(&self) -> u64 {
        recovery_line((0..self.parts.len()).map(|rank| self.newest(rank)))
    }

    fn receive(&mut self, from: usize, to: usize) {
        let Some((header, content)) =
            self.queues.get_mut(&(from, to)).and_then(VecDeque::pop_front)
        else {
            return;
        };
        self.queues.retain(|_, queue| !queue.is_empty());
        let arrival = match self.parts[to].receive(from, header) {
            Arrival::CheckpointFirst(number) => {
                self.take(to, number);
                self.parts[to].receive(from, header)
            }
            other => other,
        };
        match arrival {
            Arrival::Again => {}
            Arrival::Process => {
                let received = &mut self.programs[to].received[from];
                *received += 1;
                self.is_broken |= *received != content;
            }
            Arrival::Gap | Arrival::CheckpointFirst(_) => self.is_broken = true,
        }
    }

    /// What a rank would find out by looking at another one's files.
    fn seen(&self, rank: usize, other: usize) -> Option<(u64, u64)> {
        let written = self.checkpoints[other].iter().take(self.written[other]);
        let mut marks = written.map(|one| &one.mark);
        marks.next_back().map(|mark| (mark.number, mark.received[rank]))
    }

    fn end(&mut self, rules: PartRules) {
        let line = self.line();
        self.queues.clear();
        let ranks = self.parts.len();
        for rank in 0..ranks {
            self.checkpoints[rank].truncate(self.written[rank]);
            let first = self.checkpoints[rank].iter().position(|one| one.mark.number >= line);
            let kept = first.filter(|_| line > 0).map_or(0, |first| first + 1);
            self.checkpoints[rank].truncate(kept);
            self.written[rank] = kept;
            match self.checkpoints[rank].back() {
                Some(Checkpoint { mark, program }) => {
                    self.parts[rank] = Part::restore(mark.clone(), rules);
                    self.programs[rank] = program.clone();
                }
                None => {
                    self.parts[rank] = Part::new(ranks, rules);
                    self.programs[rank] =
                        Program { sent: vec![0; ranks], received: vec![0; ranks] };
                }
            }
        }
        for from in 0..ranks {
            for to in 0..ranks {
                // Nothing was received that was not sent.
                self.is_broken |= self.programs[to].received[from] > self.programs[from].sent[to];
                let again = self.parts[from].unsettled(to);
                let again: VecDeque<_> =
                    again.iter().map(|sent| (sent.header, sent.bytes)).collect();
                if !again.is_empty() {
                    self.queues.insert((from, to), again);
                }
            }
        }
    }

    /// Whether every message was processed.
    fn is_complete(&self) -> bool {
        let ranks = 0..self.parts.len();
        ranks.clone().all(|from| {
            let sent = &self.programs[from].sent;
            ranks.clone().all(|to| self.programs[to].received[from] == sent[to])
        })
    }
}

impl Model for Computations {
    type State = Ranks;
    type Action = Step;

    fn init_states(&self) -> Vec<Ranks> {
        let ranks = self.ranks;
        vec![Ranks {
            parts: vec![Part::new(ranks, self.rules); ranks],
            programs: vec![Program { sent: vec![0; ranks], received: vec![0; ranks] }; ranks],
            queues: BTreeMap::new(),
            checkpoints: vec![VecDeque::new(); ranks],
            written: vec![0; ranks],
            messages: self.messages,
            checkpoints_left: self.checkpoints,
            ends: self.ends,
            is_broken: false,
        }]
    }

    fn actions(&self, world: &Ranks, actions: &mut Vec<Step>) {
        for rank in 0..self.ranks {
            for other in (0..self.ranks).filter(|other| *other != rank) {
                if world.messages > 0 {
                    actions.push(Step::Send(rank, other));
                }
                if world.queues.contains_key(&(rank, other)) {
                    actions.push(Step::Receive(rank, other));
                }
                if let Some((number, processed)) = world.seen(rank, other) {
                    let mut part = world.parts[rank].clone();
                    part.settle(other, number, processed);
                    if part != world.parts[rank] {
                        actions.push(Step::Look(rank, other));
                    }
                }
            }
            if world.checkpoints_left > 0 {
                actions.extend([Step::Checkpoint(rank, 1), Step::Checkpoint(rank, 2)]);
            }
            if world.checkpoints[rank].len() > world.written[rank] {
                actions.push(Step::Write(rank));
            }
            if world.checkpoints[rank].len() > world.written[rank] + 1 {
                actions.push(Step::Join(rank));
            }
        }
        if world.ends > 0 {
            actions.push(Step::End);
        }
    }

    fn next_state(&self, before: &Ranks, action: Step) -> Option<Ranks> {
        let mut world = before.clone();
        match action {
            Step::Send(from, to) => {
                world.messages -= 1;
                let content = &mut world.programs[from].sent[to];
                *content += 1;
                let content = *content;
                let header = world.parts[from].send(to, content);
                world.queues.entry((from, to)).or_default().push_back((header, content));
            }
            Step::Receive(from, to) => world.receive(from, to),
            Step::Checkpoint(rank, more) => {
                world.checkpoints_left -= 1;
                let number = world.parts[rank].number() + more;
                world.take(rank, number);
            }
            Step::Write(rank) => {
                world.written[rank] += 1;
                let line = world.line();
                let checkpoints = &mut world.checkpoints[rank];
                let first = checkpoints.iter().position(|one| one.mark.number >= line);
                let unneeded = first.unwrap_or(0).min(world.written[rank]);
                checkpoints.drain(..unneeded);
                world.written[rank] -= unneeded;
            }
            Step::Join(rank) => {
                if !world.join(rank, self.rules) {
                    return None;
                }
            }
            Step::Look(rank, other) => {
                let (number, processed) = world.seen(rank, other)?;
                world.parts[rank].settle(other, number, processed);
            }
            Step::End => {
                world.ends -= 1;
                world.end(self.rules);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("each message is processed once, in order", |_, world: &Ranks| {
                !world.is_broken
            }),
            Property::always("every message is processed in the end", |_, world: &Ranks| {
                !world.queues.is_empty() || world.is_complete()
            }),
        ]
    }
}
