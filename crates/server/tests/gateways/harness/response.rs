//! An HTTP response as a client sees it, requested with curl.

use std::process::Command;

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    /// Sends a request with these arguments; `None` if there is no response.
    pub(crate) fn fetch(args: &[&str]) -> Option<Response> {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--include", "--path-as-is", "--globoff", "--max-time", "60"])
            .args(args)
            .output()
            .expect("curl runs");
        let text = String::from_utf8(output.stdout).expect("text");
        output.status.success().then(|| Response::read(&text))
    }

    fn read(text: &str) -> Response {
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
        let header =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        Response {
            status: status.parse().expect("a number"),
            headers: lines.filter_map(header).collect(),
            body: body.to_owned(),
        }
    }

    /// The value of a field that occurs at most once, by its lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value);
        let value = values.next();
        assert_eq!(values.next(), None, "duplicate field {name}: {self:?}");
        value.map(String::as_str)
    }
}
