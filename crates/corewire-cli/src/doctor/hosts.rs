//! The file of other hosts: whether it can be used, what it leaves open, and whether they answer.

use std::thread;
use std::time::Duration;

use corewire_net::hosts::{Hosts, HostsError};
use corewire_net::{open, tls};

use super::Finding;
use crate::units;

/// How long a host may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
/// A certificate should be good for so many days.
const GOOD_DAYS: u64 = 30;

/// Nothing if there is no file.
pub(super) fn checks() -> Vec<Finding> {
    let hosts = match Hosts::find() {
        Err(HostsError::Missing) => return Vec::new(),
        Err(error) => {
            let advice = "endpoints reach no other host, and none reaches them: see docs/hosts.md";
            return vec![Finding::bad("hosts", error.to_string(), advice)];
        }
        Ok(hosts) => hosts,
    };
    let mut findings = vec![file(&hosts)];
    findings.extend(certificate(&hosts));
    findings.extend(insecure(&hosts));
    findings.extend(answers(&hosts));
    findings
}

fn file(hosts: &Hosts) -> Finding {
    let count = units::counted(hosts.all().count(), "host", "hosts");
    let path = units::printable(&hosts.path().to_string_lossy());
    Finding::good("hosts", format!("{path} names {count}; this one is {}", hosts.own()))
}

fn certificate(hosts: &Hosts) -> Option<Finding> {
    let check = "certificate";
    let files = hosts.tls()?;
    let path = units::printable(&files.certificate.to_string_lossy());
    if let Err(error) = tls::is_good_in(files, 0) {
        let advice = "no other host takes connections of this one, or is let in: see docs/hosts.md";
        return Some(Finding::bad(check, error.to_string(), advice));
    }
    let days = (0..=GOOD_DAYS).rev().find(|days| tls::is_good_in(files, *days).is_ok());
    match days {
        Some(GOOD_DAYS) => {
            Some(Finding::good(check, format!("{path} is good for {GOOD_DAYS} days at least")))
        }
        days => {
            let left =
                units::counted(usize::try_from(days.unwrap_or(0)).unwrap_or(0), "day", "days");
            let advice = "replace it: the new one counts from the next connection on";
            Some(Finding::improvable(check, format!("{path} ends in {left}"), advice))
        }
    }
}

fn insecure(hosts: &Hosts) -> Option<Finding> {
    let names = hosts.all().filter(|(_, host)| host.is_insecure).map(|(name, _)| name.as_str());
    let names = names.collect::<Vec<_>>();
    if names.is_empty() {
        return None;
    }
    let found = format!("connections with {} have no TLS", names.join(", "));
    let advice = "everybody in between can read and change everything: give both certificates, and remove \
                  `insecure`";
    Some(Finding::improvable("insecure hosts", found, advice))
}

/// All are asked at the same time.
fn answers(hosts: &Hosts) -> Option<Finding> {
    let check = "hosts answer";
    let names = || hosts.all().map(|(name, _)| name).filter(|name| *name != hosts.own());
    let silent = thread::scope(|scope| {
        let asked = names()
            .map(|name| scope.spawn(move || (name, open::reach(hosts, name, ANSWERS_WITHIN))));
        let asked = asked.collect::<Vec<_>>();
        let answers = asked.into_iter().filter_map(|asked| asked.join().ok());
        let failed =
            answers.filter_map(|(name, answer)| Some(format!("{name}: {}", answer.err()?)));
        failed.collect::<Vec<_>>()
    });
    match (silent.len(), names().count()) {
        (0, 0) => None,
        (0, count) => {
            let count = units::counted(count, "host takes", "hosts take");
            Some(Finding::good(check, format!("{count} connections")))
        }
        _ => {
            let advice = "start an endpoint that listens there, or corewire monitor --listen";
            Some(Finding::improvable(check, silent.join("; "), advice))
        }
    }
}
