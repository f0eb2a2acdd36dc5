//! HTTP/2 clients that are slow, silent or hostile. The server disconnects them and serves the others.

use std::time::{Duration, Instant};

use prost::Message;
use tollgate_testkit::http2::{
    ACK, Connection, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, HEADERS, PING, PREFACE, frame,
    request_headers,
};

use crate::rls::{Service, peek};

fn connect(service: &Service) -> Connection {
    Connection::open(service.server.grpc.expect("it speaks gRPC")).expect("it listens")
}

fn connect_with_preface(service: &Service) -> Connection {
    Connection::with_preface(service.server.grpc.expect("it speaks gRPC")).expect("it listens")
}

/// The next frame; `None` at the end.
fn next(connection: &mut Connection) -> Option<Frame> {
    connection.next_frame().expect("the server sends or closes")
}

/// The next frame of this type. Frames before it are skipped.
fn wait_for(connection: &mut Connection, kind: u8, flags: u8) -> Option<Frame> {
    std::iter::from_fn(|| next(connection)).find(|frame| (frame.0, frame.1) == (kind, flags))
}

fn others_are_served(service: &mut Service) {
    assert!(service.ask(peek(&[("user", "u")])).is_ok());
}

#[test]
fn a_client_without_a_preface_is_disconnected() {
    let mut service = Service::start(&[]);
    let began = Instant::now();
    let (mut silent, mut slow) = (connect(&service), connect(&service));
    assert!(slow.send(&PREFACE[..20]));
    others_are_served(&mut service);
    assert!(next(&mut silent).is_none() && next(&mut slow).is_none());
    let elapsed = began.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(30)).contains(&elapsed), "{elapsed:?}");
}

#[test]
fn a_client_that_resets_many_streams_is_disconnected() {
    let mut service = Service::start(&[]);
    let mut hostile = connect_with_preface(&service);
    // A request that is not reset is answered; without a message, with an error.
    assert!(hostile.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &request_headers())));
    assert!(std::iter::from_fn(|| next(&mut hostile)).any(|(kind, ..)| kind == HEADERS));
    assert_eq!(hostile.reset_rapidly().expect("the server answers"), Some(ENHANCE_YOUR_CALM));
    while next(&mut hostile).is_some() {}
    others_are_served(&mut service);
    assert_eq!(service.codes(peek(&[("user", "u")])).1[0].1, 10, "nothing was charged");
}

#[test]
fn a_client_that_ignores_pings_is_disconnected() {
    let mut service = Service::start(&[]);
    let (mut silent, mut responsive) = (connect_with_preface(&service), connect_with_preface(&service));
    let began = Instant::now();
    let (_, _, payload) = wait_for(&mut responsive, PING, 0).expect("a ping");
    assert!(began.elapsed() > Duration::from_secs(15), "pings are rare");
    assert!(responsive.send(&frame(PING, ACK, 0, &payload)));
    assert!(wait_for(&mut silent, PING, 0).is_some());
    // Without a reply, the server closes the connection.
    while next(&mut silent).is_some() {}
    let elapsed = began.elapsed();
    assert!((Duration::from_secs(25)..Duration::from_secs(60)).contains(&elapsed), "{elapsed:?}");
    // The connection of the client that replied stays open.
    assert!(responsive.send(&frame(PING, 0, 0, b"8 bytes.")));
    assert_eq!(wait_for(&mut responsive, PING, ACK).expect("a reply").2, b"8 bytes.");
    others_are_served(&mut service);
}

#[test]
fn a_message_in_many_pieces_is_answered_as_one_in_one_piece() {
    let service = Service::start(&[]);
    let message = peek(&[("user", "u")]).encode_to_vec();
    let whole = [&[0], &(message.len() as u32).to_be_bytes()[..], &message].concat();
    let responses = |pieces: &[&[u8]]| {
        let mut client = connect_with_preface(&service);
        assert!(client.send(&frame(HEADERS, END_HEADERS, 1, &request_headers())));
        let (last, others) = pieces.split_last().expect("a piece");
        for piece in others {
            assert!(client.send(&frame(DATA, 0, 1, piece)));
        }
        assert!(client.send(&frame(DATA, END_STREAM, 1, last)));
        let (_, _, mut answer) = wait_for(&mut client, DATA, 0).expect("an answer");
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
