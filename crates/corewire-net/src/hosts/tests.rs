use std::path::{Path, PathBuf};

use corewire_layout::name::ChannelName;

use super::{Hosts, HostsError};

fn name(text: &str) -> ChannelName {
    ChannelName::new(text).unwrap()
}

fn parse(text: &str) -> Result<Hosts, HostsError> {
    Hosts::parse(Path::new("/etc/x/hosts.toml"), text)
}

const TWO: &str = r#"
own = "a"
silence_ms = 3000

[tls]
certificate = "a.pem"
key = "/keys/a.key"
authorities = "all.pem"

[hosts.b]
addresses = ["10.0.0.2:7421", "b.example.org:7421", "[fe80::2]:1"]
certificate_name = "b.example.org"

[hosts.c]
addresses = ["192.168.7.3:7421"]
insecure = true

[[allow]]
hosts = ["b"]
endpoints = ["calc", "bank-*"]

[[allow]]
hosts = ["*"]
endpoints = ["clock"]
"#;

#[test]
fn a_file_says_where_hosts_are_and_what_they_may_reach() {
    let hosts = parse(TWO).unwrap();
    assert_eq!((hosts.own().as_str(), hosts.silence_ms()), ("a", 3000));
    let tls = hosts.tls().unwrap();
    assert_eq!(tls.certificate, PathBuf::from("/etc/x/a.pem"));
    assert_eq!(tls.key, PathBuf::from("/keys/a.key"));
    let [b, c] = ["b", "c"].map(|host| hosts.get(&name(host)).unwrap());
    assert_eq!(b.addresses.len(), 3);
    assert_eq!((b.certificate_name.as_str(), b.is_insecure), ("b.example.org", false));
    assert_eq!((c.certificate_name.as_str(), c.is_insecure), ("c", true));
    for (host, endpoint, is_allowed) in [
        ("b", "calc", true),
        ("b", "calculator", false),
        ("b", "calc.rings", true),
        ("c", "calc.rings", false),
        ("b", "bank-1", true),
        ("b", "bank", false),
        ("c", "calc", false),
        ("c", "clock", true),
        // The file does not name it.
        ("d", "clock", false),
    ] {
        assert_eq!(hosts.is_allowed(&name(host), &name(endpoint)), is_allowed, "{host} {endpoint}");
    }
    assert!(hosts.lets_any_reach(&name("clock")) && !hosts.lets_any_reach(&name("x")));
}

#[test]
fn without_rules_nothing_is_reached_and_the_kernel_names_this_host() {
    let hosts = parse("own = \"a\"\n[hosts.b]\naddresses = [\"b:1\"]").unwrap();
    assert!(!hosts.lets_any_reach(&name("x")) && hosts.tls().is_none());
    let of_kernel = rustix::system::uname();
    if let (Ok(hosts), Ok(own)) = (parse(""), of_kernel.nodename().to_str()) {
        assert_eq!(hosts.own().as_str(), own);
    }
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let error = |text: &str| parse(text).unwrap_err().to_string();
    let own = "own = \"a\"\n";
    for (text, parts) in [
        ("own = \"a\"\nhost = 1", &["/etc/x/hosts.toml", "line 2", "host"][..]),
        ("own = \"a b\"", &["own", "a b"]),
        (&format!("{own}[hosts.b]\naddresses = []"), &["hosts.b.addresses", "at least one"]),
        (&format!("{own}[hosts.b]\naddresses = [\"b\"]"), &["\"b\"", "address:port"]),
        (&format!("{own}[hosts.b]\naddresses = [\"b:0\"]"), &["\"b:0\"", "address:port"]),
        (&format!("{own}[hosts.b]\naddresses = [\"b:70000\"]"), &["70000"]),
        (&format!("{own}silence_ms = 5"), &["silence_ms", "\"5\"", "at least 2000"]),
        (
            &format!("{own}[[allow]]\nhosts = [\"b\"]\nendpoints = [\"x\"]"),
            &["allow.hosts", "names"],
        ),
        (
            &format!("{own}[[allow]]\nhosts = [\"*\"]\nendpoints = [\"x*y\"]"),
            &["allow.endpoints", "x*y"],
        ),
        (&format!("{own}[[allow]]\nhosts = [\"*\"]\nendpoints = [\"\"]"), &["allow.endpoints"]),
        (&format!("{own}[tls]\ncertificate = \"a\""), &["key"]),
    ] {
        let error = error(text);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let missing = Hosts::read(Path::new("/nowhere/hosts.toml"));
    assert!(missing.unwrap_err().to_string().contains("/nowhere/hosts.toml"));
    let device = Hosts::read(Path::new("/dev/zero"));
    assert!(matches!(device, Err(HostsError::Unreadable { .. })), "{device:?}");
}
