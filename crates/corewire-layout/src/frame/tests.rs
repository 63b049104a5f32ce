use alloc::string::String;
use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::message_type::{TypeName, TypeTag};
use crate::name::NAME_BYTES_MAX;
use crate::window::PARTICIPANTS_MAX;

fn names() -> impl Strategy<Value = ChannelName> {
    proptest::collection::vec(0usize..64, 1..=NAME_BYTES_MAX).prop_map(|picks| {
        let set = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
        let text: String = picks.iter().map(|&i| char::from(set[i])).collect();
        let name = ChannelName::new(&text).unwrap();
        if picks[0] % 2 == 0 { name } else { name.relayed(u32::MAX) }
    })
}

fn reasons() -> impl Strategy<Value = Reason> {
    (1u64..=19, any::<u32>(), any::<u32>(), "[ -~]{1,64}").prop_map(|(code, a, b, name)| {
        let a = u64::from(a).max(1);
        if code == 19 {
            let of = |word: u32| Rights::ALL[word as usize % Rights::ALL.len()].0;
            return Reason::Rights { asked: of(b), given: of(b / 7) };
        }
        Reason::of_words(code, a, b.into(), name.as_bytes()).unwrap()
    })
}

fn windows() -> impl Strategy<Value = WindowFacts> {
    (any::<(u64, u64)>(), 0..Rights::ALL.len(), 1..=PARTICIPANTS_MAX).prop_map(
        |((bytes, address), rights, participants_max)| WindowFacts {
            bytes,
            address,
            rights: Rights::ALL[rights].0,
            participants_max,
        },
    )
}

fn frames() -> impl Strategy<Value = Frame> {
    let starts = prop_oneof![
        Just(Start::Now),
        Just(Start::Oldest),
        Just(Start::OldestIfPossible),
        (0..u64::MAX - 2).prop_map(Start::At),
    ];
    let places = prop_oneof![
        Just(Place::Ring),
        any::<u32>().prop_map(Place::Group),
        any::<u32>().prop_map(Place::Relay),
        any::<u32>().prop_map(Place::Follower),
    ];
    let rest = any::<(u128, bool, u64, u64, u128)>();
    let hello = (names(), starts, places, rest).prop_map(|(name, start, place, h)| {
        let (waiter, needs_fence, hash, bytes, socket) = h;
        let type_key = TypeKey { hash, bytes };
        Frame::Hello(Hello { name, start, waiter, place, needs_fence, type_key, socket })
    });
    let welcome = any::<(u32, u64, u32, u128, bool, bool, u64, u32)>().prop_map(|w| {
        let (row, start, epoch, incarnation, hint, table, settled, generation) = w;
        let welcome = Welcome { row, start, epoch, incarnation, hint, table, settled, generation };
        Frame::Welcome(welcome)
    });
    prop_oneof![
        hello,
        welcome,
        reasons().prop_map(Frame::Refused),
        any::<(u128, u128)>().prop_map(|(channel, relay)| Frame::Relayed { channel, relay }),
        Just(Frame::Readiness),
        Just(Frame::Done),
        Just(Frame::Leave),
        Just(Frame::Ring),
        (names(), any::<u128>()).prop_map(|(name, waiter)| Frame::Invite { name, waiter }),
        names().prop_map(|name| Frame::Observe { name }),
        names().prop_map(|name| Frame::Follow { name }),
        names().prop_map(|name| Frame::Connect { name }),
        (names(), any::<bool>()).prop_map(|(name, is_tls)| Frame::Dialled { name, is_tls }),
        (names(), any::<(u64, u64, u128)>()).prop_map(|(name, (hash, bytes, socket))| {
            Frame::Enter { name, type_key: TypeKey { hash, bytes }, socket }
        }),
        any::<(u32, u32, u128)>().prop_map(|(row, generation, incarnation)| {
            Frame::Entered { row, generation, incarnation }
        }),
        any::<u64>().prop_map(|start| Frame::Start { start }),
        any::<(u32, u128)>().prop_map(|(row, incarnation)| Frame::Wake { row, incarnation }),
        (any::<u32>(), proptest::collection::vec(any::<u32>(), 0..=JOINING_MAX))
            .prop_map(|(count, joining)| Frame::Observed { count, joining }),
        Just(Frame::ObservedEndpoint),
        Just(Frame::Linked),
        (names(), any::<(u32, u64, u128, u128)>()).prop_map(
            |(name, (row, reservation, incarnation, target))| {
                Frame::Pair { name, row, reservation, incarnation, target }
            }
        ),
        any::<(u32, u64, u128)>().prop_map(|(row, reservation, incarnation)| {
            Frame::Paired { row, reservation, incarnation }
        }),
        proptest::collection::vec(any::<u16>(), 0..=ROWS_PER_FRAME).prop_map(Frame::Rows),
        (names(), windows(), any::<u128>()).prop_map(
            |(name, WindowFacts { rights, .. }, incarnation)| {
                Frame::Attach { name, rights, incarnation }
            }
        ),
        (windows(), any::<(Option<u32>, u32, u128)>()).prop_map(
            |(window, (row, generation, incarnation))| {
                Frame::Attached { window, row, generation, incarnation }
            }
        ),
        windows().prop_map(Frame::ObservedWindow),
    ]
}

#[test]
fn a_refusal_names_the_type_or_plain_bytes() {
    let name = TypeName::new("example.Tick.1").unwrap();
    for tag in [TypeTag::default(), TypeTag::new(7, 16, name).unwrap()] {
        let frame = Frame::Refused(tag.refusal());
        assert_eq!(Frame::parse(&frame.to_bytes()), Ok(frame));
    }
    let mut bytes = Frame::Refused(TypeTag::new(7, 16, name).unwrap().refusal()).to_bytes();
    *bytes.last_chunk_mut::<176>().unwrap() = [b'\n'; 176];
    let error = Frame::parse(&bytes).unwrap_err();
    assert_eq!(error, FrameError::Field { field: "type_name", found: 14 });
}

proptest! {
    #[test]
    fn frames_survive_the_wire(frame in frames()) {
        prop_assert_eq!(Frame::parse(&frame.to_bytes()), Ok(frame));
    }

    #[test]
    fn any_packet_is_parsed_without_panic(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = Frame::parse(&packet);
    }

    // Keeps P35.
    #[test]
    fn a_flipped_frame_is_parsed_without_panic(
        frame in frames(),
        flips in proptest::collection::vec((0..FRAME_BYTES, any::<u8>()), 1..8),
    ) {
        let mut bytes = frame.to_bytes();
        for (at, value) in flips {
            bytes[at] = value;
        }
        let _ = Frame::parse(&bytes);
    }
}
