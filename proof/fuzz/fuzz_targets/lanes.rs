//! A neighbour of a monitor that sends any packets and frames: it is cut off or served, and nothing of it is left once its
//! link is down. The service at the other end accepts every circuit.

#![no_main]

use corewire_circuit::node::{Config, Down, LinkId, Neighbour, Node, Policy, Wires};
use corewire_circuit::wire::packet::{Origin, Packet};
use corewire_circuit::wire::{Hop, Label, NodeId};
use libfuzzer_sys::fuzz_target;

#[derive(Default)]
struct Lanes {
    /// Requests for circuits that the service has got.
    asked: Vec<Label>,
    /// What the hostile neighbour may write.
    given: Vec<Label>,
    service: Option<LinkId>,
    count: u64,
}

impl Wires for Lanes {
    type Rights = ();

    fn frame(&mut self, _link: LinkId, _label: Label, _hop: Hop, _payload: &[u8]) -> bool {
        self.count += 1;
        // Room is short now and then.
        self.count % 5 != 0
    }

    fn packet(&mut self, link: LinkId, packet: Packet, (): ()) {
        match packet {
            Packet::Setup(setup) if Some(link) == self.service => self.asked.push(setup.label),
            Packet::Accept { label, .. } => self.given.push(label),
            _ => {}
        }
    }

    fn close(&mut self, _link: LinkId) {}

    fn random(&mut self) -> u64 {
        self.count += 1;
        self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

fn origin(pid: u32) -> Origin {
    Origin { uid: 0, gid: 0, pid }
}

fuzz_target!(|bytes: &[u8]| {
    let policy = Policy { owner: 0, rules: Vec::new() };
    let Some(id) = NodeId::new(1) else { return };
    let mut config = Config::new(id, policy, 1);
    config.lines_max = 512;
    let (mut node, mut lanes) = (Node::new(config), Lanes::default());
    let service = node.link_up(Neighbour::Program(origin(1)));
    lanes.service = Some(service);
    let export = Packet::Export { name: "s".into() };
    node.packet(service, export, (), &mut lanes).expect("an honest service");
    let mut hostile = node.link_up(Neighbour::Program(origin(2)));

    let mut left = bytes;
    while let [what, length, rest @ ..] = left {
        let (own, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        left = rest;
        let done = match what % 4 {
            0 => match Packet::parse(own) {
                Ok(packet) => node.packet(hostile, packet, (), &mut lanes),
                Err(_) => Ok(()),
            },
            1 | 2 => {
                let known = lanes.given.get(usize::from(what / 4)).copied();
                let (word, payload) = own.split_at(own.len().min(8));
                let mut hop = [0; 8];
                hop[..word.len()].copy_from_slice(word);
                let label = known.unwrap_or(Label::of_word(u64::from_le_bytes(hop)));
                match Hop::of_word(u64::from_le_bytes(hop)) {
                    Some(hop) => node.frame(hostile, label, hop, payload, &mut lanes),
                    None => Ok(()),
                }
            }
            _ => {
                node.flush(&mut lanes);
                Ok(())
            }
        };
        for to in std::mem::take(&mut lanes.asked) {
            let label = Label::new(lanes.random(), 7);
            let (origin, answer) = (origin(1), Vec::new());
            let accept = Packet::Accept { to, label, credit: 64, origin, answer };
            node.packet(service, accept, (), &mut lanes).expect("an honest service");
        }
        if let Err(mistake) = done {
            node.link_down(hostile, &Down::CutOff(mistake.to_string()), &mut lanes);
            hostile = node.link_up(Neighbour::Program(origin(2)));
            lanes.given.clear();
        }
    }
    node.link_down(hostile, &Down::Died, &mut lanes);
    node.link_down(service, &Down::Died, &mut lanes);
    assert_eq!((node.circuit_count(), node.stored_lines()), (0, 0));
});
