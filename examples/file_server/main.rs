//! Descriptors as results and arguments: a server that opens files of one directory for its clients. The clients read
//! with descriptors of their own; no byte of a file travels through the server.
//!
//! ```text
//! file_server serve DIRECTORY      until `file_server stop`
//! file_server list
//! file_server cat NAME             prints a file that the server opened
//! file_server keep NAME            hands standard input to the server, for others to open as NAME
//! file_server stop
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use corewire_bind::{Bind, ClientId, Domain};

corewire_bind::interface!(files);

use files::{Client, Refusal, Server};

const NAME: &str = "files";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let domain = Domain::open()?;
    let client = || Client::bind(&domain, NAME, &Bind::default());
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", directory] => serve(&domain, directory.into())?,
        ["list"] => print!("{}", client()?.list()?),
        ["cat", name] => {
            let opened = client()?.open(name)?;
            io::copy(&mut File::from(opened.file), &mut io::stdout())?;
        }
        ["keep", name] => client()?.keep(name, io::stdin().as_fd())?,
        ["stop"] => client()?.stop()?,
        _ => return Err("file_server serve DIRECTORY | list | cat NAME | keep NAME | stop".into()),
    }
    Ok(())
}

struct Files {
    directory: PathBuf,
    kept: HashMap<String, OwnedFd>,
    is_over: bool,
}

impl Files {
    fn open(&self, name: &str) -> Result<(OwnedFd, u64), Refusal> {
        if let Some(kept) = self.kept.get(name) {
            // Another open file of the same: each reader begins at the beginning.
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(kept));
            return opened(Path::new(&path));
        }
        let path = Path::new(name);
        // Only plain names below the directory.
        let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        match is_inside && !name.is_empty() {
            true => opened(&self.directory.join(path)),
            false => Err(Refusal::Outside),
        }
    }
}

fn opened(path: &Path) -> Result<(OwnedFd, u64), Refusal> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Refusal::NotFound,
        _ => Refusal::Failed,
    })?;
    let bytes = file.metadata().map_err(|_| Refusal::Failed)?.len();
    Ok((file.into(), bytes))
}

impl files::Service for Files {
    fn open(&mut self, name: &str, reply: files::OpenReply<'_>) {
        match Files::open(self, name) {
            Ok((file, bytes)) => reply.send(file.as_fd(), bytes),
            Err(refusal) => reply.fail(refusal),
        }
    }

    fn list(&mut self, reply: files::ListReply<'_>) {
        let found = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let found = found.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = found.chain(self.kept.keys().cloned()).collect();
        names.sort();
        let lines: String = names.iter().flat_map(|name| [name, "\n"]).collect();
        reply.send(&lines);
    }

    fn keep(&mut self, name: &str, file: OwnedFd, reply: files::KeepReply<'_>) {
        self.kept.insert(name.to_owned(), file);
        reply.send();
    }

    fn stop(&mut self, _client: ClientId) {
        self.is_over = true;
    }
}

fn serve(domain: &Domain, directory: PathBuf) -> Result<(), Box<dyn Error>> {
    let files = Files { directory, kept: HashMap::new(), is_over: false };
    let mut server = Server::new(domain, NAME, files)?;
    while !server.service().is_over && server.serve_one()? {}
    Ok(())
}
