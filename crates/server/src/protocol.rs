//! The protocols of the ports.

/// A protocol. The setting of its port has the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Http,
    Resp,
    Grpc,
    /// HTTP for operators: control routes, metrics and health.
    Admin,
}

impl Protocol {
    pub(crate) const ALL: [Protocol; 4] = [Protocol::Http, Protocol::Resp, Protocol::Grpc, Protocol::Admin];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Resp => "resp",
            Protocol::Grpc => "grpc",
            Protocol::Admin => "admin",
        }
    }
}
