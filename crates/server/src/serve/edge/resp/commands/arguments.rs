//! Arguments of commands: attributes, receipts and options.

use std::fmt;

use crate::serve::edge::request::{COST_MAX, CheckRequest, RequestError};
use crate::serve::edge::resp::frame::{OPTIONS_MAX, Words};
use crate::serve::edge::resp::text::{Quoted, integer};

/// The words after the name of a command: names and values in turn, or others, then options.
#[derive(Clone, Copy)]
pub(crate) struct Arguments<'b, 'p> {
    pub(crate) words: Words<'b, 'p>,
    usage: &'static str,
    options: &'static [&'static str],
    given: [Option<&'b [u8]>; OPTIONS_MAX],
    /// Whether bytes that are not UTF-8 were replaced.
    is_lossless: bool,
}

/// Why the arguments are invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ArgumentError<'b> {
    Usage {
        usage: &'static str,
    },
    /// A word is not UTF-8. The command is read again with lossless text.
    NotText,
    Misplaced {
        option: &'static str,
    },
    DuplicateOption {
        option: &'static str,
    },
    NotANumber {
        what: &'static str,
        found: &'b [u8],
    },
    DuplicateRule {
        found: &'b [u8],
    },
    Request(RequestError),
}

pub(crate) const COST: &str = "COST";
pub(crate) const ID: &str = "ID";
pub(crate) const TTL: &str = "TTL";
pub(crate) const AMOUNT: &str = "AMOUNT";
pub(crate) const RULE: &str = "RULE";
pub(crate) const SCALE: &str = "SCALE";

impl From<RequestError> for ArgumentError<'_> {
    fn from(error: RequestError) -> Self {
        ArgumentError::Request(error)
    }
}

impl fmt::Display for ArgumentError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentError::Usage { usage } => {
                let name = usage.split(' ').next().unwrap_or_default().to_ascii_lowercase();
                write!(f, "wrong number of arguments for '{name}' command; write {usage}")
            }
            ArgumentError::NotText => f.write_str("an argument is not UTF-8; send text"),
            ArgumentError::Misplaced { option } => write!(
                f,
                "misplaced {option}; it goes after the attributes, and an attribute of this name is written {}",
                option.to_ascii_lowercase()
            ),
            ArgumentError::DuplicateOption { option } => write!(f, "duplicate {option}; send it once"),
            ArgumentError::NotANumber { what, found } => {
                write!(f, "{what} is {}; it must be an integer from 0 to {COST_MAX}", Quoted(found))
            }
            ArgumentError::DuplicateRule { found } => {
                write!(f, "duplicate rule {}; send one amount for each", Quoted(found))
            }
            ArgumentError::Request(error) => error.fmt(f),
        }
    }
}

impl<'b, 'p> Arguments<'b, 'p> {
    /// Reads the options at the end of the words. Those that the command does not have are left with the others.
    #[inline]
    pub(crate) fn read(
        usage: &'static str,
        options: &'static [&'static str],
        words: Words<'b, 'p>,
        is_lossless: bool,
    ) -> Result<Arguments<'b, 'p>, ArgumentError<'b>> {
        let given = [None; OPTIONS_MAX];
        let mut arguments = Arguments { words, usage, options, given, is_lossless };
        while arguments.words.len() >= 2
            && let Some(word) = arguments.words.get(arguments.words.len() - 2)
            && let Some(index) = options.iter().position(|option| option.as_bytes() == word)
            && let Some(value) = arguments.words.get(arguments.words.len() - 1)
        {
            if arguments.given[index].replace(value).is_some() {
                return Err(ArgumentError::DuplicateOption { option: options[index] });
            }
            arguments.words = arguments.words.without_last(2);
        }
        Ok(arguments)
    }

    /// The request that the words describe: names and values in turn, and the options `COST` and `ID`.
    #[inline]
    pub(crate) fn request(&self) -> Result<CheckRequest<'b>, ArgumentError<'b>> {
        let words = self.words;
        if words.len() == 0 || words.len() % 2 == 1 {
            return Err(self.wrong_number());
        }
        let mut request = CheckRequest::new();
        for index in (0..words.len()).step_by(2) {
            let (Some(name), Some(value)) = (words.get(index), words.get(index + 1)) else { break };
            if let Some(option) = self.reserved(name) {
                return Err(ArgumentError::Misplaced { option });
            }
            request.add(self.text(name)?, self.text(value)?)?;
        }
        if let Some(cost) = self.number(COST)? {
            request.set_cost(cost)?;
        }
        if let Some(id) = self.option(ID)? {
            request.set_id(id)?;
        }
        Ok(request)
    }

    /// The word at this position, as text.
    pub(crate) fn word(&self, index: usize) -> Result<&'b str, ArgumentError<'b>> {
        self.text(self.words.get(index).ok_or_else(|| self.wrong_number())?)
    }

    /// The number at this position.
    pub(crate) fn number_at(&self, index: usize, what: &'static str) -> Result<u64, ArgumentError<'b>> {
        number(what, self.words.get(index).ok_or_else(|| self.wrong_number())?)
    }

    /// The value of an option, if it is given.
    pub(crate) fn option(&self, option: &'static str) -> Result<Option<&'b str>, ArgumentError<'b>> {
        self.given(option).map(|value| self.text(value)).transpose()
    }

    /// The number of an option, if it is given.
    pub(crate) fn number(&self, option: &'static str) -> Result<Option<u64>, ArgumentError<'b>> {
        self.given(option).map(|value| number(option, value)).transpose()
    }

    /// The error for a wrong number of words.
    pub(crate) const fn wrong_number(&self) -> ArgumentError<'b> {
        ArgumentError::Usage { usage: self.usage }
    }

    fn given(&self, option: &str) -> Option<&'b [u8]> {
        let index = self.options.iter().position(|known| *known == option)?;
        self.given[index]
    }

    /// The option that this name would be. `COST` and `ID` are options of most commands, so they are never names.
    fn reserved(&self, name: &[u8]) -> Option<&'static str> {
        let mut reserved = self.options.iter().copied().chain([COST, ID]);
        reserved.find(|option| option.as_bytes() == name)
    }

    #[inline]
    fn text(&self, bytes: &'b [u8]) -> Result<&'b str, ArgumentError<'b>> {
        match std::str::from_utf8(bytes) {
            // See `lossless_text`: text with this byte may stand for other bytes.
            Ok(text) if self.is_lossless || !bytes.contains(&0xF4) => Ok(text),
            _ => Err(ArgumentError::NotText),
        }
    }
}

/// A number without a sign.
pub(crate) fn number<'b>(what: &'static str, found: &'b [u8]) -> Result<u64, ArgumentError<'b>> {
    let number = integer(found).and_then(|number| u64::try_from(number).ok());
    number.ok_or(ArgumentError::NotANumber { what, found })
}
