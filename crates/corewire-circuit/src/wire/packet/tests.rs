use proptest::prelude::*;

use super::*;

fn node(number: usize) -> NodeId {
    NodeId::new(number).unwrap()
}

fn examples() -> Vec<Packet> {
    let mut visited = NodeSet::default();
    visited.insert(node(200));
    let label = Label::new(0x1234_5678_9abc_def0, 5);
    let origin = Origin { uid: 1000, gid: 1000, pid: 77 };
    vec![
        Packet::Attach { role: Role::Program, wants_ring: true },
        Packet::Attach { role: Role::Monitor(node(3)), wants_ring: false },
        Packet::Attached { node: node(0), secret: 7, endpoint: "monitor.0.rings".into() },
        Packet::Lane { secret: 7 },
        Packet::Ready,
        Packet::Leave,
        Packet::Unneeded,
        Packet::Needed,
        Packet::Export { name: "calc".into() },
        Packet::Exported { name: "calc".into(), reason: String::new() },
        Packet::Setup(Box::new(Setup {
            label,
            credit: 2,
            service: "calc".into(),
            node: Some(node(3)),
            origin,
            path: vec![node(0), node(1)],
            visited,
            offer: vec![1, 2, 3],
        })),
        Packet::Accept { to: label, label, credit: 2, origin, answer: vec![9] },
        Packet::Reset(Box::new(Reset {
            to: label,
            from: Label::NONE,
            after: Some(17),
            end: End::Died,
            visited,
            reason: "process 77 died".into(),
        })),
        Packet::Capabilities { to: label, is_lost: false, notes: vec![1, 0] },
        Packet::Refused { reason: "no".into() },
        Packet::Name { name: "calc".into(), node: node(1), epoch: 8, is_served: true },
        Packet::Table(Table { version: 1, shape: Shape::Direct, vias: vec![] }),
        Packet::Table(Table {
            version: 2,
            shape: Shape::Ring(vec![node(0), node(2), node(1)]),
            vias: vec![Via { from: node(0), to: node(1), via: node(2) }],
        }),
        Packet::Table(Table {
            version: 3,
            shape: Shape::FatTree(vec![vec![node(0), node(1)], vec![node(2)]]),
            vias: vec![],
        }),
        Packet::Ask(Question::Circuits),
        Packet::Answer { is_last: true, part: b"{}".to_vec() },
    ]
}

#[test]
fn packets_are_what_they_were() {
    for packet in examples() {
        assert_eq!(Packet::parse(&packet.to_bytes()), Ok(packet));
    }
}

#[test]
fn what_is_no_packet_says_why() {
    let good = Packet::Ready.to_bytes();
    assert_eq!(Packet::parse(b"x"), Err(PacketError::Magic));
    let mut other = good.clone();
    other[4] ^= 0xff;
    let other = Packet::parse(&other).unwrap_err();
    assert!(matches!(other, PacketError::Version { .. }), "{other}");
    let left = Packet::parse(&[&good[..], b"x"].concat());
    assert_eq!(left, Err(PacketError::Malformed { kind: 4 }));
    let long = Packet::parse(&vec![0; PACKET_BYTES_MAX + 1]);
    assert_eq!(long, Err(PacketError::Long { found: PACKET_BYTES_MAX + 1 }));
}

#[test]
fn a_reason_that_is_too_long_is_cut_between_characters() {
    let reason = "é".repeat(REASON_BYTES_MAX);
    let parsed = Packet::parse(&Packet::Refused { reason }.to_bytes());
    assert_eq!(parsed, Ok(Packet::Refused { reason: "é".repeat(REASON_BYTES_MAX / 2) }));
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(
        which in 0..examples().len(), cut in 0..200_usize, at in 9..200_usize, byte: u8,
    ) {
        let mut bytes = examples()[which].to_bytes();
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert_eq!(Packet::parse(&packet.to_bytes()), Ok(packet));
        }
    }
}
