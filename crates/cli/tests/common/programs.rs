//! Programs on the nodes of a cluster that open, lock and map files when they are told to.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::cluster::Cluster;

/// Long enough for a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// A call that waits does so for longer than this.
pub const BRIEFLY: Duration = Duration::from_millis(400);

/// Answers lines: each is a call, its answer `ok`, what it returned, or the name of its error.
const PROGRAM: &str = r"
import ctypes, errno, fcntl, mmap, os, signal, struct, sys
files = {}
kinds = {'rd': fcntl.F_RDLCK, 'wr': fcntl.F_WRLCK, 'un': fcntl.F_UNLCK}
def interrupted(*_):
    raise InterruptedError(errno.EINTR, 'a signal')
signal.signal(signal.SIGUSR1, interrupted)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for name in ('mprotect', 'msync', 'munmap'):
    getattr(libc, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * (name != 'munmap')
PAGE = 4096
maps = {}
def checked(result):
    if result in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), 'a call')
    return result
def mapping(words):
    name, map = words[:2]
    if name == 'map':
        flags = mmap.MAP_SHARED if 'sh' in words else mmap.MAP_PRIVATE
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if 'rw' in words else 0)
        maps[map] = checked(libc.mmap(None, PAGE, protection, flags, files[words[2]], 0))
    elif name == 'store':
        ctypes.memmove(maps[map] + int(words[2]), words[3].encode(), len(words[3]))
    elif name == 'load':
        return ctypes.string_at(maps[map] + int(words[2]), int(words[3])).decode()
    elif name == 'protect':
        checked(libc.mprotect(maps[map], PAGE, mmap.PROT_READ | mmap.PROT_WRITE))
    elif name == 'msync':
        checked(libc.msync(maps[map], PAGE, 4))
    elif name == 'unmap':
        checked(libc.munmap(maps.pop(map), PAGE))
    return 'ok'
# Maps a file again and again, and stores to its first byte.
def remap(path, turns):
    for turn in range(turns):
        file = os.open(path, os.O_RDWR)
        at = checked(libc.mmap(None, PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0))
        ctypes.memmove(at, bytes([65 + turn % 26]), 1)
        checked(libc.munmap(at, PAGE))
        os.close(file)
    return 'ok'
# Writes numbers by calls, and reads what is there: a number that was acknowledged must not go.
def numbers(file, turns):
    acknowledged = refused = number = 0
    while acknowledged < turns:
        number += 1
        try:
            os.pwrite(file, b'%08d' % number, 64)
            acknowledged += 1
            last = number
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            refused += 1
        there = int(os.pread(file, 8, 64).strip(b'\0') or b'0')
        if acknowledged and there < last:
            return 'lost %d, there is %d' % (last, there)
    return 'refused' if refused else 'never refused'
def call(words):
    name = words[0]
    if name == 'open':
        how = os.O_RDONLY if 'ro' in words else os.O_RDWR | os.O_CREAT
        files[words[1]] = os.open(words[2], how, 0o600)
        return 'ok'
    if name == 'mkdir':
        os.mkdir(words[1])
        return 'ok'
    if name == 'put':
        with open(words[1], 'wb') as file:
            file.write(bytes(int(words[2])))
        return 'ok'
    if name == 'setx':
        os.setxattr(words[1], words[2], words[3].encode())
        return 'ok'
    if name == 'getx':
        return os.getxattr(words[1], words[2]).decode()
    if name == 'delx':
        os.removexattr(words[1], words[2])
        return 'ok'
    if name in ('map', 'store', 'load', 'protect', 'msync', 'unmap'):
        return mapping(words)
    if name == 'remap':
        return remap(words[1], int(words[2]))
    if name == 'fork':
        child = os.fork()
        if child == 0:
            return 'child'
        while os.waitpid(child, 0)[0] != child:
            pass
        return 'parent'
    if name == 'exit':
        os._exit(0)
    file = files[words[1]]
    if name == 'flock':
        fcntl.flock(file, {'sh': fcntl.LOCK_SH, 'ex': fcntl.LOCK_EX, 'un': fcntl.LOCK_UN}[words[2]] | (fcntl.LOCK_NB if 'nb' in words else 0))
    elif name in ('set', 'setw', 'ofd', 'ofdw', 'get', 'ofdget'):
        command = {'set': 6, 'setw': 7, 'ofd': 37, 'ofdw': 38, 'get': 5, 'ofdget': 36}[name]
        said = fcntl.fcntl(file, command, struct.pack('hhqqi4x', kinds[words[2]], 0, int(words[3]), int(words[4]), 0))
        if 'get' in name:
            return ' '.join(str(number) for number in struct.unpack('hhqqi4x', said))
    elif name == 'close':
        os.close(files.pop(words[1]))
    elif name == 'count':
        for _ in range(int(words[2])):
            fcntl.flock(file, fcntl.LOCK_EX)
            number = int(os.pread(file, 20, 0) or b'0')
            os.pwrite(file, b'%020d' % (number + 1), 0)
            fcntl.flock(file, fcntl.LOCK_UN)
    elif name == 'turns':
        for at in range(int(words[2])):
            place = at % 5 * 100
            fcntl.lockf(file, fcntl.LOCK_EX, 20, place)
            number = int(os.pread(file, 20, place).strip(b'\0') or b'0')
            os.pwrite(file, b'%020d' % (number + 1), place)
            fcntl.lockf(file, fcntl.LOCK_UN, 20, place)
    elif name == 'numbers':
        return numbers(file, int(words[2]))
    elif name == 'write':
        os.pwrite(file, words[3].encode(), int(words[2]))
    elif name == 'text':
        return os.pread(file, int(words[3]), int(words[2])).decode()
    elif name == 'truncate':
        os.ftruncate(file, int(words[2]))
    elif name == 'read':
        return str(int(os.pread(file, 20, int(words[2]))))
    return 'ok'
for line in sys.stdin:
    try:
        print(call(line.split()), flush=True)
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
";

pub fn python() -> PathBuf {
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    String::from_utf8(asked.stdout).unwrap().trim().into()
}

/// Returns true if a library is there and newer than all its sources, as cargo lists them beside it.
fn is_fresh(library: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|found| found.modified());
    let (Ok(built), Ok(listed)) = (changed(library), std::fs::read_to_string(library.with_extension("d"))) else {
        return false;
    };
    listed.split_whitespace().skip(1).all(|source| changed(Path::new(source)).is_ok_and(|at| at < built))
}

/// The library to preload. Nothing that Rust links needs it, so `cargo test` does not build it: it is that of an earlier
/// build if that is newer than the sources, as after `make build`, and built here else.
fn library() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target");
        let [debug, release] = ["debug", "release"].map(|it| target.join(it).join("libcenote_posix.so"));
        if let Some(found) = [&debug, &release].into_iter().find(|path| is_fresh(path)) {
            return found.clone();
        }
        // Both packages: then what this test is linked with is not built again.
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--package", "cenote-preload", "--package", "cenote-cli"])
            .env("CARGO_TARGET_DIR", target)
            .status();
        assert!(built.expect("cargo runs").success());
        debug
    })
}

/// A program on a node.
pub struct Program {
    child: Child,
    calls: ChildStdin,
    answers: Receiver<String>,
}

impl Program {
    /// Sees the store below `/cenote`.
    #[track_caller]
    pub fn on(cluster: &Cluster, node: usize) -> Self {
        Self::start(&mut Self::command(cluster, node))
    }
    /// The command of such a program, to be started.
    pub fn command(cluster: &Cluster, node: usize) -> Command {
        Self::command_in(&cluster.node(node))
    }
    /// The command of a program in a store, to be started.
    pub fn command_in(store: &Path) -> Command {
        let mut command = Command::new(python());
        command.env("LD_PRELOAD", library()).env("CENOTE_STORE", store).env("CENOTE_AT", "/cenote");
        command.env("CENOTE_BIN", env!("CARGO_BIN_EXE_cenote"));
        command
    }
    pub fn start(command: &mut Command) -> Self {
        let command = command.args(["-u", "-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (tell, answers) = channel();
        let said = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(said).lines() {
                let Ok(line) = line else { return };
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let calls = child.stdin.take().unwrap();
        Self { child, calls, answers }
    }
    pub fn begin(&mut self, call: &str) {
        writeln!(self.calls, "{call}").unwrap();
    }
    pub fn within(&self, patience: Duration) -> Option<String> {
        self.answers.recv_timeout(patience).ok()
    }
    #[track_caller]
    pub fn end(&self) -> String {
        self.within(PATIENCE).expect("an answer in time")
    }
    #[track_caller]
    pub fn says(&mut self, call: &str) -> String {
        self.begin(call);
        self.end()
    }
    #[track_caller]
    pub fn expect(&mut self, call: &str, answer: &str) {
        let said = self.says(call);
        assert_eq!(said, answer, "{call}");
    }
    /// Makes a call again and again until it has this answer.
    #[track_caller]
    pub fn until(&mut self, call: &str, answer: &str) {
        let begin = Instant::now();
        loop {
            let said = self.says(call);
            if said == answer {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{call}: {said}, not {answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    /// Begins a call that waits.
    #[track_caller]
    pub fn waits(&mut self, call: &str) {
        self.begin(call);
        assert_eq!(self.within(BRIEFLY), None, "{call}");
    }
    pub fn id(&self) -> u32 {
        self.child.id()
    }
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().cast_signed()).unwrap(), signal).unwrap();
    }
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
