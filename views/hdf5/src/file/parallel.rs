//! Opening a file from all ranks of an MPI program: one rank creates or finds it, the others join it there.

use std::sync::Arc;

use cenote::{ContainerId, Error, ErrorKind};

use crate::Result;
use crate::ffi::Api;
use crate::ffi::types::{H5F_ACC_RDWR, hid_t};
use crate::meta::bytes::{Encode, Reader};
use crate::team::pending::Address;
use crate::team::wire::Wire;
use crate::team::{Call, Team};
use crate::vol::info;

use super::making::metadata;
use super::open::store_of;
use super::opening::{Opening, finish};
use super::superblock::Super;
use super::{File, checkpoint, path};

/// Opens a file by `first`; with the MPI-IO driver one rank does so, and the others join it at the place that
/// it sends.
pub fn together<'a>(
    h5: &'static Api,
    kind: &'static str,
    fapl: hid_t,
    first: impl FnOnce() -> Result<Opening<'a>>,
    mine: impl FnOnce(Opening<'a>) -> Opening<'a>,
) -> Result<Arc<File>> {
    let Some(team) = Team::of(h5, fapl)? else { return finish(h5, first()?) };
    let mut made = None;
    let there = team.once(&Call::new(kind), |_| {
        let opening = first()?;
        let there = There { table: team.share(), ..There::of(&opening) };
        made = Some(opening);
        Ok(there)
    })?;
    let opening = if let Some(opening) = made {
        Ok(opening)
    } else {
        if let Some(at) = there.table {
            team.share_at(at);
        }
        there.join(h5, fapl).map(mine)
    };
    let opening = team.agree(kind, opening)?;
    finish(h5, Opening { team: Some(team), ..opening })
}

/// Where rank 0 has opened a file.
struct There {
    path: Vec<u8>,
    sup: Super,
    intent: u32,
    user_block: u64,
    /// The file's container.
    home: u64,
    /// The container to read: the file's own, or a snapshot of it.
    container: u64,
    /// The table that notes what ranks launch.
    table: Option<Address>,
}

impl There {
    fn of(opening: &Opening<'_>) -> Self {
        let path = std::os::unix::ffi::OsStrExt::as_bytes(opening.path.as_os_str()).to_vec();
        let (user_block, home, container) = (opening.user_block, opening.home.0, opening.container.id().0);
        Self { path, sup: opening.sup, intent: opening.intent, user_block, home, container, table: None }
    }
    fn join<'a>(self, h5: &'static Api, fapl: hid_t) -> Result<Opening<'a>> {
        let path = path::from_bytes(&self.path)?.to_path_buf();
        let (store, store_path) = store_of(h5, fapl)?;
        let mut found = match store.container_by_id(ContainerId(self.home)) {
            Ok(container) => Super::read(&container)?.map(|sup| (container, sup)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let asks = info::atomic_of_fapl(h5, fapl);
        let mut writing = None;
        match &found {
            Some((file, sup)) if self.intent & H5F_ACC_RDWR != 0 => {
                writing = checkpoint::enter(&store, &store_path, file, sup.is_published, asks)?;
            }
            Some((file, _)) if file.id().0 != self.container => {
                // A snapshot published since is another one.
                let published =
                    checkpoint::published(&store_path, file, asks)?.filter(|it| it.id().0 == self.container);
                found = published.map(|container| (container, self.sup));
            }
            _ => {}
        }
        let found = found.filter(|(_, sup)| sup.generation == self.sup.generation);
        let (container, sup) = found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("unable to open file: name = '{}'", path.display()))
                .because(format!(
                    "rank 0 has opened it, but store {} of this rank does not hold it",
                    store_path.display()
                ))
                .try_next("give all ranks the same store: on each node of a cluster, the directory of that node")
        })?;
        let meta = metadata(&container, sup.generation);
        let (intent, user_block) = (self.intent, self.user_block);
        Ok(Opening { user_block, intent, writing, ..Opening::new(store, store_path, container, sup, meta, path, fapl) })
    }
}

impl Wire for There {
    fn encode(&self, w: &mut Vec<u8>) {
        w.put_bytes(&self.path);
        w.put_bytes(&self.sup.encode());
        w.put_u32(self.intent);
        w.put_u64(self.user_block);
        w.put_u64(self.home);
        w.put_u64(self.container);
        w.put_u8(u8::from(self.table.is_some()));
        self.table.unwrap_or_default().encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (path, sup) = (r.bytes()?.to_vec(), Super::decode(r.bytes()?)?);
        let (intent, user_block) = (r.u32()?, r.u64()?);
        let (home, container) = (r.u64()?, r.u64()?);
        let (has_table, at) = (r.u8()? != 0, Address::decode(r)?);
        Ok(Self { path, sup, intent, user_block, home, container, table: has_table.then_some(at) })
    }
}
