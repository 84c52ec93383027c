//! Dropping set-id bits when a file changes (`FUSE_HANDLE_KILLPRIV_V2`): the kernel leaves that to the file system, and
//! in return saves a request for an extended attribute before each write.

use cenote_posix::{Attr, Caller, File, FsResult, Keeps, Kind, SetAttr};

use crate::kernel::Request;

/// The mode without the bits that must not outlive a change, if it has any: `S_ISUID`, and `S_ISGID` where the group
/// may execute or the writer is no member of it (Linux, `setattr_should_drop_suidgid`).
fn without(request: &Request<'_>, attr: &Attr) -> Option<u32> {
    // In all other cases membership does not matter, and the query has a cost.
    let has_lock = attr.mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID;
    let keeps = if has_lock && is_member(request, attr.gid) { Keeps::Locks } else { Keeps::Nothing };
    let left = keeps.behind(attr.kind, attr.mode);
    (left != attr.mode && attr.kind == Kind::File).then_some(left)
}

/// Returns whether the caller is a member: the kernel sends only one group. A process that cannot be inspected counts
/// as no member.
fn is_member(request: &Request<'_>, gid: u32) -> bool {
    let listed = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", request.pid)).ok()?;
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
        Some(groups.split_whitespace().any(|group| group.parse() == Ok(gid)))
    };
    request.gid == gid || listed().unwrap_or(false)
}

/// Drops set-id bits after a write, unless root made it; returns true if the file lost some.
pub fn written(request: &Request<'_>, caller: &Caller, file: &File) -> FsResult<bool> {
    let lost = if caller.uid == 0 { None } else { without(request, &file.attr()?) };
    if let Some(mode) = lost {
        file.set_attr(caller, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
    }
    Ok(lost.is_some())
}

/// Adds the dropped bits to a change of size, unless root made it.
pub fn cut(request: &Request<'_>, attr: &Attr, set: &mut SetAttr) {
    if set.mode.is_none() && request.uid != 0 {
        set.mode = without(request, attr);
    }
}
