//! TLS 1.3 under a connection, if the cluster encrypts. Both ends show the same public key (RFC 7250: no certificates), which
//! follows from the cluster's key, and prove that they have its private half: whoever has the cluster's key, and nobody else.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cenote_model::{Error, ErrorKind, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName,
    ServerConfig, ServerConnection, SignatureScheme,
};

use crate::socket::send;

/// Which end of a connection it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It connected.
    Client,
    /// It accepted the connection.
    Server,
}

/// What comes before the seed of an Ed25519 key in PKCS #8 (RFC 8410).
const PKCS8_ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// Bytes that wait to be encrypted and sent.
const BUFFER: usize = 1 << 20;
/// No name is checked: the key is.
const NAME: &str = "cenote";

/// What the connections of a cluster have in common.
pub(super) struct TlsKeys {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl fmt::Debug for TlsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsKeys(..)")
    }
}

fn unusable(error: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Internal, "encryption between nodes")
        .because(error.to_string())
        .try_next("this is a bug in Cenote: report it with the output of `cenote --json doctor`")
}

impl TlsKeys {
    /// Those that follow from a seed.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let private = PrivatePkcs8KeyDer::from([&PKCS8_ED25519[..], seed].concat());
        let signing = ring::sign::any_eddsa_type(&private).map_err(unusable)?;
        let public = signing.public_key().ok_or_else(|| unusable("a key without a public half"))?.to_vec();
        let own = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.clone())], signing));
        let same = Arc::new(SameKey { public, algorithms: provider.signature_verification_algorithms });
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(same.clone())
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own.clone())));
        client.resumption = Resumption::disabled();
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(same)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
    /// TLS for a new connection.
    pub fn begin(&self, role: Role) -> Result<Tls> {
        let mut connection = match role {
            Role::Client => {
                let name = ServerName::try_from(NAME).map_err(unusable)?;
                Connection::from(ClientConnection::new(self.client.clone(), name).map_err(unusable)?)
            }
            Role::Server => Connection::from(ServerConnection::new(self.server.clone()).map_err(unusable)?),
        };
        connection.set_buffer_limit(Some(BUFFER));
        Ok(Tls(connection))
    }
}

/// Accepts the other end if it has the same key.
#[derive(Debug)]
struct SameKey {
    /// `SubjectPublicKeyInfo` in DER.
    public: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

type Verified<T> = std::result::Result<T, rustls::Error>;

impl SameKey {
    fn check(&self, shown: &CertificateDer<'_>) -> Verified<()> {
        let is_same = shown.as_ref() == self.public;
        if is_same { Ok(()) } else { Err(CertificateError::ApplicationVerificationFailure.into()) }
    }
}

/// What both kinds of verifier do alike.
macro_rules! check_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Verified<HandshakeSignatureValid> {
            Err(rustls::PeerIncompatible::Tls12NotOffered.into())
        }
        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Verified<HandshakeSignatureValid> {
            let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for SameKey {
    check_signatures!();
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Verified<ServerCertVerified> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }
}

impl ClientCertVerifier for SameKey {
    check_signatures!();
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }
    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Verified<ClientCertVerified> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }
}

/// TLS of one connection.
pub(super) struct Tls(Connection);

/// The socket below.
struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0, into)?)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(from)])
    }
    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(send(self.0, from)?)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    /// Reads what has been decrypted into one of these spaces; 0 at the end. `WouldBlock` if the socket has no more.
    pub fn read(&mut self, socket: &OwnedFd, spaces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some(space) = spaces.iter_mut().find(|space| !space.is_empty()) else { return Ok(0) };
        loop {
            match self.0.reader().read(space) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if self.0.read_tls(&mut Socket(socket))? == 0 {
                return Ok(0);
            }
            self.0.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
    /// Takes bytes to be encrypted, and sends what the socket takes. `WouldBlock` if there is no room for any.
    pub fn write(&mut self, socket: &OwnedFd, from: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(socket)?;
        let count = self.0.writer().write_vectored(from)?;
        self.flush(socket)?;
        if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }
    /// Sends what is encrypted already, as far as the socket takes it.
    pub fn flush(&mut self, socket: &OwnedFd) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut Socket(socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                sent => _ = sent?,
            }
        }
        Ok(())
    }
    /// Returns true if something waits for room in the socket.
    pub fn wants_write(&self) -> bool {
        self.0.wants_write()
    }
}

/// Why TLS failed, if it did.
pub(super) fn reason(error: &io::Error) -> Option<&'static str> {
    if error.kind() != io::ErrorKind::InvalidData {
        return None;
    }
    match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_)) => {
            Some("it has not the cluster's key")
        }
        _ => Some("what it says is not encrypted as this cluster's messages are"),
    }
}
