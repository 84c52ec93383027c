//! S3 on a store: buckets are containers, keys are paths in their trees, with the same file logic as mount and preload.
//!
//! `docs/s3.md` lists what is supported. This crate knows S3 and HTTP; it must not know the engine, how trees are stored, nor what is on media: all
//! access to bytes and names goes through `cenote-posix`, and its own metadata are in extended attributes.

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
