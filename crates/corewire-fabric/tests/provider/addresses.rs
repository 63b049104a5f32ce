//! Address vectors, sources, names.

use core::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};

use corewire_ofi::errors::*;
use corewire_ofi::flags::*;
use corewire_ofi::{FI_ADDR_NOTAVAIL, FI_ADDR_UNSPEC, FiAddr};

use crate::driver::*;

#[test]
fn addresses_are_counted_and_looked_up() {
    let node = Node::new();
    let av = open_av(node.domain);
    let addresses: Vec<_> = (0..3).map(|_| Node::new()).collect();
    let bytes: Vec<_> = addresses.iter().map(Node::address).collect();
    let mut numbers = [77u64; 3];
    let status =
        call!(av.ops.insert(bytes.as_ptr().cast(), 3, numbers.as_mut_ptr(), 0, null_mut()));
    assert_eq!((status, numbers), (3, [0, 1, 2]));
    // Without a place for the numbers they are known all the same.
    assert_eq!(call!(av.ops.insert(bytes.as_ptr().cast(), 1, null_mut(), 0, null_mut())), 1);
    for (number, expected) in [(0, 0), (1, 1), (2, 2), (3, 0)] {
        let (mut found, mut length) = ([0u8; ADDRESS_BYTES], ADDRESS_BYTES);
        let at = found.as_mut_ptr().cast();
        assert_eq!(call!(av.ops.lookup(number, at, &raw mut length)), 0);
        assert_eq!((found, length), (bytes[expected], ADDRESS_BYTES));
    }
    // A short buffer gets the beginning.
    let (mut found, mut length) = ([1u8; ADDRESS_BYTES], 4);
    assert_eq!(call!(av.ops.lookup(0, found.as_mut_ptr().cast(), &raw mut length)), 0);
    assert_eq!((&found[..5], length), (&b"cwfi\x01"[..], ADDRESS_BYTES));
    // Removed, it is not found any more, and its number is not used again.
    let mut gone = [1u64];
    assert_eq!(call!(av.ops.remove(gone.as_mut_ptr(), 1, 0)), 0);
    assert_eq!(call!(av.ops.remove(gone.as_mut_ptr(), 1, 0)), -FI_EINVAL);
    assert_eq!(call!(av.ops.lookup(1, found.as_mut_ptr().cast(), &raw mut length)), -FI_EINVAL);
    let status =
        call!(av.ops.insert(bytes[1].as_ptr().cast(), 1, numbers.as_mut_ptr(), 0, null_mut()));
    assert_eq!((status, numbers[0]), (1, 4));
    assert_eq!(close(av.cast()), 0);
    addresses.into_iter().for_each(Node::close);
    node.close();
}

#[test]
fn what_is_no_address_is_not_inserted() {
    let node = Node::new();
    let av = node.av;
    let mut bytes = [node.address(), [0xff; ADDRESS_BYTES], node.address()];
    bytes[2][4] = 9;
    let (mut numbers, mut errors) = ([1u64; 3], [9 as c_int; 3]);
    let context = errors.as_mut_ptr().cast::<c_void>();
    let at = bytes.as_ptr().cast();
    let status = call!(av.ops.insert(at, 3, numbers.as_mut_ptr(), FI_SYNC_ERR, context));
    assert_eq!((status, numbers), (1, [0, FI_ADDR_NOTAVAIL, FI_ADDR_NOTAVAIL]));
    assert_eq!(errors, [0, FI_EINVAL, FI_EINVAL]);
    node.close();
}

#[test]
fn addresses_have_texts() {
    let node = Node::new();
    let (av, address) = (node.av, node.address());
    let (mut text, mut length) = ([0u8; 128], 128);
    let at = text.as_mut_ptr().cast();
    let shown = call!(av.ops.straddr(address.as_ptr().cast(), at, &raw mut length));
    let shown = unsafe { CStr::from_ptr(shown) }.to_str().unwrap();
    assert!(shown.starts_with("corewire://") && shown.contains('#'), "{shown}");
    assert_eq!(length, shown.len() + 1);
    let mut short = 9;
    call!(av.ops.straddr(address.as_ptr().cast(), at, &raw mut short));
    assert_eq!((&text[..9], short), (&b"corewire\0"[..], length));
    node.close();
}

/// Reads one entry and its source.
fn read_from(node: &Node, other: &Node) -> FiAddr {
    let (cq, mut entry, mut from) = (node.cq, EMPTY, 1234);
    until(&[other], || {
        let status = call!(cq.ops.readfrom((&raw mut entry).cast(), 1, &raw mut from));
        assert!(status == 1 || status == -again(), "{status}");
        status == 1
    });
    from
}

#[test]
fn the_source_of_a_message_is_its_number() {
    let (first, second) = (Node::new(), Node::new());
    let to = first.insert(second.address());
    let (mut got, mut posted) = ([0; 8], context());
    let mut receive = |expected| {
        second.receive(1, &mut got, &mut posted);
        first.inject(to, 1, b"from me");
        assert_eq!(read_from(&second, &first), expected);
    };
    // Not in the address vector yet.
    receive(FI_ADDR_NOTAVAIL);
    let other = Node::new();
    assert_eq!(second.insert(other.address()), 0);
    receive(FI_ADDR_NOTAVAIL);
    let number = second.insert(first.address());
    assert_eq!(number, 1);
    receive(number);
    receive(number);
    // Inserted twice, it has its first number.
    assert_eq!(second.insert(first.address()), 2);
    receive(number);
    // A message back, to the number that was reported.
    let mut back = context();
    let mut room = [0; 8];
    first.receive(2, &mut room, &mut back);
    second.inject(number, 2, b"and back");
    assert_eq!(read_from(&first, &second), to);
    // Removed, it has the other number.
    let (av, mut gone) = (second.av, number);
    assert_eq!(call!(av.ops.remove(&raw mut gone, 1, 0)), 0);
    let mut receive = |expected| {
        second.receive(1, &mut got, &mut posted);
        first.inject(to, 1, b"from me");
        assert_eq!(read_from(&second, &first), expected);
    };
    receive(2);
    for node in [first, second, other] {
        node.close();
    }
}

#[test]
fn a_source_that_was_removed_is_nobody() {
    let (first, second) = (Node::new(), Node::new());
    let to = first.insert(second.address());
    // It only receives, and names the other one in no call.
    let mut number = second.insert(first.address());
    let (mut got, mut posted) = ([0; 8], context());
    let mut receive = |expected| {
        second.receive(1, &mut got, &mut posted);
        first.inject(to, 1, b"from me");
        assert_eq!(read_from(&second, &first), expected);
    };
    receive(number);
    let av = second.av;
    assert_eq!(call!(av.ops.remove(&raw mut number, 1, 0)), 0);
    receive(FI_ADDR_NOTAVAIL);
    receive(second.insert(first.address()));
    first.close();
    second.close();
}

#[test]
fn a_message_to_no_address_is_refused() {
    let node = Node::new();
    let (ep, mut lent) = (node.ep, context());
    let ctx: *mut c_void = (&raw mut *lent).cast();
    let expected = -(FI_EADDRNOTAVAIL as isize);
    for to in [0, 5, FI_ADDR_UNSPEC] {
        assert_eq!(call!(ep.tagged.inject(null(), 0, to, 1)), expected);
        assert_eq!(call!(ep.tagged.send(null(), 0, null_mut(), to, 1, ctx)), expected);
        assert_eq!(call!(ep.msg.send(null(), 0, null_mut(), to, ctx)), expected);
    }
    let status = call!(ep.tagged.recv(null_mut(), 0, null_mut(), 5, 1, 0, ctx));
    assert_eq!(status, expected);
    node.close();
}

#[test]
fn a_service_finds_its_endpoint_before_it_exists() {
    let service = format!("test-{}", std::process::id());
    let service = std::ffi::CString::new(service).unwrap();
    let client = Node::new();
    let (av, mut number) = (client.av, 9);
    let node = c"localhost".as_ptr();
    let status = call!(av.ops.insertsvc(node, service.as_ptr(), &raw mut number, 0, null_mut()));
    assert_eq!((status, number), (1, 0));
    client.inject(number, 1, b"early");
    let source = get_info(VERSION, Some(&service), FI_SOURCE, null()).unwrap();
    let server = Node::unbound(Options::default());
    let ep = server.ep;
    let address = unsafe { (*source).src_addr };
    assert_eq!(unsafe { ((*(*ep).cm).setname)(ep.cast(), address, ADDRESS_BYTES) }, 0);
    server.enable();
    assert_eq!(
        unsafe { ((*(*ep).cm).setname)(ep.cast(), address, ADDRESS_BYTES) },
        -FI_EOPBADSTATE
    );
    let (mut got, mut posted) = ([0; 8], context());
    server.receive(1, &mut got, &mut posted);
    assert_eq!(read(&server, &[&client]).len, 5);
    // The name is taken.
    let second = Node::unbound(Options::default());
    let ep = second.ep;
    assert_eq!(unsafe { ((*(*ep).cm).setname)(ep.cast(), address, ADDRESS_BYTES) }, 0);
    assert_eq!(control(ep.cast(), corewire_ofi::fid::FI_ENABLE), -FI_EADDRINUSE);
    free(source);
    for node in [client, server, second] {
        node.close();
    }
}

#[test]
fn an_address_is_known_before_the_endpoint_is_enabled() {
    let node = Node::unbound(Options::default());
    let early = node.address();
    node.enable();
    let late = node.address();
    assert_eq!((&early[..8], &early[24..]), (&late[..8], &late[24..]), "the name is the same");
    let (ep, mut short, mut length) = (node.ep, [0u8; 8], 8);
    let at = short.as_mut_ptr().cast();
    let status = unsafe { ((*(*ep).cm).getname)(ep.cast(), at, &raw mut length) };
    assert_eq!((status, length, &short[..4]), (-FI_ETOOSMALL, ADDRESS_BYTES, &b"cwfi"[..]));
    node.close();
}
