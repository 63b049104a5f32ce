//! A peer that says anything about large messages, grants and exposed memory: it is cut off or harmless, and another peer
//! notices nothing.

use corewire_endpoint::in_memory::Network;
use corewire_endpoint::{
    Budget, Caller, Change, Engine, Envelope, Exposed, Grants, Kind, Memory, Number, Options, Part,
    Relation, Rights, Seed, Selector, Space, Transport,
};
use corewire_layout::access::{Access, Reply};
use corewire_layout::name::ChannelName;
use corewire_layout::rendezvous::{Notice, Offer, OfferWants, OfferedSpace, Verb, offer_number};
use proptest::prelude::*;

/// What the peer sends.
#[derive(Debug, Clone)]
enum Sent {
    Anything(u8, u64, Vec<u8>),
    Offer(Offer, u64, Vec<u8>),
    Notice(Notice, u64, Vec<u8>),
    Data(u64, Vec<u8>),
    /// A request, with as many operands as it needs or others.
    Access(Access, u64, Vec<u8>, bool),
    /// The victim does something.
    Victim(u8),
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0u16..4, 0u64..6).prop_map(|(index, uses)| offer_number(index, uses)),
        any::<u64>()
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..100)
}

/// The memory that can be changed, the memory that can be read, and none.
const KEYS: [u64; 3] = [1, 2, 3];

fn access() -> impl Strategy<Value = Access> {
    let kind = (0usize..7, 0usize..12, 0usize..10).prop_map(|(kind, change, number)| {
        let (change, number) = (Change::ALL[change], Number::ALL[number]);
        match kind {
            0 => Kind::Put,
            1 => Kind::Get,
            2 => Kind::Update(change, number),
            3 => Kind::Fetch(change, number),
            4 => Kind::Compare(Relation::ALL[change as usize % 6], number),
            5 => Kind::Mask(number),
            _ => Kind::Signal,
        }
    });
    let offset = prop_oneof![0u64..80, any::<u64>()];
    let reply = prop_oneof![Just(Reply::Notice), Just(Reply::Word), Just(Reply::FirstWord)];
    (0usize..3, offset, 0u32..40, kind, reply).prop_map(|(key, offset, bytes, kind, reply)| {
        Access { key: KEYS[key], offset, bytes, kind, reply }
    })
}

fn sent() -> impl Strategy<Value = Sent> {
    let space = prop_oneof![
        Just(OfferedSpace::Tagged),
        Just(OfferedSpace::Untagged),
        Just(OfferedSpace::Request)
    ];
    let wants =
        prop_oneof![Just(OfferWants::Nothing), Just(OfferWants::Delivery), Just(OfferWants::Match)];
    let total = prop_oneof![1u64..300, Just(u64::MAX), Just(1 << 40)];
    let offer = (number(), total, space, wants, any::<bool>()).prop_map(
        |(number, total, space, wants, is_blocking)| Offer {
            number,
            total,
            space,
            wants,
            immediate: None,
            is_blocking,
        },
    );
    let verb = prop_oneof![
        Just(Verb::Answer),
        Just(Verb::Done),
        Just(Verb::Push),
        Just(Verb::Cancelled),
        Just(Verb::Refuse),
        Just(Verb::Helped),
        Just(Verb::Grant),
        Just(Verb::Want),
        Just(Verb::Kept),
        Just(Verb::Access),
        Just(Verb::Accessed)
    ];
    let notice = (verb, prop_oneof![0u64..300, any::<u64>()])
        .prop_map(|(verb, offset)| Notice { verb, offset });
    prop_oneof![
        (0u8..3, any::<u64>(), bytes())
            .prop_map(|(space, tag, bytes)| Sent::Anything(space, tag, bytes)),
        (offer, 0u64..3, bytes()).prop_map(|(offer, tag, place)| Sent::Offer(offer, tag, place)),
        (notice, number(), bytes())
            .prop_map(|(notice, number, place)| Sent::Notice(notice, number, place)),
        (number(), bytes()).prop_map(|(number, bytes)| Sent::Data(number, bytes)),
        (access(), 0u64..20, bytes(), any::<bool>())
            .prop_map(|(access, number, bytes, fits)| Sent::Access(access, number, bytes, fits)),
        any::<u8>().prop_map(Sent::Victim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    // Keeps P117.
    #[test]
    fn whatever_is_said_of_large_messages_harms_nobody_else(
        seed in any::<u64>(),
        all in proptest::collection::vec(sent(), 1..60),
    ) {
        let network = Network::new(seed | 1, 8, 32).with_offers().with_refusals();
        let join = |name: &str| network.join(ChannelName::new(name).unwrap());
        let engine = |transport| Engine::new(transport, Budget::new(1 << 16, 4), Seed(5));
        let mut victim = engine(join("victim")).with_grants(Grants::new(1 << 16, 4, seed & 2 == 0));
        let mut hostile = join("hostile");
        let mut honest = engine(join("honest"));
        for engine in [&mut victim, &mut honest] {
            engine.progress(None).unwrap();
        }
        let (bad, to_victim) = (victim.peer_at(1).unwrap(), honest.peer_at(0).unwrap());
        let memories = [Rights::ATOMIC, Rights::READ].map(|rights| {
            let memory = Exposed::new(64).unwrap();
            let key = if rights == Rights::READ { 2 } else { 1 };
            assert!(memory.put(0, &[7; 64]));
            victim.expose(memory.clone(), Some(key), 0, rights).unwrap();
            memory
        });
        victim.take_signals(seed & 4 == 0);
        let mut operations = Vec::new();
        for sent in all {
            let (envelope, bytes) = match sent {
                Sent::Anything(space, tag, bytes) => {
                    let spaces = [Space::Offer, Space::Notice, Space::Data];
                    (Envelope::numbered(spaces[usize::from(space)], tag), bytes)
                }
                Sent::Offer(offer, tag, place) => {
                    (Envelope::numbered(Space::Offer, tag), [&offer.to_bytes()[..], &place].concat())
                }
                Sent::Notice(notice, number, place) => {
                    let bytes = [&notice.to_bytes()[..], &place].concat();
                    (Envelope::numbered(Space::Notice, number), bytes)
                }
                Sent::Data(number, bytes) => (Envelope::numbered(Space::Data, number), bytes),
                Sent::Access(access, number, mut operands, fits) => {
                    if fits {
                        operands.resize(access.kind.operand_bytes(access.bytes as usize), 1);
                    }
                    let notice = Notice { verb: Verb::Access, offset: access.offset };
                    let head = [&notice.to_bytes()[..], &access.to_bytes()].concat();
                    (Envelope::numbered(Space::Notice, number), [head, operands].concat())
                }
                Sent::Victim(job) => {
                    let options = Options { truncates: job & 64 != 0, ..Options::default() };
                    let parts = [Part { key: 9, offset: 0, bytes: 8 }];
                    match job % 7 {
                        4 => {
                            let memory = Memory::from(vec![0; 8]);
                            operations.extend(victim.start_get(bad, &parts, memory, options));
                        }
                        5 => {
                            let memory = Memory::from(vec![0; 8]);
                            operations.extend(victim.start_put(bad, &parts, memory, options));
                        }
                        0 => {
                            let memory = Memory::from(vec![1; 200]);
                            operations.extend(victim.start_send(bad, 1.into(), memory, options));
                        }
                        1 => {
                            let selector = Selector::any().from(bad);
                            let memory = Memory::from(vec![0; usize::from(job)]);
                            operations.extend(victim.start_receive(selector, memory, options));
                        }
                        2 => {
                            let mut target = victim.new_message();
                            let selector = Selector::any().from(bad);
                            let mut caller = Caller::new(selector, target.as_target());
                            let _ = victim.receive_now(&mut caller).unwrap();
                        }
                        3 => {
                            if let Some(Ok(matched)) = victim.claim(&Selector::any().from(bad)) {
                                victim.give_back(&matched);
                            }
                        }
                        _ => {
                            victim.relieve();
                            if let Some(operation) = operations.pop() {
                                let _ = victim.cancel(operation);
                            }
                        }
                    }
                    victim.progress(None).unwrap();
                    continue;
                }
            };
            let mut done = 0;
            for _ in 0..40 {
                if hostile.try_send(0, &envelope, &&bytes[..], &mut done).unwrap() {
                    break;
                }
                victim.progress(None).unwrap();
            }
            victim.progress(None).unwrap();
        }
        let mut found = [0; 64];
        prop_assert!(memories[1].get(0, &mut found));
        prop_assert_eq!(found, [7; 64], "it may only be read");
        // Another peer's message comes whole.
        let message = vec![9; 500];
        honest.start_send(to_victim, 77.into(), message.clone().into(), Options::default()).unwrap();
        let from = victim.peer_at(2).unwrap();
        let mut target = victim.new_message();
        let mut found = None;
        for _ in 0..4000 {
            honest.progress(None).unwrap();
            let selector = Selector::tag(77).from(from);
            let mut caller = Caller::new(selector, target.as_target());
            if let Some(end) = victim.receive_now(&mut caller).unwrap() {
                found = Some(end.unwrap());
                break;
            }
        }
        prop_assert_eq!(target.finish(found.expect("it comes")).into_vec(), message);
    }
}
