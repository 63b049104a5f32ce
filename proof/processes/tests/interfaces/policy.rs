//! A service that its monitor's policy does not let be reached.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use corewire_bind::{MonitorAt, Serve};
use corewire_circuit::monitor::{Monitor, Options};
use corewire_circuit::node::{Act, Policy, Rule};
use corewire_circuit::wire::NodeId;
use corewire_os::process::effective_uid;
use corewire_processes::interfaces::{Echo, Place, all};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn who_may_not_serve_a_name_is_told_by_the_service_and_by_the_monitor() {
    let place = Place::without_monitors("policy");
    let (owner, node) = (effective_uid(), NodeId::new(203).unwrap());
    let rule = |users| Rule { act: Act::Export, names: "ec*".into(), users, groups: Vec::new() };
    let (to_monitor, at_monitor) = channel();
    let mut options =
        Options::new(node).report(move |text| to_monitor.send(text.to_owned()).unwrap());
    options.policy = Policy { owner, rules: vec![rule(vec![owner + 1])] };
    let mut monitor = Monitor::start(place.domain.clone(), options).unwrap();
    let handle = monitor.handle();
    let running = thread::spawn(move || monitor.run().unwrap());

    let (to_service, at_service) = channel();
    let report = move |text: &str| to_service.send(text.to_owned()).unwrap();
    let serve = Serve::default().monitor(Some(MonitorAt::default().number(203))).report(report);
    let mut server = all::Server::with(&place.domain, "echo", Echo::default(), serve).unwrap();
    let stopper = server.stopper();
    let serving = thread::spawn(move || server.serve().unwrap());
    let said = at_service.recv_timeout(LONG).unwrap();
    assert!(
        said.starts_with("service echo cannot be reached by circuits: monitor 203: "),
        "{said}"
    );
    let reason = format!("do not let user {owner}, group");
    assert!(said.contains(&reason) && said.ends_with("serve echo"), "{said}");
    let said = at_monitor.recv_timeout(LONG).unwrap();
    assert!(said.starts_with("service echo is not served by circuits: "), "{said}");
    assert!(said.contains(&reason), "{said}");

    // It is asked again; nothing is said twice.
    handle.set_policy(Policy { owner, rules: vec![rule(vec![owner])] });
    let said = at_service.recv_timeout(LONG).unwrap();
    assert_eq!(said, "service echo can be reached by circuits now");
    assert!(at_monitor.try_recv().is_err());
    stopper.stop();
    serving.join().unwrap();
    handle.stop();
    running.join().unwrap();
}
