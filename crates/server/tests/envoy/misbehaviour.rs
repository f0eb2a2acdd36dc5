//! HTTP/2 clients that are slow, silent or hostile. The server disconnects them and serves the others.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use prost::Message;

use crate::rls::{Service, peek};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The error code with which a client cancels a stream.
const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// The error code for a client that causes excessive load.
const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 11];

/// A connection on which frames are written and read by hand.
struct Connection(TcpStream);

/// A frame: its type, flags and payload.
type Frame = (u8, u8, Vec<u8>);

impl Connection {
    fn open(service: &Service) -> Connection {
        let stream = TcpStream::connect(service.server.grpc.expect("it speaks gRPC")).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        Connection(stream)
    }

    /// Opens a connection and sends the preface and settings.
    fn with_preface(service: &Service) -> Connection {
        let mut connection = Connection::open(service);
        connection.send(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat());
        connection
    }

    /// Sends bytes; false if the server has closed the connection.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// The next frame; `None` at the end.
    fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        if let Err(error) = self.0.read_exact(&mut head) {
            let ended = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
            assert!(ended.contains(&error.kind()), "the server neither sends nor closes: {error}");
            return None;
        }
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        self.0.read_exact(&mut payload).expect("a whole frame");
        Some((head[3], head[4], payload))
    }

    /// The next frame of this type. Frames before it are skipped.
    fn wait_for(&mut self, kind: u8, flags: u8) -> Option<Frame> {
        std::iter::from_fn(|| self.next()).find(|frame| (frame.0, frame.1) == (kind, flags))
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("a short one").to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The header fields of a request, without compression: method, scheme, path, authority and content type.
fn request_headers() -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let path = text("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    [&[0x83, 0x86, 0x04][..], &path, &[0x01], &text("a"), &[0x0f, 0x10], &text("application/grpc")].concat()
}

fn others_are_served(service: &mut Service) {
    assert!(service.ask(peek(&[("user", "u")])).is_ok());
}

#[test]
fn a_client_without_a_preface_is_disconnected() {
    let mut service = Service::start(&[]);
    let began = Instant::now();
    let (mut silent, mut slow) = (Connection::open(&service), Connection::open(&service));
    assert!(slow.send(&PREFACE[..20]));
    others_are_served(&mut service);
    assert!(silent.next().is_none() && slow.next().is_none());
    let elapsed = began.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(30)).contains(&elapsed), "{elapsed:?}");
}

#[test]
fn a_client_that_resets_many_streams_is_disconnected() {
    let mut service = Service::start(&[]);
    let mut hostile = Connection::with_preface(&service);
    let headers = request_headers();
    // A request that is not reset is answered; without a message, with an error.
    assert!(hostile.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &headers)));
    assert!(std::iter::from_fn(|| hostile.next()).any(|(kind, ..)| kind == HEADERS));
    let mut bursts = (1..100).map(|burst| {
        let streams = (0..50).map(|at| burst * 100 + at * 2 + 1);
        let reset = streams.flat_map(|stream| {
            let opened = frame(HEADERS, END_HEADERS, stream, &headers);
            [opened, frame(RST_STREAM, 0, stream, &CANCEL)].concat()
        });
        // The server answers the ping after it has read everything before it.
        let bytes: Vec<u8> = reset.chain(frame(PING, 0, 0, b"8 bytes.")).collect();
        assert!(hostile.send(&bytes));
        let answers = |(kind, flags, _): &Frame| *kind == GOAWAY || (*kind, *flags) == (PING, ACK);
        std::iter::from_fn(|| hostile.next()).find(answers).expect("a response")
    });
    let (_, _, goaway) = bursts.find(|(kind, ..)| *kind == GOAWAY).expect("the server disconnects it");
    assert_eq!(goaway[4..8], ENHANCE_YOUR_CALM);
    drop(bursts);
    while hostile.next().is_some() {}
    others_are_served(&mut service);
    assert_eq!(service.codes(peek(&[("user", "u")])).1[0].1, 10, "nothing was charged");
}

#[test]
fn a_client_that_ignores_pings_is_disconnected() {
    let mut service = Service::start(&[]);
    let (mut silent, mut responsive) =
        (Connection::with_preface(&service), Connection::with_preface(&service));
    let began = Instant::now();
    let (_, _, payload) = responsive.wait_for(PING, 0).expect("a ping");
    assert!(began.elapsed() > Duration::from_secs(15), "pings are rare");
    assert!(responsive.send(&frame(PING, ACK, 0, &payload)));
    assert!(silent.wait_for(PING, 0).is_some());
    // Without a reply, the server closes the connection.
    while silent.next().is_some() {}
    let elapsed = began.elapsed();
    assert!((Duration::from_secs(25)..Duration::from_secs(60)).contains(&elapsed), "{elapsed:?}");
    // The connection of the client that replied stays open.
    assert!(responsive.send(&frame(PING, 0, 0, b"8 bytes.")));
    assert_eq!(responsive.wait_for(PING, ACK).expect("a reply").2, b"8 bytes.");
    others_are_served(&mut service);
}

#[test]
fn a_message_in_many_pieces_is_answered_as_one_in_one_piece() {
    let service = Service::start(&[]);
    let message = peek(&[("user", "u")]).encode_to_vec();
    let whole = [&[0], &(message.len() as u32).to_be_bytes()[..], &message].concat();
    let responses = |pieces: &[&[u8]]| {
        let mut client = Connection::with_preface(&service);
        assert!(client.send(&frame(HEADERS, END_HEADERS, 1, &request_headers())));
        let (last, others) = pieces.split_last().expect("a piece");
        for piece in others {
            assert!(client.send(&frame(DATA, 0, 1, piece)));
        }
        assert!(client.send(&frame(DATA, END_STREAM, 1, last)));
        let (_, _, mut answer) = client.wait_for(DATA, 0).expect("an answer");
        // The part that does not depend on the time: the code, the limit and the name of the rule.
        answer.truncate(5 + 25);
        answer
    };
    let expected = responses(&[&whole]);
    assert_eq!(expected[5..7], [8, 1], "the code OK");
    let bytes: Vec<&[u8]> = whole.chunks(1).collect();
    assert_eq!(responses(&bytes), expected);
    assert_eq!(responses(&[&[], &whole[..5], &[], &whole[5..], &[]]), expected);
}
