//! A cluster that survives the loss of a node, beside the services that people use for the same: records beside Redis with a
//! replica, transactions over two nodes beside etcd on three; and a tier with parity over six nodes beside bare TCP.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use cenote::{ArrangeTarget, ContainerSpec, Index, LayoutWish, Store};

use crate::Outcome;
use crate::cluster::Cluster;
use crate::measure::{Beside, Report, rate};
use crate::places::BenchDir;

const MIB: usize = 1 << 20;
const VALUE: usize = 120;
/// How long a peer may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);
const MEMORY: &str = "name=memory,kind=memory,size=512MiB";

fn key(number: u64) -> String {
    format!("{:016x}{number:08}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Processes of a peer; they end when this value is dropped.
struct Peers(Vec<Child>);

impl Peers {
    /// `None` if the program is not installed.
    fn start(&mut self, command: &mut Command) -> Option<()> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        self.0.push(child);
        Some(())
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ports that nobody has now.
fn free_ports<const N: usize>() -> std::io::Result<[u16; N]> {
    let listeners: Vec<TcpListener> = (0..N).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// A connection to a peer that has begun by now.
fn connect(port: u16) -> Outcome<TcpStream> {
    let begin = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A Redis with one replica, both in memory, and a connection to it.
struct Redis {
    _peers: Peers,
    lines: BufReader<TcpStream>,
}

impl Redis {
    fn start(dir: &Path) -> Outcome<Option<Self>> {
        let [first, second] = free_ports()?;
        let mut peers = Peers(Vec::new());
        for (port, of) in [(first, None), (second, Some(first))] {
            let mut command = Command::new("redis-server");
            command.current_dir(dir).args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.args(["--port", &port.to_string(), "--repl-diskless-sync-delay", "0"]);
            if let Some(of) = of {
                command.args(["--replicaof", "127.0.0.1", &of.to_string()]);
            }
            if peers.start(&mut command).is_none() {
                return Ok(None);
            }
        }
        let mut redis = Self { _peers: peers, lines: BufReader::new(connect(first)?) };
        let begin = Instant::now();
        while redis.put("begin")? != 1 {
            if begin.elapsed() > PATIENCE {
                return Err("the replica of Redis does not follow".into());
            }
        }
        Ok(Some(redis))
    }
    /// Sets a record and waits for the replica, in one round trip. Returns how many replicas have it.
    fn put(&mut self, key: &str) -> Outcome<u64> {
        let value = "7".repeat(VALUE);
        let set = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${VALUE}\r\n{value}\r\n", key.len());
        let wait = "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n1000\r\n";
        self.lines.get_mut().write_all(format!("{set}{wait}").as_bytes())?;
        let (mut done, mut replicas) = (String::new(), String::new());
        self.lines.read_line(&mut done)?;
        self.lines.read_line(&mut replicas)?;
        match (done.trim(), replicas.trim().strip_prefix(':')) {
            ("+OK", Some(count)) => Ok(count.parse()?),
            _ => Err(format!("Redis says {done}{replicas}").into()),
        }
    }
}

/// An etcd of three members with its data in memory, and a connection to the first.
struct Etcd {
    _peers: Peers,
    lines: BufReader<TcpStream>,
}

impl Etcd {
    fn start(dir: &Path) -> Outcome<Option<Self>> {
        let ports: [u16; 6] = free_ports()?;
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let members: Vec<String> = (0..3).map(|at| format!("m{at}={}", url(ports[3 + at]))).collect();
        let mut peers = Peers(Vec::new());
        for at in 0..3 {
            let (client, peer) = (url(ports[at]), url(ports[3 + at]));
            let mut command = Command::new("etcd");
            command.arg("--data-dir").arg(dir.join(format!("etcd{at}"))).args(["--name", &format!("m{at}")]);
            command.args(["--log-level", "error", "--initial-cluster", &members.join(",")]);
            command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
            command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
            if peers.start(&mut command).is_none() {
                return Ok(None);
            }
        }
        let mut etcd = Self { _peers: peers, lines: BufReader::new(connect(ports[0])?) };
        let begin = Instant::now();
        while let Err(error) = etcd.commit(0) {
            if begin.elapsed() > PATIENCE {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(100));
            etcd.lines = BufReader::new(connect(ports[0])?);
        }
        Ok(Some(etcd))
    }
    /// Puts two records in one transaction.
    fn commit(&mut self, number: u64) -> Outcome {
        let code = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let value = code(&"7".repeat(VALUE));
        let put = |name: &str| {
            let key = code(&format!("{name}/{}", key(number)));
            format!(r#"{{"requestPut":{{"key":"{key}","value":"{value}"}}}}"#)
        };
        let body = format!(r#"{{"success":[{},{}]}}"#, put("first"), put("second"));
        let head = format!("POST /v3/kv/txn HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n", body.len());
        self.lines.get_mut().write_all(format!("{head}{body}").as_bytes())?;
        let (mut line, mut len, mut is_first) = (String::new(), 0, true);
        loop {
            line.clear();
            self.lines.read_line(&mut line)?;
            let text = line.trim().to_ascii_lowercase();
            if is_first && !text.ends_with("200 ok") {
                return Err(format!("etcd says {text}").into());
            }
            is_first = false;
            if let Some(bytes) = text.strip_prefix("content-length:") {
                len = bytes.trim().parse()?;
            }
            if text.is_empty() {
                break;
            }
        }
        let mut answer = vec![0; len];
        self.lines.read_exact(&mut answer)?;
        if String::from_utf8_lossy(&answer).contains(r#""succeeded":true"#) {
            Ok(())
        } else {
            Err(format!("etcd says {}", String::from_utf8_lossy(&answer)).into())
        }
    }
}

fn index(store: &Store, label: &str) -> Outcome<Index> {
    Ok(store.create_container(label, &ContainerSpec::default())?.create_index(None)?)
}

/// Records that survive the loss of a node once they are acknowledged.
pub fn records(report: &mut Report) -> Outcome {
    let place = BenchDir::in_memory("redis")?;
    let Some(mut redis) = Redis::start(place.path())? else {
        report.skip("cluster.index_put", "no redis-server is installed");
        return Ok(());
    };
    let cluster = Cluster::start("cluster-records", &["--local", "3", "--protect", "1", "--tier", MEMORY])?;
    let records = index(&cluster.stores[0], "records")?;
    cluster.stores[0].protect(1, PATIENCE)?;
    let count = report.settings.scaled(5_000);
    let (value, mut next, mut other) = ([7u8; VALUE], 0, 0);
    report.pairs(
        "cluster.index_put",
        "1/s",
        &mut || {
            rate(count, || {
                for _ in 0..count {
                    next += 1;
                    records.put(&[(key(next).as_bytes(), &value[..])])?;
                }
                Ok(())
            })
        },
        &mut [Beside {
            name: "Redis with a replica, WAIT 1",
            wanted: Some(2.0),
            run: &mut || {
                rate(count, || {
                    for _ in 0..count {
                        other += 1;
                        if redis.put(&key(other))? != 1 {
                            return Err("the replica is late".into());
                        }
                    }
                    Ok(())
                })
            },
        }],
    )
}

/// Transactions over two nodes, all or nothing.
pub fn transactions(report: &mut Report) -> Outcome {
    let place = BenchDir::in_memory("etcd")?;
    let Some(mut etcd) = Etcd::start(place.path())? else {
        report.skip("cluster.transaction", "no etcd is installed (Debian: etcd-server)");
        return Ok(());
    };
    let cluster = Cluster::start("cluster-transactions", &["--local", "3", "--protect", "1", "--tier", MEMORY])?;
    let [first, second] = &cluster.stores;
    let (here, there) = (index(first, "here")?, index(second, "there")?);
    let there = first.container("there")?.index(there.key().index);
    first.protect(1, PATIENCE)?;
    let count = report.settings.scaled(1_000);
    let (value, mut next, mut other) = ([7u8; VALUE], 0, 0);
    report.pairs(
        "cluster.transaction",
        "1/s",
        &mut || {
            rate(count, || {
                for _ in 0..count {
                    next += 1;
                    let mut both = first.begin();
                    both.put(&here, key(next).as_bytes(), &value)?;
                    both.put(&there, key(next).as_bytes(), &value)?;
                    both.commit()?;
                }
                Ok(())
            })
        },
        &mut [Beside {
            name: "etcd, three members in memory, by HTTP",
            wanted: Some(3.0),
            run: &mut || {
                rate(count, || {
                    for _ in 0..count {
                        other += 1;
                        etcd.commit(other)?;
                    }
                    Ok(())
                })
            },
        }],
    )
}

/// Bytes of four data and two parity parts on six nodes, written, and read with all nodes and without one of them.
pub fn parity(report: &mut Report) -> Outcome {
    const NODES: &str = "6";
    const SIZE: usize = 256 * MIB;
    let disk = "name=disk,kind=directory,path=disk,size=4GiB";
    let parts = "name=parts,kind=raid,path=nodes,layout=4+2,size=2GiB";
    let cluster =
        Cluster::start("cluster-parity", &["--local", NODES, "--tier", MEMORY, "--tier", disk, "--tier", parts])?;
    let [store, _] = &cluster.stores;
    let kept = store.create_container("kept", &ContainerSpec::default())?;
    let wish: LayoutWish = "4+2".parse()?;
    store.set_layout(&ArrangeTarget::Container(kept.id()), &wish, false)?;
    let piece: Vec<u8> = (0..MIB).map(|at| (at * 31) as u8).collect();
    let mut last = None;
    report.pairs(
        "cluster.write_4+2",
        "B/s",
        &mut || {
            let object = kept.create_object(None, Some(16))?;
            let written = rate(SIZE as u64, || {
                for at in (0..SIZE).step_by(MIB) {
                    object.write_at(at as u64, &piece)?;
                }
                Ok(store.flush()?)
            });
            if let Some(before) = last.replace(object) {
                kept.delete_object(cenote::Object::key(&before).object)?;
            }
            written
        },
        &mut [Beside { name: "bare TCP", wanted: Some(0.45), run: &mut || stream(SIZE, &piece) }],
    )?;
    let object = last.ok_or("nothing was written")?;
    let read = || -> Outcome<f64> {
        store.arrange(&ArrangeTarget::Container(kept.id()), &cenote::Arrange::Evict, false)?;
        let mut buf = vec![0; MIB];
        rate(SIZE as u64, || {
            for at in (0..SIZE).step_by(MIB) {
                object.read_at(at as u64, &mut buf)?;
                black_box(&mut buf);
            }
            Ok(())
        })
    };
    let healthy = [read()?, read()?, read()?];
    cluster.stop(4)?;
    let degraded = [read()?, read()?, read()?];
    let median = |mut all: [f64; 3]| {
        all.sort_by(f64::total_cmp);
        all[1]
    };
    report.limit("cluster.read_4+2_degraded", "of healthy, inverse", median(healthy) / median(degraded), "2", 2.0);
    Ok(())
}

/// Bytes in a second over a bare TCP connection, from memory to memory.
fn stream(len: usize, piece: &[u8]) -> Outcome<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        let taker = scope.spawn(move || -> std::io::Result<()> {
            let (mut socket, _) = listener.accept()?;
            let mut buf = vec![0; MIB];
            let mut left = len;
            while left > 0 {
                left -= socket.read(&mut buf)?.max(1);
            }
            socket.write_all(&[1])
        });
        let mut socket = TcpStream::connect(address)?;
        rate(len as u64, || {
            for _ in (0..len).step_by(piece.len()) {
                socket.write_all(piece)?;
            }
            socket.read_exact(&mut [0])?;
            taker.join().map_err(|_| "the taker ended")??;
            Ok(())
        })
    })
}
