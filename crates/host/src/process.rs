//! Live processes and their names.

/// Start time of a process, in the kernel's ticks since boot; `None` if there is no process of that pid, or only a
/// zombie. Together with the pid it identifies a process for good, which a pid alone does not.
pub fn started_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything; fields are counted from its end.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The common name of a process's program: the name of its file, and for an interpreter that of its script. At most 64
/// characters, without terminal control characters.
pub fn program_of(pid: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let name = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let mut said = name(words.first().filter(|word| !word.is_empty())?);
    if ["python", "perl", "ruby", "node", "julia", "Rscript"].iter().any(|known| said.starts_with(known)) {
        let mut rest = words.iter().skip(1);
        let script = rest.find(|word| !word.starts_with('-') || *word == "-m" || *word == "-c");
        match script.map(std::convert::AsRef::as_ref) {
            Some("-c") | None => {}
            Some("-m") => said = format!("{said} -m {}", rest.next().map_or(String::new(), |word| name(word))),
            Some(script) => said = format!("{said} {}", name(script)),
        }
    }
    Some(said.chars().filter(|c| !c.is_control()).take(64).collect())
}

/// Read-locked by tests that start programs, write-locked by tests that count who has a file open: until its exec, a
/// child has all descriptors of this process.
#[cfg(test)]
pub(crate) static STARTING: std::sync::RwLock<()> = std::sync::RwLock::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_names_that_people_know() {
        assert!(program_of(std::process::id()).is_some_and(|name| name.starts_with("cenote_host")));
        assert_eq!(program_of(u32::MAX), None);
        let _starting = STARTING.read().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // The child may not have reached its exec yet.
        let name = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            program_of(child.id()).filter(|name| !name.starts_with("cenote_host"))
        });
        assert_eq!(name.as_deref(), Some("sleep"));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn tells_the_living_from_the_dead() {
        assert!(started_of(std::process::id()).is_some());
        let _starting = STARTING.read().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(started_of(pid), None);
    }
}
