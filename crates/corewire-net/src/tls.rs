//! TLS 1.3, by `rustls`: both sides show a certificate that an authority has signed which the other trusts.
//!
//! The files are read for each connection: what is renewed counts from the next one on.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corewire_os::file;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

use crate::hosts::TlsFiles;
use crate::open::OpenError;

/// Bytes of a file of certificates at most.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// What this host shows, and whom it trusts.
struct Credentials {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authorities: RootCertStore,
}

fn unusable(path: &Path, why: impl ToString) -> OpenError {
    OpenError::Certificate { path: path.into(), why: why.to_string() }
}

impl Credentials {
    fn read(files: &TlsFiles) -> Result<Self, OpenError> {
        let chain = certificates(&files.certificate)?;
        let key = {
            let path = &files.key;
            let text = file::read_secret(path, PEM_BYTES_MAX);
            let text = text.map_err(|error| unusable(path, error))?;
            PrivateKeyDer::from_pem_slice(&text).map_err(|error| unusable(path, error))?
        };
        let mut authorities = RootCertStore::empty();
        for authority in certificates(&files.authorities)? {
            authorities.add(authority).map_err(|error| unusable(&files.authorities, error))?;
        }
        Ok(Self { chain, key, authorities })
    }
}

/// The certificates in a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let text = file::read_trusted(path, PEM_BYTES_MAX).map_err(|error| unusable(path, error))?;
    let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| unusable(path, error))?;
    if found.is_empty() { Err(unusable(path, "it has no certificate")) } else { Ok(found) }
}

/// Whether connections can be made with these files: the key is that of the certificate, for example.
///
/// # Errors
/// [`OpenError`], which names the file, and what is wrong.
pub fn is_usable(files: &TlsFiles) -> Result<(), OpenError> {
    dialled(files)?;
    dialling(files, "localhost").map(drop)
}

/// Whether this host's certificate is good so many days from now, as the hosts see it that trust its authorities.
///
/// # Errors
/// [`OpenError`], which names the file, and what is wrong.
pub fn is_good_in(files: &TlsFiles, days: u64) -> Result<(), OpenError> {
    let Credentials { chain, authorities, .. } = Credentials::read(files)?;
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider)
        .build()
        .map_err(|error| unusable(&files.authorities, error))?;
    let Some((own, between)) = chain.split_first() else {
        return Err(unusable(&files.certificate, "it has no certificate"));
    };
    let then = SystemTime::now() + Duration::from_secs(days * 86_400);
    let then = UnixTime::since_unix_epoch(then.duration_since(UNIX_EPOCH).unwrap_or_default());
    let verified = verifier.verify_client_cert(own, between, then);
    verified.map(drop).map_err(|error| unusable(&files.certificate, error))
}

/// A session of the side that dials a host which shows a certificate for `name`.
pub(crate) fn dialling(files: &TlsFiles, name: &str) -> Result<Connection, OpenError> {
    let Credentials { chain, key, authorities } = Credentials::read(files)?;
    let server = server_name(name)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(failed)?
        .with_root_certificates(authorities)
        .with_client_auth_cert(chain, key)
        .map_err(|error| unusable(&files.certificate, error))?;
    config.resumption = Resumption::disabled();
    Ok(ClientConnection::new(Arc::new(config), server).map_err(failed)?.into())
}

/// A session of the side that is dialled.
pub(crate) fn dialled(files: &TlsFiles) -> Result<Connection, OpenError> {
    let Credentials { chain, key, authorities } = Credentials::read(files)?;
    let provider = Arc::new(default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider))
            .build()
            .map_err(|error| unusable(&files.authorities, error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(failed)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&files.certificate, error))?;
    config.send_tls13_tickets = 0;
    Ok(ServerConnection::new(Arc::new(config)).map_err(failed)?.into())
}

/// Whether the other side's certificate is for this name.
pub(crate) fn is_for(session: &Connection, name: &str) -> Result<bool, OpenError> {
    let name = server_name(name)?;
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let parsed = certificate.and_then(|it| ParsedCertificate::try_from(it).ok());
    Ok(parsed.is_some_and(|it| verify_server_name(&it, &name).is_ok()))
}

fn server_name(name: &str) -> Result<ServerName<'static>, OpenError> {
    ServerName::try_from(name.to_owned())
        .map_err(|_| OpenError::Tls(format!("{name:?} is no name of a certificate")))
}

pub(crate) fn failed(error: rustls::Error) -> OpenError {
    OpenError::Tls(error.to_string())
}

/// Goes on with the handshake until it is over.
pub(crate) fn shake_hands(
    session: &mut Connection,
    mut stream: impl Read + Write,
) -> Result<(), OpenError> {
    while session.is_handshaking() {
        if session.wants_write() {
            session.write_tls(&mut stream)?;
            continue;
        }
        if session.read_tls(&mut stream)? == 0 {
            return Err(OpenError::Closed);
        }
        if let Err(error) = session.process_new_packets() {
            // The other side is told why, as far as that is possible.
            while session.wants_write() && session.write_tls(&mut stream).is_ok() {}
            return Err(failed(error));
        }
    }
    while session.wants_write() {
        session.write_tls(&mut stream)?;
    }
    Ok(())
}
