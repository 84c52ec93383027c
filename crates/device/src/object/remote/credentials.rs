//! Where the secrets are, and what they are now. Never kept by the store: only where they are is.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use cenote_model::DeviceKind;

/// Where to look.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    source: Source,
    /// What names of variables and entries may begin with, `_` excluded.
    vendors: &'static [&'static str],
}

#[derive(Clone, Debug)]
enum Source {
    /// A file like `~/.aws/credentials`, and the part of it.
    File(PathBuf, String),
    /// Variables that begin with this and `_`.
    Variables(String),
    /// The usual variables, then the usual file.
    Usual,
}

/// Secrets by name. Has no `Debug`, so that none is written anywhere.
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
    /// From the option `credentials` of a tier. Never repeats it in an error: it may be the secret itself.
    pub fn of(kind: DeviceKind, option: Option<&str>) -> Result<Self, &'static str> {
        let vendors: &[&str] = if kind == DeviceKind::Swift { &["OS", "ST"] } else { &["AWS"] };
        let Some(option) = option else { return Ok(Self { source: Source::Usual, vendors }) };
        if let Some(prefix) = option.strip_prefix("env:") {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if prefix.is_empty() || !prefix.chars().all(is_name) {
                return Err("env: must be followed by what the names of the variables begin with");
            }
            return Ok(Self { source: Source::Variables(prefix.to_owned()), vendors });
        }
        let (path, profile) = option.rsplit_once('#').unwrap_or((option, "default"));
        let path = match (path.strip_prefix("~/"), std::env::home_dir()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(path),
        };
        if !path.is_absolute() {
            return Err("it is neither env:PREFIX nor the absolute path of a file");
        }
        Ok(Self { source: Source::File(path, profile.to_owned()), vendors })
    }

    /// What they are now, or why they cannot be read.
    pub fn read(&self) -> Result<Secrets, String> {
        let mut secrets = Secrets { of_file: BTreeMap::new(), prefixes: Vec::new(), vendors: self.vendors };
        match &self.source {
            Source::File(path, profile) => {
                let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
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

/// The part of the file that the tools of AWS would take.
fn usual_file() -> Option<BTreeMap<String, String>> {
    let path = std::env::var_os("AWS_SHARED_CREDENTIALS_FILE")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".aws/credentials")))?;
    let profile = std::env::var("AWS_PROFILE").unwrap_or_else(|_| "default".to_owned());
    section(&std::fs::read_to_string(path).ok()?, &profile)
}

/// The entries of one part of a file: `[name]`, then `key = value` lines; `#` and `;` begin comments.
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
    /// The one of that name: `aws_NAME`, `os_NAME` or just `NAME` in a file, `PREFIX_NAME` in the environment.
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
            Credentials::of(DeviceKind::S3, Some(&option)).unwrap().read()
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
            let why = Credentials::of(DeviceKind::Swift, Some(bad)).unwrap_err();
            assert!(!why.contains("AKIA"), "{why}");
        }
        assert!(Credentials::of(DeviceKind::Swift, Some("env:COLD")).is_ok());
    }
}
