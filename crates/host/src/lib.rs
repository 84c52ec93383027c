//! What a process must know about the machine it runs on: forks, which processes live, files at which processes meet,
//! memory that an allocator keeps, this user's directories, files that another program cuts off, and whether a program can
//! be made to see the store.
//!
//! This room must not know stores, devices, sessions nor views: it is told a path, a descriptor or a process.

pub mod elf;
pub mod fork;
pub mod home;
pub mod meeting;
pub mod memory;
pub mod process;
pub mod torn;
