//! Whether a program can see the store, from the first bytes of its file.
//!
//! The library uses this when a program executes another, and the command that starts the first program uses
//! it (`crates/cli`).

/// Bytes that are examined.
pub const HEAD_BYTES: usize = 4096;

/// Kind of a program file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Program {
    /// It loads the C library, and the preloaded library before that.
    Dynamic,
    /// A script: its interpreter, and one argument for it.
    Script(Vec<u8>, Option<Vec<u8>>),
    /// It loads no preloaded library, for this reason.
    Beyond(&'static str),
    /// Not a known kind of program.
    Unknown,
}

fn number(head: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = head.get(at..at + len)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// x86-64.
const MACHINE: u64 = 62;
/// The kind of segment that names the dynamic linker.
const INTERPRETER: u64 = 3;

/// The kind of the file that begins with `head`.
pub fn look(head: &[u8]) -> Program {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
        let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
        let argument = line[end..].trim_ascii();
        return Program::Script(line[..end].to_vec(), (!argument.is_empty()).then(|| argument.to_vec()));
    }
    if !head.starts_with(b"\x7fELF") {
        return Program::Unknown;
    }
    if head.get(4) != Some(&2) || number(head, 18, 2) != Some(MACHINE) {
        return Program::Beyond("it is for another kind of processor");
    }
    let fields = || Some((number(head, 32, 8)?, number(head, 54, 2)?, number(head, 56, 2)?));
    let Some((table, size, count)) = fields() else { return Program::Unknown };
    let is_dynamic = (0..count).any(|index| {
        let at = table.checked_add(index * size).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| number(head, at, 4)) == Some(INTERPRETER)
    });
    if is_dynamic { Program::Dynamic } else { Program::Beyond("it is linked statically") }
}
