//! How a process becomes a member.
//!
//! | | what happens |
//! |---|---|
//! | 1 | Takes the group's *door*: a name that only one process can have. All other processes with an endpoint of the group are therefore members. |
//! | 2 | Takes the first free place: its endpoint. |
//! | 3 | Opens the channel, as a sender and a receiver: it gets what acceptors publish from now on. |
//! | 4 | Links with all other endpoints of the group, each in a thread: one may be stopped. |
//! | 5 | If there is none, founds the group. Otherwise it asks for the log, and then to be a member. |
//! | 6 | Is in a view, and gives up the door. |
//!
//! If it dies, the kernel gives up the door. If all members die meanwhile, it founds the group.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, io};

use corewire::{
    ChannelName, CreateError, Domain, EndpointError, JoinError, ListenError, Listener,
    SharedSender, SnapshotReceiver,
};
use corewire_os::OsError;
use corewire_os::event::{Bell, wait_readable};
use corewire_os::locked::SharedLock;
use corewire_os::process::effective_uid;
use corewire_os::report::Report;
use rustix::io::Errno;

use crate::collective::connect::name_with;
use crate::engine::{Engine, channel_of, in_thread, name_of, place_of};
use crate::error::{JoinGroupError, of_one_host};
use crate::frame::FRAME_BYTES;
use crate::group::Group;
use crate::log_file::writer::SAYS_AFTER;
use crate::log_file::{FileId, LogFileError, failed};
use crate::member::{COMMAND_BYTES_MAX, MEMBERS_MAX, Member};
use crate::owner::words_of;

/// A receiver of the channel that delays everybody for so long is passed over, and gets what it has missed from the
/// acceptor.
const EVICT_AFTER: Duration = Duration::from_millis(100);

/// The longest name of an endpoint.
pub(crate) const NAME_BYTES_MAX: usize = 100;
/// The most processes that a member is linked with: other members, clients, and those that look.
const PEERS_MAX: usize = 1024;
/// How often a call that waits for its channel looks whether it must say or end something.
pub(crate) const LOOKS_AFTER: Duration = Duration::from_millis(50);
/// How long processes that run may take to say that they do.
const ANSWERS_WITHIN: Duration = Duration::from_millis(200);

/// Why a process waits for its channel, as far as is known.
const NOT_LET_IN: &str = "the group's channel does not let this process in";

/// This process's ends of the group's channel.
type Ends = (SharedSender, SnapshotReceiver);

impl Group {
    /// Begins to join the group of this name in a domain. The group has the names `NAME.log`, `NAME.door` and `NAME.member.0`
    /// to `NAME.member.63`, and its communicators names that follow these.
    pub fn builder(domain: &Domain, name: &str) -> GroupBuilder {
        GroupBuilder::new(domain, name)
    }
}

/// Builder of a member, returned by [`Group::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing is joined before `join`"]
pub struct GroupBuilder {
    domain: Domain,
    name: String,
    command_bytes_max: usize,
    file: Option<PathBuf>,
    report: Report,
}

/// When a call ends at the latest.
#[derive(Debug, Clone, Copy)]
struct Deadline(Option<(Instant, Duration)>);

impl Deadline {
    fn of(timeout: Option<Duration>) -> Self {
        let at = |after| Some((Instant::now().checked_add(after)?, after));
        Self(timeout.and_then(at))
    }

    fn at(self) -> Option<Instant> {
        self.0.map(|(at, _)| at)
    }

    fn check(self, name: &str, why: impl FnOnce() -> String) -> Result<(), JoinGroupError> {
        match self.0 {
            Some((at, after)) if Instant::now() >= at => {
                Err(JoinGroupError::Timeout { name: name.to_owned(), after, why: why() })
            }
            _ => Ok(()),
        }
    }
}

/// Reports once what a call waits for.
struct Waits<'a> {
    report: &'a Report,
    since: Instant,
    has_said: bool,
}

impl<'a> Waits<'a> {
    fn new(report: &'a Report) -> Self {
        Self { report, since: Instant::now(), has_said: false }
    }

    /// Whether the call waits so long that it must say for what.
    fn is_long(&self) -> bool {
        self.since.elapsed() >= SAYS_AFTER
    }

    fn look(&mut self, why: impl FnOnce() -> String) {
        if !self.has_said && self.is_long() {
            self.has_said = true;
            (self.report.0)(&format!("waiting: {}", why()));
        }
    }
}

impl GroupBuilder {
    pub(crate) fn new(domain: &Domain, name: &str) -> Self {
        Self {
            domain: domain.clone(),
            name: name.to_owned(),
            command_bytes_max: 64 << 10,
            file: None,
            report: Report::nobody(),
        }
    }

    /// The length of the longest command in bytes, from 1 to 256 MiB. Default: 64 KiB. The member that founds the group
    /// decides for all. The group's channel takes 256 times as many bytes of address space, and memory for those that are
    /// used.
    pub fn largest_command(mut self, bytes: usize) -> Self {
        self.command_bytes_max = bytes;
        self
    }

    /// Keeps the log in this file, too, so that it outlives all members, and the machine. All members give the same file:
    /// the one that accepts writes it, and an entry is on the disk before anybody is told that it is decided. The
    /// process that founds the group anew begins with what is in the file; if there is none, makes it, for this user only.
    ///
    /// An entry costs a write and an `fdatasync`; entries that come meanwhile share the next one. The file grows with the
    /// log: [`Group::truncate`] at the member that accepts shortens it.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    /// Calls `report` with a sentence when something happens that does not end the group, and that its users should know:
    /// joining waits for longer than a second, and for which member; a part of the file is cut off, how much, and where it is
    /// kept; a file does not become shorter. Any thread may call it. By default nobody is told.
    ///
    /// ```
    /// # let directory = std::env::temp_dir().join(format!("corewire-doc-report-{}", std::process::id()));
    /// # let domain = corewire::Domain::open_at(&directory)?;
    /// use corewire_group::Group;
    ///
    /// let group = Group::builder(&domain, "orders").report(|text| eprintln!("orders: {text}")).join()?;
    /// # drop((group, domain));
    /// # std::fs::remove_dir_all(&directory)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn report(mut self, report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.report = Report(Arc::new(report));
        self
    }

    /// Becomes a member of the group, and founds it if nobody is one. Waits for as long as another process is about to
    /// become a member, or the members are stopped.
    ///
    /// # Errors
    /// [`JoinGroupError`].
    pub fn join(self) -> Result<Group, JoinGroupError> {
        self.join_until(Deadline::of(None))
    }

    /// Like [`join`](Self::join), but waits for at most `timeout`.
    ///
    /// # Errors
    /// [`JoinGroupError::Timeout`]; otherwise as for [`join`](Self::join).
    pub fn join_timeout(self, timeout: Duration) -> Result<Group, JoinGroupError> {
        self.join_until(Deadline::of(Some(timeout)))
    }

    fn join_until(self, deadline: Deadline) -> Result<Group, JoinGroupError> {
        let last = u8::try_from(MEMBERS_MAX - 1).unwrap_or(u8::MAX);
        let longest = name_with("", last, u64::MAX).len();
        of_one_host(&self.name, JoinGroupError::OtherHost)?;
        ChannelName::check(&self.name, NAME_BYTES_MAX - longest)?;
        let asked = self.command_bytes_max;
        if !(1..=COMMAND_BYTES_MAX).contains(&asked) {
            return Err(JoinGroupError::LargestCommand { asked });
        }
        let file = self.file.as_deref().map(FileId::of).transpose()?;
        let door = self.take_door(deadline)?;
        let (place, endpoint) = self.take_place()?;
        let me = Member::at(place, endpoint.incarnation());
        let channel = self.open_channel(deadline)?;
        let bell = Arc::new(Bell::new()?);
        let (report, at_bell) = (Arc::clone(&self.report.0), Arc::clone(&bell));
        let mut engine =
            Engine::new(&self.domain, &self.name, me, endpoint, channel, (file, report), at_bell);
        for name in self.domain.endpoints()? {
            if let Some(place) = place_of(&self.name, name.as_str()) {
                engine.ask(place);
            }
        }
        let mut waits = Waits::new(&self.report);
        while !engine.is_member() || !engine.has_lock() {
            if let Some(file) = engine.lacks_lock() {
                let taken = self.take_file(file)?;
                engine.keep_lock(taken);
            }
            if engine.has_lock() {
                engine.found_if_alone()?;
            }
            waits.look(|| engine.waits_for());
            deadline.check(&self.name, || engine.waits_for())?;
            if !engine.turn()?
                && let Some(pause) = engine.arm()?
            {
                pause.wait(&bell, deadline.at())?;
            }
        }
        drop(door);
        let command_bytes_max = engine.command_bytes_max();
        Ok(Group::new(&self.name, engine, bell, command_bytes_max)?)
    }

    /// Takes the lock that all processes of this group share, and no others: also while no member writes the file, it is
    /// this group's. `None` if another group has it, or somebody is just looking. Does not wait.
    fn take_file(&self, file: &FileId) -> Result<Option<SharedLock>, JoinGroupError> {
        let (domain, lock) = (self.domain.runtime_directory(), file.lock());
        let words = words_of(domain).map_err(failed("find", domain))?;
        let words = format!("{words}{}\n", self.name);
        match SharedLock::take(&lock, words.as_bytes(), Instant::now()) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(_) if lock.metadata().is_ok_and(|found| found.uid() != effective_uid()) => {
                Err(LogFileError::ForeignLock(lock).into())
            }
            taken => Ok(taken.map_err(failed("lock", &lock))?),
        }
    }

    fn take_door(&self, deadline: Deadline) -> Result<Listener, JoinGroupError> {
        let watch = self.domain.watch_names()?;
        let mut waits = Waits::new(&self.report);
        loop {
            match self.domain.listener(&format!("{}.door", self.name)) {
                Err(ListenError::AlreadyExists(holder)) => {
                    let other = holder
                        .pid
                        .map_or("another process".to_owned(), |pid| format!("process {pid}"));
                    let why = || format!("{other} is about to become a member");
                    waits.look(why);
                    deadline.check(&self.name, why)?;
                    // A name that is free because its process has died is not reported.
                    let soon = Instant::now().checked_add(Duration::from_millis(10));
                    wait_readable(&[watch.as_fd()], deadline.at().into_iter().chain(soon).min())?;
                    let _ = watch.has_changed();
                }
                other => return Ok(other?),
            }
        }
    }

    fn take_place(&self) -> Result<(u8, corewire::Endpoint), JoinGroupError> {
        for place in 0..MEMBERS_MAX {
            let place = u8::try_from(place).unwrap_or(u8::MAX);
            let endpoint = self.domain.endpoint(&name_of(&self.name, place));
            match endpoint.peers(PEERS_MAX).create() {
                Err(EndpointError::AlreadyExists(_)) => {}
                other => return Ok((place, other?)),
            }
        }
        Err(JoinGroupError::Full(self.name.clone()))
    }

    /// Opens the group's channel, in a thread of its own: the process that lets others in may be stopped.
    fn open_channel(&self, deadline: Deadline) -> Result<Ends, JoinGroupError> {
        let (opened, ends) = mpsc::channel();
        // Why the last attempt failed. The thread ends when nobody waits for it any more.
        let why_not = Arc::new(Mutex::new(String::new()));
        let (builder, wanted) = (self.clone(), Arc::downgrade(&why_not));
        in_thread(move || {
            // If nobody waits any more, the channel is left again.
            let _ = opened.send(builder.open_while(&wanted));
        })?;
        let mut waits = Waits::new(&self.report);
        let mut why: Option<(Instant, String)> = None;
        loop {
            let soon = Instant::now() + LOOKS_AFTER;
            let until = deadline.at().into_iter().chain([soon]).min().unwrap_or(soon);
            match ends.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Some(ends)) => return ends,
                // The thread has panicked, which is reported.
                Ok(None) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let what = "open the channel of a group".into();
                    let errno = Errno::CANCELED.raw_os_error();
                    return Err(JoinGroupError::Os(OsError { what, errno }));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            let said = || why.clone().map_or_else(|| NOT_LET_IN.to_owned(), |(_, why)| why);
            deadline.check(&self.name, said)?;
            // Asking takes a moment, and what was answered long ago is not so any more.
            let now = Instant::now();
            let left = deadline.at().map(|at| at.saturating_duration_since(now));
            let ends_soon = left.is_some_and(|left| left < 2 * ANSWERS_WITHIN);
            let is_due = match &why {
                None => waits.is_long() || ends_soon,
                Some((at, _)) => ends_soon && now.saturating_duration_since(*at) > SAYS_AFTER,
            };
            if is_due {
                let why_not = why_not.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let within = left.unwrap_or(ANSWERS_WITHIN).min(ANSWERS_WITHIN);
                why = Some((now, self.who_is_silent(&why_not, within)));
            }
            waits.look(|| why.clone().map_or_else(String::new, |(_, why)| why));
        }
    }

    /// Opens the group's channel, again and again while somebody wants to know why that failed. `None` if nobody does.
    fn open_while(&self, why_not: &Weak<Mutex<String>>) -> Option<Result<Ends, JoinGroupError>> {
        let failed = |error: &dyn fmt::Display| {
            if let Some(why_not) = why_not.upgrade() {
                *why_not.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
            }
            std::thread::park_timeout(Duration::from_millis(1));
        };
        while why_not.strong_count() > 0 {
            let builder = self.domain.sender(&channel_of(&self.name)).evict(EVICT_AFTER);
            let bytes = self.command_bytes_max + FRAME_BYTES;
            let sender = builder.largest_message(bytes).receivers(4 * MEMBERS_MAX);
            let sender = match sender.open_shared(2 * MEMBERS_MAX) {
                // The process that lets others in has died, or is stopped.
                Err(error @ (CreateError::NoHost { .. } | CreateError::Enter { .. })) => {
                    failed(&error);
                    continue;
                }
                Err(error) => return Some(Err(error.into())),
                Ok(sender) => sender,
            };
            match self.domain.receiver(&channel_of(&self.name)).snapshots().join() {
                Err(error @ (JoinError::NotFound(_) | JoinError::NoAnswer { .. })) => {
                    failed(&error)
                }
                Err(error) => return Some(Err(error.into())),
                Ok(receiver) => return Some(Ok((sender, receiver))),
            }
        }
        None
    }

    /// Which processes of the group do not answer in time; if all do, why the last attempt failed. Asks them.
    fn who_is_silent(&self, why_not: &str, within: Duration) -> String {
        let is_of_group =
            |name: &str| name == channel_of(&self.name) || place_of(&self.name, name).is_some();
        let seen = self.domain.observe_all(within).unwrap_or_default();
        let silent =
            seen.iter().filter(|one| is_of_group(&one.name)).filter_map(|one| match one.observed {
                Err(JoinError::NoAnswer { pid, .. }) if pid != 0 => Some(pid.to_string()),
                _ => None,
            });
        let silent: Vec<_> = silent.collect::<BTreeSet<_>>().into_iter().collect();
        let why = NOT_LET_IN;
        match &silent[..] {
            [] if why_not.is_empty() => why.to_owned(),
            [] => format!("{why}: {why_not}"),
            [one] => format!("{why}: process {one} does not answer"),
            more => format!("{why}: the processes {} do not answer", more.join(", ")),
        }
    }
}
