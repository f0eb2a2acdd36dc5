//! The protocols of the ports.

/// A protocol. The setting of its port has the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Http,
    Resp,
    Grpc,
}

impl Protocol {
    pub(crate) const ALL: [Protocol; 3] = [Protocol::Http, Protocol::Resp, Protocol::Grpc];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Resp => "resp",
            Protocol::Grpc => "grpc",
        }
    }
}
