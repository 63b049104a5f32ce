//! The thread that keeps a service at its monitor: attaches as soon as there is one, and again if it has ended.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corewire::{Connector, Domain, NameWatch};
use corewire_circuit::link::attach::{Attached, Data, MonitorAt, attach};
use corewire_circuit::link::control::{Control, MonitorEvent};
use corewire_circuit::patience::Patience;
use corewire_circuit::wire::NodeId;
use corewire_circuit::wire::packet::Packet;
use corewire_os::fork::generation;
use corewire_os::report::Report;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::mailbox::{LinkData, Mail, Mailbox, NewLink};

/// How long a monitor may take to answer.
const ATTACH_WITHIN: Duration = Duration::from_secs(5);
/// How soon it is asked again, unless names change before.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The handle of the thread. Dropping it ends the thread, after the link has been closed.
pub(super) struct Exporter {
    shared: Arc<Shared>,
    generation: u32,
}

struct Shared {
    wake: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    must_end: bool,
    control: Option<Arc<Control>>,
}

impl Exporter {
    pub(super) fn start(
        domain: &Domain,
        at: MonitorAt,
        mailbox: Arc<Mailbox>,
        connector: Connector,
        report: Report,
    ) -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { wake, state: Mutex::default() });
        let domain = at.domain_or(domain).clone();
        let said = String::new();
        let mut thread =
            Thread { domain, at, mailbox, connector, report, said, shared: Arc::clone(&shared) };
        let name = "corewire-export".to_owned();
        let spawned = std::thread::Builder::new().name(name).stack_size(512 << 10);
        spawned.spawn(move || thread.run())?;
        Ok(Self { shared, generation: generation() })
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // A forked child has no such thread, and must leave its parent's alone.
        if self.generation != generation() {
            return;
        }
        let control = {
            let mut state = self.shared.lock();
            state.must_end = true;
            state.control.take()
        };
        if let Some(control) = control {
            control.end();
        }
        // It ends by itself: a monitor that does not answer must not hold up anybody.
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_le_bytes());
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Thread {
    domain: Domain,
    at: MonitorAt,
    mailbox: Arc<Mailbox>,
    connector: Connector,
    report: Report,
    /// Why the service cannot be reached by circuits, as far as that was told; else empty.
    said: String,
    shared: Arc<Shared>,
}

impl Thread {
    fn run(&mut self) {
        corewire_os::process::block_all_signals();
        // Before the first look: a monitor that starts after it changes a file.
        let watch = self.domain.watch_names().ok();
        while !self.shared.lock().must_end {
            if let Some(node) = self.at.find(&self.domain) {
                let connector = (!self.domain.is_guest()).then_some(&self.connector);
                let until = Patience::of(Some(ATTACH_WITHIN));
                if let Ok(attached) = attach(&self.domain, node, connector, until) {
                    self.serve(node, attached);
                    continue;
                }
            }
            self.wait(watch.as_ref());
        }
    }

    /// Waits until names change, or for a while.
    fn wait(&self, watch: Option<&NameWatch>) {
        let mut all = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        all.extend(watch.map(|watch| PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)));
        let left = Timespec::try_from(ASK_AGAIN).ok();
        let _ = poll(&mut all, left.as_ref());
        let _ = watch.is_some_and(NameWatch::has_changed);
    }

    fn serve(&mut self, node: NodeId, attached: Attached) {
        let Attached { lane, data } = attached;
        let Ok(control) = Control::new(lane) else { return };
        {
            let mut state = self.shared.lock();
            if state.must_end {
                return;
            }
            state.control = Some(Arc::clone(&control));
        }
        let (data, socket) = match data {
            Data::Ring { endpoint, secret } => (LinkData::Ring { endpoint, secret }, None),
            Data::Socket(socket) => {
                let socket = Arc::new(socket);
                (LinkData::Socket(Arc::clone(&socket)), Some(socket))
            }
        };
        let link = NewLink { control: Arc::clone(&control), data };
        if self.mailbox.put(Mail::Link(Box::new(link))).is_err() {
            return;
        }
        let began = Instant::now();
        let mut refused = String::new();
        let said = &mut self.said;
        control.run(socket.as_deref(), |news| match news {
            MonitorEvent::Packet(Packet::Ready, _) => {
                let name = self.mailbox.name().to_owned();
                control.send(&Packet::Export { name }, Vec::new());
            }
            // Other ways to the service stay. The name may belong to a process that is about to end, and a policy may
            // change: the monitor is asked again.
            MonitorEvent::Packet(Packet::Exported { reason, .. }, _) => {
                if !reason.is_empty() {
                    control.end();
                }
                // It is asked every second.
                if reason != *said {
                    let name = self.mailbox.name();
                    (self.report.0)(&match reason.is_empty() {
                        true => format!("service {name} can be reached by circuits now"),
                        false => format!(
                            "service {name} cannot be reached by circuits: monitor {node}: {reason}"
                        ),
                    });
                    said.clone_from(&reason);
                }
                refused = reason;
            }
            news => self.mailbox.put_news(&control, news),
        });
        self.shared.lock().control = None;
        let link_is_gone = MonitorEvent::Lost("the monitor does not export the service".to_owned());
        if !refused.is_empty() {
            self.mailbox.put_news(&control, link_is_gone);
        }
        // A monitor that ends the link at once is not asked again and again.
        if began.elapsed() < ASK_AGAIN && !self.shared.lock().must_end {
            self.wait(None);
        }
    }
}
