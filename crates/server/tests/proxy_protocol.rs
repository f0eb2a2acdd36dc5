//! The PROXY protocol on every listener, with and without TLS, and what untrusted clients can do with it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::{Domain, Socket, Type};
use tollgate_server::fuzzing::proxy_protocol;
use tollgate_testkit::redis::Certificates;
use tollgate_testkit::serving::Serving;

const BINARY: &str = env!("CARGO_BIN_EXE_tollgate");
const RULES: &str =
    "version: 1\nrules:\n  - { id: a, per: ip, missing: refuse, limit: { fixed-window: 1/365d } }\n";
/// The load balancer, which is trusted. The client of these tests has another address.
const LOAD_BALANCER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
/// Longer than the server waits for a header.
const PATIENCE: Duration = Duration::from_secs(20);

/// A header of version 1.
fn text(address: &str) -> Vec<u8> {
    format!("PROXY TCP4 {address} 127.0.0.1 51201 8080\r\n").into_bytes()
}

/// A header of version 2, with an additional field.
fn binary(address: &str) -> Vec<u8> {
    let address: Ipv4Addr = address.parse().expect("an address");
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10".to_vec();
    header.extend(address.octets());
    header.extend([127, 0, 0, 1, 200, 1, 31, 144, 4, 0, 1, 0]);
    header
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A server that trusts the load balancer, and how to connect to it.
struct Server {
    serving: Serving,
    certificates: Option<Certificates>,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(has_tls: bool) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = folder.path().join("rules.yaml");
        fs::write(&rules, RULES).expect("a file can be written");
        let certificates =
            has_tls.then(|| Certificates::generate(folder.path()).expect("certificates are made"));
        let path = |path: &Path| path.display().to_string();
        let mut args: Vec<String> = ["--grpc", "127.0.0.1:0", "--proxy-protocol", "127.0.0.2/32", "--rules"]
            .map(str::to_owned)
            .into();
        args.push(path(&rules));
        if let Some(certificates) = &certificates {
            args.extend(["--tls-certificate".to_owned(), path(certificates.server())]);
            args.extend(["--tls-key".to_owned(), path(certificates.key())]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Server { serving: Serving::start(BINARY, &args), certificates, _folder: folder }
    }

    /// Connects from an address, sends the header in two pieces, and completes the TLS handshake if there is TLS.
    fn connect(&self, from: Ipv4Addr, to: SocketAddr, header: &[u8]) -> io::Result<Box<dyn Stream>> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect(&to.into())?;
        let mut stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (begin, end) = header.split_at(header.len() / 2);
        stream.write_all(begin)?;
        stream.write_all(end)?;
        let Some(certificates) = &self.certificates else { return Ok(Box::new(stream)) };
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(certificates.authority()).expect("a certificate"))
            .expect("valid");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let mut tls = ClientConnection::new(Arc::new(config), name).expect("a client");
        tls.complete_io(&mut stream)?;
        Ok(Box::new(StreamOwned::new(tls, stream)))
    }

    /// The status of `/v1/authorize`.
    fn authorize(&self, from: Ipv4Addr, header: &[u8]) -> io::Result<u16> {
        let mut stream = self.connect(from, self.serving.http, header)?;
        stream.write_all(b"GET /v1/authorize HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let response = read_until(&mut stream, "\r\n")?;
        response.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// The line of `CLIENT INFO`.
    fn client_info(&self, from: Ipv4Addr, header: &[u8]) -> io::Result<String> {
        let mut stream = self.connect(from, self.serving.resp, header)?;
        stream.write_all(b"*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n")?;
        read_until(&mut stream, "\n\r\n")
    }

    /// The type of the first HTTP/2 frame of the gRPC port, which is 4 (SETTINGS).
    fn first_frame(&self, from: Ipv4Addr, header: &[u8]) -> io::Result<u8> {
        let mut stream = self.connect(from, self.serving.grpc.expect("it is on"), header)?;
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")?;
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        Ok(head[3])
    }
}

fn read_until(stream: &mut dyn Stream, end: &str) -> io::Result<String> {
    let (mut text, mut byte) = (String::new(), [0]);
    while !text.ends_with(end) {
        stream.read_exact(&mut byte)?;
        text.push(char::from(byte[0]));
    }
    Ok(text)
}

#[test]
fn every_listener_takes_the_client_address_of_a_trusted_load_balancer() {
    for has_tls in [false, true] {
        let server = Server::start(has_tls);
        for (number, header) in [text as fn(&str) -> Vec<u8>, binary].into_iter().enumerate() {
            let (one, other) = (format!("203.0.113.{number}"), format!("198.51.100.{number}"));
            let ask = |address: &str| server.authorize(LOAD_BALANCER, &header(address)).expect("a response");
            assert_eq!([ask(&one), ask(&one), ask(&other)], [200, 429, 200], "tls: {has_tls}, by client");
            let info = server.client_info(LOAD_BALANCER, &header(&one)).expect("a reply");
            assert!(info.contains(&format!("addr={one} ")), "tls: {has_tls}: {info}");
            assert_eq!(server.first_frame(LOAD_BALANCER, &header(&one)).expect("a frame"), 4);
        }
        // A health check of the load balancer itself.
        let info = server.client_info(LOAD_BALANCER, b"PROXY UNKNOWN\r\n").expect("a reply");
        assert!(info.contains("addr=127.0.0.2 "), "{info}");
        let info = server.client_info(CLIENT, b"").expect("others send no header");
        assert!(info.contains("addr=127.0.0.1 "), "{info}");
    }
}

#[test]
fn a_trusted_load_balancer_without_a_header_is_disconnected() {
    let server = Server::start(false);
    assert!(server.authorize(LOAD_BALANCER, b"").is_err());
    assert!(server.client_info(LOAD_BALANCER, b"").is_err());
    assert!(server.first_frame(LOAD_BALANCER, b"").is_err());
    assert!(server.authorize(LOAD_BALANCER, b"PROXY TCP4 here 127.0.0.1 1 2\r\n").is_err());
    let event = server.serving.wait_for("proxy_protocol_failed");
    assert_eq!(event["load_balancer"], "127.0.0.2", "{event}");
    // One that sends nothing is disconnected after the timeout.
    let mut silent = server.connect(LOAD_BALANCER, server.serving.resp, b"PROXY").expect("a connection");
    assert_eq!(silent.read(&mut [0]).expect("the server closes it"), 0);
}

#[test]
fn a_header_of_an_untrusted_client_is_not_believed() {
    for has_tls in [false, true] {
        let server = Server::start(has_tls);
        for header in [text("203.0.113.9"), binary("203.0.113.9")] {
            match server.authorize(CLIENT, &header) {
                Err(_) | Ok(400) => (),
                Ok(status) => panic!("tls: {has_tls}: {status}"),
            }
            let info = server.client_info(CLIENT, &header).unwrap_or_default();
            assert!(!info.contains("addr=203"), "tls: {has_tls}: {info}");
            assert!(server.first_frame(CLIENT, &header).is_err(), "tls: {has_tls}");
        }
        // Nothing was charged to the address in the headers.
        assert_eq!(server.authorize(LOAD_BALANCER, &text("203.0.113.9")).expect("a response"), 200);
    }
}

#[test]
fn the_corpus_of_proxy_protocol_headers_holds_truncated_and_changed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/proxy_protocol");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("there is a corpus") {
        let path = entry.expect("it can be listed").path();
        // The name is printed if the property fails.
        println!("{}", path.display());
        let bytes = fs::read(&path).expect("it can be read");
        proxy_protocol(&bytes);
        for offset in 0..bytes.len().min(256) {
            proxy_protocol(&bytes[..offset]);
            let mut changed = bytes.clone();
            for byte in [0, b'\r', b'\n', b' ', b'0', b':', 0x21, 0x11, 0xff] {
                changed[offset] = byte;
                proxy_protocol(&changed);
            }
        }
        count += 1;
    }
    assert!(count >= 20, "{count} files");
}
