//! A service and its clients, as generated code would have them.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use corewire::Domain;
use corewire_bind::{
    Arrived, Bind, BindError, Binding, Capabilities, ClientId, DecodeError, Description, Dispatch,
    Identity, Incoming, LaterReply, Outbox, Refusal, Reply, Serve, ServerCore, Wire,
};
use corewire_processes::typed::{ECHO, HANDED, HELD, PASS};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::MemfdFlags;

use crate::refuse::{obey, obey_line};
use crate::{Options, Outcome};

const fn wire(name: &'static str, ordinal: u16) -> Wire<'static> {
    Wire { name, ordinal, hash: ordinal as u64, bytes_max: 1 << 16, earlier: &[] }
}

static DESCRIPTION: Description<'static> = Description {
    name: "typed",
    hash: 5,
    wires: &[
        wire("echo_call", ECHO),
        wire("echo_reply", ECHO),
        wire("held_call", HELD),
        wire("pass_call", PASS),
        wire("pass_reply", PASS),
        wire("handed", HANDED),
    ],
    form: "",
};
/// The place of the event in the description.
const HANDED_WIRE: usize = 5;

/// More than any call takes.
const LONG: Duration = Duration::from_secs(60);

/// Echoes, and keeps what it is to keep without a reply.
struct Echo {
    kept: Vec<LaterReply>,
    outbox: Outbox,
}

/// A file in memory with this content.
fn file(content: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("corewire-test", MemfdFlags::CLOEXEC)?);
    file.write_all(content.as_bytes())?;
    Ok(file.into())
}

/// The content of the next descriptor.
fn content(rights: &mut Arrived<'_>) -> Result<String, DecodeError> {
    let file = File::from(rights.descriptor()?);
    let mut bytes = [0; 64];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

impl Dispatch for Echo {
    fn bound(&mut self, _: ClientId, Identity { uid, gid, pid }: Identity) {
        println!("bound uid={uid} gid={gid} pid={pid}");
    }

    fn gone(&mut self, _: ClientId) {
        println!("gone");
    }

    fn not_taken(&mut self, _: ClientId, ordinal: u16) {
        println!("not taken {ordinal}");
    }

    fn request(
        &mut self,
        ordinal: u16,
        request: Incoming<'_>,
        reply: Reply<'_>,
    ) -> Result<(), Refusal> {
        match ordinal {
            ECHO => reply.send(request.bytes()),
            HELD => self.kept.push(reply.later(0)),
            PASS => {
                let (_, mut rights) = request.capabilities("pass");
                let content = content(&mut rights)?;
                let Ok(file) = file(&format!("answer to {content}")) else { return Ok(()) };
                let mut answer = Capabilities::new();
                (0..3).for_each(|_| answer.descriptor(file.as_fd()));
                let client = reply.client();
                // A client that does not get one of them is told.
                let _ = reply.send_all(content.as_bytes(), &answer);
                let handed = vec![Vec::new()];
                let _ = self.outbox.send(Some(client), HANDED, HANDED_WIRE, handed, &answer);
            }
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
    let serve = Serve::default().monitor(Some(options.monitor.clone()));
    let mut core = ServerCore::new(domain, &options.channel, serve, &DESCRIPTION)?;
    let stopper = core.stopper();
    println!("serving");
    obey(move || stopper.stop());
    let mut echo = Echo { kept: Vec::new(), outbox: core.outbox() };
    while core.serve_one(None, &mut echo)? {}
    Ok(())
}

/// Binds by the driver of `driver=`.
fn bind(domain: &Domain, options: &Options) -> Result<Binding, BindError> {
    let mut bind = Bind::default().timeout(options.bind_within).monitor(options.monitor.clone());
    if let Some(driver) = options.driver {
        bind = bind.drivers([driver]);
    }
    bind.connect(domain, &options.channel, &DESCRIPTION)
}

fn echo(binding: &mut Binding, number: u64) -> Outcome {
    let reply = binding.call(ECHO, &number.to_le_bytes(), &Capabilities::new(), 64, None)?;
    if *reply != number.to_le_bytes() {
        return Err(format!("{number} came back as {reply:?}").into());
    }
    Ok(())
}

/// Says by which driver it is bound, makes `count` calls, then one that is kept, and says how that ended.
pub(crate) fn call(domain: &Domain, options: &Options) -> Outcome {
    let mut binding = match bind(domain, options) {
        Ok(binding) => binding,
        Err(error) => {
            println!("refused {error}");
            return Ok(());
        }
    };
    println!("bound {} uid={}", binding.driver(), binding.identity().uid);
    for number in 0..options.count {
        echo(&mut binding, number)?;
    }
    println!("called");
    match binding.call(HELD, &[], &Capabilities::new(), 64, None) {
        Ok(_) => println!("ended with a reply"),
        Err(error) => println!("ended {error}"),
    }
    Ok(())
}

/// Calls until its standard input ends, and says how often it has.
pub(crate) fn keep_calling(domain: &Domain, options: &Options) -> Outcome {
    let mut binding = bind(domain, options)?;
    println!("bound");
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        println!("ended");
        std::process::exit(0);
    });
    for number in 1.. {
        echo(&mut binding, number)?;
        if number % 100 == 0 {
            println!("at {number}");
        }
    }
    Ok(())
}

/// For each line of its input passes so many descriptors, of which the service reads the first, and says what became of
/// them, and of the event that the service sends then. Calls once more: when that is answered, everything before it has
/// been handled everywhere. `hoard N` makes so many more be on their way, as the kernel counts for this user.
pub(crate) fn pass(domain: &Domain, options: &Options) -> Outcome {
    let mut binding = bind(domain, options)?;
    println!("bound {}", binding.driver());
    let mut hoard = Vec::new();
    for (line, number) in io::stdin().lines().zip(1_u64..) {
        let line = line?;
        if obey_line(&line) {
            continue;
        }
        if let Some(count) = line.strip_prefix("hoard ") {
            hoard.push(descriptors_on_their_way(count.parse()?)?);
            println!("hoarding");
            continue;
        }
        let (count, is_served) =
            line.strip_suffix('!').map_or((&*line, false), |count| (count, true));
        let files = (0..count.parse()?).map(|_| file(&format!("file {number}")));
        let files = files.collect::<io::Result<Vec<_>>>()?;
        let mut capabilities = Capabilities::new();
        files.iter().for_each(|file| capabilities.descriptor(file.as_fd()));
        let (answer, is_served) = match binding.call(PASS, &[], &capabilities, 64, Some(LONG)) {
            Err(error) => (error.to_string(), is_served),
            Ok(mut reply) => {
                let text = String::from_utf8_lossy(&reply).into_owned();
                (format!("{text}, {}", content(&mut reply.parts("pass_reply").1)?), true)
            }
        };
        let handed = match is_served.then(|| binding.event(Some(LONG))) {
            None => String::new(),
            Some(Err(error)) => error.to_string(),
            Some(Ok((_, mut event))) => content(&mut event.parts("handed").1)?,
        };
        // What was sent is a copy.
        drop(files);
        echo(&mut binding, number)?;
        println!("passed {answer}; {handed}");
    }
    Ok(())
}

/// Sockets in which so many descriptors wait.
fn descriptors_on_their_way(count: usize) -> io::Result<[OwnedFd; 2]> {
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
        SocketType, sendmsg, socketpair,
    };
    let flags = SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let file = file("")?;
    let all = vec![file.as_fd(); count];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&all));
    sendmsg(&one, &[io::IoSlice::new(b"hoard")], &mut ancillary, SendFlags::empty())?;
    Ok([one, other])
}

/// What a client says of its interface, without its messages.
pub(crate) fn description() -> Vec<u8> {
    let mut description = b"crwbind\x01".to_vec();
    description.extend(DESCRIPTION.hash.to_le_bytes());
    description.extend([0, 0, 5]);
    description.extend(b"typed");
    description
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
    rustix::io::write(&socket, &message(1, &description()))?;
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
