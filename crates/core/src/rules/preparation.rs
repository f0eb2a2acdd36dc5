//! How the attributes of a request are prepared before rules see them: values in normal form, and readings of the path.
//!
//! It is part of the rule set and pure, so that every transport and the library do the same.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

use crate::request::attributes::Attributes;
use crate::request::path::{PATH, PathCase, Readings, is_canonical, readings};

/// An attribute whose values are secrets in every rules file.
const API_KEY: &str = "api_key";

/// How attributes are prepared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Preparation {
    /// Attributes whose values are brought to a normal form.
    pub normalize: Vec<(String, Normalization)>,
    /// Whether the case of a path matters.
    pub path_case: PathCase,
    /// What happens to a target that has several readings.
    pub ambiguous_paths: AmbiguousPaths,
    /// Attributes whose values are secrets: what is stored or shown of them is a keyed hash.
    pub secrets: Vec<String>,
}

/// What happens to a target that servers read in several ways.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AmbiguousPaths {
    /// Rules and the deny list apply if one reading matches, the bypass list only if all do.
    #[default]
    Match,
    /// The request is refused.
    Refuse,
}

/// The normal form of a value. The order of the steps is fixed: NFKC, lower case, trim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Normalization {
    /// Unicode compatibility composition: full-width and other variants of a character become one.
    pub nfkc: bool,
    /// Lower case, by Unicode.
    pub lower: bool,
    /// No white space at either end.
    pub trim: bool,
}

/// The values that rules see instead of those of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PreparedValues {
    /// Name and value of changed attributes.
    changed: Vec<(String, String)>,
    path: Option<(String, Vec<String>)>,
    refused: bool,
}

impl Normalization {
    /// Returns the normal form of a value.
    pub fn apply<'v>(&self, value: &'v str) -> Cow<'v, str> {
        let mut normal = Cow::Borrowed(value);
        if self.nfkc && !value.is_ascii() {
            normal = Cow::Owned(value.nfkc().collect());
        }
        if self.lower && normal.chars().any(|c| c.is_uppercase() || !c.is_ascii()) {
            // Character by character: the form of a letter must not depend on its neighbours.
            let lower: String = normal.chars().flat_map(char::to_lowercase).collect();
            normal = Cow::Owned(if self.nfkc { lower.nfkc().collect() } else { lower });
        }
        if self.trim && normal.trim().len() < normal.len() {
            normal = Cow::Owned(normal.trim().to_owned());
        }
        normal
    }
}

impl Preparation {
    /// Whether the values of this attribute are secrets. Those of `api_key` always are.
    pub fn is_secret(&self, attribute: &str) -> bool {
        attribute == API_KEY || self.secrets.iter().any(|secret| secret == attribute)
    }

    /// Returns the normal form of an attribute's value.
    pub fn normal<'v>(&self, attribute: &str, value: &'v str) -> Cow<'v, str> {
        match self.normalize.iter().find(|(name, _)| name == attribute) {
            Some((_, normalization)) => normalization.apply(value),
            None => Cow::Borrowed(value),
        }
    }

    /// Returns the values that differ from those of the request; `None` if none does.
    #[inline]
    pub(super) fn prepare(&self, attributes: &Attributes<'_>) -> Option<Box<PreparedValues>> {
        // Almost every request has a canonical path, and few rules files normalise a value.
        let nothing_differs = self.normalize.is_empty()
            && attributes.path_readings().is_empty()
            && attributes.get(PATH).is_none_or(|target| is_canonical(target, self.path_case));
        if nothing_differs { None } else { self.prepare_values(attributes) }
    }

    #[inline(never)]
    fn prepare_values(&self, attributes: &Attributes<'_>) -> Option<Box<PreparedValues>> {
        let mut prepared: Option<Box<PreparedValues>> = None;
        // Attributes that were prepared before keep their readings.
        if !attributes.path_readings().is_empty() && self.ambiguous_paths == AmbiguousPaths::Refuse {
            prepared.get_or_insert_default().refused = true;
        }
        if let Some(target) = attributes.get(PATH).filter(|_| attributes.path_readings().is_empty()) {
            let mut set = |path: String, others| {
                prepared.get_or_insert_default().path = Some((path, others));
            };
            match readings(target, self.path_case) {
                Readings::One(Cow::Borrowed(path)) if path.len() == target.len() => (),
                Readings::One(path) => set(path.into_owned(), Vec::new()),
                Readings::Several { folded, others } => {
                    set(folded, others);
                    if let Some(prepared) = &mut prepared {
                        prepared.refused = self.ambiguous_paths == AmbiguousPaths::Refuse;
                    }
                }
                Readings::TooMany => prepared.get_or_insert_default().refused = true,
            }
        }
        for (name, normalization) in &self.normalize {
            if let Some(value) = attributes.get(name)
                && let normal = normalization.apply(value)
                && normal != value
            {
                prepared.get_or_insert_default().changed.push((name.clone(), normal.into_owned()));
            }
        }
        prepared
    }
}

impl PreparedValues {
    /// Returns the attributes with these values.
    pub fn replace_in<'v>(&'v self, attributes: &Attributes<'v>) -> Attributes<'v> {
        let mut replaced = attributes.clone();
        for (name, value) in &self.changed {
            replaced.set(name, value);
        }
        if let Some((path, others)) = &self.path {
            replaced.set_path_readings(path, others);
        }
        replaced
    }

    /// Whether the request is refused because of its path.
    pub const fn is_refused(&self) -> bool {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Normalization = Normalization { nfkc: true, lower: true, trim: true };

    #[test]
    fn spellings_of_one_account_have_one_normal_form() {
        for value in ["jane", " Jane", "JANE\t", "\u{FF2A}\u{FF41}ne", "\u{A0}jane\u{3000}", "jan\u{FF25}"] {
            assert_eq!(ALL.apply(value), "jane", "{value:?}");
        }
        // Composed and decomposed letters, and a letter whose lower case is not composed.
        assert_eq!(ALL.apply("Jose\u{301}"), ALL.apply("JOS\u{C9}"));
        assert_eq!(ALL.apply("\u{130}"), ALL.apply("i\u{307}"));
        assert_ne!(ALL.apply("jane"), ALL.apply("jane2"));
    }

    #[test]
    fn each_step_is_separate_and_a_normal_form_is_stable() {
        let none = Normalization::default();
        let only =
            |step: &str| Normalization { nfkc: step == "nfkc", lower: step == "lower", trim: step == "trim" };
        let value = " \u{FF2A}ANE ";
        assert_eq!(none.apply(value), value);
        assert_eq!(only("nfkc").apply(value), " JANE ");
        assert_eq!(only("lower").apply(value), " \u{FF4A}ane ");
        assert_eq!(only("trim").apply(value), "\u{FF2A}ANE");
        assert!(matches!(ALL.apply("jane"), Cow::Borrowed(_)), "a normal value is not copied");
    }

    proptest::proptest! {
        #[test]
        fn the_normal_form_of_a_normal_form_is_itself(value in "\\PC{0,12}") {
            let normal = ALL.apply(&value).into_owned();
            proptest::prop_assert_eq!(ALL.apply(&normal).into_owned(), normal);
        }
    }
}
