//! Meeting files: files in shared memory that the clients of a store on one machine lock and map, without the engine.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use cenote_device::home::memory_dir;
use cenote_host::home::shm_base;
use cenote_host::meeting::{MeetingFile, meeting_dir, remove_unused};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;

use crate::Store;

impl Store {
    /// Opens the directory of the meeting files of one sort: only the creator of the store, and root, may enter it.
    pub fn meeting_dir(&self, sort: &str) -> io::Result<PathBuf> {
        let above = memory_dir(&shm_base(), self.id()).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
        meeting_dir(&above, sort)
    }
    /// Opens or creates the meeting file of that sort and name; its descriptor is at least `lowest` if possible.
    pub fn meeting_file(&self, sort: &str, name: &str, lowest: i32) -> io::Result<MeetingFile> {
        MeetingFile::open(&self.meeting_dir(sort)?.join(name), lowest)
    }
    /// Returns the names of the meeting files of that sort.
    pub fn meeting_names(&self, sort: &str) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.meeting_dir(sort)?)?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }
    /// Opens the meeting file of that sort and name, if it exists.
    pub fn find_meeting_file(&self, sort: &str, name: &str) -> io::Result<Option<MeetingFile>> {
        MeetingFile::find(&self.meeting_dir(sort)?.join(name), 0)
    }
    /// Opens or creates a named pipe of that sort and name; it belongs to the store's owner.
    pub fn meeting_pipe(&self, sort: &str, name: &str) -> io::Result<PathBuf> {
        let dir = self.meeting_dir(sort)?;
        let path = dir.join(name);
        match mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(path),
            Err(errno) => return Err(errno.into()),
        }
        if rustix::process::geteuid().is_root() {
            let owner = std::fs::metadata(&dir)?;
            std::os::unix::fs::lchown(&path, Some(owner.uid()), Some(owner.gid()))?;
        }
        Ok(path)
    }
    /// Removes the meeting files of that sort that no process has open, as dead processes leave them. It opens and
    /// closes all others, which drops the process-wide locks of this process on them.
    pub fn sweep_meeting_files(&self, sort: &str) -> io::Result<()> {
        remove_unused(&self.meeting_dir(sort)?)
    }
}
