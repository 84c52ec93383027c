//! Users by name: those of `/etc/passwd`, and those that the system's name service knows besides (LDAP, say).

use std::process::{Command, Stdio};

use cenote::{Error, ErrorKind, Result};

/// The numeric id of a user, named or given as a number. Fails for a name that nobody has here.
pub fn uid_of(user: &str) -> Result<u32> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let found = entry(user).filter(|fields| fields.0 == user).map(|fields| fields.1);
    found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("user `{user}`"))
            .because("this system has no user of that name")
            .try_next("`getent passwd` lists those that it has; a number may be given instead")
    })
}

/// The name of a user, or the number if nobody has it here.
pub fn name_of(uid: u32) -> String {
    let number = uid.to_string();
    entry(&number).filter(|(_, found)| *found == uid).map_or(number, |(name, _)| name)
}

/// Name and id of the user with this name or number.
fn entry(key: &str) -> Option<(String, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = users.lines().filter_map(fields).find(|(name, uid)| name == key || uid.to_string() == key);
    found.or_else(|| {
        let mut ask = Command::new("getent");
        let told = ask.args(["passwd", "--", key]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        String::from_utf8_lossy(&told.stdout).lines().find_map(fields)
    })
}

fn fields(line: &str) -> Option<(String, u32)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    let uid = fields.nth(1)?.parse().ok()?;
    Some((name.to_owned(), uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_users() {
        assert_eq!(uid_of("root").unwrap(), 0);
        assert_eq!((name_of(0).as_str(), uid_of("4000000001").unwrap()), ("root", 4_000_000_001));
        assert_eq!(name_of(4_000_000_001), "4000000001");
        assert_eq!(uid_of("nobody-has-this-name").unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fields("alice:x:1001:100::/home/alice:/bin/sh"), Some(("alice".to_owned(), 1001)));
        assert_eq!(fields("+::::::"), None);
    }
}
