//! Which processes live.

/// When a process was started, in the kernel's ticks since boot; `None` if there is none of that pid, or only its
/// remains. Together with the pid this names a process for good, as pids alone do not.
pub fn started_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; fields are counted from its end.
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// What people call the program of a process: the name of its file, and for an interpreter that of its script.
/// At most 64 characters, none of which does anything to a terminal.
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

/// Held for reading by tests that start programs, for writing by those that count who has a file open: a child has all of this
/// process's descriptors until it comes to its program.
#[cfg(test)]
pub(crate) static STARTING: std::sync::RwLock<()> = std::sync::RwLock::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_the_names_that_people_know() {
        assert!(program_of(std::process::id()).is_some_and(|name| name.starts_with("cenote_device")));
        assert_eq!(program_of(u32::MAX), None);
        let _starting = STARTING.read().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // The child may not have come to its program yet.
        let name = (0..1000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            program_of(child.id()).filter(|name| !name.starts_with("cenote_device"))
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
