//! Bucket policies: who may do what with which keys, as JSON in AWS's form.
//!
//! Pure: a policy is parsed once and evaluated for each request. A put refuses what cannot be evaluated, so that no part that is meant to deny
//! is ignored later.

use std::cmp::Ordering;
use std::net::IpAddr;

use s3s::{S3Result, s3_error};
use serde_json::Value;
use wildmatch::WildMatch;

/// S3's limit of a policy in bytes.
const BYTES_MAX: usize = 20 * 1024;
/// Prefix of resource names.
const RESOURCE: &str = "arn:aws:s3:::";

/// A bucket's policy.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    statements: Vec<Statement>,
}

/// Result of evaluating a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Allowed.
    Allow,
    /// Denied, whatever else allows it.
    Deny,
    /// The policy says nothing.
    Silent,
}

/// A request to evaluate.
pub struct Question<'a> {
    /// User; `None` without a key.
    pub user: Option<&'a str>,
    /// An action such as `s3:GetObject`.
    pub action: &'a str,
    /// `bucket` or `bucket/key`.
    pub resource: &'a str,
    /// Returns values of condition keys (in lower case); `None` if the request has none.
    pub value: &'a dyn Fn(&str) -> Option<String>,
}

#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each of three fields has its negation")]
struct Statement {
    allows: bool,
    principals: Vec<String>,
    not_principals: bool,
    actions: Vec<WildMatch>,
    not_actions: bool,
    resources: Vec<WildMatch>,
    not_resources: bool,
    conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Debug)]
struct Condition {
    operator: Operator,
    if_exists: bool,
    key: String,
    values: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Operator {
    Equals {
        not: bool,
        ignores_case: bool,
    },
    Like {
        not: bool,
    },
    /// Orders that match, and whether the result is negated.
    Number {
        less: bool,
        equal: bool,
        greater: bool,
    },
    Bool,
    Address {
        not: bool,
    },
    Null,
}

impl Policy {
    /// Parses a policy of `bucket`.
    pub fn parse(text: &str, bucket: &str) -> S3Result<Self> {
        let malformed = |cause: &str| s3_error!(MalformedPolicy, "{cause}");
        if text.len() > BYTES_MAX {
            return Err(malformed("a policy has 20 KiB at most"));
        }
        let value: Value = serde_json::from_str(text).map_err(|_| malformed("Policies must be valid JSON"))?;
        if value.get("Version").is_some_and(|version| version != "2012-10-17" && version != "2008-10-17") {
            return Err(malformed("Version is 2012-10-17 or 2008-10-17"));
        }
        let statements = match value.get("Statement") {
            Some(Value::Array(statements)) => statements.iter().collect(),
            Some(one @ Value::Object(_)) => vec![one],
            _ => return Err(malformed("Missing required field Statement")),
        };
        let statements = statements.into_iter().map(|one| Statement::parse(one, bucket)).collect::<Result<_, _>>();
        statements.map(|statements| Self { statements }).map_err(|cause| malformed(&cause))
    }
    /// Evaluates the policy for a request.
    pub fn ask(&self, question: &Question<'_>) -> Verdict {
        let mut verdict = Verdict::Silent;
        for statement in self.statements.iter().filter(|statement| statement.is_about(question)) {
            if !statement.allows {
                return Verdict::Deny;
            }
            verdict = Verdict::Allow;
        }
        verdict
    }
    /// Returns whether it allows something to everybody, without a condition that excludes some.
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|statement| {
            statement.allows
                && (statement.not_principals || statement.principals.iter().any(|principal| principal == "*"))
                && !statement.conditions.iter().any(|condition| {
                    matches!(
                        condition.key.as_str(),
                        "aws:sourceip" | "aws:username" | "aws:userid" | "aws:principalarn"
                    ) && !condition.values.iter().any(|value| value == "*" || value == "0.0.0.0/0" || value == "::/0")
                })
        })
    }
}

impl Statement {
    fn parse(value: &Value, bucket: &str) -> Result<Self, String> {
        let allows = match value.get("Effect").and_then(Value::as_str) {
            Some("Allow") => true,
            Some("Deny") => false,
            _ => return Err("Effect is Allow or Deny".into()),
        };
        let either = |name: &str| -> Result<(Vec<String>, bool), String> {
            let negated = format!("Not{name}");
            match (value.get(name), value.get(&negated)) {
                (Some(given), None) => Ok((texts(given)?, false)),
                (None, Some(given)) => Ok((texts(given)?, true)),
                _ => Err(format!("a statement has one of {name} and {negated}")),
            }
        };
        let (actions, not_actions) = either("Action")?;
        let (resources, not_resources) = either("Resource")?;
        let (principals, not_principals) = match (value.get("Principal"), value.get("NotPrincipal")) {
            (Some(given), None) => (principals(given)?, false),
            (None, Some(_)) if allows => return Err("Allow with NotPrincipal is not allowed".into()),
            (None, Some(given)) => (principals(given)?, true),
            _ => return Err("Missing required field Principal".into()),
        };
        if !actions.iter().all(|action| action == "*" || action.to_ascii_lowercase().starts_with("s3:")) {
            return Err("Policy has invalid action".into());
        }
        let resources = resources.iter().map(|resource| {
            let rest = resource.strip_prefix(RESOURCE).ok_or_else(|| "Policy has invalid resource".to_owned())?;
            let of = rest.split('/').next().unwrap_or_default();
            let fits = WildMatch::new(of).matches(bucket) || of.contains('*');
            if fits {
                Ok(WildMatch::new(rest))
            } else {
                Err("Policy has invalid resource: it names another bucket".to_owned())
            }
        });
        Ok(Self {
            allows,
            principals,
            not_principals,
            actions: actions.iter().map(|action| WildMatch::new(&action.to_ascii_lowercase())).collect(),
            not_actions,
            resources: resources.collect::<Result<_, _>>()?,
            not_resources,
            conditions: value.get("Condition").map_or(Ok(Vec::new()), conditions)?,
        })
    }
    fn is_about(&self, question: &Question<'_>) -> bool {
        let action = question.action.to_ascii_lowercase();
        let by = |principal: &String| is_principal(principal, question.user);
        (self.principals.iter().any(by) != self.not_principals)
            && (self.actions.iter().any(|pattern| pattern.matches(&action)) != self.not_actions)
            && (self.resources.iter().any(|pattern| pattern.matches(question.resource)) != self.not_resources)
            && self.conditions.iter().all(|condition| condition.holds(question))
    }
}

impl Condition {
    fn holds(&self, question: &Question<'_>) -> bool {
        let value = (question.value)(&self.key);
        if let Operator::Null = self.operator {
            return self.values.iter().any(|wanted| (wanted == "true") == value.is_none());
        }
        let is_negative = matches!(
            self.operator,
            Operator::Equals { not: true, .. } | Operator::Like { not: true } | Operator::Address { not: true }
        );
        let Some(value) = value else { return self.if_exists || is_negative };
        self.values.iter().any(|wanted| self.operator.compare(&value, wanted)) != is_negative
    }
}

impl Operator {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "StringEquals" | "ArnEquals" => Self::Equals { not: false, ignores_case: false },
            "StringNotEquals" | "ArnNotEquals" => Self::Equals { not: true, ignores_case: false },
            "StringEqualsIgnoreCase" => Self::Equals { not: false, ignores_case: true },
            "StringNotEqualsIgnoreCase" => Self::Equals { not: true, ignores_case: true },
            "StringLike" | "ArnLike" => Self::Like { not: false },
            "StringNotLike" | "ArnNotLike" => Self::Like { not: true },
            "NumericEquals" => Self::Number { less: false, equal: true, greater: false },
            "NumericNotEquals" => Self::Number { less: true, equal: false, greater: true },
            "NumericLessThan" => Self::Number { less: true, equal: false, greater: false },
            "NumericLessThanEquals" => Self::Number { less: true, equal: true, greater: false },
            "NumericGreaterThan" => Self::Number { less: false, equal: false, greater: true },
            "NumericGreaterThanEquals" => Self::Number { less: false, equal: true, greater: true },
            "Bool" => Self::Bool,
            "IpAddress" => Self::Address { not: false },
            "NotIpAddress" => Self::Address { not: true },
            "Null" => Self::Null,
            _ => return None,
        })
    }
    /// Compares values, before any negation.
    fn compare(self, value: &str, wanted: &str) -> bool {
        match self {
            Self::Equals { ignores_case: true, .. } | Self::Bool => value.eq_ignore_ascii_case(wanted),
            Self::Equals { .. } => value == wanted,
            Self::Like { .. } => WildMatch::new(wanted).matches(value),
            Self::Number { less, equal, greater } => {
                let (Ok(a), Ok(b)) = (value.parse::<f64>(), wanted.parse::<f64>()) else { return false };
                match a.partial_cmp(&b) {
                    Some(Ordering::Less) => less,
                    Some(Ordering::Equal) => equal,
                    Some(Ordering::Greater) => greater,
                    None => false,
                }
            }
            Self::Address { .. } => is_in_network(value, wanted),
            Self::Null => false,
        }
    }
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(word) => Ok(word.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err("a text was expected".to_owned()),
    };
    match value {
        Value::Array(values) if !values.is_empty() => values.iter().map(text).collect(),
        one => Ok(vec![text(one)?]),
    }
}

fn principals(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::String(all) if all == "*" => Ok(vec!["*".to_owned()]),
        Value::Object(kinds) if !kinds.is_empty() => {
            let mut all = Vec::new();
            for (kind, value) in kinds {
                if kind != "AWS" && kind != "CanonicalUser" {
                    return Err("Invalid principal in policy: users are named by AWS or CanonicalUser".into());
                }
                all.extend(texts(value)?);
            }
            Ok(all)
        }
        _ => Err("Invalid principal in policy".into()),
    }
}

fn conditions(value: &Value) -> Result<Vec<Condition>, String> {
    let mut all = Vec::new();
    for (word, keys) in value.as_object().ok_or("Condition is an object")? {
        let bare = word.strip_prefix("ForAnyValue:").or(word.strip_prefix("ForAllValues:")).unwrap_or(word);
        let (bare, if_exists) = bare.strip_suffix("IfExists").map_or((bare, false), |bare| (bare, true));
        let operator =
            Operator::parse(bare).ok_or_else(|| format!("the condition operator {word} is not known here"))?;
        for (key, values) in keys.as_object().ok_or("a condition is an object")? {
            let key = key.to_ascii_lowercase();
            if !is_known(&key) {
                return Err(format!("the condition key {key} is not known here"));
            }
            all.push(Condition { operator, if_exists, key, values: texts(values)? });
        }
    }
    Ok(all)
}

/// Returns whether requests have a value for this condition key.
fn is_known(key: &str) -> bool {
    const KEYS: [&str; 13] = [
        "aws:sourceip",
        "aws:securetransport",
        "aws:referer",
        "aws:useragent",
        "aws:username",
        "aws:userid",
        "aws:principalarn",
        "s3:prefix",
        "s3:delimiter",
        "s3:max-keys",
        "s3:versionid",
        "s3:signatureversion",
        "s3:authtype",
    ];
    KEYS.contains(&key)
        || key.starts_with("s3:x-amz-")
        || key.starts_with("s3:existingobjecttag/")
        || key.starts_with("s3:requestobjecttag/")
        || key == "s3:requestobjecttagkeys"
}

/// Returns whether a principal is this user: by name, or by an ARN that ends in the name.
fn is_principal(principal: &str, user: Option<&str>) -> bool {
    principal == "*"
        || user.is_some_and(|user| {
            principal == user
                || principal.strip_prefix("arn:aws:iam::").is_some_and(|rest| {
                    let (account, name) = rest.split_once(':').unwrap_or(("", rest));
                    name.strip_prefix("user/") == Some(user) || (name == "root" && account == user)
                })
        })
}

fn is_in_network(address: &str, network: &str) -> bool {
    let (base, bits) = network.split_once('/').map_or((network, None), |(base, bits)| (base, Some(bits)));
    let (Ok(address), Ok(base)) = (address.parse::<IpAddr>(), base.parse::<IpAddr>()) else { return false };
    let (address, base, width) = match (address.to_canonical(), base.to_canonical()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    match bits.map_or(Ok(width), str::parse::<u32>) {
        Ok(0) => true,
        Ok(bits) if bits <= width => (address ^ base) >> (width - bits) == 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(policy: &str, user: Option<&str>, action: &str, resource: &str) -> Verdict {
        let value = |key: &str| match key {
            "s3:prefix" => Some("pub/".to_owned()),
            "aws:sourceip" => Some("10.1.2.3".to_owned()),
            _ => None,
        };
        Policy::parse(policy, "data").unwrap().ask(&Question { user, action, resource, value: &value })
    }

    #[test]
    fn a_prefix_can_be_public() {
        let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::data/pub/*"}]}"#;
        assert_eq!(ask(policy, None, "s3:GetObject", "data/pub/a/b"), Verdict::Allow);
        assert_eq!(ask(policy, None, "s3:GetObject", "data/private"), Verdict::Silent);
        assert_eq!(ask(policy, None, "s3:PutObject", "data/pub/a"), Verdict::Silent);
        assert!(Policy::parse(policy, "data").unwrap().is_public());
    }

    #[test]
    fn denials_go_first_and_users_have_names() {
        let policy = r#"{"Statement":[
            {"Effect":"Allow","Principal":{"AWS":["arn:aws:iam:::user/bob"]},"Action":"s3:*","Resource":["arn:aws:s3:::data","arn:aws:s3:::data/*"]},
            {"Effect":"Deny","Principal":{"AWS":"*"},"Action":["s3:Delete*"],"Resource":"arn:aws:s3:::data/*"}]}"#;
        assert_eq!(ask(policy, Some("bob"), "s3:PutObject", "data/x"), Verdict::Allow);
        assert_eq!(ask(policy, Some("bob"), "s3:DeleteObject", "data/x"), Verdict::Deny);
        assert_eq!(ask(policy, Some("eve"), "s3:PutObject", "data/x"), Verdict::Silent);
        assert_eq!(ask(policy, None, "s3:PutObject", "data/x"), Verdict::Silent);
        assert!(!Policy::parse(policy, "data").unwrap().is_public());
    }

    #[test]
    fn conditions_hold_or_do_not() {
        let with = |condition: &str| {
            format!(
                r#"{{"Statement":{{"Effect":"Allow","Principal":"*","Action":"s3:ListBucket","Resource":"arn:aws:s3:::data","Condition":{condition}}}}}"#
            )
        };
        for (condition, verdict) in [
            (r#"{"StringEquals":{"s3:prefix":["a","pub/"]}}"#, Verdict::Allow),
            (r#"{"StringLike":{"s3:prefix":"p*"}}"#, Verdict::Allow),
            (r#"{"StringNotEquals":{"s3:prefix":"pub/"}}"#, Verdict::Silent),
            (r#"{"IpAddress":{"aws:SourceIp":"10.1.0.0/16"}}"#, Verdict::Allow),
            (r#"{"IpAddress":{"aws:SourceIp":"10.2.0.0/16"}}"#, Verdict::Silent),
            (r#"{"StringEquals":{"s3:delimiter":"/"}}"#, Verdict::Silent),
            (r#"{"StringEqualsIfExists":{"s3:delimiter":"/"}}"#, Verdict::Allow),
            (r#"{"Null":{"s3:delimiter":"true"}}"#, Verdict::Allow),
        ] {
            assert_eq!(ask(&with(condition), None, "s3:ListBucket", "data"), verdict, "{condition}");
        }
        assert!(Policy::parse(&with(r#"{"DateLessThan":{"aws:CurrentTime":"x"}}"#), "data").is_err());
        assert!(Policy::parse(&with(r#"{"StringEquals":{"aws:unheard":"x"}}"#), "data").is_err());
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"Statement":[{"Effect":"Maybe","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::data"}]}"#,
            r#"{"Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::data"}]}"#,
            r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"ec2:*","Resource":"arn:aws:s3:::data"}]}"#,
            r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::other/*"}]}"#,
        ] {
            assert_eq!(Policy::parse(bad, "data").unwrap_err().code().as_str(), "MalformedPolicy", "{bad}");
        }
    }

    #[test]
    fn patterns_match_in_bounded_time() {
        let (pattern, text) = ("*a".repeat(500), "a".repeat(499) + "b");
        let policy = format!(
            r#"{{"Statement":[{{"Effect":"Allow","Principal":"*","Action":"*","Resource":"arn:aws:s3:::data/{pattern}"}}]}}"#
        );
        let start = std::time::Instant::now();
        assert_eq!(ask(&policy, None, "s3:GetObject", &format!("data/{text}")), Verdict::Silent);
        assert!(start.elapsed().as_secs() < 1);
    }
}
