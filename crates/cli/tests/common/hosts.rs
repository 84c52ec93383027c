//! Hosts of a test: network namespaces on a bridge.

use std::process::{Command, Stdio};

/// Hosts, named by their addresses. Removed when this value is dropped.
pub struct Hosts {
    bridge: String,
    pub names: Vec<String>,
}

/// How a host is cut off.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Its link is down.
    Down,
    /// What it sends is lost; it hears others.
    Mute,
    /// What is sent to it is lost; others hear it.
    Deaf,
}

impl Hosts {
    /// So many hosts. `None` if this user, or this machine, can make none.
    pub fn new(count: usize) -> Option<Self> {
        // Others may have the first number.
        (0..20).find_map(|other| Self::make((std::process::id() + other * 13) % 250, count))
    }
    fn make(number: u32, count: usize) -> Option<Self> {
        let bridge = format!("cenote{number}");
        if !ip(&format!("link add {bridge} type bridge")) {
            return None;
        }
        let names = (1..=count).map(|host| format!("10.77.{number}.{host}")).collect();
        let hosts = Self { bridge, names };
        hosts.connect(number).then_some(hosts)
    }
    fn connect(&self, number: u32) -> bool {
        let bridge = &self.bridge;
        let begun = ip(&format!("addr add 10.77.{number}.254/24 dev {bridge}")) && ip(&format!("link set {bridge} up"));
        let connected = self.names.iter().enumerate().all(|(at, name)| {
            ip(&format!("netns add {name}"))
                && ip(&format!("link add {bridge}v{at} type veth peer name eth0 netns {name}"))
                && ip(&format!("link set {bridge}v{at} master {bridge} up"))
                && ip(&format!("-n {name} addr add {name}/24 dev eth0"))
                && ip(&format!("-n {name} link set eth0 up"))
                && ip(&format!("-n {name} link set lo up"))
        });
        begun && connected
    }
    /// Cuts a host off.
    pub fn cut(&self, host: usize, how: Cut) {
        assert!(self.change(host, how, true), "{how:?}");
    }
    /// Connects it again.
    pub fn mend(&self, host: usize, how: Cut) {
        assert!(self.change(host, how, false), "{how:?}");
    }
    /// Has two hosts not reach each other, though others reach both; or reach each other again.
    pub fn part(&self, one: usize, other: usize, is_cut: bool) {
        let verb = if is_cut { "add" } else { "del" };
        for (from, to) in [(one, other), (other, one)] {
            let (from, to) = (&self.names[from], &self.names[to]);
            assert!(ip(&format!("-n {from} route {verb} blackhole {to}/32")), "{from}, {to}");
        }
    }
    fn change(&self, host: usize, how: Cut, is_cut: bool) -> bool {
        let outer = format!("{}v{host}", self.bridge);
        // A queue that has room for no packet.
        let queue = |dev: &str| {
            if is_cut { format!("qdisc add dev {dev} root bfifo limit 1") } else { format!("qdisc del dev {dev} root") }
        };
        match how {
            Cut::Down => ip(&format!("link set {outer} {}", if is_cut { "down" } else { "up" })),
            Cut::Deaf => run("tc", &queue(&outer)),
            Cut::Mute => run("ip", &format!("netns exec {} tc {}", self.names[host], queue("eth0"))),
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
        ip(&format!("link del {}", self.bridge));
    }
}

fn ip(words: &str) -> bool {
    run("ip", words)
}

fn run(program: &str, words: &str) -> bool {
    let mut command = Command::new(program);
    command.args(words.split(' ')).stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}
