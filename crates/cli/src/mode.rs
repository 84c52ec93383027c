//! Modes of containers as text, as for files.

use std::fmt::Write as _;

use cenote::CONTAINER_MODE_BITS;

/// Change of a mode: the bits to keep and the bits to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Vec<(u16, u16)>);

impl ModeChange {
    /// Returns the mode after the change.
    pub fn apply(&self, mode: u16) -> u16 {
        self.0.iter().fold(mode, |mode, (stays, set)| mode & stays | set)
    }
}

/// Parses `0750`, or `u=rw,g+r,o-rwx`.
pub fn parse(text: &str) -> Result<ModeChange, String> {
    if let Ok(mode) = u16::from_str_radix(text, 8) {
        if mode & !CONTAINER_MODE_BITS != 0 {
            return Err("a container's mode has nine bits: 0 to 0777".into());
        }
        return Ok(ModeChange(vec![(0, mode)]));
    }
    text.split(',')
        .map(clause)
        .collect::<Option<Vec<_>>>()
        .map(ModeChange)
        .ok_or_else(|| "it is no mode: give octal digits like 0750, or changes like g+r or go-rwx".to_owned())
}

fn clause(text: &str) -> Option<(u16, u16)> {
    let at = text.find(['+', '-', '='])?;
    let (who, rest) = text.split_at(at);
    let classes = who.chars().try_fold(0, |all, class| {
        Some(
            all | match class {
                'u' => 0o700,
                'g' => 0o070,
                'o' => 0o007,
                'a' => 0o777,
                _ => return None,
            },
        )
    })?;
    let classes: u16 = if who.is_empty() { 0o777 } else { classes };
    let bits: u16 = rest[1..].chars().try_fold(0, |all, bit| {
        Some(
            all | match bit {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                _ => return None,
            },
        )
    })?;
    Some(match &rest[..1] {
        "+" => (!0, classes & bits),
        "-" => (!(classes & bits), 0),
        _ => (!classes, classes & bits),
    })
}

/// Parses `UID`, `UID:GID`, `:GID`.
pub fn parse_owner(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
    let number = |text: &str| match text {
        "" => Ok(None),
        text => {
            text.parse().map(Some).map_err(|_| format!("`{text}` is no number: ids are numeric, see `id -u`, `id -g`"))
        }
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    match (number(uid)?, number(gid)?) {
        (None, None) => Err("give UID, UID:GID or :GID".into()),
        found => Ok(found),
    }
}

/// Formats a mode as `ls -l` does.
pub fn words(mode: u16) -> String {
    let mut text = String::new();
    for (at, bit) in "rwxrwxrwx".chars().enumerate() {
        let _ = text.write_char(if mode & (0o400 >> at) != 0 { bit } else { '-' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_files() {
        let cases = [
            ("750", 0o777, 0o750),
            ("0", 0o777, 0),
            ("go-rwx", 0o755, 0o700),
            ("g+w,o=", 0o755, 0o770),
            ("a=r", 0o755, 0o444),
            ("+r", 0o700, 0o744),
            ("u=rw,go=r", 0o777, 0o644),
        ];
        for (text, before, after) in cases {
            assert_eq!(parse(text).unwrap().apply(before), after, "{text}");
        }
        for bad in ["", "rw", "1777", "8", "x+r", "g*r", "g+q"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!(words(0o754), "rwxr-xr--");
        assert_eq!(parse_owner("5:6"), Ok((Some(5), Some(6))));
        assert_eq!(parse_owner(":6"), Ok((None, Some(6))));
        assert!(parse_owner("ann").is_err() && parse_owner(":").is_err());
    }
}
