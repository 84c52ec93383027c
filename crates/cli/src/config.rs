//! Settings written by people: tiers on the command line, the TOML file of `init`, and the selection of the store.

use std::path::{Path, PathBuf};

use cenote::model::{TierText, parse_permille, size};
use cenote::{DeviceKind, DeviceSpec, Error, ErrorKind, StoreConfig};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// Returns the selected store, and what selected it.
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

/// Parses a tier on the command line: `name=ram,kind=memory,size=2GiB,high=90%,low=70%`.
pub fn parse_tier(text: &str) -> Result<DeviceSpec, String> {
    text.parse().map_err(|error: Error| error.cause().to_owned())
}

/// Parses a block size to its log2.
pub fn parse_block_size(text: &str) -> Result<u8, String> {
    let bytes = size::parse(text)?;
    let shift = bytes.checked_ilog2().unwrap_or_default() as u8;
    let (least, most) = (cenote::model::BLOCK_SHIFT_MIN, cenote::model::BLOCK_SHIFT_MAX);
    if !bytes.is_power_of_two() || shift < least || shift > most {
        return Err(format!("block size {text} is not a power of two from {} to {} bytes", 1 << least, 1_u64 << most));
    }
    Ok(shift)
}

/// Parses a measuring time within the store's limits.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is no number of seconds"))?;
    if (0.01..=10.0).contains(&seconds) { Ok(seconds) } else { Err("from 0.01 to 10 seconds".into()) }
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
    endpoint: Option<String>,
    region: Option<String>,
    credentials: Option<String>,
    conf: Option<String>,
    user: Option<String>,
    keyring: Option<String>,
    pack: Option<SizeText>,
    layout: Option<String>,
    unit: Option<SizeText>,
    compress: Option<String>,
    #[serde(rename = "use")]
    used_as: Option<String>,
    budget: Option<SizeText>,
}

/// A size as text, for options that are kept as text.
#[derive(Clone)]
struct SizeText(String);

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

impl<'de> Deserialize<'de> for SizeText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = match NumberOrText::deserialize(from)? {
            NumberOrText::Whole(bytes) => bytes.to_string(),
            NumberOrText::Real(real) => real.to_string(),
            NumberOrText::Text(text) => text,
        };
        size::parse(&text).map(|_| Self(text)).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Permille {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = match NumberOrText::deserialize(from)? {
            NumberOrText::Whole(whole) => whole.to_string(),
            NumberOrText::Real(real) => real.to_string(),
            NumberOrText::Text(text) => text,
        };
        parse_permille(&text).map(Self).map_err(D::Error::custom)
    }
}

fn kind_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<DeviceKind>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

impl TierToml {
    fn into_spec(self) -> Result<DeviceSpec, String> {
        let options = [
            ("endpoint", self.endpoint),
            ("region", self.region),
            ("credentials", self.credentials),
            ("conf", self.conf),
            ("user", self.user),
            ("keyring", self.keyring),
            ("pack", self.pack.map(|size| size.0)),
            ("layout", self.layout),
            ("unit", self.unit.map(|size| size.0)),
            ("compress", self.compress),
            ("use", self.used_as),
            ("budget", self.budget.map(|size| size.0)),
        ];
        TierText {
            name: self.name,
            kind: self.kind,
            path: self.path,
            size: self.size.map(|bytes| bytes.0),
            high: self.high.map(|mark| mark.0),
            low: self.low.map(|mark| mark.0),
            options: options.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
        }
        .into_spec()
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

/// Returns the number of the line that contains byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|(place, _)| *place < at).filter(|(_, c)| *c == '\n').count() + 1
}

/// Returns true if the option is the name of a file, relative to where it was written.
fn is_relative_file(credentials: &str) -> bool {
    !credentials.starts_with("env:") && !credentials.starts_with('~') && Path::new(credentials).is_relative()
}

/// Makes a tier's paths relative to `base`. The path of an object service is not a file's; those of its
/// credentials may be.
fn join_paths(spec: &mut DeviceSpec, base: &Path) {
    if spec.kind.is_remote() {
        for option in ["credentials", "conf", "keyring"] {
            if let Some(file) = spec.options.get(option).filter(|text| is_relative_file(text)) {
                let file = base.join(file).display().to_string();
                spec.options.set(option, &file);
            }
        }
    } else {
        spec.change_paths(|path| base.join(path));
    }
}

/// Makes the paths of a tier absolute: a daemon has another working directory.
pub fn make_absolute(spec: &mut DeviceSpec) -> cenote::Result<()> {
    let base = std::env::current_dir()
        .map_err(|error| Error::io(format!("path {} of tier `{}`", spec.path.display(), spec.name), &error))?;
    join_paths(spec, &base);
    spec.change_paths(|path| std::path::absolute(&path).unwrap_or(path)); // fails for an empty path alone
    Ok(())
}

/// Parses the file; its paths are relative to its directory.
fn parse(text: &str, base: Option<&Path>) -> Result<StoreConfig, (Option<usize>, String)> {
    let file: FileToml = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| line_of(text, span.start));
        (line, error.message().to_owned())
    })?;
    let mut config = StoreConfig { writers: file.writers, readers: file.readers, ..StoreConfig::default() };
    for tier in file.tier {
        let line = Some(line_of(text, tier.span().start));
        let mut spec = tier.into_inner().into_spec().map_err(|cause| (line, cause))?;
        if let Some(base) = base {
            join_paths(&mut spec, base);
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
    fn the_file_says_the_same_and_errors_have_lines() {
        let good = "writers = [7]\n[[tier]]\nname = \"a\"\nkind = \"memory\"\nsize = \"1MiB\"\nhigh = 0.8\n\
                    [[tier]]\nname = \"b\"\nkind = \"directory\"\npath = \"sub\"\nsize = 4096\n";
        let config = parse(good, Some(Path::new("/base"))).unwrap();
        assert_eq!(config.writers, [7]);
        assert_eq!(config.devices[0].watermark_high_permille, 800);
        assert_eq!(config.devices[1].path, Path::new("/base/sub"));
        let cold = "[[tier]]\nname = \"c\"\nkind = \"s3\"\npath = \"bucket/p\"\nsize = \"1GiB\"\nendpoint = \"http://h\"\n\
                    credentials = \"secrets#cold\"\npack = 1048576\nregion = \"r\"\ncompress = \"auto\"\nuse = \"cache\"\nbudget = \"9MiB\"\n";
        let tier = &parse(cold, Some(Path::new("/base"))).unwrap().devices[0];
        assert_eq!(tier.path, Path::new("bucket/p"), "a bucket, not a file");
        assert_eq!(tier.options.get("credentials"), Some("/base/secrets#cold"));
        assert_eq!((tier.options.get("pack"), tier.options.get("use")), (Some("1048576"), Some("cache")));
        assert_eq!(tier.options.len(), 7);
        let raid = "[[tier]]\nname = \"r\"\nkind = \"raid\"\npath = \"a:/b:c\"\nsize = \"1GiB\"\nlayout = \"2+1\"\nunit = \"256KiB\"\n";
        let tier = &parse(raid, Some(Path::new("/base"))).unwrap().devices[0];
        assert_eq!(tier.path, Path::new("/base/a:/b:/base/c"));
        assert_eq!((tier.options.get("layout"), tier.options.get("unit")), (Some("2+1"), Some("256KiB")));
        for (bad, line, cause) in [
            ("[[tier]]\nname = \"a\"\nkind = \"memory\"\nsize = 1\npack = \"1MiB\"\n", 1, "takes no `pack`"),
            ("[[tier]]\nname = \"a\"\nkind = \"s3\"\npack = \"fast\"\n", 4, "fast"),
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
