//! Bits of capabilities, operations, modes, orderings, memory registration and bindings.
//!
//! libfabric uses one bit for several things: what a bit means depends on the word in which it is set.

macro_rules! bits {
    ($($name:ident = $bit:literal, $text:literal;)*) => {
        $(#[doc = concat!($text, ".")] pub const $name: u64 = 1 << $bit;)*
    };
}

bits! {
    // Capabilities, and what completions are of.
    FI_MSG = 1, "Messages without a tag";
    FI_RMA = 2, "Access to a peer's memory";
    FI_TAGGED = 3, "Messages with a tag";
    FI_ATOMIC = 4, "Atomic operations in a peer's memory";
    FI_MULTICAST = 5, "Messages to a group";
    FI_COLLECTIVE = 6, "Collective operations";
    FI_READ = 8, "Reads of a peer's memory";
    FI_WRITE = 9, "Writes to a peer's memory";
    FI_RECV = 10, "Receives";
    FI_SEND = 11, "Sends";
    FI_REMOTE_READ = 12, "Reads by a peer";
    FI_REMOTE_WRITE = 13, "Writes by a peer";
    FI_MULTI_RECV = 16, "A buffer that takes several messages; in a completion: that it is released";
    FI_REMOTE_CQ_DATA = 17, "64 bits beside the message";
    FI_LOCAL_COMM = 51, "Communication with processes of this machine";
    FI_REMOTE_COMM = 52, "Communication with other machines";
    FI_SHARED_AV = 53, "Address vectors that processes share";
    FI_RMA_EVENT = 56, "Completions of a peer's accesses";
    FI_SOURCE = 57, "The source of a message is reported";
    FI_NAMED_RX_CTX = 58, "Addressing of one context of several";
    FI_DIRECTED_RECV = 59, "A receive may name its source";
    FI_SOURCE_ERR = 50, "A source that is not in the address vector is reported";
    FI_VARIABLE_MSG = 48, "Messages of a length that the receiver does not know";
    FI_HMEM = 47, "Memory of devices";
    FI_TRIGGER = 20, "Operations that a counter starts";
    FI_FENCE = 21, "An operation that waits for those before it";
    // Operations.
    FI_MORE = 18, "More operations follow at once";
    FI_PEEK = 19, "Looks for a message without receiving it";
    FI_COMPLETION = 24, "The operation writes a completion";
    FI_INJECT = 25, "The buffer is free when the call returns";
    FI_INJECT_COMPLETE = 26, "Completes when the buffer is free";
    FI_TRANSMIT_COMPLETE = 27, "Completes when the provider need not send the message again";
    FI_DELIVERY_COMPLETE = 28, "Completes when the peer has the message";
    FI_AFFINITY = 29, "The signaling vector is set";
    FI_COMMIT_COMPLETE = 30, "Completes when the data is persistent";
    FI_MATCH_COMPLETE = 31, "Completes when a receive has got the message";
    FI_DISCARD = 58, "Discards the message that was found or claimed";
    FI_CLAIM = 59, "Claims the message that was found, or receives a claimed one";
    FI_PEER = 43, "The object is another provider's";
    FI_AV_USER_ID = 41, "The caller chooses the addresses that completions report";
    // fi_getinfo.
    FI_PROV_ATTR_ONLY = 54, "Only the names of providers are wanted";
    FI_NUMERICHOST = 55, "The node is an address, not a name";
    // Modes.
    FI_CONTEXT = 59, "Each operation lends 32 bytes to the provider";
    FI_CONTEXT2 = 52, "Each operation lends 64 bytes to the provider";
    FI_MSG_PREFIX = 58, "Each buffer begins with room for the provider";
    FI_ASYNC_IOV = 57, "Lists of buffers stay valid until the operation ends";
    FI_RX_CQ_DATA = 56, "Data of completions needs a posted receive";
    FI_LOCAL_MR = 55, "All buffers are registered";
    FI_NOTIFY_FLAGS_ONLY = 54, "Completions of a peer's accesses have flags only";
    FI_RESTRICTED_COMP = 53, "Completions are not mixed";
    FI_BUFFERED_RECV = 51, "Receives into the provider's buffers";
    // Orderings.
    FI_ORDER_RAR = 0, "Reads after reads";
    FI_ORDER_RAW = 1, "Reads after writes";
    FI_ORDER_RAS = 2, "Reads after sends";
    FI_ORDER_WAR = 3, "Writes after reads";
    FI_ORDER_WAW = 4, "Writes after writes";
    FI_ORDER_WAS = 5, "Writes after sends";
    FI_ORDER_SAR = 6, "Sends after reads";
    FI_ORDER_SAW = 7, "Sends after writes";
    FI_ORDER_SAS = 8, "Sends after sends";
    FI_ORDER_DATA = 16, "Bytes arrive in their order";
    FI_ORDER_RMA_RAR = 32, "Reads after reads, of a peer's memory";
    FI_ORDER_RMA_RAW = 33, "Reads after writes, of a peer's memory";
    FI_ORDER_RMA_WAR = 34, "Writes after reads, of a peer's memory";
    FI_ORDER_RMA_WAW = 35, "Writes after writes, of a peer's memory";
    FI_ORDER_ATOMIC_RAR = 36, "Atomic reads after atomic reads";
    FI_ORDER_ATOMIC_RAW = 37, "Atomic reads after atomic writes";
    FI_ORDER_ATOMIC_WAR = 38, "Atomic writes after atomic reads";
    FI_ORDER_ATOMIC_WAW = 39, "Atomic writes after atomic writes";
    // Bindings.
    FI_SELECTIVE_COMPLETION = 59, "Only operations that ask for it write a completion";
    // Address vectors.
    FI_SYNC_ERR = 58, "Errors of the single insertions are returned at once";
    FI_SYMMETRIC = 59, "All processes have the same addresses";
    // Which atomic operations fi_query_atomic is asked about.
    FI_FETCH_ATOMIC = 58, "Those that fetch";
    FI_COMPARE_ATOMIC = 59, "Those that compare";
}

/// The same bit as `FI_ATOMIC`, under its other name.
pub const FI_ATOMICS: u64 = FI_ATOMIC;

/// The same bit as `FI_COMPLETION`: an insertion of addresses is reported by an event.
pub const FI_EVENT: u64 = FI_COMPLETION;

/// Registration: basic, of libfabric before 1.5.
pub const FI_MR_BASIC: i32 = 1 << 0;
/// Registration: scalable, of libfabric before 1.5.
pub const FI_MR_SCALABLE: i32 = 1 << 1;
/// Registration: local buffers, too.
pub const FI_MR_LOCAL: i32 = 1 << 2;
/// Registration: keys longer than 64 bits.
pub const FI_MR_RAW: i32 = 1 << 3;
/// Registration: remote accesses are by address.
pub const FI_MR_VIRT_ADDR: i32 = 1 << 4;
/// Registration: the memory exists when it is registered.
pub const FI_MR_ALLOCATED: i32 = 1 << 5;
/// Registration: the provider chooses keys.
pub const FI_MR_PROV_KEY: i32 = 1 << 6;
/// Registration: the caller reports changes of the pages.
pub const FI_MR_MMU_NOTIFY: i32 = 1 << 7;
/// Registration: the caller says which regions count a peer's accesses.
pub const FI_MR_RMA_EVENT: i32 = 1 << 8;
/// Registration: each region belongs to an endpoint.
pub const FI_MR_ENDPOINT: i32 = 1 << 9;
/// Registration: memory of devices.
pub const FI_MR_HMEM: i32 = 1 << 10;
/// Registration: buffers of collective operations.
pub const FI_MR_COLLECTIVE: i32 = 1 << 11;
