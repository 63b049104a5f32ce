//! Endpoints with TLS, beside bare `rustls` over a socket with the same certificates.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use corewire::Wait;
use corewire_harness::board::Board;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use super::super::prelude::*;
use super::raw::Raw;
use super::{End, STREAMS, TRIPS, note_used, processor_ns, rate, stream_figures, trips};

/// Bytes that one system call reads at most, as endpoints do.
const READ_BYTES: usize = 64 << 10;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::other(format!("TLS: {error}"))
}

/// Writes an authority, and a certificate for each host.
pub(super) fn certify(directory: &Path) -> Result<(), Failure> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "the hosts of a benchmark");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().map_err(failed)?;
    let authority = CertifiedIssuer::self_signed(params, key).map_err(failed)?;
    std::fs::write(directory.join("all.pem"), authority.pem())?;
    for host in ["a", "b"] {
        let key = KeyPair::generate().map_err(failed)?;
        let params = CertificateParams::new(vec![host.to_owned()]).map_err(failed)?;
        let certificate = params.signed_by(&key, &authority).map_err(failed)?;
        std::fs::write(directory.join(format!("{host}.pem")), certificate.pem())?;
        let path = directory.join(format!("{host}.key"));
        std::fs::write(&path, key.serialize_pem())?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
    }
    Ok(())
}

/// What a file of hosts says of them.
pub(super) fn files_of(own: &str) -> String {
    format!("[tls]\ncertificate = \"{own}.pem\"\nkey = \"{own}.key\"\nauthorities = \"all.pem\"\n")
}

/// One end of a bare connection with TLS.
struct Bare {
    stream: TcpStream,
    session: rustls::Connection,
    buffer: Vec<u8>,
    read: Vec<u8>,
    /// What was read and the session has not got.
    unread: Range<usize>,
}

impl Bare {
    fn dial(directory: &Path, at: SocketAddr) -> Result<Self, Failure> {
        let (chain, key, roots) = credentials(directory, "a")?;
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(failed)?;
        let name = ServerName::try_from("b").map_err(failed)?;
        let session = ClientConnection::new(Arc::new(config), name).map_err(failed)?;
        Self::of(Raw::connect(at)?, session.into())
    }

    fn accept(directory: &Path, listener: &TcpListener) -> Result<Self, Failure> {
        let (chain, key, roots) = credentials(directory, "b")?;
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().map_err(failed)?;
        let config = ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(failed)?;
        let session = ServerConnection::new(Arc::new(config)).map_err(failed)?;
        Self::of(listener.accept()?.0, session.into())
    }

    fn of(mut stream: TcpStream, mut session: rustls::Connection) -> Result<Self, Failure> {
        stream.set_nodelay(true)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Self {
            stream,
            session,
            buffer: vec![0; 1 << 20],
            read: vec![0; READ_BYTES],
            unread: 0..0,
        })
    }

    /// Lets the kernel wait, for streams, or polls.
    fn block(&mut self, blocks: bool) -> Result<(), Failure> {
        Ok(self.stream.set_nonblocking(!blocks)?)
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            let count = self.session.writer().write(bytes)?;
            bytes = &bytes[count..];
            while self.session.wants_write() {
                match self.session.write_tls(&mut self.stream) {
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, bytes: usize) -> Result<(), Failure> {
        let mut filled = 0;
        while filled < bytes {
            match self.session.reader().read(&mut self.buffer[filled..bytes]) {
                Ok(0) => return Err(Failure::other("the other side has ended")),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.read_more()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read_more(&mut self) -> Result<(), Failure> {
        if self.unread.is_empty() {
            let count = match self.stream.read(&mut self.read) {
                Ok(0) => return Err(Failure::other("the other side has ended")),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            self.unread = 0..count;
        }
        // The session keeps little that nobody has taken.
        let mut rest = &self.read[self.unread.clone()];
        self.unread.start += self.session.read_tls(&mut rest)?;
        self.session.process_new_packets().map_err(failed)?;
        Ok(())
    }
}

type Credentials = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, RootCertStore);

fn credentials(directory: &Path, own: &str) -> Result<Credentials, Failure> {
    let certificates = |file: &str| {
        let all = CertificateDer::pem_file_iter(directory.join(file)).map_err(failed)?;
        all.collect::<Result<Vec<_>, _>>().map_err(failed)
    };
    let key = PrivateKeyDer::from_pem_file(directory.join(format!("{own}.key"))).map_err(failed)?;
    let mut roots = RootCertStore::empty();
    for authority in certificates("all.pem")? {
        roots.add(authority).map_err(failed)?;
    }
    Ok((certificates(&format!("{own}.pem"))?, key, roots))
}

/// The side that sends.
pub(super) fn lead(
    directory: &Path,
    at: SocketAddr,
    raw: &mut Raw,
    board: &Board,
    (rounds, report): (u64, &mut Report),
) -> Result<(), Failure> {
    let mut bare = Bare::dial(directory, at)?;
    let mut spinning = End::dial(directory, "a-tls", "tls-spin", Wait::Spin)?;
    let mut parking = End::dial(directory, "a-tls", "tls-park", Wait::Park)?;
    let blocks = alternate(rounds, |_| {
        let mut figures = vec![];
        figures.push(trips(TRIPS, || raw.send(&[7; 8], true).and_then(|()| raw.receive(8, true)))?);
        bare.block(false)?;
        figures.push(trips(TRIPS, || bare.send(&[7; 8]).and_then(|()| bare.receive(8)))?);
        figures.push(trips(TRIPS, || spinning.ask(8))?);
        bare.block(true)?;
        for (_, bytes, count) in STREAMS {
            let (message, count) = (vec![7; bytes], count / 4);
            let used = || processor_ns(board);
            let (start, before) = (Instant::now(), used());
            (0..count).try_for_each(|_| bare.send(&message))?;
            bare.receive(8)?;
            figures.extend(rate(bytes * count, start, used() - before));
            let (start, before) = (Instant::now(), used());
            parking.stream(&message, count)?;
            figures.extend(rate(bytes * count, start, used() - before));
        }
        Ok::<_, Failure>(figures)
    })?;
    let words = "8 B there and back with TLS, bare rustls that polls";
    report.figure("raw_tls_polling_us", words, blocks.median(1), "us");
    report.figure("tls_polling_us", "endpoints that poll", blocks.median(2), "us");
    report.ratios("tls_rustls_ratio", "ratio to bare rustls", &blocks.ratios(2, 1));
    report.ratios("tls_polling_ratio", "ratio to the socket without TLS", &blocks.ratios(2, 0));
    for (index, (name, _, _)) in STREAMS.into_iter().enumerate() {
        let keys = (format!("raw_tls_{name}"), format!("tls_{name}"));
        stream_figures(
            report,
            keys,
            &format!("{name} with TLS"),
            "bare rustls",
            &blocks,
            3 + 4 * index,
        );
    }
    Ok(())
}

/// The side that receives.
pub(super) struct Follower {
    spinning: End,
    parking: End,
}

impl Follower {
    pub(super) fn create(directory: &Path) -> Result<Self, Failure> {
        let spinning = End::create(directory, "b-tls", "tls-spin", Wait::Spin)?;
        Ok(Self { spinning, parking: End::create(directory, "b-tls", "tls-park", Wait::Park)? })
    }

    pub(super) fn follow(
        mut self,
        directory: &Path,
        listener: &TcpListener,
        raw: &mut Raw,
        (board, rounds): (&Board, u64),
    ) -> Result<(), Failure> {
        let mut bare = Bare::accept(directory, listener)?;
        for _ in all(rounds) {
            for _ in 0..TRIPS {
                raw.receive(8, true)?;
                raw.send(&[7; 8], true)?;
            }
            bare.block(false)?;
            for _ in 0..TRIPS {
                bare.receive(8)?;
                bare.send(&[7; 8])?;
            }
            (0..TRIPS).try_for_each(|_| self.spinning.answer(8))?;
            bare.block(true)?;
            for (_, bytes, count) in STREAMS {
                (0..count / 4).try_for_each(|_| bare.receive(bytes))?;
                note_used(board);
                bare.send(&[7; 8])?;
                self.parking.take(bytes, count / 4, board)?;
            }
        }
        Ok(())
    }
}
