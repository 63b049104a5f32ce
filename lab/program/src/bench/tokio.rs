//! Round trips of 8 bytes between two tasks of two runtimes of tokio, each in a thread of its own: by bare eventfds, by
//! endpoints and by channels. A bare eventfd carries a number; what is compared is the cost of waking the other task.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Barrier;

use corewire::{Domain, Selector};
use corewire_harness::places::Pinned;
use corewire_os::processor;
use corewire_tokio::{ReceiverStream, SenderSink, TokioEndpoint};
use rustix::event::{EventfdFlags, eventfd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Builder, Runtime};

use super::prelude::*;

/// Round trips of a block.
const ROUND_TRIPS: u64 = 5000;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::other(error.to_string())
}

fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(failed)
}

/// An eventfd that tokio watches.
struct Event(AsyncFd<OwnedFd>);

impl Event {
    fn new(descriptor: OwnedFd) -> Result<Self, Failure> {
        #[expect(deprecated, reason = "sound for a descriptor that is owned; the other is unsafe")]
        AsyncFd::with_interest(descriptor, Interest::READABLE).map(Self).map_err(failed)
    }

    /// The number that was written.
    async fn read(&self) -> io::Result<u64> {
        loop {
            let mut guard = self.0.readable().await?;
            let mut number = [0; 8];
            match rustix::io::read(self.0.get_ref(), &mut number) {
                Ok(_) => return Ok(u64::from_le_bytes(number)),
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn write(event: &OwnedFd, number: u64) -> io::Result<()> {
    rustix::io::write(event, &number.to_le_bytes())?;
    Ok(())
}

/// What a thread exchanges with the other one.
struct Ends {
    event: Event,
    other_event: OwnedFd,
    endpoint: TokioEndpoint,
    sink: SenderSink,
    stream: ReceiverStream,
}

impl Ends {
    /// Must be called in a runtime.
    fn new(
        domain: &Domain,
        events: [&OwnedFd; 2],
        [own, other]: [&str; 2],
        are_made: &Barrier,
    ) -> Result<Self, Failure> {
        let [event, other_event] = events.map(OwnedFd::try_clone);
        let endpoint = domain.endpoint(&format!("{own}.tasks")).create()?;
        let sender = domain.sender(&format!("{own}.numbers")).receivers(1).create()?;
        are_made.wait();
        let receiver = domain.receiver(&format!("{other}.numbers")).join()?;
        are_made.wait();
        Ok(Self {
            event: Event::new(event.map_err(failed)?)?,
            other_event: other_event.map_err(failed)?,
            endpoint: TokioEndpoint::new(endpoint)?,
            sink: SenderSink::new(sender),
            stream: ReceiverStream::new(receiver).map_err(failed)?,
        })
    }

    /// Answers the blocks of a round.
    async fn answer(&mut self) -> Result<(), Failure> {
        for _ in 0..ROUND_TRIPS {
            let number = self.event.read().await.map_err(failed)?;
            write(&self.other_event, number).map_err(failed)?;
        }
        for _ in 0..ROUND_TRIPS {
            let mut number = [0; 8];
            let status = self.endpoint.receive_into(Selector::any(), &mut number).await?;
            self.endpoint.send(status.source, 0, &number).await?;
        }
        for _ in 0..ROUND_TRIPS {
            let number = self.stream.receive_with(|message| message.first_chunk::<8>().copied());
            let number = number.await.map_err(failed)?.flatten().unwrap_or_default();
            self.sink.send(&number).await?;
        }
        Ok(())
    }

    /// Makes the round trips of a round.
    async fn ask(&mut self, other: corewire::Peer) -> Result<[f64; 3], Failure> {
        let Self { event, other_event, endpoint, sink, stream } = self;
        let mut times = [vec![], vec![], vec![]];
        for number in 1..=ROUND_TRIPS {
            let began = Instant::now();
            write(other_event, number).map_err(failed)?;
            let back = event.read().await.map_err(failed)?;
            times[0].push(began.elapsed().as_secs_f64() * 1e9);
            same(back, number)?;
        }
        for number in 1..=ROUND_TRIPS {
            let began = Instant::now();
            endpoint.send(other, 0, &number.to_le_bytes()).await?;
            let mut back = [0; 8];
            endpoint.receive_into(Selector::any(), &mut back).await?;
            times[1].push(began.elapsed().as_secs_f64() * 1e9);
            same(u64::from_le_bytes(back), number)?;
        }
        for number in 1..=ROUND_TRIPS {
            let began = Instant::now();
            sink.send(&number.to_le_bytes()).await?;
            let back = stream.receive_with(|message| message.first_chunk::<8>().copied());
            let back = back.await.map_err(failed)?.flatten().unwrap_or_default();
            times[2].push(began.elapsed().as_secs_f64() * 1e9);
            same(u64::from_le_bytes(back), number)?;
        }
        Ok(times.map(|times| typical(&times)))
    }
}

fn same(found: u64, number: u64) -> Result<(), Failure> {
    match found == number {
        true => Ok(()),
        false => Err(failed(format!("number {found} came back where {number} was due"))),
    }
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Failure> {
    let crew = setup(0).start(&super::latency::ROLE, |_| options.clone())?;
    let domain = crew.domain()?.clone();
    let cores = Places::Beside.cores(&processor::allowed()?, 1);
    let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
    let event = || eventfd(0, flags).map_err(failed);
    let (there, back) = (event()?, event()?);
    let are_made = Barrier::new(2);
    let blocks = std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let _pinned = Pinned::to(cores[cores.len() - 1])?;
            runtime()?.block_on(async {
                let mut ends = Ends::new(&domain, [&there, &back], ["b", "a"], &are_made)?;
                for _ in all(options.rounds) {
                    ends.answer().await?;
                }
                are_made.wait();
                Ok::<_, Failure>(())
            })
        });
        let _pinned = Pinned::to(cores[0])?;
        let runtime = runtime()?;
        let entered = runtime.enter();
        let mut ends = Ends::new(&domain, [&back, &there], ["a", "b"], &are_made)?;
        drop(entered);
        let other = runtime.block_on(ends.endpoint.peer("b.tasks"))?;
        let blocks = alternate(options.rounds, |_| runtime.block_on(ends.ask(other)))?;
        are_made.wait();
        answering.join().map_err(|_| failed("the other thread panicked"))??;
        Ok::<_, Failure>(blocks)
    })?;
    report.value("rounds", options.rounds);
    for (block, (key, words)) in [
        ("bare_eventfds_round_trip_ns", "bare eventfds in tokio, there and back"),
        ("endpoints_round_trip_ns", "endpoints in tokio, 8 bytes there and back"),
        ("channels_round_trip_ns", "channels in tokio, 8 bytes there and back"),
    ]
    .into_iter()
    .enumerate()
    {
        report.figure(key, words, blocks.median(block), "ns");
    }
    report.ratios("endpoints_ratio", "endpoints to bare eventfds", &blocks.ratios(1, 0));
    report.ratios("channels_ratio", "channels to bare eventfds", &blocks.ratios(2, 0));
    crew.finish_with(report)
}
