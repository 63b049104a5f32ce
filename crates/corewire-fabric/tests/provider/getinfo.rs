//! What is offered, and what is not.

use std::ptr::null;

use corewire_ofi::errors::{FI_EINVAL, FI_ENODATA};
use corewire_ofi::flags::*;
use corewire_ofi::info::*;

use crate::driver::{ADDRESS_BYTES, VERSION, free, get_info};

/// Changes what was offered, and asks for that.
fn ask(change: impl FnOnce(&mut Info)) -> Result<*mut Info, i32> {
    let info = get_info(VERSION, None, 0, null()).unwrap();
    change(unsafe { &mut *info });
    let answer = get_info(VERSION, None, 0, info);
    free(info);
    answer
}

/// What is done to each part of the hints.
fn tx(info: &mut Info) -> &mut TxAttr {
    unsafe { &mut *info.tx_attr }
}

fn rx(info: &mut Info) -> &mut RxAttr {
    unsafe { &mut *info.rx_attr }
}

fn ep(info: &mut Info) -> &mut EpAttr {
    unsafe { &mut *info.ep_attr }
}

fn domain(info: &mut Info) -> &mut DomainAttr {
    unsafe { &mut *info.domain_attr }
}

#[test]
fn a_program_without_wishes_is_offered_everything() {
    let info = get_info(VERSION, None, 0, null()).unwrap();
    let offered = unsafe { &mut *info };
    let caps = FI_MSG | FI_TAGGED | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE;
    assert_eq!(offered.caps & caps, caps);
    assert_eq!(offered.caps & (FI_LOCAL_COMM | FI_REMOTE_COMM), FI_LOCAL_COMM | FI_REMOTE_COMM);
    let accesses = FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    assert_eq!(offered.caps & accesses, accesses);
    assert_eq!(ep(offered).max_order_waw_size, usize::MAX);
    assert_eq!((offered.mode, ep(offered).kind), (FI_CONTEXT, FI_EP_RDM));
    let order = FI_ORDER_SAS | FI_ORDER_ATOMIC_WAW | FI_ORDER_RMA_RAW | FI_ORDER_WAR;
    assert_eq!((tx(offered).msg_order & order, rx(offered).msg_order & order), (order, order));
    assert_eq!(tx(offered).msg_order & FI_ORDER_SAW, 0, "between messages and accesses");
    let of_direction = tx(offered).caps | rx(offered).caps;
    assert_eq!(of_direction & (FI_LOCAL_COMM | FI_REMOTE_COMM), 0, "those are the domain's");
    assert!(offered.next.is_null() && offered.dest_addr.is_null());
    assert_eq!(offered.src_addrlen, ADDRESS_BYTES, "one without a name");
    assert!(unsafe { (*offered.fabric_attr).prov_name.is_null() }, "libfabric sets it");
    free(info);
}

#[test]
fn what_was_offered_can_be_asked_for() {
    free(ask(|_| {}).unwrap());
}

#[test]
fn choices_are_kept() {
    for threading in FI_THREAD_SAFE..=FI_THREAD_ENDPOINT {
        let info = ask(|hints| domain(hints).threading = threading).unwrap();
        assert_eq!(domain(unsafe { &mut *info }).threading, threading);
        free(info);
    }
    for av_type in [FI_AV_MAP, FI_AV_TABLE] {
        let info = ask(|hints| domain(hints).av_type = av_type).unwrap();
        assert_eq!(domain(unsafe { &mut *info }).av_type, av_type);
        free(info);
    }
    let flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
    let info = ask(|hints| {
        hints.caps = FI_TAGGED | FI_SEND;
        tx(hints).op_flags = flags;
        tx(hints).caps = FI_TAGGED | FI_SEND;
        ep(hints).mem_tag_format = 0xff;
        domain(hints).mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT;
    })
    .unwrap();
    let got = unsafe { &mut *info };
    assert_eq!(got.caps & (FI_TAGGED | FI_MSG | FI_SEND | FI_RECV), FI_TAGGED | FI_SEND);
    assert_eq!((tx(got).op_flags, tx(got).caps), (flags, FI_TAGGED | FI_SEND));
    assert_eq!((ep(got).mem_tag_format, domain(got).mr_mode), (0xff, 0));
    free(info);
}

#[test]
fn before_1_5_a_mode_of_registration_is_named() {
    let old = corewire_ofi::version(1, 4);
    for (asked, offered) in [(0, FI_MR_SCALABLE), (FI_MR_BASIC, FI_MR_BASIC)] {
        let hints = get_info(old, None, 0, null()).unwrap();
        domain(unsafe { &mut *hints }).mr_mode = asked;
        let info = get_info(old, None, 0, hints).unwrap();
        assert_eq!(domain(unsafe { &mut *info }).mr_mode, offered);
        free(hints);
        free(info);
    }
}

#[test]
fn the_longer_context_will_do() {
    let info = ask(|hints| hints.mode = FI_CONTEXT2 | FI_ASYNC_IOV).unwrap();
    assert_eq!(unsafe { (*info).mode }, FI_CONTEXT2);
    free(info);
}

#[test]
fn what_cannot_be_had_is_no_data() {
    type Change = fn(&mut Info);
    let changes: [(&str, Change); 30] = [
        ("events of accesses", |it| it.caps |= FI_RMA_EVENT),
        ("messages after what was written", |it| tx(it).msg_order |= FI_ORDER_SAW),
        ("no context", |it| it.mode = 0),
        ("internet addresses", |it| it.addr_format = 2),
        ("an address of another length", |it| {
            it.src_addr = (&raw mut *it).cast();
            it.src_addrlen = 16;
        }),
        ("connections", |it| ep(it).kind = FI_EP_MSG),
        ("datagrams", |it| ep(it).kind = FI_EP_DGRAM),
        ("another protocol", |it| ep(it).protocol = 1),
        ("a newer protocol", |it| ep(it).protocol_version = 9),
        ("too long messages", |it| ep(it).max_msg_size = usize::MAX),
        ("prefixes", |it| ep(it).msg_prefix_size = 8),
        ("contexts", |it| ep(it).tx_ctx_cnt = 2),
        ("shared contexts", |it| ep(it).rx_ctx_cnt = usize::MAX),
        ("keys", |it| ep(it).auth_key_size = 4),
        ("too long injects", |it| tx(it).inject_size += 1),
        ("too many sends", |it| tx(it).size += 1),
        ("too many buffers", |it| tx(it).iov_limit += 1),
        ("an order of completions", |it| tx(it).comp_order = FI_ORDER_DATA),
        ("unknown flags", |it| tx(it).op_flags = 1 << 62),
        ("unknown capabilities of sends", |it| tx(it).caps = FI_RMA_EVENT),
        ("too many receives", |it| rx(it).size += 1),
        ("too much kept", |it| rx(it).total_buffered_recv = usize::MAX),
        ("too many buffers of receives", |it| rx(it).iov_limit += 1),
        ("progress without calls", |it| domain(it).data_progress = FI_PROGRESS_AUTO),
        ("an unknown threading level", |it| domain(it).threading = 17),
        ("long keys", |it| domain(it).mr_key_size = 9),
        ("much data", |it| domain(it).cq_data_size = 9),
        ("too many queues", |it| domain(it).cq_cnt = usize::MAX),
        ("much error data", |it| domain(it).max_err_data = usize::MAX),
        ("keys of domains", |it| domain(it).auth_key_size = 1),
    ];
    for (what, change) in changes {
        // Addresses that the test has made up are not freed with the hints.
        let info = get_info(VERSION, None, 0, null()).unwrap();
        let own = unsafe { (*info).src_addr };
        change(unsafe { &mut *info });
        assert_eq!(get_info(VERSION, None, 0, info).err(), Some(-FI_ENODATA), "{what}");
        unsafe { (*info).src_addr = own };
        free(info);
    }
}

#[test]
fn another_fabric_is_no_data() {
    let mut name = *b"elsewhere\0";
    let info = get_info(VERSION, None, 0, null()).unwrap();
    let own = unsafe { (*(*info).fabric_attr).name };
    unsafe { (*(*info).fabric_attr).name = name.as_mut_ptr().cast() };
    assert_eq!(get_info(VERSION, None, 0, info).err(), Some(-FI_ENODATA));
    unsafe { (*(*info).fabric_attr).name = own };
    free(info);
}

#[test]
fn a_service_is_an_address() {
    let source = get_info(VERSION, Some(c"47592"), FI_SOURCE, null()).unwrap();
    let target = get_info(VERSION, Some(c"47592"), 0, null()).unwrap();
    unsafe {
        assert_eq!(((*source).src_addrlen, (*target).dest_addrlen), (ADDRESS_BYTES, ADDRESS_BYTES));
        let (own, peer) = ((*source).src_addr, (*target).dest_addr);
        let (own, peer): (*const [u8; 48], *const [u8; 48]) = (own.cast(), peer.cast());
        assert_eq!(*own, *peer);
        assert!((*source).dest_addr.is_null());
        let none: *const [u8; 48] = (*target).src_addr.cast();
        assert_ne!(*none, *own, "its own address has no name");
    }
    // The address in hints is the address of the answer.
    let again = get_info(VERSION, None, 0, source).unwrap();
    unsafe { assert_eq!((*again).src_addrlen, ADDRESS_BYTES) };
    for info in [source, target, again] {
        free(info);
    }
    let long = get_info(VERSION, Some(c"a-service-of-far-too-many-bytes"), 0, null());
    assert_eq!(long.err(), Some(-FI_ENODATA));
}

#[test]
fn nowhere_to_put_the_answer_is_invalid() {
    let provider = corewire_fabric::fi_prov_ini();
    let nowhere = std::ptr::null_mut();
    let status = unsafe { ((*provider).getinfo)(VERSION, null(), null(), 0, null(), nowhere) };
    assert_eq!(status, -FI_EINVAL);
}

#[test]
fn another_machine_is_no_data() {
    let provider = corewire_fabric::fi_prov_ini();
    for (node, expected) in [(c"127.0.0.1", 0), (c"localhost", 0), (c"192.0.2.1", -FI_ENODATA)] {
        let mut info = std::ptr::null_mut();
        let (node, service) = (node.as_ptr(), c"1".as_ptr());
        let status =
            unsafe { ((*provider).getinfo)(VERSION, node, service, 0, null(), &raw mut info) };
        assert_eq!(status, expected);
        if status == 0 {
            free(info);
        }
    }
}
