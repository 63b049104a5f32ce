//! Death, stop, fork, and the end of a process.

use core::ffi::{CStr, c_void};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr::null_mut;
use std::sync::Mutex;

use corewire_ofi::errors::*;
use corewire_ofi::flags::*;
use corewire_ofi::tagged::MsgTagged;
use corewire_ofi::{FI_ADDR_UNSPEC, FiAddr, IoVec};

use crate::driver::*;

/// Names the role of a process that a test has started.
const ROLE: &str = "COREWIRE_TEST_ROLE";

/// Another process with one node.
struct Other {
    child: Child,
    output: BufReader<ChildStdout>,
    input: ChildStdin,
}

impl Other {
    fn start(role: &str, directory: Option<&Path>) -> Self {
        crate::driver::directory();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::role", "--include-ignored", "--nocapture"]);
        if let Some(directory) = directory {
            command.env("COREWIRE_RUNTIME_DIR", directory).env("COREWIRE_TEST_OWN", "1");
        }
        let mut child =
            command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take().unwrap();
        Self { child, output, input }
    }

    /// The next line that it says.
    fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it has ended");
            if let Some((_, said)) = line.split_once('@') {
                return said.trim().to_owned();
            }
        }
    }

    fn address(&mut self) -> [u8; ADDRESS_BYTES] {
        from_hex(&self.line())
    }

    fn tell(&mut self, address: [u8; ADDRESS_BYTES]) {
        writeln!(self.input, "{}", to_hex(address)).unwrap();
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

/// Runs a process with this role to its end. True if it succeeds.
pub(crate) fn run(role: &str) -> bool {
    Other::start(role, None).child.wait().unwrap().success()
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn to_hex(address: [u8; ADDRESS_BYTES]) -> String {
    address.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> [u8; ADDRESS_BYTES] {
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    std::array::from_fn(byte)
}

fn say(what: &str) {
    println!("@{what}");
    std::io::stdout().flush().unwrap();
}

/// What a process does that a test has started.
#[test]
#[ignore = "the other processes of these tests"]
fn role() {
    match std::env::var(ROLE).as_deref() {
        Ok("echo") => echo(),
        Ok("silent") => silent(),
        Ok("fork") => fork(),
        Ok("exit") => exit(|| {}),
        Ok("exit late") => exit(|| {
            // Called at the end of the process, as by a program that closes MPI there.
            unsafe { libc::atexit(close_late) };
        }),
        Ok("closed") => crate::refusals::closed(),
        _ => {}
    }
}

/// Makes a node, tells the test its address, and learns that of the test.
fn meet() -> (Node, FiAddr) {
    let node = Node::new();
    say(&to_hex(node.address()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let number = node.insert(from_hex(line.trim()));
    (node, number)
}

/// Sends each message back, until it is killed.
fn echo() {
    let (node, to) = meet();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let (mut posted, mut sent) = (context(), context());
        node.receive(1, &mut buffer, &mut posted);
        let length = loop {
            match node.try_read() {
                Ok(entry) => break entry.len,
                Err(status) => assert_eq!(status, -again()),
            }
            std::thread::yield_now();
        };
        node.send(to, 2, &buffer[..length], &mut sent);
        while node.try_read().is_err() {
            std::thread::yield_now();
        }
    }
}

/// Has a node, and does nothing with it until it is killed.
fn silent() {
    let (_node, _) = meet();
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Sends a message to `to` and waits for its echo.
fn ping_pong(node: &Node, to: FiAddr, bytes: &[u8]) {
    let (mut back, mut posted, mut sent) = (vec![0; bytes.len()], context(), context());
    node.receive(2, &mut back, &mut posted);
    node.send(to, 1, bytes, &mut sent);
    let entries = [read(node, &[]), read(node, &[])];
    assert!(entries.iter().any(|entry| is_of(entry, &mut posted)));
    assert!(entries.iter().any(|entry| is_of(entry, &mut sent)));
    assert_eq!(back, bytes);
}

#[test]
fn messages_go_to_another_process_and_back() {
    let mut other = Other::start("echo", None);
    let node = Node::new();
    let to = node.insert(other.address());
    other.tell(node.address());
    for length in [0, 1, 8, 160, 161, 4096, 4097, 64 << 10, 200 << 10, 1 << 20] {
        for round in 0..10u8 {
            let bytes: Vec<u8> = (0..length).map(|at: usize| (at as u8) ^ round).collect();
            ping_pong(&node, to, &bytes);
        }
    }
    drop(other);
    node.close();
}

// Keeps P231.
#[test]
fn what_waits_for_a_killed_process_ends_with_its_name() {
    let mut other = Other::start("echo", None);
    let node = Node::new();
    let address = other.address();
    let to = node.insert(address);
    other.tell(node.address());
    ping_pong(&node, to, b"alive");
    other.signal(rustix::process::Signal::STOP);
    let ep = node.ep;
    let mut contexts = [context(), context(), context()];
    let [receive, send, later] = &mut contexts;
    let (mut got, large) = ([0u8; 8], vec![1u8; 1 << 20]);
    let posted = (&raw mut **receive).cast();
    let at = got.as_mut_ptr().cast();
    assert_eq!(call!(ep.tagged.recv(at, 8, null_mut(), to, 9, 0, posted)), 0);
    let iov = IoVec { base: large.as_ptr().cast_mut().cast(), len: large.len() };
    let msg = MsgTagged {
        msg_iov: &raw const iov,
        desc: null_mut(),
        iov_count: 1,
        addr: to,
        tag: 3,
        ignore: 0,
        context: (&raw mut **send).cast(),
        data: 0,
    };
    assert_eq!(call!(ep.tagged.sendmsg(&raw const msg, FI_MATCH_COMPLETE)), 0);
    assert_eq!(node.try_read().err(), Some(-again()));
    other.child.kill().unwrap();
    let name = String::from_utf8_lossy(&address[24..24 + usize::from(address[5])]).into_owned();
    let mut ended = Vec::new();
    for _ in 0..2 {
        assert_eq!(read_any(&node, &[]).err(), Some(-available()));
        let error = node.read_error();
        assert_eq!(error.err, FI_EIO);
        let cq = node.cq;
        let text = call!(cq.ops.strerror(error.prov_errno, error.err_data, null_mut(), 0));
        let text = unsafe { CStr::from_ptr(text) }.to_str().unwrap();
        assert!(text.contains(&name), "{text} names {name}");
        ended.push(error.op_context);
    }
    ended.sort();
    let mut expected: Vec<*mut c_void> = vec![posted, msg.context];
    expected.sort();
    assert_eq!(ended, expected);
    // Later operations end in the same way.
    let context = (&raw mut **later).cast();
    assert_eq!(call!(ep.tagged.recv(at, 8, null_mut(), to, 9, 0, context)), 0);
    assert_eq!(read_any(&node, &[]).err(), Some(-available()));
    assert_eq!(
        (node.read_error().err, call!(ep.tagged.inject(at, 1, to, 1))),
        (FI_EIO, -(FI_EIO as isize))
    );
    assert_eq!(call!(ep.tagged.send(at, 1, null_mut(), to, 1, context)), 0);
    assert_eq!(read_any(&node, &[]).err(), Some(-available()));
    assert_eq!(node.read_error().err, FI_EIO);
    node.close();
}

// Keeps P231.
#[test]
fn a_stopped_process_holds_up_nobody_else() {
    let (mut stopped, mut other) = (Other::start("echo", None), Other::start("echo", None));
    let node = Node::new();
    let to_stopped = node.insert(stopped.address());
    stopped.signal(rustix::process::Signal::STOP);
    let to = node.insert(other.address());
    other.tell(node.address());
    // Not linked, and its process does not answer: the calls return.
    let (mut sent, mut posted, mut got) = (context(), context(), vec![0; 5]);
    node.receive(2, &mut got, &mut posted);
    let ep = node.ep;
    let context = (&raw mut *sent).cast();
    let status =
        call!(ep.tagged.send(b"early".as_ptr().cast(), 5, null_mut(), to_stopped, 1, context));
    assert_eq!(status, 0);
    let cancelled = unsafe { ((*(*ep).ops).cancel)(ep.cast(), (&raw mut *posted).cast()) };
    assert_eq!(cancelled, 0);
    while node.try_read().err() != Some(-available()) {}
    assert_eq!(node.read_error().err, FI_ECANCELED);
    let mut contexts: Vec<_> = (0..6).map(|_| crate::driver::context()).collect();
    for (length, contexts) in [8, 4096, 1 << 20].into_iter().zip(contexts.chunks_mut(2)) {
        let [posted, lent] = contexts else { unreachable!("pairs") };
        let (message, mut back) = (vec![7; length], vec![0; length]);
        node.receive(2, &mut back, posted);
        node.send(to, 1, &message, lent);
        let mut open = 2;
        while open > 0 {
            let entry = read(&node, &[]);
            open -= u32::from(is_of(&entry, posted) || is_of(&entry, lent));
        }
        assert!(back.iter().all(|&byte| byte == 7));
    }
    // It goes on, and gets its message.
    stopped.tell(node.address());
    node.receive(2, &mut got, &mut posted);
    stopped.signal(rustix::process::Signal::CONT);
    loop {
        if is_of(&read(&node, &[]), &mut posted) {
            break;
        }
    }
    assert_eq!(got, b"early");
    node.close();
}

/// Forks; the child calls everything.
fn fork() {
    let (node, _) = meet();
    let own = node.insert(node.address());
    let (mut got, mut posted) = ([0; 8], context());
    node.inject(own, 4, b"before");
    node.receive(4, &mut got, &mut posted);
    let (ep, cq, av) = (node.ep, node.cq, node.av);
    let (domain, fabric) = (node.domain, node.fabric);
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let (mut entry, mut number, mut made) = (EMPTY, 0u64, null_mut());
        let at = (&raw mut entry).cast();
        let (ctx, address) = ((&raw mut *posted).cast(), node.address_or_nothing());
        let (mut attr, mut eq_attr) = (cq_attr(0, 0), unsafe { std::mem::zeroed() });
        let (mut cq_made, mut domain_made, mut eq_made) = (null_mut(), null_mut(), null_mut());
        let io = -(FI_EIO as isize);
        let results = [
            call!(ep.tagged.inject(at, 8, own, 1)),
            call!(ep.tagged.injectdata(at, 8, 1, own, 1)),
            call!(ep.tagged.send(at, 8, null_mut(), own, 1, ctx)),
            call!(ep.tagged.recv(at, 8, null_mut(), FI_ADDR_UNSPEC, 1, 0, ctx)),
            call!(ep.msg.inject(at, 8, own)),
            call!(ep.msg.send(at, 8, null_mut(), own, ctx)),
            call!(ep.msg.recv(at, 8, null_mut(), FI_ADDR_UNSPEC, ctx)),
            call!(cq.ops.read(at, 1)),
            call!(cq.ops.readerr(null_mut(), 0)),
            unsafe { ((*(*ep).ops).cancel)(ep.cast(), ctx) },
            call!(av.ops.insert(address.as_ptr().cast(), 1, &raw mut number, 0, null_mut()))
                as isize,
            call!(domain.ops.cq_open(&raw mut attr, &raw mut cq_made, null_mut())) as isize,
            call!(domain.ops.endpoint(node.info, &raw mut made, null_mut())) as isize,
            call!(fabric.ops.domain(node.info, &raw mut domain_made, null_mut())) as isize,
            call!(fabric.ops.eq_open(&raw mut eq_attr, &raw mut eq_made, null_mut())) as isize,
            close(ep.cast()) as isize,
            close(cq.cast()) as isize,
        ];
        let wrong = results.iter().position(|&result| result != io);
        let code = wrong.map_or(0, |at| 1 + i32::try_from(at).unwrap_or(99));
        // The handlers at the end of the process leave the parent's objects alone.
        unsafe { libc::exit(code) };
    }
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    say(&format!("child {status}"));
    assert!(is_of(&read(&node, &[]), &mut posted));
    assert_eq!(&got[..6], b"before");
    node.close();
    say("parent is well");
}

impl Node {
    /// The address, or nothing in a forked child.
    fn address_or_nothing(&self) -> [u8; ADDRESS_BYTES] {
        let (mut address, mut length) = ([0; ADDRESS_BYTES], ADDRESS_BYTES);
        let (ep, at) = (self.ep, address.as_mut_ptr().cast());
        unsafe { ((*(*ep).cm).getname)(ep.cast(), at, &raw mut length) };
        address
    }
}

// Keeps P231.
#[test]
fn a_forked_child_gets_errors_and_its_parent_goes_on() {
    let mut other = Other::start("fork", None);
    let address = other.address();
    other.tell(address);
    assert_eq!(other.line(), "child 0", "256 times the number of the call that went through");
    assert_eq!(other.line(), "parent is well");
    assert!(other.child.wait().unwrap().success());
}

static LATE: Mutex<Option<Late>> = Mutex::new(None);

/// What a process closes when it ends.
struct Late(Node, FiAddr);

unsafe impl Send for Late {}

extern "C" fn close_late() {
    let Some(Late(node, own)) = LATE.lock().unwrap().take() else { return };
    let (mut got, mut posted) = ([0; 8], context());
    node.receive(1, &mut got, &mut posted);
    assert_eq!(read(&node, &[]).len, 4);
    node.inject(own, 1, b"late");
    node.close();
    say("closed");
}

/// Ends without closing anything before. A forked child has one thread, as most programs of MPI.
fn exit(prepare: fn()) {
    let pid = unsafe { libc::fork() };
    if pid > 0 {
        let mut status = 1;
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        std::process::exit(status);
    }
    let (node, _) = meet();
    let own = node.insert(node.address());
    node.inject(own, 1, b"left");
    *LATE.lock().unwrap() = Some(Late(node, own));
    prepare();
    say("ends");
    std::process::exit(0);
}

// Keeps P231.
#[test]
fn a_process_that_closes_nothing_leaves_no_files() {
    for (role, last) in [("exit", "ends"), ("exit late", "closed")] {
        let name = format!("{role}-{}", std::process::id());
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut other = Other::start(role, Some(&directory));
        let address = other.address();
        let names = || -> Vec<_> {
            let files = std::fs::read_dir(&directory).unwrap();
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
        };
        assert!(names().iter().any(|name| name.starts_with("p.")));
        other.tell(address);
        while other.line() != last {}
        assert!(other.child.wait().unwrap().success());
        assert_eq!(names(), Vec::<String>::new());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
