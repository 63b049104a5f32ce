//! Whose process is at the other end of a connection within one machine. The kernel lists for each socket which user it
//! belongs to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use corewire_os::process::effective_uid;

use super::OpenError;

/// The state of a connection that neither side has closed.
const ESTABLISHED: &str = "01";

/// Makes sure that the other end of a connection within this machine belongs to this user, or to root.
pub(super) fn check(own: SocketAddr, other: SocketAddr) -> Result<(), OpenError> {
    let user = effective_uid();
    let found = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| {
        let table = std::fs::read_to_string(table).ok()?;
        table.lines().find_map(|line| user_of(line, other, own))
    });
    match found {
        Some(found) if found == user || found == 0 => Ok(()),
        // Where the kernel shows no table, or the other end is closed, nobody else may be let in by mistake.
        found => Err(OpenError::OtherUser { found, own: user }),
    }
}

/// The user of the socket that a line of the kernel's table is about, if it is the one with these addresses, and open: of one
/// that was closed the kernel does not know any more whose it was, and says root.
fn user_of(line: &str, own: SocketAddr, other: SocketAddr) -> Option<u32> {
    let mut fields = line.split_whitespace();
    let found = (fields.nth(1)?, fields.next()?);
    let found = (address_of(found.0)?, address_of(found.1)?);
    let is_open = fields.next()? == ESTABLISHED;
    // Queues, timers, retransmissions; the user, a time-out, and the number of the socket that a process has.
    let user = fields.nth(3)?.parse().ok()?;
    let has_process = fields.nth(1)?.parse::<u64>().is_ok_and(|inode| inode != 0);
    (is_open && has_process && found == (canonical(own), canonical(other))).then_some(user)
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// An address of the table: words of 32 bits as they lie in this machine's memory, in hexadecimal.
fn address_of(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for at in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?;
        // The kernel and this process have the same order of bytes, which is little-endian on all that corewire runs on.
        bytes.extend(word.to_le_bytes());
    }
    let address = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some((address.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_say_whose_socket_it_is() {
        let own: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let other: SocketAddr = "127.0.0.2:80".parse().unwrap();
        let line = "   5: 0100007F:1F90 0200007F:0050 01 00000000:00000000 00:00000000 00000000  1000        0 1 1";
        assert_eq!(user_of(line, own, other), Some(1000));
        assert_eq!(user_of(line, other, own), None);
        let mapped = "   5: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000200007F:0050 01 0:0 0:0 0 7 0 1";
        assert_eq!(user_of(mapped, own, other), Some(7));
        let six = "  0: 00000000000000000000000001000000:0001 00000000000000000000000001000000:0002 01 0:0 0:0 0 9 0 1";
        let [one, two] = ["[::1]:1", "[::1]:2"].map(|it| it.parse().unwrap());
        assert_eq!(user_of(six, one, two), Some(9));
        // Closed: waits for the other side, or has no process.
        for line in [line.replace(" 01 ", " 06 "), line.replace(" 1 1", " 0 1")] {
            assert_eq!(user_of(&line, own, other), None);
        }
        for line in ["", "sl local_address rem_address", "0: x:1 y:2 01 0:0 0:0 0 1"] {
            assert_eq!(user_of(line, own, other), None);
        }
    }

    #[test]
    fn this_process_trusts_itself() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        for end in [&dialled, &accepted] {
            check(end.local_addr().unwrap(), end.peer_addr().unwrap()).unwrap();
        }
    }

    #[test]
    fn an_end_that_was_closed_is_nobodys() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, other) = listener.accept().unwrap();
        drop(dialled);
        let refused = check(accepted.local_addr().unwrap(), other).unwrap_err();
        assert!(matches!(refused, OpenError::OtherUser { found: None, .. }));
        assert!(refused.to_string().contains("runs as nobody who is known"), "{refused}");
    }
}
