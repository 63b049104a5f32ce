//! Communicators over endpoints: of one host, and of two, which are two domains here that know each other by a file of hosts each.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use corewire::{ConnectError, Domain, Endpoint};
use corewire_group::{CollectiveError, Communicator, Computation, Group};

use crate::collectives::every_call;

const PATIENCE: Duration = Duration::from_secs(60);

/// A directory with the domains of some hosts, and the file of each.
struct Hosts(PathBuf);

impl Hosts {
    fn new(test: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("corewire-over-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn domain(&self, host: &str) -> Domain {
        let file = self.0.join(format!("{host}.toml"));
        Domain::builder().path(&self.0.join(host)).hosts(&file).open().unwrap()
    }

    /// Says where the hosts are, all of which may reach all endpoints that begin with `sum`.
    fn write(&self, at: &[(&str, &str)]) {
        for (own, _) in at {
            let mut text = format!("own = {own:?}\n");
            for (host, at) in at {
                text += &format!("[hosts.{host}]\naddresses = [\"{at}\"]\n");
            }
            text += "[[allow]]\nhosts = [\"*\"]\nendpoints = [\"sum*\"]\n";
            std::fs::write(self.0.join(format!("{own}.toml")), text).unwrap();
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Does a job at a member of each of these names, `sum.0@a` for one of host `a`.
fn with_members(hosts: &Hosts, names: &[&str], job: impl Fn(Communicator) + Sync) {
    std::thread::scope(|scope| {
        for name in names {
            let (own, host) = name.split_once('@').unwrap_or((name, "a"));
            let domain = hosts.domain(host);
            let job = &job;
            scope.spawn(move || {
                let endpoint = domain.endpoint(own).create().unwrap();
                let all = Communicator::over(&domain, endpoint, names).timeout(PATIENCE);
                job(all.connect().unwrap());
            });
        }
    });
}

// Keeps P265.
#[test]
fn endpoints_of_one_host_make_every_call_without_a_group() {
    let hosts = Hosts::new("one");
    hosts.write(&[("a", "127.0.0.1:1")]);
    with_members(&hosts, &["sum.0", "sum.1", "sum.2"], |mut all| {
        assert_eq!(all.sets().len(), 1);
        every_call(&mut all);
        let own = all.rank() as u64;
        // Those of even ranks, in the opposite order.
        let mut even =
            all.split(own.is_multiple_of(2).then_some(0), -i32::try_from(own).unwrap()).unwrap();
        if let Some(even) = &mut even {
            assert_eq!((even.size(), even.rank()), (2, usize::from(own == 0)));
            let mut values = [own];
            even.allreduce(&mut values, |one, other| one + other).unwrap();
            assert_eq!(values, [2]);
        }
        all.barrier().unwrap();
    });
}

// Keeps P265.
#[test]
fn endpoints_of_two_hosts_make_every_call_and_cross_once() {
    let hosts = Hosts::new("two");
    hosts.write(&[("a", "127.0.0.1:1"), ("b", "127.0.0.1:1")]);
    // One port for each host, which takes the connections of all its endpoints.
    let gateways = ["a", "b"].map(|host| hosts.domain(host).gateway("127.0.0.1:0").unwrap());
    let at = gateways.each_ref().map(|gateway| gateway.address().to_string());
    hosts.write(&[("a", &at[0]), ("b", &at[1])]);
    let names = ["sum.0@a", "sum.1@a", "sum.2@b", "sum.3@b", "sum.4@b"];
    with_members(&hosts, &names, |mut all| {
        assert_eq!(all.sets(), [vec![0, 1], vec![2, 3, 4]]);
        every_call(&mut all);
        let mut other = all.duplicate().unwrap();
        let mut values = [1_u64];
        other.allreduce(&mut values, |one, other| one + other).unwrap();
        assert_eq!(values, [5]);
        other.barrier().unwrap();
        all.barrier().unwrap();
    });
}

#[test]
fn a_member_that_goes_ends_the_calls_of_all_others_with_its_rank() {
    let hosts = Hosts::new("gone");
    hosts.write(&[("a", "127.0.0.1:1"), ("b", "127.0.0.1:1")]);
    let gateways = ["a", "b"].map(|host| hosts.domain(host).gateway("127.0.0.1:0").unwrap());
    let at = gateways.each_ref().map(|gateway| gateway.address().to_string());
    hosts.write(&[("a", &at[0]), ("b", &at[1])]);
    let gone = Mutex::new(0);
    with_members(&hosts, &["sum.0@a", "sum.1@b", "sum.2@b"], |mut all| {
        all.barrier().unwrap();
        if all.rank() == 2 {
            return;
        }
        let error = all.barrier().unwrap_err();
        let text = error.to_string();
        // Who hears of the other one first names that.
        assert!(matches!(error, CollectiveError::Gone { .. }), "{text}");
        assert!(text.starts_with("rank ") && text.contains("sum."), "{text}");
        *gone.lock().unwrap() += 1;
    });
    assert_eq!(*gone.lock().unwrap(), 2);
}

#[test]
fn groups_and_computations_of_other_hosts_are_refused_with_the_reason() {
    let hosts = Hosts::new("group");
    hosts.write(&[("a", "127.0.0.1:1")]);
    let domain = hosts.domain("a");
    let group = Group::builder(&domain, "orders@b").join().unwrap_err();
    let computation = Computation::builder(&domain, "orders@b", hosts.0.clone(), 0, 2).join();
    let computation = computation.err().unwrap();
    for why in [group.to_string(), computation.to_string()] {
        assert!(why.contains("orders@b: it relies on deaths that are certain"), "{why}");
    }
}

#[test]
fn names_that_are_no_members_are_refused_by_name() {
    let hosts = Hosts::new("names");
    hosts.write(&[("a", "127.0.0.1:1"), ("b", "127.0.0.1:1")]);
    let domain = hosts.domain("a");
    let refused = |names: &[&str]| {
        let endpoint: Endpoint = domain.endpoint("sum.0").create().unwrap();
        let all = Communicator::over(&domain, endpoint, names).timeout(Duration::ZERO);
        all.connect().unwrap_err().to_string()
    };
    for (names, why) in [
        (&["sum.0", "sum.0"][..], "the names of members: sum.0 is given twice"),
        (&["sum.1@a", "sum.2"], "either all say their host, or none"),
        (&["sum.1", "sum.2"], "none of them is that of the endpoint, sum.0"),
        (&["tcp://127.0.0.1:1/sum.1", "sum.0"], "is an address"),
        (&["sum.0", "a b"], "a b"),
        (&["sum.0", "sum.1"], "endpoint sum.1 was not created within 0ns"),
        (&["sum.0@a", "sum.1@c"], "host c is not in"),
    ] {
        let text = refused(names);
        assert!(text.contains(why), "{names:?}: {text}");
    }
    // What the host says is told, not that nobody came.
    let endpoint = domain.endpoint("sum.0").create().unwrap();
    let all = Communicator::over(&domain, endpoint, &["sum.0@a", "sum.1@b"]);
    let error = all.timeout(Duration::ZERO).connect().unwrap_err();
    let CollectiveError::Connect(ConnectError::Far { name, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!(name, "sum.1@b");
    let many: Vec<_> = (0..256).map(|rank| format!("sum.{rank}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert!(refused(&many).contains("256 are given: at most 255 are possible"));
}
