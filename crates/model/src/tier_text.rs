//! Tiers as people write them, on a command line or in a file.

use std::path::PathBuf;
use std::str::FromStr;

use crate::{DeviceKind, DeviceSpec, Error, ErrorKind, Result, TierOptions, size};

/// Default high watermark: draining starts above this use.
pub const WATERMARK_HIGH_DEFAULT_PERMILLE: u16 = 900;
/// Default low watermark: draining stops at this use.
pub const WATERMARK_LOW_DEFAULT_PERMILLE: u16 = 700;

/// The description of a tier before validation: every part may be missing.
#[derive(Clone, Debug, Default)]
pub struct TierText {
    /// Its name.
    pub name: Option<String>,
    /// Its kind.
    pub kind: Option<DeviceKind>,
    /// Its path.
    pub path: Option<PathBuf>,
    /// Its capacity in bytes.
    pub size: Option<u64>,
    /// High watermark in thousandths.
    pub high: Option<u16>,
    /// Low watermark in thousandths.
    pub low: Option<u16>,
    /// Options that only some kinds take.
    pub options: TierOptions,
}

impl FromStr for DeviceKind {
    type Err = String;
    /// Parses a word such as `memory`, `file` or `directory`.
    fn from_str(word: &str) -> Result<Self, String> {
        let words = || Self::ALL.map(Self::word).join(", ");
        Self::ALL
            .into_iter()
            .find(|kind| kind.word() == word)
            .ok_or_else(|| format!("kind `{word}` is not one of {}", words()))
    }
}

/// Thousandths, from `90%` or `0.9`.
pub fn parse_permille(text: &str) -> Result<u16, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1000.0), |percent| (percent, 10.0));
    let value = number.trim().parse::<f64>().ok().map(|value| (value * scale).round());
    match value {
        Some(value) if (0.0..=1000.0).contains(&value) => Ok(value as u16),
        _ => Err(format!("watermark `{text}` is not a share such as 90% or 0.9")),
    }
}

impl TierText {
    /// The specified tier, or what is missing.
    pub fn into_spec(self) -> Result<DeviceSpec, String> {
        let name = self.name.filter(|name| !name.is_empty()).ok_or("a tier needs a name, as in name=ram")?;
        let kind = self.kind.ok_or_else(|| format!("tier `{name}` needs a kind, such as memory, file or directory"))?;
        let Some(capacity_bytes) = self.size else {
            return Err(format!("tier `{name}` needs a size, as in size=2GiB"));
        };
        let path = self.path.unwrap_or_default();
        match (kind, path.as_os_str().is_empty()) {
            (DeviceKind::SharedMemory, false) => {
                return Err(format!("tier `{name}`: memory takes no path; the store chooses its own name in /dev/shm"));
            }
            (_, true) if kind != DeviceKind::SharedMemory => return Err(format!("tier `{name}` needs a path")),
            _ => {}
        }
        let high = self.high.unwrap_or(WATERMARK_HIGH_DEFAULT_PERMILLE);
        let low = self.low.unwrap_or(WATERMARK_LOW_DEFAULT_PERMILLE.min(high));
        if low > high {
            return Err(format!("tier `{name}`: the low watermark is above the high one"));
        }
        let options = self.options;
        options.check(kind).map_err(|why| format!("tier `{name}`: {why}"))?;
        let (watermark_high_permille, watermark_low_permille) = (high, low);
        Ok(DeviceSpec { name, kind, path, capacity_bytes, watermark_high_permille, watermark_low_permille, options })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut tier = Self::default();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not KEY=VALUE"))?;
            let value = value.trim();
            let taken = match key.trim() {
                "name" => tier.name.replace(value.to_owned()).is_some(),
                "kind" => tier.kind.replace(value.parse()?).is_some(),
                "path" => tier.path.replace(PathBuf::from(value)).is_some(),
                "size" => tier.size.replace(size::parse(value)?).is_some(),
                "high" => tier.high.replace(parse_permille(value)?).is_some(),
                "low" => tier.low.replace(parse_permille(value)?).is_some(),
                other if TierOptions::is_known(other) => tier.options.set(other, value).is_some(),
                other => {
                    let options = TierOptions::names().collect::<Vec<_>>().join(", ");
                    return Err(format!("`{other}` is not one of name, kind, path, size, high, low, {options}"));
                }
            };
            if taken {
                return Err(format!("`{}` is given twice", key.trim()));
            }
        }
        Ok(tier)
    }
}

impl FromStr for DeviceSpec {
    type Err = Error;
    /// Parses a tier in the form of the command line and the bindings:
    /// `name=ram,kind=memory,size=2GiB,high=90%,low=70%`.
    fn from_str(text: &str) -> Result<Self> {
        TierText::parse(text).and_then(TierText::into_spec).map_err(|cause| {
            Error::new(ErrorKind::InvalidInput, format!("tier `{text}`")).because(cause).try_next(
                "write name=NAME,kind=memory|pmem|file|directory|s3|swift|rados|raid,path=PATH,size=SIZE[,high=90%][,low=70%]",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_in_one_line() {
        let tier: DeviceSpec = "name=disk,kind=file,path=/data/d,size=1.5GiB,high=80%,low=0.5".parse().unwrap();
        assert_eq!(tier.kind, DeviceKind::File);
        assert_eq!(tier.capacity_bytes, 3 << 29);
        assert_eq!((tier.watermark_high_permille, tier.watermark_low_permille), (800, 500));
        let memory: DeviceSpec = "name=ram,kind=memory,size=1M".parse().unwrap();
        assert_eq!((memory.watermark_high_permille, memory.watermark_low_permille), (900, 700));
        for (bad, cause) in [
            ("", "KEY=VALUE"),
            ("name=x", "kind"),
            ("kind=memory,size=1", "needs a name"),
            ("name=,kind=memory,size=1", "needs a name"),
            ("name=x,kind=tape,size=1", "`tape`"),
            ("name=x,kind=file,size=1M", "path"),
            ("name=x,kind=memory,path=/p,size=1M", "no path"),
            ("name=x,kind=memory", "size"),
            ("name=x,name=y,kind=memory,size=1", "twice"),
            ("name=x,kind=memory,size=1,colour=red", "`colour` is not one of name, kind"),
            ("name=x,kind=memory,size=1,endpoint=http://e", "a memory tier takes no `endpoint`"),
            ("name=x,kind=file,path=/p,size=1,compress=rar", "lz4, zstd"),
            ("name=x,kind=memory,size=1,compress=lz4", "a memory tier takes no `compress`"),
            ("name=x,kind=s3,path=b,size=1,budget=fast", "budget"),
            ("name=x,kind=s3,path=b,size=1,region=", "`region` is empty"),
            ("name=x,kind=rados,path=b,size=1,region=r", "a rados tier takes no `region`"),
            ("name=x,kind=s3,path=b,size=1,keyring=/k", "a s3 tier takes no `keyring`"),
            ("name=x,kind=file,path=/p,size=1,use=seldom", "tier, cache"),
            ("name=x,kind=memory,size=1,use=tier,use=cache", "twice"),
            ("name=x,kind=memory,size=1,high=20%,low=30%", "above"),
            ("name=x,kind=memory,size=1,high=120%", "120%"),
            ("name=x,kind=memory,size=1,high=NaN", "NaN"),
            ("name=x,kind=memory,size=1,low=-1%", "-1%"),
            ("name=x,kind=memory,size=1,low=half", "half"),
        ] {
            let error = bad.parse::<DeviceSpec>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.cause().contains(cause), "{bad}: {error}");
        }
    }

    #[test]
    fn a_high_watermark_below_the_preset_low_one_takes_that_along() {
        let tier: DeviceSpec = "name=ram, kind=memory, size=1M, high=50%".parse().unwrap();
        assert_eq!((tier.watermark_high_permille, tier.watermark_low_permille), (500, 500));
        let tier: DeviceSpec =
            "name=b,kind=swift,path=b,size=1G,region=r,pack=1MiB,compress=zstd,use=cache".parse().unwrap();
        let options: Vec<_> = tier.options.iter().collect();
        assert_eq!(options, [("compress", "zstd"), ("pack", "1MiB"), ("region", "r"), ("use", "cache")]);
    }
}
