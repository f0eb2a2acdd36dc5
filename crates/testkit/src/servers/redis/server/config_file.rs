//! The configuration file of a server.

use std::fs;
use std::path::Path;

use crate::redis::error::Error;

/// Writes a file that is equivalent to these arguments.
pub(super) fn write(path: &Path, arguments: &[String]) -> Result<(), Error> {
    fs::write(path, text(arguments)).map_err(Error::io("write the configuration file"))
}

/// Returns one line per argument that starts with two dashes, with the values that follow it.
fn text(arguments: &[String]) -> String {
    let mut text = String::new();
    for argument in arguments {
        match argument.strip_prefix("--") {
            Some(name) => {
                text.push('\n');
                text.push_str(name);
            }
            None => {
                let value = argument.replace('\\', r"\\").replace('"', r#"\""#);
                text.push_str(&format!(" \"{value}\""));
            }
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_line_with_its_values_quoted() {
        let arguments = ["--save", "", "--user", "alice", "on", r#">a"b\c"#].map(str::to_owned);
        assert_eq!(text(&arguments), "\nsave \"\"\nuser \"alice\" \"on\" \">a\\\"b\\\\c\"\n");
    }
}
