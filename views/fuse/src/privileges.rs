//! Set-id bits go when a file changes (`FUSE_HANDLE_KILLPRIV_V2`): the kernel leaves that to the file system, and saves a request for an extended
//! attribute before each write in return.

use cenote_posix::{Attr, Caller, File, FsResult, Kind, SetAttr};

/// The mode without what must not outlive a change, if there is any of it: `S_ISUID`, and `S_ISGID` where the group may execute.
fn without(attr: &Attr) -> Option<u32> {
    let group = if attr.mode & libc::S_IXGRP == 0 { 0 } else { libc::S_ISGID };
    let lost = attr.mode & (libc::S_ISUID | group);
    (lost != 0 && attr.kind == Kind::File).then_some(attr.mode & !lost)
}

/// Somebody writes to the file, who is not root: true if it lost something by that.
pub fn written(caller: &Caller, file: &File) -> FsResult<bool> {
    let lost = if caller.uid == 0 { None } else { without(&file.attr()?) };
    if let Some(mode) = lost {
        file.set_attr(caller, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
    }
    Ok(lost.is_some())
}

/// Adds to a change of size what it takes with it, unless root made it.
pub fn cut(caller: &Caller, attr: &Attr, set: &mut SetAttr) {
    if set.mode.is_none() && caller.uid != 0 {
        set.mode = without(attr);
    }
}
