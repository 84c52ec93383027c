//! A program on a node whose daemon hangs: reads and writes one container when it is told to, so that the parent sees what
//! it is answered meanwhile.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use cenote::{Container, ContainerSpec, Index, Mode, OpenOptions, Result, Store};
use cenote_model::{IndexId, ObjectId};

use super::parent::{Check, text};

/// Bytes of each object.
const LEN: usize = 8;
/// The object that others change, and the one that the program itself changes.
const THEIRS: ObjectId = ObjectId(1);
const OURS: ObjectId = ObjectId(2);
const INDEX: IndexId = IndexId(1);
const KEY: &[u8] = b"key";

/// What is in a container of a probe.
pub(super) struct Content {
    /// An object and a record that others change.
    pub theirs: [u64; 2],
    /// Changed by the program.
    pub ours: u64,
}

fn of_object(container: &Container, id: ObjectId) -> Result<u64> {
    let mut bytes = [0; LEN];
    container.object(id).read_at(0, &mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

fn of_record(index: &Index) -> Result<u64> {
    let record = index.get_one(KEY)?.and_then(|value| value.try_into().ok());
    Ok(record.map_or(u64::MAX, u64::from_be_bytes))
}

/// Makes the container of a probe.
pub(super) fn make(store: &Store, label: &str) -> Result<Container> {
    let container = store.create_container(label, &ContainerSpec::default())?;
    for id in [THEIRS, OURS] {
        container.create_object(Some(id), None)?.write_at(0, &[0; LEN])?;
    }
    container.create_index(Some(INDEX))?;
    change(&container, 0)?;
    Ok(container)
}

/// Changes what the program reads.
pub(super) fn change(container: &Container, value: u64) -> Result<()> {
    container.object(THEIRS).write_at(0, &value.to_be_bytes())?;
    container.index(INDEX).put(&[(KEY, &value.to_be_bytes())]).map(drop)
}

/// Reads all of it.
pub(super) fn read(container: &Container) -> Result<Content> {
    let record = of_record(&container.index(INDEX))?;
    Ok(Content { theirs: [of_object(container, THEIRS)?, record], ours: of_object(container, OURS)? })
}

/// `probe DIR LABEL`: answers `object`, `record` and `write VALUE` from standard input by a line each.
pub fn probe_main(words: &[String]) -> Check {
    let [dir, label] = words else { return Err("probe DIR LABEL".into()) };
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    let store = Store::open_with(Path::new(dir), &options).map_err(text)?;
    let container = store.container(label).map_err(text)?;
    let index = container.index(INDEX).remembering();
    for line in std::io::stdin().lines() {
        let line = line.map_err(text)?;
        let done = match line.split_once(' ') {
            Some((_, value)) => {
                let value: u64 = value.parse().map_err(text)?;
                container.object(OURS).write_at(0, &value.to_be_bytes()).map(|()| value)
            }
            None if line == "object" => of_object(&container, THEIRS),
            None => of_record(&index),
        };
        println!("{}", done.map_or_else(|error| format!("failed: {error:?}"), |value| value.to_string()));
        std::io::stdout().flush().map_err(text)?;
    }
    Ok(())
}

/// A running program.
pub(super) struct Probe {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Probe {
    pub fn start(program: &Path, dir: &Path, label: &str) -> Check<Self> {
        let mut command = Command::new(program);
        command.arg("probe").arg(dir).arg(label).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(text)?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = child.stdout.take().ok_or("no pipe")?;
        let (send, answers) = channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(std::result::Result::ok).try_for_each(|line| send.send(line))
        });
        Ok(Self { child, input, answers })
    }
    pub fn ask(&mut self, what: &str) -> Check {
        writeln!(self.input, "{what}").map_err(text)
    }
    /// The next answer, if it comes in time.
    pub fn answer(&self, patience: Duration) -> Option<String> {
        self.answers.recv_timeout(patience).ok()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
