//! HTTP/2 frames written and read by hand, for clients that misbehave.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The bytes with which a client begins a connection.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Type of a frame with a part of a body.
pub const DATA: u8 = 0;
/// Type of a frame with header fields.
pub const HEADERS: u8 = 1;
/// Type of a frame that cancels a stream.
pub const RST_STREAM: u8 = 3;
/// Type of a frame with settings.
pub const SETTINGS: u8 = 4;
/// Type of a frame that asks for a sign of life.
pub const PING: u8 = 6;
/// Type of a frame that ends a connection.
pub const GOAWAY: u8 = 7;
/// Flag of a reply to a ping or settings.
pub const ACK: u8 = 1;
/// Flag of the last frame of a stream.
pub const END_STREAM: u8 = 1;
/// Flag of the last frame with header fields.
pub const END_HEADERS: u8 = 4;
/// The error code with which a client cancels a stream.
pub const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// The error code for a client that causes excessive load.
pub const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 11];

/// Requests that are sent and cancelled at once.
const BURST: u32 = 50;
const BURSTS: u32 = 100;
const REPLY_MAX: Duration = Duration::from_secs(60);

/// A frame: its type, flags and payload.
pub type Frame = (u8, u8, Vec<u8>);

/// A connection on which frames are written and read by hand.
#[derive(Debug)]
pub struct Connection(TcpStream);

impl Connection {
    /// Opens a connection and sends nothing.
    pub fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(REPLY_MAX))?;
        Ok(Connection(stream))
    }

    /// Opens a connection and sends the preface and settings.
    pub fn with_preface(address: SocketAddr) -> io::Result<Connection> {
        let mut connection = Connection::open(address)?;
        connection.0.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, b"")].concat())?;
        Ok(connection)
    }

    /// Sends bytes. Returns false if the server has closed the connection.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Returns the next frame, or `None` at the end of the connection.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        let mut head = [0; 9];
        if let Err(error) = self.0.read_exact(&mut head) {
            let ended = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
            return if ended.contains(&error.kind()) { Ok(None) } else { Err(error) };
        }
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        self.0.read_exact(&mut payload)?;
        Ok(Some((head[3], head[4], payload)))
    }

    /// Sends requests and cancels them at once, until the server ends the connection. Returns its error code.
    pub fn reset_rapidly(&mut self) -> io::Result<Option<[u8; 4]>> {
        let headers = request_headers();
        for burst in 1..BURSTS {
            let streams = (0..BURST).map(|at| burst * 2 * BURST + at * 2 + 1);
            let reset = streams.flat_map(|stream| {
                let opened = frame(HEADERS, END_HEADERS, stream, &headers);
                [opened, frame(RST_STREAM, 0, stream, &CANCEL)].concat()
            });
            // The server answers the ping after it has read everything before it.
            let bytes: Vec<u8> = reset.chain(frame(PING, 0, 0, b"8 bytes.")).collect();
            self.0.write_all(&bytes)?;
            loop {
                match self.next_frame()? {
                    None => return Ok(None),
                    Some((GOAWAY, _, payload)) => {
                        return Ok(payload.get(4..8).and_then(|code| code.try_into().ok()));
                    }
                    Some((PING, ACK, _)) => break,
                    Some(_) => (),
                }
            }
        }
        Ok(None)
    }
}

/// Returns the bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the header fields of a rate limit request, without compression.
pub fn request_headers() -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let path = text("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    [&[0x83, 0x86, 0x04][..], &path, &[0x01], &text("a"), &[0x0f, 0x10], &text("application/grpc")].concat()
}
