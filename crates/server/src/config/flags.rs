//! The flags of commands that accept settings, generated from the table.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use tollgate_document::shape::RenamedKey;

use super::CONFIG_VARIABLE;
use super::settings::{Kind, RENAMED, SETTINGS, Setting, flag_name};

/// The flags of one command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// The configuration file.
    pub(crate) file: Option<PathBuf>,
    /// Names of settings and their values as typed. A name may be an old one.
    pub(crate) settings: Vec<(&'static str, String)>,
}

const FILE: &str = "config";

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(FILE)
            .long(FILE)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help(format!("Configuration file [env: {CONFIG_VARIABLE}]"));
        let command = SETTINGS.iter().filter_map(argument).fold(command.arg(file), Command::arg);
        RENAMED.iter().filter_map(renamed_argument).fold(command, Command::arg)
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
        // A list can be given at once, or one item per flag.
        Kind::CidrBlocks | Kind::Scopes | Kind::AttributeNames | Kind::Hosts => {
            argument.action(ArgAction::Append)
        }
        Kind::Bool => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => argument,
    })
}

/// The flag of an old name, which the help does not list.
fn renamed_argument(renamed: &RenamedKey) -> Option<Arg> {
    let setting = SETTINGS.iter().find(|setting| setting.name == renamed.new)?;
    let flag = flag_name(renamed.old);
    Some(argument(setting)?.id(renamed.old).long(flag.trim_start_matches("--").to_owned()).hide(true))
}

fn help(setting: &Setting) -> String {
    let words = match setting.kind {
        Kind::Choice(words) => {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!(": {}", words.join(", "))
        }
        _ => String::new(),
    };
    let details = match setting.details {
        "" => String::new(),
        details => format!(". {details}"),
    };
    let default = match setting.default {
        "" => String::new(),
        default => format!(" [default: {}]", default.trim_matches(['(', ')'])),
    };
    format!("{}{words}{details}{default}", setting.help)
}

fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "FILE",
        Kind::Store | Kind::Database | Kind::Endpoint => "URL",
        Kind::Address => "ADDRESS",
        Kind::Number(..) => "N",
        Kind::Duration(..) => "DURATION",
        Kind::Bool => "BOOL",
        Kind::Choice(_) => "WORD",
        Kind::CidrBlocks => "BLOCKS",
        Kind::Hosts => "HOSTS",
        Kind::Scopes => "SCOPES",
        Kind::LogFilter => "FILTER",
        Kind::AttributeNames => "KEY=ATTRIBUTE",
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
        let current = SETTINGS.iter().filter(|setting| setting.flag().is_some()).map(|setting| setting.name);
        for name in current.chain(RENAMED.iter().map(|renamed| renamed.old)) {
            // A renamed setting that is not accepted as a flag has no argument.
            if let Ok(Some(values)) = matches.try_get_many::<String>(name) {
                let values: Vec<&str> = values.map(String::as_str).collect();
                self.settings.push((name, values.join(",")));
            }
        }
        Ok(())
    }
}
