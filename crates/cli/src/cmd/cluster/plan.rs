//! The nodes of a new cluster, from the command line.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;

use cenote::{Error, ErrorKind, HomeId, Result, StoreId};
use cenote_cluster::{Members, RegisterPlace, losses};
use cenote_device::RadosMetaDir;
use cenote_device::rados_dir::Address;

use super::StartArgs;
use super::nodes::{Node, Nodes};

/// The first port of nodes on this host: below are those of well-known services.
const FIRST_PORT: u16 = 10_000;

/// The names of the nodes that the arguments ask for; none for those of the cluster that is there.
pub(super) fn names(args: &StartArgs) -> Result<Vec<String>> {
    let listed = match &args.hostfile {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|error| Error::io(file.display().to_string(), &error))?;
            let hosts = text.lines().map(|line| line.split('#').next().unwrap_or("").trim().to_owned());
            hosts.filter(|host| !host.is_empty()).collect()
        }
        None => args.hosts.iter().map(|host| host.trim().to_owned()).filter(|host| !host.is_empty()).collect(),
    };
    let names: Vec<String> = match args.local {
        Some(count) => (1..=count).map(|number| format!("n{number}")).collect(),
        None => listed,
    };
    names.iter().try_for_each(|name| check_name(name))?;
    if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("host `{}`", names[at]))
            .because("it is in the list twice")
            .try_next("name each host once: a node has all of its host's devices"));
    }
    Ok(names)
}

/// Fails if no host can have this name, which is a directory's too.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.contains('/') || name.starts_with('-') || name.starts_with('.') {
        return Err(Error::new(ErrorKind::InvalidInput, format!("host `{name}`")).because("no host has such a name"));
    }
    Ok(())
}

/// The nodes of a new cluster.
pub(super) fn plan(args: &StartArgs, names: Vec<String>) -> Result<Nodes> {
    if names.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "cluster")
            .because("no nodes are named")
            .try_next("name them with --hosts or --hostfile, or make some on this host with --local 4"));
    }
    let protect = args.protect.unwrap_or(0);
    if protect > 0
        && let Some(on) = &args.on
    {
        return Err(Error::new(ErrorKind::Unsupported, format!("--protect {protect} with --on {on}"))
            .because("homes in a pool have no mirrors: any node can open them")
            .try_next("leave --protect out; the pool's own copies protect what lies there"));
    }
    if usize::from(protect) >= names.len() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("cluster of {} nodes", names.len()))
            .because(format!("it cannot survive the loss of {protect}"))
            .try_next("name more nodes than --protect says"));
    }
    let register = match &args.register {
        Some(text) => RegisterPlace::parse(text)?,
        None => RegisterPlace::usual(names.len(), losses(protect, args.on.is_some())),
    };
    register.check(names.len()).map_err(|why| {
        Error::new(ErrorKind::InvalidInput, format!("cluster of {} nodes", names.len()))
            .because(why)
            .try_next("name more nodes, or keep the register elsewhere: `docs/cluster.md`")
    })?;
    let addresses = match args.local {
        Some(_) => free_addresses(names.len())?,
        None => names.iter().map(|host| address_of(host, args.port)).collect::<Result<_>>()?,
    };
    let launcher = match (&args.launcher, args.local) {
        (Some(launcher), _) => launcher.split_whitespace().map(str::to_owned).collect(),
        (None, Some(_)) => Vec::new(),
        (None, None) => ["ssh", "-o", "BatchMode=yes", "{host}"].map(str::to_owned).to_vec(),
    };
    let members = names.into_iter().zip(addresses).map(|(name, address)| Node { name, address, left: false }).collect();
    let nodes = Nodes {
        cluster: random_id()?.to_string(),
        launcher,
        members,
        tiers: args.tiers.clone(),
        protect,
        homes_on: args.on.as_ref().map(Address::spelled),
        register,
        encrypt: args.encrypt,
        keepers: None,
        has_begun: false,
    };
    check_places(&nodes, args)?;
    Ok(nodes)
}

/// Fails if a tier is none that the cluster can have, or if a home cannot be made where it is to lie: before anything is made.
fn check_places(nodes: &Nodes, args: &StartArgs) -> Result<()> {
    let members = nodes.members(HomeId(1))?;
    let names: Vec<&str> = nodes.members.iter().map(|node| node.name.as_str()).collect();
    for tier in &args.tiers {
        let tier = super::node::parsed(tier)?;
        members.check_tier(&tier)?;
        super::places::check_places(&tier, &names)?;
    }
    members.homes().into_iter().try_for_each(|home| check_place(&members, home))
}

/// Fails if no home can be made in its place in the pool.
pub(super) fn check_place(members: &Members, home: HomeId) -> Result<()> {
    let Some(place) = members.place_of(home) else { return Ok(()) };
    // Nothing of the directory is used.
    RadosMetaDir::check_free(&place.connect(Path::new("/nonexistent"))?).map_err(|error| match error.kind() {
        ErrorKind::Exists => error.try_next(
            "choose another name: `--on rados:POOL/NAME`; or start the cluster that has it: `cenote cluster start` with its directory",
        ),
        _ => error,
    })
}

/// So many addresses of this host on which nobody listens, for daemons that will begin. Below the ports that the system gives to
/// whoever asks for any: it would give them to others meanwhile.
pub(super) fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    let given = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first_given: u16 = given.split_whitespace().next().and_then(|port| port.parse().ok()).unwrap_or(FIRST_PORT);
    let all = FIRST_PORT..first_given;
    // Two clusters that begin at once begin at different ones.
    let begin = usize::from(random_id()?.0 as u16) % all.len().max(1);
    let bind = |port: u16| TcpListener::bind(("127.0.0.1", port)).ok();
    let turned = all.clone().skip(begin).chain(all.take(begin));
    let mut held: Vec<TcpListener> = turned.filter_map(bind).take(count).collect();
    let fail = |error: std::io::Error| Error::io("a free port", &error);
    while held.len() < count {
        held.push(TcpListener::bind("127.0.0.1:0").map_err(fail)?);
    }
    held.iter().map(|listener| listener.local_addr().map_err(fail)).collect()
}

pub(super) fn address_of(host: &str, port: u16) -> Result<SocketAddr> {
    let unknown = |why: String| {
        Error::new(ErrorKind::NotFound, format!("host `{host}`"))
            .because(why)
            .try_next("check the name, or give the address itself")
    };
    let mut found = (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    found.next().ok_or_else(|| unknown("the name has no address".into()))
}

pub(super) fn random_id() -> Result<StoreId> {
    let mut bytes = [0; 16];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(16) => Ok(StoreId(u128::from_ne_bytes(bytes))),
        Ok(_) => Err(Error::new(ErrorKind::Io, "the system's random numbers").because("there were too few")),
        Err(errno) => Err(Error::io("the system's random numbers", &errno.into())),
    }
}
