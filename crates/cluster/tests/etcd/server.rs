//! Servers of etcd on this machine alone, which end with the test.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::fresh_name;

/// A cluster of servers.
pub struct Etcd {
    dir: Dir,
    /// Ports for clients and for each other.
    ports: Vec<(u16, u16)>,
    options: Vec<String>,
    scheme: &'static str,
    children: Mutex<Vec<Option<Child>>>,
}

/// A directory that is removed with it.
pub struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cenote-{name}-{}", fresh_name()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_installed(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("skipped: no program `{program}` (Debian: etcd-server, etcd-client, openssl)");
    }
    is_there
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts so many servers; `None`, with the reason printed, if etcd is not installed.
pub fn start(servers: usize, options: &[String]) -> Option<Etcd> {
    if !is_installed("etcd", "--version") || !is_installed("etcdctl", "version") {
        return None;
    }
    let scheme = if options.is_empty() { "http" } else { "https" };
    let etcd = Etcd {
        dir: Dir::new("etcd"),
        ports: (0..servers).map(|_| (free_port(), free_port())).collect(),
        options: options.to_vec(),
        scheme,
        children: Mutex::new((0..servers).map(|_| None).collect()),
    };
    for server in 0..servers {
        etcd.spawn(server);
    }
    (0..servers).for_each(|server| etcd.wait(server));
    Some(etcd)
}

impl Etcd {
    /// The addresses for clients.
    pub fn endpoints(&self) -> Vec<String> {
        self.ports.iter().map(|(port, _)| format!("{}://127.0.0.1:{port}", self.scheme)).collect()
    }
    fn spawn(&self, server: usize) {
        let (clients, peers) = self.ports[server];
        let peer = |(at, (_, port)): (usize, &(u16, u16))| format!("s{at}=http://127.0.0.1:{port}");
        let all: Vec<String> = self.ports.iter().enumerate().map(peer).collect();
        let (clients, peers) = (format!("{}://127.0.0.1:{clients}", self.scheme), format!("http://127.0.0.1:{peers}"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.0.join("log")).unwrap();
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("s{server}"), "--initial-cluster", &all.join(",")]);
        command.arg("--data-dir").arg(self.dir.0.join(format!("s{server}")));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--logger", "zap", "--log-level", "error"]).args(&self.options);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.children.lock().unwrap()[server] = Some(command.spawn().unwrap());
    }
    /// Waits until the server takes connections.
    fn wait(&self, server: usize) {
        let until = Instant::now() + Duration::from_mins(1);
        while std::net::TcpStream::connect(("127.0.0.1", self.ports[server].0)).is_err() {
            let log = || std::fs::read_to_string(self.dir.0.join("log")).unwrap_or_default();
            assert!(Instant::now() < until, "etcd does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    pub fn run(&self, server: usize) {
        self.spawn(server);
        self.wait(server);
    }
    pub fn kill(&self, server: usize) {
        if let Some(mut child) = self.children.lock().unwrap()[server].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
    /// Stops a server without its end, or lets it go on.
    pub fn set_stopped(&self, server: usize, is_stopped: bool) {
        let children = self.children.lock().unwrap();
        let child = children[server].as_ref().expect("it runs");
        let signal = if is_stopped { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(child), signal).unwrap();
    }
    /// A command of the administrator.
    pub fn ctl(&self, words: &str) {
        self.command(&words.split(' ').collect::<Vec<_>>(), b"");
    }
    /// Puts a value by the administrator's hand.
    pub fn put(&self, key: &str, value: &[u8]) {
        match value {
            // It takes no empty standard input.
            [] => self.command(&["put", key, ""], b""),
            value => self.command(&["put", key], value),
        }
    }
    fn command(&self, words: &[&str], input: &[u8]) {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoints()[0]]).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.ports.len()).for_each(|server| self.kill(server));
    }
}

/// An authority (`ca.pem`) and what it signed for a server and a client; `None`, with the reason printed, without `openssl`.
pub fn certificates() -> Option<Dir> {
    if !is_installed("openssl", "version") {
        return None;
    }
    let dir = Dir::new("etcd-tls");
    std::fs::write(dir.0.join("ext"), "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&dir, &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    for name in ["server", "client"] {
        openssl(&dir, &format!("req -new {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        let signed = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext";
        openssl(&dir, &format!("x509 -req -in {name}.csr -out {name}.pem {signed}"));
    }
    Some(dir)
}

fn openssl(dir: &Dir, words: &str) {
    let done = Command::new("openssl").current_dir(&dir.0).args(words.split(' ')).output().unwrap();
    assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
}
