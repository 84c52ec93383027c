//! Writes a policy file atomically, and keeps the previous one.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use cenote::{Error, Result};

/// Returns the file with a store's policy `user`.
pub fn of_store(dir: &Path) -> PathBuf {
    dir.join("policy.toml")
}

fn with_ending(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Writes the file. The previous one becomes `FILE.old`.
pub fn write(file: &Path, text: &str) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::io(format!("policy file {}", file.display()), &error)
            .try_next("it must be possible to write to its directory; --policy FILE writes it elsewhere")
    };
    let (new, old) = (with_ending(file, ".new"), with_ending(file, ".old"));
    let written = (|| {
        let mut out = File::create(&new)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        if file.exists() {
            // A second hard link, so that a policy exists at every moment.
            match fs::remove_file(&old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::hard_link(file, &old).or_else(|_| fs::copy(file, &old).map(|_| ()))?;
        }
        fs::rename(&new, file)?;
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    })();
    written.map_err(|error| {
        let _ = fs::remove_file(&new);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_before_is_kept() {
        let dir = std::env::temp_dir().join(format!("cenote-policy-file-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = of_store(&dir);
        for (text, old) in [("one", None), ("two", Some("one")), ("three", Some("two"))] {
            write(&file, text).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            assert_eq!(fs::read_to_string(dir.join("policy.toml.old")).ok().as_deref(), old);
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "nothing else is left");
        assert!(write(&dir.join("no/such/dir.toml"), "x").unwrap_err().next_step().contains("--policy"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
