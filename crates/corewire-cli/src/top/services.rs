//! Services: what they have served, and how fast.

use corewire_bind::MethodTotals;
use serde::Serialize;

use super::counting::per_second;
use crate::seen;
use crate::served::percentile;

/// A service, with its rates since the look before.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) interface: String,
    /// Clients that are bound.
    pub(crate) clients: usize,
    #[serde(flatten)]
    pub(crate) served: Calls,
    pub(crate) methods: Vec<Method>,
}

/// A method of a service.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Method {
    pub(crate) method: String,
    #[serde(flatten)]
    pub(crate) served: Calls,
}

/// What was called: since the service began, and since the look before.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Calls {
    pub(crate) requests: u64,
    /// Calls that failed.
    pub(crate) errors: u64,
    pub(crate) requests_per_s: f64,
    pub(crate) errors_per_s: f64,
    /// Of requests and replies.
    pub(crate) bytes_per_s: f64,
    /// Of the calls since the look before; of all calls if none of these was timed.
    pub(crate) p50_ns: Option<u64>,
    pub(crate) p99_ns: Option<u64>,
}

impl Service {
    /// With what it had served at the look before, and the seconds since then. `None` if it serves no interface.
    pub(super) fn between(
        before: Option<(&[MethodTotals], f64)>,
        now: &seen::Service,
    ) -> Option<Self> {
        let bindings = now.bindings.as_ref()?;
        let earlier = |method: &str| {
            let (before, seconds) = before?;
            // One that had not been called then had nothing.
            let found = before.iter().find(|one| one.method == method).cloned();
            Some((found.unwrap_or_default(), seconds))
        };
        let methods = now.totals.iter().map(|one| {
            let served = Calls::between(earlier(&one.method), one);
            Method { method: one.method.clone(), served }
        });
        let all = MethodTotals::sum(&now.totals);
        let all_before = before.map(|(before, seconds)| (MethodTotals::sum(before), seconds));
        Some(Self {
            name: now.view.name.clone(),
            pid: now.view.pid,
            interface: bindings.interface.clone(),
            clients: bindings.clients.len(),
            served: Calls::between(all_before, &all),
            methods: methods.collect(),
        })
    }
}

impl Calls {
    fn between(before: Option<(MethodTotals, f64)>, now: &MethodTotals) -> Self {
        let rate = |of: fn(&MethodTotals) -> u64| {
            before.as_ref().map_or(0.0, |(before, s)| per_second(of(before), of(now), *s))
        };
        let timed = before.as_ref().map(|(before, _)| now.times.since(&before.times));
        let timed = timed.filter(|times| times.count() > 0);
        let times = timed.as_ref().unwrap_or(&now.times);
        Self {
            requests: now.requests,
            errors: now.errors,
            requests_per_s: rate(|totals| totals.requests),
            errors_per_s: rate(|totals| totals.errors),
            bytes_per_s: rate(|totals| totals.request_bytes.saturating_add(totals.reply_bytes)),
            p50_ns: percentile(times, 50.0),
            p99_ns: percentile(times, 99.0),
        }
    }
}
