//! Last values: one writer, and readers that want the newest value.
//!
//! Every test here keeps P242.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use corewire::{JoinError, ReceiveError, SendError};

use crate::scratch::Scratch;

#[test]
fn a_reader_gets_the_newest_at_once_whenever_it_joins() {
    let scratch = Scratch::new("latest-newest");
    let domain = scratch.domain();
    assert!(matches!(domain.latest("config").open(), Err(JoinError::NotFound(_))));
    let mut writer = domain.latest("config").values(5).largest(3000).create().unwrap();
    let mut early = domain.latest("config").open().unwrap();
    assert_eq!(early.get().unwrap(), None);
    assert_eq!(early.number(), None);
    for number in 0..100u64 {
        let value = vec![
            number.to_le_bytes()[0];
            [8, 48, 49, 3000, 0][usize::try_from(number % 5).unwrap()]
        ];
        writer.set(&value).unwrap();
        let mut late = domain.latest("config").open().unwrap();
        assert_eq!(late.get().unwrap(), Some(&value[..]), "{number}");
        assert_eq!(late.number(), Some(number));
        // Asked again, it is the same one.
        assert_eq!(late.get().unwrap(), Some(&value[..]));
        assert_eq!(late.wait_timeout(Duration::ZERO).unwrap(), None);
        if number % 7 == 0 {
            assert_eq!(early.wait().unwrap(), value);
        }
    }
    assert_eq!((writer.count(), early.get().unwrap().map(<[u8]>::len)), (100, Some(0)));
    assert_eq!(writer.set(&[0; 3001]).unwrap_err(), SendError::TooLarge { max: 3000, asked: 3001 });
    // The end is told, and the last value stays.
    assert!(!early.has_ended());
    drop(writer);
    assert_eq!(early.wait().unwrap_err(), ReceiveError::EndOfStream);
    assert_eq!(early.wait_timeout(Duration::MAX).unwrap_err(), ReceiveError::EndOfStream);
    assert_eq!(early.get().unwrap(), Some(&[][..]));
    assert!(early.has_ended());
}

#[test]
fn a_value_is_never_torn_and_never_older_than_one_that_was_read() {
    let scratch = Scratch::new("latest-torn");
    let domain = scratch.domain();
    let updates: u64 = 200_000;
    for bytes in [8, 40, 1000, 20_000] {
        let name = format!("latest-{bytes}");
        let mut writer = domain.latest(&name).largest(bytes).values(4).create().unwrap();
        let (written, read) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut reader = domain.latest(&name).open().unwrap();
                    let mut last = None;
                    loop {
                        let floor = written.load(SeqCst);
                        let waits = last.is_none_or(|last: u64| last.is_multiple_of(3));
                        let value = match waits {
                            true => match reader.wait() {
                                Ok(value) => value,
                                Err(ReceiveError::EndOfStream) => break,
                                Err(error) => panic!("{error}"),
                            },
                            false => reader.get().unwrap().unwrap(),
                        };
                        assert_eq!(value.len(), bytes);
                        let words = value.chunks_exact(8);
                        let number = u64::from_le_bytes(value[..8].try_into().unwrap());
                        assert!(words.clone().all(|word| word == number.to_le_bytes()), "torn");
                        assert!(number >= floor, "{number} after {floor} was written");
                        assert!(last.is_none_or(|last| number >= last), "{number} after {last:?}");
                        last = Some(number);
                        read.fetch_add(1, SeqCst);
                        if number == updates {
                            break;
                        }
                    }
                    assert_eq!(last, Some(updates));
                });
            }
            while writer.readers() < 3 {
                thread::yield_now();
            }
            for number in 1..=updates {
                let value = number.to_le_bytes().repeat(bytes / 8);
                writer.set(&value).unwrap();
                written.store(number, SeqCst);
            }
        });
        assert!(read.into_inner() >= 3);
    }
}

#[test]
fn a_reader_that_waits_hears_of_the_writers_beginning_and_of_an_interruption() {
    let scratch = Scratch::new("latest-waits");
    let domain = scratch.domain();
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut reader = domain.latest("position").open_when_created().unwrap();
            let first = reader.wait().unwrap().to_vec();
            let interrupter = reader.interrupter();
            interrupter.interrupt();
            loop {
                match reader.wait() {
                    Err(ReceiveError::Interrupted) => break,
                    other => assert_eq!(other.unwrap(), b"2"),
                }
            }
            assert_eq!(reader.wait().unwrap(), b"2");
            first
        });
        let mut writer = domain.latest("position").create().unwrap();
        writer.set(b"1").unwrap();
        while !reading.is_finished() {
            writer.set(b"2").unwrap();
            thread::yield_now();
        }
        assert!(matches!(&reading.join().unwrap()[..], b"1" | b"2"));
    });
    let reader = domain.latest("nobody").open_timeout(Duration::from_millis(20));
    assert!(matches!(reader, Err(JoinError::NotCreated { .. })));
}
