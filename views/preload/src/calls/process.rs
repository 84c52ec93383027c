//! Executing another program in this process, and ending it.

use std::cell::Cell;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote_host::elf::{self, HEAD_BYTES, Program};
use posix::{Follow, Kind};

use super::{Answer, Result, Target, mapping};
use crate::description::errno;
use crate::handoff::{self, Handoff};
use crate::paths::{self, PathClass, To};
use crate::{context, inside, kernel, start, table};

/// Upper bound of nested script interpreters (as in the kernel).
const SCRIPTS_MAX: u32 = 4;

/// Memory prepared for a program to be executed. After `vfork` it lies in the parent's memory and outlives the child.
#[derive(Default)]
struct Pending {
    strings: Vec<CString>,
    arguments: Vec<u64>,
    environment: Vec<u64>,
}

thread_local! {
    static PENDING: Cell<*mut Pending> = const { Cell::new(std::ptr::null_mut()) };
}

fn discard() {
    let old = PENDING.replace(std::ptr::null_mut());
    if !old.is_null() {
        // SAFETY: created from a box by this thread, or by its child, which has executed another program since.
        drop(unsafe { Box::from_raw(old) });
    }
}

/// Upper bound of the bytes in an argument or variable (the kernel's own bound is 32 pages, and it reports that
/// itself).
const STRING_MAX: usize = 1 << 30;

/// The strings of a list that ends in NULL.
fn list(at: u64) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    if at == 0 {
        return Ok(all);
    }
    loop {
        let next: u64 = super::value(at + 8 * all.len() as u64)?;
        if next == 0 {
            return Ok(all);
        }
        all.push(next);
    }
}

fn add(pending: &mut Pending, text: Vec<u8>) -> Result<u64> {
    let text = CString::new(text).map_err(|_| libc::EINVAL)?;
    let at = text.as_ptr() as u64;
    pending.strings.push(text);
    Ok(at)
}

/// The environment of the next program: adds this library and its variables, even if the program would be executed
/// without.
fn environment(pending: &mut Pending, given: u64, handoff: Option<&Handoff>) -> Result<()> {
    let mut all = Vec::new();
    let (mut has_library, mut known) = (false, Vec::new());
    for at in list(given)? {
        let text = paths::string(at, STRING_MAX)?;
        let name = text.split(|byte| *byte == b'=').next().unwrap_or_default();
        if name == handoff::VARIABLE.as_bytes() {
            continue;
        }
        if name == b"LD_PRELOAD" {
            has_library = true;
            all.push(preload(pending, &text[b"LD_PRELOAD=".len()..], at)?);
            continue;
        }
        known.push(name);
        all.push(at);
    }
    if !inside::was_inside() {
        if !has_library {
            all.push(preload(pending, b"", 0)?);
        }
        for (_, text) in context::given().iter().filter(|(name, _)| !known.contains(&name.as_bytes())) {
            all.push(add(pending, text.clone())?);
        }
    }
    if let Some(handoff) = handoff {
        all.push(add(pending, format!("{}={}", handoff::VARIABLE, handoff.fd).into_bytes())?);
    }
    all.push(0);
    pending.environment = all;
    Ok(())
}

/// `LD_PRELOAD` with this library in it; without it if this library's own code executes the program.
fn preload(pending: &mut Pending, value: &[u8], given: u64) -> Result<u64> {
    let library = start::library();
    let parts = value.split(|byte| matches!(byte, b':' | b' ')).filter(|part| !part.is_empty());
    let others: Vec<&[u8]> = parts.clone().filter(|part| *part != library).collect();
    let is_there = parts.clone().count() > others.len();
    if inside::was_inside() {
        return add(pending, [b"LD_PRELOAD=", &others.join(&b':')[..]].concat());
    }
    if is_there {
        return Ok(given);
    }
    let mut all = vec![library];
    all.extend(others);
    add(pending, [b"LD_PRELOAD=", &all.join(&b':')[..]].concat())
}

/// The program file to execute.
enum File {
    /// A file of the kernel, by path.
    Path(u64),
    /// A file of the kernel, by descriptor or by a path relative to one.
    At(i32, u64, i32),
    /// Bytes from the store, in a memory file.
    Memory(i32),
}

/// Copies a program from the store to a memory file; also returns its kind.
fn load(target: &Target<'_>) -> Result<(i32, Program)> {
    let (system, caller) = (context::system()?, context::caller());
    let ino = target.ino();
    let attr = system.attr(ino).map_err(errno)?;
    if attr.kind != Kind::File {
        return Err(libc::EACCES);
    }
    system.access(&caller, ino, libc::X_OK).map_err(errno)?;
    let flags = posix::OpenFlags { read: true, ..posix::OpenFlags::default() };
    let file = system.open(&context::checked_caller(), ino, flags).map_err(errno)?;
    let name = c"program".as_ptr() as u64;
    let fd = kernel::simple_or(libc::SYS_memfd_create, &[name, u64::from(libc::MFD_CLOEXEC)])? as i32;
    let mut head = Vec::new();
    let (mut buf, mut done) = (vec![0; 1 << 20], 0_u64);
    loop {
        let read = file.read_at(&mut buf, done).map_err(errno)?;
        if read == 0 {
            break;
        }
        if done == 0 {
            head = buf[..read.min(HEAD_BYTES)].to_vec();
        }
        kernel::simple_or(libc::SYS_write, &[fd as u64, buf.as_ptr() as u64, read as u64])?;
        done += read as u64;
    }
    kernel::simple(libc::SYS_fchmod, &[fd as u64, 0o755]);
    Ok((fd, elf::look(&head)))
}

/// Inspects the program that the kernel would execute for that path.
fn look(dir: i32, path: u64, flags: i32) -> Program {
    let fd = if flags & libc::AT_EMPTY_PATH == 0 {
        let read = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
        kernel::simple(libc::SYS_openat, &[dir as u64, path, read, 0]) as i32
    } else {
        dir
    };
    if fd < 0 {
        return Program::Unknown;
    }
    let mut head = [0_u8; HEAD_BYTES];
    let read = kernel::simple(libc::SYS_pread64, &[fd as u64, head.as_mut_ptr() as u64, HEAD_BYTES as u64, 0]);
    // SAFETY: zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    kernel::simple(libc::SYS_fstat, &[fd as u64, (&raw mut stat) as u64]);
    if fd != dir {
        kernel::close(fd);
    }
    let program = elf::look(&head[..read.max(0) as usize]);
    let user = kernel::simple(libc::SYS_getuid, &[]) as u32;
    let group = kernel::simple(libc::SYS_getgid, &[]) as u32;
    let sets_user = stat.st_mode & libc::S_ISUID != 0 && stat.st_uid != user;
    let sets_group = stat.st_mode & libc::S_ISGID != 0 && stat.st_gid != group;
    match program {
        Program::Dynamic if sets_user || sets_group => Program::Beyond("it runs as another user (set-id)"),
        program => program,
    }
}

/// Reports, once, that a program will not see the store.
fn warn(path: &[u8], program: &Program) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let Program::Beyond(why) = program else { return };
    if !context::is_quiet() && !SAID.swap(true, Ordering::Relaxed) {
        let (name, at) = (String::from_utf8_lossy(path), String::from_utf8_lossy(&context::settings().at));
        kernel::say(&format!("{name}: the files below {at} are invisible to it: {why} (docs/run.md)"));
    }
}

/// `execve` and `execveat`.
pub fn exec((dir, path, flags): (i32, u64, i32), arguments: u64, given: u64) -> Answer {
    discard();
    start_program(dir, path, flags, arguments, given).into()
}

fn start_program(dir: i32, path: u64, flags: i32, arguments: u64, given: u64) -> Result {
    let mut pending = Box::<Pending>::default();
    pending.arguments = list(arguments)?;
    let mut file = if flags == 0 && dir == libc::AT_FDCWD { File::Path(path) } else { File::At(dir, path, flags) };
    let mut name = paths::text(path)?.to_vec();
    if let Some(class) = ours(dir, path, flags)? {
        file = from_store(class, &mut pending, &mut name, 0)?;
    }
    if !inside::was_inside() {
        match &file {
            File::Path(path) => warn_of(libc::AT_FDCWD, *path, 0, &name, 0),
            File::At(dir, path, flags) => warn_of(*dir, *path, *flags, &name, 0),
            File::Memory(fd) => warn_of(*fd, path, libc::AT_EMPTY_PATH, &name, 0),
        }
    }
    // A program started by this library's own code (the daemon) waits for nothing: calls in this process may wait for
    // it.
    if let Some(system) = context::known_system().filter(|_| !inside::was_inside()) {
        drop(system.before_fork());
        for (_, open) in table::all() {
            let _ = open.closed(false);
        }
        mapping::settle();
    }
    let handoff = if inside::was_inside() { None } else { handoff::write()? };
    self::environment(&mut pending, given, handoff.as_ref())?;
    pending.arguments.push(0);
    let (argv, envp) = (pending.arguments.as_ptr() as u64, pending.environment.as_ptr() as u64);
    PENDING.set(Box::into_raw(pending));
    let result = inside::Inside::outside(|| match file {
        File::Path(path) => kernel::simple(libc::SYS_execve, &[path, argv, envp]),
        File::At(dir, path, flags) => kernel::simple(libc::SYS_execveat, &[dir as u64, path, argv, envp, flags as u64]),
        File::Memory(fd) => {
            let empty = c"".as_ptr() as u64;
            let at = libc::AT_EMPTY_PATH as u64;
            let result = kernel::simple(libc::SYS_execveat, &[fd as u64, empty, argv, envp, at]);
            kernel::close(fd);
            result
        }
    });
    // The program was not executed: restore the state.
    discard();
    drop(handoff);
    kernel::checked(result)
}

fn warn_of(dir: i32, path: u64, flags: i32, name: &[u8], depth: u32) {
    match look(dir, path, flags) {
        Program::Script(interpreter, _) if depth < SCRIPTS_MAX => {
            if let Ok(interpreter) = CString::new(interpreter) {
                warn_of(libc::AT_FDCWD, interpreter.as_ptr() as u64, 0, interpreter.as_bytes(), depth + 1);
            }
        }
        program => warn(name, &program),
    }
}

/// The program to execute, if it is in the store.
fn ours(dir: i32, path: u64, flags: i32) -> Result<Option<PathClass>> {
    if flags & libc::AT_EMPTY_PATH != 0 && paths::text(path)?.is_empty() {
        return Ok(table::get(dir).map(|open| PathClass::Descriptor(std::sync::Arc::clone(&open))));
    }
    Ok(match paths::classify(dir, path)? {
        PathClass::Kernel => None,
        class => Some(class),
    })
}

/// Prepares a program of the store, or the interpreter that it names, for execution by the kernel.
fn from_store(class: PathClass, pending: &mut Pending, name: &mut Vec<u8>, depth: u32) -> Result<File> {
    if depth > SCRIPTS_MAX {
        return Err(libc::ELOOP);
    }
    let (fd, program) = match class {
        PathClass::Kernel => return Err(libc::ENOENT),
        PathClass::Descriptor(open) => {
            name.clone_from(&open.path);
            load(&Target::Open(&open))?
        }
        PathClass::Store(mut at) => match at.find(Follow::Yes)? {
            To::Other(path) => {
                name.clone_from(&path);
                return add(pending, path).map(File::Path);
            }
            To::Store(spot) => {
                // A script gets the path that it was executed by.
                if name.is_empty() || depth > 0 {
                    *name = at.trail().to_vec();
                }
                load(&Target::Spot(spot, at.trail()))?
            }
        },
    };
    let Program::Script(interpreter, argument) = program else { return Ok(File::Memory(fd)) };
    kernel::close(fd);
    let mut arguments = vec![add(pending, interpreter.clone())?];
    if let Some(argument) = argument {
        arguments.push(add(pending, argument)?);
    }
    arguments.push(add(pending, name.clone())?);
    arguments.extend(pending.arguments.iter().skip(1));
    pending.arguments = arguments;
    name.clone_from(&interpreter);
    match paths::absolute(&interpreter)? {
        PathClass::Kernel => add(pending, interpreter).map(File::Path),
        class => from_store(class, pending, name, depth + 1),
    }
}

/// Handles the end of the process: stores what only the process has.
pub fn end() -> Answer {
    if let Some(system) = context::known_system() {
        for (_, open) in table::all() {
            let _ = open.closed(false);
        }
        mapping::settle();
        drop(system.before_fork());
    }
    Answer::Kernel
}
