//! A service and its clients, as generated code would have them.

use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::time::Duration;

use corewire::Domain;
use corewire_bind::{
    Bind, Binding, Capabilities, ClientId, Description, Dispatch, Identity, Incoming, LaterReply,
    Refusal, Reply, Serve, ServerCore, Wire,
};
use corewire_processes::typed::{ECHO, HELD};
use rustix::event::{PollFd, PollFlags, poll};

use crate::{Options, Outcome};

const fn wire(name: &'static str, ordinal: u16) -> Wire<'static> {
    Wire { name, ordinal, hash: ordinal as u64, bytes_max: 1 << 16, earlier: &[] }
}

static DESCRIPTION: Description<'static> = Description {
    name: "typed",
    hash: 5,
    wires: &[wire("echo_call", ECHO), wire("echo_reply", ECHO), wire("held_call", HELD)],
    form: "",
};

/// Echoes, and keeps what it is to keep without a reply.
struct Echo(Vec<LaterReply>);

impl Dispatch for Echo {
    fn bound(&mut self, _: ClientId, Identity { uid, gid, pid }: Identity) {
        println!("bound uid={uid} gid={gid} pid={pid}");
    }

    fn gone(&mut self, _: ClientId) {
        println!("gone");
    }

    fn not_taken(&mut self, _: ClientId, _: u16) {}

    fn request(
        &mut self,
        ordinal: u16,
        request: Incoming<'_>,
        reply: Reply<'_>,
    ) -> Result<(), Refusal> {
        match ordinal {
            ECHO => reply.send(request.bytes),
            HELD => self.0.push(reply.later(0)),
            _ => {
                reply.unknown();
                return Err(Refusal::Unknown { ordinal });
            }
        }
        Ok(())
    }

    fn message(&mut self, ordinal: u16, _: Incoming<'_>, _: ClientId) -> Result<(), Refusal> {
        Err(Refusal::Unknown { ordinal })
    }
}

/// Serves until its standard input ends.
pub(crate) fn serve(domain: &Domain, options: &Options) -> Outcome {
    let mut core = ServerCore::new(domain, &options.channel, Serve::default(), &DESCRIPTION)?;
    let stopper = core.stopper();
    println!("serving");
    std::thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        stopper.stop();
    });
    let mut echo = Echo(Vec::new());
    while core.serve_one(None, &mut echo)? {}
    Ok(())
}

/// Binds by the driver of `driver=`, says which it was, makes `count` calls, then one that is kept, and says how that
/// ended.
pub(crate) fn call(domain: &Domain, options: &Options) -> Outcome {
    let mut bind = Bind::default().timeout(Duration::from_secs(60));
    if let Some(driver) = options.driver {
        bind = bind.drivers([driver]);
    }
    let mut binding: Binding = match bind.connect(domain, &options.channel, &DESCRIPTION) {
        Ok(binding) => binding,
        Err(error) => {
            println!("refused {error}");
            return Ok(());
        }
    };
    println!("bound {} uid={}", binding.driver(), binding.identity().uid);
    let none = Capabilities::new();
    for number in 0..options.count {
        let reply = binding.call(ECHO, &number.to_le_bytes(), &none, 64, None)?;
        if *reply != number.to_le_bytes() {
            return Err(format!("{number} came back as {reply:?}").into());
        }
    }
    println!("called");
    match binding.call(HELD, &[], &none, 64, None) {
        Ok(_) => println!("ended with a reply"),
        Err(error) => println!("ended {error}"),
    }
    Ok(())
}

/// Sends `count` messages that are none to a service, after binding by hand, and says how that ended.
pub(crate) fn misbehave(domain: &Domain, options: &Options) -> Outcome {
    let socket = domain.connect(&options.channel, Duration::from_secs(60))?;
    let hear = || -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 100_000];
        poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)], None)?;
        let count = match rustix::io::read(&socket, &mut bytes) {
            // The service has not read everything. This is reported once; what it had sent comes behind.
            Err(rustix::io::Errno::CONNRESET) => rustix::io::read(&socket, &mut bytes),
            count => count,
        }?;
        bytes.truncate(count);
        Ok(bytes)
    };
    let message = |tag: u64, part: &[u8]| {
        let mut packet = [tag.to_le_bytes(), [0; 8]].concat();
        packet.extend(u32::try_from(part.len()).unwrap_or(0).to_le_bytes());
        packet.extend([1, 0, 0, 0]);
        packet.extend(part);
        packet
    };
    let mut description = b"crwbind\x01".to_vec();
    description.extend(DESCRIPTION.hash.to_le_bytes());
    description.extend([0, 0, 5]);
    description.extend(b"typed");
    rustix::io::write(&socket, &message(1, &description))?;
    let accepted = hear()?;
    let binding = u64::from_le_bytes(*accepted.first_chunk().ok_or("no answer")?) & 0xffff << 48;
    rustix::io::write(&socket, &message(binding | 4, &[]))?;
    println!("bound");
    for _ in 0..options.count {
        if rustix::io::write(&socket, &message(binding | 77 << 32, b"nothing")).is_err() {
            break;
        }
    }
    loop {
        let packet = hear()?;
        match packet.get(24..) {
            None => break println!("closed"),
            Some(reason) if packet.first() == Some(&3) => {
                println!("cut off: {}", String::from_utf8_lossy(reason));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
