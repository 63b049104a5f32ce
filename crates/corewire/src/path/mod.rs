//! The data path, read top to bottom: [`send`] and [`room`], then [`receive`]; [`batch`] for several messages at a
//! time; [`held`] for messages that outlive a call; [`snapshot`] for messages that may be overwritten while they are
//! read, and [`values`] for values of these; [`shared`] for several senders. [`window`] is memory that several processes use.
//!
//! This module waits and provides the public types. The ring itself is `corewire_ring::broadcast`.

pub(crate) mod batch;
mod common;
pub(crate) mod endpoint;
pub(crate) mod held;
pub(crate) mod receive;
mod room;
pub(crate) mod send;
pub(crate) mod shared;
pub(crate) mod snapshot;
mod values;
pub(crate) mod wait_set;
pub(crate) mod window;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corewire_os::processor;

    use crate::Domain;

    // Keeps P257.
    #[test]
    fn a_run_ends_where_no_message_is_found() {
        let directory = std::env::temp_dir().join(format!("corewire-run-{}", std::process::id()));
        let domain = Domain::open_at(&directory).unwrap();
        let mut sender = domain.sender("run").create().unwrap();
        let mut receiver = domain.receiver("run").join().unwrap();
        sender.wait_for_receivers(1).unwrap();
        let mut run = |count: usize, looks: bool| {
            for _ in 0..count {
                sender.send(b"message").unwrap();
                receiver.receive().unwrap();
                // What is sent after this belongs to another run.
                assert!(!looks || receiver.try_receive().unwrap().is_none());
            }
            receiver.untyped.ring.end_run(0)
        };
        assert_eq!([run(1, false), run(50, false), run(50, false)], [0; 3], "too few in a row");
        assert!(run(200, false) > 0, "200 in a row");
        assert_eq!(run(200, true), 0, "one by one");
        sender.send(b"message").unwrap();
        let mut batch = receiver.receive_batch(1).unwrap();
        for _ in 0..200 {
            assert_eq!(batch.receive(1).unwrap(), 0, "nothing more");
            sender.send(b"message").unwrap();
            assert_eq!(batch.receive(1).unwrap(), 1);
        }
        drop(batch);
        assert_eq!(receiver.untyped.ring.end_run(0), 0, "one by one in a batch");
        drop((receiver, sender));

        // A sender of another processor gets a head start, and only after a run.
        let [one, other, ..] = processor::allowed().unwrap()[..] else { return };
        let mut sender = domain.sender("ahead").create().unwrap();
        let mut receiver = domain.receiver("ahead").join().unwrap();
        sender.wait_for_receivers(1).unwrap();
        let sending = std::thread::spawn(move || {
            processor::pin_to(one).unwrap();
            (0..1000).for_each(|_| sender.send(b"message").unwrap());
            sender
        });
        let sender = sending.join().unwrap();
        processor::pin_to(other).unwrap();
        (0..1000).for_each(|_| drop(receiver.try_receive().unwrap().unwrap()));
        assert!(!receiver.untyped.poller.has_let_ahead());
        assert!(receiver.receive_timeout(Duration::from_millis(1)).unwrap().is_none());
        assert!(receiver.untyped.poller.has_let_ahead());
        drop((receiver, sender, domain));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
