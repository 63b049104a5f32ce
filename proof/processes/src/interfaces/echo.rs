//! A service that answers with what it was given.

use std::os::fd::{AsFd, OwnedFd};

use corewire_bind::{ChannelRef, ClientId, EndpointRef, Identity, ServiceRef, WindowRef};

use crate::interfaces::all::{
    self, Bundle, Choice, Choices, Color, Deep, Deeper, Entry, Grid, Outbox, Pair, Shape, Trouble,
};
use crate::interfaces::sum_of_all;

/// Answers with what it was given.
#[derive(Debug, Default)]
pub struct Echo {
    /// Sends ticks, if there is one.
    pub outbox: Option<Outbox>,
    /// Lines that were sent.
    pub lines: u32,
    /// Replies that are owed.
    pub kept: Vec<(u32, all::LaterLaterReply)>,
    /// How many clients have come and gone.
    pub came: usize,
    /// How many have gone.
    pub left: usize,
}

impl all::Service for Echo {
    fn bound(&mut self, _client: ClientId, _identity: Identity) {
        self.came += 1;
    }

    fn gone(&mut self, _client: ClientId) {
        self.left += 1;
    }

    fn numbers(
        &mut self,
        a: u8,
        b: u16,
        c: u32,
        d: u64,
        e: i8,
        f: i16,
        g: i32,
        h: i64,
        i: bool,
        j: u8,
        k: u32,
        self_: u64,
        reply: all::NumbersReply<'_>,
    ) {
        reply.send(sum_of_all((a, b, c, d), (e, f, g, h), (i, j, k, self_)), e);
    }

    fn structures(
        &mut self,
        g: Grid,
        _c: Color,
        _s: Shape,
        u: Choices,
        reply: all::StructuresReply<'_>,
    ) {
        reply.send(g, u);
    }

    fn dynamic(
        &mut self,
        text: &str,
        _bytes: &[u8],
        list: Vec<Pair>,
        _any: Vec<Choice>,
        e: Entry,
        reply: all::DynamicReply<'_>,
    ) {
        reply.send(text, &list, &e);
    }

    fn perhaps(
        &mut self,
        a: Option<u32>,
        b: Option<&str>,
        c: Option<&[u8]>,
        d: Option<Entry>,
        reply: all::PerhapsReply<'_>,
    ) {
        reply.send(a, b, c, d.as_ref());
    }

    fn fails(&mut self, how: i32, reply: all::FailsReply<'_>) {
        match how {
            0 => reply.send(7),
            1 => reply.fail(Trouble::NotFound),
            5 => reply.fail(Trouble::Denied),
            other => reply.fail(Trouble::Unknown(other)),
        }
    }

    fn nothing(&mut self, reply: all::NothingReply<'_>) {
        reply.send();
    }

    fn drops(&mut self, _type: u32, reply: all::DropsReply<'_>) {
        drop(reply);
    }

    fn later(&mut self, value: u32, reply: all::LaterReply<'_>) {
        self.kept.push((value, reply.later()));
    }

    fn line(&mut self, number: u32, text: &str, _client: ClientId) {
        self.lines += 1;
        // A line of text asks for events.
        if let Some(outbox) = &self.outbox
            && !text.is_empty()
        {
            let _ = outbox.tick_to_all(u64::from(number), Some(&text[..text.len().min(20)]));
        }
    }

    fn eight(&mut self, value: u64, reply: all::EightReply<'_>) {
        reply.send(value);
    }

    fn wide(&mut self, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, reply: all::WideReply<'_>) {
        reply.send(a, b, c, d, e, f);
    }

    fn r#type(&mut self, r#match: &str, reply: all::TypeReply<'_>) {
        reply.send(r#match);
    }

    fn open(
        &mut self,
        _number: u8,
        file: OwnedFd,
        more: Option<OwnedFd>,
        reply: all::OpenReply<'_>,
    ) {
        reply.send(file.as_fd(), more.as_ref().map(AsFd::as_fd));
    }

    fn bundles(&mut self, sent: Bundle, one: Option<OwnedFd>, reply: all::BundlesReply<'_>) {
        match sent.name.as_str() {
            "denied" => reply.fail(Trouble::Denied),
            _ => reply.send(&sent, one.as_ref().map(AsFd::as_fd)),
        }
    }

    fn give(&mut self, mut right: Option<OwnedFd>, reply: all::GiveReply<'_>) {
        match right {
            None => reply.fail(Trouble::NotFound),
            Some(_) => {
                reply.send(&mut right);
                assert!(right.is_none(), "it is given away");
            }
        }
    }

    fn refer(
        &mut self,
        e: EndpointRef,
        c: ChannelRef<Pair>,
        s: ServiceRef,
        o: Option<EndpointRef>,
        w: WindowRef,
        v: Option<WindowRef>,
        reply: all::ReferReply<'_>,
    ) {
        reply.send(&e, &c, &s, o.as_ref(), &w, v.as_ref());
    }

    fn hand(&mut self, file: OwnedFd, text: &str, client: ClientId) {
        if let Some(outbox) = &self.outbox {
            let number = u32::try_from(text.len()).unwrap_or(0);
            let more = (number > 0).then_some(file.as_fd());
            let _ = outbox.handed(client, file.as_fd(), number, more);
        }
    }

    fn unions(&mut self, c: Choice, d: Deeper, list: Vec<Deep>, reply: all::UnionsReply<'_>) {
        reply.send(c, d, &list);
    }
}
