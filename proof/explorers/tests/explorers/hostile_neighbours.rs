//! Neighbours that do what no honest one does: what they get, and that others go on.
//!
//! Every test here keeps P201.

use corewire_circuit::node::{
    Act, Config, LinkId, Neighbour, Node, Policy, Rule, WAITING_BYTES_MAX,
    WAITING_BYTES_OF_FOREIGN_MAX, Wires,
};
use corewire_circuit::wire::packet::{End, Origin, Packet, Reset, Setup};
use corewire_circuit::wire::{Hop, Kind, Label, NodeId, NodeSet, flags};

const OWNER: u32 = 1000;
const OTHER: u32 = 7;

/// Everything that a node has sent, and whether its data lanes have room.
#[derive(Default)]
struct Sent {
    packets: Vec<(LinkId, Packet)>,
    is_full: bool,
    /// Bytes that wait for each neighbour.
    waiting_bytes: usize,
    randoms: u64,
}

impl Wires for Sent {
    type Rights = ();

    fn frame(&mut self, _: LinkId, _: Label, _: Hop, _: &[u8]) -> bool {
        !self.is_full
    }

    fn packet(&mut self, link: LinkId, packet: Packet, (): ()) {
        self.packets.push((link, packet));
    }

    fn close(&mut self, link: LinkId) {
        panic!("{link:?} is ended, though somebody needs it");
    }

    fn waiting_bytes(&self, _: LinkId) -> usize {
        self.waiting_bytes
    }

    fn random(&mut self) -> u64 {
        self.randoms += 1 << 32;
        self.randoms
    }
}

impl Sent {
    /// What was sent last to a neighbour.
    fn last(&self, link: LinkId) -> &Packet {
        &self.packets.iter().rfind(|(to, _)| *to == link).unwrap().1
    }

    /// The label of the circuit that the service was asked for last.
    fn asked(&self, service: LinkId) -> Label {
        match self.last(service) {
            Packet::Setup(setup) => setup.label,
            other => panic!("{other:?}"),
        }
    }

    /// How and why the neighbour's last request was refused.
    fn refusal(&self, link: LinkId) -> (End, &str) {
        match self.last(link) {
            Packet::Reset(reset) => (reset.end, &reset.reason),
            other => panic!("{other:?}"),
        }
    }
}

fn monitor(number: usize) -> NodeId {
    NodeId::new(number).unwrap()
}

/// A node, a service of its owner that everybody may reach, and a client of a user.
fn world(uid: u32, adjust: impl FnOnce(&mut Config)) -> (Node, Sent, [LinkId; 2]) {
    let rule = Rule { act: Act::Bind, names: "s".into(), users: Vec::new(), groups: Vec::new() };
    let mut config = Config::new(monitor(0), Policy { owner: OWNER, rules: vec![rule] }, 1);
    adjust(&mut config);
    let (mut node, mut sent) = (Node::new(config), Sent::default());
    let service = program(&mut node, OWNER);
    node.packet(service, Packet::Export { name: "s".into() }, (), &mut sent).unwrap();
    let client = program(&mut node, uid);
    (node, sent, [client, service])
}

fn program(node: &mut Node, uid: u32) -> LinkId {
    node.link_up(Neighbour::Program(Origin { uid, gid: uid, pid: 1 }))
}

fn label(number: u32) -> Label {
    Label::new(u64::from(number) << 40, number)
}

fn setup(number: u32, offer: usize) -> Setup {
    Setup {
        label: label(number),
        credit: 64,
        service: "s".into(),
        node: None,
        origin: Origin::default(),
        path: Vec::new(),
        visited: NodeSet::default(),
        offer: vec![0; offer],
    }
}

fn ask(node: &mut Node, sent: &mut Sent, client: LinkId, setup: Setup) {
    node.packet(client, Packet::Setup(Box::new(setup)), (), sent).unwrap();
}

fn accept(node: &mut Node, sent: &mut Sent, service: LinkId, to: Label, number: u32) {
    let (label, origin, answer) = (label(number), Origin::default(), Vec::new());
    let accept = Packet::Accept { to, label, credit: 64, origin, answer };
    node.packet(service, accept, (), sent).unwrap();
}

/// Opens a circuit. Returns the label that the client writes.
fn open(node: &mut Node, sent: &mut Sent, [client, service]: [LinkId; 2], number: u32) -> Label {
    ask(node, sent, client, setup(number, 0));
    let to = sent.asked(service);
    accept(node, sent, service, to, number);
    match sent.last(client) {
        Packet::Accept { label, .. } => *label,
        other => panic!("{other:?}"),
    }
}

fn close(node: &mut Node, sent: &mut Sent, from: LinkId, to: Label) {
    let (end, visited, reason) = (End::Closed, NodeSet::default(), String::new());
    let reset = Reset { to, from: Label::NONE, after: None, end, visited, reason };
    node.packet(from, Packet::Reset(Box::new(reset)), (), sent).unwrap();
}

#[test]
fn a_frame_without_a_label_belongs_to_no_circuit() {
    let (mut node, mut sent, [client, service]) = world(OTHER, |_| {});
    // The first circuit, of which the client has no label before it is open.
    ask(&mut node, &mut sent, client, setup(1, 0));
    node.frame(client, Label::NONE, Hop::new(Kind::Data), &[7; 40], &mut sent).unwrap();
    assert_eq!((node.counts().unknown, node.stored_lines()), (1, 0));
    let asked = sent.asked(service);
    close(&mut node, &mut sent, service, asked);
    assert_eq!((node.circuit_count(), node.stored_lines()), (0, 0));
    node.check_books();
}

#[test]
fn a_way_in_a_circle_is_refused_and_ends_no_link() {
    let (mut node, mut sent, _) = world(OTHER, |_| {});
    let [one, two] = [1, 2].map(|number| node.link_up(Neighbour::Monitor(monitor(number))));
    // The neighbour passes on what another one has made up.
    let path = vec![monitor(3), monitor(0), monitor(1)];
    ask(&mut node, &mut sent, one, Setup { path, ..setup(1, 0) });
    assert_eq!(sent.refusal(one), (End::Unreachable, "the way goes through monitor 0 already"));
    // A monitor on the way is not asked again.
    let name = Packet::Name { name: "far".into(), node: monitor(2), epoch: 5, is_served: true };
    node.packet(two, name, (), &mut sent).unwrap();
    let path = vec![monitor(2), monitor(1)];
    ask(&mut node, &mut sent, one, Setup { path, service: "far".into(), ..setup(2, 0) });
    assert_eq!(sent.refusal(one).0, End::Unreachable);
    let is_setup = |packet: &Packet| matches!(packet, Packet::Setup(_));
    assert!(!sent.packets.iter().any(|(to, packet)| *to == two && is_setup(packet)));
}

#[test]
fn requests_that_nobody_answers_take_bounded_memory() {
    let (mut node, mut sent, [client, service]) =
        world(OTHER, |config| config.offer_bytes_of_user_max = 100_000);
    ask(&mut node, &mut sent, client, setup(1, 40_000));
    let first = sent.asked(service);
    ask(&mut node, &mut sent, client, setup(2, 40_000));
    assert_eq!(node.circuit_count(), 2);
    ask(&mut node, &mut sent, client, setup(3, 40_000));
    let reason = "80000 bytes of requests of user 7 wait for an answer: at most 100000 can";
    assert_eq!(sent.refusal(client), (End::Full, reason));
    // The owner's are not counted.
    let own = program(&mut node, OWNER);
    ask(&mut node, &mut sent, own, setup(4, 40_000));
    assert_eq!(node.circuit_count(), 3);
    // An answer makes room, whatever it is.
    accept(&mut node, &mut sent, service, first, 1);
    ask(&mut node, &mut sent, client, setup(5, 40_000));
    let last = sent.asked(service);
    close(&mut node, &mut sent, service, last);
    ask(&mut node, &mut sent, client, setup(6, 40_000));
    assert_eq!(node.circuit_count(), 4);
    node.check_books();
}

#[test]
fn circuits_to_a_service_that_does_not_read_are_refused_long_before_it_is_cut_off() {
    for (uid, waiting_bytes_max) in
        [(OWNER, WAITING_BYTES_MAX), (OTHER, WAITING_BYTES_OF_FOREIGN_MAX)]
    {
        let (mut node, mut sent, _) = world(OTHER, |config| {
            for act in [Act::Export, Act::Bind] {
                let (users, groups) = (vec![OTHER, OWNER], Vec::new());
                config.policy.rules.push(Rule { act, names: "mine".into(), users, groups });
            }
        });
        let [service, client] = [0, 1].map(|_| program(&mut node, uid));
        node.packet(service, Packet::Export { name: "mine".into() }, (), &mut sent).unwrap();
        let mut ask_mine = |sent: &mut Sent, number| {
            let setup = Setup { service: "mine".into(), ..setup(number, 0) };
            ask(&mut node, sent, client, setup);
        };
        sent.waiting_bytes = waiting_bytes_max;
        ask_mine(&mut sent, 1);
        sent.waiting_bytes += 1;
        ask_mine(&mut sent, 2);
        let reason =
            format!("{} bytes wait for the next process on the way to mine", waiting_bytes_max + 1);
        assert_eq!(sent.refusal(client), (End::Full, &*reason));
    }
}

#[test]
fn all_programs_of_another_user_serve_as_many_names_as_one() {
    let (mut node, mut sent, _) = world(OTHER, |config| {
        let (names, users, groups) = ("mine*".into(), Vec::new(), Vec::new());
        config.policy.rules.push(Rule { act: Act::Export, names, users, groups });
    });
    let links = [0, 1].map(|_| program(&mut node, OTHER));
    let own = program(&mut node, OWNER);
    let mut export = |link, number: usize| {
        let name = format!("mine.{number}");
        node.packet(link, Packet::Export { name }, (), &mut sent).unwrap();
        match sent.packets.pop() {
            Some((to, Packet::Exported { reason, .. })) if to == link => reason,
            other => panic!("{other:?}"),
        }
    };
    for number in 0..1024 {
        assert_eq!(export(links[number % 2], number), "");
    }
    assert_eq!(export(links[0], 1024), "user 7 can serve 1024 names");
    assert_eq!(export(own, 1024), "");
}

#[test]
fn programs_of_other_users_borrow_half_of_all_lines_at_most() {
    let lines_max = 32_000;
    let (mut node, mut sent, [_, service]) = world(OTHER, |config| config.lines_max = lines_max);
    // They ask for more all the time, and answer no recall.
    let wants = Hop { flags: flags::WANTS, ..Hop::new(Kind::Credit) };
    let mut number = 0;
    for _ in 0..8 {
        let client = program(&mut node, OTHER);
        for _ in 0..100 {
            number += 1;
            let label = open(&mut node, &mut sent, [client, service], number);
            for _ in 0..4 {
                node.frame(client, label, wants, &[], &mut sent).unwrap();
            }
        }
        node.flush(&mut sent);
        node.check_books();
    }
    let lent = |node: &Node| node.circuits().flat_map(|one| one.lent_lines).sum::<u32>() as usize;
    let foreign = lent(&node);
    assert!(foreign > lines_max / 4 && foreign <= lines_max / 2, "{foreign}");
    // The owner's own get what they ask for at once.
    let own = program(&mut node, OWNER);
    let label = open(&mut node, &mut sent, [own, service], 10_000);
    node.frame(own, label, wants, &[], &mut sent).unwrap();
    assert!(lent(&node) > foreign);
    // Nobody is looked at again before something has been given back.
    while node.flush(&mut sent) {}
    node.check_books();
}

#[test]
fn a_neighbour_that_takes_no_frames_costs_no_memory_for_circuits_that_are_gone() {
    let (mut node, mut sent, [client, service]) = world(OTHER, |_| {});
    sent.is_full = true;
    for number in 1..20_000 {
        let label = open(&mut node, &mut sent, [client, service], number);
        // The node owes the client credit, and the service a frame.
        let hop = Hop { flags: flags::WANTS, ..Hop::new(Kind::Data) };
        node.frame(client, label, hop, &[7; 40], &mut sent).unwrap();
        close(&mut node, &mut sent, client, label);
        node.flush(&mut sent);
        sent.packets.clear();
    }
    assert!(node.list_length() < 1000, "{}", node.list_length());
}
