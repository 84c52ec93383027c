//! `-o`: options in the form of `mount` and `/etc/fstab`.

use cenote::{Error, ErrorKind, Result};
use clap::ValueEnum;

use super::{ConsistencyArg, MountArgs};

/// Options of all file systems in `/etc/fstab`, and options that hold in any case.
const MEANINGLESS: &[&str] = &[
    "rw",
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "async",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "relatime",
    "atime",
    "diratime",
    "nodiratime",
];

impl MountArgs {
    /// Adds the options of `-o` to these arguments. `ErrorKind::InvalidInput` for unknown ones.
    pub fn with_options(mut self) -> Result<Self> {
        for list in std::mem::take(&mut self.options) {
            for option in list.split(',').filter(|option| !option.is_empty()) {
                self.apply(option)?;
            }
        }
        Ok(self)
    }
    fn apply(&mut self, option: &str) -> Result<()> {
        let refused = || {
            Error::new(ErrorKind::InvalidInput, format!("mount option `{option}`"))
                .because("this option is unknown")
                .try_next("`cenote mount --help` lists the options")
        };
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("allow_other", None) => self.allow_other = true,
            ("write_back", None) => self.write_back = true,
            ("passthrough", None) => self.passthrough = true,
            ("noatime", None) => self.no_access_times = true,
            ("noexec", None) => self.no_exec = true,
            ("container", Some(label)) => self.container = Some(label.to_owned()),
            ("consistency", Some(text)) => {
                self.consistency = ConsistencyArg::from_str(text, false).map_err(|_| refused())?;
            }
            ("remember_ms", Some(text)) => self.remember_ms = text.parse().map_err(|_| refused())?,
            ("threads", Some(text)) => {
                let threads = text.parse().ok().filter(|threads| (1..=64).contains(threads));
                self.threads = Some(threads.ok_or_else(refused)?);
            }
            (name, None) if MEANINGLESS.contains(&name) => {}
            (name, _) if name.starts_with("x-") || name == "comment" => {}
            _ => return Err(refused()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        mount: MountArgs,
    }

    fn with(options: &str) -> Result<MountArgs> {
        Line::parse_from(["mount", "/store", "/mnt", "-o", options]).mount.with_options()
    }

    #[test]
    fn options_are_those_of_the_command_line() {
        let args =
            with("rw,nofail,x-systemd.automount,ro,allow_other,remember_ms=5,consistency=commit,noatime").unwrap();
        assert!(args.read_only && args.allow_other && !args.write_back && args.no_access_times && !args.no_exec);
        assert_eq!((args.remember_ms, args.consistency), (5, ConsistencyArg::Commit));
        assert_eq!(with("container=runs,threads=3").unwrap().threads, Some(3));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for option in ["sync", "ro=1", "remember_ms=x", "consistency=loose", "threads=0", "container"] {
            assert_eq!(with(option).unwrap_err().kind(), ErrorKind::InvalidInput, "{option}");
        }
    }
}
