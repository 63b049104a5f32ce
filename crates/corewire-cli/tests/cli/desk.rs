//! A service for tests, in a thread: its interface is a file, and arguments and replies are JSON.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread::JoinHandle;

use corewire::{Domain, WindowRights};
use corewire_bind::{
    Capabilities, ClientId, Description, Dispatch, Identity, Incoming, LaterReply, Outbox, Pulled,
    Refusal, Reply, Serve, ServerCore, Stopper, Wire,
};
use corewire_idl::form::Interface;
use corewire_idl::{Check, Source, json};
use serde_json::{Value, json};

pub(crate) const FILE: &str = "edition 1;

/// For tests.
interface desk \"A desk\" {
    errors problem { OVERFLOW, EMPTY };
    errors trouble detailed { FULL(uint32 limit, String why[20]), GONE };

    typedef struct {
        int64 left;
        int64 right;
    } pair;

    /// Adds two numbers.
    rpc add @1(in pair numbers, out int64 sum) ! problem;

    /// Everybody hears of it.
    message note @2(String line[300000]);
    event noted @3(String line[300000]);
    rpc swap @4(in fd first, in cap second, out cap second, out fd first);
    rpc give @5(in fd file, out fd file);
    rpc hold @6();
    rpc drop @7();
    event bell @8(uint32 strokes);
    rpc forward @9(in endpoint to, out endpoint to);
    rpc share @11(in window memory, out window memory);
    rpc list @10(in uint32 count) stream(out String name[20], out float64 price) ! trouble;
}
";

pub(crate) fn interface() -> Interface {
    Check::new(Source::new("desk.if", FILE)).run().into_result().unwrap().0
}

/// The description of an interface for a service.
fn description(interface: &'static Interface) -> &'static Description<'static> {
    let wire = |(message, wire): (
        &'static corewire_idl::form::Message,
        &'static corewire_idl::form::Wire,
    )| Wire {
        name: &wire.name,
        ordinal: message.ordinal,
        hash: wire.hash.0,
        bytes_max: wire.layout.bytes_max,
        earlier: &[],
    };
    let wires = interface.wires().map(wire).collect::<Vec<_>>();
    Box::leak(Box::new(Description {
        name: &interface.name,
        hash: interface.hash.0,
        wires: Vec::leak(wires),
        form: String::leak(interface.to_json()),
    }))
}

pub(crate) fn core(domain: &Domain, name: &str) -> (ServerCore, Desk) {
    let interface: &'static Interface = Box::leak(Box::new(interface()));
    let core = ServerCore::new(domain, name, Serve::default(), description(interface)).unwrap();
    let (domain, outbox) = (domain.clone(), core.outbox());
    let desk = Desk { interface, domain, outbox, held: Vec::new() };
    (core, desk)
}

/// What handles requests.
pub(crate) struct Desk {
    interface: &'static Interface,
    domain: Domain,
    outbox: Outbox,
    held: Vec<LaterReply>,
}

impl Desk {
    fn decode(&self, name: &str, bytes: &[u8]) -> Value {
        let message = self.interface.message(name).unwrap();
        json::decode(self.interface, message, &message.wires[0], bytes).unwrap()
    }
}

/// Sends an event to all clients.
pub(crate) fn announce(outbox: &Outbox, name: &str, arguments: &Value) {
    let interface = interface();
    let (wire, (message, of)) =
        interface.wires().enumerate().find(|(_, (message, _))| message.name == name).unwrap();
    let bytes = json::encode(&interface, message, of, arguments).unwrap().bytes;
    outbox.send(None, message.ordinal, wire, vec![bytes], &Capabilities::new()).unwrap();
}

impl Dispatch for Desk {
    fn bound(&mut self, _client: ClientId, _identity: Identity) {}

    fn gone(&mut self, _client: ClientId) {}

    fn not_taken(&mut self, _client: ClientId, _ordinal: u16) {}

    fn request(
        &mut self,
        ordinal: u16,
        request: Incoming<'_>,
        reply: Reply<'_>,
    ) -> Result<(), Refusal> {
        let messages = &self.interface.messages;
        let message = messages.iter().find(|one| one.ordinal == ordinal).unwrap();
        let encode = |value: Value| {
            json::encode(self.interface, message, &message.wires[1], &value).unwrap().bytes
        };
        match message.name.as_str() {
            "add" => {
                let numbers = &self.decode("add", request.bytes())["numbers"];
                let (left, right) =
                    (numbers["left"].as_i64().unwrap(), numbers["right"].as_i64().unwrap());
                let answer = match left.checked_add(right) {
                    Some(sum) => json!({ "sum": sum }),
                    None => json!({ "error": "OVERFLOW" }),
                };
                reply.send(&encode(answer));
            }
            "swap" => {
                let (_, mut rights) = request.capabilities("swap");
                let all: Vec<OwnedFd> = std::iter::from_fn(|| rights.descriptor().ok()).collect();
                let mut capabilities = Capabilities::new();
                all.iter().rev().for_each(|one| capabilities.descriptor(one.as_fd()));
                let answer = json!({ "second": { "capability": 0 }, "first": { "capability": 1 } });
                reply.send_all(&encode(answer), &capabilities).unwrap();
            }
            "give" => {
                let (_, mut rights) = request.capabilities("give");
                let file = rights.descriptor()?;
                let mut capabilities = Capabilities::new();
                capabilities.descriptor(file.as_fd());
                let answer = json!({ "file": { "capability": 0 } });
                reply.send_all(&encode(answer), &capabilities).unwrap();
            }
            "forward" => {
                let (_, mut rights) = request.capabilities("forward");
                let to = rights.endpoint()?;
                assert_eq!(to.name(), "someone");
                let mut capabilities = Capabilities::new();
                capabilities.endpoint(&to);
                let answer = json!({ "to": { "capability": 0 } });
                reply.send_all(&encode(answer), &capabilities).unwrap();
            }
            "share" => {
                let (_, mut rights) = request.capabilities("share");
                let memory = rights.window()?;
                let window = self.domain.attach_window_of(memory.handle(), WindowRights::WRITE);
                window.unwrap().put(0, b"shared").unwrap();
                let mut capabilities = Capabilities::new();
                capabilities.window(&memory);
                let answer = json!({ "memory": { "capability": 0 } });
                reply.send_all(&encode(answer), &capabilities).unwrap();
            }
            "list" => {
                let count = self.decode("list", request.bytes())["count"].as_u64().unwrap();
                let (interface, mut next) = (self.interface, 0);
                let message = interface.message("list").unwrap();
                reply.stream(move |out| {
                    next += 1;
                    let (wire, value, pulled) = match next > count {
                        false => {
                            let name = format!("n{next}");
                            let part = json!({ "name": name, "price": 0.5 * next as f64 });
                            (2, part, Pulled::Part)
                        }
                        true if count == 3 => {
                            let details = json!({ "limit": 3, "why": "full" });
                            (1, json!({ "error": { "FULL": details } }), Pulled::End)
                        }
                        true if count == 4 => (1, json!({ "error": "GONE" }), Pulled::End),
                        true => (1, json!({}), Pulled::End),
                    };
                    *out = json::encode(interface, message, &message.wires[wire], &value)
                        .unwrap()
                        .bytes;
                    Ok(pulled)
                });
            }
            "hold" => {
                announce(&self.outbox, "bell", &json!({ "strokes": 1 }));
                self.held.push(reply.later(0));
            }
            _ => drop(reply),
        }
        Ok(())
    }

    fn message(
        &mut self,
        _ordinal: u16,
        message: Incoming<'_>,
        _client: ClientId,
    ) -> Result<(), Refusal> {
        let line = self.decode("note", message.bytes());
        announce(&self.outbox, "noted", &line);
        Ok(())
    }
}

/// The service in a thread.
pub(crate) struct Serving {
    pub(crate) outbox: Outbox,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    pub(crate) fn start(runtime: &Path, name: &str) -> Self {
        Self::start_in(&Domain::open_at(runtime).unwrap(), name)
    }

    pub(crate) fn start_in(domain: &Domain, name: &str) -> Self {
        let (mut core, mut desk) = core(domain, name);
        let (stopper, outbox) = (core.stopper(), core.outbox());
        let thread = std::thread::spawn(move || while core.serve_one(None, &mut desk).unwrap() {});
        Self { outbox, stopper, thread: Some(thread) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stopper.stop();
        let _ = self.thread.take().unwrap().join();
    }
}
