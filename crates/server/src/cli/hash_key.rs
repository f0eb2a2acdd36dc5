//! The hash key of the servers, from a file or from the environment: the command line is no place for a secret.

use std::env::{self, VarError};
use std::path::PathBuf;

use anyhow::{Context, Result};
use tollgate::core::SubjectHasher;

use crate::failure::Failure;
use crate::files;

const VARIABLE: &str = "TOLLGATE_HASH_KEY";

// Not a doc comment: that would become the help of every command that takes these arguments.
// The arguments that lead to the hash key.
#[derive(clap::Args)]
pub(crate) struct HashKey {
    /// A file with the hash key of your servers: 64 hexadecimal digits; or put them into the variable TOLLGATE_HASH_KEY
    #[arg(long, value_name = "FILE")]
    hash_key_file: Option<PathBuf>,
    /// The id of that key; 0 if left out
    #[arg(long, value_name = "ID")]
    hash_key_id: Option<u8>,
}

impl HashKey {
    /// The key that was given; the file's if both are there.
    pub(crate) fn given(&self) -> Result<Option<SubjectHasher>> {
        let id = self.hash_key_id.unwrap_or(0);
        if let Some(path) = &self.hash_key_file {
            let source = files::read(path)?;
            let hasher = SubjectHasher::from_hex(id, source.text());
            return hasher.map(Some).with_context(|| format!("in {}", source.name()));
        }
        match variable(VARIABLE)? {
            Some(secret) => {
                SubjectHasher::from_hex(id, &secret).map(Some).with_context(|| format!("in {VARIABLE}"))
            }
            None if self.hash_key_id.is_some() => {
                let hint = format!("name its file with --hash-key-file, or put it into {VARIABLE}");
                Err(Failure::new("--hash-key-id is given, and no hash key", hint).into())
            }
            None => Ok(None),
        }
    }

    /// The key that was given, or nobody's.
    pub(crate) fn given_or_example(&self) -> Result<SubjectHasher> {
        Ok(self.given()?.unwrap_or_else(example))
    }

    /// The key that was given. In a store that others use, any other one would count on its own.
    pub(crate) fn shared(&self) -> Result<SubjectHasher> {
        self.given()?.ok_or_else(|| {
            let hint = format!(
                "make one with `openssl rand -hex 32 > key`, give it to every server, and name it with --hash-key-file \
                 key, or put it into {VARIABLE}"
            );
            Failure::new("a shared store needs the hash key of your servers", hint).into()
        })
    }
}

/// Nobody's key, for those who only look.
pub(crate) fn example() -> SubjectHasher {
    SubjectHasher::new([0; 32])
}

/// A variable of the environment; one that is empty counts as none.
pub(crate) fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(Failure::new(format!("{name} is no text"), "write it in UTF-8, or unset it"))
        }
    }
}
