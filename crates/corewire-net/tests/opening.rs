//! How connections begin: who gets in, and what both sides learn if not.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use corewire_endpoint::transport::Transport as _;
use corewire_endpoint::{Budget, Engine, Envelope, Options, Seed, Selector};
use corewire_layout::name::ChannelName;
use corewire_layout::net::{Preface, Refusal};
use corewire_net::hosts::Hosts;
use corewire_net::open::{
    Deadline, Numbers, OpenError, Opened, Own, Target, accept, answer, dial, listen, read_preface,
    refuse,
};
use corewire_net::tcp::{Set, Tcp};
use corewire_os::fork::Descriptor;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

const LONG: Duration = Duration::from_secs(60);

fn name(text: &str) -> ChannelName {
    ChannelName::new(text).unwrap()
}

/// A directory of its own, which is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corewire-net-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(of: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, of);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate for `of`, and its key.
fn certify(directory: &Directory, authority: &Authority, file: &str, of: &str, has_expired: bool) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![of.to_owned()]).unwrap();
    if has_expired {
        (params.not_before, params.not_after) =
            (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    }
    let certificate = params.signed_by(&key, authority).unwrap();
    directory.write(&format!("{file}.pem"), &certificate.pem());
    let path = format!("{file}.key");
    directory.write(&path, &key.serialize_pem());
    std::fs::set_permissions(directory.0.join(path), PermissionsExt::from_mode(0o600)).unwrap();
}

/// The hosts as `own` knows them, with a certificate in `file` if there is one. Each is at this address.
fn hosts(directory: &Directory, own: &str, file: Option<&str>, at: SocketAddr) -> Hosts {
    let tls = file.map_or(String::new(), |file| {
        format!(
            "[tls]\ncertificate = \"{file}.pem\"\nkey = \"{file}.key\"\nauthorities = \"all.pem\"\n"
        )
    });
    let text = format!(
        "own = {own:?}\n{tls}[hosts.a]\naddresses = [\"{at}\"]\n[hosts.b]\naddresses = [\"{at}\"]\n\
         [[allow]]\nhosts = [\"a\"]\nendpoints = [\"x\"]\n"
    );
    Hosts::parse(&directory.0.join("hosts.toml"), &text).unwrap()
}

/// Lets `a` dial `x@b`, and returns what both have learnt.
fn meet(
    listener: &(Descriptor, SocketAddr),
    dialling: &Hosts,
    dialled: &Hosts,
    target: &str,
) -> [Result<Opened, OpenError>; 2] {
    let target = Target::parse(target).unwrap().unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            dial(
                dialling,
                &Own { name: name("caller"), incarnation: 1 },
                Numbers::default(),
                &target,
                LONG,
            )
        });
        let second = take(&listener.0, dialled);
        [first.join().unwrap(), second]
    })
}

fn take(listener: &Descriptor, hosts: &Hosts) -> Result<Opened, OpenError> {
    let stream = loop {
        if let Some(stream) = accept(listener).unwrap() {
            break stream;
        }
        thread::yield_now();
    };
    let deadline = Deadline::within(LONG);
    let preface = read_preface(&stream, deadline)?;
    answer(stream, &preface, hosts, &Own { name: name("x"), incarnation: 2 }, deadline, |_| Ok(()))
}

fn local() -> (Descriptor, SocketAddr) {
    listen("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn engine(opened: Opened) -> Engine<Tcp> {
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let mut tcp = Tcp::new(Arc::new(Set::new(&bell).unwrap()), 0);
    tcp.add(opened, 1).unwrap();
    let mut engine = Engine::new(tcp, Budget::new(1 << 20, 4), Seed(7));
    engine.handle_notices().unwrap();
    engine
}

#[test]
fn both_sides_learn_who_the_other_is_and_messages_of_all_lengths_go_over_tls_too() {
    let directory = Directory::new("both");
    let authority = authority("known");
    directory.write("all.pem", &authority.pem());
    certify(&directory, &authority, "a", "a", false);
    certify(&directory, &authority, "b", "b", false);
    for is_tls in [false, true] {
        let listener = local();
        let [a, b] =
            ["a", "b"].map(|own| hosts(&directory, own, is_tls.then_some(own), listener.1));
        let [first, second] = meet(&listener, &a, &b, "x@b");
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!((first.is_tls(), second.is_tls()), (is_tls, is_tls));
        assert_eq!(first.other().name.as_str(), "x");
        assert_eq!((second.other().host.as_str(), second.other().incarnation), ("a", 1));
        let mut ends = [engine(first), engine(second)];
        for (number, bytes) in [0, 8, 5000, 70_000, 1 << 20, 3_000_000].into_iter().enumerate() {
            for (from, to) in [(0, 1), (1, 0)] {
                let message: Vec<u8> =
                    (0..bytes).map(|at: usize| (at * 7 + number).to_le_bytes()[0]).collect();
                let peer = ends[from].peer_at(0).unwrap();
                let memory = message.clone().into();
                ends[from]
                    .start_send(peer, Envelope::tagged(5), memory, Options::default())
                    .unwrap();
                let receive = ends[to]
                    .start_receive(Selector::tag(5), vec![0; bytes].into(), Options::default())
                    .unwrap();
                let end = loop {
                    if let Some(end) = ends[to].take_completion(receive).unwrap() {
                        break end;
                    }
                    for end in &mut ends {
                        if !end.progress(None).unwrap() {
                            end.transport_mut().sleep(1_000_000, &[]);
                        }
                    }
                };
                assert!(*end.memory.into_vec() == message, "{bytes}");
            }
        }
    }
}

/// What both sides say if the certificates are not right.
fn fails_with(
    test: &str,
    of_a: (&str, bool),
    of_b: (&str, bool),
    is_foreign: bool,
) -> [OpenError; 2] {
    let directory = Directory::new(test);
    let [known, foreign] = ["known", "foreign"].map(authority);
    directory.write("all.pem", &known.pem());
    certify(&directory, if is_foreign { &foreign } else { &known }, "a", of_a.0, of_a.1);
    certify(&directory, &known, "b", of_b.0, of_b.1);
    let listener = local();
    let [a, b] = ["a", "b"].map(|own| hosts(&directory, own, Some(own), listener.1));
    meet(&listener, &a, &b, "x@b").map(Result::unwrap_err)
}

// Keeps P261.
#[test]
fn a_certificate_that_has_expired_or_is_for_another_name_or_of_a_foreign_authority_is_refused_by_name()
 {
    let [first, second] = fails_with("expired", ("a", true), ("b", false), false);
    assert!(first.to_string().contains("Expired"), "{first}");
    assert!(second.to_string().contains("expired"), "{second}");

    let [first, second] = fails_with("expired-b", ("a", false), ("b", true), false);
    assert!(first.to_string().contains("expired"), "{first}");
    assert!(second.to_string().contains("Expired"), "{second}");

    let [first, second] = fails_with("name", ("a", false), ("c", false), false);
    assert!(first.to_string().contains("not valid for"), "{first}");
    assert!(matches!(&second, OpenError::Tls(_)), "{second}");

    let [first, second] = fails_with("name-a", ("c", false), ("b", false), false);
    assert_eq!(first, OpenError::Refused(Refusal::OtherHost));
    assert_eq!(second, OpenError::RefusedHere(Refusal::OtherHost));

    let [first, second] = fails_with("foreign", ("a", false), ("b", false), true);
    assert!(first.to_string().contains("UnknownCA"), "{first}");
    assert!(second.to_string().contains("UnknownIssuer"), "{second}");
}

fn short(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).unwrap()
}

/// The first message of a side that knows TLS 1.2 at most.
fn hello_of_tls_1_2() -> Vec<u8> {
    let suites = [0xc0, 0x2b, 0xc0, 0x2f];
    let groups = [0, 10, 0, 4, 0, 2, 0, 0x17];
    let schemes = [0, 13, 0, 4, 0, 2, 4, 3];
    let extensions = [&groups[..], &schemes].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &[0, short(&suites)],
        &suites,
        &[1, 0],
        &[0, short(&extensions)],
        &extensions,
    ]
    .concat();
    let length = short(&body);
    [&[0x16, 3, 1, 0, length + 4, 1, 0, 0, length][..], &body].concat()
}

// Keeps P261.
#[test]
fn a_side_without_tls_1_3_is_refused_at_both_ends() {
    let directory = Directory::new("tls12");
    let authority = authority("known");
    directory.write("all.pem", &authority.pem());
    certify(&directory, &authority, "b", "b", false);
    let listener = local();
    let hosts = hosts(&directory, "b", Some("b"), listener.1);
    let mut old = TcpStream::connect(listener.1).unwrap();
    old.write_all(&Preface { is_tls: true, wanted: name("x") }.to_bytes()).unwrap();
    old.write_all(&hello_of_tls_1_2()).unwrap();
    thread::scope(|scope| {
        let taken = scope.spawn(|| take(&listener.0, &hosts).unwrap_err());
        // An alert (21) of the kind `protocol_version` (70) follows the answer.
        let mut bytes = [0; 8 + 7];
        (&old).read_exact(&mut bytes).unwrap();
        assert_eq!((bytes[8], bytes[14]), (21, 70), "{bytes:?}");
        drop(old);
        let error = taken.join().unwrap().to_string();
        assert!(error.contains("incompatible"), "{error}");
    });
}

// Keeps P261.
#[test]
fn what_has_no_tls_is_refused_where_it_must_have_it_and_a_rule_decides_what_is_reached() {
    let directory = Directory::new("rules");
    let authority = authority("known");
    directory.write("all.pem", &authority.pem());
    certify(&directory, &authority, "a", "a", false);
    let listener = local();
    let [plain, other] = ["a", "b"].map(|own| hosts(&directory, own, None, listener.1));
    let tls = hosts(&directory, "a", Some("a"), listener.1);
    // Only one side has a certificate.
    let [first, second] = meet(&listener, &tls, &other, "x@b").map(Result::unwrap_err);
    assert_eq!(first, OpenError::Refused(Refusal::NoTls));
    assert_eq!(second, OpenError::RefusedHere(Refusal::NoTls));
    // Another endpoint, or a host without a rule, or one that is not named.
    let [first, _] = meet(&listener, &plain, &other, "y@b").map(Result::unwrap_err);
    assert_eq!(first, OpenError::Refused(Refusal::NotFound));
    let b = hosts(&directory, "b", None, listener.1);
    let [first, _] = meet(&listener, &b, &other, "x@b").map(Result::unwrap_err);
    assert_eq!(first, OpenError::Refused(Refusal::NotAllowed));
    let c = hosts(&directory, "c", None, listener.1);
    let [first, _] = meet(&listener, &c, &other, "x@b").map(Result::unwrap_err);
    assert_eq!(first, OpenError::Refused(Refusal::UnknownHost));
    // By address, and an answer of another host than the one that was dialled.
    let target = format!("tcp://{}/x", listener.1);
    let [first, second] = meet(&listener, &plain, &other, &target);
    assert_eq!(first.unwrap().other().host.as_str(), "b");
    assert!(second.is_ok());
    let [first, _] = meet(&listener, &plain, &other, "x@a");
    assert!(matches!(first, Err(OpenError::OtherEndpoint { .. })), "{first:?}");
}

/// An address of this machine that is not the loopback's, if it has one.
fn outside() -> Option<IpAddr> {
    // Nothing is sent: the kernel only finds the way.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("203.0.113.1:9").ok()?;
    socket.local_addr().ok().map(|at| at.ip()).filter(|at| !at.is_loopback())
}

// Keeps P261.
#[test]
fn without_tls_only_insecure_hosts_at_their_addresses_are_connected_beyond_the_loopback() {
    let Some(outside) = outside() else { return println!("skipped: no address but the loopback") };
    let listener = listen(SocketAddr::new(outside, 0)).unwrap();
    let at = listener.1.to_string();
    let hosts = |own: &str, [a, b]: [(&str, bool); 2]| {
        let mut text = format!("own = {own:?}\n[[allow]]\nhosts = [\"a\"]\nendpoints = [\"x\"]\n");
        for (host, (at, insecure)) in ["a", "b"].into_iter().zip([a, b]) {
            text += &format!("[hosts.{host}]\naddresses = [\"{at}\"]\ninsecure = {insecure}\n");
        }
        Hosts::parse(Path::new("/etc/hosts.toml"), &text).unwrap()
    };
    let trusting = hosts("a", [(&at, true), (&at, true)]);
    // The side that dials does not let it be open to everybody.
    let careful = hosts("a", [(&at, true), (&at, false)]);
    let target = Target::parse("x@b").unwrap().unwrap();
    let caller = Own { name: name("caller"), incarnation: 1 };
    let refused = dial(&careful, &caller, Numbers::default(), &target, LONG).unwrap_err();
    assert!(matches!(&refused, OpenError::NotSecure { address, .. } if *address == outside));
    assert!(refused.to_string().contains("/etc/hosts.toml"), "{refused}");
    // It has connected before it knew that.
    while accept(&listener.0).unwrap().is_none() {
        thread::yield_now();
    }
    for (dialled, why) in [
        (hosts("b", [(&at, false), (&at, false)]), Refusal::NeedsTls),
        (hosts("b", [(&at, false), (&at, true)]), Refusal::NeedsTls),
        (hosts("b", [("192.0.2.1:1", true), (&at, true)]), Refusal::OtherHost),
    ] {
        let [first, second] = meet(&listener, &trusting, &dialled, "x@b").map(Result::unwrap_err);
        assert_eq!((first, second), (OpenError::Refused(why), OpenError::RefusedHere(why)));
    }
    let dialled = hosts("b", [(&at, true), (&at, true)]);
    let [first, second] = meet(&listener, &trusting, &dialled, "x@b");
    assert!(first.is_ok() && second.is_ok());
}

// Keeps P261.
#[test]
fn a_side_without_a_certificate_is_refused() {
    let directory = Directory::new("nobody");
    let authority = authority("known");
    directory.write("all.pem", &authority.pem());
    certify(&directory, &authority, "b", "b", false);
    let listener = local();
    let hosts = hosts(&directory, "b", Some("b"), listener.1);
    let mut stream = TcpStream::connect(listener.1).unwrap();
    stream.write_all(&Preface { is_tls: true, wanted: name("x") }.to_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let mut session = ClientConnection::new(Arc::new(config), "b".try_into().unwrap()).unwrap();
    thread::scope(|scope| {
        let taken = scope.spawn(|| take(&listener.0, &hosts).unwrap_err());
        let mut welcome = [0; 8];
        stream.read_exact(&mut welcome).unwrap();
        // Its own part ends before the other side has looked at it.
        while session.complete_io(&mut stream).is_ok_and(|(read, written)| read + written > 0) {}
        let error = taken.join().unwrap().to_string();
        assert!(error.contains("certificate"), "{error}");
    });
}

#[test]
fn what_cannot_be_used_is_named() {
    let directory = Directory::new("named");
    let authority = authority("known");
    directory.write("all.pem", &authority.pem());
    certify(&directory, &authority, "a", "a", false);
    let (listener, at) = local();
    let dial = |hosts: &Hosts, target: &str| {
        let own = Own { name: name("caller"), incarnation: 1 };
        let target = Target::parse(target).unwrap().unwrap();
        dial(hosts, &own, Numbers::default(), &target, Duration::from_millis(1500)).unwrap_err()
    };
    let known = hosts(&directory, "a", None, at);
    assert!(
        matches!(dial(&known, "x@z"), OpenError::UnknownHost { host, .. } if host.as_str() == "z")
    );
    // It takes the connection, and says nothing.
    assert!(matches!(dial(&known, "x@b"), OpenError::Timeout { .. }));
    drop(listener);
    let closed = dial(&known, "x@b");
    assert!(matches!(&closed, OpenError::Unreachable { tried } if tried.len() == 1), "{closed}");
    assert!(closed.to_string().contains(&at.to_string()), "{closed}");
    // Files that others can change, and a key that others can read.
    let listener = local();
    certify(&directory, &authority, "b", "b", false);
    let [tls, other] = ["a", "b"].map(|own| hosts(&directory, own, Some(own), listener.1));
    for (file, mode, why) in [
        ("a.key", 0o640, "a.key: it has mode 0640, so that others can read or write it"),
        ("a.pem", 0o622, "a.pem: it has mode 0622, so that others can write it"),
        ("all.pem", 0o606, "all.pem: it has mode 0606, so that others can write it"),
    ] {
        std::fs::set_permissions(directory.0.join(file), PermissionsExt::from_mode(mode)).unwrap();
        let [first, _] = meet(&listener, &tls, &other, "x@b");
        let shown = first.unwrap_err().to_string();
        // The side that is dialled reads some of them first, and does not tell what is its own matter.
        assert!(
            shown.contains(why) || shown.contains("it cannot take a connection now"),
            "{shown}"
        );
        std::fs::set_permissions(directory.0.join(file), PermissionsExt::from_mode(0o600)).unwrap();
    }
    std::fs::set_permissions(directory.0.join("b.key"), PermissionsExt::from_mode(0o644)).unwrap();
    let [first, second] = meet(&listener, &tls, &other, "x@b").map(Result::unwrap_err);
    assert_eq!(first, OpenError::Refused(Refusal::Busy));
    assert!(second.to_string().contains("b.key: it has mode 0644"), "{second}");
    for text in ["tcp://", "tcp://b/x", "tcp://b:0/x", "tcp://b:1/", "x@", "@b", "x@b@c", "x@b c"] {
        assert!(Target::parse(text).is_err(), "{text}");
    }
    assert_eq!(Target::parse("x"), Ok(None));
}

#[test]
fn a_connection_that_says_nothing_or_something_else_ends_in_time() {
    let (listener, at) = local();
    let directory = Directory::new("silent");
    let hosts = hosts(&directory, "b", None, at);
    let short = Duration::from_millis(50);
    let own = Own { name: name("x"), incarnation: 2 };
    let next = || loop {
        if let Some(stream) = accept(&listener).unwrap() {
            break stream;
        }
    };
    let _silent = TcpStream::connect(at).unwrap();
    let found = read_preface(&next(), Deadline::within(short));
    assert_eq!(found, Err(OpenError::Timeout { after: short }));
    let mut foreign = TcpStream::connect(at).unwrap();
    foreign.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(matches!(read_preface(&next(), Deadline::within(LONG)), Err(OpenError::Foreign(_))));
    // Behind its preface, without an end.
    let mut endless = TcpStream::connect(at).unwrap();
    let preface = Preface { is_tls: false, wanted: name("x") };
    endless.write_all(&preface.to_bytes()).unwrap();
    let stream = next();
    let found = read_preface(&stream, Deadline::within(LONG)).unwrap();
    endless.write_all(&[1; 200]).unwrap();
    let opened = answer(stream, &found, &hosts, &own, Deadline::within(LONG), |_| Ok(()));
    assert!(matches!(opened, Err(OpenError::Foreign(_))), "{opened:?}");
    // One that is refused learns so, and then the end.
    let mut refused = TcpStream::connect(at).unwrap();
    refused.write_all(&preface.to_bytes()).unwrap();
    let stream = next();
    thread::scope(|scope| {
        scope.spawn(|| refuse(&stream, Refusal::Busy));
        let mut bytes = Vec::new();
        let mut answer = [0; 8];
        std::io::Read::read_exact(&mut &refused, &mut answer).unwrap();
        refused.shutdown(std::net::Shutdown::Both).unwrap();
        bytes.extend(answer);
        assert_eq!(bytes[6], Refusal::Busy as u8);
    });
}

// Keeps P261.
#[test]
fn a_process_of_another_user_is_refused_on_the_loopback() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can be another user");
        return;
    }
    let directory = Directory::new("other-user");
    let listener = local();
    let hosts = hosts(&directory, "b", None, listener.1);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65_534);
            // Of this thread alone.
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let mut stream = TcpStream::connect(listener.1).unwrap();
            stream.write_all(&Preface { is_tls: false, wanted: name("x") }.to_bytes()).unwrap();
            let mut answer = [0; 8];
            std::io::Read::read_exact(&mut &stream, &mut answer).unwrap();
            answer
        });
        let refused = take(&listener.0, &hosts).unwrap_err();
        assert_eq!(refused, OpenError::RefusedHere(Refusal::OtherUser));
        assert_eq!(other.join().unwrap()[6], Refusal::OtherUser as u8);
    });
}
