//! The kernel's mount table, read without touching any mount: a mount that is no longer served would not answer.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// File system type of our mounts in the kernel's table.
pub const TYPE: &str = "fuse.cenote";
/// The kernel's table of the mounts that this process sees.
const LIST: &str = "/proc/self/mountinfo";

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// Device number, as `major:minor`.
    pub device: String,
    /// Mount point.
    pub dir: PathBuf,
    /// Type of file system.
    pub kind: String,
    /// Mount source.
    pub source: String,
}

/// The mounts on `dir`, topmost first. Does not touch the directory, but its parent.
pub fn on(dir: &Path) -> io::Result<Vec<Mounted>> {
    let dir = unlinked(dir)?;
    let mut found: Vec<Mounted> = parse(&std::fs::read(LIST)?).into_iter().filter(|mount| mount.dir == dir).collect();
    found.reverse();
    Ok(found)
}

/// The path without symbolic links; the last component is only examined if it is a link.
pub fn unlinked(dir: &Path) -> io::Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    if let Ok(target) = std::fs::read_link(&dir) {
        return unlinked(&dir.parent().unwrap_or(&dir).join(target));
    }
    match (dir.parent(), dir.file_name()) {
        (Some(above), Some(name)) if name != ".." => Ok(above.canonicalize()?.join(name)),
        _ => dir.canonicalize(),
    }
}

fn parse(list: &[u8]) -> Vec<Mounted> {
    list.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// `36 35 98:0 /root /mount/point options optional... - type source super-options`
fn line(text: &[u8]) -> Option<Mounted> {
    let mut fields = text.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let dir = fields.nth(1)?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (rest.next()?, rest.next()?);
    let text = |bytes: &[u8]| String::from_utf8_lossy(&unescaped(bytes)).into_owned();
    let dir = PathBuf::from(OsString::from_vec(unescaped(dir)));
    Some(Mounted { device: text(device), dir, kind: text(kind), source: text(source) })
}

/// Undoes the escapes of spaces and the like, such as `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read_with_odd_names_in_it() {
        let list =
            b"36 35 0:52 / /a\\040b\\134c rw,nosuid shared:1 master:2 - fuse.cenote cenote:/st\\040ore rw,user_id=0\n\
            24 1 254:0 / / rw - ext4 /dev/vda rw\n";
        let found = parse(list);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].device.as_str(), found[0].dir.to_str()), ("0:52", Some("/a b\\c")));
        assert_eq!((found[0].kind.as_str(), found[0].source.as_str()), (TYPE, "cenote:/st ore"));
        assert_eq!((found[1].kind.as_str(), found[1].dir.to_str()), ("ext4", Some("/")));
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(!on(Path::new("/")).unwrap().is_empty());
        assert!(on(&std::env::temp_dir().join("no such directory")).unwrap().is_empty());
    }
}
