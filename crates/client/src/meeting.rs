//! Files in shared memory at which the clients of a store on one machine meet, without the engine: to lock, and to map.

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
    /// The directory of the meeting files of one sort: only whoever made the store, and root, may enter it.
    pub fn meeting_dir(&self, sort: &str) -> io::Result<PathBuf> {
        let above = memory_dir(&shm_base(), self.id()).map_err(io::Error::other)?.ok_or(io::ErrorKind::NotFound)?;
        meeting_dir(&above, sort)
    }
    /// The meeting file of that sort and name, made if it is not there; its descriptor is at least `lowest` where that can be.
    pub fn meeting_file(&self, sort: &str, name: &str, lowest: i32) -> io::Result<MeetingFile> {
        MeetingFile::open(&self.meeting_dir(sort)?.join(name), lowest)
    }
    /// The names of the meeting files of that sort.
    pub fn meeting_names(&self, sort: &str) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.meeting_dir(sort)?)?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }
    /// The meeting file of that sort and name, if it is there.
    pub fn find_meeting_file(&self, sort: &str, name: &str) -> io::Result<Option<MeetingFile>> {
        MeetingFile::find(&self.meeting_dir(sort)?.join(name), 0)
    }
    /// A pipe of the kernel's of that sort and name, made if it is not there; it belongs to whom the store does.
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
    /// Removes the meeting files of that sort that nobody has open, as processes leave them that die. It opens and closes all others, which takes away
    /// what this process has locked there as a process.
    pub fn sweep_meeting_files(&self, sort: &str) -> io::Result<()> {
        remove_unused(&self.meeting_dir(sort)?)
    }
}
