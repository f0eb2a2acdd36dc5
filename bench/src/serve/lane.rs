//! Clients that are connected and always have questions under way: whoever has all its answers asks the next ones.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::contender::{Entrant, Protocol};

/// A server that is silent for so long has a problem.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// More than all answers that are under way on one connection.
const INPUT_MAX: usize = 64 << 10;

/// One client.
pub(super) struct Lane {
    stream: TcpStream,
    /// So many answers are to come.
    under_way: usize,
    input: Vec<u8>,
}

/// Questions that are sent at once.
pub(super) struct Questions {
    bytes: Vec<u8>,
    count: usize,
}

impl Questions {
    /// About these keys, so many at once.
    pub(super) fn about(entrant: &Entrant, keys: &[String], at_once: usize) -> Vec<Questions> {
        let together = |keys: &[String]| Questions {
            bytes: keys.iter().flat_map(|key| (entrant.question)(key)).collect(),
            count: keys.len(),
        };
        // Calls of gRPC are under way together, but each is sent by itself.
        let at_once = if entrant.protocol == Protocol::Grpc { 1 } else { at_once };
        keys.chunks(at_once).map(together).collect()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Lane {
    pub(super) fn open(port: u16) -> Result<Lane> {
        let stream =
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("cannot connect to the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENT_MAX))?;
        Ok(Lane { stream, under_way: 0, input: vec![0; INPUT_MAX] })
    }

    fn send(&mut self, questions: &Questions) -> Result<()> {
        self.under_way = questions.count;
        self.stream.write_all(&questions.bytes).context("the server does not read")
    }

    /// Waits for all answers, and looks at each.
    fn receive(&mut self, entrant: &Entrant) -> Result<()> {
        let mut end = 0;
        while self.under_way > 0 {
            ensure!(end < self.input.len(), "{} answers too much", entrant.name);
            let length = self.stream.read(&mut self.input[end..]).context("the server does not answer")?;
            ensure!(length > 0, "{} hung up", entrant.name);
            end += length;
            let mut start = 0;
            while let Some(length) = entrant.answer(&self.input[start..end])? {
                start += length;
                self.under_way = self.under_way.checked_sub(1).context("an answer that nobody asked for")?;
            }
            self.input.copy_within(start..end, 0);
            end -= start;
        }
        ensure!(end == 0, "{} answers more than was asked", entrant.name);
        Ok(())
    }
}

/// Asks everything over all of these connections, and ends when the last answer is here.
pub(super) fn ask(lanes: &mut [Lane], entrant: &Entrant, questions: &[Questions]) -> Result<()> {
    let mut next = questions.iter();
    for (lane, questions) in lanes.iter_mut().zip(next.by_ref()) {
        lane.send(questions)?;
    }
    while lanes.iter().any(|lane| lane.under_way > 0) {
        for lane in lanes.iter_mut().filter(|lane| lane.under_way > 0) {
            lane.receive(entrant)?;
            if let Some(questions) = next.next() {
                lane.send(questions)?;
            }
        }
    }
    Ok(())
}
