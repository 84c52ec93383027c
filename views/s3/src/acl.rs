//! Access control lists (ACLs) of buckets and objects, with S3's few permissions.
#![allow(clippy::match_same_arms, reason = "each word by itself")]

use s3s::dto::{AccessControlPolicy, Grant, Grantee, Owner, Permission, Type};
use s3s::{S3Result, s3_error};
use serde::{Deserialize, Serialize};

const ALL: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";
const LOG_DELIVERY: &str = "http://acs.amazonaws.com/groups/s3/LogDelivery";
/// S3's limit of grants in a list.
const GRANTS_MAX: usize = 100;

/// Grantee.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// A user by name.
    User(String),
    /// Everybody, also without a key.
    All,
    /// Everybody with a key.
    Authenticated,
}

/// Permission.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// Read an object, or list a bucket.
    Read,
    /// Put and delete the objects of a bucket.
    Write,
    /// Read the list.
    ReadAcp,
    /// Change the list.
    WriteAcp,
    /// All permissions.
    Full,
}

impl Right {
    fn word(self) -> &'static str {
        match self {
            Self::Read => Permission::READ,
            Self::Write => Permission::WRITE,
            Self::ReadAcp => Permission::READ_ACP,
            Self::WriteAcp => Permission::WRITE_ACP,
            Self::Full => Permission::FULL_CONTROL,
        }
    }
    fn parse(word: &str) -> Option<Self> {
        [Self::Read, Self::Write, Self::ReadAcp, Self::WriteAcp, Self::Full].into_iter().find(|one| one.word() == word)
    }
}

/// Owner and grants of a bucket or an object.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    /// Name of the owner.
    pub owner: String,
    /// Grantees and their permissions.
    pub grants: Vec<(Who, Right)>,
}

/// Headers with grants, in S3's order.
#[derive(Default)]
pub struct GrantHeaders<'a> {
    /// `x-amz-grant-read`
    pub read: Option<&'a str>,
    /// `x-amz-grant-write`
    pub write: Option<&'a str>,
    /// `x-amz-grant-read-acp`
    pub read_acp: Option<&'a str>,
    /// `x-amz-grant-write-acp`
    pub write_acp: Option<&'a str>,
    /// `x-amz-grant-full-control`
    pub full: Option<&'a str>,
}

impl GrantHeaders<'_> {
    /// Returns whether there are no grants.
    pub fn is_empty(&self) -> bool {
        [self.read, self.write, self.read_acp, self.write_acp, self.full].iter().all(Option::is_none)
    }
}

impl Acl {
    /// Creates a list by which only the owner may do anything.
    pub fn private(owner: &str) -> Self {
        Self { owner: owner.to_owned(), grants: vec![(Who::User(owner.to_owned()), Right::Full)] }
    }
    /// Creates the list for a canned ACL such as `public-read`.
    pub fn canned(word: &str, owner: &str, bucket_owner: &str) -> S3Result<Self> {
        let mut acl = Self::private(owner);
        match word {
            "private" => {}
            "public-read" => acl.grants.push((Who::All, Right::Read)),
            "public-read-write" => acl.grants.extend([(Who::All, Right::Read), (Who::All, Right::Write)]),
            "authenticated-read" => acl.grants.push((Who::Authenticated, Right::Read)),
            "bucket-owner-read" if owner != bucket_owner => {
                acl.grants.push((Who::User(bucket_owner.to_owned()), Right::Read));
            }
            "bucket-owner-full-control" if owner != bucket_owner => {
                acl.grants.push((Who::User(bucket_owner.to_owned()), Right::Full));
            }
            "bucket-owner-read" | "bucket-owner-full-control" => {}
            other => return Err(s3_error!(InvalidArgument, "there is no canned ACL `{}`", other.escape_default())),
        }
        Ok(acl)
    }
    /// Creates the list that a request asks for, by a canned ACL or by grants in headers; `None` if it
    /// asks for none.
    pub fn asked(
        word: Option<&str>,
        headers: &GrantHeaders<'_>,
        (owner, bucket_owner): (&str, &str),
        is_user: impl Fn(&str) -> bool,
    ) -> S3Result<Option<Self>> {
        let mut grants = Vec::new();
        for (header, right) in [
            (headers.read, Right::Read),
            (headers.write, Right::Write),
            (headers.read_acp, Right::ReadAcp),
            (headers.write_acp, Right::WriteAcp),
            (headers.full, Right::Full),
        ] {
            for grantee in header.unwrap_or_default().split(',').map(str::trim).filter(|text| !text.is_empty()) {
                grants.push((of_header(grantee, &is_user)?, right));
            }
        }
        match (word, grants.is_empty()) {
            (Some(_), false) => Err(s3_error!(InvalidRequest, "give a canned ACL or grants, not both")),
            (Some(word), true) => Self::canned(word, owner, bucket_owner).map(Some),
            (None, false) => Ok(Some(Self { owner: owner.to_owned(), grants })),
            (None, true) => Ok(None),
        }
    }
    /// Creates the list that a request's body gives.
    pub fn of_body(body: AccessControlPolicy, owner: &str, is_user: impl Fn(&str) -> bool) -> S3Result<Self> {
        if let Some(named) = body.owner.and_then(|named| named.id).filter(|named| named != owner) {
            return Err(s3_error!(AccessDenied, "`{}` is not the owner", named.escape_default()));
        }
        let given = body.grants.unwrap_or_default();
        if given.len() > GRANTS_MAX {
            return Err(s3_error!(InvalidRequest, "{} grants; {GRANTS_MAX} are the most", given.len()));
        }
        let mut grants = Vec::new();
        for grant in given {
            let right = grant.permission.as_ref().and_then(|word| Right::parse(word.as_str()));
            let (Some(right), Some(grantee)) = (right, grant.grantee) else {
                return Err(s3_error!(MalformedACLError, "a grant has a grantee and a permission"));
            };
            let who = match (grantee.id, grantee.email_address, grantee.uri) {
                (Some(id), ..) => user(&id, &is_user)?,
                (None, Some(_), _) => {
                    return Err(s3_error!(UnresolvableGrantByEmailAddress, "users have no addresses here"));
                }
                (None, None, Some(uri)) => group(&uri)?,
                (None, None, None) => return Err(s3_error!(MalformedACLError, "a grantee has an id or a URI")),
            };
            grants.push((who, right));
        }
        Ok(Self { owner: owner.to_owned(), grants })
    }
    /// Returns whether `name` (`None`: without a key) has the permission `right`.
    pub fn allows(&self, name: Option<&str>, right: Right, ignores_public: bool) -> bool {
        self.grants.iter().any(|(who, granted)| {
            let is_meant = match who {
                Who::User(user) => name == Some(user.as_str()),
                Who::All => !ignores_public,
                Who::Authenticated => name.is_some() && !ignores_public,
            };
            is_meant && (*granted == right || *granted == Right::Full)
        })
    }
    /// Returns whether anything is granted to more than named users.
    pub fn is_public(&self) -> bool {
        self.grants.iter().any(|(who, _)| !matches!(who, Who::User(_)))
    }
    /// Converts the list to S3's types.
    pub fn told(&self) -> (Owner, Vec<Grant>) {
        // Groups first, as other implementations do.
        let mut ordered: Vec<&(Who, Right)> = self.grants.iter().collect();
        ordered.sort_by_key(|(who, _)| matches!(who, Who::User(_)));
        let grants = ordered.into_iter().map(|(who, right)| {
            let grantee = match who {
                Who::User(name) => Grantee {
                    display_name: Some(name.clone()),
                    email_address: None,
                    id: Some(name.clone()),
                    type_: Type::from_static(Type::CANONICAL_USER),
                    uri: None,
                },
                Who::All => of_group(ALL),
                Who::Authenticated => of_group(AUTHENTICATED),
            };
            Grant { grantee: Some(grantee), permission: Some(Permission::from_static(right.word())) }
        });
        (owner(&self.owner), grants.collect())
    }
}

/// Converts a user to S3's type.
pub fn owner(name: &str) -> Owner {
    Owner { display_name: Some(name.to_owned()), id: Some(name.to_owned()) }
}

fn of_group(uri: &str) -> Grantee {
    Grantee {
        display_name: None,
        email_address: None,
        id: None,
        type_: Type::from_static(Type::GROUP),
        uri: Some(uri.to_owned()),
    }
}

fn of_header(text: &str, is_user: &impl Fn(&str) -> bool) -> S3Result<Who> {
    let (kind, value) = text.split_once('=').unwrap_or(("", text));
    let value = value.trim_matches('"');
    match kind.trim().to_ascii_lowercase().as_str() {
        "id" => user(value, is_user),
        "uri" => group(value),
        "emailaddress" => Err(s3_error!(UnresolvableGrantByEmailAddress, "users have no addresses here")),
        _ => {
            Err(s3_error!(InvalidArgument, "a grant is `id=\"...\"` or `uri=\"...\"`, not `{}`", text.escape_default()))
        }
    }
}

fn user(name: &str, is_user: &impl Fn(&str) -> bool) -> S3Result<Who> {
    if is_user(name) {
        Ok(Who::User(name.to_owned()))
    } else {
        Err(s3_error!(InvalidArgument, "Invalid id: there is no user `{}`", name.escape_default()))
    }
}

fn group(uri: &str) -> S3Result<Who> {
    match uri {
        ALL => Ok(Who::All),
        AUTHENTICATED => Ok(Who::Authenticated),
        LOG_DELIVERY => Err(s3_error!(NotImplemented, "no logs are delivered here")),
        _ => Err(s3_error!(InvalidArgument, "Invalid group uri: `{}`", uri.escape_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_grant_what_they_say() {
        let acl = Acl::canned("public-read", "ann", "ann").unwrap();
        assert!(acl.allows(None, Right::Read, false) && acl.allows(Some("bob"), Right::Read, false));
        assert!(!acl.allows(None, Right::Read, true), "a block of public access holds");
        assert!(!acl.allows(Some("bob"), Right::Write, false) && acl.allows(Some("ann"), Right::WriteAcp, false));
        let acl = Acl::canned("authenticated-read", "ann", "ann").unwrap();
        assert!(!acl.allows(None, Right::Read, false) && acl.allows(Some("bob"), Right::Read, false));
        assert!(Acl::canned("nonsense", "ann", "ann").is_err());
    }

    #[test]
    fn headers_name_users_that_are_there() {
        let is_user = |name: &str| name == "bob";
        let headers = GrantHeaders {
            read: Some("id=\"bob\", uri=\"http://acs.amazonaws.com/groups/global/AllUsers\""),
            ..GrantHeaders::default()
        };
        let acl = Acl::asked(None, &headers, ("ann", "ann"), is_user).unwrap().unwrap();
        assert_eq!(acl.grants, [(Who::User("bob".into()), Right::Read), (Who::All, Right::Read)]);
        let headers = GrantHeaders { write: Some("id=carl"), ..GrantHeaders::default() };
        assert!(Acl::asked(None, &headers, ("ann", "ann"), is_user).is_err());
    }
}
