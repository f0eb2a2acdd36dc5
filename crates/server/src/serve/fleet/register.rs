//! The register of the servers that share a store, and what it says about their hash keys.

use std::fmt;

use tollgate::core::Keyspace;
use tollgate::core::key::KeyspaceError;

/// The script that reads and writes the register.
pub(crate) const SCRIPT: &str = include_str!("register.lua");

/// The key of the register. No rule id begins with `@`.
#[derive(Clone, Debug)]
pub(crate) struct FleetKey {
    /// Its rule id is the name of the register.
    keyspace: Keyspace,
}

impl FleetKey {
    /// The key of the register of the servers of `namespace`.
    pub(crate) fn new(namespace: &str) -> Result<FleetKey, KeyspaceError> {
        Ok(FleetKey { keyspace: Keyspace::new(namespace, "hash-key")? })
    }
}

/// The only place where the key is written as a string.
impl fmt::Display for FleetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tg:1:{}:{{fleet}}:@{}", self.keyspace.namespace(), self.keyspace.rule())
    }
}

/// The register as it was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Register {
    /// The fingerprints of the fleet's hash keys, separated by spaces. Kept while no server runs.
    pub(crate) hash_key: String,
    pub(crate) members: Vec<Member>,
}

/// A server that has announced itself recently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) id: String,
    /// When it announced itself last, in microseconds on the store's clock.
    pub(crate) announced_us: u64,
    /// When it joined.
    pub(crate) joined_us: u64,
    /// The fingerprint of its rules.
    pub(crate) rules: String,
    /// The fingerprints of its hash keys, separated by commas.
    pub(crate) hash_keys: String,
}

/// What the register says about a server's hash keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing is known: the store is new, or it was emptied.
    Unknown,
    /// The fleet has one of the server's hash keys.
    Same,
    /// The fleet has other hash keys: these.
    Differs(String),
}

impl Register {
    /// Parses the reply of the script. Lines that are not understood are ignored.
    pub(crate) fn parse(reply: &str) -> Register {
        let mut lines = reply.lines().skip(1);
        let hash_key = lines.next().unwrap_or_default().to_owned();
        Register { hash_key, members: lines.filter_map(Member::parse).collect() }
    }

    pub(crate) fn member(&self, id: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Whether the hash key of the fleet is one of these.
    pub(crate) fn knows(&self, fingerprints: &[String]) -> bool {
        is_shared(&self.hash_key, fingerprints)
    }

    /// Whether the fleet has one of these hash keys. Servers that run decide, by majority; if they are equally many, the
    /// side of the one that joined first. The stored hash key decides only while no server runs.
    pub(crate) fn verdict(&self, fingerprints: &[String]) -> Verdict {
        let differing = |member: &&Member| !is_shared(&member.hash_keys, fingerprints);
        let theirs = self.members.iter().filter(differing).count();
        let ours = self.members.len() - theirs;
        let first = self.members.iter().min_by_key(|member| (member.joined_us, &member.id));
        let other = match first {
            None if self.hash_key.is_empty() => return Verdict::Unknown,
            None if self.knows(fingerprints) => return Verdict::Same,
            None => self.hash_key.clone(),
            Some(first) if ours > theirs || ours == theirs && !differing(&first) => return Verdict::Same,
            Some(_) => self.other_hash_keys(fingerprints, 0).unwrap_or_default(),
        };
        Verdict::Differs(other)
    }

    /// The hash keys of a server that shares none of these, and that has announced itself since then.
    pub(crate) fn other_hash_keys(&self, fingerprints: &[String], since_us: u64) -> Option<String> {
        let differs =
            |member: &&Member| member.announced_us >= since_us && !is_shared(&member.hash_keys, fingerprints);
        self.members.iter().find(differs).map(|member| member.hash_keys.replace(',', " "))
    }
}

/// The id of a server: 16 random digits, then its version in hexadecimal. Servers of earlier versions read digits only, and an
/// id of 16 digits is one of theirs.
pub(crate) fn new_id(random: u64, version: &str) -> String {
    version.bytes().fold(format!("{random:016x}"), |id, byte| format!("{id}{byte:02x}"))
}

impl Member {
    /// The random digits at the beginning of the id.
    pub(crate) fn number(&self) -> &str {
        self.id.get(..16).unwrap_or(&self.id)
    }

    /// The version of the server, if it announces one.
    pub(crate) fn version(&self) -> Option<String> {
        let digits = self.id.get(16..).filter(|digits| !digits.is_empty() && digits.len() % 2 == 0)?;
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>()?;
        String::from_utf8(bytes).ok().filter(|text| text.chars().all(|c| c.is_ascii_graphic()))
    }

    fn parse(line: &str) -> Option<Member> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, announced, joined, rules, hash_keys] = words.as_slice() else { return None };
        Some(Member {
            id: (*id).to_owned(),
            announced_us: announced.parse().ok()?,
            joined_us: joined.parse().ok()?,
            rules: (*rules).to_owned(),
            hash_keys: (*hash_keys).to_owned(),
        })
    }
}

/// Whether a list of fingerprints, separated by spaces or commas, has one of these.
fn is_shared(list: &str, fingerprints: &[String]) -> bool {
    list.split([' ', ',']).any(|one| fingerprints.iter().any(|other| one == other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(hash_key: &str, members: &[(u64, &str)]) -> Register {
        let member = |(number, (joined_us, hash_keys)): (usize, &(u64, &str))| Member {
            id: format!("{number:x}"),
            announced_us: 100 + joined_us,
            joined_us: *joined_us,
            rules: "r".to_owned(),
            hash_keys: (*hash_keys).to_owned(),
        };
        let members = members.iter().enumerate().map(member).collect();
        Register { hash_key: hash_key.to_owned(), members }
    }

    #[test]
    fn servers_that_run_decide_by_majority_and_then_by_age() {
        let ours = ["new".to_owned(), "old".to_owned()];
        for (register, expected) in [
            (register("", &[]), Verdict::Unknown),
            (register("old", &[]), Verdict::Same),
            (register("rogue", &[]), Verdict::Differs("rogue".to_owned())),
            (register("rogue", &[(1, "old")]), Verdict::Same),
            (register("old", &[(1, "rogue")]), Verdict::Differs("rogue".to_owned())),
            (register("rogue", &[(1, "rogue"), (2, "old"), (3, "new,old")]), Verdict::Same),
            (register("old", &[(1, "old"), (2, "a,b"), (3, "a")]), Verdict::Differs("a b".to_owned())),
            (register("rogue", &[(5, "rogue"), (4, "new")]), Verdict::Same),
            (register("old", &[(5, "old"), (4, "rogue")]), Verdict::Differs("rogue".to_owned())),
        ] {
            assert_eq!(register.verdict(&ours), expected, "{register:?}");
        }
    }

    #[test]
    fn a_register_is_parsed_and_unknown_lines_are_ignored() {
        let reply = "1700\nnew old\na1 1690 1600 80bc55 new,old\nnonsense\nb2 x y z f\n";
        let parsed = Register::parse(reply);
        assert_eq!(parsed.hash_key, "new old");
        let [member] = &parsed.members[..] else { panic!("{parsed:?}") };
        assert_eq!((member.announced_us, member.joined_us, member.rules.as_str()), (1690, 1600, "80bc55"));
        assert_eq!(parsed.member("a1"), Some(member));
        assert_eq!(parsed.other_hash_keys(&["x".to_owned()], 1690).as_deref(), Some("new old"));
        assert_eq!(parsed.other_hash_keys(&["x".to_owned()], 1691), None, "it may be gone");
    }
}
