//! What a browser with the overview asks a server, without the browser: it would share the machine with the server.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

/// What the overview reads every ten seconds.
const PAGES: [&str; 4] = [
    "/v1/history?range=15m",
    "/v1/top?by=refused&limit=1000",
    "/v1/top?by=used&limit=8",
    "/v1/audit?after=0&limit=1",
];
const REDRAW: Duration = Duration::from_secs(10);
/// How often the thread looks whether it is stopped.
const PATIENCE: Duration = Duration::from_millis(50);

/// One viewer of the overview.
pub(super) struct Viewer {
    stopped: Arc<AtomicBool>,
    thread: JoinHandle<Result<usize>>,
}

impl Viewer {
    pub(super) fn start(address: SocketAddr) -> Viewer {
        let stopped = Arc::<AtomicBool>::default();
        let until = Arc::clone(&stopped);
        let thread = spawn(move || look(address, &until));
        Viewer { stopped, thread }
    }

    /// Stops it. A viewer that saw no event is a failed measurement.
    pub(super) fn stop(self) -> Result<()> {
        self.stopped.store(true, Ordering::Relaxed);
        let events = self.thread.join().map_err(|_| anyhow!("the viewer panicked"))??;
        ensure!(events > 0, "the viewer received no event");
        Ok(())
    }
}

fn look(address: SocketAddr, stopped: &AtomicBool) -> Result<usize> {
    let mut stream = request(address, "/v1/events")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut events, mut bytes) = (0, [0; 65_536]);
    let mut drawn: Option<Instant> = None;
    while !stopped.load(Ordering::Relaxed) {
        if drawn.is_none_or(|at| at.elapsed() >= REDRAW) {
            drawn = Some(Instant::now());
            for page in PAGES {
                request(address, page)?.read_to_end(&mut Vec::new())?;
            }
        }
        match stream.read(&mut bytes) {
            Ok(count) => events += count_events(bytes.get(..count).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error).context("the stream ended"),
        }
    }
    Ok(events)
}

fn count_events(bytes: &[u8]) -> usize {
    bytes.windows(6).filter(|part| part == b"data: ").count()
}

fn request(address: SocketAddr, path: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).context("the server does not accept")?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    Ok(stream)
}
