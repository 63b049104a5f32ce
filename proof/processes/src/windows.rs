//! Participants of windows: one that adds under the lock until it is killed, one that holds the lock, one that tries to
//! write what it may only read, one that forks, and one of several that run a program at random.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::ptr;
use std::time::Duration;

use corewire::{AttachError, Domain, Window, WindowError, WindowLocking, WindowRights};

use crate::{Options, Outcome};

/// Adds to two numbers under the lock, and counts at its own place, number `count`, how often a call for the lock has
/// returned with what it did. Never ends.
pub(crate) fn add(domain: &Domain, options: &Options) -> Outcome {
    let mut window = domain.attach_window(&options.channel, WindowRights::ATOMIC)?;
    window.set_wait(options.wait);
    println!("attached");
    io::stdout().flush()?;
    let mut returned = 0u64;
    loop {
        let held = window.lock(WindowLocking::Exclusive)?;
        for offset in [0, 8] {
            let sum: u64 = held.load(offset)?;
            held.put(offset, &(sum + 1).to_le_bytes())?;
        }
        drop(held);
        returned += 1;
        window.at::<u64>(8 * (2 + options.count))?.store(returned);
    }
}

/// Has a window until its standard input ends, which others can only read (with `shared`).
pub(crate) fn own(domain: &Domain, options: &Options) -> Outcome {
    let rights = if options.is_shared { WindowRights::READ } else { WindowRights::ATOMIC };
    let window = domain.window(&options.channel, 4096).rights_of_others(rights).create()?;
    println!("created");
    io::stdout().flush()?;
    io::stdin().read_line(&mut String::new())?;
    drop(window);
    println!("closed");
    Ok(())
}

/// With `count`, enters a fence of two; then holds the lock, alone or as a reader (with `shared`), until its standard input ends.
pub(crate) fn hold(domain: &Domain, options: &Options) -> Outcome {
    let mut window = domain.attach_window(&options.channel, WindowRights::ATOMIC)?;
    println!("attached");
    io::stdout().flush()?;
    if options.count > 0 {
        window.fence(2)?;
    }
    let kind = if options.is_shared { WindowLocking::Shared } else { WindowLocking::Exclusive };
    let held = window.lock(kind)?;
    println!("locked");
    io::stdout().flush()?;
    io::stdin().read_line(&mut String::new())?;
    drop(held);
    println!("unlocked");
    Ok(())
}

/// Shuts down its connections while it has the lock; then gives the lock back, and asks for it again.
pub(crate) fn close(domain: &Domain, options: &Options) -> Outcome {
    let mut window = domain.attach_window(&options.channel, WindowRights::ATOMIC)?;
    let held = window.lock(WindowLocking::Exclusive)?;
    for entry in fs::read_dir("/proc/self/fd")? {
        let number: RawFd = entry?.file_name().to_string_lossy().parse()?;
        // SAFETY: integer arguments only; what is no socket is left as it is.
        unsafe { libc::shutdown(number, libc::SHUT_RDWR) };
    }
    println!("closed");
    io::stdout().flush()?;
    io::stdin().read_line(&mut String::new())?;
    drop(held);
    let error = window.lock(WindowLocking::Exclusive).err().ok_or("it still has a part")?;
    println!("then {error}");
    io::stdout().flush()?;
    Ok(())
}

/// The descriptors and the read-only maps of memory in this process.
fn mapped() -> Result<(Vec<RawFd>, Vec<usize>), Box<dyn std::error::Error>> {
    let mut descriptors = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let is_memory = |target: std::path::PathBuf| target.to_string_lossy().contains("memfd:");
        if fs::read_link(entry.path()).is_ok_and(is_memory) {
            descriptors.push(entry.file_name().to_string_lossy().parse()?);
        }
    }
    let maps = fs::read_to_string("/proc/self/maps")?;
    let read_only = maps.lines().filter(|line| line.contains("memfd:") && line.contains(" r--s "));
    let begins = read_only.filter_map(|line| line.split('-').next());
    Ok((descriptors, begins.map(|it| usize::from_str_radix(it, 16)).collect::<Result<_, _>>()?))
}

/// Attaches to read, and tries to write by every means: prints what came of it. The last one ends the process.
pub(crate) fn intrude(domain: &Domain, options: &Options) -> Outcome {
    let window = domain.attach_window(&options.channel, WindowRights::READ)?;
    let refused = |what: &str, is_refused: bool| {
        let how = if is_refused { "refused" } else { "DONE" };
        println!("{how} {what}");
    };
    refused("by the library", matches!(window.put(0, b"x"), Err(WindowError::Rights { .. })));
    let (descriptors, begins) = mapped()?;
    let bytes = usize::try_from(window.bytes())?;
    // The book can be written by all participants; what lies in the data's size is its descriptor.
    let data: Vec<RawFd> = descriptors
        .into_iter()
        .filter(|number| {
            // SAFETY: a descriptor of this process that stays open.
            let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(*number) };
            rustix::fs::fstat(descriptor).is_ok_and(|it| it.st_size == 4096)
        })
        .collect();
    let writes = |number: &RawFd| {
        // SAFETY: one byte of a constant.
        unsafe { libc::pwrite(*number, b"x".as_ptr().cast(), 1, 0) == 1 }
    };
    refused("by its descriptor", !data.iter().any(writes));
    let maps = |number: &RawFd| {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at =
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, *number, 0) };
        at != libc::MAP_FAILED
    };
    refused("by a map of its descriptor", !data.iter().any(maps));
    let &[begin] = &begins[..] else { return Err(format!("{} maps", begins.len()).into()) };
    // SAFETY: integer arguments only; if it succeeds, the test fails.
    let protected = unsafe {
        libc::mprotect(
            ptr::without_provenance_mut(begin),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
        )
    };
    refused("to its map", protected != 0);
    let again = |number: &RawFd| {
        let path = format!("/proc/self/fd/{number}");
        fs::File::options().read(true).write(true).open(path)
    };
    refused("to open it again", !data.iter().any(|number| again(number).is_ok()));
    for number in &data {
        let owned = fs::Permissions::from_mode(0o600);
        let _ = fs::set_permissions(format!("/proc/self/fd/{number}"), owned);
    }
    let writable = |number: &RawFd| again(number).is_ok_and(|file| maps(&file.as_raw_fd()));
    refused("to open it in another mode and map it", !data.iter().any(writable));
    println!("stores");
    io::stdout().flush()?;
    // SAFETY: mapped, and read-only: the kernel ends this process.
    unsafe { ptr::with_exposed_provenance_mut::<u8>(begin).write_volatile(1) };
    println!("DONE a store");
    Ok(())
}

/// As a guest attaches to write, then to read; then calls what guests have no part in, and reads until the owner is gone.
/// Prints each error.
pub(crate) fn visit(domain: &Domain, options: &Options) -> Outcome {
    let Err(error) = domain.attach_window(&options.channel, WindowRights::ATOMIC) else {
        return Err("a guest may write".into());
    };
    println!("attached {error}");
    if !matches!(error, AttachError::Rights { .. }) {
        return Ok(());
    }
    let mut window = domain.attach_window(&options.channel, WindowRights::READ)?;
    let mut bytes = [1; 4];
    window.get(0, &mut bytes)?;
    println!("read {bytes:?}");
    let errors = [
        window.try_lock(WindowLocking::Shared).map(drop).err(),
        window.fence_timeout(1, Duration::ZERO).err(),
        window.start_timeout(Duration::ZERO).err(),
        window.counter(0).err(),
        window.wait_counter_timeout(0, 0, Duration::ZERO).err(),
    ];
    for error in errors {
        println!("refused {}", error.ok_or("a guest has a part")?);
    }
    io::stdout().flush()?;
    loop {
        if let Err(error) = window.get(0, &mut bytes) {
            println!("then {error}");
            return Ok(());
        }
        std::thread::yield_now();
    }
}

/// Forks with a window: in the child its calls fail, and a store to a number that was located before ends the child.
pub(crate) fn fork(domain: &Domain, options: &Options) -> Outcome {
    let owner = domain.window(&options.channel, 4096).create()?;
    let mut other = domain.attach_window(&options.channel, WindowRights::ATOMIC)?;
    for window in [&owner, &other] {
        let word = window.at::<u64>(0)?;
        let in_child = |is_right: &dyn Fn() -> bool| -> Result<i32, io::Error> {
            // SAFETY: the child uses only what corewire allows after a fork, and ends with `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let is_right = is_right();
                // SAFETY: ends the child without running its parent's exit handlers.
                unsafe { libc::_exit(i32::from(!is_right)) };
            }
            let mut status = 0;
            // SAFETY: waits for our own child.
            if unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
                return Err(io::Error::last_os_error());
            }
            Ok(status)
        };
        let fails = || {
            window.put(0, b"x") == Err(WindowError::Forked)
                && window.get(0, &mut [0; 8]) == Err(WindowError::Forked)
                && window.at::<u64>(0).is_err_and(|error| error == WindowError::Forked)
                && window.load::<u64>(0) == Err(WindowError::Forked)
                && window.counter(0) == Err(WindowError::Forked)
        };
        let status = in_child(&fails)?;
        if status != 0 {
            return Err(format!("a call worked in the child: {status:#x}").into());
        }
        let stores = || {
            word.store(1);
            true
        };
        let status = in_child(&stores)?;
        if !libc::WIFSIGNALED(status) || libc::WTERMSIG(status) != libc::SIGSEGV {
            return Err(format!("a store in the child: {status:#x}").into());
        }
        if word.load() != 0 {
            return Err("the child has written to the window".into());
        }
    }
    // The parent's window is undisturbed.
    drop(other.lock(WindowLocking::Exclusive)?);
    println!("forked well");
    Ok(())
}

/// A number from a sequence that all who begin with the same seed share.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ bits >> 31) % limit
    }

    /// Parts of the data of `bytes` bytes in all, which do not overlap.
    fn parts(&mut self, bytes: u64) -> Vec<(u64, u64)> {
        let (mut parts, mut left) = (Vec::new(), bytes);
        let mut at = DATA + self.below(64);
        while left > 0 {
            let length = (1 + self.below(300)).min(left);
            if at + length > DATA + DATA_BYTES {
                break;
            }
            parts.push((at, length));
            left -= length;
            at += length + self.below(40);
            if self.below(5) == 0 {
                parts.push((at.min(DATA), 0));
            }
        }
        parts
    }
}

/// Whose turn it is, and then the data.
const DATA: u64 = 64;
const DATA_BYTES: u64 = 8192;

/// Takes part in a program of `count` operations, which several processes carry out in turn. It follows all of them, on a
/// copy of the data, and carries out its own: those of `group`, of `receivers` processes.
pub(crate) fn follow(domain: &Domain, options: &Options) -> Outcome {
    let window = domain.attach_window(&options.channel, WindowRights::ATOMIC)?;
    let (own, all) = (u64::from(options.group), options.receivers as u64);
    let turn = window.at::<u64>(0)?;
    let mut expected = vec![0u8; usize::try_from(DATA + DATA_BYTES)?];
    let mut sequence = Sequence(u64::try_from(options.waiter)?);
    for number in 0..options.count {
        let is_own = sequence.below(all) == own;
        if is_own {
            while turn.load() != number {
                std::hint::spin_loop();
                if all > 2 {
                    std::thread::yield_now();
                }
            }
        }
        step(&window, &mut expected, &mut sequence, is_own)
            .map_err(|error| format!("operation {number}: {error}"))?;
        if is_own {
            turn.store(number + 1);
        }
    }
    println!("followed");
    Ok(())
}

/// The bytes of these parts.
fn gathered(expected: &[u8], parts: &[(u64, u64)]) -> Result<Vec<u8>, std::num::TryFromIntError> {
    let mut bytes = Vec::new();
    for &(at, length) in parts {
        bytes.extend(&expected[usize::try_from(at)?..usize::try_from(at + length)?]);
    }
    Ok(bytes)
}

/// Divides bytes as a list on the program's side.
fn divided<'a>(sequence: &mut Sequence, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let length = usize::try_from(1 + sequence.below(400)).unwrap_or(1).min(bytes.len());
        let (first, rest) = bytes.split_at(length);
        parts.push(first);
        bytes = rest;
    }
    parts
}

fn step(window: &Window, expected: &mut [u8], sequence: &mut Sequence, is_own: bool) -> Outcome {
    let same = |found: &[u8], due: &[u8]| {
        if found == due { Ok(()) } else { Err("other bytes than were put") }
    };
    match sequence.below(8) {
        // A put.
        0 | 1 => {
            let wanted = sequence.below(2000);
            let parts = sequence.parts(wanted);
            let bytes: u64 = parts.iter().map(|(_, length)| length).sum();
            let source: Vec<u8> =
                (0..bytes).map(|_| sequence.below(256).to_le_bytes()[0]).collect();
            let sources = divided(sequence, &source);
            if is_own {
                match parts[..] {
                    [(at, _)] => window.put(at, &source)?,
                    _ => window.put_parts(&sources, &parts)?,
                }
            }
            let mut rest = &source[..];
            for &(at, length) in &parts {
                let (first, others) = rest.split_at(usize::try_from(length)?);
                expected[usize::try_from(at)?..usize::try_from(at + length)?]
                    .copy_from_slice(first);
                rest = others;
            }
        }
        // A get.
        2..=4 => {
            let wanted = sequence.below(2000);
            let parts = sequence.parts(wanted);
            let due = gathered(expected, &parts)?;
            let shape = divided(sequence, &due);
            if is_own {
                let mut targets: Vec<Vec<u8>> = shape.iter().map(|it| vec![0; it.len()]).collect();
                let mut slices: Vec<&mut [u8]> = targets.iter_mut().map(|it| &mut it[..]).collect();
                window.get_parts(&parts, &mut slices)?;
                same(&targets.concat(), &due)?;
            }
        }
        // A change of a number.
        kind => {
            let at = DATA + 8 * sequence.below(DATA_BYTES / 8);
            let place = usize::try_from(at)?;
            let operand = sequence.below(u64::MAX) >> sequence.below(64);
            let chunk = &mut expected[place..place + 8];
            let before = u64::from_le_bytes((&*chunk).try_into()?);
            let which = sequence.below(7);
            let after = match which {
                0 => before.wrapping_add(operand),
                1 => operand,
                2 => before.min(operand),
                3 => before.max(operand),
                4 => before & operand,
                5 => before | operand,
                _ => before ^ operand,
            };
            if is_own && kind == 7 {
                // By compare-and-swap, first with a wrong guess.
                let number = window.at::<u64>(at)?;
                if number.compare_exchange(before.wrapping_add(1), 0) != Err(before)
                    || number.compare_exchange(before, after) != Ok(before)
                {
                    return Err("another number than was there".into());
                }
            } else if is_own {
                let number = window.at::<u64>(at)?;
                let found = match which {
                    0 => number.fetch_add(operand),
                    1 => number.swap(operand),
                    2 => number.fetch_min(operand),
                    3 => number.fetch_max(operand),
                    4 => number.fetch_and(operand),
                    5 => number.fetch_or(operand),
                    _ => number.fetch_xor(operand),
                };
                if found != before {
                    return Err("another number than was there".into());
                }
            }
            chunk.copy_from_slice(&after.to_le_bytes());
        }
    }
    Ok(())
}
