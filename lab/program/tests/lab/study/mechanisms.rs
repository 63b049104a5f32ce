//! Every mechanism carries every size, complete and in order; it refuses what it cannot carry; and only
//! mechanisms that are lossy lose messages.
//!
//! Every test here keeps P63.

use std::fs;

use super::{study, text};

/// The sizes of the paper, 48 bytes, and one size that is not a whole number of words.
const SIZES: [u64; 11] = [1, 48, 64, 100, 128, 512, 1024, 4096, 10_240, 102_400, 1_048_576];

/// Sends some messages through `mechanism`, and returns the number of lost messages.
fn carry(mechanism: &str, bytes: u64, processes: &[&str]) -> u64 {
    let messages = if bytes > 100_000 { "30" } else { "500" };
    carry_many(mechanism, bytes, messages, processes)
}

fn carry_many(mechanism: &str, bytes: u64, messages: &str, others: &[&str]) -> u64 {
    let bytes = bytes.to_string();
    let mut arguments = vec!["check", mechanism, "--bytes", &bytes, "--messages", messages];
    arguments.extend(others);
    let output = study(&arguments);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {said}{}", text(&output.stderr));
    let lost = said.trim().rsplit(' ').next().expect("a number at the end");
    lost.parse().expect("a number at the end")
}

/// The message with which `mechanism` refuses what it cannot carry.
fn refusal(mechanism: &str, arguments: &[&str]) -> String {
    let output = study(&[&["check", mechanism], arguments].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{mechanism} {arguments:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// Sends all sizes to one receiver, and some sizes to three receivers and, if possible, from two
/// senders.
fn carries_all(mechanism: &str, has_many_senders: bool) {
    for bytes in SIZES {
        assert_eq!(carry(mechanism, bytes, &[]), 0, "{bytes} bytes");
    }
    for bytes in [64, 4096] {
        assert_eq!(carry(mechanism, bytes, &["--receivers", "3"]), 0, "{bytes} bytes to three");
        if has_many_senders {
            assert_eq!(carry(mechanism, bytes, &["--senders", "2"]), 0, "{bytes} bytes from two");
        } else {
            assert!(refusal(mechanism, &["--senders", "2"]).contains("one sender at a time"));
        }
    }
}

/// The value of a kernel limit.
fn limit(file: &str) -> u64 {
    fs::read_to_string(file).expect("Linux has it").trim().parse().expect("a number")
}

#[test]
fn unix_datagrams_carry_what_the_kernel_takes_as_one() {
    carries_all("unix_datagram", true);
    let said = refusal("unix_datagram", &["--bytes", "104857600"]);
    assert!(said.contains("104857600 bytes"), "{said}");
}

#[test]
fn several_senders_need_room_to_say_whose_a_message_is() {
    assert!(refusal("pipe", &["--bytes", "1", "--senders", "2"]).contains("8 bytes"));
}

#[test]
fn tcp_carries_all() {
    carries_all("tcp", false);
    assert_eq!(carry("tcp", 10 << 20, &[]), 0);
}

#[test]
fn udp_loses_what_is_not_received_in_time_and_nothing_else_is_wrong() {
    for bytes in SIZES {
        carry("udp", bytes, &[]);
    }
    carry("udp", 4096, &["--receivers", "3"]);
    carry("udp", 64, &["--senders", "2"]);
    let lost = carry_many("udp", 64, "100000", &["--late"]);
    assert!(lost > 0, "a buffer of 100,000 datagrams");
    let lost = carry_many("udp", 102_400, "1000", &["--late"]);
    assert!(lost > 0, "a buffer of 100 MB");
    let said = refusal("udp", &["--bytes", "65508", "--senders", "2"]);
    assert!(said.contains("fragments"), "{said}");
    let said = refusal("pipe", &["--late"]);
    assert!(said.contains("lose nothing"), "{said}");
}

#[test]
fn pipes_carry_all_and_keep_short_messages_apart() {
    carries_all("pipe", true);
    let said = refusal("pipe", &["--bytes", "4097", "--senders", "2"]);
    assert!(said.contains("4096 bytes"), "{said}");
}

#[test]
fn named_pipes_do_the_same() {
    carries_all("named_pipe", true);
    let said = refusal("named_pipe", &["--bytes", "4097", "--senders", "2"]);
    assert!(said.contains("4096 bytes"), "{said}");
}

#[test]
fn shared_memory_with_semaphores_carries_all() {
    carries_all("shared_memory_semaphores", true);
    assert_eq!(carry("shared_memory_semaphores", 10 << 20, &["--senders", "2"]), 0);
}

#[test]
fn system_v_queues_carry_what_their_limits_allow() {
    let allowed = limit("/proc/sys/kernel/msgmax").min(limit("/proc/sys/kernel/msgmnb"));
    for bytes in SIZES.into_iter().filter(|&bytes| bytes <= allowed) {
        assert_eq!(carry("system_v_queue", bytes, &["--keep-queue-limits"]), 0, "{bytes} bytes");
    }
    assert_eq!(carry("system_v_queue", 64, &["--receivers", "3", "--senders", "2"]), 0);
    let too_long = (allowed + 1).to_string();
    let said = refusal("system_v_queue", &["--bytes", &too_long, "--keep-queue-limits"]);
    assert!(said.contains(&format!("is {allowed} bytes here")), "{said}");
}

#[test]
fn posix_queues_carry_what_their_limits_allow() {
    let allowed = limit("/proc/sys/fs/mqueue/msgsize_max");
    for bytes in SIZES.into_iter().filter(|&bytes| bytes <= allowed.min(8192)) {
        assert_eq!(carry("posix_queue", bytes, &["--keep-queue-limits"]), 0, "{bytes} bytes");
    }
    assert_eq!(carry("posix_queue", 64, &["--receivers", "3", "--senders", "2"]), 0);
    let too_long = (allowed + 1).to_string();
    let said = refusal("posix_queue", &["--bytes", &too_long, "--keep-queue-limits"]);
    assert!(said.contains(&format!("fs.mqueue.msgsize_max is {allowed} bytes here")), "{said}");
}

#[test]
fn barrelfish_mp_carries_all() {
    carries_all("barrelfish_mp", false);
}

#[test]
fn barrelfish_ump_carries_all() {
    carries_all("barrelfish_ump", false);
}

#[test]
fn zimp_carries_all_to_as_many_as_a_bitmap_has_bits() {
    carries_all("zimp", true);
}

#[test]
fn corewire_carries_all_copied_out() {
    carries_all("corewire_copy", true);
}

#[test]
fn corewire_carries_all_in_place() {
    carries_all("corewire_in_place", true);
}

#[test]
fn iceoryx2_carries_all() {
    carries_all("iceoryx2", true);
}
