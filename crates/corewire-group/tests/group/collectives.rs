//! Collective calls among threads that are members of one group each.
//!
//! Every test here keeps P208.

use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use corewire::Domain;
use corewire_group::{CollectiveError, Communicator, Group, Tiers};

const PATIENCE: Duration = Duration::from_secs(60);

/// Does a job at each of so many members, and meets all others after it.
fn with_members(test: &str, count: usize, tiers: Tiers, job: impl Fn(&mut Communicator) + Sync) {
    leaving(test, count, tiers, |mut all| {
        job(&mut all);
        all.barrier().unwrap();
    });
}

/// Does a job at each of so many members.
fn leaving(test: &str, count: usize, tiers: Tiers, job: impl Fn(Communicator) + Sync) {
    let path: PathBuf =
        std::env::temp_dir().join(format!("corewire-{test}-{count}-{}", std::process::id()));
    let domain = Domain::open_at(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                let group = Group::builder(&domain, "all").join_timeout(PATIENCE).unwrap();
                let view = group.wait_for_members(count, PATIENCE).unwrap();
                let builder = Communicator::builder(&domain, &group, &view).tiers(tiers);
                job(builder.timeout(PATIENCE).connect().unwrap());
            });
        }
    });
    let _ = std::fs::remove_dir_all(&path);
}

/// Every call, with every length that takes another way.
pub(crate) fn every_call(all: &mut Communicator) {
    let (size, rank) = (all.size(), all.rank());
    for length in [0usize, 1, 5, 1000, 20_000] {
        let own = |rank: usize| (0..length).map(move |at| (rank * 7919 + at) as u64);
        let sum: Vec<u64> =
            (0..length).map(|at| (0..size).map(|one| (one * 7919 + at) as u64).sum()).collect();

        let mut values: Vec<u64> = own(rank).collect();
        all.allreduce(&mut values, |one, other| one + other).unwrap();
        assert_eq!(values, sum);

        for root in 0..size {
            let mut values: Vec<u64> = own(rank).collect();
            all.reduce(root, &mut values, |one, other| one + other).unwrap();
            assert!(rank != root || values == sum);

            let mut values: Vec<u64> = own(rank).collect();
            all.broadcast(root, &mut values).unwrap();
            assert!(values.iter().copied().eq(own(root)));

            let part: Vec<u64> = own(rank).collect();
            let mut gathered = vec![0; if rank == root { size * length } else { 0 }];
            all.gather(root, &part, &mut gathered).unwrap();
            assert!(rank != root || gathered.into_iter().eq((0..size).flat_map(own)));
        }

        let parts: Vec<u64> = (0..size).flat_map(|to| own(rank * size + to)).collect();
        let mut received = vec![0; size * length];
        all.all_to_all(&parts, &mut received).unwrap();
        assert!(received.into_iter().eq((0..size).flat_map(|from| own(from * size + rank))));
        parts_and_prefixes(all, length);
        all.barrier().unwrap();
    }
}

/// Calls in which each member has or gets a part, or what came before it.
fn parts_and_prefixes(all: &mut Communicator, length: usize) {
    let (size, rank) = (all.size(), all.rank());
    let own = |rank: usize| (0..length).map(move |at| (rank * 7919 + at) as u64);
    let mine: Vec<u64> = own(rank).collect();

    let mut gathered = vec![0; size * length];
    all.allgather(&mine, &mut gathered).unwrap();
    assert!(gathered.into_iter().eq((0..size).flat_map(own)));

    for root in 0..size {
        let whole: Vec<u64> = match rank == root {
            true => (0..size).flat_map(|to| own(to + 3)).collect(),
            false => Vec::new(),
        };
        let mut part = vec![0; length];
        all.scatter(root, &whole, &mut part).unwrap();
        assert!(part.into_iter().eq(own(rank + 3)));
    }

    let mut values: Vec<u64> = (0..size).flat_map(|to| own(rank + to)).collect();
    let mut part = vec![0; length];
    all.reduce_scatter(&mut values, &mut part, |one, other| one + other).unwrap();
    let sum =
        (0..length).map(|at| (0..size).map(|one| ((one + rank) * 7919 + at) as u64).sum::<u64>());
    assert!(part.into_iter().eq(sum));

    let sum_until = |end: usize| -> Vec<u64> {
        (0..length).map(|at| (0..end).map(|one| (one * 7919 + at) as u64).sum()).collect()
    };
    let mut values = mine.clone();
    all.scan(&mut values, |one, other| one + other).unwrap();
    assert_eq!(values, sum_until(rank + 1));
    let mut values = mine.clone();
    all.exscan(&mut values, |one, other| one + other).unwrap();
    assert_eq!(values, if rank == 0 { mine.clone() } else { sum_until(rank) });
    // The order of the ranks counts: what comes first is that of the first member.
    let mut values = mine.clone();
    all.scan(&mut values, |lower, _| lower).unwrap();
    assert!(values.into_iter().eq(own(0)));
    let mut values = mine.clone();
    all.scan(&mut values, |_, higher| higher).unwrap();
    assert_eq!(values, mine);
    let mut values = mine;
    all.exscan(&mut values, |_, higher| higher).unwrap();
    assert!(values.into_iter().eq(own(rank.saturating_sub(1))));
}

/// Starts every call at once, in the middle of others that wait, and waits for them from the last to the first.
fn every_call_started(all: &mut Communicator, length: usize) {
    let (size, rank) = (all.size(), all.rank());
    let own = |rank: usize| (0..length).map(move |at| (rank * 7919 + at) as u64);
    let mine: Vec<u64> = own(rank).collect();
    let sum_until = |end: usize| -> Vec<u64> {
        (0..length).map(|at| (0..end).map(|one| (one * 7919 + at) as u64).sum()).collect()
    };
    let (sum, root) = (sum_until(size), size / 2);
    let is_root = rank == root;
    let mut calls = vec![
        (all.iallreduce(&mine, |one, other| one + other).unwrap(), sum.clone()),
        (all.ibroadcast(root, &mine).unwrap(), own(root).collect()),
        (
            all.ireduce(root, &mine, |one, other| one + other).unwrap(),
            if is_root { sum.clone() } else { Vec::new() },
        ),
        (all.iscan(&mine, |one, other| one + other).unwrap(), sum_until(rank + 1)),
        (all.iscan(&mine, |lower, _| lower).unwrap(), own(0).collect()),
    ];
    // Nobody waits for it, but the others need what it sends.
    drop(all.iallreduce(&mine, |one, other| one ^ other).unwrap());
    let mut values = mine.clone();
    all.allreduce(&mut values, |one, other| one + other).unwrap();
    assert_eq!(values, sum);
    let barrier = all.ibarrier().unwrap();
    let whole: Vec<u64> = (0..size).flat_map(|to| own(rank * size + to)).collect();
    calls.push((
        all.iall_to_all(&whole).unwrap(),
        (0..size).flat_map(|from| own(from * size + rank)).collect(),
    ));
    let everything: Vec<u64> = (0..size).flat_map(own).collect();
    calls.push((all.iallgather(&mine).unwrap(), everything.clone()));
    let gathered = if is_root { everything } else { Vec::new() };
    calls.push((all.igather(root, &mine).unwrap(), gathered));
    let parts: Vec<u64> =
        if is_root { (0..size).flat_map(|to| own(to + 3)).collect() } else { Vec::new() };
    calls.push((all.iscatter(root, &parts, length).unwrap(), own(rank + 3).collect()));
    let values: Vec<u64> = (0..size).flat_map(|to| own(rank + to)).collect();
    let part = (0..length).map(|at| (0..size).map(|one| ((one + rank) * 7919 + at) as u64).sum());
    calls.push((all.ireduce_scatter(&values, |one, other| one + other).unwrap(), part.collect()));
    while !all.test(&barrier).unwrap() {
        std::thread::yield_now();
    }
    all.wait(barrier).unwrap();
    for (number, (call, expected)) in calls.into_iter().enumerate().rev() {
        assert_eq!(all.wait(call).unwrap(), expected, "call {number}, {size} members");
    }
}

#[test]
fn calls_that_were_started_have_the_results_of_those_that_wait() {
    for count in [1, 2, 3, 5, 8] {
        with_members("started", count, Tiers::Auto, |all| {
            for length in [0, 1, 1000, 20_000] {
                every_call_started(all, length);
            }
            assert_eq!(
                all.ibroadcast(99, &[1]).unwrap_err(),
                CollectiveError::NoSuchRank { asked: 99, size: count }
            );
        });
    }
}

#[test]
fn a_communicator_is_split_by_color_and_ordered_by_key() {
    with_members("split", 5, Tiers::Auto, |all| {
        let rank = all.rank();
        // Rank 4 gets none; the others have the opposite order.
        let color = (rank < 4).then_some(u32::from(rank % 2 == 1));
        let key = -i32::try_from(rank).unwrap();
        let half = all.split(color, key).unwrap();
        assert_eq!(half.is_none(), rank == 4);
        if let Some(mut half) = half {
            assert_eq!((half.size(), half.rank()), (2, usize::from(rank < 2)));
            let mut ranks = [0; 2];
            half.allgather(&[rank as u64], &mut ranks).unwrap();
            assert_eq!(ranks, [rank as u64 % 2 + 2, rank as u64 % 2]);
            // Calls of one are no calls of the other.
            let started = half.iallreduce(&[1u32], |one, other| one + other).unwrap();
            assert_eq!(all.test(&started).unwrap_err(), CollectiveError::Foreign);
            assert_eq!(half.wait(started).unwrap(), [2]);
        }
        let mut twins = [all.duplicate().unwrap(), all.duplicate().unwrap()];
        for twin in &mut twins {
            assert_eq!((twin.size(), twin.rank()), (5, rank));
            every_call(twin);
        }
        every_call_started(all, 10);
    });
}

// Keeps P224.
/// Roles change while a member looks at the view: a stop of 200 ms is enough.
#[test]
fn members_of_views_that_differ_in_roles_alone_make_one_communicator() {
    let path = std::env::temp_dir().join(format!("corewire-roles-{}", std::process::id()));
    let domain = Domain::open_at(&path).unwrap();
    let join = || Group::builder(&domain, "all").join_timeout(PATIENCE).unwrap();
    let groups: Vec<_> = std::iter::repeat_with(join).take(3).collect();
    let early = groups[0].wait_for_members(3, PATIENCE).unwrap();
    // The acceptor does not lead.
    let leads = groups.iter().find(|one| ![early.leader, early.acceptor].contains(&one.member()));
    leads.unwrap().lead().unwrap();
    let late = loop {
        let view = groups[1].wait_for_members(3, PATIENCE).unwrap();
        if view.leader != early.leader {
            break view;
        }
        std::thread::yield_now();
    };
    assert!(late.number > early.number && late.members == early.members);
    std::thread::scope(|scope| {
        for (group, view) in groups.iter().zip([&early, &late, &late]) {
            let (domain, late) = (&domain, &late);
            scope.spawn(move || {
                let builder = Communicator::builder(domain, group, view).timeout(PATIENCE);
                let mut all = builder.connect().unwrap();
                let again = Communicator::builder(domain, group, late).connect();
                assert!(matches!(again, Err(CollectiveError::Exists(_))), "the one it has goes on");
                let mut values = [1u64];
                all.allreduce(&mut values, |one, other| one + other).unwrap();
                assert_eq!(values, [3]);
            });
        }
    });
    // Members that leave a domain whose directory was removed do not wait for it.
    std::fs::remove_dir_all(&path).unwrap();
    drop(groups);
}

#[test]
fn every_call_among_one_to_nine() {
    for count in [1, 2, 3, 4, 5, 8, 9] {
        with_members("every-call", count, Tiers::One, every_call);
    }
}

#[test]
fn values_without_bytes_are_values() {
    for count in [1, 4, 5] {
        with_members("no-bytes", count, Tiers::One, |all| {
            let (mut values, mut parts) = ([(); 2], vec![(); 2 * all.size()]);
            all.allreduce(&mut values, |(), ()| ()).unwrap();
            all.broadcast(0, &mut values).unwrap();
            all.allgather(&values, &mut parts).unwrap();
            all.gather(0, &values, &mut parts).unwrap();
            all.scatter(0, &parts, &mut values).unwrap();
            let mut received = parts.clone();
            all.all_to_all(&parts, &mut received).unwrap();
            all.reduce_scatter(&mut parts, &mut values, |(), ()| ()).unwrap();
            all.exscan(&mut values, |(), ()| ()).unwrap();
        });
    }
}

#[test]
fn long_values_need_no_room_for_all_of_them() {
    for count in [2, 3] {
        with_members("long", count, Tiers::One, |all| {
            let mut values = vec![all.rank() as u64 + 1; 3 << 20];
            all.allreduce(&mut values, |one, other| one + other).unwrap();
            let sum: u64 = (1..=all.size() as u64).sum();
            assert!(values.iter().all(|value| *value == sum));
            let part = values.len() / all.size();
            let mut received = vec![0u64; part * all.size()];
            all.all_to_all(&values[..part * all.size()], &mut received).unwrap();
            assert!(received.iter().all(|value| *value == sum));
        });
    }
}

#[test]
fn values_come_in_order_from_members_that_run_ahead() {
    // In these calls some members only send, until the others must make room.
    for (length, calls) in [(1, 3000), (1000, 1000), (8192, 100)] {
        with_members("ahead", 3, Tiers::One, |all| {
            let rank = all.rank() as u64;
            for call in 0..calls {
                let mut values = vec![if rank == 0 { call } else { 0 }; length];
                all.broadcast(0, &mut values).unwrap();
                assert!(values.iter().all(|value| *value == call));
            }
            for call in 0..calls {
                let part = vec![call * 10 + rank; length];
                let mut parts = vec![0; if rank == 2 { 3 * length } else { 0 }];
                all.gather(2, &part, &mut parts).unwrap();
                let expected = |at: usize| call * 10 + (at / length) as u64;
                assert!(parts.iter().enumerate().all(|(at, value)| *value == expected(at)));
            }
            for call in 0..calls {
                let mut values = vec![call + rank; length];
                all.reduce(1, &mut values, |one, other| one + other).unwrap();
                assert!(rank != 1 || values.iter().all(|value| *value == 3 * call + 3));
            }
        });
    }
}

#[test]
fn parts_of_another_length_are_named() {
    // Both ways to gather, and each member that may be wrong.
    for (length, other) in [(1, 2000), (2000, 1), (0, 1)] {
        for wrong in 0..4 {
            let named = AtomicUsize::new(0);
            leaving("lengths", 4, Tiers::One, |mut all| {
                let length = if all.rank() == wrong { other } else { length };
                let mut parts = vec![0u64; if all.rank() == 0 { 4 * length } else { 0 }];
                // Those that only send may have returned.
                let gathered = all.gather(0, &vec![7; length], &mut parts);
                let error = gathered.and_then(|()| all.barrier()).unwrap_err();
                let is_named = matches!(error, CollectiveError::Length { .. });
                named.fetch_add(usize::from(is_named), SeqCst);
            });
            assert!(named.into_inner() > 0, "{other} among {length} at {wrong}");
        }
    }
}

#[test]
fn who_drops_its_communicator_has_sent_everything() {
    for _ in 0..10 {
        let come = AtomicUsize::new(0);
        leaving("drops", 3, Tiers::One, |mut all| {
            // More than there is room for.
            let part = vec![all.rank() as u64 + 1; 1 << 17];
            let mut parts = vec![0; if all.rank() == 0 { 3 << 17 } else { 0 }];
            come.fetch_add(1, SeqCst);
            while all.rank() == 0 && come.load(SeqCst) < 3 {
                std::thread::yield_now();
            }
            all.gather(0, &part, &mut parts).unwrap();
            drop(all);
            let mut parts = parts.chunks(1 << 17).zip(1..);
            assert!(parts.all(|(part, one)| part.iter().all(|value| *value == one)));
        });
    }
}

#[test]
fn two_levels_give_the_same() {
    // The threads run where they run: some have caches of their own, or all are at one.
    for count in [2, 5, 6] {
        with_members("two-levels", count, Tiers::Two, every_call);
    }
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    let come = AtomicUsize::new(0);
    with_members("barrier", 5, Tiers::One, |all| {
        for round in 1..=100 {
            come.fetch_add(1, SeqCst);
            all.barrier().unwrap();
            assert!(come.load(SeqCst) >= round * all.size());
            all.barrier().unwrap();
        }
    });
}

#[test]
fn rounded_sums_have_the_same_bits_everywhere() {
    for count in [3, 5, 9] {
        with_members("rounded", count, Tiers::One, |all| {
            let (size, rank) = (all.size(), all.rank());
            let mut sum = [0.1 + 1e9 * rank as f64];
            all.allreduce(&mut sum, |one, other| one + other).unwrap();
            let mut bits = vec![0; if rank == 0 { size } else { 0 }];
            all.gather(0, &[sum[0].to_bits()], &mut bits).unwrap();
            assert!(bits.windows(2).all(|pair| pair[0] == pair[1]), "{bits:?}");
        });
    }
}

#[test]
fn nobody_waits_for_those_that_have_given_up() {
    let given_up = AtomicUsize::new(0);
    let path = std::env::temp_dir().join(format!("corewire-left-{}", std::process::id()));
    let domain = Domain::open_at(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let group = Group::builder(&domain, "all").join_timeout(PATIENCE).unwrap();
                let view = group.wait_for_members(4, PATIENCE).unwrap();
                let mut all = Communicator::builder(&domain, &group, &view).connect().unwrap();
                all.barrier().unwrap();
                if all.rank() == 3 {
                    return;
                }
                // The last one does not come. The others keep theirs, and wait for each other.
                let mut calls = 0;
                while all.barrier().is_ok() {
                    calls += 1;
                }
                assert!(calls < 2);
                assert!(matches!(all.barrier(), Err(CollectiveError::Ended { .. })));
                // It keeps its communicator until all have given up.
                given_up.fetch_add(1, SeqCst);
                let start = Instant::now();
                while given_up.load(SeqCst) < 3 {
                    assert!(start.elapsed() < PATIENCE, "somebody waits for this one");
                    std::thread::yield_now();
                }
            });
        }
    });
    let _ = std::fs::remove_dir_all(&path);
}

#[test]
fn mistakes_are_named() {
    with_members("collective-mistakes", 2, Tiers::One, |all| {
        let error = all.broadcast(2, &mut [0u8]).unwrap_err();
        assert_eq!(error, CollectiveError::NoSuchRank { asked: 2, size: 2 });
        let error = all.all_to_all(&[1u8, 2, 3], &mut [0; 3]).unwrap_err();
        assert_eq!(error, CollectiveError::Buffer { given: 3, needed: 2 });
        let error = all.gather(all.rank(), &[1u8], &mut []).unwrap_err();
        assert_eq!(error, CollectiveError::Buffer { given: 0, needed: 2 });
    });
}
