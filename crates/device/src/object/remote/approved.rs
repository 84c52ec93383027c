//! Endpoints that may receive this user's secrets. A store names both its service and the place of the secrets for it,
//! and a store directory unpacked under this user's name may be somebody else's work. So the store's word is not
//! enough. One of these must hold: the user has created a tier with that endpoint and those secrets before (noted
//! among the user's own settings); the secrets themselves name the endpoint; or whoever opens the store names the
//! secrets (`CENOTE_CREDENTIALS`).
//!
//! For a pool of Ceph the cluster's configuration is the endpoint, and a key goes nowhere, but authenticates its user:
//! the same rules, without the second one, and with `CENOTE_CEPH_CONF`.

use std::path::PathBuf;

use cenote_host::home::settings_dir;
use cenote_model::{DeviceKind, DeviceSpec, Error, ErrorKind, Result};
use rustix::fs::Mode;

use super::credentials::{Credentials, VARIABLE};
use crate::object::rados;
use crate::store_dir::{StoreDir, make_private_dir};

/// Name of the file in the user's settings: a line for each pair of endpoint and option `credentials`.
const FILE: &str = "secrets-go-to";
/// Upper bound of the file's bytes; the oldest lines are dropped.
const BYTES_MAX: usize = 32 << 10;

/// The approved pairs, in the directory of a user's settings.
struct Approved(PathBuf);

impl Approved {
    fn lines(&self) -> Result<String> {
        match StoreDir::open(&self.0) {
            Ok(dir) => Ok(dir.read_text(FILE)?.unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }
    fn has(&self, line: &str) -> Result<bool> {
        Ok(self.lines()?.lines().any(|known| known == line))
    }
    fn note(&self, line: &str) -> Result<()> {
        let known = self.lines()?;
        if known.lines().any(|known| known == line) {
            return Ok(());
        }
        make_private_dir(&self.0, Mode::RWXU).map_err(|error| Error::io(self.0.display().to_string(), &error))?;
        let mut text = format!("{known}{line}\n");
        while text.len() > BYTES_MAX {
            let Some(end) = text.find('\n') else { break };
            text.drain(..=end);
        }
        StoreDir::open(&self.0)?.write_text(FILE, &text, Mode::RUSR | Mode::WUSR)
    }
}

/// Endpoint and secrets of a tier in one line; `None` if the store does not choose the endpoint, or if the endpoint
/// belongs to the vendor of the secrets.
fn line_of(spec: &DeviceSpec) -> Option<String> {
    let is_line = |text: &str| !text.chars().any(char::is_control);
    if spec.kind == DeviceKind::Rados {
        let line = |conf| format!("ceph:{conf} {}", rados::access::key_words(spec));
        return spec.options.get("conf").map(line).filter(|line| is_line(line));
    }
    let endpoint = spec.options.get("endpoint")?.trim_end_matches('/');
    let host = endpoint
        .strip_prefix("https://")
        .filter(|rest| !rest.contains(['@', '?', '#', '\\']))
        .map(|rest| rest.split(['/', ':']).next().unwrap_or_default());
    let is_vendor = spec.kind == DeviceKind::S3 && host.is_some_and(|host| host.ends_with(".amazonaws.com"));
    let secrets = spec.options.get("credentials").unwrap_or("the usual ones");
    (!is_vendor).then(|| format!("{endpoint} {secrets}")).filter(|line| is_line(line))
}

/// The variable by which whoever opens a store names what the store may not.
fn variable(kind: DeviceKind) -> &'static str {
    if kind == DeviceKind::Rados { rados::access::CONF_VARIABLE } else { VARIABLE }
}

/// Returns true if other rules decide: whoever opens the store names the secrets, or the store belongs to another
/// user.
fn is_judged_elsewhere(kind: DeviceKind, owner: Option<u32>) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let is_chosen = std::env::var(variable(kind)).is_ok_and(|chosen| !chosen.is_empty());
    is_chosen || owner.is_none_or(|owner| owner != me)
}

/// Approves a tier that this user creates: from now on its secrets may go to its endpoint.
pub(crate) fn approve(spec: &DeviceSpec, owner: Option<u32>) {
    let Some(line) = line_of(spec).filter(|_| !is_judged_elsewhere(spec.kind, owner)) else { return };
    let noted = settings_dir().and_then(|dir| Approved(dir).note(&line));
    if let Err(error) = noted {
        let variable = variable(spec.kind);
        tracing::warn!(%error, tier = %spec.name, "its secrets have to be named by {variable} when the store is opened again");
    }
}

/// Fails unless this user's secrets may go to the tier's endpoint.
pub(crate) fn check(spec: &DeviceSpec, owner: Option<u32>) -> Result<()> {
    let Some(line) = line_of(spec).filter(|_| !is_judged_elsewhere(spec.kind, owner)) else { return Ok(()) };
    let known = settings_dir().and_then(|dir| Approved(dir).has(&line));
    let is_rados = spec.kind == DeviceKind::Rados;
    if known.as_ref().is_ok_and(|known| *known) || !is_rados && is_named_by_secrets(spec, owner) {
        return Ok(());
    }
    let (endpoint, secrets) = line.split_once(' ').unwrap_or((&line, ""));
    let more = known.err().map_or_else(String::new, |error| format!(" ({error})"));
    let denied = Error::new(ErrorKind::PermissionDenied, format!("tier `{}`", spec.name));
    if is_rados {
        return Err(denied
            .because(format!(
                "the store says that a key of this user, {secrets}, is used with {endpoint}, and this user has not said so{more}"
            ))
            .try_next(format!(
                "if that is right, set {} to the cluster's configuration file",
                rados::access::CONF_VARIABLE
            )));
    }
    Err(denied
        .because(format!(
            "the store says that secrets of this user ({secrets}) go to {endpoint}, and this user has not said so{more}"
        ))
        .try_next(format!(
            "if that is right, set {VARIABLE} to FILE#PROFILE or env:PREFIX, or write `endpoint_url = {endpoint}` beside the secrets"
        )))
}

/// Returns true if the file with the secrets names this endpoint.
fn is_named_by_secrets(spec: &DeviceSpec, owner: Option<u32>) -> bool {
    let endpoint = spec.options.get("endpoint").map(|url| url.trim_end_matches('/'));
    let Ok(credentials) = Credentials::of(spec.kind, spec.options.get("credentials"), owner) else { return false };
    let Ok(secrets) = credentials.read() else { return false };
    let names = ["endpoint_url", "auth_url", "auth"];
    names.iter().filter_map(|name| secrets.get(name)).any(|url| Some(url.trim_end_matches('/')) == endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(kind: DeviceKind, words: &[(&str, &str)]) -> DeviceSpec {
        let mut options = cenote_model::TierOptions::default();
        for (name, value) in words {
            options.set(name, value);
        }
        DeviceSpec {
            name: "cold".into(),
            kind,
            path: "bucket/p".into(),
            capacity_bytes: 1 << 30,
            watermark_high_permille: 900,
            watermark_low_permille: 800,
            options,
        }
    }

    #[test]
    fn what_was_approved_is_known_again_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("cenote-approved-{}", std::process::id()));
        let approved = Approved(dir.join("cenote"));
        let line = |endpoint: &str, secrets: &str| {
            line_of(&tier(DeviceKind::S3, &[("endpoint", endpoint), ("credentials", secrets)])).unwrap()
        };
        let good = line("http://host:9000/", "/etc/secrets#cold");
        assert!(!approved.has(&good).unwrap(), "there is not even a directory");
        approved.note(&good).unwrap();
        approved.note(&good).unwrap();
        assert_eq!(approved.lines().unwrap().lines().count(), 1);
        for (endpoint, secrets, known) in [
            ("http://host:9000", "/etc/secrets#cold", true),
            ("http://host:9001", "/etc/secrets#cold", false),
            ("http://host", "/etc/secrets#cold", false),
            ("http://host:9000", "/etc/secrets#other", false),
            ("http://host:9000", "env:AWS", false),
        ] {
            assert_eq!(approved.has(&line(endpoint, secrets)).unwrap(), known, "{endpoint} {secrets}");
        }
        for at in 0..2000 {
            approved.note(&line(&format!("http://host-{at}"), "env:MANY")).unwrap();
        }
        assert!(approved.lines().unwrap().len() <= BYTES_MAX);
        assert!(approved.has(&line("http://host-1999", "env:MANY")).unwrap());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn secrets_go_to_nobody_whom_the_store_alone_names() {
        let me = rustix::process::geteuid().as_raw();
        let file = std::env::temp_dir().join(format!("cenote-approved-secrets-{}", std::process::id()));
        let mine = "[default]\naws_access_key_id = A\n[cold]\nendpoint_url = http://198.51.100.7:9000\n";
        std::fs::write(&file, mine).unwrap();
        let at = file.display().to_string();
        let cold = format!("{at}#cold");
        let check = |kind, endpoint: &str, secrets: &str| {
            check(&tier(kind, &[("endpoint", endpoint), ("credentials", secrets)]), Some(me))
        };
        let error = check(DeviceKind::S3, "http://198.51.100.7:9000", &at).unwrap_err();
        assert!(error.to_string().contains("this user has not said so"), "{error}");
        assert!(error.next_step().contains(VARIABLE));
        check(DeviceKind::S3, "http://198.51.100.7:9000/", &cold).unwrap();
        check(DeviceKind::S3, "http://198.51.100.7:9001", &cold).unwrap_err();
        check(DeviceKind::S3, "https://s3.eu-central-1.amazonaws.com", &at).unwrap();
        check(DeviceKind::S3, "http://s3.eu-central-1.amazonaws.com", &at).unwrap_err();
        check(DeviceKind::S3, "https://s3.amazonaws.com.example.org", &at).unwrap_err();
        check(DeviceKind::S3, "https://example.org/.amazonaws.com", &at).unwrap_err();
        check(DeviceKind::S3, "https://s3.amazonaws.com@example.org", &at).unwrap_err();
        check(DeviceKind::S3, "https://s3.amazonaws.com:x@example.org", &at).unwrap_err();
        check(DeviceKind::Swift, "https://x.amazonaws.com", &at).unwrap_err();
        std::fs::remove_file(&file).unwrap();
    }
}
