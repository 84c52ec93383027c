//! Settings written by people: tiers on the command line, the TOML file of `init`, and which store is meant.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cenote::{DeviceKind, DeviceSpec, Error, ErrorKind, StoreConfig};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use crate::size;

const HIGH_DEFAULT_PERMILLE: u16 = 900;
const LOW_DEFAULT_PERMILLE: u16 = 700;

/// The store that is meant, and what says so.
pub fn store_dir(given: Option<&Path>) -> cenote::Result<(PathBuf, &'static str)> {
    let non_empty = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(dir) = given {
        let from_env = non_empty("CENOTE_STORE").as_deref() == Some(dir.as_os_str());
        return Ok((dir.to_owned(), if from_env { "CENOTE_STORE" } else { "command line" }));
    }
    if let Some(data) = non_empty("XDG_DATA_HOME") {
        return Ok((Path::new(&data).join("cenote/default"), "XDG_DATA_HOME"));
    }
    let home = non_empty("HOME").ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, "directory of the store")
            .because("neither --store, CENOTE_STORE, XDG_DATA_HOME nor HOME is set")
            .try_next("name the directory with --store DIR")
    })?;
    Ok((Path::new(&home).join(".local/share/cenote/default"), "default"))
}

/// A tier as written on the command line: `name=ram,kind=memory,size=2GiB,high=90%,low=70%`.
pub fn parse_tier(text: &str) -> Result<DeviceSpec, String> {
    let mut tier = TierToml::default();
    for part in text.split(',') {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not KEY=VALUE"))?;
        let value = value.trim();
        let taken = match key.trim() {
            "name" => tier.name.replace(value.to_owned()).is_some(),
            "kind" => tier.kind.replace(kind(value)?).is_some(),
            "path" => tier.path.replace(PathBuf::from(value)).is_some(),
            "size" => tier.size.replace(Bytes(size::parse(value)?)).is_some(),
            "high" => tier.high.replace(Permille(permille(value)?)).is_some(),
            "low" => tier.low.replace(Permille(permille(value)?)).is_some(),
            other => return Err(format!("`{other}` is not one of name, kind, path, size, high, low")),
        };
        if taken {
            return Err(format!("`{}` is given twice", key.trim()));
        }
    }
    tier.into_spec()
}

/// log2 of a block size.
pub fn parse_block_size(text: &str) -> Result<u8, String> {
    let bytes = size::parse(text)?;
    let shift = bytes.checked_ilog2().unwrap_or_default() as u8;
    let (least, most) = (cenote::model::BLOCK_SHIFT_MIN, cenote::model::BLOCK_SHIFT_MAX);
    if !bytes.is_power_of_two() || shift < least || shift > most {
        return Err(format!("block size {text} is not a power of two from {} to {} bytes", 1 << least, 1_u64 << most));
    }
    Ok(shift)
}

fn kind(word: &str) -> Result<DeviceKind, String> {
    [DeviceKind::SharedMemory, DeviceKind::File, DeviceKind::Directory]
        .into_iter()
        .find(|kind| kind.word() == word)
        .ok_or_else(|| format!("kind `{word}` is not one of memory, file, directory"))
}

/// Thousandths, from `90%` or `0.9`.
fn permille(text: &str) -> Result<u16, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1000.0), |percent| (percent, 10.0));
    let value = number.trim().parse::<f64>().ok().map(|value| (value * scale).round());
    match value {
        Some(value) if (0.0..=1000.0).contains(&value) => Ok(value as u16),
        _ => Err(format!("watermark `{text}` is not a share such as 90% or 0.9")),
    }
}

/// The TOML file of `init`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileToml {
    #[serde(default)]
    tier: Vec<toml::Spanned<TierToml>>,
    #[serde(default)]
    writers: Vec<u32>,
    #[serde(default)]
    readers: Vec<u32>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(deny_unknown_fields)]
struct TierToml {
    name: Option<String>,
    #[serde(default, deserialize_with = "kind_of")]
    kind: Option<DeviceKind>,
    path: Option<PathBuf>,
    size: Option<Bytes>,
    high: Option<Permille>,
    low: Option<Permille>,
}

#[derive(Clone, Copy)]
struct Bytes(u64);
#[derive(Clone, Copy)]
struct Permille(u16);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Whole(u64),
    Real(f64),
    Text(String),
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match NumberOrText::deserialize(from)? {
            NumberOrText::Whole(bytes) => Ok(Self(bytes)),
            NumberOrText::Real(_) => {
                Err(D::Error::custom("a size is a whole number of bytes or a text such as \"2GiB\""))
            }
            NumberOrText::Text(text) => size::parse(&text).map(Self).map_err(D::Error::custom),
        }
    }
}

impl<'de> Deserialize<'de> for Permille {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = match NumberOrText::deserialize(from)? {
            NumberOrText::Whole(whole) => whole.to_string(),
            NumberOrText::Real(real) => real.to_string(),
            NumberOrText::Text(text) => text,
        };
        permille(&text).map(Self).map_err(D::Error::custom)
    }
}

fn kind_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<DeviceKind>, D::Error> {
    kind(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

impl TierToml {
    fn into_spec(self) -> Result<DeviceSpec, String> {
        let name = self.name.filter(|name| !name.is_empty()).ok_or("a tier needs a name, as in name=ram")?;
        let kind = self.kind.ok_or_else(|| format!("tier `{name}` needs a kind: memory, file or directory"))?;
        let Some(Bytes(capacity_bytes)) = self.size else {
            return Err(format!("tier `{name}` needs a size, as in size=2GiB"));
        };
        let path = self.path.unwrap_or_default();
        match (kind, path.as_os_str().is_empty()) {
            (DeviceKind::SharedMemory, false) => {
                return Err(format!("tier `{name}`: memory takes no path; the store chooses its own name in /dev/shm"));
            }
            (DeviceKind::File | DeviceKind::Directory, true) => return Err(format!("tier `{name}` needs a path")),
            _ => {}
        }
        let high = self.high.map_or(HIGH_DEFAULT_PERMILLE, |mark| mark.0);
        let low = self.low.map_or_else(|| LOW_DEFAULT_PERMILLE.min(high), |mark| mark.0);
        if low > high {
            return Err(format!("tier `{name}`: the low watermark is above the high one"));
        }
        Ok(DeviceSpec { name, kind, path, capacity_bytes, watermark_high_permille: high, watermark_low_permille: low })
    }
}

/// Reads the TOML file of `init`. An error names the file and the line.
pub fn read(file: &Path) -> cenote::Result<StoreConfig> {
    let subject = |line: Option<usize>| match line {
        Some(line) => format!("{}:{line}", file.display()),
        None => file.display().to_string(),
    };
    let text = std::fs::read_to_string(file).map_err(|error| Error::io(subject(None), &error))?;
    parse(&text, file.parent()).map_err(|(line, cause)| {
        Error::new(ErrorKind::InvalidInput, subject(line))
            .because(cause)
            .try_next("`cenote init --help` shows a complete file")
    })
}

/// The number of the line that holds byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Paths in the file are meant from where the file is.
fn parse(text: &str, base: Option<&Path>) -> Result<StoreConfig, (Option<usize>, String)> {
    let file: FileToml = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        (line, error.message().to_owned())
    })?;
    let mut config = StoreConfig { writers: file.writers, readers: file.readers, ..StoreConfig::default() };
    for tier in file.tier {
        let line = Some(line_of(text, tier.span().start));
        let mut spec = tier.into_inner().into_spec().map_err(|cause| (line, cause))?;
        if let (Some(base), false) = (base, spec.path.as_os_str() == OsStr::new("")) {
            spec.path = base.join(&spec.path);
        }
        if config.devices.iter().any(|other| other.name == spec.name) {
            return Err((line, format!("there are two tiers named `{}`", spec.name)));
        }
        config.devices.push(spec);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_on_the_command_line() {
        let tier = parse_tier("name=disk,kind=file,path=/data/d,size=1.5GiB,high=80%,low=0.5").unwrap();
        assert_eq!(tier.kind, DeviceKind::File);
        assert_eq!(tier.capacity_bytes, 3 << 29);
        assert_eq!((tier.watermark_high_permille, tier.watermark_low_permille), (800, 500));
        let memory = parse_tier("name=ram,kind=memory,size=1M").unwrap();
        assert_eq!((memory.watermark_high_permille, memory.watermark_low_permille), (900, 700));
        for (bad, cause) in [
            ("", "KEY=VALUE"),
            ("name=x", "kind"),
            ("name=x,kind=tape,size=1", "`tape`"),
            ("name=x,kind=file,size=1M", "path"),
            ("name=x,kind=memory,path=/p,size=1M", "no path"),
            ("name=x,kind=memory", "size"),
            ("name=x,name=y,kind=memory,size=1", "twice"),
            ("name=x,kind=memory,size=1,colour=red", "colour"),
            ("name=x,kind=memory,size=1,high=20%,low=30%", "above"),
            ("name=x,kind=memory,size=1,high=120%", "120%"),
            ("name=x,kind=memory,size=1,high=NaN", "NaN"),
        ] {
            let error = parse_tier(bad).unwrap_err();
            assert!(error.contains(cause), "{bad}: {error}");
        }
    }

    #[test]
    fn the_file_says_the_same_and_errors_have_lines() {
        let good = "writers = [7]\n[[tier]]\nname = \"a\"\nkind = \"memory\"\nsize = \"1MiB\"\nhigh = 0.8\n\
                    [[tier]]\nname = \"b\"\nkind = \"directory\"\npath = \"sub\"\nsize = 4096\n";
        let config = parse(good, Some(Path::new("/base"))).unwrap();
        assert_eq!(config.writers, [7]);
        assert_eq!(config.devices[0].watermark_high_permille, 800);
        assert_eq!(config.devices[1].path, Path::new("/base/sub"));
        for (bad, line, cause) in [
            ("[[tier]]\nname = \"a\"\nkind = \"tape\"\n", 3, "tape"),
            ("[[tier]]\nname = \"a\"\nkind = \"memory\"\nsize = \"12 apples\"\n", 4, "apples"),
            ("\n\ncolour = 1\n", 3, "colour"),
            ("[[tier]]\nname = \"a\"\n", 1, "kind"),
            ("x = [\n", 1, ""),
        ] {
            let (found, error) = parse(bad, None).unwrap_err();
            assert!(error.contains(cause), "{bad}: {error}");
            if !cause.is_empty() {
                assert_eq!(found, Some(line), "{bad}: {error}");
            }
        }
    }

    #[test]
    fn block_sizes_are_powers_of_two() {
        assert_eq!(parse_block_size("64"), Ok(6));
        assert_eq!(parse_block_size("16MiB"), Ok(24));
        for bad in ["0", "63", "32", "32MiB", "4095", "4k5"] {
            assert!(parse_block_size(bad).is_err(), "{bad}");
        }
    }
}
