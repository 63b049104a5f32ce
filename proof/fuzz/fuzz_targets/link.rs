//! Another host that sends any frames: what it lets this side send, and what arrives of it, has its bounds, however the bytes are
//! split, and also if they are looked over before any of them is taken.

#![no_main]

use corewire_layout::name::ChannelName;
use corewire_layout::net::{FrameKind, Header, Hello};
use corewire_net::link::{CREDIT_BYTES_MAX, Head, Link};
use libfuzzer_sys::fuzz_target;

const CREDIT_BYTES: u32 = 256 << 10;

fn hello() -> Option<Hello> {
    let (name, host) = (ChannelName::new("x").ok()?, ChannelName::new("a").ok()?);
    let (connection, last) = (1, 0);
    Some(Hello { name, incarnation: 1, host, credit_bytes: CREDIT_BYTES, silence_ms: 10_000, connection, last })
}

/// Takes all that it can. Returns how many bytes of frames were taken, and whether the other side was cut off.
fn take(link: &mut Link, arrived: &mut Vec<u8>) -> (u64, bool) {
    let mut taken = 0;
    loop {
        let Ok((used, head)) = link.advance(arrived) else { return (taken, true) };
        arrived.drain(..used);
        match head {
            Head::More | Head::Left => return (taken, false),
            Head::Word(_) => {}
            Head::Frame(header, before) => {
                let left = header.payload_bytes() - before;
                let count = left.min(arrived.len() as u64);
                arrived.drain(..count as usize);
                taken += count;
                if link.pass(count).is_err() {
                    return (taken, true);
                }
                if count < left {
                    return (taken, false);
                }
            }
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(hello) = hello() else { return };
    let Some((&[split, sent], bytes)) = bytes.split_first_chunk() else { return };
    let mut links = [(); 3].map(|()| Link::new(&hello, &hello));
    for link in &mut links {
        for number in 0..u64::from(sent) {
            assert!(link.begin(&Header::new(FrameKind::Tagged, number, 0)).is_some());
        }
    }
    let [whole, parts, ahead] = &mut links;
    let found = take(whole, &mut bytes.to_vec());
    assert!(found.0 <= u64::from(CREDIT_BYTES));
    assert!(whole.room() <= CREDIT_BYTES_MAX);

    // In parts.
    let (mut arrived, mut in_parts) = (Vec::new(), (0, false));
    for part in bytes.chunks(usize::from(split).max(1)) {
        arrived.extend_from_slice(part);
        let (taken, is_cut_off) = take(parts, &mut arrived);
        in_parts = (in_parts.0 + taken, is_cut_off);
        if is_cut_off {
            break;
        }
    }
    assert_eq!(in_parts.1, found.1);
    if !found.1 {
        assert_eq!((in_parts.0, parts.room(), parts.traffic()), (found.0, whole.room(), whole.traffic()));
    }

    // Looked over before. What is wrong may be found earlier.
    let mut arrived = Vec::new();
    for part in bytes.chunks(usize::from(split).max(1)) {
        arrived.extend_from_slice(part);
        if ahead.foresee(&mut arrived, 0).is_err() {
            assert!(found.1);
            return;
        }
    }
    assert_eq!(take(ahead, &mut arrived).1, found.1);
    if !found.1 {
        assert_eq!((ahead.room(), ahead.traffic()), (whole.room(), whole.traffic()));
    }
});
