//! Rules that abort uploads which nobody completes. Rules about objects are refused: the store has its own (`cenote policy`).

use s3s::dto::{ExpirationStatus, LifecycleRule};
use s3s::{S3Result, s3_error};

use crate::bucket::Bucket;
use crate::gateway::Gateway;
use crate::uploads::Upload;

const DAY_S: i64 = 24 * 3600;
/// S3's limit of rules of a bucket.
const RULES_MAX: usize = 1000;

/// Refuses rules that would not be carried out; gives each rule a name.
pub fn check(rules: &mut [LifecycleRule]) -> S3Result<()> {
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(s3_error!(MalformedXML, "a bucket has 1 to {RULES_MAX} lifecycle rules"));
    }
    let mut names = std::collections::HashSet::new();
    for (place, rule) in rules.iter_mut().enumerate() {
        let name = rule.id.get_or_insert_with(|| format!("rule-{place}")).clone();
        if name.len() > 255 || !names.insert(name) {
            return Err(s3_error!(InvalidArgument, "rules have different ids of 255 bytes at most"));
        }
        if ![ExpirationStatus::ENABLED, ExpirationStatus::DISABLED].contains(&rule.status.as_str()) {
            return Err(s3_error!(MalformedXML, "a rule is Enabled or Disabled"));
        }
        let is_about_objects = rule.expiration.is_some()
            || rule.noncurrent_version_expiration.is_some()
            || rule.noncurrent_version_transitions.is_some()
            || rule.transitions.is_some();
        if is_about_objects {
            return Err(s3_error!(
                NotImplemented,
                "rules give up uploads here (AbortIncompleteMultipartUpload), nothing else; where objects are kept is said by `cenote policy`"
            ));
        }
        let days = rule.abort_incomplete_multipart_upload.as_ref().and_then(|abort| abort.days_after_initiation);
        if days.is_none_or(|days| days < 1) {
            return Err(s3_error!(InvalidArgument, "DaysAfterInitiation is 1 at least"));
        }
    }
    Ok(())
}

/// Returns whether the rules abort an upload of this key begun at this time.
fn is_due(rules: &[LifecycleRule], key: &str, began_s: i64, now_s: i64) -> bool {
    rules.iter().filter(|rule| rule.status.as_str() == ExpirationStatus::ENABLED).any(|rule| {
        let filter = rule.filter.as_ref().and_then(|filter| filter.prefix.as_deref());
        let prefix = filter.or(rule.prefix.as_deref()).unwrap_or_default();
        let days = rule.abort_incomplete_multipart_upload.as_ref().and_then(|abort| abort.days_after_initiation);
        key.starts_with(prefix) && days.is_some_and(|days| now_s - began_s >= i64::from(days) * DAY_S)
    })
}

/// Aborts due uploads of a bucket; returns their number.
pub fn sweep(gateway: &Gateway, bucket: &Bucket, now_s: i64) -> S3Result<usize> {
    let Some(rules) = &bucket.record.lifecycle else { return Ok(0) };
    let due =
        |upload: &Upload| upload.meta.began.is_some_and(|(began_s, _)| is_due(rules, &upload.meta.key, began_s, now_s));
    let mut dropped = 0;
    for upload in gateway.uploads(bucket)?.iter().filter(|upload| due(upload)) {
        gateway.drop_upload(bucket, upload)?;
        dropped += 1;
    }
    Ok(dropped)
}

#[cfg(test)]
mod tests {
    use s3s::dto::AbortIncompleteMultipartUpload;

    use super::*;

    fn rule(prefix: &str, days: i32) -> LifecycleRule {
        LifecycleRule {
            abort_incomplete_multipart_upload: Some(AbortIncompleteMultipartUpload {
                days_after_initiation: Some(days),
            }),
            expiration: None,
            filter: None,
            id: None,
            noncurrent_version_expiration: None,
            noncurrent_version_transitions: None,
            prefix: Some(prefix.into()),
            status: ExpirationStatus::from_static(ExpirationStatus::ENABLED),
            transitions: None,
        }
    }

    #[test]
    fn uploads_are_given_up_in_time() {
        let mut rules = [rule("tmp/", 2)];
        check(&mut rules).unwrap();
        assert!(is_due(&rules, "tmp/a", 0, 2 * DAY_S));
        assert!(!is_due(&rules, "tmp/a", 0, 2 * DAY_S - 1));
        assert!(!is_due(&rules, "other", 0, 9 * DAY_S));
        assert!(check(&mut [rule("", 0)]).is_err());
    }
}
