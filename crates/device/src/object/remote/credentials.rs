//! The source of the secrets, and their current values. A store keeps only the source.
//!
//! A store names both its service and the place of the secrets for it, so the author of a store could have another
//! user's secrets sent to a service of their own. Therefore a store of another user gets secrets only from a file of
//! that user, unless whoever opens the store names the secrets.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use cenote_model::DeviceKind;
use rustix::fs::{FileType, Mode, OFlags};

/// Where to look for secrets.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    source: Source,
    /// Permitted prefixes of variables and entries, without `_`.
    vendors: &'static [&'static str],
    trust: Trust,
}

/// Whose files may hold secrets for a store.
#[derive(Clone, Debug)]
pub(in crate::object) struct Trust {
    /// Whoever opens the store named the source, not the store.
    pub is_chosen: bool,
    /// Owner of the store, if known.
    pub owner: Option<u32>,
}

impl Trust {
    /// Another user who controls what the store says.
    pub fn stranger(&self) -> Option<u32> {
        let me = rustix::process::geteuid().as_raw();
        self.owner.filter(|owner| !self.is_chosen && ![0, me].contains(owner))
    }
    /// Opens a trustworthy file; the error ends in `advice` if the file belongs to the wrong user.
    pub fn open(&self, path: &Path, advice: &str) -> Result<File, String> {
        let failed = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
        let links = if self.stranger().is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | links;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match self.stranger() {
            Some(_) => failed(&format!("{errno}: {advice}")),
            None => failed(&errno),
        })?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| failed(&errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(failed(&"it is no plain file"));
        }
        let me = rustix::process::geteuid().as_raw();
        let is_fine = match self.stranger() {
            Some(owner) => stat.st_uid == owner,
            None => [0, me].contains(&stat.st_uid) || !self.is_chosen && self.owner == Some(stat.st_uid),
        };
        if !is_fine {
            let of = self.owner.map_or_else(String::new, |owner| format!(", the store to user {owner}"));
            return Err(failed(&format!("it belongs to user {}{of}: {advice}", stat.st_uid)));
        }
        Ok(file.into())
    }
}

/// Variable by which the user who opens a store names the secrets for its tiers, whatever the store says; same form
/// as the option `credentials`.
pub(super) const VARIABLE: &str = "CENOTE_CREDENTIALS";

#[derive(Clone, Debug)]
enum Source {
    /// A file like `~/.aws/credentials`, and a section of it.
    File(PathBuf, String),
    /// Variables with this prefix and `_`.
    Variables(String),
    /// The usual variables, then the usual file.
    Usual,
}

/// Secrets by name. Without `Debug`, so that no log contains them.
pub(super) struct Secrets {
    of_file: BTreeMap<String, String>,
    prefixes: Vec<String>,
    vendors: &'static [&'static str],
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::File(path, profile) => write!(f, "[{profile}] of {}", path.display()),
            Source::Variables(prefix) => write!(f, "the variables {prefix}_…"),
            Source::Usual => write!(f, "the variables {}_…", self.vendors.join("_… or ")),
        }
    }
}

impl Credentials {
    /// Parses the option `credentials` of a tier. Errors never repeat it: it may be the secret itself.
    pub fn of(kind: DeviceKind, option: Option<&str>, owner: Option<u32>) -> Result<Self, &'static str> {
        let chosen = std::env::var(VARIABLE).ok().filter(|chosen| !chosen.is_empty());
        let source = Self::source(chosen.as_deref().or(option))?;
        let vendors: &[&str] = if kind == DeviceKind::Swift { &["OS", "ST"] } else { &["AWS"] };
        Ok(Self { source, vendors, trust: Trust { is_chosen: chosen.is_some(), owner } })
    }
    fn source(option: Option<&str>) -> Result<Source, &'static str> {
        let Some(option) = option else { return Ok(Source::Usual) };
        if let Some(prefix) = option.strip_prefix("env:") {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if prefix.is_empty() || !prefix.chars().all(is_name) {
                return Err("env: must be followed by what the names of the variables begin with");
            }
            return Ok(Source::Variables(prefix.to_owned()));
        }
        let (path, profile) = option.rsplit_once('#').unwrap_or((option, "default"));
        let path = match (path.strip_prefix("~/"), std::env::home_dir()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(path),
        };
        if !path.is_absolute() {
            return Err("it is neither env:PREFIX nor the absolute path of a file");
        }
        Ok(Source::File(path, profile.to_owned()))
    }
    /// The text of a trustworthy file.
    fn text_of(&self, path: &Path) -> Result<String, String> {
        let mut text = String::new();
        let mut file = self.trust.open(path, &choose())?;
        file.read_to_string(&mut text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(text)
    }

    /// The current secrets, or why they cannot be read.
    pub fn read(&self) -> Result<Secrets, String> {
        if let (Some(owner), Source::Variables(_) | Source::Usual) = (self.trust.stranger(), &self.source) {
            return Err(format!(
                "the store belongs to user {owner}, who is not to say where this user's secrets go: {}",
                choose()
            ));
        }
        let mut secrets = Secrets { of_file: BTreeMap::new(), prefixes: Vec::new(), vendors: self.vendors };
        match &self.source {
            Source::File(path, profile) => {
                let text = self.text_of(path)?;
                secrets.of_file =
                    section(&text, profile).ok_or_else(|| format!("{} has no part [{profile}]", path.display()))?;
            }
            Source::Variables(prefix) => secrets.prefixes.push(prefix.clone()),
            Source::Usual => {
                secrets.prefixes.extend(self.vendors.iter().map(|vendor| (*vendor).to_owned()));
                if self.vendors == ["AWS"] && secrets.get("access_key_id").is_none() {
                    secrets.of_file = usual_file().unwrap_or_default();
                }
            }
        }
        Ok(secrets)
    }
}

fn choose() -> String {
    format!("to use secrets of your own for it, set {VARIABLE} to FILE#PROFILE or env:PREFIX")
}

/// The section of the file that AWS tools would use.
fn usual_file() -> Option<BTreeMap<String, String>> {
    let path = std::env::var_os("AWS_SHARED_CREDENTIALS_FILE")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".aws/credentials")))?;
    let profile = std::env::var("AWS_PROFILE").unwrap_or_else(|_| "default".to_owned());
    section(&std::fs::read_to_string(path).ok()?, &profile)
}

/// The entries of one section of a file: `[name]`, then `key = value` lines; `#` and `;` begin comments.
fn section(text: &str, wanted: &str) -> Option<BTreeMap<String, String>> {
    let mut found = None;
    let mut inside = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = name.trim() == wanted;
            if inside {
                found.get_or_insert_with(BTreeMap::new);
            }
        } else if let (true, Some((key, value)), Some(entries)) = (inside, line.split_once('='), &mut found) {
            entries.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}

impl Secrets {
    /// The secret of that name: `aws_NAME`, `os_NAME` or just `NAME` in a file, `PREFIX_NAME` in the environment.
    pub fn get(&self, name: &str) -> Option<String> {
        let of_vendor = self.vendors.iter().map(|vendor| format!("{}_{name}", vendor.to_ascii_lowercase()));
        let mut in_file = of_vendor.chain([name.to_owned()]).filter_map(|name| self.of_file.get(&name).cloned());
        let variable = |prefix: &String| std::env::var(format!("{prefix}_{}", name.to_ascii_uppercase())).ok();
        in_file.next().or_else(|| self.prefixes.iter().find_map(variable)).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_part_of_a_file() {
        let text = "# mine\n[default]\naws_access_key_id = A\n\n[cold]\n; here\nAWS_ACCESS_KEY_ID=B=C\nsecret_access_key= s \n[x]\n";
        let path = std::env::temp_dir().join(format!("cenote-credentials-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let read = |profile: &str| {
            let option = format!("{}#{profile}", path.display());
            Credentials::of(DeviceKind::S3, Some(&option), None).unwrap().read()
        };
        let cold = read("cold").ok().unwrap();
        assert_eq!(cold.get("access_key_id").as_deref(), Some("B=C"));
        assert_eq!(cold.get("secret_access_key").as_deref(), Some("s"));
        assert_eq!(cold.get("session_token"), None);
        assert!(read("none").err().unwrap().contains("[none]"));
        std::fs::remove_file(&path).unwrap();
        assert!(read("cold").is_err());
    }

    #[test]
    fn a_secret_is_not_repeated() {
        for bad in ["AKIAEXAMPLE:wJalrXUtnFEMI/K7MDENG", "env:", "env:A B", "relative/file"] {
            let why = Credentials::of(DeviceKind::Swift, Some(bad), None).unwrap_err();
            assert!(!why.contains("AKIA"), "{why}");
        }
        assert!(Credentials::of(DeviceKind::Swift, Some("env:COLD"), None).is_ok());
    }

    #[test]
    fn a_store_of_another_user_gets_no_secrets_of_this_one() {
        let me = rustix::process::geteuid().as_raw();
        let stranger = if me == 65_534 { 65_533 } else { 65_534 };
        let path = std::env::temp_dir().join(format!("cenote-credentials-of-{}", std::process::id()));
        std::fs::write(&path, "[default]\naws_access_key_id = A\n").unwrap();
        let file = path.display().to_string();
        let link = path.with_extension("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let link = link.display().to_string();
        let read =
            |option: Option<&str>, owner| Credentials::of(DeviceKind::S3, option, owner).unwrap().read().map(drop);
        for (option, owner, is_given) in [
            (Some(file.as_str()), Some(me), true),
            (Some(link.as_str()), Some(me), true),
            (Some("env:COLD"), Some(me), true),
            (None, Some(me), true),
            (Some(file.as_str()), None, true),
            (Some(file.as_str()), Some(stranger), false),
            (Some(link.as_str()), Some(stranger), false),
            (Some("env:COLD"), Some(stranger), false),
            (None, Some(stranger), false),
            (Some("/dev/zero"), Some(me), false),
        ] {
            let given = read(option, owner);
            assert_eq!(given.is_ok(), is_given, "{option:?} for {owner:?}: {given:?}");
            assert!(is_given || option == Some("/dev/zero") || given.unwrap_err().contains("CENOTE_CREDENTIALS"));
        }
        if me == 0 {
            // A file of the store's owner serves that owner's stores, and not others who open the store.
            std::os::unix::fs::chown(&path, Some(stranger), None).unwrap();
            assert!(read(Some(&file), Some(stranger)).is_ok());
            assert!(read(Some(&link), Some(stranger)).is_err(), "through a link");
            assert!(read(Some(&file), Some(me)).is_err());
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&link).unwrap();
    }
}
