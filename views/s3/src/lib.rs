//! S3 on a store: buckets are containers, keys are the paths of their trees, over the same logic of files as mount and preload.
//!
//! `docs/s3.md` says what is there. This room knows S3 and HTTP; it must not know the engine, how trees are kept, nor what is on media: all it does
//! to bytes and names goes through `cenote-posix`, and what it knows besides is in extended attributes of its own.

mod acl;
mod alive;
mod amend;
mod api;
mod body;
mod bucket;
mod checksum;
mod condition;
mod cors;
mod failure;
mod gateway;
mod keyed;
mod keys;
mod lifecycle;
mod listing;
mod meta;
mod name;
mod objects;
mod patience;
mod policy;
mod seal;
mod server;
mod summing;
mod unread;
mod uploads;
mod versions;
mod walk;

pub use keyed::Keyed;
pub use keys::{GRACE_S, Key, Keys, User, now_s};
pub use server::{Config, Server};
