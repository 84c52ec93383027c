//! Settings that only some kinds of tiers take, and which values each may have.

use std::collections::BTreeMap;

use crate::{DeviceKind, size};

/// Options of a tier that only some kinds take, by name. The superblock keeps them as text, so never a
/// secret: `credentials` names the place of the secret.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct TierOptions(BTreeMap<String, String>);

/// Upper bound of the bytes of names and values in one tier's options together.
const BYTES_MAX: usize = 16 << 10;

/// The type of an option's value.
enum Value {
    /// Any text that is not empty.
    Text,
    /// A size.
    Size,
    /// One of these.
    OneOf(&'static [&'static str]),
}

/// The known options: name, kinds that take it, and type of its value.
const KNOWN: &[(&str, &[DeviceKind], Value)] = &[
    ("endpoint", &[DeviceKind::S3, DeviceKind::Swift], Value::Text),
    ("region", &[DeviceKind::S3, DeviceKind::Swift], Value::Text),
    ("credentials", &[DeviceKind::S3, DeviceKind::Swift], Value::Text),
    ("conf", &[DeviceKind::Rados], Value::Text),
    ("user", &[DeviceKind::Rados], Value::Text),
    ("keyring", &[DeviceKind::Rados], Value::Text),
    ("pack", &[DeviceKind::S3, DeviceKind::Swift, DeviceKind::Rados, DeviceKind::Raid], Value::Size),
    ("layout", &[DeviceKind::Raid], Value::Text),
    ("unit", &[DeviceKind::Raid], Value::Size),
    // Not for memory, which is read by reference.
    (
        "compress",
        &[
            DeviceKind::File,
            DeviceKind::Directory,
            DeviceKind::S3,
            DeviceKind::Swift,
            DeviceKind::Rados,
            DeviceKind::Raid,
        ],
        Value::OneOf(&["none", "lz4", "zstd", "auto"]),
    ),
    ("use", &DeviceKind::ALL, Value::OneOf(&["tier", "cache"])),
    ("budget", &DeviceKind::ALL, Value::Size),
];

impl TierOptions {
    /// The value of an option.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
    /// Sets an option; returns the previous value.
    pub fn set(&mut self, name: &str, value: &str) -> Option<String> {
        self.0.insert(name.to_owned(), value.to_owned())
    }
    /// All options, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
    /// Number of options.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns true if some kind of tier has an option of this name.
    pub fn is_known(name: &str) -> bool {
        KNOWN.iter().any(|(known, ..)| *known == name)
    }
    /// Names of all options.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, ..)| *name)
    }
    /// Checks the options for a tier of this kind; the error says what is wrong.
    pub fn check(&self, kind: DeviceKind) -> Result<(), String> {
        let bytes: usize = self.0.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > BYTES_MAX {
            return Err(format!("its options have {bytes} bytes; at most {BYTES_MAX} are allowed"));
        }
        for (name, value) in &self.0 {
            let Some((_, kinds, wanted)) = KNOWN.iter().find(|(known, ..)| known == name) else {
                return Err(format!("`{name}` is not one of {}", Self::names().collect::<Vec<_>>().join(", ")));
            };
            if !kinds.contains(&kind) {
                return Err(format!("a {} tier takes no `{name}`", kind.word()));
            }
            match wanted {
                Value::Text if value.is_empty() => return Err(format!("`{name}` is empty")),
                Value::Size => drop(size::parse(value).map_err(|why| format!("`{name}`: {why}"))?),
                Value::OneOf(words) if !words.contains(&value.as_str()) => {
                    return Err(format!("`{name}` is `{value}`; it may be {}", words.join(", ")));
                }
                Value::Text | Value::OneOf(_) => {}
            }
        }
        Ok(())
    }
}

impl FromIterator<(String, String)> for TierOptions {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_options_together_have_a_bound() {
        let mut options = TierOptions::default();
        let bytes = BYTES_MAX - "region".len();
        assert_eq!(options.set("region", &"r".repeat(bytes)), None);
        assert_eq!(options.check(DeviceKind::S3), Ok(()));
        assert_eq!((options.get("region").map(str::len), options.get("pack")), (Some(bytes), None));
        assert_eq!(options.set("region", &"r".repeat(bytes + 1)).map(|was| was.len()), Some(bytes));
        assert!(options.check(DeviceKind::S3).unwrap_err().contains("16384"));
        assert_eq!(options.set("region", &"r".repeat(2 * bytes)).map(|was| was.len()), Some(bytes + 1));
        assert!(options.check(DeviceKind::S3).is_err());
    }

    #[test]
    fn an_option_that_nobody_knows_is_named_with_those_that_there_are() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let options = TierOptions::from_iter([pair("use", "tier"), pair("colour", "red")]);
        assert_eq!((options.len(), options.is_empty()), (2, false));
        let why = options.check(DeviceKind::File).unwrap_err();
        assert!(why.starts_with("`colour` is not one of endpoint"), "{why}");
        assert!(TierOptions::names().all(TierOptions::is_known) && !TierOptions::is_known("colour"));
        assert!(TierOptions::default().is_empty());
    }
}
