//! `corewire call`: standard input as one request to an endpoint, or a method of a service with arguments in JSON.

mod events;
mod method;
mod parts;
mod request;
mod rights;
mod service;

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use corewire::ChannelName;
use corewire_bind::Driver;

use crate::failure::Failure;
use crate::units;

const EXAMPLES: &str = "\
Examples:
  echo hello | corewire call upper
  corewire call sum < disk.img
  corewire call calculator multiply '{\"p\": {\"left\": 6, \"right\": 7}}'
  corewire call calculator sum '[[6, 7]]' --driver sock
  corewire call shop buy '[\"tea\", 2]'
  corewire call shop log '[true]' --count 10
  corewire call calculator --interface
  corewire call calculator --events noted --count 10
  corewire call files open '{\"name\": \"a.txt\"}' --copy-to -\n\
\n\
Without METHOD, all of standard input is one request to an endpoint, such as one that \
`corewire serve` creates. With METHOD, the service NAME is asked for its interface, and \
METHOD is called with ARGUMENTS: an object, or an array in the order of the interface \
file. docs/interfaces.md says how each type is written. The reply is printed as JSON: in \
one line, and indented on a terminal. A message without a reply is sent, and nothing is \
printed. The parts of a stream are printed in a line of JSON each. If the service replies \
with an error of its own, {\"error\": \"NAME\"} or {\"error\": {\"NAME\": {..}}} is printed, and \
the exit code is 4.\n\
\n\
A capability in ARGUMENTS is a file to open for reading ({\"path\": \"file\"}, or just \
\"file\") or a descriptor with which the command was started ({\"fd\": 0}); for endpoints, \
channels, services and windows it is the name. One in the reply is printed as {\"capability\": 0}: \
its place among those that came.\n\
\n\
--events prints each event in a line of JSON: {\"event\": \"NAME\", \"arguments\": {..}}. \
Where events are missing, because this command read too slowly, standard error says how \
many. INT, TERM and HUP end it with 0; so does the service when it closes.\n\
\n\
If NAME does not exist yet, the command says on standard error where it waits for it.\n\
\n\
Exit codes: 0 replied, 4 the service replied with an error of its own, 3 if the process \
that was to reply died, 2 wrong usage (no such method, wrong arguments), 1 any other \
failure: no reply in time, or the request was dropped.";

/// Send standard input to an endpoint as one request, or call a method of a service with JSON
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The endpoint or service to call
    #[arg(value_parser = units::channel_name)]
    name: ChannelName,
    /// The method of a service
    #[arg(value_name = "METHOD")]
    method: Option<String>,
    /// Its arguments in JSON; - reads them from standard input [default: {}]
    #[arg(value_name = "ARGUMENTS")]
    arguments: Option<String>,
    /// Print what the service sends without being asked, or only events of the name EVENT
    #[arg(long, value_name = "EVENT", conflicts_with_all = ["method", "interface"])]
    events: Option<Option<String>>,
    /// End after N events, or N parts of a stream
    #[arg(long, value_name = "N", conflicts_with = "interface")]
    count: Option<NonZeroU64>,
    /// Print the interface of the service as an interface file
    #[arg(long, conflicts_with = "method")]
    interface: bool,
    /// Print the interface in its JSON form
    #[arg(long, requires = "interface")]
    json: bool,
    /// Bind by this driver: local, lmp, ump, sock or circuit; can be repeated, and the first that is possible is used
    /// [default: all, in this order]
    #[arg(long = "driver", value_name = "DRIVER", value_parser = driver)]
    drivers: Vec<Driver>,
    /// Copy the file whose descriptor came with the reply to FILE; - is standard output, where the reply is then not
    /// printed
    #[arg(long, value_name = "FILE", requires = "method")]
    copy_to: Option<PathBuf>,
    /// Fail if there is no reply within SECONDS, from 0.001 to 1000000, whether or not NAME exists by then, or a stream
    /// has not ended. With --events: until the service has answered
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Fail if the endpoint or service does not exist, instead of waiting for it
    #[arg(long)]
    no_wait: bool,
}

impl Args {
    /// Whether it calls a service, which guests of a domain can do as well.
    pub(crate) const fn is_of_service(&self) -> bool {
        self.method.is_some() || self.events.is_some() || self.interface
    }

    /// The limit on the whole command, which begins now.
    fn limit(&self) -> Limit {
        Limit(self.timeout.map(|timeout| Instant::now() + timeout))
    }

    fn late(&self) -> Failure {
        let seconds = self.timeout.unwrap_or_default().as_secs_f64();
        Failure::other(format!("no reply of {} within {seconds} s", self.name))
    }

    fn died(&self) -> Failure {
        Failure { message: format!("{} died before it replied", self.name), code: 3 }
    }

    fn dropped(&self) -> Failure {
        Failure::other(format!("{} dropped the request without a reply", self.name))
    }
}

/// When the command must have ended.
#[derive(Debug, Clone, Copy)]
struct Limit(Option<Instant>);

impl Limit {
    /// The time that is left; `None` if there is no limit.
    fn left(self) -> Option<Duration> {
        self.0.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// The time that is left, but at most `limit`.
    fn left_of(self, limit: Duration) -> Duration {
        self.left().map_or(limit, |left| left.min(limit))
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(event) = &args.events {
        return events::run(args, event.as_deref());
    }
    if let Some(method) = &args.method {
        return method::run(args, method);
    }
    if args.interface {
        return service::print(args);
    }
    if !args.drivers.is_empty() {
        return Err(Failure::usage("--driver is for a METHOD or the --events of a service"));
    }
    if args.count.is_some() {
        return Err(Failure::usage("--count is for a METHOD or the --events of a service"));
    }
    request::run(args)
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|seconds| (0.001..=1e6).contains(seconds));
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text:?} is not a number of seconds from 0.001 to 1000000"))
}

fn driver(text: &str) -> Result<Driver, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use corewire_idl::form::Route;
    use corewire_idl::{Check, Source, json};

    /// The words of a command, of which those in single quotes may have spaces; without a comment.
    fn words(command: &str) -> Vec<&str> {
        let parts = command.split('\'').enumerate().flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        parts.take_while(|&word| word != "#").collect()
    }

    #[test]
    fn what_help_and_documents_ask_the_example_services_they_have() {
        let examples = [
            ("calculator", include_str!("../../../../examples/calculator/calculator.if")),
            ("files", include_str!("../../../../examples/file_server/files.if")),
            ("shop", include_str!("../../../../examples/shop/shop.if")),
        ];
        let examples = examples.map(|(name, text)| {
            let checked = Check::new(Source::new(name, text)).run().into_result();
            (name, checked.unwrap().0)
        });
        let mut found = 0;
        for text in [
            super::EXAMPLES,
            crate::EXAMPLES,
            include_str!("../../../../docs/commands.md"),
            include_str!("../../../../docs/interfaces.md"),
        ] {
            for line in text.lines() {
                let words = words(line);
                let ["corewire", "call", name, method, arguments @ ..] = &words[..] else {
                    continue;
                };
                let of_example = examples.iter().find(|(example, _)| example == name);
                let Some((_, interface)) = of_example else { continue };
                found += 1;
                if let Some(option) = method.strip_prefix("--") {
                    let event = arguments.first().filter(|word| !word.starts_with('-'));
                    let is_sent = |name: &&str| {
                        let sent = interface.message(name);
                        sent.is_some_and(|it| {
                            it.wires.iter().any(|w| w.direction == Route::ToClient)
                        })
                    };
                    assert!(option == "interface" || event.is_none_or(is_sent), "{line}");
                    continue;
                }
                let message = interface.message(method).unwrap();
                let wire = message.wires.iter().find(|wire| wire.direction != Route::ToClient);
                let value = serde_json::from_str(arguments[0]).unwrap();
                let encoded = json::encode(interface, message, wire.unwrap(), &value);
                assert!(encoded.is_ok(), "{line}: {}", encoded.unwrap_err());
            }
        }
        assert!(found >= 9, "{found} commands");
    }
}
