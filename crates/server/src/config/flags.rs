//! The flags of commands that take settings, made from the table.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::CONFIG_VARIABLE;
use super::settings::{Kind, SETTINGS, Setting};

/// What the command line says about a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// The file with settings.
    pub(crate) file: Option<PathBuf>,
    /// By name, as typed.
    pub(crate) settings: Vec<(&'static str, String)>,
}

const FILE: &str = "config";

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(FILE)
            .long(FILE)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help(format!("A file with settings; or put its path into {CONFIG_VARIABLE}"));
        SETTINGS.iter().filter_map(argument).fold(command.arg(file), Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args(command)
    }
}

fn argument(setting: &Setting) -> Option<Arg> {
    let flag = setting.flag()?;
    let argument = Arg::new(setting.name)
        .long(flag.trim_start_matches("--").to_owned())
        .value_name(value_name(setting.kind))
        .help_heading(setting.group)
        .help(help(setting));
    Some(match setting.kind {
        // Several at once, or the flag several times.
        Kind::Blocks | Kind::Scopes | Kind::Names => argument.action(ArgAction::Append),
        Kind::Switch => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => argument,
    })
}

fn help(setting: &Setting) -> String {
    let words = match setting.kind {
        Kind::Choice(words) => {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!(": {}", words.join(", "))
        }
        _ => String::new(),
    };
    let default = match setting.default {
        "" => String::new(),
        default => format!(" [default: {}]", default.trim_matches(['(', ')'])),
    };
    format!("{}{words}{default}", setting.help)
}

fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "FILE",
        Kind::Store | Kind::Endpoint => "URL",
        Kind::Address => "ADDRESS",
        Kind::Number(..) => "N",
        Kind::Span(..) => "TIME",
        Kind::Switch => "BOOL",
        Kind::Choice(_) => "WORD",
        Kind::Blocks => "BLOCKS",
        Kind::Scopes => "SCOPES",
        Kind::Filter => "FILTER",
        Kind::Names => "KEY=ATTRIBUTE",
        Kind::Tokens | Kind::Secret => "VALUE",
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let mut flags = Flags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one(FILE).cloned();
        for setting in SETTINGS.iter().filter(|setting| setting.flag().is_some()) {
            if let Some(values) = matches.get_many::<String>(setting.name) {
                let values: Vec<&str> = values.map(String::as_str).collect();
                self.settings.push((setting.name, values.join(",")));
            }
        }
        Ok(())
    }
}
