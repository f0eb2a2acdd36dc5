//! A shop behind a gateway. It answers every request with a JSON copy of the request.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

pub(crate) struct Shop {
    pub(crate) address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Shop {
    pub(crate) fn open() -> Shop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                // A client that disconnects in the middle of a request is ignored.
                thread::spawn(move || drop(serve(&stream, &counted)));
            }
        });
        Shop { address, asked }
    }

    /// The number of requests so far.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: &TcpStream, asked: &AtomicUsize) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read(&mut reader)? {
        asked.fetch_add(1, Ordering::SeqCst);
        let text = request.to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", text.len());
        let body = if request["method"] == "HEAD" { "" } else { &text };
        stream.write_all(format!("{head}{body}").as_bytes())?;
    }
    Ok(())
}

/// Reads the next request; `None` at the end. Header names are in lower case. `repeated` lists those that occur again.
fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Value>> {
    let line = read_line(reader)?;
    if line.is_empty() {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next(), words.next());
    let (mut headers, mut repeated) = (json!({}), Vec::new());
    loop {
        let line = read_line(reader)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        let name = name.to_lowercase();
        if !headers[&name].is_null() {
            repeated.push(name.clone());
        }
        headers[name] = value.into();
    }
    let len = headers["content-length"].as_str().and_then(|len| len.parse().ok()).unwrap_or(0);
    let mut body = vec![0; len];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8(body).map_err(std::io::Error::other)?;
    let request = json!({
        "method": method, "path": path, "headers": headers, "repeated": repeated, "body": body,
    });
    Ok(Some(request))
}

/// Reads a line. Header fields may have any bytes.
fn read_line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}
