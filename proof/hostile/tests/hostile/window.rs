//! An owner of a window that answers anything to a process that attaches. That one gets an error, or a
//! window that can be used safely; nothing of the attempt is left.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use corewire::{AttachError, Domain, Window, WindowLocking, WindowRights};
use corewire_hostile::Random;
use corewire_layout::frame::{Frame, WindowFacts};
use corewire_layout::name::{ChannelName, NameKind, NameRecord};
use corewire_layout::window::{
    PARTICIPANT_TENURE, PARTICIPANTS_MAX, Tenure, book_bytes, participant_offset,
};
use corewire_os::directory::{Claim, Role, RuntimeDirectory};
use corewire_os::event::wait_readable;
use corewire_os::memory::{MemoryOptions, Segment};
use corewire_os::process;
use corewire_os::socket::Listener;
use corewire_ring::region::Region;
use rustix::fs::SealFlags;

use crate::wire::{Census, Directory, Live, Raw, alone, memfd, odd_descriptors};

const NAME: &str = "trap";
const ROWS: u32 = 4;
const BYTES: u64 = 8192;

fn name() -> ChannelName {
    ChannelName::new(NAME).unwrap()
}

/// An owner that holds a window's name and answers by hand.
struct Owner {
    listener: Listener,
    _directory: RuntimeDirectory,
    _claim: Claim,
    data: Segment,
    book: Segment,
    words: Region,
}

impl Owner {
    fn new(directory: &Directory) -> Self {
        let directory = RuntimeDirectory::open(&directory.0, Role::Owner).unwrap();
        let (listener, socket) = directory.listen().unwrap();
        let claim = directory.claim(&name()).unwrap();
        claim.write(NameRecord { kind: NameKind::Window, socket, incarnation: 5 }).unwrap();
        let options = MemoryOptions::default();
        let (data, _) = Segment::create_window(BYTES, true, options).unwrap();
        let (book, words) = Segment::create_window(book_bytes(ROWS), true, options).unwrap();
        Self { listener, _directory: directory, _claim: claim, data, book, words }
    }

    /// Attaches while this owner gives `answer` with `descriptors`.
    fn attach(
        &self,
        domain: &Domain,
        rights: WindowRights,
        answer: &Frame,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Window, AttachError> {
        thread::scope(|scope| {
            let answering = scope.spawn(|| {
                wait_readable(&[self.listener.as_fd()], None).unwrap();
                let socket = self.listener.accept().unwrap();
                rustix::io::ioctl_fionbio(&socket, false).unwrap();
                let raw = Raw(socket.into_fd());
                assert!(matches!(raw.hear(), Some((Frame::Attach { .. }, _))));
                raw.say(answer, descriptors);
                raw
            });
            let attached = domain.attach_window(NAME, rights);
            let mut raw = Some(answering.join().unwrap());
            attached.inspect(|_| drop(raw.take()))
        })
    }
}

fn facts() -> WindowFacts {
    WindowFacts {
        bytes: BYTES,
        address: 1 << 30,
        rights: WindowRights::ATOMIC,
        participants_max: ROWS,
    }
}

fn attached(window: WindowFacts, row: Option<u32>, generation: u32) -> Frame {
    Frame::Attached { window, row, generation, incarnation: 5 }
}

fn scene(test: &str) -> (Directory, Live, Owner, Census) {
    let directory = Directory::new(test);
    let live = Live::new(&directory);
    let owner = Owner::new(&directory);
    let before = Census::at_rest();
    (directory, live, owner, before)
}

/// Does everything that a participant can, without waiting longer than a moment: all of it returns.
fn use_it(mut window: Window) {
    const MOMENT: Duration = Duration::from_millis(1);
    let last = window.bytes() - 8;
    for offset in [0, 8, last] {
        let _ = window.put(offset, &[1; 8]);
        let _ = window.get(offset, &mut [0; 8]);
        let _ = window.at::<u64>(offset).map(|word| word.load());
    }
    for offset in [last + 1, 1 << 40, u64::MAX - 7, u64::MAX] {
        assert!(window.put(offset, &[1; 8]).is_err());
        assert!(window.get(offset, &mut [0; 8]).is_err());
    }
    for address in [0, facts().address - 1, facts().address + window.bytes(), u64::MAX] {
        let _ = window.offset_of(address).map(|offset| window.load::<u32>(offset));
    }
    let _ = window.try_lock(WindowLocking::Exclusive).map(drop);
    let _ = window.lock_timeout(WindowLocking::Shared, MOMENT).map(drop);
    let _ = window.fence_timeout(2, MOMENT);
    let _ = window.start_timeout(MOMENT);
    let _ = window.complete();
    let _ = window.count(0, 1);
    let _ = window.wait_counter_timeout(0, u64::MAX, MOMENT);
    let _ = window.participants();
}

// Keeps P246.
#[test]
fn an_impossible_answer_is_an_error() {
    let _alone = alone();
    let (_directory, mut live, owner, before) = scene("window-answer");
    let life = process::own_life().unwrap();
    let domain = live.domain.clone();
    let all = [owner.data.as_fd(), owner.book.as_fd(), life.as_fd()];
    let ask = |answer: &Frame, descriptors: &[BorrowedFd<'_>]| {
        owner.attach(&domain, WindowRights::ATOMIC, answer, descriptors)
    };
    use_it(ask(&attached(facts(), Some(1), 1), &all).unwrap());
    // It is free to choose these; they do no harm. Without its process' descriptor the kernel finds the process.
    for generation in [0, 1, 7, u32::MAX] {
        use_it(ask(&attached(facts(), Some(ROWS - 1), generation), &all).unwrap());
        use_it(ask(&attached(facts(), Some(0), generation), &all[..2]).unwrap());
    }
    for address in [0, u64::MAX, u64::MAX - BYTES] {
        let facts = WindowFacts { address, ..facts() };
        use_it(ask(&attached(facts, Some(1), 1), &all).unwrap());
    }
    let refused = |answer: &Frame, descriptors: &[BorrowedFd<'_>]| match ask(answer, descriptors) {
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains(NAME), "{text}");
        }
        Ok(_) => panic!("{answer:?} is taken"),
    };
    for row in [ROWS, ROWS + 1, 1023, 1 << 20, u32::MAX / 64, u32::MAX - 1] {
        refused(&attached(facts(), Some(row), 1), &all);
    }
    for rights in [WindowRights::READ, WindowRights::WRITE, WindowRights::NONE] {
        refused(&attached(WindowFacts { rights, ..facts() }, Some(1), 1), &all);
    }
    for bytes in [0, BYTES + 1, 1 << 40, 1 << 62, u64::MAX] {
        refused(&attached(WindowFacts { bytes, ..facts() }, Some(1), 1), &all);
    }
    for participants_max in [0, 1 << 10, PARTICIPANTS_MAX, PARTICIPANTS_MAX + 1, u32::MAX] {
        let facts = WindowFacts { participants_max, ..facts() };
        refused(&attached(facts, Some(0), 1), &all);
    }
    // This process is no guest.
    refused(&attached(facts(), None, 0), &all[..1]);
    for count in 0..2 {
        refused(&attached(facts(), Some(1), 1), &all[..count]);
    }
    for frame in [Frame::Leave, Frame::Done, Frame::Linked, Frame::ObservedWindow(facts())] {
        refused(&frame, &all);
    }
    live.send();
    drop(life);
    before.is_back();
    live.finish();
}

// Keeps P246.
#[test]
fn wrong_descriptors_are_an_error() {
    let _alone = alone();
    let (_directory, mut live, owner, before) = scene("window-odd");
    let life = process::own_life().unwrap();
    let domain = live.domain.clone();
    let ask = |descriptors: &[BorrowedFd<'_>]| {
        let answer = attached(facts(), Some(1), 1);
        owner.attach(&domain, WindowRights::ATOMIC, &answer, descriptors)
    };
    for (what, odd) in odd_descriptors() {
        let is_large = rustix::fs::fstat(&odd).unwrap().st_size >= 1 << 45;
        let as_data = ask(&[odd.as_fd(), owner.book.as_fd(), life.as_fd()]);
        let as_book = ask(&[owner.data.as_fd(), odd.as_fd(), life.as_fd()]);
        assert!(as_data.is_err() || is_large, "{what} is taken for data");
        assert!(as_book.is_err(), "{what} is taken for a book");
        // What is no process is not watched; the kernel says who the owner is.
        let as_life = ask(&[owner.data.as_fd(), owner.book.as_fd(), odd.as_fd()]);
        let _ = as_life.map(use_it);
        live.send();
    }
    // Sealed against all writing, so it cannot be mapped writable.
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    let stiff = memfd(BYTES.max(book_bytes(ROWS)), seals);
    assert!(ask(&[stiff.as_fd(), owner.book.as_fd(), life.as_fd()]).is_err());
    assert!(ask(&[owner.data.as_fd(), stiff.as_fd(), life.as_fd()]).is_err());
    drop((stiff, life));
    before.is_back();
    live.finish();
}

/// The book's words are what other participants write: whatever they hold, nobody is harmed or waits for ever.
// Keeps P246.
#[test]
fn any_words_in_a_book_do_no_harm() {
    let _alone = alone();
    let (_directory, live, owner, before) = scene("window-words");
    let life = process::own_life().unwrap();
    let domain = live.domain.clone();
    let all = [owner.data.as_fd(), owner.book.as_fd(), life.as_fd()];
    let mut random = Random::from_environment();
    let bytes = usize::try_from(book_bytes(ROWS)).unwrap();
    for round in 0..200 {
        let mut words: Vec<u8> = match round {
            0 => vec![0xff; bytes],
            1 => vec![0; bytes],
            // Among small numbers there are more that mean something.
            _ if round % 2 == 0 => (0..bytes / 8)
                .flat_map(|_| ((random.number() % 3) | ((random.number() & 1) << 32)).to_le_bytes())
                .collect(),
            _ => (0..bytes / 8).flat_map(|_| random.number().to_le_bytes()).collect(),
        };
        let own = participant_offset(1) + PARTICIPANT_TENURE;
        let tenure = Tenure { generation: 1, is_present: true };
        words[own..own + 8].copy_from_slice(&tenure.to_word().to_le_bytes());
        owner.words.copy_in(0, &words);
        let answer = attached(facts(), Some(1), 1);
        let window = owner.attach(&domain, WindowRights::ATOMIC, &answer, &all);
        use_it(window.unwrap());
    }
    drop(life);
    before.is_back();
    live.finish();
}
