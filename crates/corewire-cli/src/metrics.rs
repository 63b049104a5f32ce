//! `corewire metrics`: counters of the channels, endpoints, monitors and groups in the text format of Prometheus.

use std::fmt::{Display, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use corewire::{
    ChannelView, Domain, EndpointView, FarPeerView, PeerView, ReceiverView, WindowView,
};
use corewire_bind::{MethodTotals, Times};
use corewire_circuit::monitor::Routes;
use corewire_group::GroupView;
use corewire_layout::LINE_BYTES;
use corewire_os::file;
use tiny_http::{Header, Method, Response, Server};

use crate::failure::Failure;
use crate::ranks::Place;
use crate::seen::{self, Monitor, Seen, Service};
use crate::top::counting::counter;
use crate::{access, output, units};

const EXAMPLES: &str = "\
Examples:
  corewire metrics
  corewire metrics --file /var/lib/node_exporter/corewire.prom
  corewire metrics --port 9464\n\
\n\
Prints the counters of all channels, endpoints, monitors, groups and windows, and all services, once, or writes \
them to FILE, for the textfile collector of node_exporter: a reader of FILE finds the old text or the new text, and \
nothing in between. With --port it answers GET /metrics on 127.0.0.1 until it is ended. \
They are looked up for each answer. Senders of a shared channel come and go, \
and most of their counters with them; of these only the messages are shown. The endpoints of MPI ranks have the labels \
job and rank.\n\
\n\
";

/// Help after the options: examples, and the name of every metric.
fn help() -> String {
    let mut help = format!("{EXAMPLES}Metrics:\n");
    let text = render(&Seen::default());
    let names = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    for (name, meaning) in names {
        help.push_str(&format!("  {name}\n          {meaning}\n"));
    }
    help
}

/// Every answer's type.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Print the counters of all channels, endpoints, monitors, groups and windows in the text format of Prometheus
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub(crate) struct Args {
    /// Write to FILE once, and end. A regular file is replaced whole; links are followed, and a device or pipe is written
    /// into
    #[arg(long, value_name = "FILE", conflicts_with = "port")]
    file: Option<PathBuf>,
    /// Answer requests on this port of the loopback interface; 0 takes a free port and prints it
    #[arg(long)]
    port: Option<u16>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let domain = access::open_domain()?;
    match (&args.file, args.port) {
        // A reader of the file finds the old text or the new, and nothing between.
        (Some(path), _) => file::write(path, text(&domain)?.as_bytes()).map_err(|error| {
            let shown = units::printable(&path.to_string_lossy());
            Failure::other(format!("cannot write {shown}: {error}"))
        }),
        (None, Some(port)) => serve(&domain, port),
        (None, None) => output::print(&text(&domain)?),
    }
}

fn serve(domain: &Domain, port: u16) -> Result<(), Failure> {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let server = Server::http(address)
        .map_err(|error| Failure::other(format!("cannot listen on {address}: {error}")))?;
    output::print(&format!("http://{}/metrics\n", server.server_addr()))?;
    for request in server.incoming_requests() {
        let path = request.url().split('?').next().unwrap_or_default();
        let answer = match (request.method(), path) {
            (Method::Get | Method::Head, "/metrics") => match text(domain) {
                Ok(text) => typed(Response::from_string(text)),
                Err(failure) => Response::from_string(failure.message + "\n").with_status_code(500),
            },
            (Method::Get | Method::Head, _) => {
                Response::from_string("corewire: GET /metrics\n").with_status_code(404)
            }
            _ => Response::from_string("corewire: only GET\n").with_status_code(405),
        };
        // The client may have gone.
        let _ = request.respond(answer);
    }
    Ok(())
}

fn typed<R: std::io::Read>(response: Response<R>) -> Response<R> {
    match Header::from_bytes("Content-Type", CONTENT_TYPE) {
        Ok(header) => response.with_header(header),
        Err(()) => response,
    }
}

/// Counters of a channel's one sender: the metric, the counter's word, what it counts. Of a shared channel
/// they go with the senders: their sum is no counter.
const OF_SENDERS: [(&str, &str, &str); 4] = [
    ("sent_bytes_total", "bytes", "Payload bytes sent in messages of more than 48 bytes."),
    ("sender_waits_total", "waits", "Times a sender waited for room."),
    ("sender_sleeps_total", "sleeps", "Times a sender slept while it waited."),
    ("sender_wakes_total", "wakes", "Times a sender woke receivers."),
];

/// Counters of any channel.
const OF_CHANNELS: [(&str, &str, &str); 6] = [
    ("joins_total", "joins", "Receivers that joined."),
    ("leaves_total", "leaves", "Receivers that left."),
    ("deaths_total", "deaths", "Receivers that died."),
    ("evictions_total", "evictions", "Receivers that were evicted."),
    ("violations_total", "violations", "Receivers whose memory held impossible values."),
    ("refusals_total", "refusals", "Attempts to join that were refused."),
];

/// Counters of a receiver.
const OF_RECEIVERS: [(&str, &str, &str); 5] = [
    ("received_bytes_total", "bytes", "Payload bytes received in messages of more than 48 bytes."),
    ("receiver_waits_total", "waits", "Times a receiver found the ring empty."),
    ("receiver_sleeps_total", "sleeps", "Times a receiver slept while it waited."),
    ("receiver_wakes_total", "wakes", "Times a receiver woke a sender."),
    ("missed_messages_total", "missed", "Messages overwritten before a receiver read them."),
];

fn text(domain: &Domain) -> Result<String, Failure> {
    Ok(render(&seen::look_and_ask_all(domain)?))
}

/// The text format, version 0.0.4.
fn render(seen: &Seen) -> String {
    let views = &seen.channels;
    let mut text = Text(String::new());
    text.gauge(
        "unseen_names",
        "Names that could not be looked at.",
        [(String::new(), seen.unseen.len())],
    );
    let silent = seen.silent.iter().map(|silent| {
        let (name, pid) = (&silent.name, silent.pid);
        (format!("{{name=\"{name}\",pid=\"{pid}\"}}"), 1)
    });
    text.gauge("silent", "1 for a name whose process does not answer.", silent);
    let channels = || views.iter().map(|view| (of_channel(view), view));
    let sent = channels().map(|(of, view)| (of, view.sent));
    text.counter("sent_messages_total", "Messages sent.", sent);
    let count = |word| move |(of, view): (_, &ChannelView)| (of, counter(&view.counters, word));
    for (name, word, help) in OF_SENDERS {
        let of_one = channels().filter(|(_, view)| !view.is_shared);
        text.counter(name, help, of_one.map(count(word)));
    }
    for (name, word, help) in OF_CHANNELS {
        text.counter(name, help, channels().map(count(word)));
    }
    let senders = channels().map(|(of, view)| (of, view.senders));
    text.gauge("senders", "Processes that send.", senders);
    let receivers = channels().map(|(of, view)| (of, view.receivers.len()));
    text.gauge("receivers", "Receivers that have joined.", receivers);
    let most = channels().map(|(of, view)| (of, view.receivers_max));
    text.gauge("receivers_max", "The most receivers that may join.", most);
    let memory = channels().map(|(of, view)| (of, view.segment_bytes));
    text.gauge("memory_bytes", "Memory of ring and payload.", memory);
    let each = || {
        views.iter().flat_map(|view| {
            view.receivers.iter().map(move |receiver| (of_receiver(view, receiver), receiver))
        })
    };
    let received = each().map(|(of, receiver)| (of, receiver.cursor));
    text.counter("received_messages_total", "Messages that a receiver is done with.", received);
    for (name, word, help) in OF_RECEIVERS {
        text.counter(name, help, each().map(|(of, it)| (of, counter(&it.counters, word))));
    }
    let lag = each().map(|(of, receiver)| (of, receiver.lag));
    text.gauge("receiver_lag_messages", "Messages that a receiver is behind.", lag);
    let asleep = each().map(|(of, receiver)| (of, u8::from(receiver.is_asleep)));
    text.gauge("receiver_asleep", "1 while a receiver sleeps.", asleep);
    let joining = channels().map(|(of, view)| (of, view.joining.len()));
    text.gauge("joining", "Invited receivers that have not joined yet.", joining);
    render_endpoints(&seen.endpoints, &mut text);
    let services = || {
        seen.services.iter().map(|service| {
            let (name, pid) = (&service.view.name, service.view.pid);
            (format!("{{service=\"{name}\",pid=\"{pid}\"}}"), &service.bindings)
        })
    };
    let all = services().map(|(of, _)| (of, 1));
    text.gauge("service", "1 for a service: a name to which processes connect.", all);
    render_served(&seen.services, &mut text);
    let bound = services().filter_map(|(of, bindings)| {
        bindings.as_ref().map(|bindings| (of, bindings.clients.len()))
    });
    text.gauge("service_bindings", "Clients that are bound to a service.", bound);
    render_monitors(&seen.monitors, &mut text);
    render_groups(&seen.groups, &mut text);
    render_windows(&seen.windows, &mut text);
    text.0
}

fn render_endpoints(views: &[EndpointView], text: &mut Text) {
    let of_endpoint = |view: &EndpointView| {
        let labels = Place::of(&view.name).labels();
        format!("{{endpoint=\"{}\"{labels}}}", view.name)
    };
    let labels: Vec<_> = views.iter().map(of_endpoint).collect();
    let endpoints = || labels.iter().cloned().zip(views);
    for (name, word, help) in OF_ENDPOINTS {
        let of = endpoints().map(|(of, view)| (of, counter(&view.counters, word)));
        text.counter(name, help, of);
    }
    type Traffic = fn(&EndpointView) -> u64;
    let traffic: [(&str, &str, Traffic); 4] = [
        ("sent_messages", "Messages sent, also to peers that have gone.", |view| {
            view.sent_messages
        }),
        ("sent_bytes", "Payload bytes sent, also to peers that have gone.", |view| view.sent_bytes),
        ("received_messages", "Messages that came, also from peers that have gone.", |view| {
            view.received_messages
        }),
        ("received_bytes", "Payload bytes that came, also from peers that have gone.", |view| {
            view.received_bytes
        }),
    ];
    for (name, what, count) in traffic {
        let counts = endpoints().map(|(of, view)| (of, count(view)));
        text.counter(&format!("endpoint_{name}_total"), what, counts);
    }
    let peers = endpoints().map(|(of, view)| (of, view.peers.len()));
    text.gauge("endpoint_peers", "Peers that are linked.", peers);
    let kept = endpoints().map(|(of, view)| (of, view.kept_bytes));
    text.gauge("endpoint_kept_bytes", "What kept messages take of the budget.", kept);
    let budget = endpoints().map(|(of, view)| (of, view.budget_bytes));
    text.gauge("endpoint_budget_bytes", "Budget of an endpoint.", budget);
    let each = || {
        views.iter().flat_map(|view| {
            view.peers.iter().map(move |peer| {
                let (own, name, pid) = (&view.name, &peer.name, peer.pid);
                (format!("{{endpoint=\"{own}\",peer=\"{name}\",pid=\"{pid}\"}}"), peer)
            })
        })
    };
    for (name, help, of) in OF_PEERS {
        text.counter(name, help, each().map(|(labels, peer)| (labels, of(peer))));
    }
    let kept = each().map(|(of, peer)| (of, peer.kept_bytes));
    text.gauge("peer_kept_bytes", "What kept messages of a peer take of the budget.", kept);
    render_far_peers(views, text);
}

/// Peers on other hosts.
fn render_far_peers(views: &[EndpointView], text: &mut Text) {
    let each = || {
        views.iter().flat_map(|view| {
            view.far_peers.iter().map(move |peer| {
                let (own, name, way) = (&view.name, &peer.name, &peer.way);
                (format!("{{endpoint=\"{own}\",peer=\"{name}\",way=\"{way}\"}}"), peer)
            })
        })
    };
    for (name, help, of) in OF_FAR_PEERS {
        text.counter(name, help, each().map(|(labels, peer)| (labels, of(peer))));
    }
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let round_trips = each().map(|(of, peer)| (of, peer.round_trip_us as f64 / 1e6));
    let what = "Mean time of a round trip to a peer on another host, as the kernel sees it.";
    text.gauge("far_peer_round_trip_seconds", what, round_trips);
    let unsent = each().map(|(of, peer)| (of, peer.unsent_bytes));
    text.gauge("far_peer_unsent_bytes", "Bytes that a peer's host has not acknowledged.", unsent);
}

/// What services have served, method by method.
fn render_served(services: &[Service], text: &mut Text) {
    let each = || {
        services.iter().flat_map(|Service { view, totals, .. }| {
            totals.iter().map(move |totals| {
                let (name, pid, method) = (&view.name, view.pid, &totals.method);
                (format!("service=\"{name}\",pid=\"{pid}\",method=\"{method}\""), totals)
            })
        })
    };
    type Count = fn(&MethodTotals) -> u64;
    let counters: [(&str, &str, Count); 5] = [
        ("requests", "Requests, and messages without a reply, that came.", |of| of.requests),
        ("replies", "Replies, errors among them, and ends of streams.", |of| of.replies),
        ("errors", "Replies that say that the call failed.", |of| of.errors),
        ("request_bytes", "Bytes of the requests' arguments.", |of| of.request_bytes),
        ("reply_bytes", "Bytes of the replies' results and of streams' parts.", |of| {
            of.reply_bytes
        }),
    ];
    for (name, what, count) in counters {
        let counts = each().map(|(of, totals)| (format!("{{{of}}}"), count(totals)));
        text.counter(&format!("service_{name}_total"), what, counts);
    }
    let what = "Time from a request to its reply in the service, of one call in 16. Streams are not timed.";
    let times = each().map(|(of, totals)| (of, &totals.times));
    text.histogram("service_call_seconds", what, times);
}

fn render_monitors(monitors: &[Monitor], text: &mut Text) {
    let all = || {
        monitors.iter().map(|Monitor { pid, routes }| {
            (format!("{{monitor=\"{}\",pid=\"{pid}\"}}", routes.monitor), routes)
        })
    };
    let frames = all().map(|(of, routes)| (of, routes.frames));
    text.counter("monitor_frames_total", "Frames that a monitor has forwarded.", frames);
    type Count = fn(&Routes) -> u64;
    let counters: [(&str, &str, Count); 5] = [
        ("opened", "Circuits that were set up through a monitor.", |routes| routes.opened),
        ("refused", "Requests for circuits that a monitor refused.", |routes| routes.refused),
        ("lost", "Circuits that ended because a monitor's neighbour did.", |routes| routes.lost),
        ("unknown", "Frames of circuits that were not there.", |routes| routes.unknown),
        ("recalls", "Times a monitor asked lent memory back.", |routes| routes.recalls),
    ];
    for (name, what, count) in counters {
        let counts = all().map(|(of, routes)| (of, count(routes)));
        text.counter(&format!("monitor_{name}_total"), what, counts);
    }
    let circuits = all().map(|(of, routes)| (of, routes.circuits));
    text.gauge("monitor_circuits", "Circuits through a monitor.", circuits);
    let links = all().map(|(of, routes)| (of, routes.links.len()));
    text.gauge("monitor_links", "Links of a monitor.", links);
    let stored = all().map(|(of, routes)| (of, routes.stored_lines.saturating_mul(LINE_BYTES)));
    text.gauge("monitor_stored_bytes", "Memory of frames that wait at a monitor.", stored);
}

fn render_windows(windows: &[WindowView], text: &mut Text) {
    let all = || {
        windows
            .iter()
            .map(|view| (format!("{{window=\"{}\",pid=\"{}\"}}", view.name, view.pid), view))
    };
    let bytes = all().map(|(of, view)| (of, view.bytes));
    text.gauge("window_bytes", "Length of a window.", bytes);
    // A guest sees no participants, not even the owner.
    let seen = || all().filter(|(_, view)| !view.participants.is_empty());
    let participants = seen().map(|(of, view)| (of, view.participants.len()));
    text.gauge(
        "window_participants",
        "Participants of a window, the owner included.",
        participants,
    );
    let locked = seen().map(|(of, view)| (of, u8::from(view.locked_by.is_some())));
    text.gauge("window_locked", "1 while a participant has a window to itself.", locked);
    let readers = seen().map(|(of, view)| (of, view.readers));
    text.gauge("window_readers", "Participants that share the lock of a window.", readers);
    let counts = windows.iter().flat_map(|view| {
        let used = view.counters.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(move |(index, count)| {
            let labels =
                format!("{{window=\"{}\",pid=\"{}\",counter=\"{index}\"}}", view.name, view.pid);
            (labels, *count)
        })
    });
    text.counter("window_counter_total", "What a counter of a window holds.", counts);
}

fn render_groups(groups: &[GroupView], text: &mut Text) {
    let each = || {
        groups.iter().flat_map(|group| {
            group.members.iter().map(move |seen| {
                let (name, place, pid) = (&group.name, seen.member.place, seen.pid);
                let labels = format!("{{group=\"{name}\",member=\"{place}\",pid=\"{pid}\"}}");
                (labels, group, seen)
            })
        })
    };
    let decided = each().map(|(of, _, seen)| (of, seen.decided));
    text.counter("group_decided_total", "Entries that a member knows to be decided.", decided);
    let behind = each().map(|(of, group, seen)| (of, group.most_decided() - seen.decided));
    text.gauge(
        "group_behind_entries",
        "Entries that another member knows, and this one not.",
        behind,
    );
    let undecided = each().map(|(of, _, seen)| (of, seen.undecided));
    text.gauge("group_undecided", "Commands of a member that are not decided.", undecided);
    let view = each().map(|(of, _, seen)| (of, seen.view.number));
    text.gauge("group_view", "The number of the view that a member knows.", view);
    let members = each().map(|(of, _, seen)| (of, seen.view.members.len()));
    text.gauge("group_members", "The members of that view.", members);
    let leads = each().map(|(of, _, seen)| (of, u8::from(seen.view.leader == seen.member)));
    text.gauge("group_leads", "1 for a member that leads.", leads);
    let accepts = each().map(|(of, _, seen)| (of, u8::from(seen.view.acceptor == seen.member)));
    text.gauge("group_accepts", "1 for a member that accepts.", accepts);
    let silent =
        groups.iter().map(|group| (format!("{{group=\"{}\"}}", group.name), group.silent.len()));
    text.gauge("group_silent", "Members that do not answer.", silent);
}

/// Counters of an endpoint: the metric, the counter's word, what it counts.
const OF_ENDPOINTS: [(&str, &str, &str); 11] = [
    ("endpoint_waits_total", "waits", "Times an endpoint waited."),
    ("endpoint_sleeps_total", "sleeps", "Times an endpoint slept while it waited."),
    ("endpoint_wakes_total", "wakes", "Times an endpoint woke a peer."),
    ("endpoint_announcements_total", "announcements", "Messages that were announced by a bit."),
    ("endpoint_unexpected_total", "unexpected", "Messages that came before a receive for them."),
    ("endpoint_stalls_total", "stalls", "Messages left with their sender for want of budget."),
    ("endpoint_discarded_total", "discarded", "Messages that were discarded."),
    ("endpoint_pulled_total", "pulled", "Large messages copied from their senders' memory."),
    ("endpoint_refusals_total", "refusals", "Large messages that could not be copied from there."),
    ("endpoint_deaths_total", "deaths", "Peers that died."),
    ("endpoint_violations_total", "violations", "Peers whose memory held impossible values."),
];

/// Counters of a peer: the metric, what it counts, where it is.
type OfPeer = (&'static str, &'static str, fn(&PeerView) -> u64);
const OF_PEERS: [OfPeer; 4] = [
    ("peer_sent_messages_total", "Messages sent to a peer.", |peer| peer.sent_messages),
    ("peer_sent_bytes_total", "Payload bytes sent to a peer.", |peer| peer.sent_bytes),
    ("peer_received_messages_total", "Messages that came from a peer.", |peer| {
        peer.received_messages
    }),
    ("peer_received_bytes_total", "Payload bytes that came from a peer.", |peer| {
        peer.received_bytes
    }),
];

type OfFarPeer = (&'static str, &'static str, fn(&FarPeerView) -> u64);

/// Counters of a peer on another host.
const OF_FAR_PEERS: [OfFarPeer; 5] = [
    ("far_peer_sent_messages_total", "Messages sent to a peer on another host.", |peer| {
        peer.sent_messages
    }),
    ("far_peer_sent_bytes_total", "Bytes of frames sent to a peer on another host.", |peer| {
        peer.sent_bytes
    }),
    ("far_peer_received_messages_total", "Messages that came from such a peer.", |peer| {
        peer.received_messages
    }),
    ("far_peer_received_bytes_total", "Bytes of frames that came from such a peer.", |peer| {
        peer.received_bytes
    }),
    ("far_peer_reconnects_total", "Times such an endpoint was connected before.", |peer| {
        peer.reconnects
    }),
];

/// Names of channels are of characters that need no escapes.
fn of_channel(ChannelView { name, .. }: &ChannelView) -> String {
    format!("{{channel=\"{name}\"}}")
}

fn of_receiver(view: &ChannelView, receiver: &ReceiverView) -> String {
    let (name, ReceiverView { row, pid, .. }) = (&view.name, receiver);
    format!("{{channel=\"{name}\",row=\"{row}\",pid=\"{pid}\"}}")
}

/// What is written so far.
struct Text(String);

impl Text {
    fn counter(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, impl Display)>,
    ) {
        self.metric(name, help, "counter", samples);
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, impl Display)>,
    ) {
        self.metric(name, help, "gauge", samples);
    }

    /// Times, in buckets that end at powers of 4 of nanoseconds: from 256 ns to 17 s.
    fn histogram<'a>(
        &mut self,
        name: &str,
        help: &str,
        all: impl Iterator<Item = (String, &'a Times)>,
    ) {
        let _ = writeln!(self.0, "# HELP corewire_{name} {help}");
        let _ = writeln!(self.0, "# TYPE corewire_{name} histogram");
        for (of, times) in all {
            let mut buckets = times.buckets().peekable();
            let mut count = 0;
            for power in (8..=34).step_by(2) {
                let end = Duration::from_nanos(1 << power);
                while let Some((_, some)) = buckets.next_if(|(longest, _)| *longest < end) {
                    count += some;
                }
                let end = end.as_secs_f64();
                let _ = writeln!(self.0, "corewire_{name}_bucket{{{of},le=\"{end}\"}} {count}");
            }
            let (all, sum) = (times.count(), times.total().as_secs_f64());
            let _ = writeln!(self.0, "corewire_{name}_bucket{{{of},le=\"+Inf\"}} {all}");
            let _ = writeln!(self.0, "corewire_{name}_sum{{{of}}} {sum}");
            let _ = writeln!(self.0, "corewire_{name}_count{{{of}}} {all}");
        }
    }

    fn metric(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        samples: impl IntoIterator<Item = (String, impl Display)>,
    ) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP corewire_{name} {help}");
        let _ = writeln!(self.0, "# TYPE corewire_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(self.0, "corewire_{name}{labels} {value}");
        }
    }
}
