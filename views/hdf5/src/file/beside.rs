//! Files opened through another file: targets of external links.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Result;
use crate::error::{h5_check, h5_id};
use crate::ffi::Hid;
use crate::ffi::types::{H5F_ACC_DEFAULT, H5F_ACC_RDWR, H5F_ACC_SWMR_WRITE, H5F_CLOSE_WEAK, hid_t};
use crate::team;
use crate::vol::info;

use super::in_use::Rule;
use super::open::{look_up, native_at, rule_of};
use super::opening::{Opening, finish};
use super::stub;
use super::{File, path};

/// Opens the file that an external link in `from` names: relative to `from`, or at the path in the name. The link
/// access properties may say how; otherwise it is opened like `from`.
pub fn open_external(from: &Arc<File>, name: &[u8], lapl: hid_t) -> Result<Arc<File>> {
    let named = path::from_bytes(name)?;
    let beside = path::of_label(&from.path).parent().unwrap_or(Path::new("/")).join(named);
    let chosen = if named.is_absolute() || !beside.exists() { named } else { &beside };
    let path = path::absolute(chosen)?;
    let h5 = from.h5;
    let mut flags = H5F_ACC_DEFAULT;
    // SAFETY: plain queries of a list that is valid during the call; the ids that they return are owned here.
    let fapl = unsafe {
        let own = if lapl > 0 {
            (h5.H5Pget_elink_acc_flags)(lapl, &raw mut flags);
            Hid::new(h5, (h5.H5Pget_elink_fapl)(lapl))
        } else {
            None
        };
        let fapl = match own {
            Some(fapl) => fapl,
            None => access_of(from)?,
        };
        // Nobody closes this file by its own id, so the close degree must not be one that closes its objects with it.
        h5_check("H5Pset_fclose_degree", (h5.H5Pset_fclose_degree)(fapl.get(), H5F_CLOSE_WEAK))?;
        fapl
    };
    if flags == H5F_ACC_DEFAULT {
        flags = from.intent.load(Ordering::Relaxed);
        if path == path::of_label(&from.path) {
            return Ok(from.clone());
        }
        if stub::is_native(&path) {
            flags &= !(H5F_ACC_RDWR | H5F_ACC_SWMR_WRITE); // native files are only read, whoever links to them
        }
    }
    open_beside(from, &path, flags, fapl.get())
}

/// Opens the file at a path that `from` names in another way, with the access of `from`.
pub fn open_named(from: &Arc<File>, place: &Path) -> Result<Arc<File>> {
    let path = path::absolute(place)?;
    if path == path::of_label(&from.path) {
        return Ok(from.clone());
    }
    let mut flags = from.intent.load(Ordering::Relaxed);
    if stub::is_native(&path) {
        flags &= !(H5F_ACC_RDWR | H5F_ACC_SWMR_WRITE);
    }
    let fapl = access_of(from)?;
    // Nobody closes this file by its own id, so the close degree must not be one that closes its objects with it.
    // SAFETY: a plain call with a list of ours.
    let status = unsafe { (from.h5.H5Pset_fclose_degree)(fapl.get(), H5F_CLOSE_WEAK) };
    h5_check("H5Pset_fclose_degree", status)?;
    open_beside(from, &path, flags, fapl.get())
}

/// Opens a file that rank 0 has reached from `from` by external links.
pub fn open_member(from: &Arc<File>, path: &[u8]) -> Result<Arc<File>> {
    let fapl = access_of(from)?;
    open_beside(from, path::from_bytes(path)?, from.intent.load(Ordering::Relaxed), fapl.get())
}

/// Opens a file of the same store, for the same ranks.
fn open_beside(from: &Arc<File>, path: &Path, flags: u32, fapl: hid_t) -> Result<Arc<File>> {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    let store = (from.store.clone(), from.shared.store_path().to_path_buf());
    if let Some(native) = native_at(from.h5, bytes, flags, fapl, Some(&store.0))? {
        return Ok(native);
    }
    // Ranks that write a file together follow its links together, though each opens the other file by itself.
    let rule = if from.is_parallel { Rule::Free } else { rule_of(from.h5, fapl) };
    let opening = look_up(from.h5, bytes, flags, fapl, Some(store), rule)?;
    finish(from.h5, Opening { team: from.team.clone(), ..opening })
}

/// The access properties for a file opened through another. The MPI driver is left out: copying its communicator takes
/// all ranks, and they need not follow a link together.
fn access_of(from: &Arc<File>) -> Result<Hid> {
    let h5 = from.h5;
    if !team::is_mpio(h5, from.fapl.get()) {
        // SAFETY: a plain call.
        return h5_id(h5, "H5Pcopy", unsafe { (h5.H5Pcopy)(from.fapl.get()) });
    }
    // SAFETY: a plain call.
    let fapl = h5_id(h5, "H5Pcreate", unsafe { (h5.H5Pcreate)(h5.H5P_CLS_FILE_ACCESS_ID_g()) })?;
    info::set_store(h5, fapl.get(), from.connector.get(), from.shared.store_path())?;
    Ok(fapl)
}
