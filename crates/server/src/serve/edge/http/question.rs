//! What a caller asks, out of a body that may hold anything. Text is borrowed from the body wherever it stands there as
//! it is meant.
//!
//! Knows no transport and no gate: the fuzz target reads it alone.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use tollgate::Attributes;
use tollgate::core::rules::Request;
use tollgate::core::{EXACT_MAX, Report};

pub(crate) const ATTRIBUTES_MAX: usize = 64;
/// In characters, as a schema counts them.
pub(crate) const NAME_MAX: usize = 64;
pub(crate) const VALUE_MAX: usize = 1_024;
pub(crate) const ID_MAX: usize = 128;
pub(crate) const BATCH_MAX: usize = 64;

/// Which members a body may have; all that are not optional it must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// `attributes`, `cost?`, `id?`.
    Check,
    /// `attributes`, `cost?`.
    Look,
    /// `attributes`, `result`.
    Report,
    /// `receipt`.
    Receipt,
}

/// One question. What its form does not have is not set.
#[derive(Debug, Default)]
pub(crate) struct Question<'b> {
    attributes: Option<Entries<'b>>,
    cost: Option<u64>,
    id: Option<Cow<'b, str>>,
    result: Option<Report>,
    receipt: Option<Cow<'b, str>>,
}

type Entries<'b> = Vec<(Cow<'b, str>, Cow<'b, str>)>;

/// A body that is no question, and what would make it one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadBody {
    #[error("the body is not JSON: {0}")]
    NotJson(#[source] serde_json::Error),
    #[error("{0}")]
    NotAsked(#[source] serde_json::Error),
}

impl Form {
    const fn members(self) -> &'static [&'static str] {
        match self {
            Form::Check => &["attributes", "cost", "id"],
            Form::Look => &["attributes", "cost"],
            Form::Report => &["attributes", "result"],
            Form::Receipt => &["receipt"],
        }
    }

    const fn required(self) -> &'static [&'static str] {
        match self {
            Form::Check | Form::Look => &["attributes"],
            Form::Report => &["attributes", "result"],
            Form::Receipt => &["receipt"],
        }
    }

    /// The question in these bytes.
    pub(crate) fn read(self, body: &[u8]) -> Result<Question<'_>, BadBody> {
        read(body, self)
    }

    /// The questions in a list of them.
    pub(crate) fn read_list(self, body: &[u8]) -> Result<Vec<Question<'_>>, BadBody> {
        read(body, ListOf(self))
    }
}

impl Question<'_> {
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        // Each name is there once: that was seen to when they were read.
        self.attributes.iter().flatten().map(|(name, value)| (&**name, &**value)).collect()
    }

    pub(crate) fn request<'a>(&'a self, attributes: &'a Attributes<'a>) -> Request<'a> {
        let request = Request::new(attributes).cost(self.cost.unwrap_or(1));
        self.id.as_deref().map_or(request, |id| request.id(id))
    }

    pub(crate) fn result(&self) -> Report {
        self.result.unwrap_or(Report::Failure)
    }

    pub(crate) fn receipt(&self) -> &str {
        self.receipt.as_deref().unwrap_or_default()
    }
}

fn read<'b, S: DeserializeSeed<'b>>(body: &'b [u8], form: S) -> Result<S::Value, BadBody> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let asked = form.deserialize(&mut json).and_then(|asked| json.end().map(|()| asked));
    asked.map_err(|error| if error.is_data() { BadBody::NotAsked(error) } else { BadBody::NotJson(error) })
}

impl<'b> DeserializeSeed<'b> for Form {
    type Value = Question<'b>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Question<'b>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'b> Visitor<'b> for Form {
    type Value = Question<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {}", self.members().join(", "))
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Question<'b>, A::Error> {
        let mut question = Question::default();
        let mut seen = 0_u8;
        while let Some(name) = map.next_key_seed(Text)? {
            let Some(place) = self.members().iter().position(|known| *known == name) else {
                let known = self.members().join(", ");
                return Err(A::Error::custom(format_args!(
                    "{} is not known here; leave it out, or use {known}",
                    Cut(&name)
                )));
            };
            if seen & 1 << place != 0 {
                return Err(A::Error::custom(format_args!("{name} is there twice; say it once")));
            }
            seen |= 1 << place;
            match &*name {
                "attributes" => question.attributes = Some(map.next_value_seed(AttributesOf)?),
                "cost" => question.cost = Some(map.next_value_seed(Cost)?),
                "id" => question.id = Some(map.next_value_seed(Id)?),
                "result" => question.result = Some(map.next_value_seed(ResultOf)?),
                _ => question.receipt = Some(map.next_value_seed(Text)?),
            }
        }
        for (place, name) in self.members().iter().enumerate() {
            if seen & 1 << place == 0 && self.required().contains(name) {
                return Err(A::Error::custom(format_args!("{name} is missing; add it")));
            }
        }
        Ok(question)
    }
}

/// So many questions that an answer to all of them stays small.
struct ListOf(Form);

impl<'b> DeserializeSeed<'b> for ListOf {
    type Value = Vec<Question<'b>>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'b> Visitor<'b> for ListOf {
    type Value = Vec<Question<'b>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of 1 to {BATCH_MAX} objects")
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut questions = Vec::new();
        while let Some(question) = list.next_element_seed(self.0)? {
            if questions.len() == BATCH_MAX {
                return Err(A::Error::custom(format_args!(
                    "more than {BATCH_MAX} checks; send them in parts"
                )));
            }
            questions.push(question);
        }
        if questions.is_empty() {
            return Err(A::Error::custom("no check; send at least one"));
        }
        Ok(questions)
    }
}

/// Names and values.
struct AttributesOf;

impl<'b> DeserializeSeed<'b> for AttributesOf {
    type Value = Entries<'b>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Entries<'b>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'b> Visitor<'b> for AttributesOf {
    type Value = Entries<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("attributes as an object of texts")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut map: A) -> Result<Entries<'b>, A::Error> {
        let mut entries = Entries::with_capacity(8);
        while let Some(name) = map.next_key_seed(Text)? {
            let cut = Cut(&name);
            if name.is_empty() {
                return Err(A::Error::custom("an attribute has no name; give it one or leave it out"));
            }
            if is_longer(&name, NAME_MAX) {
                return Err(A::Error::custom(format_args!(
                    "the name {cut} has more than {NAME_MAX} characters; shorten it"
                )));
            }
            if entries.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format_args!("attribute {cut} is there twice; say it once")));
            }
            if entries.len() == ATTRIBUTES_MAX {
                return Err(A::Error::custom(format_args!(
                    "more than {ATTRIBUTES_MAX} attributes; send only those that rules look at"
                )));
            }
            let value = map.next_value_seed(Text)?;
            if is_longer(&value, VALUE_MAX) {
                return Err(A::Error::custom(format_args!(
                    "attribute {cut} has more than {VALUE_MAX} characters; shorten it, or send a hash of it"
                )));
            }
            entries.push((name, value));
        }
        Ok(entries)
    }
}

/// Any text.
struct Text;

impl<'b> DeserializeSeed<'b> for Text {
    type Value = Cow<'b, str>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Cow<'b, str>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'b> Visitor<'b> for Text {
    type Value = Cow<'b, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'b str) -> Result<Cow<'b, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'b, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// A caller's own name for one request.
struct Id;

impl<'b> DeserializeSeed<'b> for Id {
    type Value = Cow<'b, str>;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Cow<'b, str>, D::Error> {
        let id = Text.deserialize(json)?;
        if id.is_empty() || is_longer(&id, ID_MAX) {
            return Err(D::Error::custom(format_args!(
                "id must have 1 to {ID_MAX} characters; leave it out if there is none"
            )));
        }
        Ok(id)
    }
}

/// A whole number that every host counts exactly.
struct Cost;

impl<'b> DeserializeSeed<'b> for Cost {
    type Value = u64;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_u64(self)
    }
}

impl Visitor<'_> for Cost {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cost as a whole number from 0 to {EXACT_MAX}, without quotes")
    }

    fn visit_u64<E: Error>(self, cost: u64) -> Result<u64, E> {
        if cost > EXACT_MAX {
            return Err(E::invalid_value(serde::de::Unexpected::Unsigned(cost), &self));
        }
        Ok(cost)
    }

    fn visit_i64<E: Error>(self, cost: i64) -> Result<u64, E> {
        let whole = u64::try_from(cost);
        whole
            .map_err(|_| E::invalid_value(serde::de::Unexpected::Signed(cost), &self))
            .and_then(|cost| self.visit_u64(cost))
    }

    /// Some languages write every number with a point.
    fn visit_f64<E: Error>(self, cost: f64) -> Result<u64, E> {
        if cost.fract() != 0.0 || !(0.0..=EXACT_MAX as f64).contains(&cost) {
            return Err(E::invalid_value(serde::de::Unexpected::Float(cost), &self));
        }
        Ok(cost as u64)
    }
}

/// How an attempt went.
struct ResultOf;

impl<'b> DeserializeSeed<'b> for ResultOf {
    type Value = Report;

    fn deserialize<D: Deserializer<'b>>(self, json: D) -> Result<Report, D::Error> {
        match &*Text.deserialize(json)? {
            "success" => Ok(Report::Success),
            "failure" => Ok(Report::Failure),
            other => {
                Err(D::Error::custom(format_args!("result is {}; it must be success or failure", Cut(other))))
            }
        }
    }
}

/// Whether a text has more characters than this. Only a text with more bytes has to be counted.
fn is_longer(text: &str, characters_max: usize) -> bool {
    text.len() > characters_max && text.chars().nth(characters_max).is_some()
}

/// A text that somebody sent, quoted, and not more of it than one wants to read.
struct Cut<'a>(&'a str);

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 40;
        let end = self.0.char_indices().nth(SHOWN).map_or(self.0.len(), |(end, _)| end);
        let dots = if end < self.0.len() { "…" } else { "" };
        write!(f, "{:?}{dots}", &self.0[..end])
    }
}
