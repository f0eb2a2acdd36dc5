//! Connected clients that always have requests in flight: a client with all its responses sends the next requests.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::contender::{Entrant, Protocol};

/// The longest wait for a response.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// More than all responses in flight on one connection.
const INPUT_MAX: usize = 64 << 10;

/// One client.
pub(super) struct Client {
    stream: TcpStream,
    /// Responses still to come.
    in_flight: usize,
    input: Vec<u8>,
}

/// Requests that are sent at once.
pub(super) struct Requests {
    bytes: Vec<u8>,
    count: usize,
}

impl Requests {
    /// Encodes requests for these keys, this number at once.
    pub(super) fn for_keys(entrant: &Entrant, keys: &[String], at_once: usize) -> Vec<Requests> {
        let together = |keys: &[String]| Requests {
            bytes: keys.iter().flat_map(|key| (entrant.request)(key)).collect(),
            count: keys.len(),
        };
        // gRPC calls are in flight together, but each is sent separately.
        let at_once = if entrant.protocol == Protocol::Grpc { 1 } else { at_once };
        keys.chunks(at_once).map(together).collect()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Client {
    pub(super) fn open(port: u16) -> Result<Client> {
        let stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect to the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENT_MAX))?;
        Ok(Client { stream, in_flight: 0, input: vec![0; INPUT_MAX] })
    }

    fn send(&mut self, requests: &Requests) -> Result<()> {
        self.in_flight = requests.count;
        self.stream.write_all(&requests.bytes).context("the server does not read")
    }

    /// Waits for all responses and checks each.
    fn receive(&mut self, entrant: &Entrant) -> Result<()> {
        let mut end = 0;
        while self.in_flight > 0 {
            ensure!(end < self.input.len(), "{} answers too much", entrant.name);
            let length = self.stream.read(&mut self.input[end..]).context("the server does not answer")?;
            ensure!(length > 0, "{} hung up", entrant.name);
            end += length;
            let mut start = 0;
            while let Some(length) = entrant.answer(&self.input[start..end])? {
                start += length;
                self.in_flight = self.in_flight.checked_sub(1).context("a response without a request")?;
            }
            self.input.copy_within(start..end, 0);
            end -= start;
        }
        ensure!(end == 0, "{} answers more than was asked", entrant.name);
        Ok(())
    }
}

/// Sends all requests over these connections and returns when the last response has arrived.
pub(super) fn ask(clients: &mut [Client], entrant: &Entrant, requests: &[Requests]) -> Result<()> {
    let mut next = requests.iter();
    for (client, requests) in clients.iter_mut().zip(next.by_ref()) {
        client.send(requests)?;
    }
    while clients.iter().any(|client| client.in_flight > 0) {
        for client in clients.iter_mut().filter(|client| client.in_flight > 0) {
            client.receive(entrant)?;
            if let Some(requests) = next.next() {
                client.send(requests)?;
            }
        }
    }
    Ok(())
}
