//! A service written by hand, as generated code would be.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use corewire_bind::{
    Bind, Binding, Capabilities, ClientId, Description, Dispatch, Domain, Driver, Identity,
    Incoming, LaterReply, Outbox, Refusal, Reply, Serve, ServerCore, Stopper, Wire,
};

/// Returns the request.
pub(crate) const ECHO: u16 = 1;
/// Is remembered. `LOG` returns everything.
pub(crate) const NOTE: u16 = 2;
/// What the service sends.
pub(crate) const EVENT: u16 = 3;
/// Returns a string's length once `RELEASE` has been called.
pub(crate) const HELD: u16 = 4;
pub(crate) const RELEASE: u16 = 5;
/// Returns the descriptors of the request.
pub(crate) const RIGHTS: u16 = 6;
/// Is dropped.
pub(crate) const DROPPED: u16 = 7;
/// Sends as many events of 64 bytes as the request says.
pub(crate) const BURST: u16 = 8;
pub(crate) const LOG: u16 = 9;

pub(crate) const BYTES_MAX: u32 = 1 << 20;

const fn wire(name: &'static str, ordinal: u16) -> Wire<'static> {
    Wire { name, ordinal, hash: ordinal as u64, bytes_max: BYTES_MAX, earlier: &[] }
}

pub(crate) static DESCRIPTION: Description<'static> = Description {
    name: "echo",
    hash: 77,
    wires: &[
        wire("echo_call", ECHO),
        wire("echo_reply", ECHO),
        wire("note", NOTE),
        wire("event", EVENT),
        wire("held_call", HELD),
        wire("rights_call", RIGHTS),
    ],
    form: "{}",
};

#[derive(Default)]
pub(crate) struct Echo {
    outbox: Option<Outbox>,
    held: Vec<(LaterReply, usize)>,
    notes: Vec<u8>,
    pub(crate) bound: Vec<(ClientId, Identity)>,
    pub(crate) gone: Vec<ClientId>,
}

impl Dispatch for Echo {
    fn bound(&mut self, client: ClientId, identity: Identity) {
        self.bound.push((client, identity));
    }

    fn gone(&mut self, client: ClientId) {
        self.gone.push(client);
    }

    fn not_taken(&mut self, _client: ClientId, _ordinal: u16) {}

    fn request(
        &mut self,
        ordinal: u16,
        request: Incoming<'_>,
        reply: Reply<'_>,
    ) -> Result<(), Refusal> {
        match ordinal {
            ECHO => reply.send(request.bytes()),
            HELD => self.held.push((reply.later(0), request.bytes().len())),
            RELEASE => {
                for (reply, length) in self.held.drain(..).rev() {
                    reply.send(&(length as u64).to_le_bytes());
                }
                reply.send(b"");
            }
            RIGHTS => {
                let (_, mut rights) = request.capabilities("rights");
                let first = rights.descriptor()?;
                let second = rights.descriptor()?;
                rights.finish()?;
                let mut capabilities = Capabilities::new();
                capabilities.descriptor(second.as_fd());
                capabilities.descriptor(first.as_fd());
                reply.send_all(b"swapped", &capabilities).unwrap();
            }
            DROPPED => drop(reply),
            BURST => {
                let count =
                    request.bytes().first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
                let count = count.min(100_000);
                let outbox = self.outbox.as_ref().unwrap();
                for number in 0..count {
                    let mut event = [0; 64];
                    event[..8].copy_from_slice(&number.to_le_bytes());
                    let client = Some(reply.client());
                    outbox.send(client, EVENT, 3, vec![event.to_vec()], &Capabilities::new()).ok();
                }
                reply.send(b"");
            }
            LOG => reply.send(&self.notes),
            _ => {
                reply.unknown();
                return Err(Refusal::Unknown { ordinal });
            }
        }
        Ok(())
    }

    fn message(
        &mut self,
        ordinal: u16,
        message: Incoming<'_>,
        _client: ClientId,
    ) -> Result<(), Refusal> {
        if ordinal != NOTE {
            return Err(Refusal::Unknown { ordinal });
        }
        self.notes.extend_from_slice(message.bytes());
        Ok(())
    }
}

/// A domain in a directory of its own.
pub(crate) struct Place {
    pub(crate) domain: Domain,
    path: PathBuf,
    #[cfg(feature = "net")]
    far: Far,
}

/// The domain of another host, whose processes reach those of the place.
#[cfg(feature = "net")]
struct Far {
    domain: Domain,
    _gateway: corewire::Gateway,
}

#[cfg(feature = "net")]
impl Far {
    fn new(path: &std::path::Path, domain: &Domain) -> Self {
        let gateway = domain.gateway("127.0.0.1:0").unwrap();
        let hosts = format!(
            "[hosts.a]\naddresses = [\"127.0.0.1:1\"]\n[hosts.b]\naddresses = [\"{}\"]\n\
             [[allow]]\nhosts = [\"a\"]\nendpoints = [\"echo\"]\n",
            gateway.address()
        );
        for own in ["a", "b"] {
            let file = path.join(format!("{own}.toml"));
            std::fs::write(file, format!("own = {own:?}\n{hosts}")).unwrap();
        }
        let far = Domain::builder().path(&path.join("far")).hosts(&path.join("a.toml"));
        Self { domain: far.open().unwrap(), _gateway: gateway }
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("corewire-bind-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        #[cfg(not(feature = "net"))]
        return Self { domain: Domain::open_at(&path).unwrap(), path };
        #[cfg(feature = "net")]
        {
            let domain = Domain::builder().path(&path).hosts(&path.join("b.toml")).open().unwrap();
            let far = Far::new(&path, &domain);
            Self { domain, path, far }
        }
    }

    /// What a client calls the service.
    pub(crate) fn name(driver: Driver) -> &'static str {
        if driver == Driver::Net { "echo@b" } else { "echo" }
    }

    /// A client of the service that runs in the domain.
    pub(crate) fn bind(&self, driver: Driver) -> Binding {
        let bind = Bind::default().drivers([driver]);
        #[cfg(feature = "net")]
        if driver == Driver::Net {
            return bind.connect(&self.far.domain, Self::name(driver), &DESCRIPTION).unwrap();
        }
        bind.connect(&self.domain, Self::name(driver), &DESCRIPTION).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The service in a thread.
pub(crate) struct Running {
    pub(crate) stopper: Stopper,
    thread: Option<JoinHandle<Echo>>,
}

impl Running {
    pub(crate) fn start(domain: &Domain) -> Self {
        let mut core = ServerCore::new(domain, "echo", Serve::default(), &DESCRIPTION).unwrap();
        let (stopper, outbox) = (core.stopper(), core.outbox());
        let (held, notes, bound, gone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut echo = Echo { outbox: Some(outbox), held, notes, bound, gone };
        let thread = std::thread::spawn(move || {
            while core.serve_one(None, &mut echo).unwrap() {}
            echo
        });
        Self { stopper, thread: Some(thread) }
    }

    /// Ends it, and returns what it knew.
    pub(crate) fn end(mut self) -> Echo {
        self.stopper.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

pub(crate) fn bind(domain: &Domain, driver: Driver) -> Binding {
    Bind::default().drivers([driver]).connect(domain, "echo", &DESCRIPTION).unwrap()
}
