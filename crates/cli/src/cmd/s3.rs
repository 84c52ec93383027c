//! `s3`: serves a store to S3 clients, and manages their access keys.

use std::net::SocketAddr;
use std::path::PathBuf;

use cenote::{ContainerSpec, Error, ErrorKind, OpenOptions, Store};
use cenote_s3::{Config, GRACE_S, Key, Keys, Server, User, now_s};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{Access, Context, log};
use crate::durability::DurabilityArg;
use crate::failure::Done;

pub const HELP: &str = "\
Begin with:
  cenote s3 key add ann                        prints a key and its secret
  cenote s3                                    serves the store on http://127.0.0.1:9000
  aws --endpoint-url http://127.0.0.1:9000 s3 mb s3://results

Buckets are the containers of the store, keys the paths in their trees: what mount, preload and Python see, too.
The page docs/s3.md says what is there. Anything but loopback needs --tls-cert and --tls-key, or --insecure.";

/// Arguments of `s3`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct S3Args {
    #[command(subcommand)]
    command: Option<S3Command>,
    /// Directory of the store [default: as --store]
    #[arg(value_name = "STORE")]
    dir: Option<PathBuf>,
    /// Address to listen on; port 0 for a free one, which is printed
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9000")]
    listen: SocketAddr,
    /// File with the TLS certificates, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with the TLS private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen on addresses other than loopback without TLS: anybody on the network path can read the traffic
    #[arg(long)]
    insecure: bool,
    /// A domain whose subdomains are buckets (`bucket.DOMAIN`), in addition to paths
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// The region reported to clients
    #[arg(long, value_name = "NAME", default_value = "us-east-1")]
    region: String,
    /// When updates are acknowledged, for buckets that clients create
    #[arg(long, value_enum, default_value = "async", value_name = "MODE")]
    durability: DurabilityArg,
}

#[derive(Subcommand, Debug)]
enum S3Command {
    /// Create, list, replace and remove access keys
    #[command(subcommand)]
    Key(KeyCommand),
}

#[derive(Subcommand, Debug)]
enum KeyCommand {
    /// Create a key for a user, and the user if there is none; prints the secret, once
    Add {
        /// The user
        user: String,
        /// Numeric user who owns the created files and whose rights apply [default: the user who runs this; root must
        /// name one]
        #[arg(long)]
        uid: Option<u32>,
        /// Numeric group of its files [default: that user's group]
        #[arg(long)]
        gid: Option<u32>,
        /// Use this key id, with the secret from the environment variable CENOTE_S3_SECRET
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
    /// List keys, without secrets
    List,
    /// Create a new key for a user; the previous one works for a while longer
    Rotate {
        /// The user
        user: String,
        /// Hours that the previous key still works
        #[arg(long, value_name = "HOURS", default_value_t = GRACE_S / 3600)]
        grace: u64,
    },
    /// Remove a user with all keys, or one key
    Remove {
        /// The user
        user: String,
        /// Only this key
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
}

pub fn s3(context: &mut Context<'_>, args: &S3Args) -> Done {
    match &args.command {
        Some(S3Command::Key(command)) => key(context, command),
        None => serve(context, args),
    }
}

fn serve(context: &mut Context<'_>, args: &S3Args) -> Done {
    let is_open = args.tls_cert.is_none() && !args.listen.ip().is_loopback();
    if is_open && !args.insecure {
        return Err(Error::new(ErrorKind::InvalidInput, format!("address {}", args.listen))
            .because("without TLS, others on the network could read the data")
            .try_next("give --tls-cert and --tls-key, or --insecure if the network is trusted")
            .into());
    }
    log::begin("s3s"); // which tells of each refused request
    let store = match &args.dir {
        Some(dir) => Store::open_with(dir, &OpenOptions { mode: context.mode(), ..OpenOptions::default() })?,
        None => context.open(Access::Write)?,
    };
    let files = cenote_posix::Options::default();
    // The server owns the buckets, and decides who may do what in them.
    let new_containers = ContainerSpec { durability: args.durability.into(), ..files.new_containers.clone() };
    let files = cenote_posix::Options { new_containers, ..files };
    let config = Config {
        listen: args.listen,
        tls: args.tls_cert.clone().zip(args.tls_key.clone()),
        domain: args.domain.clone(),
        region: args.region.clone(),
        files,
        keyed: Some(std::sync::Arc::new(super::s3_zarr::ZarrBuckets::new(&store))),
    };
    let has_keys = !Keys::open(&store)?.keys()?.is_empty();
    let server = Server::start(&store, &config)?;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", server.address()?);
    if context.out.json {
        context.out.document(&json!({ "url": url }))?;
    } else {
        context.out.line(format!("serving {} on {url}", store.dir().display()))?;
        if !has_keys {
            context.out.line("nobody has a key yet: `cenote s3 key add USER` makes one")?;
        }
    }
    context.out.flush()?;
    server.run()?;
    Ok(store.close()?)
}

fn key(context: &mut Context<'_>, command: &KeyCommand) -> Done {
    let store = context.open(Access::Write)?;
    let keys = Keys::open(&store)?;
    match command {
        KeyCommand::Add { user, uid, gid, id } => {
            let (uid, gid) = whose(user, *uid, *gid)?;
            let user = User { name: user.clone(), uid, gid };
            let made = match id {
                None => keys.add(&user)?,
                Some(id) => {
                    let secret = std::env::var("CENOTE_S3_SECRET").map_err(|_| {
                        Error::new(ErrorKind::InvalidInput, "secret of the key")
                            .because("the environment variable CENOTE_S3_SECRET is not set")
                    })?;
                    keys.import(&user, id, &secret)?
                }
            };
            tell(context, &made)?;
        }
        KeyCommand::List => list(context, &keys)?,
        KeyCommand::Rotate { user, grace } => {
            let made = keys.rotate(user, grace * 3600)?;
            tell(context, &made)?;
        }
        KeyCommand::Remove { user, id } => {
            let removed = keys.remove(user, id.as_deref())?;
            if context.out.json {
                context.out.document(&json!({ "user": user, "removed": removed }))?;
            } else {
                context.out.line(format!("removed {removed} keys of {user}"))?;
            }
        }
    }
    Ok(store.close()?)
}

/// Returns the numeric user and group of a key: by default the user who runs this. Root must be named explicitly.
fn whose(user: &str, uid: Option<u32>, gid: Option<u32>) -> cenote::Result<(u32, u32)> {
    let (me, my_group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    match uid {
        None if me == 0 => Err(Error::new(ErrorKind::InvalidInput, format!("key for `{user}`"))
            .because("root runs this, and a key with root's rights may read and change every file")
            .try_next(
                "name the owner of the files that it creates: --uid UID [--gid GID]; --uid 0 gives it root's rights",
            )),
        None => Ok((me, gid.unwrap_or(my_group))),
        Some(uid) if uid == me => Ok((uid, gid.unwrap_or(my_group))),
        Some(uid) => Ok((uid, gid.or_else(|| group_of(uid)).unwrap_or(uid))),
    }
}

/// Returns the group of a user in `/etc/passwd`.
fn group_of(uid: u32) -> Option<u32> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        (fields.next()?.parse() == Ok(uid)).then(|| fields.next()?.parse().ok())?
    })
}

fn tell(context: &mut Context<'_>, key: &Key) -> Done {
    if context.out.json {
        let told = json!({ "user": key.user, "access_key_id": key.id, "secret_access_key": key.secret });
        return context.out.document(&told);
    }
    context.out.line(format!("AWS_ACCESS_KEY_ID={}", key.id))?;
    context.out.line(format!("AWS_SECRET_ACCESS_KEY={}", key.secret))
}

fn list(context: &mut Context<'_>, keys: &Keys) -> Done {
    let users = keys.users()?;
    let all = keys.keys()?;
    let state = |key: &Key| match key.until_s {
        None => "works".to_owned(),
        Some(until) if until > now_s() => format!("works for {} min more", (until - now_s()).div_ceil(60)),
        Some(_) => "ended".to_owned(),
    };
    if context.out.json {
        let told: Vec<_> = all
            .iter()
            .map(|key| json!({ "user": key.user, "access_key_id": key.id, "made_s": key.made_s, "until_s": key.until_s }))
            .collect();
        return context.out.document(&json!({ "keys": told }));
    }
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|key| {
            let user = users.iter().find(|user| user.name == key.user);
            let ids = user.map_or_else(String::new, |user| format!("{}:{}", user.uid, user.gid));
            vec![key.user.clone(), ids, key.id.clone(), state(key)]
        })
        .collect();
    context.out.table(&["user", "files of", "key", "state"], &rows)
}
