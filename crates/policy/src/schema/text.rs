//! The small languages inside the schema's strings: globs, durations, bounds, hours.

use std::str::FromStr;

use cenote_model::size;
use wildmatch::WildMatch;

/// A pattern of names: `*` stands for anything, `?` for one character.
#[derive(Clone, PartialEq, Debug)]
pub struct Glob(WildMatch);

impl Eq for Glob {}

impl Glob {
    /// Creates a glob.
    pub fn new(pattern: &str) -> Self {
        Self(WildMatch::new(pattern))
    }
    /// Returns true if the glob matches the whole name. Takes time proportional to the product of both
    /// lengths at worst.
    pub fn matches(&self, name: &str) -> bool {
        self.0.matches(name)
    }
}

/// A time span in milliseconds: `10s`, `5m`, `2h`, `7d`.
pub(crate) fn duration_ms(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number = f64::from_str(&text[..split]).map_err(|_| format!("`{text}` is not a time such as 30s, 10m or 7d"))?;
    let factor = match text[split..].trim() {
        "ms" => 1.0,
        "s" => 1e3,
        "m" | "min" => 60e3,
        "h" => 3600e3,
        "d" => 86_400e3,
        "w" => 604_800e3,
        unit => return Err(format!("`{unit}` is not a unit of time; use ms, s, m, h, d or w")),
    };
    let ms = number * factor;
    if ms.is_finite() && ms < 1e16 { Ok(ms as u64) } else { Err(format!("`{text}` is too long")) }
}

/// A lower or upper bound, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    least: u64,
    most: u64,
}

impl Bound {
    /// Returns true if the value is within the bounds.
    pub fn holds(&self, value: u64) -> bool {
        (self.least..=self.most).contains(&value)
    }
    /// The lower bound.
    pub fn least(&self) -> u64 {
        self.least
    }
    /// Parses `>= 1MiB`, `< 2h`, or two of them: `>= 1MiB, < 1GiB`.
    pub(super) fn parse(text: &str, value: impl Fn(&str) -> Result<u64, String>) -> Result<Self, String> {
        let mut bound = Self { least: 0, most: u64::MAX };
        for part in text.split(',').map(str::trim) {
            let (rest, most, strict) = if let Some(rest) = part.strip_prefix(">=") {
                (rest, false, false)
            } else if let Some(rest) = part.strip_prefix("<=") {
                (rest, true, false)
            } else if let Some(rest) = part.strip_prefix('>') {
                (rest, false, true)
            } else if let Some(rest) = part.strip_prefix('<') {
                (rest, true, true)
            } else {
                return Err(format!("`{part}` does not begin with >=, >, <= or <"));
            };
            let value = value(rest.trim())?;
            if most {
                bound.most = bound.most.min(if strict { value.saturating_sub(1) } else { value });
            } else {
                bound.least = bound.least.max(if strict { value.saturating_add(1) } else { value });
            }
        }
        if bound.least <= bound.most { Ok(bound) } else { Err(format!("nothing can be `{text}`")) }
    }
    pub(super) fn of_size(text: &str) -> Result<Self, String> {
        Self::parse(text, size::parse)
    }
    pub(super) fn of_age(text: &str) -> Result<Self, String> {
        Self::parse(text, duration_ms)
    }
}

/// Hours of the day in UTC: from one minute of the day up to another, across midnight if that is earlier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hours {
    from: u32,
    until: u32,
}

impl Hours {
    /// Returns true at that time (milliseconds since 1970).
    pub fn holds(&self, unix_ms: u64) -> bool {
        let minute = (unix_ms / 60_000 % 1440) as u32;
        if self.from <= self.until {
            (self.from..self.until).contains(&minute)
        } else {
            minute >= self.from || minute < self.until
        }
    }
}

impl FromStr for Hours {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not hours such as 22:00-06:00");
        let minute = |text: &str| -> Option<u32> {
            let (hours, minutes) = text.trim().split_once(':')?;
            let (hours, minutes) = (hours.parse::<u32>().ok()?, minutes.parse::<u32>().ok()?);
            (hours <= 24 && minutes < 60 && hours * 60 + minutes <= 1440).then_some(hours * 60 + minutes)
        };
        let (from, until) = text.split_once('-').ok_or_else(wrong)?;
        let (from, until) = (minute(from).ok_or_else(wrong)?, minute(until).ok_or_else(wrong)?);
        if from == until { Err(format!("`{text}` is no time at all")) } else { Ok(Self { from, until }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        for (pattern, name, yes) in [
            ("*", "", true),
            ("ckpt-*", "ckpt-12", true),
            ("ckpt-*", "my-ckpt-12", false),
            ("*.h5", "a.h5.h5", true),
            ("a?c", "aüc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("", "x", false),
        ] {
            assert_eq!(Glob::new(pattern).matches(name), yes, "{pattern} {name}");
        }
        let hard = "a*".repeat(30) + "b";
        assert!(!Glob::new(&hard).matches(&"a".repeat(2000)), "and that quickly");
    }

    #[test]
    fn times_bounds_and_hours() {
        assert_eq!(duration_ms("1.5h"), Ok(5_400_000));
        assert!(duration_ms("5 fortnights").is_err() && duration_ms("x").is_err() && duration_ms("").is_err());
        let bound = Bound::of_size(">= 1KiB, < 2KiB").unwrap();
        assert!(bound.holds(1024) && bound.holds(2047) && !bound.holds(2048) && !bound.holds(1023));
        assert!(Bound::of_size("> 2, < 2").is_err() && Bound::of_age("10m").is_err());
        let night: Hours = "22:00-06:00".parse().unwrap();
        assert!(night.holds(23 * 3_600_000) && night.holds(5 * 3_600_000) && !night.holds(6 * 3_600_000));
        assert!("25:00-1:00".parse::<Hours>().is_err() && "1:00-1:00".parse::<Hours>().is_err());
    }
}
