//! The nodes of a cluster as the file in its directory has them, and commands that run on their hosts.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cenote::model::HomeId;
use cenote::{Error, ErrorKind, Result};
use cenote_cluster::{Member, Members, RegisterPlace};
use cenote_device::rados_dir::Address;
use cenote_server::daemon::LOG_FILE;
use serde::{Deserialize, Serialize};

use super::NODES_FILE;
use crate::failure::printed;

/// What starts a cluster again.
#[derive(Serialize, Deserialize)]
pub(super) struct Nodes {
    /// Identifies the cluster.
    pub cluster: String,
    /// What runs a command on a host; empty on this one.
    pub launcher: Vec<String>,
    /// The nodes, in the order of their homes, which begin at 1.
    pub members: Vec<Node>,
    pub tiers: Vec<String>,
    /// Loss of how many nodes is to be survived.
    #[serde(default)]
    pub protect: u8,
    /// The pool in which homes lie, if they do not lie on their nodes, as `--on` says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub homes_on: Option<String>,
    /// Where the view is kept.
    #[serde(default)]
    pub register: RegisterPlace,
    /// Whether what nodes say to each other is encrypted.
    #[serde(default)]
    pub encrypt: bool,
    /// How many of the first nodes keep the register, once a node has joined; before, as many as there are usually.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepers: Option<u16>,
    /// Whether all nodes have begun once.
    #[serde(default)]
    pub has_begun: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Node {
    pub name: String,
    pub address: SocketAddr,
    /// It is no member any more; its place in the list stays, since it says which home was its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
}

/// What a node has to know.
#[derive(Serialize, Deserialize)]
pub(super) struct Begin {
    pub members: String,
    pub key: String,
    pub tiers: Vec<String>,
    /// Nodes on the same host, which share its memory.
    pub sharing: u16,
    /// Whether the cluster is being made: only then a node may begin a part of the register.
    pub is_new: bool,
}

pub(super) fn subject(dir: &Path) -> String {
    format!("cluster in {}", dir.display())
}

pub(super) fn absolute(dir: &Path) -> Result<PathBuf> {
    std::path::absolute(dir).map_err(|error| Error::io(subject(dir), &error))
}

impl Nodes {
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let file = dir.join(NODES_FILE);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(file.display().to_string(), &error)),
        };
        let nodes = serde_json::from_str(&text).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, file.display().to_string())
                .because(error.to_string())
                .try_next("restore the file from a copy: it says where the nodes are")
        })?;
        Ok(Some(nodes))
    }
    /// Reads the nodes of a cluster that is there.
    pub fn of(dir: &Path) -> Result<Self> {
        Self::read(dir)?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, subject(dir))
                .because(format!("there is no file {NODES_FILE}"))
                .try_next("start one: `cenote cluster start DIR --local 4`, or with --hosts")
        })
    }
    pub fn write(&self, dir: &Path) -> Result<()> {
        let file = dir.join(NODES_FILE);
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        let write = || {
            std::fs::create_dir_all(dir)?;
            let fresh = dir.join(format!(".{NODES_FILE}"));
            std::fs::write(&fresh, text + "\n")?;
            std::fs::rename(&fresh, &file)
        };
        write().map_err(|error| Error::io(file.display().to_string(), &error))
    }
    pub fn members(&self, home: HomeId) -> Result<Members> {
        let member = |(home, node): (u16, &Node)| {
            let (address, name) = (node.address, node.name.clone());
            Member { home: HomeId(home), address, name, has_left: node.left }
        };
        let all = (1..).zip(&self.members).map(member).collect();
        let register = self.register.clone();
        let (cluster, protect, encrypt) = (self.cluster.parse()?, self.protect, self.encrypt);
        let homes_on = self.homes_on()?;
        Ok(Members { cluster, home, protect, homes_on, register, keeping: self.keepers, encrypt, all })
    }
    /// The pool in which homes lie, if they do not lie on their nodes.
    pub fn homes_on(&self) -> Result<Option<Address>> {
        self.homes_on.as_deref().map(Address::parse).transpose()
    }
    /// The nodes that have not left, with their homes.
    pub fn present(&self) -> impl Iterator<Item = (HomeId, &Node)> {
        (1..).map(HomeId).zip(&self.members).filter(|(_, node)| !node.left)
    }
    /// The first node that has not left.
    pub fn first(&self) -> &Node {
        self.members.iter().find(|node| !node.left).unwrap_or(&self.members[0])
    }
    /// A node by its name.
    pub fn find(&self, name: &str) -> Option<(HomeId, &Node)> {
        self.present().find(|(_, node)| node.name == name)
    }
    /// A name for a further node on this host.
    pub fn free_name(&self) -> String {
        let names = (1..).map(|number| format!("n{number}"));
        let is_free = |name: &String| self.members.iter().all(|node| node.name != *name);
        names.skip(self.members.len()).find(is_free).unwrap_or_default()
    }
    /// The command line that runs `cenote` with these arguments on a node's host.
    pub fn command(&self, node: &Node, arguments: &[&std::ffi::OsStr]) -> Result<Command> {
        let program = std::env::current_exe().map_err(|error| Error::io("this program", &error))?;
        let mut words = self.launcher.iter().map(|word| word.replace("{host}", &node.name));
        let mut command = match words.next() {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(words).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(arguments);
        Ok(command)
    }
    /// Does the same for each node that has not left, at a time; the results are in the order of the nodes.
    pub fn each<T: Send>(&self, run: impl Fn(HomeId, &Node) -> Result<T> + Sync) -> Vec<Result<T>> {
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = self.present().map(|(home, node)| scope.spawn(move || run(home, node))).collect();
            let broken = || Err(Error::new(ErrorKind::Internal, "a thread for a node"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| broken())).collect()
        })
    }
    /// Runs `cenote` on a node's host and returns what it printed.
    pub fn run(&self, node: &Node, arguments: &[&std::ffi::OsStr], input: &[u8]) -> Result<String> {
        let subject = || format!("node `{}`", node.name);
        let mut command = self.command(node, arguments)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            Error::io(format!("{} ({})", subject(), command.get_program().to_string_lossy()), &error)
        })?;
        if let Some(mut pipe) = child.stdin.take() {
            let _ = pipe.write_all(input); // if it has ended, its output says why
        }
        let output = child.wait_with_output().map_err(|error| Error::io(subject(), &error))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        if let Some(error) = printed(&said) {
            let about = Error::new(error.kind(), format!("{}: {}", subject(), error.subject()));
            return Err(about.because(error.cause()).try_next(error.next_step()));
        }
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let silent = || format!("`{}` ended with {}", command.get_program().to_string_lossy(), output.status);
        Err(Error::new(ErrorKind::Io, subject())
            .because(if lines.is_empty() { silent() } else { lines.join("; ") })
            .try_next(format!("try it by hand: `{}`, and see the node's {LOG_FILE}", line_of(&command))))
    }
}

/// A command line, for people.
pub(super) fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The first failure of several.
pub(super) fn all<T>(results: Vec<Result<T>>) -> Result<Vec<T>> {
    results.into_iter().collect()
}
