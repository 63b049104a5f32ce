//! Error numbers. Calls return them negated; the entries of error queues hold them as they are.

macro_rules! errors {
    ($($(#[$doc:meta])* $name:ident = $value:expr, $text:literal;)*) => {
        $(#[doc = concat!($text, ".")] pub const $name: i32 = $value;)*

        /// What an error number means, as `fi_strerror` says it. `None` if libfabric has no such error.
        #[must_use]
        pub const fn text(error: i32) -> Option<&'static core::ffi::CStr> {
            $(if error == $name {
                const TEXT: &core::ffi::CStr =
                    match core::ffi::CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                        Ok(text) => text,
                        Err(_) => panic!("a text without a NUL"),
                    };
                return Some(TEXT);
            })*
            None
        }
    };
}

errors! {
    FI_SUCCESS = 0, "Success";
    FI_EPERM = 1, "Operation not permitted";
    FI_ENOENT = 2, "No such file or directory";
    FI_EINTR = 4, "Interrupted system call";
    FI_EIO = 5, "Input/output error";
    FI_E2BIG = 7, "Argument list too long";
    FI_EBADF = 9, "Bad file descriptor";
    FI_EAGAIN = 11, "Resource temporarily unavailable";
    FI_ENOMEM = 12, "Cannot allocate memory";
    FI_EACCES = 13, "Permission denied";
    FI_EFAULT = 14, "Bad address";
    FI_EBUSY = 16, "Device or resource busy";
    FI_ENODEV = 19, "No such device";
    FI_EINVAL = 22, "Invalid argument";
    FI_EMFILE = 24, "Too many open files";
    FI_ENOSPC = 28, "No space left on device";
    FI_ENOSYS = 38, "Function not implemented";
    FI_ENOMSG = 42, "No message of desired type";
    FI_ENODATA = 61, "No data available";
    FI_EOVERFLOW = 75, "Value too large for defined data type";
    FI_EMSGSIZE = 90, "Message too long";
    FI_ENOPROTOOPT = 92, "Protocol not available";
    FI_EOPNOTSUPP = 95, "Operation not supported";
    FI_EADDRINUSE = 98, "Address already in use";
    FI_EADDRNOTAVAIL = 99, "Cannot assign requested address";
    FI_ECONNABORTED = 103, "Software caused connection abort";
    FI_ECONNRESET = 104, "Connection reset by peer";
    FI_ENOBUFS = 105, "No buffer space available";
    FI_ESHUTDOWN = 108, "Cannot send after transport endpoint shutdown";
    FI_ETIMEDOUT = 110, "Connection timed out";
    FI_ECONNREFUSED = 111, "Connection refused";
    FI_EHOSTUNREACH = 113, "No route to host";
    FI_EALREADY = 114, "Operation already in progress";
    FI_EREMOTEIO = 121, "Remote I/O error";
    FI_ECANCELED = 125, "Operation canceled";
    FI_EOTHER = 256, "Unspecified error";
    FI_ETOOSMALL = 257, "Provided buffer is too small";
    FI_EOPBADSTATE = 258, "Operation not permitted in current state";
    FI_EAVAIL = 259, "Error available";
    FI_EBADFLAGS = 260, "Flags not supported";
    FI_ENOEQ = 261, "Missing or unavailable event queue";
    FI_EDOMAIN = 262, "Invalid resource domain";
    FI_ENOCQ = 263, "Missing or unavailable completion queue";
    FI_ECRC = 264, "CRC error";
    FI_ETRUNC = 265, "Truncation error";
    FI_ENOKEY = 266, "Required key not available";
    FI_ENOAV = 267, "Missing or unavailable address vector";
    FI_EOVERRUN = 268, "Queue has been overrun";
    FI_ENORX = 269, "Receiver not ready, no receive buffers available";
}
