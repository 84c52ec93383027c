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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_living_from_the_dead() {
        assert!(started_of(std::process::id()).is_some());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(started_of(pid), None);
    }
}
