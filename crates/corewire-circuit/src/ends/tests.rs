use super::*;

/// Frames on their way.
#[derive(Default)]
struct Pipe(VecDeque<(Label, Hop, Vec<u8>)>, usize);

impl Lane for Pipe {
    fn frame(&mut self, label: Label, hop: Hop, payload: &[u8]) -> bool {
        if self.0.len() >= self.1 {
            return false;
        }
        self.0.push_back((label, hop, payload.to_vec()));
        true
    }
}

fn joined() -> ([Ends; 2], [u32; 2]) {
    let (mut client, mut service) = (Ends::default(), Ends::default());
    let at_client = client.open(1 << 30, 1 << 20).unwrap();
    let (label, credit) = client.greeting(at_client);
    let at_service = service.opened(2 << 30, label, credit, 1 << 20).unwrap();
    let (label, credit) = service.greeting(at_service);
    client.accepted(at_client, label, credit);
    ([client, service], [at_client, at_service])
}

fn deliver(ends: &mut Ends, pipe: &mut Pipe) -> Vec<(Head, Vec<u8>)> {
    let mut came = Vec::new();
    while let Some((label, hop, payload)) = pipe.0.pop_front() {
        match ends.frame(label, hop, &payload).unwrap() {
            Arrival::Short(_, head, bytes) => came.push((head, bytes.to_vec())),
            Arrival::Long(_, head, bytes) => came.push((head, bytes)),
            _ => {}
        }
    }
    came
}

#[test]
fn messages_of_any_length_arrive_in_order() {
    let ([mut client, mut service], [index, back]) = joined();
    let (mut down, mut up) = (Pipe(VecDeque::new(), 7), Pipe(VecDeque::new(), 7));
    let mut due = Vec::new();
    for length in [0_usize, 1, 40, 41, 4000, 4080, 4081, 100_000] {
        for token in [0, 7] {
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            let head = Head { ordinal: 3, token, status: None, capabilities: 0 };
            client.queue(index, head, bytes.clone());
            due.push((head, bytes));
        }
    }
    let mut came = Vec::new();
    for _ in 0..1000 {
        client.flush(&mut down, |_| {});
        came.extend(deliver(&mut service, &mut down));
        service.flush(&mut up, |_| {});
        deliver(&mut client, &mut up);
    }
    assert!(came == due);
    assert_eq!(service.delivered_count(back), 16);
    assert!(client.is_all_sent(index));
}

#[test]
fn the_usual_way_of_a_message_needs_one_line_of_memory() {
    assert_eq!(size_of::<Option<Circuit>>(), 64);
}

#[test]
fn what_is_not_taken_is_not_granted() {
    let ([mut client, mut service], [index, back]) = joined();
    let mut down = Pipe(VecDeque::new(), usize::MAX);
    let head = Head { ordinal: 1, ..Head::default() };
    let mut count = 0;
    for _ in 0..10_000 {
        if client.try_send(index, head, b"hello", &mut down) {
            count += 1;
        }
        for _ in deliver(&mut service, &mut down) {
            service.store(back, 1);
        }
        let mut up = Pipe(VecDeque::new(), usize::MAX);
        service.flush(&mut up, |_| {});
        deliver(&mut client, &mut up);
    }
    assert_eq!(count, WINDOW_LINES_MAX);
    service.release(back, WINDOW_LINES_MAX);
    let mut up = Pipe(VecDeque::new(), usize::MAX);
    service.flush(&mut up, |_| {});
    deliver(&mut client, &mut up);
    assert!(client.try_send(index, head, b"hello", &mut down));
}

#[test]
fn credit_that_was_due_before_the_acceptance_is_granted_after_it() {
    let (mut client, mut service) = (Ends::default(), Ends::default());
    let index = client.open(1 << 30, 1 << 20).unwrap();
    let (label, credit) = client.greeting(index);
    let back = service.opened(2 << 30, label, credit, 1 << 20).unwrap();
    let (mut down, mut up) = (Pipe(VecDeque::new(), usize::MAX), Pipe(VecDeque::new(), usize::MAX));
    service.queue(back, Head { ordinal: 1, ..Head::default() }, vec![7; 100_000]);
    service.flush(&mut down, |_| {});
    assert!(deliver(&mut client, &mut down).is_empty());
    client.flush(&mut up, |_| {});
    let (label, credit) = service.greeting(back);
    client.accepted(index, label, credit);
    let mut came = Vec::new();
    for _ in 0..100 {
        client.flush(&mut up, |_| {});
        deliver(&mut service, &mut up);
        service.flush(&mut down, |_| {});
        came.extend(deliver(&mut client, &mut down));
    }
    assert_eq!(came.len(), 1);
}

#[test]
fn an_end_waits_for_what_was_sent_before() {
    let ([mut client, mut service], [index, back]) = joined();
    let mut down = Pipe(VecDeque::new(), usize::MAX);
    client.try_send(index, Head { ordinal: 1, ..Head::default() }, b"last", &mut down);
    let reset = client.close(index, End::Closed, "closed").unwrap();
    // The packet overtakes the frame.
    assert_eq!(service.reset(reset), None);
    assert_eq!(service.ended(back), None);
    let (label, hop, payload) = down.0.pop_front().unwrap();
    assert!(matches!(service.frame(label, hop, &payload), Ok(Arrival::Short(..))));
    assert_eq!(service.ended(back).unwrap().end, End::Closed);
    assert_eq!(service.close(back, End::Closed, ""), None);
    assert_eq!(service.count(), 0);
}

#[test]
fn a_message_that_is_too_long_ends_its_circuit() {
    let ([mut client, mut service], [index, back]) = joined();
    let mut down = Pipe(VecDeque::new(), usize::MAX);
    service.set_bytes_max(back, 10);
    client.queue(index, Head::default(), vec![0; 11]);
    client.flush(&mut down, |_| {});
    let (label, hop, payload) = down.0.pop_front().unwrap();
    let wrong = service.frame(label, hop, &payload).unwrap_err();
    assert_eq!(wrong, ProtocolError::Peer { index: back, what: TOO_LONG });
}
