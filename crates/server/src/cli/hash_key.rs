//! The hash key of the servers, from a file or from the environment. It is a secret, so no flag takes its value.

use std::env::{self, VarError};
use std::path::PathBuf;

use anyhow::{Context, Result};
use tollgate::core::SubjectHasher;

use crate::failure::Failure;
use crate::files;

const VARIABLE: &str = "TOLLGATE_HASH_KEY";

// Not a doc comment: clap would use it as the help of every command with these arguments.
// Arguments for the hash key.
#[derive(clap::Args)]
pub(crate) struct HashKeyArgs {
    /// File with the hash key of your servers, 64 hexadecimal digits; without it, TOLLGATE_HASH_KEY is used
    #[arg(long, value_name = "FILE")]
    hash_key_file: Option<PathBuf>,
    /// Id of the hash key [default: 0]
    #[arg(long, value_name = "ID")]
    hash_key_id: Option<u8>,
}

impl HashKeyArgs {
    /// Returns the key from the file or, without a file, from the variable.
    pub(crate) fn get(&self) -> Result<Option<SubjectHasher>> {
        let id = self.hash_key_id.unwrap_or(0);
        if let Some(path) = &self.hash_key_file {
            let source = files::read(path)?;
            let hasher = SubjectHasher::from_hex(id, source.text());
            return hasher.map(Some).with_context(|| format!("invalid hash key in {}", source.name()));
        }
        match variable(VARIABLE)? {
            Some(secret) => {
                let hasher = SubjectHasher::from_hex(id, &secret);
                hasher.map(Some).with_context(|| format!("invalid hash key in {VARIABLE}"))
            }
            None if self.hash_key_id.is_some() => {
                let hint = format!("pass its file with --hash-key-file, or set {VARIABLE}");
                Err(Failure::new("missing hash key: only --hash-key-id is set", hint).into())
            }
            None => Ok(None),
        }
    }

    /// Whether the command line has one of these arguments.
    pub(crate) fn is_given(&self) -> bool {
        self.hash_key_file.is_some() || self.hash_key_id.is_some()
    }

    /// Returns the key, or the example key if no key is set.
    pub(crate) fn get_or_example(&self) -> Result<SubjectHasher> {
        Ok(self.get()?.unwrap_or_else(example))
    }

    /// Returns the key, which a shared store requires: with another key, the command would count other subjects.
    pub(crate) fn required(&self) -> Result<SubjectHasher> {
        self.get()?.ok_or_else(|| {
            let hint = format!(
                "create one with `openssl rand -hex 32 > key`, give it to every server, and pass --hash-key-file key or set \
                 {VARIABLE}"
            );
            Failure::new("missing hash key: a shared store requires the one of your servers", hint).into()
        })
    }
}

/// The example key, for commands that do not use a shared store.
pub(crate) fn example() -> SubjectHasher {
    SubjectHasher::new([0; 32])
}

/// Reads an environment variable. An empty one counts as unset.
pub(crate) fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(Failure::new(format!("{name} is not valid UTF-8"), "write it in UTF-8, or unset it"))
        }
    }
}
