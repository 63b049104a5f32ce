//! ZeroMQ, which is looked for when a bench runs: the program is not linked to it. The functions and numbers here are those
//! of `zmq.h`, which are the same in all versions from 4.0 on.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use corewire_harness::failure::{Doing, Failure};
use corewire_os::processor;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

const LIBRARY: &str = "libzmq.so.5";

const ZMQ_SUBSCRIBE: c_int = 6;
const ZMQ_LINGER: c_int = 17;
const ZMQ_RCVTIMEO: c_int = 27;
const ZMQ_SNDTIMEO: c_int = 28;
const ZMQ_CONFLATE: c_int = 54;
const ZMQ_DONTWAIT: c_int = 1;
const ZMQ_SNDMORE: c_int = 2;
const EINTR: c_int = 4;
const EAGAIN: c_int = 11;

/// How long a socket waits before it is taken for an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// The kind of a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Pub = 1,
    Sub = 2,
    Req = 3,
    Router = 6,
    Pull = 7,
    Push = 8,
}

type Any = *mut c_void;

/// The functions of the library.
struct Api {
    ctx_new: unsafe extern "C" fn() -> Any,
    ctx_term: unsafe extern "C" fn(Any) -> c_int,
    socket: unsafe extern "C" fn(Any, c_int) -> Any,
    close: unsafe extern "C" fn(Any) -> c_int,
    setsockopt: unsafe extern "C" fn(Any, c_int, *const c_void, usize) -> c_int,
    bind: unsafe extern "C" fn(Any, *const c_char) -> c_int,
    connect: unsafe extern "C" fn(Any, *const c_char) -> c_int,
    send: unsafe extern "C" fn(Any, *const c_void, usize, c_int) -> c_int,
    recv: unsafe extern "C" fn(Any, *mut c_void, usize, c_int) -> c_int,
    errno: unsafe extern "C" fn() -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int),
    /// Kept loaded.
    _library: Library,
}

impl Api {
    fn load() -> Result<Self, libloading::Error> {
        // SAFETY: loading the library runs the same initialization as in any program that is linked to it.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL) }?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: `zmq.h` declares the function with the type of the field.
                *unsafe { library.get($name) }?
            };
        }
        Ok(Self {
            ctx_new: function!(b"zmq_ctx_new"),
            ctx_term: function!(b"zmq_ctx_term"),
            socket: function!(b"zmq_socket"),
            close: function!(b"zmq_close"),
            setsockopt: function!(b"zmq_setsockopt"),
            bind: function!(b"zmq_bind"),
            connect: function!(b"zmq_connect"),
            send: function!(b"zmq_send"),
            recv: function!(b"zmq_recv"),
            errno: function!(b"zmq_errno"),
            strerror: function!(b"zmq_strerror"),
            version: function!(b"zmq_version"),
            _library: library,
        })
    }

    fn get() -> Result<&'static Self, Failure> {
        static API: OnceLock<Result<Api, String>> = OnceLock::new();
        let api = API.get_or_init(|| Self::load().map_err(|error| error.to_string()));
        api.as_ref().map_err(|error| {
            Failure::other(format!("ZeroMQ is not here: {error} (Debian: libzmq5)"))
        })
    }

    fn errno(&self) -> c_int {
        // SAFETY: it reads a variable of this thread.
        unsafe { (self.errno)() }
    }

    /// The failure of the last call of this thread.
    #[cold]
    fn failure(&self, what: &str) -> Failure {
        // SAFETY: it takes any number.
        let text = unsafe { (self.strerror)(self.errno()) };
        // SAFETY: a text without an end of life.
        let text = unsafe { CStr::from_ptr(text) };
        Failure::other(format!("cannot {what} with ZeroMQ: {}", text.to_string_lossy()))
    }
}

/// The version of the library, such as `4.3.4`.
///
/// # Errors
/// If there is none: one sentence.
pub(crate) fn version() -> Result<String, Failure> {
    let api = Api::get()?;
    let mut parts: [c_int; 3] = [0; 3];
    let [major, minor, patch] = &mut parts;
    // SAFETY: three places for a number each.
    unsafe { (api.version)(major, minor, patch) };
    Ok(parts.map(|part| part.to_string()).join("."))
}

/// A context, with its default of one thread for input and output.
struct Context {
    api: &'static Api,
    context: Any,
}

impl Context {
    fn new() -> Result<Self, Failure> {
        let api = Api::get()?;
        // SAFETY: it has no requirements.
        let context = unsafe { (api.ctx_new)() };
        if context.is_null() {
            return Err(api.failure("make a context"));
        }
        Ok(Self { api, context })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: its only socket is closed: a socket's fields are dropped after it.
        unsafe { (self.api.ctx_term)(self.context) };
    }
}

/// A socket of one thread, with a context of its own.
pub(crate) struct Socket {
    socket: Any,
    context: Context,
}

impl Socket {
    /// A socket that discards what it has not sent when it is dropped. The thread of its context may run on all of `cpus`;
    /// it would keep to the processor of this thread otherwise, which may poll.
    pub(crate) fn open(cpus: &[usize], kind: Kind) -> Result<Self, Failure> {
        let own = processor::allowed()?;
        processor::keep_to(cpus)?;
        let context = Context::new()?;
        let api = context.api;
        // SAFETY: the context is not terminated before the socket is closed.
        let socket = unsafe { (api.socket)(context.context, kind as c_int) };
        processor::keep_to(&own)?;
        if socket.is_null() {
            return Err(api.failure("make a socket"));
        }
        let socket = Self { socket, context };
        let patience = c_int::try_from(PATIENCE.as_millis()).doing("count milliseconds")?;
        socket.set(ZMQ_LINGER, 0)?;
        socket.set(ZMQ_RCVTIMEO, patience)?;
        socket.set(ZMQ_SNDTIMEO, patience)?;
        Ok(socket)
    }

    fn set(&self, option: c_int, value: c_int) -> Result<(), Failure> {
        let (place, bytes) = ((&raw const value).cast(), size_of::<c_int>());
        // SAFETY: the socket is open, and the option is a number of this size.
        let result = unsafe { (self.context.api.setsockopt)(self.socket, option, place, bytes) };
        self.check(result, "set an option")
    }

    /// Keeps the newest message only, in each direction.
    pub(crate) fn conflate(&self) -> Result<(), Failure> {
        self.set(ZMQ_CONFLATE, 1)
    }

    /// Receives all messages of publishers.
    pub(crate) fn subscribe(&self) -> Result<(), Failure> {
        let setsockopt = self.context.api.setsockopt;
        // SAFETY: the socket is open; an empty prefix needs no place.
        let result = unsafe { setsockopt(self.socket, ZMQ_SUBSCRIBE, c"".as_ptr().cast(), 0) };
        self.check(result, "subscribe")
    }

    /// Accepts connections at a path.
    pub(crate) fn bind(&self, path: &Path) -> Result<(), Failure> {
        let address = address(path)?;
        // SAFETY: the socket is open, and the address ends with a zero.
        let result = unsafe { (self.context.api.bind)(self.socket, address.as_ptr()) };
        self.check(result, "bind")
    }

    /// Connects to a path, which may be bound later.
    pub(crate) fn connect(&self, path: &Path) -> Result<(), Failure> {
        let address = address(path)?;
        // SAFETY: the socket is open, and the address ends with a zero.
        let result = unsafe { (self.context.api.connect)(self.socket, address.as_ptr()) };
        self.check(result, "connect")
    }

    /// Sends a part of a message; `has_more`: another part follows.
    #[inline]
    pub(crate) fn send(&self, part: &[u8], has_more: bool) -> Result<(), Failure> {
        let flags = if has_more { ZMQ_SNDMORE } else { 0 };
        loop {
            // SAFETY: the socket is open, and the bytes are copied.
            let result = unsafe {
                (self.context.api.send)(self.socket, part.as_ptr().cast(), part.len(), flags)
            };
            if result >= 0 {
                return Ok(());
            }
            if self.context.api.errno() != EINTR {
                return Err(self.context.api.failure("send"));
            }
        }
    }

    /// Waits for a part of a message, and returns its length. What is longer than the buffer is cut off.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Failure> {
        loop {
            match self.receive_with(buffer, 0) {
                Ok(length) => return Ok(length),
                Err(EINTR) => {}
                Err(_) => return Err(self.context.api.failure("receive")),
            }
        }
    }

    /// The same, without waiting: `None` if there is none.
    #[inline]
    pub(crate) fn try_receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Failure> {
        match self.receive_with(buffer, ZMQ_DONTWAIT) {
            Ok(length) => Ok(Some(length)),
            Err(EAGAIN | EINTR) => Ok(None),
            Err(_) => Err(self.context.api.failure("receive")),
        }
    }

    #[inline]
    fn receive_with(&self, buffer: &mut [u8], flags: c_int) -> Result<usize, c_int> {
        let api = self.context.api;
        // SAFETY: the socket is open, and the buffer is as long as the call says.
        let result =
            unsafe { (api.recv)(self.socket, buffer.as_mut_ptr().cast(), buffer.len(), flags) };
        let length = usize::try_from(result).map_err(|_| api.errno())?;
        Ok(length.min(buffer.len()))
    }

    fn check(&self, result: c_int, what: &str) -> Result<(), Failure> {
        if result == 0 { Ok(()) } else { Err(self.context.api.failure(what)) }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: the socket is open, and nothing uses it any more.
        unsafe { (self.context.api.close)(self.socket) };
    }
}

fn address(path: &Path) -> Result<CString, Failure> {
    CString::new(format!("ipc://{}", path.display())).doing("name a socket")
}
