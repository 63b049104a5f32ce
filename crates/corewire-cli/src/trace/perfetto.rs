//! Perfetto's protobuf: the few messages and fields of it that a timeline has (`protos/perfetto/trace/` of Perfetto).

use prost::Message;

use super::timeline::{Party, Slice, Timeline, arrow_of, name_of};

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

/// `TYPE_SLICE_BEGIN` and `TYPE_SLICE_END`.
const BEGIN: i32 = 1;
const END: i32 = 2;
/// The one sequence of packets.
const SEQUENCE: Option<u32> = Some(1);

/// The timeline as a file of Perfetto.
pub(super) fn encode(timeline: &Timeline) -> Vec<u8> {
    let mut packet = Vec::new();
    for (index, party) in timeline.parties.iter().enumerate() {
        describe(index, party, &mut packet);
        for slice in &party.events {
            let track = track_of(index, slice.event.thread);
            packet.push(begin(track, slice));
            packet.push(event(
                slice.ended_ns,
                TrackEvent { r#type: Some(END), track_uuid: Some(track), ..TrackEvent::default() },
            ));
        }
    }
    // A slice that ends when another begins comes first.
    packet.sort_by_key(|packet| {
        let is_end = packet.track_event.as_ref().is_some_and(|event| event.r#type == Some(END));
        (packet.timestamp, !is_end)
    });
    Trace { packet }.encode_to_vec()
}

/// Tracks of a process have numbers behind its own.
fn track_of(party: usize, thread: u32) -> u64 {
    (party as u64 + 1) << 32 | u64::from(thread)
}

fn describe(index: usize, party: &Party, packet: &mut Vec<TracePacket>) {
    let pid = i32::try_from(party.pid).ok();
    let process = ProcessDescriptor { pid, process_name: Some(party.name.clone()) };
    let own = track_of(index, 0);
    let descriptor = |descriptor| TracePacket {
        trusted_packet_sequence_id: SEQUENCE,
        track_descriptor: Some(descriptor),
        ..TracePacket::default()
    };
    packet.push(descriptor(TrackDescriptor {
        uuid: Some(own),
        name: Some(party.name.clone()),
        process: Some(process),
        ..TrackDescriptor::default()
    }));
    let mut threads: Vec<u32> = party.events.iter().map(|slice| slice.event.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    for thread in threads {
        let tid = i32::try_from(thread).ok();
        let thread_name = Some(format!("{}, thread {thread}", party.name));
        packet.push(descriptor(TrackDescriptor {
            uuid: Some(track_of(index, thread)),
            parent_uuid: Some(own),
            thread: Some(ThreadDescriptor { pid, tid, thread_name }),
            ..TrackDescriptor::default()
        }));
    }
}

fn begin(track: u64, slice: &Slice) -> TracePacket {
    let note = |name: &str, value: u64| DebugAnnotation {
        uint_value: Some(value),
        name: Some(name.to_owned()),
    };
    let points = [slice.event.came, slice.event.went];
    event(
        slice.began_ns,
        TrackEvent {
            debug_annotations: vec![
                note("ordinal", slice.event.ordinal.into()),
                note("bytes", slice.event.bytes.into()),
            ],
            r#type: Some(BEGIN),
            track_uuid: Some(track),
            categories: vec!["circuit".to_owned()],
            name: Some(name_of(slice.event.kind).to_owned()),
            flow_ids: points.into_iter().flatten().map(arrow_of).collect(),
        },
    )
}

fn event(at_ns: u64, event: TrackEvent) -> TracePacket {
    TracePacket {
        // The first event is not at 0, which is no time.
        timestamp: Some(at_ns.saturating_add(1)),
        trusted_packet_sequence_id: SEQUENCE,
        track_event: Some(event),
        ..TracePacket::default()
    }
}
