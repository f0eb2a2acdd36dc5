//! Servers of language models behind a gateway: the one of the examples, and one that never finishes an answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_testkit::tools::{Tool, free_port};

use crate::harness::recipe::Recipe;

/// The model of the examples.
pub(crate) struct Model {
    pub(crate) port: u16,
    process: Child,
    _folder: tempfile::TempDir,
}

impl Model {
    pub(crate) fn start(recipe: &Recipe) -> Model {
        let port = free_port();
        let folder = recipe.copy(&[(8081, port)], &|text| text);
        // A tool in Python, for its interpreter.
        let mut python = Tool::XdsProtos.command();
        python.arg("model.py").current_dir(folder.path()).stdin(Stdio::null()).stderr(Stdio::null());
        let process = python.spawn().expect("Python runs");
        let model = Model { port, process, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the model does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        model
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Starts a model that answers GET requests, sends the first event of every other answer, and then nothing. Returns its
/// port. It ends with the test process.
pub(crate) fn silent_model() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || drop(answer_in_part(stream)));
        }
    });
    port
}

fn answer_in_part(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    if head.starts_with("GET ") {
        return stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    let event = "data: {\"choices\": [{\"delta\": {\"content\": \"word\"}}]}\n\n";
    let kind = "content-type: text/event-stream\r\ntransfer-encoding: chunked";
    write!(stream, "HTTP/1.1 200 OK\r\n{kind}\r\n\r\n{:x}\r\n{event}\r\n", event.len())?;
    // Until the gateway disconnects.
    reader.read_to_end(&mut Vec::new()).map(drop)
}
