//! Licence expressions: `MIT OR Apache-2.0`, `(MIT OR ISC) AND BSD-3-Clause`.

use anyhow::{Result, bail};

/// Parentheses may be nested this deep.
const DEPTH_MAX: usize = 8;

/// Whether the expression can be met with the allowed licences.
pub(super) fn is_met(expression: &str, allowed: &[String]) -> Result<bool> {
    // Old manifests separate alternatives with a slash.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed, depth: 0 };
    let met = parser.alternatives()?;
    match parser.words {
        [] => Ok(met),
        [next, ..] => bail!("unexpected `{next}`"),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
    depth: usize,
}

impl Parser<'_> {
    fn takes(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        self.words = &self.words[usize::from(found)..];
        found
    }

    fn alternatives(&mut self) -> Result<bool> {
        let mut met = self.all()?;
        while self.takes("OR") {
            met |= self.all()?;
        }
        Ok(met)
    }

    fn all(&mut self) -> Result<bool> {
        let mut met = self.licence()?;
        while self.takes("AND") {
            met &= self.licence()?;
        }
        Ok(met)
    }

    fn licence(&mut self) -> Result<bool> {
        if self.takes("(") {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                bail!("nested too deeply");
            }
            let met = self.alternatives()?;
            if !self.takes(")") {
                bail!("`)` is missing");
            }
            self.depth -= 1;
            return Ok(met);
        }
        let Some((name, rest)) = self.words.split_first() else { bail!("it ends too early") };
        if ["OR", "AND", "WITH", ")"].contains(name) {
            bail!("unexpected `{name}`");
        }
        self.words = rest;
        let mut name = (*name).to_owned();
        if self.takes("WITH") {
            let Some((exception, rest)) = self.words.split_first() else { bail!("it ends too early") };
            name = format!("{name} WITH {exception}");
            self.words = rest;
        }
        Ok(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_met_by_one_alternative_and_all_parts() {
        let allowed = ["MIT", "ISC", "Apache-2.0"].map(str::to_owned);
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0 OR MIT", Some(true)),
            ("GPL-3.0/MIT", Some(true)),
            ("GPL-3.0 AND MIT", Some(false)),
            ("ISC AND (Apache-2.0 OR GPL-3.0)", Some(true)),
            ("GPL-3.0 OR MIT AND LGPL-3.0", Some(false)),
            ("(GPL-3.0 OR MIT) AND ISC", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(false)),
            ("Apache-2.0 WITH LLVM-exception OR MIT", Some(true)),
            ("", None),
            ("MIT MIT", None),
            ("(MIT", None),
            ("MIT OR", None),
            ("((((((((((MIT))))))))))", None),
        ] {
            assert_eq!(is_met(expression, &allowed).ok(), expected, "{expression}");
        }
    }
}
