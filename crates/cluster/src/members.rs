//! The members of a cluster, as the directory of each node has them.

use std::net::SocketAddr;
use std::path::Path;

use cenote_device::StoreDir;
use cenote_device::rados_dir::Address;
use cenote_model::{DeviceKind, DeviceSpec, Error, ErrorKind, HomeId, Result, StoreId};
use cenote_rpc::net::{ClusterKey, Introduction};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::RegisterPlace;

/// Name of the file with the members, in the directory of a node's store.
pub const MEMBERS_FILE: &str = "cluster";
/// Name of the file with the key.
pub const KEY_FILE: &str = "cluster.key";
/// Most members: homes have numbers of 16 bits, and 0 is a store by itself.
const MEMBERS_MAX: usize = 65_535;
/// Most mirrors that a home is to have.
pub const PROTECT_MAX: u8 = 3;

/// A node of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its home.
    pub home: HomeId,
    /// Where its daemon listens for others.
    pub address: SocketAddr,
    /// Its name, for people.
    pub name: String,
    /// It is no member any more: others have its home, or it was given up.
    pub has_left: bool,
}

/// The nodes of a cluster, seen from one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Members {
    /// Identifies the cluster.
    pub cluster: StoreId,
    /// The home of this node.
    pub home: HomeId,
    /// How many nodes the cluster survives the loss of: so many mirrors each home is to have. At most [`PROTECT_MAX`].
    pub protect: u8,
    /// Where the homes lie, if that is a pool that all nodes reach: the place of home N has `-nN` behind its name.
    pub homes_on: Option<Address>,
    /// Where the view is kept.
    pub register: RegisterPlace,
    /// How many of the first nodes keep the register; `None`: as many as a new cluster of these nodes has. Fixed when the first
    /// node joins, since it does not move.
    pub keeping: Option<u16>,
    /// Whether what nodes say to each other is encrypted.
    pub encrypt: bool,
    /// All nodes, this one too, by home.
    pub all: Vec<Member>,
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    cluster: String,
    home: u16,
    #[serde(default)]
    protect: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    homes_on: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keepers: Option<u16>,
    #[serde(default)]
    encrypt: bool,
    #[serde(default)]
    register: RegisterPlace,
    member: Vec<MemberText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberText {
    home: u16,
    name: String,
    address: SocketAddr,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    left: bool,
}

impl Members {
    /// Reads the members from a node's directory; `None` if its store is no part of a cluster.
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let Some(text) = StoreDir::open(dir)?.read_text(MEMBERS_FILE)? else { return Ok(None) };
        Self::parse(&text, dir).map(Some)
    }
    /// Writes the members into a node's directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        StoreDir::open(dir)?.write_text(MEMBERS_FILE, &self.to_text(dir)?, Mode::RUSR | Mode::WUSR)
    }
    /// The content of the file; `dir` is for errors.
    pub fn to_text(&self, dir: &Path) -> Result<String> {
        self.check(dir)?;
        let member =
            |it: &Member| MemberText { home: it.home.0, name: it.name.clone(), address: it.address, left: it.has_left };
        let text = Text {
            cluster: self.cluster.to_string(),
            home: self.home.0,
            protect: self.protect,
            homes_on: self.homes_on.as_ref().map(Address::spelled),
            keepers: self.keeping,
            encrypt: self.encrypt,
            register: self.register.clone(),
            member: self.all.iter().map(member).collect(),
        };
        let text = toml::to_string(&text)
            .map_err(|error| Error::new(ErrorKind::Internal, subject(dir)).because(error.to_string()))?;
        Ok(format!("# The nodes of the cluster that this store is a home of. Written by `cenote cluster`.\n{text}"))
    }
    /// The key of the cluster, from a node's directory; connections are made with it as the members say.
    pub fn key(&self, dir: &Path) -> Result<ClusterKey> {
        let key = ClusterKey::from_file(&dir.join(KEY_FILE))?;
        if self.encrypt { key.encrypting() } else { Ok(key) }
    }
    /// Reads the content of the file; `dir` is for errors.
    pub fn parse(text: &str, dir: &Path) -> Result<Self> {
        let found: Text = toml::from_str(text).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, subject(dir)).because(error.message().to_owned()).try_next(
                "copy the file from another node, and set `home` to this one's; or start the cluster anew: `cenote cluster start`",
            )
        })?;
        let member =
            |it: MemberText| Member { home: HomeId(it.home), address: it.address, name: it.name, has_left: it.left };
        let mut all: Vec<Member> = found.member.into_iter().map(member).collect();
        all.sort_by_key(|member| member.home);
        let members = Self {
            cluster: found.cluster.parse()?,
            home: HomeId(found.home),
            protect: found.protect,
            homes_on: found.homes_on.as_deref().map(Address::parse).transpose()?,
            register: found.register,
            keeping: found.keepers,
            encrypt: found.encrypt,
            all,
        };
        members.check(dir)?;
        Ok(members)
    }
    fn check(&self, dir: &Path) -> Result<()> {
        let wrong = |why: String| {
            Err(Error::new(ErrorKind::InvalidInput, subject(dir))
                .because(why)
                .try_next("correct the file on every node: each home and each address is there once, and `protect` is below the number of nodes"))
        };
        if self.all.is_empty() || self.all.len() > MEMBERS_MAX {
            return wrong(format!("{} members", self.all.len()));
        }
        for (at, member) in self.all.iter().enumerate() {
            if member.home == HomeId(0) {
                return wrong(format!("`{}` has home 0, which is no home of a cluster", member.name));
            }
            let is_same_place = |other: &Member| other.address == member.address && !other.has_left && !member.has_left;
            let same = self.all[..at].iter().find(|other| other.home == member.home || is_same_place(other));
            if let Some(other) = same {
                return wrong(format!("`{}` and `{}` are one node", other.name, member.name));
            }
        }
        // Of nodes that have left: so many may have been given up that what is wanted cannot be had for a while.
        let nodes = self.all.len();
        if self.protect > PROTECT_MAX || usize::from(self.protect) >= nodes {
            return wrong(format!("{nodes} nodes cannot survive the loss of {}", self.protect));
        }
        if self.protect > 0 && self.homes_on.is_some() {
            return wrong("homes in a pool have no mirrors: any node can open them".into());
        }
        if let Err(why) = self.register.check(self.all.len()) {
            return wrong(why);
        }
        if self.of(self.home).is_none() {
            return wrong(format!("home {} of this node is not among the members", self.home));
        }
        Ok(())
    }
    /// The node that has a home.
    pub fn of(&self, home: HomeId) -> Option<&Member> {
        self.all.iter().find(|member| member.home == home)
    }
    /// All homes, ascending.
    pub fn homes(&self) -> Vec<HomeId> {
        self.all.iter().map(|member| member.home).collect()
    }
    /// The nodes that keep the register, by home: they hear all others, and are asked for the view.
    pub fn keepers(&self) -> &[Member] {
        let usual = self.register.keepers(self.all.len(), losses(self.protect, self.homes_on.is_some()));
        &self.all[..self.keeping.map_or(usual, usize::from).min(self.all.len())]
    }
    /// How many nodes can be lost, whichever they are, while the register works.
    pub fn register_survives(&self) -> usize {
        self.register.survives(self.keepers().len())
    }
    /// Returns true if a home can get another host, so that hosts need leases.
    pub fn homes_move(&self) -> bool {
        self.protect > 0 || self.homes_on.is_some()
    }
    /// The place of a home in the pool; `None` if homes lie on their nodes.
    pub fn place_of(&self, home: HomeId) -> Option<Address> {
        self.homes_on.as_ref().map(|on| on.of(&home.to_string()))
    }
    /// Fails if a tier would be lost with its node, though the homes of this cluster are not.
    pub fn check_tier(&self, tier: &DeviceSpec) -> Result<()> {
        let is_reached =
            tier.kind == DeviceKind::SharedMemory || (tier.kind.is_object() && tier.kind != DeviceKind::Raid);
        match &self.homes_on {
            Some(on) if !is_reached => Err(Error::new(ErrorKind::Unsupported, format!("tier `{}`", tier.name))
                .because(format!(
                    "the homes of this cluster lie in {on}, so that any node can open them, and other nodes do not reach a tier of kind {}",
                    tier.kind.word()
                ))
                .try_next("use memory, and tiers of kind rados, s3 or swift; or make the cluster without --on, with --protect")),
            _ => Ok(()),
        }
    }
    /// Returns true if this node is one of them.
    pub fn is_keeper(&self) -> bool {
        self.keepers().iter().any(|member| member.home == self.home)
    }
    /// What this node says of itself when it connects. `incarnation`: a number drawn when its process began.
    pub fn introduction(&self, incarnation: u64) -> Introduction {
        Introduction { cluster: self.cluster.0, node: self.home.0, incarnation, view: 1 }
    }
}

/// The number of losses by which the nodes that keep the register are counted.
pub fn losses(protect: u8, homes_are_shared: bool) -> u8 {
    protect.max(u8::from(homes_are_shared))
}

fn subject(dir: &Path) -> String {
    format!("members of a cluster in {}", dir.join(MEMBERS_FILE).display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four() -> Members {
        let member = |home: u16| Member {
            home: HomeId(home),
            address: SocketAddr::from(([127, 0, 0, 1], 7000 + home)),
            name: format!("n{home}"),
            has_left: false,
        };
        Members {
            cluster: StoreId(77),
            home: HomeId(2),
            protect: 1,
            homes_on: None,
            register: RegisterPlace::Nodes,
            keeping: None,
            encrypt: true,
            all: (1..=4).map(member).collect(),
        }
    }

    #[test]
    fn members_are_read_as_they_were_written() {
        let dir = std::env::temp_dir().join(format!("cenote-members-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert_eq!(Members::read(&dir), Ok(None));
        four().write(&dir).unwrap();
        assert_eq!(Members::read(&dir), Ok(Some(four())));
        // A file of before clusters had mirrors.
        let text = four().to_text(&dir).unwrap().replace("protect = 1\n", "");
        let text = text.replace("[register]\nkind = \"nodes\"\n", "").replace("encrypt = true\n", "");
        let before = Members { protect: 0, register: RegisterPlace::First, encrypt: false, ..four() };
        assert_eq!(Members::parse(&text, &dir), Ok(before));
        let homes_on = Some(Address::parse("rados:meta/run,user=hpc,conf=/c,keyring=/k").unwrap());
        let pooled = Members { protect: 0, homes_on, ..four() };
        pooled.write(&dir).unwrap();
        assert_eq!(Members::read(&dir), Ok(Some(pooled.clone())));
        assert!(pooled.homes_move() && pooled.register_survives() == 1 && pooled.keepers().len() == 3);
        let place = pooled.place_of(HomeId(3)).unwrap();
        assert_eq!((place.to_string(), place.user.as_str()), ("rados:meta/run-n3".to_owned(), "hpc"));
        for (text, is_reached) in [
            ("name=a,kind=memory,size=1MiB", true),
            ("name=a,kind=rados,path=p/n,size=1MiB", true),
            ("name=a,kind=directory,path=/d,size=1MiB", false),
            ("name=a,kind=file,path=/f,size=1MiB", false),
            ("name=a,kind=raid,path=nodes,layout=mirror=2,size=1MiB", false),
        ] {
            let tier: DeviceSpec = text.parse().unwrap();
            assert_eq!(pooled.check_tier(&tier).map_err(|error| error.kind()).is_ok(), is_reached, "{text}");
            assert_eq!(four().check_tier(&tier), Ok(()), "{text}");
        }
        // Nodes that were given up, one of them with a part of the register.
        let mut few = four();
        (1..4).for_each(|at| few.all[at].has_left = true);
        few.write(&dir).unwrap();
        assert_eq!(Members::read(&dir), Ok(Some(few)));
        assert_eq!(four().of(HomeId(3)).unwrap().name, "n3");
        assert_eq!(four().introduction(5).node, 2);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn members_that_contradict_each_other_are_refused() {
        let dir = Path::new("/nowhere");
        let mut twice = four();
        twice.all[2].home = HomeId(1);
        let mut one_address = four();
        one_address.all[3].address = one_address.all[0].address;
        let mut none = four();
        none.all.clear();
        let mut zero = four();
        zero.all[0].home = HomeId(0);
        let elsewhere = Members { home: HomeId(9), ..four() };
        let too_many = Members { protect: 4, ..four() };
        let both = Members { homes_on: Some(Address::parse("rados:meta").unwrap()), ..four() };
        let mut too_few = four();
        too_few.all.retain(|member| member.home == too_few.home);
        for wrong in [twice, one_address, none, zero, elsewhere, too_many, both, too_few] {
            let error = wrong.check(dir).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        for text in ["", "cluster = 3", "cluster = \"zz\"\nhome = 1\nmember = []", "extra = 1"] {
            assert_eq!(Members::parse(text, dir).unwrap_err().kind(), ErrorKind::InvalidInput, "{text}");
        }
    }
}
